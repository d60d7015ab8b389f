//! The endpoint, asked as clients ask it: one table for each kind of header.

mod calls;
mod handshake;
mod headers;
mod persistence;
mod twins;

use earshot_trust::{Origin, Surface, Writes};
use serde_json::json;
use tower::ServiceExt as _;

use super::*;
use crate::testing::FakeHost;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bank","version":"1"}}}"#;
const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
const JSON: (&str, &str) = ("content-type", "application/json");
const BOTH: (&str, &str) = ("accept", "application/json, text/event-stream");

/// An endpoint with its host.
struct World {
    service: McpService,
    host: Arc<FakeHost>,
    /// As whom the requests come.
    caller: Caller,
    shutdown: CancellationToken,
}

/// An answer, read whole.
struct Answered {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Answered {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text)
            .unwrap_or_else(|error| panic!("{error}: {} {:?}", self.status, self.text))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn kind(&self) -> Option<&str> {
        self.header("content-type")
    }

    /// The code of the JSON-RPC error, and the id that it answers.
    fn error(&self) -> (u16, i64, Value) {
        let json = self.json();
        assert_eq!(json["jsonrpc"], "2.0", "{}", self.text);
        let code = json["error"]["code"].as_i64();
        (
            self.status,
            code.unwrap_or_else(|| panic!("{}", self.text)),
            json["id"].clone(),
        )
    }
}

impl World {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut HttpSettings)) -> Self {
        Self::of(FakeHost::new(), change)
    }

    /// The endpoint of a node after the crash of its predecessor: what the host keeps is left.
    fn of(host: Arc<FakeHost>, change: impl FnOnce(&mut HttpSettings)) -> Self {
        let shutdown = CancellationToken::new();
        let mut settings = HttpSettings::new(TaskTracker::new(), shutdown.clone());
        change(&mut settings);
        let dyn_host: Arc<dyn McpHost> = Arc::<FakeHost>::clone(&host);
        Self {
            service: http_service(dyn_host, settings),
            host,
            caller: Caller::anonymous(Origin::Loopback(Writes::Allowed), Surface::Mcp),
            shutdown,
        }
    }

    async fn send(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response<McpBody> {
        let mut request = Request::builder().method(method).uri("/mcp");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.extension(Arc::new(self.caller.clone()));
        let request = request.body(Full::new(body.into())).unwrap();
        self.service.clone().oneshot(request).await.unwrap()
    }

    async fn ask(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answered {
        let answer = self.send(method, headers, body).await;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answered {
            status: parts.status.as_u16(),
            headers: parts.headers,
            text: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    async fn post(&self, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answered {
        let mut all = vec![JSON, BOTH];
        all.extend(headers);
        self.ask("POST", &all, body).await
    }

    /// Opens a wire session of the 2025 generation.
    async fn open(&self) -> String {
        let answer = self.post(&[], INITIALIZE).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let id = answer.header("mcp-session-id").unwrap().to_owned();
        let noted = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let noted = self.post(&[("mcp-session-id", &id)], noted).await;
        assert_eq!((noted.status, noted.text.as_str()), (202, ""));
        id
    }

    /// Calls a tool within a session.
    async fn call(&self, session: &str, name: &str, arguments: Value) -> Value {
        let params = json!({ "name": name, "arguments": arguments });
        let request =
            json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params });
        let answer = self
            .post(&[("mcp-session-id", session)], request.to_string())
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    }
}

/// A request of the 2026 generation, with the headers that belong to it.
fn modern(method: &str, mut params: Value) -> (Vec<(&'static str, String)>, String) {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "modern", "version": "2" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let mut headers = vec![
        ("mcp-protocol-version", "2026-07-28".to_owned()),
        ("mcp-method", method.to_owned()),
    ];
    if let Some(name) = params["name"].as_str() {
        headers.push(("mcp-name", name.to_owned()));
    }
    let request = json!({ "jsonrpc": "2.0", "id": 5, "method": method, "params": params });
    (headers, request.to_string())
}

impl World {
    async fn modern(&self, method: &str, params: Value) -> Answered {
        let (headers, body) = modern(method, params);
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        self.post(&headers, body).await
    }
}

/// Lets other tasks run until a condition holds.
async fn wait_for(condition: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the condition never held");
}
