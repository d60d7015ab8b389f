//! What is sent to the node, and when.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};

use super::attachment::Attachment;
use super::entry::{Entry, Phase, Request, RequestKind, Role, Route};
use super::handshake::Handshake;
use super::{Attempt, Effect, Ending, HOPELESS_DEADLINE, IN_FLIGHT_MAX, Purpose, Session};
use crate::bridge::answer::{self, UNAVAILABLE};
use crate::bridge::clock::Now;
use crate::bridge::exchange::{AttemptId, Call};
use crate::bridge::frame::INVALID_REQUEST;
use crate::bridge::headers;

/// What may be done about a waiting message.
enum Step {
    Send,
    /// Not now, but what comes later may overtake it.
    Skip,
    /// Not now, and nothing that comes later either.
    Stop,
    /// It will never be sent: the handshake that it needs has failed.
    Refuse,
}

impl Session {
    /// Does whatever has become possible.
    pub(super) fn pump(&mut self, now: Now) {
        if self.ending == Ending::Ended {
            return;
        }
        for entry in self.queue.values_mut() {
            if entry.retry_at().is_some_and(|at| at <= now) {
                entry.phase = Phase::Waiting {
                    not_before: Now::ZERO,
                };
            }
        }
        match &self.attachment {
            Attachment::Unsought | Attachment::Seeking { .. } | Attachment::Pausing { .. } => {
                self.seek_if_wanted();
            }
            Attachment::Refused { sentence } => {
                let sentence = sentence.clone();
                self.refuse_everything(&sentence);
            }
            Attachment::Attached => {
                if matches!(self.handshake, Handshake::Replaying { .. }) {
                    self.continue_replay(now);
                } else {
                    self.open_push(now);
                    self.send_waiting(now);
                }
            }
        }
    }

    fn send_waiting(&mut self, now: Now) {
        let waiting: Vec<u64> = self
            .queue
            .iter()
            .filter_map(|(&key, entry)| (!entry.is_sent()).then_some(key))
            .collect();
        for key in waiting {
            match self.step(key) {
                Step::Send => self.send(now, key),
                Step::Skip => {}
                Step::Stop => break,
                Step::Refuse => self.fail(key, INVALID_REQUEST, "the initialize has failed"),
            }
        }
    }

    /// Invariant 3 is kept here.
    fn step(&self, key: u64) -> Step {
        let Some(entry) = self.queue.get(&key) else {
            return Step::Skip;
        };
        let sent = || self.queue.values().filter(|entry| entry.is_sent());
        let first_under_way = !self.seat_known && sent().any(|entry| entry.request().is_some());
        if first_under_way || sent().any(Entry::is_handshake) {
            return Step::Stop;
        }
        if entry.retry_at().is_some() {
            return if entry.is_handshake() {
                Step::Stop
            } else {
                Step::Skip
            };
        }
        if !entry.is_listen() && sent().filter(|entry| !entry.is_listen()).count() >= IN_FLIGHT_MAX
        {
            return Step::Stop;
        }
        if entry.in_session() {
            match self.handshake {
                Handshake::None => return Step::Refuse,
                Handshake::Asked | Handshake::Replaying { .. } => return Step::Stop,
                Handshake::Live(_) => {}
            }
        }
        let twin = entry.request().is_some_and(|request| {
            sent()
                .filter_map(Entry::request)
                .any(|other| other.id == request.id)
        });
        if twin { Step::Skip } else { Step::Send }
    }

    fn send(&mut self, now: Now, key: u64) {
        let attempt = self.next_attempt(now, Purpose::Entry(key));
        let generation = self.handshake.generation();
        let mut headers = self.identity.clone();
        headers::add_post(&mut headers);
        let Some(entry) = self.queue.get_mut(&key) else {
            return;
        };
        match &mut entry.role {
            Role::Request(request) => {
                let n = *request.n.get_or_insert_with(|| self.numbers.next());
                headers::add_number(&mut headers, n, self.numbers.acked());
                let target = request.target.as_deref();
                add_route(&mut headers, &self.handshake, &request.route, target);
            }
            Role::Initialized => {
                let route = Route::Session { version: None };
                add_route(&mut headers, &self.handshake, &route, None);
            }
            Role::OneWay(route) => add_route(&mut headers, &self.handshake, route, None),
        }
        entry.phase = Phase::Sent {
            attempt,
            generation,
            streaming: false,
            session: None,
        };
        let body = entry.frame.clone();
        self.call(attempt, Method::POST, headers, body);
    }

