//! The wire session of the generations up to 2025-11-25, and its replay.

use bytes::Bytes;
use http::Method;

use super::entry::{Phase, Role};
use super::push::Push;
use super::replies::MOVED;
use super::{Effect, Purpose, Session};
use crate::bridge::answer::{self, INTERNAL_ERROR, Message, UNAVAILABLE};
use crate::bridge::clock::Now;
use crate::bridge::exchange::{AttemptId, Call, End, Event};
use crate::bridge::headers;

/// How far client and node have come.
#[derive(Debug)]
pub(super) enum Handshake {
    /// The client has sent no `initialize`, or its `initialize` has failed.
    None,
    /// Its `initialize` is in the queue.
    Asked,
    /// The node knows the wire session, as far as is known.
    Live(Wire),
    /// The node has forgotten it: a new one is being made.
    Replaying {
        wire: Wire,
        stage: Stage,
        attempt: Option<AttemptId>,
    },
}

/// A wire session, and what it takes to make another one like it.
#[derive(Debug)]
pub(super) struct Wire {
    /// The node's id for it; `None` where the node keeps none.
    pub(super) session: Option<String>,
    /// The negotiated version.
    pub(super) version: Option<String>,
    /// Rises with every replay.
    pub(super) generation: u64,
    initialize: Bytes,
    initialize_n: Option<u64>,
    /// The client's `notifications/initialized`, once the node has taken it.
    pub(super) initialized: Option<Bytes>,
}

/// What the replay waits for.
#[derive(Debug)]
pub(super) enum Stage {
    /// The answer to the `initialize`; its head may have brought the session.
    Initialize { session: Option<String> },
    /// That the new session takes `notifications/initialized`.
    Initialized {
        session: Option<String>,
        version: Option<String>,
    },
}

impl Wire {
    /// Returns the session that `answer`, the node's answer to the frame `initialize`, began.
    pub(super) fn new(
        session: Option<String>,
        answer: &[u8],
        initialize: Bytes,
        initialize_n: Option<u64>,
    ) -> Self {
        let version = answer::negotiated(answer);
        Self {
            session,
            version,
            generation: 1,
            initialize,
            initialize_n,
            initialized: None,
        }
    }
}

impl Handshake {
    pub(super) fn is_begun(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Returns whether the node has taken `notifications/initialized`.
    pub(super) fn is_confirmed(&self) -> bool {
        self.wire().is_some_and(|wire| wire.initialized.is_some())
    }

    pub(super) fn wire(&self) -> Option<&Wire> {
        match self {
            Self::None | Self::Asked => None,
            Self::Live(wire) | Self::Replaying { wire, .. } => Some(wire),
        }
    }

    pub(super) fn wire_mut(&mut self) -> Option<&mut Wire> {
        match self {
            Self::None | Self::Asked => None,
            Self::Live(wire) | Self::Replaying { wire, .. } => Some(wire),
        }
    }

    /// Returns the generation of the wire session; 0 where there is none.
    pub(super) fn generation(&self) -> u64 {
        self.wire().map_or(0, |wire| wire.generation)
    }
}

impl Session {
    /// Begins to make another wire session, unless that is under way.
    pub(super) fn begin_replay(&mut self) {
        self.handshake = match std::mem::replace(&mut self.handshake, Handshake::None) {
            Handshake::Live(wire) => {
                // A node that took over the same address knows nobody, and nothing was attached
                // to: the push alone connected again.
                self.may_re_announce = true;
                let stage = Stage::Initialize { session: None };
                Handshake::Replaying {
                    wire,
                    stage,
                    attempt: None,
                }
            }
            other => other,
        };
    }

    /// Sends what the replay needs next, unless that is under way.
    pub(super) fn continue_replay(&mut self, now: Now) {
        let Handshake::Replaying {
            wire,
            stage,
            attempt: None,
        } = &self.handshake
        else {
            return;
        };
        let mut headers = self.identity.clone();
        headers::add_post(&mut headers);
        let body = match stage {
            Stage::Initialize { .. } => {
                if let Some(n) = wire.initialize_n {
                    headers::add_number(&mut headers, n, self.numbers.acked());
                }
                wire.initialize.clone()
            }
            Stage::Initialized { session, version } => {
                headers::add_session(&mut headers, session.as_deref(), version.as_deref());
                wire.initialized.clone().unwrap_or_default()
            }
        };
        let next = self.next_attempt(now, Purpose::Replay);
        if let Handshake::Replaying { attempt, .. } = &mut self.handshake {
            *attempt = Some(next);
        }
        self.call(next, Method::POST, headers, body);
    }

