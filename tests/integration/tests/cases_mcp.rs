//! What real clients of MCP send that is odd, wrong or late, over stdio and over HTTP, in both
//! generations of the protocol.

use std::{collections::BTreeMap, path::PathBuf};

use earshot_testkit::process::{Answer, StdioClient, WireClient, World, http, initialize, kill};
use serde_json::{Value, json};

const JSON: (&str, &str) = ("content-type", "application/json");
const BOTH: (&str, &str) = ("accept", "application/json, text/event-stream");
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const MODERN: &str = "2026-07-28";

fn node() -> (World, PathBuf, String) {
    let world = World::new();
    let repo = world.repo("repo");
    let url = world.up(&repo);
    (world, repo, url)
}

/// Posts a body as it is.
fn post(url: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let headers = [&[JSON, BOTH], headers].concat();
    http(url, "POST", "/mcp", &headers, body).expect("the node answers")
}

fn code(answer: &Value) -> i64 {
    answer["error"]["code"]
        .as_i64()
        .unwrap_or_else(|| panic!("no error: {answer}"))
}

/// The two generations: what a request of each carries besides its method.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Generation {
    Sessions,
    Modern,
}

impl Generation {
    const BOTH: [Self; 2] = [Self::Sessions, Self::Modern];

    /// A message with its id as it is written, or without one.
    fn message(self, id: Option<&str>, method: &str, mut params: Value) -> String {
        if self == Self::Modern {
            params["_meta"] = json!({
                META_VERSION: MODERN,
                "io.modelcontextprotocol/clientInfo": { "name": "modern", "version": "2" },
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let id = id.map_or(String::new(), |id| format!(r#""id":{id},"#));
        format!(r#"{{"jsonrpc":"2.0",{id}"method":"{method}","params":{params}}}"#)
    }

    /// Sends a message over HTTP, with the headers that belong to it.
    fn post(self, wire: &WireClient, url: &str, method: &str, name: &str, body: &str) -> Answer {
        match self {
            Self::Sessions => post(url, &[("mcp-session-id", &wire.session)], body.as_bytes()),
            Self::Modern => {
                let mut headers = vec![("mcp-protocol-version", MODERN), ("mcp-method", method)];
                if !name.is_empty() {
                    headers.push(("mcp-name", name));
                }
                post(url, &headers, body.as_bytes())
            }
        }
    }
}

/// Says lines to a bridge, closes its input, and returns what it answered.
fn say(world: &World, repo: &std::path::Path, lines: &[String]) -> Vec<Value> {
    let mut bridge = StdioClient::spawn(world, repo, &[]);
    for line in lines {
        bridge.send_raw(format!("{line}\n").as_bytes());
    }
    let (status, answers) = bridge.close();
    assert!(status.success(), "{status}");
    let parsed = answers.iter().map(|line| serde_json::from_str(line));
    parsed
        .collect::<Result<_, _>>()
        .unwrap_or_else(|error| panic!("{error}: {answers:?}"))
}

fn hello() -> String {
    Generation::Sessions.message(
        Some("\"hello\""),
        "initialize",
        json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "bank", "version": "1" },
        }),
    )
}

// M01
#[test]
fn a_session_that_an_ordered_stop_ended_is_404_whatever_is_sent_and_never_bars_a_new_one() {
    let (world, repo, url) = node();
    let old = WireClient::start(&url, "old").session;
    world.run(&repo, &["serve", "stop"]);
    let url = world.up(&repo);
    let too_long = "a".repeat(300);
    let unknown = "0b2c1d3e-0000-4000-8000-000000000000";
    for session in [
        old.as_str(),
        unknown,
        "../../x",
        "nonsense",
        too_long.as_str(),
    ] {
        let named = [("mcp-session-id", session)];
        for id in ["7", "\"seven\""] {
            for method in ["tools/list", "ping", "no/such"] {
                let body = Generation::Sessions.message(Some(id), method, json!({}));
                let answer = post(&url, &named, body.as_bytes());
                assert_eq!(answer.status, 404, "{session} {method}: {answer:?}");
                assert_eq!(code(&answer.json()), -32001);
                assert_eq!(answer.json()["id"].to_string(), id);
            }
        }
        for body in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":3,"result":{}}"#,
        ] {
            assert_eq!(
                post(&url, &named, body.as_bytes()).status,
                404,
                "{session} {body}"
            );
        }
        for method in ["DELETE", "GET"] {
            let answer = http(&url, method, "/mcp", &[BOTH, named[0]], b"").unwrap();
            assert_eq!(answer.status, 404, "{method} {session}: {answer:?}");
        }
        let anew = initialize(&url, "anew", &named);
        assert_eq!(anew.status, 200, "{session}: {anew:?}");
        assert_ne!(anew.header("mcp-session-id"), Some(session));
    }
    let list = Generation::Sessions.message(Some("8"), "tools/list", json!({}));
    assert_eq!(
        post(&url, &[], list.as_bytes()).status,
        400,
        "nothing has expired"
    );
    assert_eq!(
        initialize(&url, "blank", &[("mcp-session-id", "")]).status,
        200
    );
    // The generation without sessions does not look at the header.
    let modern = Generation::Modern.message(Some("9"), "tools/list", json!({}));
    let headers = [
        ("mcp-session-id", old.as_str()),
        ("mcp-protocol-version", MODERN),
        ("mcp-method", "tools/list"),
    ];
    assert_eq!(post(&url, &headers, modern.as_bytes()).status, 200);
}

// M01
#[test]
fn a_bridge_opens_again_by_itself_what_a_stop_ended_and_a_crash_ends_nothing() {
    let (world, repo, url) = node();
    let mut agent = StdioClient::start(&world, &repo, "agent");
    let wire = WireClient::start(&url, "wire");
    kill(world.serving(&repo).expect("a node"));
    assert_eq!(agent.data("peers_list", json!({}))["count"], 2);
    assert_eq!(world.up(&repo), url, "it comes back where it was");
    let ping = wire.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }));
    assert_eq!(ping.status, 200, "{ping:?}");
    world.run(&repo, &["serve", "stop"]);
    assert_eq!(agent.data("peers_list", json!({}))["count"], 1);
}