    pub(super) fn next_attempt(&mut self, now: Now, purpose: Purpose) -> AttemptId {
        let attempt = self.next_attempt;
        self.next_attempt += 1;
        let since = now;
        self.attempts.insert(attempt, Attempt { purpose, since });
        attempt
    }

    pub(super) fn call(
        &mut self,
        attempt: AttemptId,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) {
        self.effects.push(Effect::Call(Call {
            attempt,
            method,
            headers,
            body,
        }));
    }

    /// Takes a message out of the queue; an exchange under way goes on unheard.
    pub(super) fn remove(&mut self, key: u64) -> Option<Entry> {
        let entry = self.queue.remove(&key)?;
        self.queue_bytes -= entry.frame.len();
        if let Phase::Sent { attempt, .. } = entry.phase {
            self.attempts.remove(&attempt);
        }
        Some(entry)
    }

    /// Gives up a message: a request of the client is answered with an error.
    pub(super) fn fail(&mut self, key: u64, code: i32, message: &str) {
        let Some(entry) = self.remove(key) else {
            return;
        };
        let was_sent = entry.is_sent();
        let Role::Request(request) = entry.role else {
            return;
        };
        self.settle_number(&request, was_sent || request.touched);
        if request.kind == RequestKind::Initialize {
            self.handshake = Handshake::None;
        }
        if !request.silent {
            self.write(answer::error_line(Some(&request.id), code, message));
        }
    }

    /// Notes that a request needs its number no more; `seen` says whether a node may know it.
    pub(super) fn settle_number(&mut self, request: &Request, seen: bool) {
        match request.n {
            Some(n) if seen || self.seat_known => self.numbers.settle(n),
            Some(n) => self.numbers.release(n),
            None => {}
        }
    }

    /// Answers every request that is owed one with an error.
    pub(super) fn refuse_owed(&mut self, sentence: &str) {
        let owed: Vec<u64> = self
            .queue
            .iter()
            .filter_map(|(&key, entry)| entry.is_owed().then_some(key))
            .collect();
        for key in owed {
            self.fail(key, UNAVAILABLE, sentence);
        }
    }

    /// Answers every request with an error, open streams too.
    pub(super) fn refuse_everything(&mut self, sentence: &str) {
        while let Some((&key, _)) = self.queue.first_key_value() {
            self.fail(key, UNAVAILABLE, sentence);
        }
    }

    /// Returns how long a request waits for a node.
    pub(super) fn patience(&self) -> Duration {
        if self.hopeless {
            self.request_deadline.min(HOPELESS_DEADLINE)
        } else {
            self.request_deadline
        }
    }

    /// Gives up what has waited too long for a node.
    pub(super) fn expire(&mut self, now: Now) {
        if self.is_attached() {
            return;
        }
        let due = |entry: &Entry| {
            entry
                .expires_at(self.patience())
                .is_some_and(|at| at <= now)
        };
        let expired: Vec<u64> = self
            .queue
            .iter()
            .filter_map(|(&key, entry)| due(entry).then_some(key))
            .collect();
        let reason = match &self.last_reason {
            Some(reason) => format!(" ({reason})"),
            None => String::new(),
        };
        let seconds = self.patience().as_secs();
        let sentence = format!(
            "no node within {seconds} s{reason}; see `earshot serve status`, then try again"
        );
        for key in expired {
            self.fail(key, UNAVAILABLE, &sentence);
        }
    }
}

/// Adds the headers of the generation that a message travels under.
fn add_route(headers: &mut HeaderMap, handshake: &Handshake, route: &Route, target: Option<&str>) {
    match route {
        Route::Handshake => {}
        Route::Session { version } => {
            if let Some(wire) = handshake.wire() {
                let version = version.as_deref().or(wire.version.as_deref());
                headers::add_session(headers, wire.session.as_deref(), version);
            }
        }
        Route::Stateless { version, method } => {
            headers::add_stateless(headers, version, method, target);
        }
    }
}
