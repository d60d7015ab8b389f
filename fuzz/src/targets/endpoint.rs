//! One line of a client: what the bridge makes of it, and what the endpoint answers.

use std::{cell::RefCell, sync::Arc, time::Duration};

use bytes::Bytes;
use earshot_capability::{Caller, Dispatcher, Failure};
use earshot_mcp::{
    Greeting, HostFuture, HttpSettings, McpHost, McpService, OpenStream, Welcome,
    bridge::frame::{Kind, scan, trim},
    http_service,
};
use earshot_trust::{Origin, Surface};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

use super::input::dispatcher;

/// Wire sessions at once: each costs a task.
const SESSIONS_MAX: usize = 4;

#[derive(Debug)]
struct Host(Arc<Dispatcher>);

impl McpHost for Host {
    fn dispatcher(&self) -> &Arc<Dispatcher> {
        &self.0
    }

    fn greet<'a>(&'a self, _: &'a Caller, _: Greeting) -> HostFuture<'a, Result<Welcome, Failure>> {
        Box::pin(async {
            Ok(Welcome {
                instructions: String::new(),
                row_absent: false,
            })
        })
    }

    fn session_opened<'a>(
        &'a self,
        _: &'a str,
        _: Value,
        _: &'a Caller,
    ) -> HostFuture<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    fn session_lookup<'a>(&'a self, _: &'a str) -> HostFuture<'a, Result<Option<Value>, Failure>> {
        Box::pin(async { Ok(None) })
    }

    fn session_closed<'a>(&'a self, _: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async {})
    }

    fn touched(&self, _: &Caller) {}

    fn stream_opened(&self, _: &Caller) -> OpenStream {
        Box::new(())
    }

    fn left<'a>(&'a self, _: &'a Caller) -> HostFuture<'a, ()> {
        Box::pin(async {})
    }

    fn server_name(&self) -> &'static str {
        "earshot"
    }

    fn server_version(&self) -> &'static str {
        "0.0.0"
    }
}

struct Endpoint {
    runtime: Runtime,
    service: McpService,
    /// A session of the 2025 generation.
    session: String,
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"fuzz","version":"1"}}}"#;

/// What came back: the status, the session that was opened, the body; nothing for a stream.
type Answered = (u16, Option<String>, Option<Bytes>);

impl Endpoint {
    fn new() -> Self {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        let service = runtime.block_on(async {
            let mut settings = HttpSettings::new(TaskTracker::new(), CancellationToken::new());
            settings.sessions_max = SESSIONS_MAX;
            settings.session_idle = Duration::from_hours(1);
            http_service(Arc::new(Host(dispatcher())), settings)
        });
        let mut endpoint = Self {
            runtime,
            service,
            session: String::new(),
        };
        let (_, session, _) = endpoint.post(INITIALIZE.as_bytes(), false);
        endpoint.session = session.expect("a session");
        let ready = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert_eq!(endpoint.post(ready, true).0, 202);
        endpoint
    }

    fn post(&self, body: &[u8], in_session: bool) -> Answered {
        let caller = Caller::anonymous(Origin::Socket, Surface::Mcp);
        let mut request = Request::post("/mcp")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .extension(Arc::new(caller));
        if in_session {
            request = request.header("mcp-session-id", &self.session);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body)));
        let request = request.expect("a request");
        self.runtime.block_on(async {
            let Ok(answer) = self.service.clone().oneshot(request).await;
            let text = |name: &str| {
                let value = answer.headers().get(name)?.to_str().ok()?;
                Some(value.to_owned())
            };
            let session = text("mcp-session-id");
            let status = answer.status().as_u16();
            // A stream lasts for as long as its client.
            let streams = text("content-type").is_some_and(|kind| kind.starts_with("text/event"));
            let body = if streams {
                None
            } else {
                let Ok(body) = answer.into_body().collect().await;
                Some(body.to_bytes())
            };
            (status, session, body)
        })
    }
}

thread_local! {
    static ENDPOINT: RefCell<Endpoint> = RefCell::new(Endpoint::new());
}

/// A line is refused in JSON-RPC's own terms or answered under its id, by the bridge as by the
/// endpoint; what is no request is not answered, and nothing is a fault of this program.
///
/// # Panics
/// When that is not so.
pub fn mcp_line(data: &[u8]) {
    let line = trim(data);
    let scanned = scan(line);
    for in_session in [false, true] {
        let (status, session, body) =
            ENDPOINT.with_borrow(|endpoint| endpoint.post(line, in_session));
        assert!(status < 500, "{status}");
        if session.is_some() && !in_session {
            // It opened a session; the bound on them is reached soon, and answered as busy.
            ENDPOINT.with_borrow_mut(|endpoint| *endpoint = Endpoint::new());
        }
        let Some(body) = body.filter(|body| !body.is_empty()) else {
            continue;
        };
        assert!(!body.contains(&b'\n') && !body.contains(&b'\r'), "one line");
        let answer: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(answer["jsonrpc"], "2.0", "{answer}");
        let code = answer["error"]["code"].as_i64();
        assert!(code.is_some() != answer.get("result").is_some(), "{answer}");
        match &scanned {
            Ok(scan) => {
                assert_ne!(code, Some(-32700), "the bridge read it: {answer}");
                if let Kind::Request { id, .. } = &scan.kind {
                    // One that cannot be read, a lone surrogate, is refused.
                    let id = serde_json::from_str(id).unwrap_or(Value::Null);
                    assert!(answer["id"] == id || answer["id"].is_null(), "{answer}");
                    assert!(code.is_some() || answer["id"] == id, "{answer}");
                } else {
                    assert!(code.is_some(), "nobody asked: {answer}");
                }
            }
            // The endpoint takes a second mark for the first.
            Err(_) if line.starts_with(b"\xef\xbb\xbf") => {}
            Err(fault) => assert!(code.is_some(), "{fault}: {answer}"),
        }
    }
}