/// Lines that are no message, and the code with which each is answered.
fn no_messages() -> Vec<(Vec<u8>, i64)> {
    let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    let texts: [(&[u8], i64); 15] = [
        (b"not json", -32700),
        (b"{", -32700),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}}",
            -32700,
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}",
            -32700,
        ),
        (b"'x'", -32700),
        (b"NaN", -32700),
        (b"42", -32600),
        (b"\"x\"", -32600),
        (b"null", -32600),
        (b"true", -32600),
        (b"{}", -32600),
        (b"[]", -32600),
        (
            b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
            -32600,
        ),
        (b"{\"jsonrpc\":\"2.0\",\"method\":7,\"id\":null}", -32600),
        (b"{\"method\":\"ping\"}", -32600),
    ];
    let mut all: Vec<(Vec<u8>, i64)> = texts.map(|(text, code)| (text.to_vec(), code)).into();
    all.push((deep, 0));
    all
}

// M02
#[test]
fn what_is_no_message_is_answered_once_and_the_conversation_goes_on() {
    let (world, repo, url) = node();
    let wire = WireClient::start(&url, "wire");
    let mut bridge = StdioClient::spawn(&world, &repo, &[]);
    for (number, (text, expected)) in no_messages().into_iter().enumerate() {
        let shown = String::from_utf8_lossy(&text[..text.len().min(60)]).into_owned();
        bridge.send_raw(&[&text[..], b"\n"].concat());
        let refused: Value = serde_json::from_str(&bridge.line()).unwrap();
        let over_http = post(&url, &[("mcp-session-id", &wire.session)], &text);
        assert_eq!(over_http.status, 400, "{shown}: {over_http:?}");
        for answer in [&refused, &over_http.json()] {
            // What is nested too deeply is one or the other.
            let fits = code(answer) == expected
                || (expected == 0 && [-32700, -32600].contains(&code(answer)));
            assert!(fits, "{shown}: {answer}");
            assert_eq!(answer["id"], Value::Null, "{shown}: {answer}");
            assert!(answer.as_object().unwrap().contains_key("id"), "{shown}");
        }
        bridge.send(&json!({ "jsonrpc": "2.0", "id": number, "method": "ping" }));
        let pong: Value = serde_json::from_str(&bridge.line()).unwrap();
        assert_eq!(
            pong,
            json!({ "jsonrpc": "2.0", "id": number, "result": {} }),
            "{shown}"
        );
    }
}

