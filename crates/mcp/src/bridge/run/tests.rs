//! The whole bridge against a fake node over a real Unix socket.

mod endpoint;
mod hanging;

use std::future::pending;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use earshot_capability::Address;
use earshot_trust::{Seat, SessionId};
use http::Method;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::bridge::fake_node::{FakeNode, Memory, Seen};
use crate::bridge::frame::FRAME_BYTES_MAX;
use crate::bridge::headers::{EARSHOT_REQUEST, EARSHOT_SEAT, MCP_PROTOCOL_VERSION, MCP_SESSION_ID};

const INIT: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Finds a node where its socket is.
struct Fixed {
    socket: PathBuf,
    epoch: Arc<AtomicU64>,
    asked: Arc<Mutex<Vec<Want>>>,
}

impl Finder for Fixed {
    async fn find(&self, want: Want) -> Result<Found, FindError> {
        self.asked.lock().unwrap().push(want);
        let epoch = self.epoch.load(Ordering::SeqCst);
        if !self.socket.exists() {
            return Err(FindError::Transient("no node runs".to_owned()));
        }
        Ok(Found {
            socket: self.socket.clone(),
            epoch,
            url: "http://127.0.0.1".to_owned(),
        })
    }
}

/// Never finds anything.
struct Never;

impl Finder for Never {
    async fn find(&self, _: Want) -> Result<Found, FindError> {
        pending().await
    }
}

/// Has the client served alone.
struct Alone;

impl Finder for Alone {
    async fn find(&self, _: Want) -> Result<Found, FindError> {
        Err(FindError::Alone("no locks on this file system".to_owned()))
    }
}

type End = BridgeEnd<ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>;

fn options(client_gone: CancellationToken) -> BridgeOptions {
    BridgeOptions {
        seat: Seat::new([1; 16]),
        caller_root: "/repo".into(),
        session: Some(SessionId::parse("s-1").expect("a session id")),
        parent_session: None,
        address: Address {
            machine: Some("m".to_owned()),
            pid: Some(1),
            pid_started_at: Some(1),
            session: None,
            socket: None,
        },
        request_deadline: BridgeOptions::REQUEST_DEADLINE,
        client_gone,
    }
}

/// A bridge and its client's side of the pipes.
struct Client {
    input: Option<WriteHalf<DuplexStream>>,
    output: Option<tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>>,
    bridge: JoinHandle<End>,
    gone: CancellationToken,
}

impl Client {
    fn of(finder: impl Finder) -> Self {
        let (client, bridge) = tokio::io::duplex(64 * 1024);
        // Two one-way pipes would do; the halves of one two-way pipe are as good.
        let (output, input) = tokio::io::split(client);
        let (stdin, stdout) = tokio::io::split(bridge);
        let gone = CancellationToken::new();
        let options = options(gone.clone());
        let bridge = TaskTracker::new().spawn(run(stdin, stdout, options, finder));
        let output = Some(BufReader::new(output).lines());
        Self {
            input: Some(input),
            output,
            bridge,
            gone,
        }
    }

    async fn send(&mut self, lines: &str) {
        let input = self.input.as_mut().expect("open");
        input
            .write_all(lines.as_bytes())
            .await
            .expect("the bridge reads");
    }

    async fn request(&mut self, id: impl std::fmt::Display, method: &str) {
        self.send(&format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\"}}\n"
        ))
        .await;
    }

    async fn line(&mut self) -> String {
        let output = self.output.as_mut().expect("open");
        output.next_line().await.expect("UTF-8").expect("a line")
    }

    async fn answer(&mut self) -> Value {
        serde_json::from_str(&self.line().await).expect("JSON")
    }

    /// Shakes hands and waits for the push stream.
    async fn initialize(&mut self, memory: &Memory) {
        self.send(&format!("{INIT}\n{INITIALIZED}\n")).await;
        assert_eq!(
            self.answer().await["result"]["protocolVersion"],
            "2025-06-18"
        );
        memory
            .wait(|seen| seen.iter().any(|seen| seen.http == Method::GET))
            .await;
    }

    /// Ends the input and returns what the bridge still says.
    async fn finish(mut self) -> (Vec<Value>, End) {
        self.input
            .take()
            .expect("open")
            .shutdown()
            .await
            .expect("the bridge reads");
        let mut rest = Vec::new();
        let mut output = self.output.take().expect("open");
        while let Some(line) = output.next_line().await.expect("UTF-8") {
            rest.push(serde_json::from_str(&line).expect("JSON"));
        }
        (rest, self.bridge.await.expect("no panic"))
    }
}

