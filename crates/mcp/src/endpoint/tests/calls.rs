use earshot_capability::counts;
use http_body::Frame;

use super::*;

#[tokio::test]
async fn a_message_that_is_none_is_answered_with_an_error() {
    let world = World::new();
    let id = world.open().await;
    for (body, code) in [
        ("not json", -32700),
        ("", -32700),
        ("{", -32700),
        ("42", -32600),
        ("null", -32600),
        ("\"x\"", -32600),
        ("{}", -32600),
        ("[]", -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600),
    ] {
        let answer = world.post(&[("mcp-session-id", &id)], body).await;
        assert_eq!(answer.error(), (400, code, Value::Null), "{body}");
        assert_eq!(answer.kind(), Some("application/json"));
    }
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{{"a":{}1{}}}}}"#,
        "[".repeat(400),
        "]".repeat(400)
    );
    let answer = world.post(&[("mcp-session-id", &id)], deep).await;
    assert_eq!(
        answer.error(),
        (400, -32600, json!(4)),
        "too deep for the SDK"
    );
}

#[tokio::test]
async fn ids_come_back_as_they_were_sent() {
    let world = World::new();
    let id = world.open().await;
    for sent in ["1", "\"1\"", "\"\"", "\"req-ü\"", "-5", "9007199254740993"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{sent},"method":"ping"}}"#);
        let answer = world.post(&[("mcp-session-id", &id)], body).await;
        assert_eq!(answer.status, 200);
        assert!(
            answer.text.contains(&format!("\"id\":{sent}")),
            "{}",
            answer.text
        );
    }
}

#[tokio::test]
async fn notifications_and_replies_are_taken_in_silence() {
    let world = World::new();
    let id = world.open().await;
    for body in [
        r#"{"jsonrpc":"2.0","method":"notifications/whatever"}"#,
        r#"{"jsonrpc":"2.0","method":"initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
    ] {
        let answer = world.post(&[("mcp-session-id", &id)], body).await;
        assert_eq!((answer.status, answer.text.as_str()), (202, ""), "{body}");
    }
}

#[tokio::test]
async fn an_answer_is_whole_as_text_and_as_structure() {
    let world = World::new();
    let id = world.open().await;
    let answer = world.call(&id, "sample_echo", json!({ "text": "ü" })).await;
    let result = &answer["result"];
    assert_eq!(result["isError"], false);
    assert_eq!(result["structuredContent"]["text"], "ü");
    let text = result["content"][0]["text"].as_str().unwrap();
    let text: Value = serde_json::from_str(text).unwrap();
    assert_eq!(text, result["structuredContent"]);
}

#[tokio::test]
async fn a_failure_is_an_error_without_structure() {
    let world = World::new();
    let id = world.open().await;
    for (name, arguments, code, named) in [
        (
            "sample_echo",
            json!({ "text": "refuse" }),
            "conflict",
            "that is taken",
        ),
        ("sample_echo", json!({}), "invalid_input", "text"),
        (
            "sample_echo",
            json!({ "text": "a", "more": 1 }),
            "invalid_input",
            "more",
        ),
        ("sample_echo", json!({ "text": 5 }), "invalid_input", "text"),
    ] {
        let answer = world.call(&id, name, arguments).await;
        let result = &answer["result"];
        assert_eq!(result["isError"], true);
        assert_eq!(result.get("structuredContent"), None);
        let error = &result["_meta"]["error"];
        assert_eq!(error["code"], code);
        assert!(error["request_id"].is_string());
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(
            text.starts_with(&format!("{code}: ")) && text.contains(named),
            "{text}"
        );
        let remedy = error["remedy"].as_str().unwrap();
        assert!(text.ends_with(remedy), "{text}");
    }
}

