//! Finding a node, losing it, and what is said again to the next.

use super::*;

#[test]
fn only_a_request_has_a_node_looked_for() {
    let mut world = World::new();

    world.line(INIT);

    assert_eq!(world.effects(), ["find None true"]);
    assert!(world.calls.is_empty());
}

#[test]
fn a_resent_request_keeps_its_number_and_is_answered_once() {
    let mut world = World::live();
    world.request("5", "a");
    world.request("6", "b");
    let (five, six) = (world.call(), world.call());
    assert_eq!((number(&five), number(&six)), ("2", "3"));
    world.effects();
    world.written();

    world.event(five.attempt, Event::End(lost()));
    assert_eq!(world.effects(), ["detach", "find Some(1) true"]);
    world.answer(&six, r#"{"id":6,"result":{}}"#);
    assert!(
        world.written().is_empty(),
        "the old connection is closed: its answers do not count"
    );
    world.found(Ok(2));

    assert_eq!(world.call().method, Method::GET);
    let (five, six) = (world.call(), world.call());
    assert_eq!((number(&five), number(&six)), ("2", "3"));
    assert_eq!(header(&five, MCP_SESSION_ID), "s1");
    world.answer(&six, r#"{"id":6,"result":{}}"#);
    world.answer(&five, r#"{"id":5,"result":{}}"#);
    world.answer(&five, r#"{"id":5,"result":{}}"#);
    assert_eq!(ids(&world.written()), ["6", "5"]);
    world.request("7", "c");
    assert_eq!(header(&world.call(), EARSHOT_ACKED), "3");
}

#[test]
fn a_node_that_has_moved_is_left_and_looked_for_with_growing_pauses() {
    let mut world = World::live();
    world.request("5", "a");
    let call = world.call();
    world.effects();
    world.event(call.attempt, Event::End(refused(503)));
    assert_eq!(world.effects(), ["detach", "find Some(1) true"]);
    world.found(Ok(1));
    world.calls.clear();

    let mut pauses = Vec::new();
    for _ in 0..9 {
        let attempt = world.session.next_attempt - 1;
        world.event(attempt, Event::End(refused(503)));
        let wake = world.session.attachment_wake().expect("a pause");
        let pause = wake.saturating_sub(world.now);
        pauses.push(pause.as_millis());
        world.pass(pause);
        world.found(Ok(1));
    }

    assert_eq!(
        pauses,
        [250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]
    );
}

#[test]
fn a_request_without_a_node_is_answered_at_its_deadline() {
    let mut world = World::new();
    world.line(INIT);
    world.found(Err(FindError::Transient("the lease is held".to_owned())));

    world.run_for(DEADLINE.saturating_sub(Duration::from_millis(1)));
    assert!(world.written().is_empty());
    world.run_for(Duration::from_millis(1));

    let written = world.written();
    assert_eq!(ids(&written), ["1:-32000"]);
    assert!(written[0].contains("the lease is held"), "{}", written[0]);
    world.line(INIT);
    world.found(Ok(1));
    assert_eq!(number(&world.call()), "1");
}

#[test]
fn a_client_that_had_a_node_soon_hears_why_there_can_be_none() {
    let mut world = World::live();
    world.request("5", "a");
    let call = world.call();
    world.written();
    world.event(call.attempt, Event::End(lost()));
    world.found(Err(FindError::Alone("the disk is full".to_owned())));
    world.run_for(HOPELESS_DEADLINE.saturating_sub(Duration::from_millis(1)));
    assert!(world.written().is_empty());
    world.run_for(Duration::from_millis(1));
    let written = world.written();
    assert_eq!(ids(&written), ["5:-32000"]);
    assert!(written[0].contains("the disk is full"), "{}", written[0]);
}

#[test]
fn a_permanent_refusal_answers_everything_at_once() {
    let mut world = World::new();
    world.line(INIT);
    world.request("2", "tools/list");
    world.found(Err(FindError::Permanent(
        "the state folder is not yours".to_owned(),
    )));
    assert_eq!(ids(&world.written()), ["1:-32000", "2:-32000"]);

    world.line(INIT);

    assert_eq!(ids(&world.written()), ["1:-32000"]);
    assert_eq!(world.effects(), ["find None true"]);
}

#[test]
fn a_client_is_left_alone_with_all_that_no_node_has_seen() {
    let mut world = World::new();
    world.line(INIT);
    world.line(INITIALIZED);

    world.found(Err(FindError::Alone("no locks here".to_owned())));

    assert_eq!(world.effects(), ["find None true", "alone no locks here 2"]);
    world.request("9", "ping");
    assert!(world.written().is_empty());
}

#[test]
fn once_attached_a_client_is_never_left_alone() {
    let mut world = World::live();
    world.request("5", "a");
    let call = world.call();
    world.event(call.attempt, Event::End(lost()));
    world.effects();

    world.found(Err(FindError::Alone("no locks here".to_owned())));

    assert!(world.effects().is_empty());
    assert!(world.session.attachment_wake().is_some());
}

#[test]
fn streams_attach_but_never_start_a_node() {
    let mut world = World::live();
    world.effects();
    let push = world.session.next_attempt - 1;
    world.event(push, Event::End(lost()));
    world.run_for(BACKOFF_MIN);
    world.end(End::Lost { unsent: true });
    assert_eq!(world.effects(), ["detach", "find Some(1) false"]);
    world.found(Err(FindError::Transient("no node runs".to_owned())));
    world.run_for(Duration::from_mins(5));
    world.effects();

    world.request("5", "a");

    assert_eq!(
        world.effects(),
        ["find Some(1) true"],
        "a request does not wait for the pause"
    );
}

#[test]
fn a_silent_node_is_probed_and_then_left() {
    let mut world = World::live();
    world.effects();
    let push = world.session.next_attempt - 1;
    world.run_for(Duration::from_secs(20));
    world.event(push, Event::Heard);
    world.run_for(Duration::from_secs(20));
    assert!(world.calls.is_empty(), "a sign of life spares the probe");
    world.run_for(Duration::from_secs(10));
    let probe = world.call();
    assert_eq!(
        (probe.method.as_str(), header(&probe, MCP_SESSION_ID)),
        ("HEAD", "s1")
    );
    world.event(probe.attempt, Event::End(refused(405)));
    assert!(world.effects().is_empty(), "whatever it answers, it lives");

    world.run_for(PROBE_AFTER + PROBE_TIMEOUT);

    assert_eq!(world.effects(), ["detach", "find Some(1) false"]);
}

#[test]
fn an_announcement_is_repeated_only_where_a_later_node_has_no_row() {
    let announce = |id: u32| {
        let params = r#"{"name":"peers_announce"}"#;
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)
    };
    let absent = Event::Head {
        stream: false,
        session: None,
        row_absent: true,
    };
    let mut world = World::live();
    world.line(&announce(5));
    let announced = world.call();
    world.event(announced.attempt, absent.clone());
    world.event(
        announced.attempt,
        Event::Message(Bytes::from_static(br#"{"id":5,"result":{"content":[]}}"#)),
    );
    world.request("6", "a");
    let call = world.call();
    world.event(call.attempt, absent.clone());
    assert!(world.calls.is_empty(), "the same node is believed");
    world.event(call.attempt, Event::End(lost()));
    world.found(Ok(2));
    world.written();
    let (push, call) = (world.call(), world.call());

    world.event(push.attempt, head(true, None));
    assert!(world.calls.is_empty());
    world.event(call.attempt, absent.clone());
    let again = world.call();
    assert_eq!(
        (number(&again), &again.body),
        (number(&announced), &announced.body)
    );
    world.answer(&again, r#"{"id":5,"result":{"content":[]}}"#);
    world.event(call.attempt, absent);

    assert!(world.calls.is_empty(), "once for each attachment");
    assert!(world.written().is_empty(), "the client has its answer");
}

#[test]
fn a_withdrawn_announcement_is_not_repeated() {
    let mut world = World::live();
    for tool in ["peers_announce", "peers_withdraw"] {
        world.line(&format!(
            r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{{"name":"{tool}"}}}}"#
        ));
        let call = world.call();
        world.answer(&call, r#"{"id":5,"result":{}}"#);
    }

    assert!(world.session.announcement.is_none());
}
