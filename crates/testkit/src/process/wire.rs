//! An MCP client of the 2025 generation without a bridge: a wire session over HTTP.

use std::io;

use serde_json::{Value, json};

use super::{Answer, http};

/// A wire session.
#[derive(Debug, Clone)]
pub struct WireClient {
    url: String,
    /// The id that the node gave out.
    pub session: String,
}

impl WireClient {
    /// Opens a wire session at a node's url.
    ///
    /// # Panics
    /// When the node refuses.
    pub fn start(url: &str, name: &str) -> Self {
        let answer = initialize(url, name, &[]);
        assert_eq!(answer.status, 200, "{answer:?}");
        let session = answer.header("mcp-session-id").expect("a wire session");
        let client = Self {
            url: url.to_owned(),
            session: session.to_owned(),
        };
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(client.send(&ready).status, 202);
        client
    }

    /// Sends one message within the session.
    ///
    /// # Panics
    /// When the node cannot be reached.
    pub fn send(&self, message: &Value) -> Answer {
        self.try_send(message).expect("the node answers")
    }

    /// Sends one message within the session to a node that may not answer.
    ///
    /// # Errors
    /// What the system says.
    pub fn try_send(&self, message: &Value) -> io::Result<Answer> {
        let session = [("mcp-session-id", self.session.as_str())];
        try_post(&self.url, &session, message)
    }

    /// Calls a tool, and returns its result whole.
    ///
    /// # Panics
    /// When the session or the call is refused.
    pub fn call(&self, tool: &str, arguments: &Value) -> Value {
        let answer = self.send(&json!({
            "jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": { "name": tool, "arguments": arguments },
        }));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["result"].clone()
    }
}

/// Sends an `initialize` with these headers besides the usual ones.
///
/// # Panics
/// When the node cannot be reached.
pub fn initialize(url: &str, name: &str, headers: &[(&str, &str)]) -> Answer {
    let hello = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": name, "version": "1" },
        },
    });
    post(url, headers, &hello)
}

/// Posts one message to `/mcp`, as a client that takes plain JSON.
///
/// # Panics
/// When the node cannot be reached.
pub fn post(url: &str, headers: &[(&str, &str)], message: &Value) -> Answer {
    try_post(url, headers, message).expect("the node answers")
}

fn try_post(url: &str, headers: &[(&str, &str)], message: &Value) -> io::Result<Answer> {
    let usual = [
        ("content-type", "application/json"),
        ("accept", "application/json"),
    ];
    let headers = [&usual, headers].concat();
    http(
        url,
        "POST",
        "/mcp",
        &headers,
        message.to_string().as_bytes(),
    )
}
