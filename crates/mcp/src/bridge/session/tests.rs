//! Inputs and effects of the machine, without I/O; the clock is a number.

use std::path::PathBuf;

use http::{Method, StatusCode};
use proptest::prelude::*;

use super::*;
use crate::bridge::exchange::End;
use crate::bridge::headers::{
    EARSHOT_ACKED, EARSHOT_REQUEST, MCP_METHOD, MCP_NAME, MCP_PROTOCOL_VERSION, MCP_SESSION_ID,
};

const INIT: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const DEADLINE: Duration = Duration::from_mins(1);

/// A machine, its time, and every effect so far that is not a call.
struct World {
    session: Session,
    now: Now,
    calls: Vec<Call>,
    written: Vec<String>,
    effects: Vec<Effect>,
}

impl World {
    fn new() -> Self {
        let session = Session::new(HeaderMap::new(), DEADLINE);
        Self {
            session,
            now: Now::ZERO,
            calls: vec![],
            written: vec![],
            effects: vec![],
        }
    }

    /// A machine that has found a node with epoch 1.
    fn attached() -> Self {
        let mut world = Self::new();
        world.line(INIT);
        world.found(Ok(1));
        world
    }

    /// A machine with the wire session `s1`, confirmed, with its push stream open.
    fn live() -> Self {
        let mut world = Self::attached();
        world.answer_initialize("s1");
        world.line(INITIALIZED);
        world.end(End::Done);
        let push = world.call();
        assert_eq!(push.method, Method::GET);
        world.event(push.attempt, head(true, None));
        world
    }

    fn input(&mut self, input: Input) {
        for effect in self.session.handle(self.now, input) {
            match effect {
                Effect::Call(call) => self.calls.push(call),
                Effect::Write(line) => {
                    self.written
                        .push(String::from_utf8_lossy(&line).into_owned());
                }
                other => self.effects.push(other),
            }
        }
    }

    fn line(&mut self, line: &str) {
        self.input(Input::Line(Line::Frame(Bytes::copy_from_slice(
            line.as_bytes(),
        ))));
    }

    fn request(&mut self, id: &str, method: &str) {
        self.line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#
        ));
    }

    fn stateless(&mut self, id: &str, method: &str) {
        let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        self.line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"name":"n","_meta":{meta}}}}}"#
        ));
    }

    fn event(&mut self, attempt: AttemptId, event: Event) {
        self.input(Input::Exchange(attempt, event));
    }

    /// Ends the oldest call that was not looked at.
    fn end(&mut self, end: End) {
        let call = self.call();
        self.event(call.attempt, Event::End(end));
    }

    /// Takes the oldest call that was not looked at.
    fn call(&mut self) -> Call {
        assert!(!self.calls.is_empty(), "a call was expected");
        self.calls.remove(0)
    }

    fn answer(&mut self, call: &Call, body: &str) {
        self.event(call.attempt, head(false, None));
        self.event(
            call.attempt,
            Event::Message(Bytes::copy_from_slice(body.as_bytes())),
        );
        self.event(call.attempt, Event::End(End::Done));
    }

    fn answer_initialize(&mut self, wire: &str) {
        let call = self.call();
        assert_eq!(call.body, INIT);
        self.event(call.attempt, head(true, Some(wire)));
        let answer = br#"{"id":1,"result":{"protocolVersion":"2025-06-18"}}"#;
        self.event(call.attempt, Event::Message(Bytes::from_static(answer)));
        self.event(call.attempt, Event::End(End::Done));
    }

    /// Answers the search under way.
    fn found(&mut self, epoch: Result<u64, FindError>) {
        let Attachment::Seeking { search, .. } = self.session.attachment else {
            panic!("no search: {:?}", self.session.attachment);
        };
        let found = |epoch| Found {
            socket: PathBuf::new(),
            epoch,
            url: String::new(),
        };
        self.input(Input::Found(search, epoch.map(found)));
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.input(Input::Wake);
    }

    /// Has the machine woken as often as it asks for, until `time` has passed.
    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(wake) = self.session.next_wake().filter(|wake| *wake <= end) {
            self.now = self.now.max(wake);
            self.input(Input::Wake);
            let next = self.session.next_wake();
            assert!(
                next.is_none_or(|next| next > wake),
                "the machine is woken again at once"
            );
        }
        self.now = end;
    }

    fn written(&mut self) -> Vec<String> {
        std::mem::take(&mut self.written)
    }

    fn effects(&mut self) -> Vec<String> {
        let name = |effect| match effect {
            Effect::Find(_, want) => format!("find {:?} {}", want.not_before, want.may_start),
            Effect::Detach => "detach".to_owned(),
            Effect::Attach(_) => "attach".to_owned(),
            Effect::Abort(_) => "abort".to_owned(),
            Effect::Alone { reason, frames } => format!("alone {reason} {}", frames.len()),
            Effect::End { goodbye } => {
                format!(
                    "end {}",
                    goodbye.map_or(String::new(), |call| call.method.to_string())
                )
            }
            Effect::Write(_) | Effect::Call(_) => unreachable!("kept apart"),
        };
        std::mem::take(&mut self.effects)
            .into_iter()
            .map(name)
            .collect()
    }
}

