use http::Method;

use super::*;
use crate::bridge::fake_node::{FakeNode, Memory};

struct Bench {
    _folder: tempfile::TempDir,
    memory: Arc<Memory>,
    node: FakeNode,
    upstream: Arc<Upstream>,
}

fn bench() -> Bench {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("node.sock");
    let memory = Memory::new();
    let node = FakeNode::start(&socket, &memory);
    let upstream = Arc::new(Upstream::new(&socket));
    Bench {
        _folder: folder,
        memory,
        node,
        upstream,
    }
}

fn request(method: &str) -> Request<Bytes> {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
    let request = Request::builder().method(Method::POST).uri("/mcp");
    request
        .header("earshot-request", "1")
        .body(Bytes::from(body))
        .expect("a request")
}

async fn call(upstream: &Upstream, method: &str) -> Result<Bytes, SendError> {
    upstream
        .send(request(method))
        .await?
        .into_body()
        .collect(1024)
        .await
}

#[tokio::test]
async fn calls_one_after_another_share_a_connection() {
    let bench = bench();

    for _ in 0..10 {
        call(&bench.upstream, "tools/list")
            .await
            .expect("an answer");
        // An empty body is at its end without being read.
        drop(
            bench
                .upstream
                .send(request("notification").map(|_| Bytes::new()))
                .await,
        );
    }

    assert_eq!(*bench.memory.accepted.borrow(), 1);
    assert_eq!(bench.memory.seen()[0].header(&HOST), "localhost");
}

#[tokio::test]
async fn calls_at_the_same_time_do_not_wait_for_each_other() {
    let bench = bench();
    let held = call(&bench.upstream, "hold");
    let quick = async {
        bench.memory.wait_for("hold", 1).await;
        call(&bench.upstream, "tools/list")
            .await
            .expect("an answer");
        bench.memory.held.add_permits(1);
    };

    let (held, ()) = tokio::join!(held, quick);

    held.expect("an answer");
    assert_eq!(*bench.memory.accepted.borrow(), 2);
}

#[tokio::test]
async fn a_dropped_call_is_broken_off_at_the_node() {
    let bench = bench();
    let upstream = Arc::clone(&bench.upstream);
    let held = TaskTracker::new().spawn(async move { call(&upstream, "hold").await });
    bench.memory.wait_for("hold", 1).await;

    held.abort();

    bench
        .memory
        .dropped
        .subscribe()
        .wait_for(|dropped| *dropped == 1)
        .await
        .expect("seen");
}

#[tokio::test]
async fn closing_ends_every_call_and_the_client_stays_usable() {
    let bench = bench();
    let held = call(&bench.upstream, "hold");
    let closing = async {
        bench.memory.wait_for("hold", 1).await;
        bench.upstream.close();
    };

    let (held, ()) = tokio::join!(held, closing);

    let error = held.expect_err("closed");
    assert!(!error.is_unsent(), "{error}");
    call(&bench.upstream, "tools/list")
        .await
        .expect("an answer");
}

#[tokio::test]
async fn a_kept_connection_that_the_node_has_closed_is_replaced() {
    let bench = bench();
    call(&bench.upstream, "tools/list")
        .await
        .expect("an answer");
    let socket = bench.upstream.socket().to_owned();
    bench.node.kill().await;
    let _node = FakeNode::start(&socket, &bench.memory);
    // The end of the old connection is seen by its own task.
    tokio::task::yield_now().await;

    call(&bench.upstream, "tools/list")
        .await
        .expect("an answer");
}

#[tokio::test]
async fn without_a_node_nothing_is_sent() {
    let bench = bench();
    bench.node.kill().await;

    let error = call(&bench.upstream, "tools/list")
        .await
        .expect_err("no node");

    assert!(error.is_unsent(), "{error}");
}

#[tokio::test]
async fn an_answer_beyond_its_readers_limit_is_refused() {
    let bench = bench();

    let answer = bench
        .upstream
        .send(request("tools/list"))
        .await
        .expect("an answer");
    let error = answer.into_body().collect(8).await.expect_err("too large");

    assert!(matches!(error, SendError::TooLarge { limit: 8 }), "{error}");
}