    pub(super) fn handle_replay_event(&mut self, now: Now, event: Event) {
        let Handshake::Replaying { stage, attempt, .. } = &mut self.handshake else {
            return;
        };
        match (event, stage) {
            (Event::Head { session, .. }, Stage::Initialize { session: made }) => *made = session,
            (Event::Message(line), Stage::Initialize { session }) => match answer::inspect(&line) {
                Message::Answer { failed: false } => {
                    let session = session.take();
                    self.handle_replayed(now, session, answer::negotiated(&line));
                }
                Message::Answer { failed: true } => self.fail_replay(now, &line),
                _ => {}
            },
            (Event::End(End::Done), Stage::Initialized { .. }) => self.complete_replay(now),
            (Event::End(End::Lost { .. }), _) => self.lose_node(now),
            (Event::End(End::Refused { status, .. }), _) if status == MOVED => self.lose_node(now),
            (Event::End(end), _) => {
                *attempt = None;
                let line = match end {
                    End::Refused { status, body } => {
                        answer::error_line(None, UNAVAILABLE, &answer::sentence(status, &body))
                    }
                    _ => answer::error_line(
                        None,
                        INTERNAL_ERROR,
                        "the node did not answer a repeated initialize",
                    ),
                };
                self.fail_replay(now, &line);
            }
            (Event::Head { .. } | Event::Message(_) | Event::Heard, _) => {}
        }
    }

    /// The repeated `initialize` was answered: the client has its answer since long.
    fn handle_replayed(&mut self, now: Now, fresh: Option<String>, negotiated: Option<String>) {
        let Handshake::Replaying {
            wire,
            stage,
            attempt,
        } = &mut self.handshake
        else {
            return;
        };
        // What the exchange still says is of no use.
        if let Some(attempt) = attempt.take() {
            self.attempts.remove(&attempt);
        }
        let confirmed = wire.initialized.is_some();
        *stage = Stage::Initialized {
            session: fresh,
            version: negotiated,
        };
        if !confirmed {
            self.complete_replay(now);
        }
    }

    fn complete_replay(&mut self, now: Now) {
        let before = std::mem::replace(&mut self.handshake, Handshake::None);
        let (wire, session, version) = match before {
            Handshake::Replaying {
                wire,
                stage: Stage::Initialized { session, version },
                ..
            } => (wire, session, version),
            other => {
                self.handshake = other;
                return;
            }
        };
        let abandoned = wire.session.clone();
        let generation = wire.generation + 1;
        self.handshake = Handshake::Live(Wire {
            session,
            version,
            generation,
            ..wire
        });
        self.reopen_push(now);
        for (frame, request) in self.subscriptions.clone().into_values() {
            self.say_again(now, frame, request);
        }
        if let Some(abandoned) = abandoned {
            let attempt = self.next_attempt(now, Purpose::Deletion);
            let call = self.deletion(attempt, Some(&abandoned));
            self.effects.push(Effect::Call(call));
        }
    }

    /// No new session could be made: whoever lost the old one is told so.
    fn fail_replay(&mut self, now: Now, error: &Bytes) {
        self.handshake = match std::mem::replace(&mut self.handshake, Handshake::None) {
            Handshake::Replaying { wire, attempt, .. } => {
                if let Some(attempt) = attempt {
                    self.attempts.remove(&attempt);
                }
                Handshake::Live(wire)
            }
            other => other,
        };
        if let Push::Due { .. } = self.push {
            self.pause_push(now);
        }
        let waiting: Vec<u64> = self
            .queue
            .iter()
            .filter_map(|(&key, entry)| {
                let lost = entry.session_losses > 0 && matches!(entry.role, Role::Request(_));
                (lost && matches!(entry.phase, Phase::Waiting { .. })).then_some(key)
            })
            .collect();
        for key in waiting {
            self.handle_answer(key, error.clone(), true);
        }
    }

    /// Returns the goodbye to the node: of the wire session, and of the seat where there is none.
    pub(super) fn goodbye(&mut self, now: Now) -> Option<Call> {
        if !self.is_attached() {
            return None;
        }
        let attempt = self.next_attempt(now, Purpose::Deletion);
        let wire = self.handshake.wire();
        let session = wire.and_then(|wire| wire.session.as_deref());
        Some(self.deletion(attempt, session))
    }

    fn deletion(&self, attempt: AttemptId, session: Option<&str>) -> Call {
        let mut headers = self.identity.clone();
        let version = self
            .handshake
            .wire()
            .and_then(|wire| wire.version.as_deref());
        headers::add_session(&mut headers, session, version);
        Call {
            attempt,
            method: Method::DELETE,
            headers,
            body: Bytes::new(),
        }
    }
}
