//! A node for tests: it speaks enough of Streamable HTTP over a Unix socket, and can be killed.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, broadcast, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::task::TaskTracker;

use super::headers::{EARSHOT_REQUEST, MCP_SESSION_ID};

type Body = BoxBody<Bytes, Infallible>;

/// One request that the node has seen.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) http: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Seen {
    /// Returns the JSON-RPC method; empty where there is none.
    pub(crate) fn method(&self) -> String {
        let value: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        value["method"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: &http::HeaderName) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().expect("text"))
    }
}

/// What the node remembers; it may outlive the process that it plays.
#[derive(Debug)]
pub(crate) struct Memory {
    sessions: Mutex<BTreeSet<String>>,
    seen: watch::Sender<Vec<Seen>>,
    /// How many exchanges were broken off by the other side.
    pub(crate) dropped: watch::Sender<usize>,
    /// How many connections were accepted.
    pub(crate) accepted: watch::Sender<usize>,
    /// A call of the method `hold` is answered for each permit.
    pub(crate) held: Semaphore,
    push: broadcast::Sender<String>,
}

impl Memory {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            sessions: Mutex::default(),
            seen: watch::Sender::new(Vec::new()),
            dropped: watch::Sender::new(0),
            accepted: watch::Sender::new(0),
            held: Semaphore::new(0),
            push: broadcast::Sender::new(16),
        })
    }

    pub(crate) fn forget_sessions(&self) {
        self.sessions.lock().unwrap().clear();
    }

    pub(crate) fn push(&self, message: &str) {
        self.push
            .send(message.to_owned())
            .expect("a push stream is open");
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }

    /// Waits until the requests seen are as `enough` wants them.
    pub(crate) async fn wait(&self, enough: impl Fn(&[Seen]) -> bool) {
        self.seen
            .subscribe()
            .wait_for(|seen| enough(seen))
            .await
            .expect("the sender lives");
    }

    /// Waits until a call of `method` was seen so many times.
    pub(crate) async fn wait_for(&self, method: &str, times: usize) {
        self.wait(|seen| seen.iter().filter(|seen| seen.method() == method).count() >= times)
            .await;
    }
}

/// A running node; dropping it cuts every connection at once, as a kill does.
#[derive(Debug)]
pub(crate) struct FakeNode {
    server: JoinHandle<()>,
    socket: PathBuf,
}

impl FakeNode {
    pub(crate) fn start(socket: &Path, memory: &Arc<Memory>) -> Self {
        let listener = UnixListener::bind(socket).expect("a free path");
        let memory = Arc::clone(memory);
        let server = TaskTracker::new().spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                memory.accepted.send_modify(|accepted| *accepted += 1);
                let memory = Arc::clone(&memory);
                let service = service_fn(move |request| answer(request, Arc::clone(&memory)));
                connections
                    .spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self {
            server,
            socket: socket.to_owned(),
        }
    }

    /// Cuts every connection and returns when the socket is free again.
    pub(crate) async fn kill(mut self) {
        self.server.abort();
        assert!(
            (&mut self.server)
                .await
                .expect_err("aborted")
                .is_cancelled()
        );
        std::fs::remove_file(&self.socket).expect("the socket was there");
    }
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Counts an exchange that ends without an answer.
struct Guard(Option<Arc<Memory>>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(memory) = &self.0 {
            memory.dropped.send_modify(|dropped| *dropped += 1);
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    memory: Arc<Memory>,
) -> Result<Response<Body>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let mut guard = Guard(Some(Arc::clone(&memory)));
    memory.seen.send_modify(|seen| {
        seen.push(Seen {
            http: head.method.clone(),
            headers: head.headers.clone(),
            body: body.clone(),
        });
    });
    let session = head
        .headers
        .get(MCP_SESSION_ID)
        .map(|id| id.to_str().unwrap().to_owned());
    let known = session
        .as_ref()
        .map(|id| memory.sessions.lock().unwrap().contains(id));
    let response = match head.method {
        Method::POST if known != Some(false) => {
            post(
                &memory,
                &head.headers,
                serde_json::from_slice(&body).unwrap_or_default(),
            )
            .await
        }
        Method::GET if known == Some(true) => {
            let messages = tokio_stream(memory.push.subscribe());
            stream(messages.map(|message| Bytes::from(format!("data: {message}\n\n"))))
        }
        Method::DELETE => {
            let ended = memory
                .sessions
                .lock()
                .unwrap()
                .remove(&session.unwrap_or_default());
            status(if ended { 204 } else { 404 }, "")
        }
        Method::POST => {
            let value: Value = serde_json::from_slice(&body).unwrap_or_default();
            let error = json!({"code": -32001, "message": "no such session"});
            let line = json!({"jsonrpc": "2.0", "id": value["id"], "error": error});
            status(404, &line.to_string())
        }
        _ => status(405, ""),
    };
    guard.0 = None;
    Ok(response)
}

async fn post(memory: &Memory, headers: &HeaderMap, message: Value) -> Response<Body> {
    let id = message["id"].clone();
    if id.is_null() || message["method"].is_null() {
        return status(202, "");
    }
    let line = |result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => {
            let mut sessions = memory.sessions.lock().unwrap();
            let session = format!("s{}", memory.seen.borrow().len());
            sessions.insert(session.clone());
            let version = message["params"]["protocolVersion"].clone();
            let body = format!(
                "data: {}\r\n\r\n",
                line(json!({"protocolVersion": version}))
            );
            let mut response = stream(futures_util::stream::iter([Bytes::from(body)]));
            response
                .headers_mut()
                .insert(MCP_SESSION_ID, session.parse().unwrap());
            response
        }
        "hold" => {
            memory.held.acquire().await.expect("never closed").forget();
            let n = headers[EARSHOT_REQUEST].to_str().unwrap().to_owned();
            status(200, &line(json!({"n": n})))
        }
        "in pieces" => {
            let hint = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"ü":1}}"#;
            let body = format!(
                ": hello\r\ndata: {hint}\r\n\r\ndata: {}\n\n",
                line(json!("ü"))
            );
            let pieces: Vec<_> = body
                .bytes()
                .map(|byte| Bytes::copy_from_slice(&[byte]))
                .collect();
            stream(futures_util::stream::iter(pieces))
        }
        "with line ends" => status(200, &line(json!({"a": 1})).replace(':', ":\r\n")),
        "no/such" => {
            let error = json!({"code": -32601, "message": "no such method"});
            status(
                200,
                &json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string(),
            )
        }
        "tools/list" => status(200, &line(json!({"tools": []}))),
        _ => status(200, &line(json!({}))),
    }
}

fn status(status: u16, body: &str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(body.as_bytes())).boxed());
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    if !body.is_empty() {
        response
            .headers_mut()
            .insert("content-type", "application/json".parse().unwrap());
    }
    response
}

fn stream<S>(pieces: S) -> Response<Body>
where
    S: futures_util::Stream<Item = Bytes> + Send + Sync + 'static,
{
    let frames = pieces.map(|piece| Ok(Frame::data(piece)));
    let mut response = Response::new(BoxBody::new(StreamBody::new(frames)));
    response
        .headers_mut()
        .insert("content-type", "text/event-stream".parse().unwrap());
    response
}

fn tokio_stream(
    messages: broadcast::Receiver<String>,
) -> impl futures_util::Stream<Item = String> + Send + Sync {
    futures_util::stream::unfold(messages, |mut messages| async move {
        messages
            .recv()
            .await
            .ok()
            .map(|message| (message, messages))
    })
}
