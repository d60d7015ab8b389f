//! The surface as callers see it, over a small registry of its own.

mod access;
mod answers;
mod connections;
mod pages;

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU16, AtomicUsize, Ordering},
    },
};

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderName},
    response::{IntoResponse as _, Response},
};
use earshot_capability::{Call, Caller, Dispatcher, Draft, Failure, Notices, Registry, builtin};
use earshot_trust::{Effect, LoopbackPolicy, PeerUid, Transport};
use http_body_util::BodyExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tower::{service_fn, util::BoxCloneSyncService};

use super::*;

const ME: u32 = 1000;
const PORT: u16 = 17_400;
const CHECKOUT: &str = "c0ffee";

#[derive(Debug)]
struct Nothing;

impl Notices for Nothing {
    fn take<'a>(&'a self, _: &'a Caller) -> Pin<Box<dyn Future<Output = Vec<String>> + Send + 'a>> {
        Box::pin(async { Vec::new() })
    }
}

#[derive(Debug, Default)]
struct FakeOwner {
    used: AtomicUsize,
}

impl Owner for FakeOwner {
    fn pass(&self) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + '_>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn prove(&self, nonce: &[u8]) -> Option<String> {
        Some(format!("proof of {}", nonce.escape_ascii()))
    }

    fn used(&self, _: &Caller) {
        self.used.fetch_add(1, Ordering::SeqCst);
    }

    fn gauges(&self) -> Vec<Gauge> {
        vec![Gauge {
            name: "earshot_peers",
            help: "Peers on the board.",
            value: 3,
        }]
    }
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fields {
    #[serde(default)]
    text: String,
    #[serde(default)]
    limit: Option<u32>,
    #[serde(default)]
    fresh: Option<bool>,
    #[serde(default)]
    paths: Vec<String>,
}

/// Answers its own input.
async fn echo(_: Call, fields: Fields) -> Result<Fields, Failure> {
    Ok(fields)
}

/// What a test sees of a node.
pub(super) struct Fixture {
    access: AccessSettings,
    pub(super) limits: Limits,
    owner: Arc<FakeOwner>,
    identity: watch::Sender<Identity>,
    /// A call that waits has begun.
    begun: Arc<Notify>,
    /// Lets a call that waits go on.
    go_on: Arc<Notify>,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let identity = Identity {
            version: "0.1.0",
            commit: "0123abc",
            dirty: Some(false),
            stale: None,
            checkout_id: CHECKOUT.to_owned(),
            repository_id: Some("r1".to_owned()),
            branch: Some("main".to_owned()),
            head: Some("4567def".to_owned()),
            linked_worktree: false,
            leaseholder: true,
        };
        Self {
            access: AccessSettings {
                own_uid: ME,
                own_port: Arc::new(AtomicU16::new(PORT)),
                foreign_hosts: vec!["192.0.2.7".to_owned()],
                policy: LoopbackPolicy::SameUser,
                key: None,
            },
            limits: Limits::default(),
            owner: Arc::default(),
            identity: watch::Sender::new(identity),
            begun: Arc::default(),
            go_on: Arc::default(),
        }
    }

    fn registry(&self) -> Registry {
        let mut all = builtin();
        all.push(Draft::query("board.read", "Read", "Reads the board.").handler(echo));
        all.push(
            Draft::query("board.here", "Here", "Tells of this machine.")
                .local_only()
                .handler(echo),
        );
        all.push(Draft::command("board.write", "Write", "Writes a row.").handler(echo));
        all.push(
            Draft::command("trust.grant", "Grant", "Grants a role.")
                .effect(Effect::Operator)
                .handler(echo),
        );
        let (begun, go_on) = (Arc::clone(&self.begun), Arc::clone(&self.go_on));
        all.push(Draft::command("board.wait", "Wait", "Waits.").handler(
            move |call, fields: Fields| {
                let (begun, go_on) = (Arc::clone(&begun), Arc::clone(&go_on));
                async move {
                    begun.notify_one();
                    go_on.notified().await;
                    echo(call, fields).await
                }
            },
        ));
        all.push(Draft::command("board.panic", "Panic", "Panics.").handler(
            |_: Call, fields: Fields| async move {
                assert!(fields.text.is_empty(), "a fault of this program");
                Ok(fields)
            },
        ));
        Registry::new(all)
    }

    pub(super) fn site(&self) -> Arc<Site> {
        Site::new(Surfaces {
            dispatcher: Dispatcher::new(self.registry(), Arc::new(Nothing), "boot".to_owned()),
            mcp: mcp(),
            identity: self.identity.subscribe(),
            access: self.access.clone(),
            limits: self.limits,
            owner: Arc::<FakeOwner>::clone(&self.owner),
            links: tokio::sync::mpsc::channel(1).0,
        })
    }
}

/// Stands in for the MCP service: says what it was given, or floods a reader.
fn mcp() -> McpService {
    BoxCloneSyncService::new(service_fn(|request: Request| async move {
        if request.uri().query() == Some("flood") {
            return Ok::<_, Infallible>(vec![b'x'; 64 * 1024 * 1024].into_response());
        }
        let caller = request.extensions().get::<Arc<Caller>>().cloned().unwrap();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let said = serde_json::json!({
            "mcp": true,
            "surface": format!("{:?}", caller.surface),
            "bytes": body.len(),
        });
        Ok(said.to_string().into_response())
    }))
}

const LOOPBACK: Transport = Transport::Tcp {
    peer: std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
    peer_uid: PeerUid::Known(ME),
};
const LAN: Transport = Transport::Tcp {
    peer: std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 9)),
    peer_uid: PeerUid::Unsupported,
};
const SOCKET: Transport = Transport::UnixSocket { uid: ME };

/// Makes a request as an honest loopback client does; a later header replaces one of its name.
fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Request {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .body(Body::from(body.to_owned()))
        .unwrap();
    let own = [
        ("host", "localhost:17400"),
        ("content-type", "application/json"),
    ];
    for (name, value) in own.iter().chain(headers) {
        let name: HeaderName = name.parse().unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

/// The status, the headers and the body of an answer.
struct Seen {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Seen {
    async fn of(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Self {
            status: parts.status.as_u16(),
            headers: parts.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }

    fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    /// Asserts that this is an error of the one form, and returns its code.
    fn error(&self) -> String {
        assert_eq!(
            self.header("content-type"),
            "application/json",
            "{}",
            self.text
        );
        let error = &self.json()["error"];
        for field in ["code", "message", "remedy", "request_id"] {
            assert!(
                error[field].as_str().is_some_and(|it| !it.is_empty()),
                "{}",
                self.text
            );
        }
        assert_eq!(error["request_id"], self.header("earshot-request-id"));
        error["code"].as_str().unwrap().to_owned()
    }
}

async fn ask(site: &Site, request: Request) -> Seen {
    ask_from(site, LOOPBACK, request).await
}

async fn ask_from(site: &Site, transport: Transport, request: Request) -> Seen {
    let seen = Seen::of(site.answer(transport, request).await.0).await;
    assert!(seen.header("earshot-request-id").starts_with("boot-"));
    assert_eq!(seen.header("earshot-version"), "0.1.0");
    assert_eq!(seen.header("x-content-type-options"), "nosniff");
    assert_eq!(seen.header("cache-control"), "no-store");
    assert!(
        seen.header("content-security-policy")
            .contains("default-src 'none'")
    );
    assert!(!seen.headers.contains_key("access-control-allow-origin"));
    assert!(!(300..400).contains(&seen.status), "a redirect");
    seen
}
