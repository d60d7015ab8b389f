//! A node that leaves a request unanswered.

use super::*;
use crate::bridge::session::look::{LOOK_AFTER, LOOK_PAUSE};

fn not_ready() -> FindError {
    FindError::Transient("the node was not ready within 5 s".to_owned())
}

/// A machine whose node has left its only request, number 2, unanswered for so long that the finder
/// was asked.
fn looking() -> (World, Call) {
    let mut world = World::live();
    world.request("5", "a");
    let call = world.call();
    world.written();
    world.effects();
    world.run_for(LOOK_AFTER);
    assert_eq!(world.effects(), ["find Some(1) true"]);
    (world, call)
}

#[test]
fn a_node_that_is_slow_and_serves_is_kept() {
    let (mut world, call) = looking();

    for _ in 0..20 {
        world.found(Ok(1));
        assert!(world.effects().is_empty(), "the exchange goes on");
        world.run_for(LOOK_PAUSE.saturating_sub(Duration::from_millis(1)));
        assert!(
            world.effects().is_empty(),
            "the node is not asked all the time"
        );
        world.run_for(Duration::from_millis(1));
        assert_eq!(world.effects(), ["find Some(1) true"]);
    }
    world.answer(&call, r#"{"id":5,"result":{}}"#);

    assert_eq!(ids(&world.written()), ["5"]);
    assert!(
        world.calls.is_empty(),
        "it was sent once, and its node never probed"
    );
    world.found(Ok(1));
    world.run_for(PROBE_AFTER.saturating_sub(LOOK_AFTER));
    assert!(world.effects().is_empty(), "nothing waits, nobody looks");
}

#[test]
fn a_successor_gets_what_its_hanging_predecessor_left_unanswered() {
    let (mut world, call) = looking();

    world.found(Ok(2));

    // Invariant 4.
    assert_eq!(world.effects(), ["detach", "attach"]);
    assert_eq!(world.call().method, Method::GET);
    let again = world.call();
    // Invariant 2.
    assert_eq!((number(&again), &again.body), (number(&call), &call.body));
    world.answer(&call, r#"{"id":5,"result":{}}"#);
    assert!(world.written().is_empty(), "the old connection is closed");
    world.answer(&again, r#"{"id":5,"result":{}}"#);
    assert_eq!(ids(&world.written()), ["5"]);
    world.request("6", "b");
    assert_eq!(number(&world.call()), "3");
}

#[test]
fn a_look_in_vain_gives_nobody_up_and_is_repeated() {
    let (mut world, call) = looking();

    for error in [
        not_ready(),
        FindError::Alone("no locks here".to_owned()),
        FindError::Permanent("never".to_owned()),
    ] {
        world.found(Err(error));
        assert!(world.effects().is_empty());
        world.run_for(LOOK_AFTER);
        assert_eq!(world.effects(), ["find Some(1) true"]);
    }
    world.answer(&call, r#"{"id":5,"result":{}}"#);

    assert_eq!(ids(&world.written()), ["5"]);
}

#[test]
fn a_look_goes_on_as_the_search_when_its_node_dies() {
    let (mut world, call) = looking();

    world.event(call.attempt, Event::End(lost()));
    assert_eq!(world.effects(), ["detach"], "the search is under way");
    world.found(Ok(2));

    assert_eq!(world.effects(), ["attach"]);
    assert_eq!(world.call().method, Method::GET);
    assert_eq!(number(&world.call()), number(&call));
}

#[test]
fn the_result_of_a_look_that_is_over_changes_nothing() {
    let (mut world, call) = looking();
    world.event(call.attempt, Event::End(lost()));
    world.found(Ok(2));
    world.effects();
    let before = world.calls.len();

    world.found(Ok(3));

    assert!(world.effects().is_empty());
    assert_eq!(world.calls.len(), before);
}

#[test]
fn a_node_that_speaks_is_not_looked_at() {
    let mut world = World::live();
    let push = world.session.next_attempt - 1;
    world.effects();
    world.request("5", "a");

    for _ in 0..20 {
        world.run_for(LOOK_AFTER / 2);
        world.event(push, Event::Heard);
    }

    assert!(world.effects().is_empty());
}

#[test]
fn open_streams_alone_have_nobody_looked_at() {
    let mut world = World::new();
    world.stateless("1", "subscriptions/listen");
    world.found(Ok(1));
    let listen = world.call();
    let ack = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"}"#;
    world.event(listen.attempt, head(true, None));
    let ack = Event::Message(Bytes::from_static(ack.as_bytes()));
    world.event(listen.attempt, ack);
    world.effects();

    world.run_for(PROBE_AFTER.saturating_sub(Duration::from_millis(1)));

    assert!(world.effects().is_empty());
}

#[test]
fn what_waits_for_an_unanswered_notification_has_the_node_looked_at() {
    let mut world = World::attached();
    world.answer_initialize("s1");
    world.line(INITIALIZED);
    world.call();
    world.effects();
    world.run_for(Duration::from_secs(9));
    assert!(world.effects().is_empty(), "nobody waits for an answer");

    world.request("5", "a");
    world.run_for(Duration::from_millis(1));

    assert_eq!(world.effects(), ["find Some(1) true"]);
}
