//! How the client's side ends.

use super::*;

#[test]
fn the_end_of_input_waits_for_answers_and_says_goodbye() {
    let mut world = World::live();
    world.request("5", "a");
    let call = world.call();
    world.effects();
    world.input(Input::Line(Line::End));
    assert!(world.effects().is_empty());

    world.answer(&call, r#"{"id":5,"result":{}}"#);

    assert_eq!(world.effects(), ["end DELETE"]);
}

#[test]
fn the_end_of_input_does_not_wait_for_ever() {
    let mut world = World::new();
    world.line(INIT);
    world.input(Input::Line(Line::End));

    world.run_for(DRAIN);

    assert_eq!(ids(&world.written()), ["1:-32000"]);
    assert_eq!(world.effects(), ["find None true", "end "]);
}

#[test]
fn a_client_that_is_gone_is_not_waited_for() {
    let mut world = World::live();
    world.request("5", "a");
    world.effects();

    world.input(Input::ClientGone);

    assert_eq!(world.effects(), ["end DELETE"]);
}

#[test]
fn a_client_without_a_wire_session_says_goodbye_for_its_seat() {
    let mut world = World::new();
    world.stateless("1", "server/discover");
    world.found(Ok(1));
    let call = world.call();
    world.answer(&call, r#"{"id":1,"result":{}}"#);
    world.effects();

    world.input(Input::Line(Line::End));

    let Some(Effect::End {
        goodbye: Some(goodbye),
    }) = world.effects.pop()
    else {
        panic!("no goodbye");
    };
    assert_eq!(goodbye.method, Method::DELETE);
    assert!(!goodbye.headers.contains_key(MCP_SESSION_ID));
}