fn head(stream: bool, session: Option<&str>) -> Event {
    Event::Head {
        stream,
        session: session.map(str::to_owned),
        row_absent: false,
    }
}

fn refused(status: u16) -> End {
    let status = StatusCode::from_u16(status).expect("a status");
    End::Refused {
        status,
        body: Bytes::new(),
    }
}

fn lost() -> End {
    End::Lost { unsent: false }
}

fn number(call: &Call) -> &str {
    call.headers
        .get(EARSHOT_REQUEST)
        .map_or("", |n| n.to_str().unwrap())
}

fn header(call: &Call, name: http::HeaderName) -> &str {
    call.headers
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

fn ids(written: &[String]) -> Vec<String> {
    let id = |line: &String| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let code = value["error"]["code"].as_i64();
        format!(
            "{}{}",
            value["id"],
            code.map_or(String::new(), |code| format!(":{code}"))
        )
    };
    written.iter().map(id).collect()
}

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
fn only_a_request_has_a_node_looked_for() {
    let mut world = World::new();

    world.line(INIT);

    assert_eq!(world.effects(), ["find None true"]);
    assert!(world.calls.is_empty());
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
        "end ",
        "an open stream holds up no end"
    );
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

/// One thing that may happen to the machine.
#[derive(Debug, Clone)]
enum Happening {
    Request,
    Cancel(u32),
    /// The exchange with this number, counted from the newest, goes on like that.
    Goes(u64, u8),
    Search(u8),
    Time(u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => Just(Happening::Request),
        1 => (0..30_u32).prop_map(Happening::Cancel),
        8 => (0..6_u64, 0..8_u8).prop_map(|(back, what)| Happening::Goes(back, what)),
        3 => (0..3_u8).prop_map(Happening::Search),
        2 => (0..40_000_u64).prop_map(Happening::Time),
    ]
}

fn apply(world: &mut World, happening: &Happening, next_id: &mut u32) {
    match *happening {
        Happening::Request => {
            *next_id += 1;
            world.request(&next_id.to_string(), "a");
        }
        Happening::Cancel(id) => world.line(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        )),
        Happening::Goes(back, what) => {
            let Some(attempt) = world.session.next_attempt.checked_sub(back + 1) else { return };
            let answer = Bytes::from_static(br#"{"id":0,"result":{"protocolVersion":"v"}}"#);
            world.event(
                attempt,
                match what {
                    0 | 1 => head(what == 0, Some("s")),
                    2 | 3 => Event::Message(answer),
                    4 => Event::End(End::Done),
                    5 => Event::End(refused(404)),
                    6 => Event::End(refused(503)),
                    _ => Event::End(lost()),
                },
            );
        }
        Happening::Search(how) => {
            if matches!(world.session.attachment, Attachment::Seeking { .. }) {
                world.found(match how {
                    0 => Err(FindError::Transient("later".to_owned())),
                    _ => Ok(1),
                });
            }
        }
        Happening::Time(ms) => world.run_for(Duration::from_millis(ms)),
    }
}

proptest! {
    /// Invariants 1 and 2, whatever happens.
    #[test]
    fn every_request_is_answered_at_most_once_and_keeps_its_number(
        happenings in prop::collection::vec(happening(), 0..120),
    ) {
        let mut world = World::attached();
        let mut next_id = 1;
        for happening in &happenings {
            apply(&mut world, happening, &mut next_id);
        }
        world.input(Input::Line(Line::End));
        world.run_for(DRAIN);

        let mut answered = ids(&world.written());
        for id in &mut answered {
            id.truncate(id.find(':').unwrap_or(id.len()));
        }
        answered.sort();
        let all = answered.len();
        answered.dedup();
        prop_assert_eq!(all, answered.len(), "no id is answered twice");
        prop_assert_eq!(world.effects().last().map(|last| last.starts_with("end")), Some(true));

        let mut numbers: BTreeMap<String, Bytes> = BTreeMap::new();
        for call in world.calls.iter().filter(|call| call.headers.contains_key(EARSHOT_REQUEST)) {
            let frame = numbers.entry(number(call).to_owned()).or_insert_with(|| call.body.clone());
            prop_assert_eq!(&*frame, &call.body, "a number stands for one frame");
        }
    }
}