#[tokio::test]
async fn tools_are_called_by_name_listed_or_not_and_others_are_unknown() {
    let world = World::new();
    let id = world.open().await;
    let hidden = world
        .call(&id, "sample_hidden", json!({ "text": "a" }))
        .await;
    assert_eq!(hidden["result"]["structuredContent"]["text"], "a");
    for name in ["no_such", "sample_operator", "sample.echo", ""] {
        let answer = world.call(&id, name, json!({})).await;
        assert_eq!(answer["error"]["code"], -32602, "{name}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(name), "{message}");
        let params = json!({ "name": name, "arguments": {} });
        let modern = world.modern("tools/call", params).await;
        assert_eq!(modern.error(), (200, -32602, json!(5)), "{name}");
    }
}

#[tokio::test]
async fn unknown_methods_and_unfit_parameters() {
    let world = World::new();
    let id = world.open().await;
    for (method, params, code) in [
        ("no/such", "{}", -32601),
        ("tools/call", "{}", -32602),
        ("tools/call", r#"{"name":5}"#, -32602),
        (
            "tools/call",
            r#"{"name":"sample_echo","arguments":[]}"#,
            -32602,
        ),
        ("tools/list", r#"{"cursor":"x"}"#, -32602),
        ("tools/list", "[]", -32602),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":4,"method":"{method}","params":{params}}}"#);
        let answer = world.post(&[("mcp-session-id", &id)], body).await;
        let status = if params == "[]" { 400 } else { 200 };
        assert_eq!(
            answer.error(),
            (status, code, json!(4)),
            "{method} {params}"
        );
    }
}

#[tokio::test]
async fn the_list_is_in_order_annotated_and_rendered_once() {
    let world = World::new();
    let id = world.open().await;
    let before = counts();
    let mut lists = vec![];
    for _ in 0..200 {
        let body = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
        let answer = world.post(&[("mcp-session-id", &id)], body).await;
        lists.push(answer.json()["result"]["tools"].clone());
    }
    assert_eq!(before, counts(), "no call repeats what start-up did");
    assert!(lists.iter().all(|list| *list == lists[0]));
    let tools = lists[0].as_array().unwrap();
    let names: Vec<&str> = tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["capabilities_call", "capabilities_find", "sample_echo"]
    );
    let echo = &tools[2];
    assert_eq!(
        echo["_meta"]["earshot"],
        json!({ "id": "sample.echo", "effect": "read" })
    );
    let hints = |tool: &Value| {
        let hints = &tool["annotations"];
        [
            "readOnlyHint",
            "destructiveHint",
            "idempotentHint",
            "openWorldHint",
        ]
        .map(|hint| hints[hint].as_bool().unwrap())
    };
    assert_eq!(hints(echo), [true, false, true, false]);
    assert_eq!(hints(&tools[0]), [false, false, false, false]);
    for tool in tools {
        assert_eq!(tool["inputSchema"]["type"], "object");
        assert_eq!(tool["outputSchema"]["type"], "object");
        let schemas = format!("{}{}", tool["inputSchema"], tool["outputSchema"]);
        assert!(!schemas.contains("$ref") && !schemas.contains("$schema"));
    }
}

#[tokio::test]
async fn the_projection_describes_itself() {
    let world = World::new();
    let id = world.open().await;
    let all = world.call(&id, "mcp_projection", json!({})).await;
    let all = &all["result"]["structuredContent"];
    assert!(all["protocol_versions"].to_string().contains("2026-07-28"));
    let listed = |tool: &&Value| tool["listed"] == true;
    let tools = all["tools"].as_array().unwrap();
    assert_eq!(tools.iter().filter(listed).count(), 3);
    assert!(!all.to_string().contains("sample.operator"));
    let some = world
        .call(
            &id,
            "mcp_projection",
            json!({ "effect": "repository_mutation" }),
        )
        .await;
    let some = &some["result"]["structuredContent"];
    assert_eq!(some["count"], 1);
    assert_eq!(some["tools"][0]["name"], "sample_hidden");
}

#[tokio::test]
async fn a_thread_that_a_call_names_is_its_session_unless_a_header_named_one() {
    let world = World::new();
    let id = world.open().await;
    let request = json!({
        "jsonrpc": "2.0", "id": 3, "method": "tools/call",
        "params": {
            "name": "sample_echo",
            "arguments": { "text": "a" },
            "_meta": { "threadId": "t-1" },
        },
    });
    let answer = world
        .post(&[("mcp-session-id", &id)], request.to_string())
        .await;
    assert_eq!(
        answer.json()["result"]["structuredContent"]["session"],
        "t-1"
    );
}

/// A body that never says how long it is.
struct Endless {
    left: usize,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b' '; 1 << 20])))))
    }
}

#[tokio::test]
async fn a_message_beyond_the_limit_is_too_large() {
    let world = World::new();
    let caller = Caller::anonymous(Origin::Socket, Surface::Mcp);
    for (megabytes, declared, status) in [
        (16, None, 400),
        (17, None, 413),
        (1000, None, 413),
        (17, Some("17825792"), 413),
        // Not a byte of it is waited for.
        (0, Some("99999999999"), 413),
    ] {
        let mut request = Request::post("/mcp").extension(Arc::new(caller.clone()));
        for (name, value) in [JSON, BOTH] {
            request = request.header(name, value);
        }
        if let Some(declared) = declared {
            request = request.header("content-length", declared);
        }
        let request = request.body(Endless { left: megabytes }).unwrap();
        let answer = world.service.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), status, "{megabytes} MiB");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["id"], Value::Null);
    }
}

#[tokio::test]
async fn every_message_is_heard_before_it_is_served() {
    let world = World::new();
    let id = world.open().await;
    let touched = || world.host.touched.load(std::sync::atomic::Ordering::SeqCst);
    let before = touched();
    world.post(&[("mcp-session-id", &id)], PING).await;
    world.modern("tools/list", json!({})).await;
    assert_eq!(touched() - before, 2);
    world.post(&[("mcp-session-id", &id)], "not json").await;
    assert_eq!(touched() - before, 2, "what is no message is not heard");
}

#[tokio::test]
async fn a_request_without_a_judged_caller_is_our_own_fault() {
    let world = World::new();
    let request = Request::post("/mcp")
        .header(JSON.0, JSON.1)
        .body(Full::new(Bytes::from_static(PING.as_bytes())))
        .unwrap();
    let answer = world.service.clone().oneshot(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn a_large_message_is_answered_as_any_other_and_small_ones_pass_it() {
    let world = World::new();
    let session = world.open().await;
    let text = "x".repeat(1024 * 1024);
    let answer = world
        .call(&session, "sample_echo", json!({ "text": text }))
        .await;
    assert_eq!(answer["result"]["structuredContent"]["text"], text);
    let values = "0,".repeat(200_000);
    let many = format!(
        r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{{"arguments":[{values}0]}}}}"#
    );
    let header = ("mcp-session-id", session.as_str());
    let answer = world.post(&[header], many).await;
    assert_eq!(answer.error(), (400, -32600, json!(9)));
    // Somebody's large message is under way: it holds up no other.
    let turn = world
        .service
        .large
        .turn(&Bytes::from(vec![b' '; 1024 * 1024]))
        .await;
    assert!(turn.is_some());
    let small = world
        .call(&session, "sample_echo", json!({ "text": "a" }))
        .await;
    assert_eq!(small["result"]["structuredContent"]["text"], "a");
}
