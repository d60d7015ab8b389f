use proptest::prelude::*;

use super::*;

fn request_id(line: &str) -> Option<&str> {
    match scan(line.as_bytes()).ok()?.kind {
        Kind::Request { id, .. } => Some(id),
        Kind::Notification { .. } | Kind::Response => None,
    }
}

#[test]
fn ids_are_kept_exactly_as_they_were_written() {
    for id in [
        "1",
        r#""1""#,
        r#""""#,
        r#""req-ü""#,
        r#""\u0041""#,
        "-5",
        "9007199254740993",
        "1.5",
        "1e2",
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        assert_eq!(request_id(&line), Some(id), "{line}");
    }
}

#[test]
fn what_is_no_message_is_told_apart_from_what_is_no_json() {
    for (line, code) in [
        (&b"not json"[..], PARSE_ERROR),
        (b"{", PARSE_ERROR),
        (b"{} {}", PARSE_ERROR),
        (b"\"\xff\"", PARSE_ERROR),
        (b"42", INVALID_REQUEST),
        (b"\"x\"", INVALID_REQUEST),
        (b"null", INVALID_REQUEST),
        (b"{}", INVALID_REQUEST),
        (b"[]", INVALID_REQUEST),
        (
            br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
            INVALID_REQUEST,
        ),
        (br#"["2.0",1,"ping"]"#, INVALID_REQUEST),
        (
            br#"{"jsonrpc":"1.0","id":4,"method":"ping"}"#,
            INVALID_REQUEST,
        ),
        (br#"{"id":4,"method":"ping"}"#, INVALID_REQUEST),
        (
            br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            INVALID_REQUEST,
        ),
        (
            br#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            INVALID_REQUEST,
        ),
        (
            br#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#,
            INVALID_REQUEST,
        ),
        (
            br#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
            INVALID_REQUEST,
        ),
        (br#"{"jsonrpc":"2.0","id":1,"method":7}"#, INVALID_REQUEST),
        (
            br#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
            INVALID_REQUEST,
        ),
        (br#"{"jsonrpc":"2.0","id":1}"#, INVALID_REQUEST),
        (br#"{"jsonrpc":"2.0","result":{}}"#, INVALID_REQUEST),
    ] {
        let fault = scan(line).expect_err("no message");
        assert_eq!(fault.code, code, "{}", String::from_utf8_lossy(line));
    }
}

#[test]
fn messages_are_sorted_by_what_they_are_owed() {
    let response = Scan {
        kind: Kind::Response,
        version: None,
    };
    for line in [
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"a","error":{"code":1,"message":""}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}"#,
    ] {
        assert_eq!(scan(line.as_bytes()).as_ref(), Ok(&response), "{line}");
    }
    let cancelled =
        br#"{"method":"notifications/cancelled","params":{"requestId":"7"},"jsonrpc":"2.0"}"#;
    assert_eq!(
        scan(cancelled).map(|scan| scan.kind),
        Ok(Kind::Notification {
            method: "notifications/cancelled".to_owned(),
            cancels: Some(r#""7""#)
        })
    );
}

#[test]
fn the_target_is_what_the_name_header_must_repeat() {
    for (method, params, target) in [
        ("tools/call", r#"{"name":"a\u0062","uri":"u"}"#, Some("ab")),
        ("prompts/get", r#"{"name":"p"}"#, Some("p")),
        (
            "resources/read",
            r#"{"name":"n","uri":"x://y"}"#,
            Some("x://y"),
        ),
        ("tasks/get", r#"{"taskId":"t"}"#, Some("t")),
        ("tools/list", r#"{"name":"n"}"#, None),
        ("tools/call", r#"{"name":7}"#, None),
        ("tools/call", "[]", None),
        ("tools/call", "null", None),
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let Ok(Scan {
            kind: Kind::Request { target: found, .. },
            ..
        }) = scan(line.as_bytes())
        else {
            panic!("no request: {line}");
        };
        assert_eq!(found.as_deref(), target, "{line}");
    }
}

#[test]
fn the_version_is_read_from_meta_only() {
    for (params, version) in [
        (
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#,
            Some("2026-07-28"),
        ),
        (
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":7}}"#,
            None,
        ),
        (
            r#"{"_meta":["io.modelcontextprotocol/protocolVersion"]}"#,
            None,
        ),
        (r#"{"protocolVersion":"2025-06-18"}"#, None),
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#);
        let scan = scan(line.as_bytes()).expect("a message");
        assert_eq!(scan.version.as_deref(), version, "{line}");
    }
}

#[test]
fn deep_nesting_costs_no_stack() {
    let depth = 1_000_000;
    let line = [
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"#,
        &"[".repeat(depth),
        &"]".repeat(depth),
        "}}",
    ]
    .concat();

    assert_eq!(request_id(&line), Some("1"));
    assert_eq!(
        scan("[".repeat(depth).as_bytes()).map_err(|fault| fault.code),
        Err(PARSE_ERROR)
    );
    assert_eq!(id_in_prefix(&line.as_bytes()[..depth]), Some("1"));
}

#[test]
fn what_clients_put_around_a_line_is_removed() {
    for (line, trimmed) in [
        (&b"\xef\xbb\xbf{}\r"[..], &b"{}"[..]),
        (b"  {} ", b"{}"),
        (b"\r", b""),
        (b"\xef\xbb\xbf", b""),
        (b"   ", b""),
    ] {
        assert_eq!(trim(line), trimmed);
    }
}

#[test]
fn an_id_is_found_in_the_beginning_of_a_message() {
    for (start, id) in [
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"x":"aaaa"#,
            Some("7"),
        ),
        (r#"{"id" : "a,b}\"" , "params":{"#, Some(r#""a,b}\"""#)),
        (r#"{"params":{"id":1},"id":2,"#, Some("2")),
        (r#"{"params":[{"id":1},"}"],"id":2,"#, Some("2")),
        (r#"{"params":{"id":1,"x":"aaa"#, None),
        (r#"{"id":12"#, None),
        (r#"{"id":null,"x":"#, None),
        (r#"{"id":tru,"x":"#, None),
        ("[1,2,3", None),
        ("", None),
    ] {
        assert_eq!(id_in_prefix(start.as_bytes()), id, "{start}");
    }
}

proptest! {
    #[test]
    fn no_line_makes_the_scanner_panic(line in prop::collection::vec(any::<u8>(), 0..200)) {
        let line = trim(&line);
        prop_assert!(scan(line).map_or_else(|fault| fault.code < 0, |_| true));
        id_in_prefix(line);
    }

    #[test]
    fn a_cut_message_gives_its_own_id_or_none(id in 0..100_000_u32, cut in 0..60_usize) {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"id":9}}}}"#);
        let found = id_in_prefix(&line.as_bytes()[..cut.min(line.len())]);
        prop_assert!(found.is_none_or(|found| found == id.to_string()));
    }
}
