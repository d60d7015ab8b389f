//! Single messages: their headers, cancellation, streams and limits.

use super::*;

#[test]
fn a_cancelled_request_is_broken_off_and_never_answered() {
    let mut world = World::live();
    world.written();
    world.effects();
    world.request("5", "a");
    let call = world.call();

    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#;
    world.line(cancel);

    assert_eq!(world.effects(), ["abort"]);
    assert_eq!(world.call().body, cancel, "the node is told all the same");
    world.answer(&call, r#"{"id":5,"result":{}}"#);
    assert!(world.written().is_empty());
    world.request("6", "b");
    assert_eq!(header(&world.call(), EARSHOT_ACKED), "2");
}

#[test]
fn a_cancellation_of_a_twin_spares_the_other() {
    let mut world = World::live();
    world.request("7", "a");
    world.request(r#""7""#, "a");
    let (number_seven, text_seven) = (world.call(), world.call());
    world.written();

    world
        .line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"7"}}"#);
    world.answer(&text_seven, r#"{"id":"7","result":{}}"#);
    world.answer(&number_seven, r#"{"id":7,"result":{}}"#);

    assert_eq!(ids(&world.written()), ["7"]);
}

#[test]
fn the_same_id_waits_until_its_namesake_is_answered() {
    let mut world = World::live();
    world.written();
    world.request("7", "a");
    world.request("7", "b");
    let first = world.call();
    assert!(world.calls.is_empty());

    world.answer(&first, r#"{"id":7,"result":{}}"#);

    let second = world.call();
    world.answer(&second, r#"{"id":7,"result":{}}"#);
    assert_eq!(world.written().len(), 2);
}

#[test]
fn messages_that_stand_alone_carry_their_headers() {
    let mut world = World::new();
    world.stateless("1", "server/discover");
    world.stateless("2", "tools/call");
    world.found(Ok(1));

    let discover = world.call();
    assert_eq!(header(&discover, MCP_PROTOCOL_VERSION), "2026-07-28");
    assert_eq!(header(&discover, MCP_METHOD), "server/discover");
    assert_eq!(header(&discover, MCP_NAME), "");
    assert!(
        world.calls.is_empty(),
        "a seat begins with its first request alone"
    );
    world.answer(&discover, r#"{"id":1,"result":{}}"#);
    let call = world.call();
    assert_eq!(header(&call, MCP_NAME), "n");
    assert_eq!(
        header(&call, EARSHOT_ACKED),
        "0",
        "it goes as soon as the first is taken"
    );

    world.line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#);

    let cancel = world.call();
    assert_eq!(header(&cancel, MCP_METHOD), "notifications/cancelled");
    assert_eq!(header(&cancel, MCP_PROTOCOL_VERSION), "2026-07-28");
}

#[test]
fn a_listen_stream_is_opened_again_and_acknowledged_once() {
    let ack = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"}"#;
    let hint = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let message = |text: &str| Event::Message(Bytes::copy_from_slice(text.as_bytes()));
    let mut world = World::new();
    world.stateless("1", "subscriptions/listen");
    world.found(Ok(1));
    let first = world.call();
    for event in [
        head(true, None),
        message(ack),
        message(hint),
        Event::End(lost()),
    ] {
        world.event(first.attempt, event);
    }
    assert!(world.calls.is_empty());
    world.run_for(BACKOFF_MIN);

    let second = world.call();
    assert_eq!(
        (number(&second), &second.body),
        (number(&first), &first.body)
    );
    for event in [head(true, None), message(ack), message(hint)] {
        world.event(second.attempt, event);
    }
    assert_eq!(world.written(), [ack, hint, hint]);

    world.input(Input::Line(Line::End));
    assert_eq!(
        world.effects().last().unwrap(),
        "end DELETE",
        "an open stream holds up no end"
    );
}

#[test]
fn at_most_64_requests_are_at_the_node_and_the_client_is_read_a_little_further() {
    let mut world = World::live();
    for id in 0..QUEUE_MAX {
        assert!(world.session.wants_input());
        world.request(&format!("\"r{id}\""), "a");
    }

    assert_eq!(world.calls.len(), IN_FLIGHT_MAX);
    assert!(!world.session.wants_input());
    let call = world.call();
    world.answer(&call, r#"{"id":"x","result":{}}"#);
    assert_eq!(world.calls.len(), IN_FLIGHT_MAX);
    assert!(world.session.wants_input());
}

#[test]
fn a_stream_closed_without_an_answer_is_asked_again_but_not_for_ever() {
    let mut world = World::live();
    world.written();
    world.request("5", "a");

    let mut asked = 0;
    while !world.calls.is_empty() {
        let call = world.call();
        if call.method == Method::POST {
            asked += 1;
            world.event(call.attempt, head(true, None));
        }
        world.event(call.attempt, Event::End(End::Done));
        // Time passes in steps that leave no probe unanswered.
        while world.calls.is_empty() && world.written.is_empty() {
            world.run_for(PROBE_TIMEOUT / 2);
        }
    }

    assert_eq!(asked, RESENDS_MAX + 1);
    assert_eq!(ids(&world.written()), ["5:-32000"]);
}

#[test]
fn oversized_and_malformed_lines_are_answered_with_the_id_that_is_known() {
    let mut world = World::new();

    world.line("not json");
    world.line("42");
    world.input(Input::Line(Line::Oversized {
        id: Some(Bytes::from_static(b"\"a\"")),
    }));
    world.input(Input::Line(Line::Oversized { id: None }));

    assert_eq!(
        ids(&world.written()),
        ["null:-32700", "null:-32600", "\"a\":-32600", "null:-32600"]
    );
}
