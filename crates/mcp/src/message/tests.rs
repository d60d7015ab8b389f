use proptest::prelude::*;
use serde_json::json;

use super::*;

fn rejected(bytes: &[u8]) -> (i32, Value) {
    let rejection = check(bytes).unwrap_err();
    (rejection.code.0, rejection.id)
}

fn id_of(id: &str) -> Result<Value, i32> {
    let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
    check(message.as_bytes())
        .map(|message| message.id())
        .map_err(|rejection| {
            assert_eq!(rejection.id, Value::Null, "{id}");
            rejection.code.0
        })
}

#[test]
fn what_is_not_json_is_a_parse_error() {
    for text in [
        "",
        "not json",
        "{",
        "{\"jsonrpc\":",
        "\u{1}",
        "[1,",
        "{}}",
        "nul",
        "\u{feff}{}",
    ] {
        assert_eq!(rejected(text.as_bytes()), (-32700, Value::Null), "{text}");
    }
    assert_eq!(rejected(b"{\"a\":\"\xff\"}").0, -32700);
}

#[test]
fn what_is_json_and_no_message_is_an_invalid_request() {
    for text in [
        "42",
        "\"x\"",
        "null",
        "true",
        "{}",
        "[]",
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":2.0,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","jsonrpc":"2.0","method":"a"}"#,
    ] {
        assert_eq!(rejected(text.as_bytes()), (-32600, Value::Null), "{text}");
    }
    // The id is known, so the answer carries it.
    for text in [
        r#"{"jsonrpc":"1.0","id":4,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":4,"method":5}"#,
        r#"{"id":4,"method":"ping"}"#,
    ] {
        assert_eq!(rejected(text.as_bytes()), (-32600, json!(4)), "{text}");
    }
}

#[test]
fn ids_are_echoed_exactly_or_refused() {
    for (id, echoed) in [
        ("1", json!(1)),
        ("\"1\"", json!("1")),
        ("\"\"", json!("")),
        ("\"req-ü\"", json!("req-ü")),
        ("-5", json!(-5)),
        ("0", json!(0)),
        ("9007199254740993", json!(9_007_199_254_740_993_i64)),
        ("9223372036854775807", json!(i64::MAX)),
    ] {
        assert_eq!(id_of(id), Ok(echoed), "{id}");
    }
    for id in [
        "null",
        "{}",
        "[1]",
        "true",
        "1.5",
        "1.0",
        "1e2",
        "-0",
        "9223372036854775808",
        "\"\\ud800\"",
    ] {
        assert_eq!(id_of(id), Err(-32600), "{id}");
    }
}

#[test]
fn what_has_no_id_is_never_owed_an_answer() {
    for (text, message) in [
        (
            r#"{"jsonrpc":"2.0","method":"notifications/whatever"}"#,
            Message::Notification,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"tools/list"}"#,
            Message::Notification,
        ),
        (r#"{"jsonrpc":"2.0","id":99,"result":{}}"#, Message::Reply),
        (
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#,
            Message::Reply,
        ),
    ] {
        assert_eq!(check(text.as_bytes()), Ok(message), "{text}");
    }
}

#[test]
fn the_parameters_of_a_handshake_must_fit() {
    let initialize = |params: &str| {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{params}}}"#);
        check(text.as_bytes())
    };
    let rest = r#""capabilities":{},"clientInfo":{"name":"b","version":"1"}"#;
    for version in ["5", "null", "{}"] {
        let rejection = initialize(&format!(r#"{{"protocolVersion":{version},{rest}}}"#));
        let rejection = rejection.unwrap_err();
        assert_eq!(
            (rejection.code.0, rejection.id),
            (-32602, json!(1)),
            "{version}"
        );
    }
    for params in [
        "null",
        "[]",
        "\"x\"",
        "{}",
        "{\"protocolVersion\":\"2025-06-18\"}",
    ] {
        assert_eq!(initialize(params).unwrap_err().code.0, -32602, "{params}");
    }
    let good = initialize(&format!(r#"{{"protocolVersion":"2099-01-01",{rest}}}"#)).unwrap();
    assert!(good.is_initialize());
    // In the generation without a handshake it is a method like any other.
    let other = initialize(r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#);
    assert!(!other.unwrap().is_initialize());
}

#[test]
fn a_message_of_more_values_than_it_may_hold_is_refused_under_its_id() {
    let values = "0,".repeat(VALUES_MAX);
    let text = format!(
        r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{{"arguments":[{values}0]}}}}"#
    );
    let refused = check(text.as_bytes()).unwrap_err();
    assert_eq!(
        (refused.code, refused.id),
        (ErrorCode::INVALID_REQUEST, json!(9))
    );
    assert!(
        refused.message.contains("65536 values"),
        "{}",
        refused.message
    );
    let long = format!(
        r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{{"arguments":{{"a":"{values}"}}}}}}"#
    );
    assert!(check(long.as_bytes()).is_ok(), "one long text is one value");
}

#[test]
fn a_request_names_its_own_version() {
    let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":
        {"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let Message::Request { own_version, .. } = check(text.as_bytes()).unwrap() else {
        panic!("it is a request");
    };
    assert_eq!(own_version.as_deref(), Some("2026-07-28"));
}

proptest! {
    #[test]
    fn no_bytes_are_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes).ok();
    }

    #[test]
    fn no_json_is_a_panic_and_every_answer_is_well_formed(
        id in "(null|true|-?[0-9]{1,20}|-?[0-9]{1,3}\\.[0-9]{1,3}|\"[a-z\\\\]{0,4}\"|\\[\\]|\\{\\})",
        method in "(\"[a-z/]{0,12}\"|null|7)",
        params in "(null|\\{\\}|\\[\\]|\\{\"_meta\":[0-9{}]{0,3}\\})",
    ) {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#);
        if let Err(rejection) = check(text.as_bytes()) {
            let answer = rejection.to_json();
            prop_assert!(answer["error"]["code"].is_i64());
            prop_assert!(answer.as_object().unwrap().contains_key("id"));
        }
    }

    #[test]
    fn every_integer_id_is_echoed(id in any::<i64>()) {
        prop_assert_eq!(id_of(&id.to_string()), Ok(json!(id)));
    }

    #[test]
    fn every_string_id_is_echoed(id in any::<String>()) {
        prop_assert_eq!(id_of(&json!(id).to_string()), Ok(json!(id)));
    }
}
