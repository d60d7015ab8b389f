//! Inputs and effects of the machine, without I/O; the clock is a number.

mod anything;
mod attachment;
mod ending;
mod handshake;
mod look;
mod messages;

use std::path::PathBuf;

use http::{Method, StatusCode};

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

    /// Answers the newest search.
    fn found(&mut self, epoch: Result<u64, FindError>) {
        let search = self.session.next_search.checked_sub(1).expect("a search");
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