// M02
#[test]
fn a_line_may_come_in_halves_with_a_mark_before_it_and_any_line_end() {
    let (world, repo, url) = node();
    let mut bridge = StdioClient::spawn(&world, &repo, &[]);
    let mark = "\u{feff}";
    bridge.send_raw(format!("\n   \n\r\n\t\n{mark}{}\n", hello()).as_bytes());
    assert!(bridge.line().contains("\"hello\""));
    bridge.send_raw(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\r\n");
    assert_eq!(bridge.line(), r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    // One in the middle of a name, one in the middle of a character.
    let message = r#"{"jsonrpc":"2.0","id":"ü","method":"ping"}"#.as_bytes();
    bridge.send_raw(&message[..24]);
    bridge.send_raw(&[&message[24..], b"\n"].concat());
    assert_eq!(bridge.line(), r#"{"jsonrpc":"2.0","id":"ü","result":{}}"#);
    // The last line needs no end.
    bridge.send_raw(br#"{"jsonrpc":"2.0","id":6,"method":"ping"}"#);
    let (status, rest) = bridge.close();
    assert_eq!(
        (status.code(), rest),
        (
            Some(0),
            vec![r#"{"jsonrpc":"2.0","id":6,"result":{}}"#.to_owned()]
        )
    );

    let wire = WireClient::start(&url, "wire");
    for (before, after) in [(mark, ""), ("", "\r\n"), ("\n \t", "\n")] {
        let ping = format!(r#"{before}{{"jsonrpc":"2.0","id":2,"method":"ping"}}{after}"#);
        let answer = post(&url, &[("mcp-session-id", &wire.session)], ping.as_bytes());
        assert_eq!(answer.status, 200, "{ping:?}: {answer:?}");
    }
}

/// Ids as they are written; whether they are one.
const IDS: [(&str, bool); 20] = [
    ("1", true),
    ("0", true),
    ("-5", true),
    ("9007199254740993", true),
    ("-9223372036854775808", true),
    ("9223372036854775807", true),
    (r#""1""#, true),
    (r#""""#, true),
    (r#"" ""#, true),
    (r#""req-ü""#, true),
    (r#""\u0000\n\"\\""#, true),
    (r#""null""#, true),
    ("null", false),
    ("{}", false),
    (r#"{"a":1}"#, false),
    ("[]", false),
    ("[1]", false),
    ("true", false),
    ("false", false),
    ("1.5", false),
];

/// Requests of every kind: method, name of what it is about, parameters.
fn requests(generation: Generation) -> Vec<(&'static str, &'static str, Value)> {
    let mut all = vec![
        ("tools/list", "", json!({})),
        (
            "tools/call",
            "peers_list",
            json!({ "name": "peers_list", "arguments": {} }),
        ),
        (
            "tools/call",
            "no_such",
            json!({ "name": "no_such", "arguments": {} }),
        ),
        ("no/such", "", json!({})),
    ];
    if generation == Generation::Sessions {
        all.push(("ping", "", json!({})));
    } else {
        all.push(("server/discover", "", json!({})));
    }
    all
}

fn same_id(answer: &Value, written: &str) -> bool {
    let id: Value = serde_json::from_str(written).expect("JSON");
    answer["id"] == id && answer["id"].is_number() == id.is_number()
}

// M03
#[test]
fn an_id_comes_back_as_it_was_written_and_what_is_none_is_refused() {
    let (world, repo, url) = node();
    let wire = WireClient::start(&url, "wire");
    for generation in Generation::BOTH {
        for (method, name, params) in requests(generation) {
            let mut lines = Vec::new();
            for (id, good) in IDS {
                let message = generation.message(Some(id), method, params.clone());
                let answer = generation.post(&wire, &url, method, name, &message);
                let json = answer.json();
                if good {
                    assert!(same_id(&json, id), "{generation:?} {method} {id}: {json}");
                } else {
                    assert_eq!(
                        answer.status, 400,
                        "{generation:?} {method} {id}: {answer:?}"
                    );
                    assert_eq!((code(&json), &json["id"]), (-32600, &Value::Null), "{json}");
                }
                lines.push(message);
            }
            if generation == Generation::Sessions {
                lines.insert(0, hello());
                lines.insert(
                    1,
                    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
                );
            }
            let answers = say(&world, &repo, &lines);
            let what = format!("{generation:?} {method}: {answers:?}");
            for (id, _) in IDS.iter().filter(|(_, good)| *good) {
                let with = answers.iter().filter(|answer| same_id(answer, id)).count();
                assert_eq!(with, 1, "{id} in {what}");
            }
            // The others are refused, under null or under what was written.
            let (refused, _): (Vec<&Value>, Vec<&Value>) = answers
                .iter()
                .partition(|answer| answer["id"].is_null() || answer["id"] == json!(1.5));
            let none = IDS.iter().filter(|(_, good)| !good).count();
            assert_eq!(refused.len(), none, "{what}");
            assert!(
                refused.into_iter().all(|answer| code(answer) == -32600),
                "{what}"
            );
            let opening = usize::from(generation == Generation::Sessions);
            assert_eq!(answers.len(), IDS.len() + opening, "{what}");
        }
    }
}

// M03
#[test]
fn the_number_and_the_text_of_one_id_are_two_requests() {
    let (world, repo, _) = node();
    let list = Generation::Sessions.message(Some("1"), "tools/list", json!({}));
    let ping = Generation::Sessions.message(Some("\"1\""), "ping", json!({}));
    let answers = say(&world, &repo, &[hello(), list, ping]);
    let with = |id: Value| answers.iter().find(|answer| answer["id"] == id).unwrap();
    assert!(with(json!(1))["result"]["tools"].is_array(), "{answers:?}");
    assert_eq!(with(json!("1"))["result"], json!({}), "{answers:?}");
}

/// Messages that are owed no answer.
const UNANSWERED: [&str; 8] = [
    r#"{"jsonrpc":"2.0","method":"notifications/whatever"}"#,
    r#"{"jsonrpc":"2.0","method":"initialized"}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4711}}"#,
    r#"{"jsonrpc":"2.0","method":"tools/list"}"#,
    r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":98,"error":{"code":-1,"message":"x"}}"#,
];

// M04
#[test]
fn what_has_no_id_is_never_answered_before_and_after_the_handshake() {
    let (world, repo, url) = node();
    let request = |id: &str, method: &str, params: Value| {
        Generation::Sessions.message(Some(id), method, params)
    };
    let mut lines: Vec<String> = UNANSWERED.map(str::to_owned).into();
    lines.extend([
        request("1", "ping", json!({})),
        request("2", "tools/list", json!({})),
        hello(),
    ]);
    lines.extend(UNANSWERED.map(str::to_owned));
    lines.extend([
        request("4", "no/such", json!({})),
        request("5", "tools/call", json!({ "name": "no_such" })),
        hello().replace("\"hello\"", "6"),
    ]);
    let answers = say(&world, &repo, &lines);
    let by_id: BTreeMap<String, &Value> = answers
        .iter()
        .map(|answer| (answer["id"].to_string(), answer))
        .collect();
    let ids: Vec<&str> = by_id.keys().map(String::as_str).collect();
    assert_eq!(ids, ["\"hello\"", "1", "2", "4", "5", "6"], "{answers:?}");
    assert_eq!(answers.len(), ids.len(), "one line each: {answers:?}");
    assert_eq!(by_id["1"]["result"], json!({}));
    assert_eq!(code(by_id["2"]), -32600);
    assert_eq!(code(by_id["4"]), -32601);
    assert_eq!(code(by_id["5"]), -32602);
    assert!(
        by_id["5"]["error"]["message"]
            .to_string()
            .contains("no_such")
    );
    assert_eq!(code(by_id["6"]), -32600);

    let wire = WireClient::start(&url, "wire");
    for message in UNANSWERED {
        let answer = post(
            &url,
            &[("mcp-session-id", &wire.session)],
            message.as_bytes(),
        );
        assert_eq!(
            (answer.status, answer.body.as_slice()),
            (202, &b""[..]),
            "{message}: {answer:?}"
        );
    }
    // A second handshake in one session makes no second row.
    initialize(&url, "wire", &[("mcp-session-id", &wire.session)]);
    let board = wire.call("peers_list", &json!({}));
    assert_eq!(board["structuredContent"]["count"], 1, "{board}");
}

// M04
#[test]
fn notifications_of_the_generation_without_sessions_are_not_answered_either() {
    let (world, repo, _) = node();
    let mut lines: Vec<String> = [
        "notifications/whatever",
        "notifications/cancelled",
        "tools/list",
    ]
    .map(|method| Generation::Modern.message(None, method, json!({})))
    .into();
    lines.push(Generation::Modern.message(Some("1"), "tools/list", json!({})));
    let answers = say(&world, &repo, &lines);
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!(1)], "{answers:?}");
}

// M05
#[test]
fn a_version_is_offered_back_where_it_is_known_and_else_one_that_is_spoken() {
    let (world, repo, url) = node();
    let hello = |offered: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":{offered},"capabilities":{{}},"clientInfo":{{"name":"b","version":"1"}}}}}}"#
        )
    };
    let known = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
    let table = known.map(|it| (format!("\"{it}\""), it));
    let unknown = ["\"2099-01-01\"", "\"1999-01-01\"", "\"foo\"", "\"\""];
    let table = table
        .into_iter()
        .chain(unknown.map(|it| (it.to_owned(), "2025-11-25")));
    for (offered, settled) in table {
        for header in ["", "2025-06-18", "2099-01-01", "nonsense"] {
            let version = [("mcp-protocol-version", header)];
            let answer = post(&url, &version, hello(&offered).as_bytes());
            assert_eq!(answer.status, 200, "{offered} {header}: {answer:?}");
            assert_eq!(
                answer.json()["result"]["protocolVersion"],
                settled,
                "{offered} {header}"
            );
        }
        let through = say(&world, &repo, &[hello(&offered)]);
        assert_eq!(
            through[0]["result"]["protocolVersion"], settled,
            "{offered}"
        );
    }
    for offered in ["5", "null", "{}", "[]", "true", "1.5"] {
        let answer = post(&url, &[], hello(offered).as_bytes());
        assert_eq!(code(&answer.json()), -32602, "{offered}: {answer:?}");
        let through = say(&world, &repo, &[hello(offered)]);
        assert_eq!(code(&through[0]), -32602, "{offered}: {through:?}");
    }
    let wire = WireClient::start(&url, "wire");
    let ping = Generation::Sessions.message(Some("2"), "ping", json!({}));
    for (header, status) in [
        (None, 200),
        (Some(""), 200),
        (Some("2025-06-18"), 200),
        (Some("2099-01-01"), 400),
        (Some("foobar"), 400),
        (Some("2025-6-18"), 400),
    ] {
        let mut headers = vec![("mcp-session-id", wire.session.as_str())];
        headers.extend(header.map(|it| ("mcp-protocol-version", it)));
        let answer = post(&url, &headers, ping.as_bytes());
        assert_eq!(answer.status, status, "{header:?}: {answer:?}");
        if status == 400 {
            let said = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(known.iter().all(|known| said.contains(known)), "{said}");
        }
    }
    // The version of a message of the other generation, which nobody speaks.
    let future = Generation::Modern.message(Some("3"), "tools/list", json!({}));
    let future = future.replace(MODERN, "2099-01-01");
    let headers = [
        ("mcp-protocol-version", "2099-01-01"),
        ("mcp-method", "tools/list"),
    ];
    let answer = post(&url, &headers, future.as_bytes());
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(
        String::from_utf8_lossy(&answer.body).contains(MODERN),
        "{answer:?}"
    );
}

/// Walks a schema, and names what some client cannot take.
fn odd(schema: &Value, at: &str, findings: &mut Vec<String>) {
    if let Some(object) = schema.as_object() {
        if object.get("type") == Some(&json!("array")) && !object.contains_key("items") {
            findings.push(format!("{at}: a list without items"));
        }
        for (name, inner) in object {
            odd(inner, &format!("{at}.{name}"), findings);
        }
    } else if let Some(list) = schema.as_array() {
        for inner in list {
            odd(inner, at, findings);
        }
    }
}

// M07
#[test]
fn no_schema_hides_the_tools_and_both_transports_and_generations_list_the_same() {
    let (world, repo, url) = node();
    let wire = WireClient::start(&url, "wire");
    let list = Generation::Sessions.message(Some("1"), "tools/list", json!({}));
    let modern = Generation::Modern.message(Some("1"), "tools/list", json!({}));
    let over_http = Generation::Sessions
        .post(&wire, &url, "tools/list", "", &list)
        .json();
    let over_modern = Generation::Modern
        .post(&wire, &url, "tools/list", "", &modern)
        .json();
    let over_stdio = say(
        &world,
        &repo,
        &[hello(), list.replace("\"id\":1", "\"id\":2")],
    );
    let over_stdio = over_stdio
        .iter()
        .find(|answer| answer["id"] == json!(2))
        .unwrap();
    let tools = &over_http["result"]["tools"];
    assert_eq!(tools, &over_modern["result"]["tools"]);
    assert_eq!(tools, &over_stdio["result"]["tools"]);
    let mut findings = Vec::new();
    for tool in tools.as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        // Room for a prefix of the client's, within 64.
        let plain = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        assert!(
            plain && name.len() <= 46 && !name.as_bytes()[0].is_ascii_digit(),
            "{name}"
        );
        for schema in ["inputSchema", "outputSchema"] {
            let schema = &tool[schema];
            assert_eq!(schema["type"], "object", "{name}");
            for word in ["anyOf", "oneOf", "allOf", "$ref"] {
                assert!(schema.get(word).is_none(), "{name}: {word} at the top");
            }
            odd(schema, name, &mut findings);
        }
        for (field, schema) in tool["inputSchema"]["properties"]
            .as_object()
            .into_iter()
            .flatten()
        {
            let typed = ["type", "enum", "anyOf"]
                .iter()
                .any(|word| schema.get(word).is_some());
            assert!(typed, "{name}.{field} has no type");
        }
    }
    assert_eq!(findings, Vec::<String>::new());
}

// M07
#[test]
fn a_wrong_argument_is_named_and_a_refusal_carries_no_structured_content() {
    let (world, repo, url) = node();
    let mut agent = StdioClient::start(&world, &repo, "agent");
    let wire = WireClient::start(&url, "wire");
    for (tool, arguments, named) in [
        ("peers_announce", json!({}), "intent"),
        ("peers_announce", json!({ "intent": 7 }), "intent"),
        ("peers_announce", json!({ "intent": null }), "intent"),
        (
            "peers_announce",
            json!({ "intent": "x", "paths": "src" }),
            "paths",
        ),
        (
            "peers_announce",
            json!({ "intent": "x", "paths": [7] }),
            "paths",
        ),
        (
            "peers_announce",
            json!({ "intent": "x", "path": [] }),
            "path",
        ),
        ("peers_list", json!({ "detail": "yes" }), "detail"),
        ("peers_list", json!({ "nonsense": 1 }), "nonsense"),
        ("capabilities_find", json!({ "query": [] }), "query"),
        ("capabilities_call", json!({}), "id"),
        ("capabilities_call", json!({ "id": 5 }), "id"),
    ] {
        for result in [
            agent.call(tool, arguments.clone()),
            wire.call(tool, &arguments),
        ] {
            assert_eq!(
                result["isError"],
                json!(true),
                "{tool} {arguments}: {result}"
            );
            assert!(result.get("structuredContent").is_none(), "{result}");
            let text = result["content"][0]["text"].as_str().unwrap();
            assert!(
                text.starts_with("invalid_input: "),
                "{tool} {arguments}: {text}"
            );
            assert!(
                text.contains(&format!("`{named}")),
                "{tool} {arguments}: {text}"
            );
        }
    }
    for (tool, arguments) in [
        ("peers_announce", json!({ "intent": "x", "paths": ["src"] })),
        ("peers_list", json!({})),
        ("capabilities_find", json!({ "query": "board" })),
        (
            "capabilities_call",
            json!({ "id": "peers.list", "input": {} }),
        ),
    ] {
        let result = wire.call(tool, &arguments);
        assert_ne!(result["isError"], json!(true), "{tool}: {result}");
        let content: Value =
            serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(content, result["structuredContent"], "{tool}");
    }
}
