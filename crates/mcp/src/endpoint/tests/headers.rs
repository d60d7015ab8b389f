use super::*;

#[tokio::test]
async fn accept_in_every_spelling_is_served_in_a_form_that_was_asked_for() {
    let world = World::new();
    let id = world.open().await;
    let json = Some("application/json");
    let stream = Some("text/event-stream");
    for (accept, status, kind) in [
        (None, 200, json),
        (Some(""), 200, json),
        (Some("*/*"), 200, json),
        (Some("application/json"), 200, json),
        (Some("APPLICATION/JSON"), 200, json),
        (Some("application/*, text/*"), 200, json),
        (Some("text/event-stream, application/json"), 200, json),
        (
            Some("application/json;q=0.5, text/event-stream;q=1"),
            200,
            stream,
        ),
        (Some("text/event-stream"), 200, stream),
        (Some("text/html"), 406, json),
        (Some("application/json;q=0"), 406, json),
    ] {
        for body in [INITIALIZE, PING] {
            let mut headers = vec![JSON];
            headers.extend(accept.map(|accept| ("accept", accept)));
            if body == PING {
                headers.push(("mcp-session-id", &id));
            }
            let answer = world.ask("POST", &headers, body).await;
            assert_eq!(
                (answer.status, answer.kind()),
                (status, kind),
                "{accept:?} {body}"
            );
            if kind == json {
                assert_eq!(answer.json()["jsonrpc"], "2.0", "{accept:?}");
            } else {
                // No priming event and no event id: the first line is the answer.
                assert!(
                    answer.text.starts_with("data: {\"jsonrpc\""),
                    "{}",
                    answer.text
                );
                assert!(!answer.text.contains("\nid:"), "{}", answer.text);
            }
        }
        let mut headers = vec![JSON];
        headers.extend(accept.map(|accept| ("accept", accept)));
        let (own, body) = modern("tools/list", json!({}));
        headers.extend(own.iter().map(|(name, value)| (*name, value.as_str())));
        let answer = world.ask("POST", &headers, body).await;
        let got = answer.kind();
        let either = accept.is_some_and(|accept| accept.contains("q=1"));
        assert_eq!(answer.status, status, "{accept:?}");
        assert!(got == kind || either, "{accept:?}: {got:?}");
    }
}

#[tokio::test]
async fn content_type_in_every_spelling() {
    let world = World::new();
    for (kind, status) in [
        (Some("application/json; charset=utf-8"), 200),
        (Some("Application/JSON"), 200),
        (Some("application/json;charset=\"UTF-8\""), 200),
        (Some("application/json ; foo=bar"), 200),
        (Some("application/xml"), 415),
        (Some("application/jsonx"), 415),
        (Some("application/x-www-form-urlencoded"), 415),
        (None, 415),
    ] {
        let mut headers = vec![BOTH];
        headers.extend(kind.map(|kind| ("content-type", kind)));
        let answer = world.ask("POST", &headers, INITIALIZE).await;
        assert_eq!(answer.status, status, "{kind:?}");
        if status == 415 {
            let message = answer.json()["error"]["message"].to_string();
            assert!(message.contains("application/json"), "{message}");
        }
    }
}

#[tokio::test]
async fn session_ids_known_unknown_blank_and_absent() {
    let world = World::new();
    let id = world.open().await;
    let gone = "11111111-2222-4333-8444-555555555555";
    for (session, body, status, code) in [
        (Some(id.as_str()), PING, 200, None),
        (Some(gone), PING, 404, Some(-32001)),
        (Some("../../etc/passwd"), PING, 404, Some(-32001)),
        (None, PING, 400, Some(-32600)),
        (Some(""), PING, 400, Some(-32600)),
        (Some("  "), PING, 400, Some(-32600)),
        (Some(gone), INITIALIZE, 200, None),
        (Some(""), INITIALIZE, 200, None),
    ] {
        let mut headers = vec![];
        headers.extend(session.map(|session| ("mcp-session-id", session)));
        let answer = world.post(&headers, body).await;
        assert_eq!(answer.status, status, "{session:?} {body}: {}", answer.text);
        let expected = if body == PING { json!(7) } else { json!(1) };
        assert_eq!(answer.json()["id"], expected, "{session:?}");
        assert_eq!(answer.json()["error"]["code"].as_i64(), code, "{session:?}");
        if body == INITIALIZE {
            let new = answer.header("mcp-session-id").unwrap();
            assert!(new != gone && new != id);
        }
    }
    // What is no request is told the same, with a null id.
    let noted = r#"{"jsonrpc":"2.0","method":"notifications/whatever"}"#;
    let answer = world.post(&[("mcp-session-id", gone)], noted).await;
    assert_eq!(answer.error(), (404, -32001, Value::Null));
}