/// A folder with a node in it, and a client that finds it.
struct Bench {
    _folder: tempfile::TempDir,
    socket: PathBuf,
    memory: Arc<Memory>,
    node: Option<FakeNode>,
    epoch: Arc<AtomicU64>,
    asked: Arc<Mutex<Vec<Want>>>,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("node.sock");
        let memory = Memory::new();
        let node = Some(FakeNode::start(&socket, &memory));
        Self {
            _folder: folder,
            socket,
            memory,
            node,
            epoch: Arc::new(AtomicU64::new(1)),
            asked: Arc::default(),
        }
    }

    fn client(&self) -> Client {
        Client::of(Fixed {
            socket: self.socket.clone(),
            epoch: Arc::clone(&self.epoch),
            asked: Arc::clone(&self.asked),
        })
    }

    async fn restart(&mut self) {
        self.node.take().expect("running").kill().await;
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.node = Some(FakeNode::start(&self.socket, &self.memory));
    }

    fn seen(&self, method: &str) -> Vec<Seen> {
        self.memory
            .seen()
            .into_iter()
            .filter(|seen| seen.method() == method)
            .collect()
    }
}

/// Returns each answer as its id and, for an error, its code.
fn ids(answers: &[Value]) -> Vec<String> {
    let code = |answer: &Value| answer["error"]["code"].as_i64();
    let mut ids: Vec<String> = answers
        .iter()
        .map(|answer| match code(answer) {
            Some(code) => format!("{}:{code}", answer["id"]),
            None => answer["id"].to_string(),
        })
        .collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn malformed_lines_marks_and_halves_do_not_end_the_session() {
    let bench = Bench::new();
    let mut client = bench.client();

    client.send("not json\n").await;
    client.send(&format!("\u{feff}{INIT}\n\n   \n")).await;
    client
        .send("{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\r\n")
        .await;
    client
        .send("{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"pi")
        .await;
    client.send("ng\"}\n42\n\"x\"\nnull\n{}\n").await;
    client
        .send("{\"jsonrpc\":\"1.0\",\"id\":4,\"method\":\"ping\"}\n")
        .await;
    client
        .send("{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\n")
        .await;
    client
        .send("{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"ping\"}")
        .await;
    let (answers, end) = client.finish().await;

    let invalid = ["null:-32600"; 5];
    assert_eq!(
        ids(&answers),
        [
            &["1", "2", "3", "5", "6"][..],
            &invalid[..],
            &["null:-32700"]
        ]
        .concat()
    );
    assert!(matches!(end, BridgeEnd::ClientGone));
}

#[tokio::test]
async fn a_lone_ping_without_a_line_end_is_answered_before_the_exit() {
    let bench = Bench::new();
    let mut client = bench.client();

    client
        .send("{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"ping\"}")
        .await;
    let (answers, _) = client.finish().await;

    assert_eq!(ids(&answers), ["6"]);
    assert!(
        bench.asked.lock().unwrap().is_empty(),
        "no node is needed for that"
    );
}

#[tokio::test]
async fn twin_ids_get_their_own_answers_and_big_ones_come_back_as_they_were() {
    let bench = Bench::new();
    let mut client = bench.client();

    client.send(&format!("{INIT}\n")).await;
    client.request(1, "tools/list").await;
    client.request("\"1\"", "ping").await;
    for id in ["9007199254740993", "1.5", "-5", "\"\"", "\"req-\\u00fc\""] {
        client.request(id, "ping").await;
    }
    let mut lines = Vec::new();
    for _ in 0..8 {
        lines.push(client.line().await);
    }

    for (id, result) in [
        ("1", r#"{"tools":[]}"#),
        ("\"1\"", "{}"),
        ("9007199254740993", "{}"),
        ("1.5", "{}"),
        ("-5", "{}"),
        ("\"\"", "{}"),
        ("\"req-\\u00fc\"", "{}"),
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        assert!(lines.contains(&line), "{line} in {lines:#?}");
    }
}

#[tokio::test]
async fn messages_without_an_id_are_never_answered_and_others_exactly_once() {
    let bench = Bench::new();
    let mut client = bench.client();

    client
        .send("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/whatever\"}\n")
        .await;
    client.request(1, "ping").await;
    client.request(2, "tools/list").await;
    client
        .send(&format!("{}\n", INIT.replace("\"id\":1", "\"id\":3")))
        .await;
    client
        .send("{\"jsonrpc\":\"2.0\",\"method\":\"initialized\"}\n")
        .await;
    client.send(&format!("{INITIALIZED}\n")).await;
    client
        .send("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/roots/list_changed\"}\n")
        .await;
    client
        .send("{\"jsonrpc\":\"2.0\",\"method\":\"tools/list\"}\n")
        .await;
    client.request(4, "no/such").await;
    client
        .send("{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}\n")
        .await;
    client
        .send(&format!("{}\n", INIT.replace("\"id\":1", "\"id\":6")))
        .await;
    let (answers, _) = client.finish().await;

    assert_eq!(
        ids(&answers),
        ["1", "2:-32600", "3", "4:-32601", "6:-32600"]
    );
    assert_eq!(bench.seen("initialize").len(), 1);
    let posts = bench
        .memory
        .seen()
        .into_iter()
        .filter(|seen| seen.http == Method::POST)
        .count();
    assert_eq!(
        posts, 7,
        "what the client said after initialize has reached the node"
    );
    let session = bench.seen("no/such")[0].header(&MCP_SESSION_ID).to_owned();
    let last = bench.memory.seen().pop().unwrap();
    assert_eq!(
        (last.http.as_str(), last.header(&MCP_SESSION_ID)),
        ("DELETE", session.as_str())
    );
}

#[tokio::test]
async fn the_negotiated_version_and_the_seat_go_with_every_later_request() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.initialize(&bench.memory).await;

    client.request(2, "tools/list").await;
    client.answer().await;

    let (first, later) = (&bench.seen("initialize")[0], &bench.seen("tools/list")[0]);
    assert_eq!(first.header(&MCP_PROTOCOL_VERSION), "");
    assert_eq!(later.header(&MCP_PROTOCOL_VERSION), "2025-06-18");
    assert_eq!(later.header(&EARSHOT_SEAT), "01".repeat(16));
    assert_eq!(
        (
            first.header(&EARSHOT_REQUEST),
            later.header(&EARSHOT_REQUEST)
        ),
        ("1", "2")
    );
    assert_eq!(first.body, INIT, "frames are passed on byte for byte");
}

#[tokio::test]
async fn a_node_killed_amid_calls_costs_no_answer_and_doubles_none() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    client.initialize(&bench.memory).await;
    for id in 10..18 {
        client.request(id, "hold").await;
    }
    bench.memory.wait_for("hold", 8).await;

    bench.restart().await;
    bench.memory.wait_for("hold", 16).await;
    bench.memory.held.add_permits(8);
    let mut answers = Vec::new();
    for _ in 0..8 {
        answers.push(client.answer().await);
    }

    let mut numbers: Vec<(String, Bytes)> = bench
        .seen("hold")
        .iter()
        .map(|seen| (seen.header(&EARSHOT_REQUEST).to_owned(), seen.body.clone()))
        .collect();
    numbers.sort();
    assert!(
        numbers.chunks(2).all(|pair| pair[0] == pair[1]),
        "each frame twice, under one number"
    );
    assert_eq!(
        ids(&answers),
        ["10", "11", "12", "13", "14", "15", "16", "17"]
    );
    let (rest, _) = client.finish().await;
    assert!(rest.is_empty(), "{rest:?}");
    let not_before = bench.asked.lock().unwrap().last().unwrap().not_before;
    assert_eq!(not_before, Some(1));
}

#[tokio::test]
async fn one_forgotten_session_is_made_anew_once_for_32_calls() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.initialize(&bench.memory).await;
    let before = bench.seen("initialize").len();
    bench.memory.forget_sessions();

    for id in 100..132 {
        client.request(id, "tools/list").await;
    }
    let mut answers = Vec::new();
    for _ in 0..32 {
        answers.push(client.answer().await);
    }

    assert!(
        answers.iter().all(|answer| answer["result"].is_object()),
        "{answers:?}"
    );
    assert_eq!(bench.seen("initialize").len(), before + 1);
    assert_eq!(bench.seen("notifications/initialized").len(), 2);
    bench
        .memory
        .wait(|seen| seen.iter().any(|seen| seen.http == Method::DELETE))
        .await;
    bench
        .memory
        .wait(|seen| seen.iter().filter(|seen| seen.http == Method::GET).count() == 2)
        .await;
}

