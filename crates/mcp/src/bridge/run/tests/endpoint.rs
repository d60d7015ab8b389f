//! The bridge against the very endpoint that a node serves.

use std::convert::Infallible;

use earshot_capability::Caller;
use earshot_trust::{Origin, Surface};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::UnixListener;
use tower::ServiceExt as _;

use super::*;
use crate::testing::FakeHost;
use crate::{HttpSettings, McpHost, http_service};

/// A node that serves the real endpoint on a Unix socket, until it is dropped.
struct Node {
    folder: tempfile::TempDir,
    host: Arc<FakeHost>,
    server: JoinHandle<()>,
}

impl Node {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (host, server) = serve(&folder.path().join("node.sock"));
        Self {
            folder,
            host,
            server,
        }
    }

    fn client(&self) -> Client {
        Client::of(Fixed {
            socket: self.folder.path().join("node.sock"),
            epoch: Arc::default(),
            asked: Arc::default(),
        })
    }

    /// Goes as by a kill, and comes back knowing nothing.
    async fn restart(&mut self) {
        self.server.abort();
        assert!(
            (&mut self.server)
                .await
                .expect_err("aborted")
                .is_cancelled()
        );
        let socket = self.folder.path().join("node.sock");
        std::fs::remove_file(&socket).expect("the socket was there");
        (self.host, self.server) = serve(&socket);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn serve(socket: &std::path::Path) -> (Arc<FakeHost>, JoinHandle<()>) {
    let host = FakeHost::new();
    let known: Arc<dyn McpHost> = Arc::<FakeHost>::clone(&host);
    let settings = HttpSettings::new(TaskTracker::new(), CancellationToken::new());
    let service = http_service(known, settings);
    let listener = UnixListener::bind(socket).expect("a free path");
    let server = TaskTracker::new().spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let service = service.clone();
            let judged = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
                let headers = request.headers();
                let caller = Caller::from_headers(Origin::Socket, Surface::Mcp, |name| {
                    headers.get(name).map(http::HeaderValue::as_bytes)
                });
                request
                    .extensions_mut()
                    .insert(Arc::new(caller.expect("readable headers")));
                let answer = service.clone().oneshot(request);
                async move { Ok::<_, Infallible>(answer.await.expect("infallible")) }
            });
            connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), judged));
        }
    });
    (host, server)
}

const INIT: &str = r#"{"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bank","version":"1"}}}"#;

fn echo(id: u64) -> String {
    let params = r#"{"name":"sample_echo","arguments":{"text":"ü"}}"#;
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{params}}}\n")
}

fn stateless(id: u64, method: &str, params: &str) -> String {
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bank","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{{{params}\"_meta\":{meta}}}}}\n"
    )
}

#[tokio::test]
async fn a_whole_conversation_of_the_first_generation() {
    let node = Node::start();
    let mut client = node.client();

    client.request(1, "ping").await;
    client.request(2, "tools/list").await;
    client.send(&format!("{INIT}\n")).await;
    client
        .send("{\"jsonrpc\":\"2.0\",\"method\":\"initialized\"}\n")
        .await;
    client.send(&format!("{INITIALIZED}\n")).await;
    client
        .send("{\"jsonrpc\":\"2.0\",\"method\":\"tools/list\"}\n")
        .await;
    client.request(4, "no/such").await;
    client
        .send("{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"tools/call\",\"params\":{\"name\":\"no_such\"}}\n")
        .await;
    client
        .send("{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}\n")
        .await;
    client.request("1.5", "ping").await;
    client.send(&echo(7)).await;
    client
        .send(&format!("{}\n", INIT.replace("\"id\":3", "\"id\":6")))
        .await;
    let (answers, _) = client.finish().await;

    assert_eq!(
        ids(&answers),
        [
            "1",
            "1.5:-32600",
            "2:-32600",
            "3",
            "4:-32601",
            "5:-32602",
            "6:-32600",
            "7"
        ]
    );
    let echoed = answers.iter().find(|answer| answer["id"] == 7).unwrap();
    assert_eq!(echoed["result"]["structuredContent"]["text"], "ü");
    assert_eq!(echoed["result"]["structuredContent"]["session"], "s-1");
    assert_eq!(node.host.greetings(), 1);
}

#[tokio::test]
async fn a_restarted_node_costs_a_client_of_the_first_generation_nothing() {
    let mut node = Node::start();
    let mut client = node.client();
    client
        .send(&format!("{INIT}\n{INITIALIZED}\n{}", echo(4)))
        .await;
    client.answer().await;
    client.answer().await;

    node.restart().await;
    for id in 10..42 {
        client.send(&echo(id)).await;
    }
    let mut answers = Vec::new();
    for _ in 10..42 {
        answers.push(client.answer().await);
    }

    assert!(
        answers
            .iter()
            .all(|answer| answer["result"]["isError"] == false),
        "{answers:?}"
    );
    assert_eq!(node.host.greetings(), 1, "32 calls have made one session");
    let (rest, _) = client.finish().await;
    assert!(rest.is_empty(), "{rest:?}");
}

#[tokio::test]
async fn messages_that_stand_alone_reach_the_node_before_and_after_its_restart() {
    let mut node = Node::start();
    let mut client = node.client();
    let filter = r#""notifications":{"toolsListChanged":true},"#;
    client.send(&stateless(1, "server/discover", "")).await;
    assert!(client.answer().await["result"].is_object());
    client
        .send(&stateless(2, "subscriptions/listen", filter))
        .await;
    let acknowledged = client.answer().await;
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );

    node.restart().await;
    let call = r#""name":"sample_echo","arguments":{"text":"ü"},"#;
    client.send(&stateless(3, "tools/call", call)).await;
    let answer = client.answer().await;
    client.send(&stateless(4, "no/such", "")).await;
    let unknown = client.answer().await;

    assert_eq!(
        (&answer["id"], &answer["result"]["isError"]),
        (&3.into(), &false.into())
    );
    assert_eq!(
        (&unknown["id"], &unknown["error"]["code"]),
        (&4.into(), &(-32601).into())
    );
    let (rest, _) = client.finish().await;
    assert!(rest.is_empty(), "{rest:?}");
}

#[tokio::test]
async fn the_host_hears_at_once_that_a_client_of_either_generation_leaves() {
    let first = format!("{INIT}\n{INITIALIZED}\n");
    let call = r#""name":"sample_echo","arguments":{"text":"ü"},"#;
    let later = stateless(3, "tools/call", call);
    for (opening, sessions) in [(first, 1), (later, 0)] {
        for by_eof in [true, false] {
            let node = Node::start();
            let mut client = node.client();
            client.send(&opening).await;
            client.answer().await;

            if by_eof {
                client.finish().await;
            } else {
                client.gone.cancel();
                client.bridge.await.expect("no panic");
            }

            let left = node.host.left.lock().unwrap().clone();
            assert_eq!(left.len(), 1, "{opening}");
            assert_eq!(left[0].seat, Some(Seat::new([1; 16])));
            assert_eq!(left[0].wire_session.iter().count(), sessions);
        }
    }
}