#[tokio::test]
async fn delete_ends_a_session_once() {
    let world = World::new();
    let id = world.open().await;
    let header = ("mcp-session-id", id.as_str());
    assert_eq!(world.service.wire_sessions(), 1);
    assert_eq!(world.ask("DELETE", &[header], "").await.status, 204);
    assert_eq!(world.service.wire_sessions(), 0);
    let left = world.host.left.lock().unwrap().clone();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].wire_session.as_deref(), Some(id.as_str()));
    assert_eq!(
        world.ask("DELETE", &[header], "").await.error(),
        (404, -32001, Value::Null)
    );
    assert_eq!(
        world.post(&[header], PING).await.error(),
        (404, -32001, json!(7))
    );
    assert_eq!(world.ask("DELETE", &[], "").await.error().0, 400);
    assert_eq!(world.host.left.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn delete_with_a_seat_and_no_session_says_that_the_seat_leaves() {
    let mut world = World::new();
    world.caller.seat = Some(earshot_trust::Seat::new([9; 16]));
    let modern = ("mcp-protocol-version", "2026-07-28");
    for headers in [vec![], vec![modern]] {
        let answer = world.ask("DELETE", &headers, "").await;
        assert_eq!((answer.status, answer.text.as_str()), (204, ""));
        let left = world.host.left.lock().unwrap().pop();
        let left = left.expect("the host is told");
        assert_eq!(
            (left.seat, left.wire_session),
            (world.caller.seat.clone(), None)
        );
    }
    // A session that is named is what ends, or what is unknown.
    let gone = ("mcp-session-id", "01234567-89ab-4def-8123-456789abcdef");
    assert_eq!(world.ask("DELETE", &[gone], "").await.error().0, 404);
    assert!(world.host.left.lock().unwrap().is_empty());
}

#[tokio::test]
async fn versions_of_later_requests() {
    let world = World::new();
    let id = world.open().await;
    for (version, status) in [
        (None, 200),
        (Some(""), 200),
        (Some("2025-06-18"), 200),
        (Some("2024-11-05"), 200),
        (Some("2099-01-01"), 400),
        (Some("foobar"), 400),
        (Some("2025-6-18"), 400),
    ] {
        let mut headers = vec![("mcp-session-id", id.as_str())];
        headers.extend(version.map(|version| ("mcp-protocol-version", version)));
        let answer = world.post(&headers, PING).await;
        assert_eq!(answer.status, status, "{version:?}: {}", answer.text);
        if status == 400 {
            assert_eq!(answer.error(), (400, -32600, json!(7)));
            assert!(answer.text.contains("2025-11-25"), "{}", answer.text);
            let get = [("accept", "text/event-stream"), headers[0], headers[1]];
            assert_eq!(world.ask("GET", &get, "").await.error().0, 400);
        }
    }
}

#[tokio::test]
async fn methods_and_streams_that_are_not_served() {
    let world = World::new();
    let get = world
        .ask("GET", &[("accept", "text/event-stream")], "")
        .await;
    assert_eq!(get.error().0, 400, "a stream needs a session");
    let get = world.ask("GET", &[("accept", "*/*")], "").await;
    assert_eq!(get.error().0, 400);
    for accept in ["application/json", "text/html"] {
        assert_eq!(
            world.ask("GET", &[("accept", accept)], "").await.error().0,
            406
        );
    }
    let modern = [
        ("accept", "text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
    ];
    assert_eq!(world.ask("GET", &modern, "").await.error().0, 405);
    for method in ["PUT", "PATCH", "OPTIONS"] {
        let answer = world.ask(method, &[], "").await;
        assert_eq!(answer.error().0, 405, "{method}");
        assert!(answer.header("allow").unwrap().contains("POST"));
    }
}

#[tokio::test]
async fn a_stream_is_counted_while_it_is_open() {
    let world = World::new();
    let id = world.open().await;
    let headers = [
        ("accept", "*/*"),
        ("mcp-session-id", id.as_str()),
        ("last-event-id", "5"),
    ];
    let first = world.send("GET", &headers, "").await;
    let second = world.send("GET", &headers, "").await;
    assert_eq!(first.status(), StatusCode::OK);
    assert_eq!(first.headers()["content-type"], "text/event-stream");
    assert_eq!(world.host.open_streams(), 2);
    drop(first);
    assert_eq!(world.host.open_streams(), 1);
    drop(second);
    assert_eq!(world.host.open_streams(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_gets_a_comment_and_a_silent_session_ends() {
    let world = World::new();
    let id = world.open().await;
    let headers = [
        ("accept", "text/event-stream"),
        ("mcp-session-id", id.as_str()),
    ];
    let mut stream = world.send("GET", &headers, "").await.into_body();
    let frame = stream.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(frame.starts_with(b":"), "{frame:?}");
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(world.service.wire_sessions(), 1);
    drop(stream);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(world.service.wire_sessions(), 0);
    let answer = world.post(&[("mcp-session-id", &id)], PING).await;
    assert_eq!(answer.error(), (404, -32001, json!(7)));
}

#[tokio::test]
async fn a_full_house_is_busy() {
    let world = World::with(|settings| settings.sessions_max = 1);
    let id = world.open().await;
    let answer = world.post(&[], INITIALIZE).await;
    assert_eq!(answer.error(), (429, -32000, json!(1)));
    assert_eq!(answer.json()["error"]["data"]["code"], "busy");
    assert!(answer.header("retry-after").is_some());
    world.ask("DELETE", &[("mcp-session-id", &id)], "").await;
    world.open().await;
}
