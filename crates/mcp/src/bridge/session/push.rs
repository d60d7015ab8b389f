//! The stream on which the node speaks without being asked, within a wire session.

use bytes::Bytes;
use http::{Method, StatusCode};

use super::handshake::Handshake;
use super::replies::MOVED;
use super::{BACKOFF_MAX, Effect, Purpose, Session, backoff};
use crate::bridge::answer::{self, Message};
use crate::bridge::clock::Now;
use crate::bridge::exchange::{AttemptId, End, Event};
use crate::bridge::headers;

/// Where the push stream is.
#[derive(Debug)]
pub(super) enum Push {
    /// There is no wire session that the client has confirmed.
    Off,
    /// It is opened at that time.
    Due { at: Now },
    /// It was asked for.
    Opening { attempt: AttemptId },
    /// It is open since then.
    Open { attempt: AttemptId, since: Now },
    /// The node offers none: silence is broken by probes instead.
    Absent,
}

impl Session {
    /// Opens the stream if it is due.
    pub(super) fn open_push(&mut self, now: Now) {
        let (Handshake::Live(wire), Push::Due { at }) = (&self.handshake, &self.push) else {
            return;
        };
        if *at > now || wire.initialized.is_none() {
            return;
        }
        let mut headers = self.identity.clone();
        headers::add_get(&mut headers);
        headers::add_session(
            &mut headers,
            wire.session.as_deref(),
            wire.version.as_deref(),
        );
        let attempt = self.next_attempt(now, Purpose::Push);
        self.push = Push::Opening { attempt };
        self.call(attempt, Method::GET, headers, Bytes::new());
    }

    /// Returns when the stream is to be opened, where only time is waited for.
    pub(super) fn push_wake(&self) -> Option<Now> {
        match (&self.handshake, &self.push) {
            (Handshake::Live(_), Push::Due { at }) if self.is_attached() => Some(*at),
            _ => None,
        }
    }

    pub(super) fn handle_push_event(&mut self, now: Now, event: Event) {
        match event {
            Event::Head { stream: true, .. } => {
                if let Push::Opening { attempt } = self.push {
                    self.push = Push::Open {
                        attempt,
                        since: now,
                    };
                    self.push_replayed = false;
                }
            }
            Event::Message(line) => match answer::inspect(&line) {
                Message::Acknowledgement | Message::Other => self.write(line),
                // Answers belong to the exchange of their request.
                Message::Answer { .. } | Message::Unreadable => {}
            },
            Event::Head { stream: false, .. } | Event::Heard => {}
            Event::End(end) => self.handle_push_end(now, end),
        }
    }

    fn handle_push_end(&mut self, now: Now, end: End) {
        match (end, &self.push) {
            (_, Push::Open { since, .. }) => {
                if now >= *since + BACKOFF_MAX {
                    self.push_failures = 0;
                }
                self.pause_push(now);
            }
            (End::Lost { .. }, _) => self.lose_node(now),
            (End::Refused { status, .. }, _) => self.handle_push_refusal(now, status),
            (End::Done | End::TooLarge, _) => self.push = Push::Absent,
        }
    }

    fn handle_push_refusal(&mut self, now: Now, status: StatusCode) {
        match status {
            MOVED => self.lose_node(now),
            StatusCode::NOT_FOUND if !self.push_replayed => {
                self.push_replayed = true;
                self.push = Push::Due { at: now };
                self.begin_replay();
            }
            StatusCode::TOO_MANY_REQUESTS => self.pause_push(now),
            _ if status.is_server_error() => self.pause_push(now),
            _ => {
                if status != StatusCode::METHOD_NOT_ALLOWED {
                    tracing::warn!(%status, "the node refuses its push stream");
                }
                self.push = Push::Absent;
            }
        }
    }

    /// Has the stream opened later, ever later when that goes on.
    pub(super) fn pause_push(&mut self, now: Now) {
        self.push = Push::Due {
            at: now + backoff(self.push_failures),
        };
        self.push_failures = self.push_failures.saturating_add(1);
    }

    /// Has the stream opened anew, for another wire session or another node.
    pub(super) fn reopen_push(&mut self, now: Now) {
        match self.push {
            Push::Off => return,
            Push::Opening { attempt } | Push::Open { attempt, .. } => {
                if self.attempts.remove(&attempt).is_some() {
                    self.effects.push(Effect::Abort(attempt));
                }
            }
            Push::Due { .. } | Push::Absent => {}
        }
        self.push = Push::Due { at: now };
    }
}
