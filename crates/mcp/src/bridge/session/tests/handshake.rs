//! The handshake, and its replay.

use super::*;

#[test]
fn before_initialize_only_a_ping_is_answered_with_a_result() {
    let mut world = World::new();

    world.line(r#"{"jsonrpc":"2.0","method":"notifications/whatever"}"#);
    world.request("1", "ping");
    world.request("2", "tools/list");
    world.line(r#"{"jsonrpc":"2.0","id":99,"result":{}}"#);

    assert_eq!(ids(&world.written()), ["1", "2:-32600"]);
    assert!(world.effects().is_empty(), "nothing of this needs a node");
}

#[test]
fn nothing_overtakes_the_handshake() {
    let mut world = World::new();
    world.line(INIT);
    world.line(r#"{"jsonrpc":"2.0","method":"initialized"}"#);
    world.line(INITIALIZED);
    world.request("4", "tools/list");
    world.line(r#"{"jsonrpc":"2.0","id":99,"result":{}}"#);
    world.line(&INIT.replace("\"id\":1", "\"id\":6"));
    assert_eq!(
        ids(&world.written()),
        ["6:-32600"],
        "a second initialize is refused"
    );
    world.found(Ok(1));

    assert_eq!(world.calls.len(), 1);
    world.answer_initialize("s1");
    assert_eq!(ids(&world.written()), ["1"]);
    let other = world.call();
    assert_eq!(header(&other, MCP_SESSION_ID), "s1");
    assert_eq!(header(&other, MCP_PROTOCOL_VERSION), "2025-06-18");
    assert_eq!(number(&other), "", "notifications have no number");
    assert_eq!(
        world.calls.len(),
        1,
        "the rest waits for the notification that confirms"
    );
    world.end(End::Done);

    assert_eq!(
        world.calls.len(),
        3,
        "the push stream, the request, the answer of the client"
    );
    assert_eq!(world.call().method, Method::GET);
    assert_eq!(number(&world.call()), "2");
}

#[test]
fn a_failed_initialize_may_be_tried_again_with_the_same_number() {
    let mut world = World::attached();
    world.request("2", "tools/list");
    let call = world.call();
    assert_eq!(number(&call), "1");
    world.event(call.attempt, Event::End(refused(400)));
    assert_eq!(ids(&world.written()), ["1:-32000", "2:-32600"]);

    world.line(INIT);

    assert_eq!(
        number(&world.call()),
        "1",
        "the seat is not known: it begins with 1"
    );
}

#[test]
fn one_lost_session_makes_one_replay_for_everybody() {
    let mut world = World::live();
    world.written();
    let sent: Vec<Call> = (10..42)
        .map(|id| {
            world.request(&id.to_string(), "a");
            world.call()
        })
        .collect();

    for call in &sent {
        world.event(call.attempt, Event::End(refused(404)));
    }
    assert_eq!(world.calls.len(), 1);
    assert_eq!(number(&world.calls[0]), "1");
    assert_eq!(header(&world.calls[0], MCP_SESSION_ID), "");
    world.answer_initialize("s2");
    let confirm = world.call();
    assert_eq!(confirm.body, INITIALIZED);
    assert_eq!(header(&confirm, MCP_SESSION_ID), "s2");
    world.event(confirm.attempt, Event::End(End::Done));

    assert!(
        world.written().is_empty(),
        "the replayed answer is not for the client"
    );
    let deletion = world.call();
    assert_eq!(deletion.method, Method::DELETE);
    assert_eq!(header(&deletion, MCP_SESSION_ID), "s1");
    let push = world.call();
    assert_eq!(
        (push.method.as_str(), header(&push, MCP_SESSION_ID)),
        ("GET", "s2")
    );
    assert_eq!(world.calls.len(), sent.len());
    for (id, first) in (10..42).zip(&sent) {
        let again = world.call();
        assert_eq!(number(&again), number(first));
        assert_eq!(header(&again, MCP_SESSION_ID), "s2");
        world.answer(&again, &format!(r#"{{"id":{id},"result":{{}}}}"#));
    }
    assert_eq!(world.written().len(), sent.len());
}

#[test]
fn a_session_lost_twice_is_an_error_and_no_loop() {
    let mut world = World::live();
    world.written();
    world.request("5", "a");
    world.end(refused(404));
    world.answer_initialize("s2");
    world.end(End::Done);
    let mut calls = std::mem::take(&mut world.calls);
    let again = calls.pop().unwrap();

    world.event(again.attempt, Event::End(refused(404)));

    assert_eq!(ids(&world.written()), ["5:-32000"]);
    assert!(world.calls.is_empty());
}

#[test]
fn a_replay_that_fails_gives_the_honest_error() {
    let mut world = World::live();
    world.written();
    world.request("5", "a");
    world.end(refused(404));
    let replay = world.call();

    let body = Bytes::from_static(br#"{"code":"busy","message":"too many sessions"}"#);
    let status = StatusCode::TOO_MANY_REQUESTS;
    world.event(replay.attempt, Event::End(End::Refused { status, body }));

    let written = world.written();
    assert_eq!(ids(&written), ["5:-32000"]);
    assert!(
        written[0].contains("busy: too many sessions"),
        "{}",
        written[0]
    );
    world.request("6", "b");
    assert_eq!(
        header(&world.call(), MCP_SESSION_ID),
        "s1",
        "the next request tries again"
    );
}

#[test]
fn an_idle_session_is_replayed_when_its_push_stream_is_unknown() {
    let mut world = World::live();
    let push = world.session.next_attempt - 1;
    world.event(push, Event::End(End::Done));
    world.run_for(BACKOFF_MIN);
    world.end(refused(404));

    world.answer_initialize("s2");
    world.end(End::Done);
    assert_eq!(world.call().method, Method::DELETE);
    world.end(refused(404));
    assert!(world.calls.is_empty(), "a second 404 in a row ends it");
    assert!(matches!(world.session.push, Push::Absent));
}

#[test]
fn subscriptions_are_said_again_after_a_replay() {
    let mut world = World::live();
    world.line(r#"{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"a:b"}}"#);
    let subscribe = world.call();
    world.answer(&subscribe, r#"{"id":3,"result":{}}"#);
    world.written();
    world.request("5", "a");
    world.end(refused(404));
    world.answer_initialize("s2");
    world.end(End::Done);

    let again = world
        .calls
        .iter()
        .find(|call| call.body == subscribe.body)
        .expect("said again");
    assert_eq!(number(again), number(&subscribe));
    let again = again.clone();
    world.answer(&again, r#"{"id":3,"result":{}}"#);
    assert!(world.written().is_empty());
}