#[tokio::test]
async fn what_the_node_pushes_is_relayed() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.initialize(&bench.memory).await;
    let hint = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

    bench.memory.push(hint);

    assert_eq!(client.line().await, hint);
}

#[tokio::test]
async fn answers_in_pieces_and_with_line_ends_come_as_single_lines() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.initialize(&bench.memory).await;

    client.request(2, "in pieces").await;
    assert_eq!(
        client.line().await,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"ü":1}}"#
    );
    assert_eq!(
        client.line().await,
        r#"{"jsonrpc":"2.0","id":2,"result":"ü"}"#
    );
    client.request(3, "with line ends").await;
    assert_eq!(
        client.line().await,
        r#"{"jsonrpc":  "2.0","id":  3,"result":  {"a":  1}}"#
    );
}

#[tokio::test]
async fn a_cancelled_call_is_broken_off_at_the_node() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.initialize(&bench.memory).await;
    client.request(7, "hold").await;
    client.request("\"7\"", "hold").await;
    bench.memory.wait_for("hold", 2).await;

    let params = r#"{"requestId":7}"#;
    client
        .send(&format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{params}}}\n"
        ))
        .await;
    bench
        .memory
        .dropped
        .subscribe()
        .wait_for(|dropped| *dropped == 1)
        .await
        .unwrap();
    bench.memory.wait_for("notifications/cancelled", 1).await;
    bench.memory.held.add_permits(2);

    assert_eq!(client.answer().await["id"], "7");
    let (rest, _) = client.finish().await;
    assert!(rest.is_empty(), "{rest:?}");
}

