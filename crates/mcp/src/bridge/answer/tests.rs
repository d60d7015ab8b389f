use super::*;

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

#[test]
fn answers_carry_the_id_exactly_as_the_client_wrote_it() {
    for (body, id, line) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            "1",
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        ),
        (
            r#"{"id":"ü","result":{"id":9}}"#,
            r#""\u00fc""#,
            r#"{"id":"\u00fc","result":{"id":9}}"#,
        ),
        (
            r#"{"result":{}, "id" : 1e0 }"#,
            "1.0",
            r#"{"result":{}, "id" : 1.0 }"#,
        ),
        (
            r#"{"id":null,"error":{}}"#,
            "9007199254740993",
            r#"{"id":9007199254740993,"error":{}}"#,
        ),
        (r#"{"error":{}}"#, "5", r#"{"id":5,"error":{}}"#),
    ] {
        assert_eq!(with_id(bytes(body), id.as_bytes()), line, "{body}");
    }
}

#[test]
fn messages_of_the_node_are_told_apart() {
    for (body, message) in [
        (r#"{"id":1,"result":{}}"#, Message::Answer { failed: false }),
        (
            r#"{"id":1,"error":{"code":1}}"#,
            Message::Answer { failed: true },
        ),
        (r#"{"id":1,"method":"elicitation/create"}"#, Message::Other),
        (r#"{"method":"notifications/message"}"#, Message::Other),
        (
            r#"{"method":"notifications/subscriptions/acknowledged"}"#,
            Message::Acknowledgement,
        ),
        (r#"{"id":1}"#, Message::Unreadable),
        (r#"[{"id":1,"result":{}}]"#, Message::Unreadable),
        ("{", Message::Unreadable),
    ] {
        assert_eq!(inspect(body.as_bytes()), message, "{body}");
    }
}

#[test]
fn refusals_are_judged_by_status_and_body() {
    let plain = |text: &str| Verdict::Answer(error_line(Some(b"7"), UNAVAILABLE, text));
    let gone = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"gone"}}"#;
    let unknown_method = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no"}}"#;
    let no_id = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}"#;
    for (status, body, in_session, verdict) in [
        (404, gone, true, Verdict::SessionGone(bytes(gone))),
        (400, gone, true, Verdict::SessionGone(bytes(gone))),
        (404, gone, false, Verdict::Answer(bytes(gone))),
        (
            404,
            unknown_method,
            true,
            Verdict::Answer(bytes(unknown_method)),
        ),
        (
            404,
            "Not Found",
            true,
            Verdict::SessionGone(error_line(Some(b"7"), UNAVAILABLE, "Not Found")),
        ),
        (404, "", false, plain("the node answered 404 Not Found")),
        (
            400,
            no_id,
            true,
            Verdict::Answer(bytes(&no_id.replace("null", "7"))),
        ),
        (401, "no\r\nentry", true, plain("no  entry")),
        (
            421,
            r#"{"code":"wrong_node","message":"another checkout","remedy":"use its url"}"#,
            true,
            plain("wrong_node: another checkout. use its url"),
        ),
        (429, "busy", true, plain("busy")),
    ] {
        let status = StatusCode::from_u16(status).expect("a status");
        assert_eq!(
            judge(status, &bytes(body), b"7", in_session),
            verdict,
            "{status} {body}"
        );
    }
}

#[test]
fn a_raw_line_end_inside_a_message_becomes_a_blank() {
    assert_eq!(flat(&bytes("\r\n{\"a\":\r\n1}\n")), "{\"a\":  1}");
    assert_eq!(flat(&bytes(" \n")), "");
}

#[test]
fn errors_of_the_bridge_are_valid_json_whatever_they_say() {
    let line = error_line(None, -32700, "a \"quoted\"\nü");

    let value: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
    assert_eq!(value["id"], serde_json::Value::Null);
    assert_eq!(value["error"]["message"], "a \"quoted\"\nü");
    assert!(!line.contains(&b'\n'));
}

#[test]
fn a_tool_has_succeeded_unless_it_says_otherwise() {
    for (body, succeeded) in [
        (r#"{"id":1,"result":{"content":[]}}"#, true),
        (r#"{"id":1,"result":{"isError":false}}"#, true),
        (r#"{"id":1,"result":{"isError":true}}"#, false),
        (r#"{"id":1,"error":{}}"#, false),
    ] {
        assert_eq!(tool_succeeded(body.as_bytes()), succeeded, "{body}");
    }
    assert_eq!(
        negotiated(br#"{"id":1,"result":{"protocolVersion":"2025-06-18"}}"#).as_deref(),
        Some("2025-06-18")
    );
    assert_eq!(
        negotiated(br#"{"id":1,"result":{"protocolVersion":5}}"#),
        None
    );
}
