use std::time::Duration;

use earshot_trust::{Origin, Surface};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};

use super::*;
use crate::testing::FakeHost;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bank","version":"1"}}}"#;

/// A client on the other end of the two streams.
struct Client {
    host: Arc<FakeHost>,
    input: DuplexStream,
    output: DuplexStream,
    served: tokio::task::JoinHandle<io::Result<()>>,
    shutdown: CancellationToken,
}

impl Client {
    fn new() -> Self {
        let host = FakeHost::new();
        let (input, reader) = duplex(1 << 16);
        let (writer, output) = duplex(1 << 20);
        let caller = Arc::new(Caller::anonymous(Origin::Socket, Surface::Mcp));
        let shutdown = CancellationToken::new();
        let dyn_host: Arc<dyn McpHost> = Arc::<FakeHost>::clone(&host);
        let served = tokio_util::task::TaskTracker::new().spawn(serve_stdio(
            dyn_host,
            caller,
            reader,
            writer,
            shutdown.clone(),
        ));
        Self {
            host,
            input,
            output,
            served,
            shutdown,
        }
    }

    /// Sends everything, ends the input, and returns the lines that came back.
    async fn exchange(mut self, input: &[u8]) -> Vec<Value> {
        self.input.write_all(input).await.unwrap();
        drop(self.input);
        self.served.await.unwrap().unwrap();
        let mut text = String::new();
        self.output.read_to_string(&mut text).await.unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "{text}");
        assert!(!text.contains('\r'));
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

async fn exchange(lines: &[&str]) -> Vec<Value> {
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    Client::new().exchange(input.as_bytes()).await
}

/// The ids and codes of answers, in a fixed order: the SDK answers concurrently.
fn summary(answers: &[Value]) -> Vec<(String, i64)> {
    let mut all: Vec<(String, i64)> = answers
        .iter()
        .map(|answer| {
            let code = answer["error"]["code"].as_i64().unwrap_or(0);
            (answer["id"].to_string(), code)
        })
        .collect();
    all.sort();
    all
}

fn expect(pairs: &[(&str, i64)]) -> Vec<(String, i64)> {
    pairs
        .iter()
        .map(|(id, code)| ((*id).to_owned(), *code))
        .collect()
}

#[tokio::test]
async fn lines_of_every_kind() {
    let mut input = b"not json\n".to_vec();
    input.extend(b"\xef\xbb\xbf");
    input.extend(INITIALIZE.as_bytes());
    input.extend(b"\n\n   \n");
    input.extend(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\r\n");
    input.extend(b"42\n\"x\"\nnull\n{}\n[]\n");
    input.extend(b"{\"jsonrpc\":\"1.0\",\"id\":4,\"method\":\"ping\"}\n");
    // The last line has no end.
    input.extend(b"{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"ping\"}");
    let answers = Client::new().exchange(&input).await;
    assert_eq!(answers[0]["error"]["code"], -32700, "the first line, first");
    let expected = [
        ("2", 0),
        ("3", 0),
        ("4", -32600),
        ("6", 0),
        ("null", -32700),
        ("null", -32600),
        ("null", -32600),
        ("null", -32600),
        ("null", -32600),
        ("null", -32600),
    ];
    let mut expected = expect(&expected);
    expected.sort();
    assert_eq!(summary(&answers), expected);
}

#[tokio::test]
async fn half_a_line_waits_for_its_other_half() {
    let mut client = Client::new();
    client
        .input
        .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"pi")
        .await
        .unwrap();
    tokio::task::yield_now().await;
    let answers = client.exchange(b"ng\"}\n").await;
    assert_eq!(summary(&answers), expect(&[("1", 0)]));
}

#[tokio::test]
async fn what_is_owed_no_answer_gets_none_before_and_after_the_handshake() {
    let again = INITIALIZE.replace("\"id\":3", "\"id\":6");
    let client = Client::new();
    let host = Arc::clone(&client.host);
    let lines = [
        r#"{"jsonrpc":"2.0","method":"notifications/whatever"}"#,
        r#"{"jsonrpc":"2.0","id":9,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#,
        INITIALIZE,
        r#"{"jsonrpc":"2.0","method":"initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#,
        r#"{"jsonrpc":"2.0","method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":4,"method":"no/such"}"#,
        r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"no_such"}}"#,
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
        &again,
    ];
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let answers = client.exchange(input.as_bytes()).await;
    assert_eq!(
        summary(&answers),
        expect(&[
            ("1", 0),
            ("2", -32602),
            ("3", 0),
            ("4", -32601),
            ("5", -32602),
            ("6", 0)
        ])
    );
    assert_eq!(host.greetings(), 1, "a second handshake attaches nobody");
    assert_eq!(host.left.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn twins_of_different_type_are_two_requests() {
    let answers = exchange(&[
        INITIALIZE,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":"1","method":"ping"}"#,
    ])
    .await;
    let of = |id: Value| answers.iter().find(|answer| answer["id"] == id).unwrap();
    assert!(of(json!(1))["result"]["tools"].is_array());
    assert_eq!(of(json!("1"))["result"], json!({}));
}

#[tokio::test]
async fn a_call_is_answered_in_both_forms() {
    let answers = exchange(&[
        INITIALIZE,
        r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"sample_echo","arguments":{"text":"a"}}}"#,
    ])
    .await;
    let answer = answers.iter().find(|answer| answer["id"] == 4).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["client"], "bank");
}

#[tokio::test(start_paused = true)]
async fn an_open_subscription_holds_neither_the_end_nor_a_stop() {
    let listen = json!({
        "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
        "params": {
            "notifications": { "toolsListChanged": true },
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    });
    let line = format!("{listen}\n");
    for stop in [false, true] {
        let mut client = Client::new();
        client.input.write_all(line.as_bytes()).await.unwrap();
        let mut first = vec![0; 16];
        client.output.read_exact(&mut first).await.unwrap();
        assert_eq!(client.host.open_streams(), 1);
        let began = crate::clock::now();
        if stop {
            client.shutdown.cancel();
        } else {
            drop(client.input);
        }
        client.served.await.unwrap().unwrap();
        let took = crate::clock::now() - began;
        assert!(took < Duration::from_secs(1), "stop {stop}: {took:?}");
        assert_eq!(client.host.open_streams(), 0);
    }
}

#[tokio::test]
async fn a_client_that_stops_reading_ends_the_service() {
    let mut client = Client::new();
    drop(client.output);
    client.input.write_all(INITIALIZE.as_bytes()).await.unwrap();
    client.input.write_all(b"\n").await.unwrap();
    let error = client.served.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn a_line_beyond_the_limit_is_refused_and_the_next_is_read() {
    let client = Client::new();
    let mut input = vec![b'x'; MESSAGE_BYTES_MAX + 1];
    input.extend(b"\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n");
    let answers = client.exchange(&input).await;
    assert_eq!(summary(&answers), expect(&[("1", 0), ("null", -32600)]));
}