#[tokio::test]
async fn a_line_beyond_16_mib_is_refused_under_its_id_and_the_session_goes_on() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.initialize(&bench.memory).await;

    client
        .send("{\"jsonrpc\":\"2.0\",\"id\":\"big\",\"method\":\"tools/list\",\"params\":\"")
        .await;
    let part = "x".repeat(1024 * 1024);
    for _ in 0..=FRAME_BYTES_MAX / part.len() {
        client.send(&part).await;
    }
    client.send("\"}\n").await;
    client.request(2, "tools/list").await;

    let refusal = client.answer().await;
    assert_eq!(
        (&refusal["id"], &refusal["error"]["code"]),
        (&"big".into(), &(-32600).into())
    );
    assert_eq!(client.answer().await["id"], 2);
    assert_eq!(bench.seen("tools/list").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_input_ends_a_bridge_that_finds_no_node() {
    let started = Clock::start();
    let mut client = Client::of(Never);

    client.send(&format!("{INIT}\n")).await;
    let (answers, end) = client.finish().await;

    assert_eq!(ids(&answers), ["1:-32000"]);
    assert!(matches!(end, BridgeEnd::ClientGone));
    assert!(
        started.now() <= Duration::from_secs(2),
        "{:?}",
        started.now()
    );
}

#[tokio::test(start_paused = true)]
async fn the_end_of_input_ends_a_bridge_whose_node_does_not_answer() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.initialize(&bench.memory).await;
    client.request(2, "hold").await;
    bench.memory.wait_for("hold", 1).await;
    let started = Clock::start();

    let (answers, _) = client.finish().await;

    assert_eq!(ids(&answers), ["2:-32000"]);
    assert!(
        started.now() <= Duration::from_secs(2),
        "{:?}",
        started.now()
    );
    assert_eq!(bench.memory.seen().pop().unwrap().http, Method::DELETE);
}

