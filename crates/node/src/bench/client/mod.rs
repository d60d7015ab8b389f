//! A small MCP client for measuring: over HTTP in both generations of the protocol, and over the
//! streams of a bridge.
//!
//! It sends one request at a time and reads no more of an answer than it is asked for, so that
//! little of what is measured is the client's own.

mod frame;
mod http;
mod stdio;

use std::{io, time::Duration};

use ::http::StatusCode;
use serde_json::{Value, value::RawValue};

pub(super) use self::{
    http::{HttpClient, Target},
    stdio::StdioClient,
};

/// The protocol version that is asked for where there is a handshake.
const PROTOCOL_VERSION: &str = "2025-06-18";

/// How long any answer may take: beyond it a client would have given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Largest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Why a request brought no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// No connection could be made.
    #[error("no connection")]
    Connect(#[source] io::Error),
    /// The connection ended before the answer did.
    #[error("the connection ended before the answer")]
    Lost(#[source] hyper::Error),
    /// The server no longer knows the wire session.
    #[error("the wire session is gone")]
    SessionGone,
    /// HTTP itself refused.
    #[error("HTTP status {0}")]
    Status(StatusCode),
    /// The server or the tool refused.
    #[error("refused: {0}")]
    Refused(String),
    /// The bridge could not be started, or has ended.
    #[error("the bridge is gone")]
    Bridge(#[source] io::Error),
    /// What came is no answer to the request.
    #[error("what came is no answer")]
    NoAnswer,
    /// Nothing came in time.
    #[error("nothing came within {PATIENCE:?}")]
    Silent,
}

/// One client.
#[derive(Debug)]
pub(super) enum Client {
    /// Over HTTP, with a wire session.
    Http(Box<HttpClient>),
    /// Over the streams of a bridge.
    Stdio(Box<StdioClient>),
}

impl Client {
    /// Calls a tool, with its arguments as JSON, and returns the result as it came.
    pub(super) async fn call(
        &mut self,
        tool: &str,
        arguments: &str,
    ) -> Result<Box<RawValue>, ClientError> {
        let asked = async {
            match self {
                Self::Http(client) => client.call(tool, arguments).await,
                Self::Stdio(client) => {
                    let params = format!("{{\"name\":\"{tool}\",\"arguments\":{arguments}}}");
                    client.ask("tools/call", &params).await
                }
            }
        };
        let result = within_patience(asked).await?;
        frame::check_tool_result(&result)?;
        Ok(result)
    }

    /// Returns how many answers came to requests that had been answered before.
    pub(super) fn repeated(&self) -> u64 {
        match self {
            // One exchange over HTTP carries one answer; a second one was counted there.
            Self::Http(client) => client.repeated,
            Self::Stdio(client) => client.repeated,
        }
    }

    /// Returns the process of the bridge.
    pub(super) fn bridge_pid(&self) -> Option<u32> {
        match self {
            Self::Http(_) => None,
            Self::Stdio(client) => client.pid(),
        }
    }

    /// Leaves as a client does, and waits until the bridge has ended. Returns how many more
    /// answers came to requests that had been answered.
    pub(super) async fn close(self) -> u64 {
        match self {
            Self::Http(client) => {
                client.close().await;
                0
            }
            Self::Stdio(client) => client.close().await,
        }
    }
}

/// Reads the structured content of a tool's result.
pub(super) fn structured(result: &RawValue) -> Option<Value> {
    let mut whole: Value = serde_json::from_str(result.get()).ok()?;
    whole.get_mut("structuredContent").map(Value::take)
}

async fn within_patience<T>(
    work: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    tokio::time::timeout(PATIENCE, work)
        .await
        .unwrap_or(Err(ClientError::Silent))
}

/// Writes the parameters of `initialize`; `name` needs no escapes.
fn introduction(name: &str) -> String {
    format!(
        "{{\"protocolVersion\":\"{PROTOCOL_VERSION}\",\"capabilities\":{{}},\
         \"clientInfo\":{{\"name\":\"{name}\",\"version\":\"1\"}}}}"
    )
}
