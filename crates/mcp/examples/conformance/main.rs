//! The endpoint of the product, with the fixtures of the official MCP conformance suite.
//!
//! Prints its url on one line and serves until it is killed, on loopback only. The fixtures are
//! capabilities of the same registry, served by the very function that a node uses; the access
//! rule before it is the node's too.

mod access;
mod host;
mod input;
mod pages;
mod tools;

use std::{io::Write as _, net::SocketAddr, sync::Arc};

use axum::Router;
use earshot_capability::{Answer, Call, Capability, Dispatcher, Draft, Registry, builtin};
use earshot_mcp::{FixturePeer, HttpSettings, McpHost, http_service};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Any arguments: each fixture reads what it needs.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(clippy::empty_structs_with_brackets, reason = "its JSON is an object")]
struct Anything {}

/// An answer in MCP's own form.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(clippy::empty_structs_with_brackets, reason = "its JSON is an object")]
struct Native {}

/// Begins a fixture.
fn draft(id: &'static str, description: &'static str) -> Draft<Anything, Native> {
    Draft::query(id, id, description)
}

/// Declares a fixture that answers with a JSON result of MCP.
fn answer<F, R>(draft: Draft<Anything, Native>, result: F) -> Capability
where
    F: Fn(FixturePeer) -> R + Send + Sync + 'static,
    R: Future<Output = Value> + Send + 'static,
{
    draft.answering(move |call: Call, _| {
        let peer = call
            .peer
            .and_then(|peer| peer.downcast::<FixturePeer>().ok())
            .expect("the projection hands its peer to every fixture");
        let result = result(FixturePeer::clone(&peer));
        async move { Ok(Answer::Native(result.await)) }
    })
}

/// A result of one text.
fn text(text: impl Into<String>) -> Value {
    json!({ "content": [{ "type": "text", "text": text.into() }] })
}

/// A protocol error instead of a result.
fn protocol_error(code: i32, message: &str, data: &Value) -> Value {
    json!({ "protocolError": { "code": code, "message": message, "data": data } })
}

fn main() -> std::io::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(serve())
}

async fn serve() -> std::io::Result<()> {
    let mut all = builtin();
    all.extend(earshot_mcp::capabilities());
    all.extend(tools::fixtures());
    all.extend(input::fixtures());
    all.extend(pages::fixtures());
    let dispatcher = Dispatcher::new(
        Registry::new(all),
        Arc::new(host::Nothing),
        "conformance".to_owned(),
    );
    let host: Arc<dyn McpHost> = Arc::new(host::FixtureHost::new(dispatcher));
    let settings = HttpSettings::new(TaskTracker::new(), CancellationToken::new());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let app = Router::new()
        .route_service("/mcp", http_service(host, settings))
        .layer(axum::middleware::from_fn_with_state(port, access::judge));
    let mut out = std::io::stdout();
    writeln!(out, "http://127.0.0.1:{port}/mcp")?;
    out.flush()?;
    axum::serve(
        listener,
        app.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .await
}