#[tokio::test(start_paused = true)]
async fn empty_input_needs_no_node_and_no_time() {
    let started = Clock::start();
    let bench = Bench::new();

    let (answers, end) = bench.client().finish().await;

    assert!(answers.is_empty());
    assert!(matches!(end, BridgeEnd::ClientGone));
    assert!(bench.asked.lock().unwrap().is_empty());
    assert_eq!(started.now(), Duration::ZERO);
}

#[tokio::test]
async fn the_death_of_the_client_ends_the_bridge_though_its_input_stays_open() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.initialize(&bench.memory).await;
    client.request(2, "hold").await;
    bench.memory.wait_for("hold", 1).await;

    client.gone.cancel();

    assert!(matches!(
        client.bridge.await.expect("no panic"),
        BridgeEnd::ClientGone
    ));
    assert_eq!(bench.memory.seen().pop().unwrap().http, Method::DELETE);
}

#[tokio::test]
async fn a_closed_output_ends_the_bridge_without_a_panic() {
    let bench = Bench::new();
    let (stdin, mut input) = tokio::io::duplex(64 * 1024);
    let (stdout, output) = tokio::io::duplex(64 * 1024);
    let options = options(CancellationToken::new());
    let finder = Fixed {
        socket: bench.socket.clone(),
        epoch: Arc::clone(&bench.epoch),
        asked: Arc::clone(&bench.asked),
    };
    let bridge = TaskTracker::new().spawn(run(stdin, stdout, options, finder));
    input
        .write_all(format!("{INIT}\n").as_bytes())
        .await
        .expect("the bridge reads");
    let mut output = BufReader::new(output).lines();
    output.next_line().await.expect("UTF-8").expect("a line");
    drop(output);

    for id in 2..200 {
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/list\"}}\n");
        if input.write_all(line.as_bytes()).await.is_err() {
            break;
        }
    }

    assert!(matches!(
        bridge.await.expect("no panic"),
        BridgeEnd::OutputClosed
    ));
}

#[tokio::test]
async fn a_client_without_a_node_is_handed_over_whole() {
    let (stdin, mut input) = tokio::io::duplex(64 * 1024);
    let (stdout, _output) = tokio::io::duplex(64 * 1024);
    let first = format!("{INIT}\r\n{INITIALIZED}\n{{\"jsonrpc\":\"2.0\",\"id\":2");
    input.write_all(first.as_bytes()).await.expect("room");
    let options = options(CancellationToken::new());

    let end = run(stdin, stdout, options, Alone).await;

    let BridgeEnd::Alone {
        reason,
        pending,
        mut stdin,
        ..
    } = end
    else {
        panic!("not alone: {end:?}");
    };
    assert_eq!(reason, "no locks on this file system");
    input
        .write_all(b",\"method\":\"ping\"}\n")
        .await
        .expect("room");
    drop(input);
    let mut all = pending.to_vec();
    tokio::io::AsyncReadExt::read_to_end(&mut stdin, &mut all)
        .await
        .expect("the rest");
    let all = String::from_utf8(all).expect("UTF-8");
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(
        lines,
        [
            INIT,
            INITIALIZED,
            r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#
        ]
    );
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_nothing_but_itself() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.initialize(&bench.memory).await;
    for id in 0..300 {
        client.request(id, "tools/list").await;
    }

    let mut answers = Vec::new();
    for _ in 0..300 {
        answers.push(client.answer().await);
    }

    assert_eq!(answers.len(), 300);
    assert!(
        *bench.memory.accepted.borrow() <= 66,
        "connections are used again"
    );
}
