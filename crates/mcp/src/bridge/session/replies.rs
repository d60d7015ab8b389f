//! What the node's answers do.

use bytes::Bytes;
use http::StatusCode;

use super::entry::{Phase, RequestKind, Role};
use super::handshake::{Handshake, Wire};
use super::push::Push;
use super::{Attempt, Effect, Purpose, RESENDS_MAX, SUBSCRIPTIONS_MAX, Session, backoff};
use crate::bridge::answer::{self, INTERNAL_ERROR, Message, UNAVAILABLE, Verdict};
use crate::bridge::clock::Now;
use crate::bridge::exchange::{AttemptId, End, Event};

impl Session {
    pub(super) fn handle_event(&mut self, now: Now, attempt: AttemptId, event: Event) {
        let Some(Attempt { purpose, .. }) = self.attempts.get(&attempt).copied() else {
            // Its request is answered or cancelled: what a node still says is of no use.
            if !matches!(event, Event::End(_)) {
                self.effects.push(Effect::Abort(attempt));
            }
            return;
        };
        match &event {
            Event::End(End::Lost { .. }) => {}
            Event::End(End::Refused { status, .. }) if *status == MOVED => {}
            _ => {
                self.heard_at = now;
                self.losses = 0;
                self.look.resume();
            }
        }
        if matches!(event, Event::End(_)) {
            self.attempts.remove(&attempt);
        }
        if matches!(
            event,
            Event::Head {
                row_absent: true,
                ..
            }
        ) {
            self.re_announce(now);
        }
        match purpose {
            Purpose::Entry(key) => self.handle_entry_event(now, key, event),
            Purpose::Replay => self.handle_replay_event(now, event),
            Purpose::Push => self.handle_push_event(now, event),
            Purpose::Probe => self.handle_probe_event(now, &event),
            Purpose::Deletion => {}
        }
    }

    fn handle_entry_event(&mut self, now: Now, key: u64, event: Event) {
        match event {
            Event::Head {
                stream, session, ..
            } => self.handle_head(key, stream, session),
            Event::Message(line) => self.handle_answer_message(key, line),
            Event::Heard => self.note_alive(key),
            Event::End(End::Done) => self.handle_done(now, key),
            Event::End(End::Refused { status, body }) => {
                self.handle_refusal(now, key, status, &body);
            }
            Event::End(End::Lost { unsent }) => self.handle_loss(now, key, unsent),
            Event::End(End::TooLarge) => {
                self.fail(
                    key,
                    INTERNAL_ERROR,
                    "the node's answer is larger than 32 MiB",
                );
            }
        }
    }

    fn handle_head(&mut self, key: u64, stream: bool, answered_session: Option<String>) {
        let Some(entry) = self.queue.get_mut(&key) else {
            return;
        };
        entry.no_node_since = None;
        if let Phase::Sent {
            streaming, session, ..
        } = &mut entry.phase
        {
            *streaming = stream;
            *session = answered_session;
        }
        if entry.request().is_some() {
            self.seat_known = true;
        }
    }

    /// A stream that lives is not one that fails again and again.
    fn note_alive(&mut self, key: u64) {
        if let Some(entry) = self.queue.get_mut(&key)
            && entry.is_open_stream()
        {
            entry.resends = 0;
        }
    }

    fn handle_answer_message(&mut self, key: u64, line: Bytes) {
        let message = answer::inspect(&line);
        let Some(Role::Request(request)) = self.queue.get_mut(&key).map(|entry| &mut entry.role)
        else {
            return;
        };
        match (message, &mut request.kind) {
            (Message::Answer { failed }, _) => {
                self.seat_known = true;
                self.handle_answer(key, line, failed);
            }
            // The client has had the first one: this confirms a stream that was opened again.
            (Message::Acknowledgement, RequestKind::Listen { acknowledged: true }) => {}
            (Message::Acknowledgement, RequestKind::Listen { acknowledged }) => {
                *acknowledged = true;
                self.write(line);
            }
            (Message::Unreadable, _) => {
                tracing::warn!("the node sent a message that is no JSON-RPC; it was dropped");
            }
            (Message::Acknowledgement | Message::Other, _) if request.silent => {}
            (Message::Acknowledgement, _) => self.write(line),
            (Message::Other, _) => {
                self.write(line);
                self.note_alive(key);
            }
        }
    }

    /// The answer to a request has come: it is passed on, once.
    pub(super) fn handle_answer(&mut self, key: u64, line: Bytes, failed: bool) {
        let Some(entry) = self.remove(key) else {
            return;
        };
        let session = match entry.phase {
            Phase::Sent { session, .. } => session,
            Phase::Waiting { .. } => None,
        };
        let Role::Request(request) = entry.role else {
            return;
        };
        // An error from before the seat was known has left no trace at the node.
        self.settle_number(&request, false);
        let line = answer::with_id(line, &request.id);
        if request.kind == RequestKind::Initialize {
            self.handshake = if failed {
                Handshake::None
            } else {
                Handshake::Live(Wire::new(session, &line, entry.frame.clone(), request.n))
            };
        }
        if !request.silent {
            self.write(line.clone());
        }
        if !failed && !request.silent && answer::tool_succeeded(&line) {
            self.remember(entry.frame, request);
        }
    }

    /// Keeps what is to be said again, should the node forget it.
    fn remember(&mut self, frame: Bytes, request: super::Request) {
        match request.kind {
            RequestKind::Announce => {
                // Two may be answered in the other order than they were sent in.
                let newer = self
                    .announcement
                    .as_ref()
                    .is_none_or(|(_, old)| old.n < request.n);
                if newer {
                    self.announcement = Some((frame, request));
                }
            }
            RequestKind::Withdraw => self.announcement = None,
            RequestKind::Subscribe => {
                let room = self.subscriptions.len() < SUBSCRIPTIONS_MAX;
                if let Some(uri) = request.target.clone().filter(|_| room) {
                    self.subscriptions.insert(uri, (frame, request));
                }
            }
            RequestKind::Unsubscribe => {
                if let Some(uri) = &request.target {
                    self.subscriptions.remove(uri);
                }
            }
            RequestKind::Plain | RequestKind::Initialize | RequestKind::Listen { .. } => {}
        }
    }

    fn handle_done(&mut self, now: Now, key: u64) {
        let Some(entry) = self.queue.get(&key) else {
            return;
        };
        match (&entry.role, &entry.phase) {
            // A node that hands over closes its streams; the answer is asked for again.
            (
                Role::Request(_),
                Phase::Sent {
                    streaming: true, ..
                },
            ) => self.resend(now, key),
            (Role::Request(_), _) => {
                self.fail(
                    key,
                    INTERNAL_ERROR,
                    "the node answered without a JSON-RPC message",
                );
            }
            (Role::Initialized, _) => self.confirm(now, key),
            (Role::OneWay(_), _) => {
                self.remove(key);
            }
        }
    }

    /// The node has taken `notifications/initialized`.
    fn confirm(&mut self, now: Now, key: u64) {
        let Some(entry) = self.remove(key) else {
            return;
        };
        if let Some(wire) = self.handshake.wire_mut() {
            wire.initialized = Some(entry.frame);
            self.push = Push::Due { at: now };
        }
    }

    /// Sends a message again to the same node, after a pause.
    fn resend(&mut self, now: Now, key: u64) {
        let Some(entry) = self.queue.get_mut(&key) else {
            return;
        };
        entry.resends += 1;
        let resends = entry.resends;
        if resends > RESENDS_MAX && !entry.is_open_stream() {
            return self.fail_resent(key);
        }
        if let Role::Request(request) = &mut entry.role {
            request.touched = true;
        }
        entry.phase = Phase::Waiting {
            not_before: now + backoff(resends - 1),
        };
    }

    pub(super) fn fail_resent(&mut self, key: u64) {
        self.fail(
            key,
            UNAVAILABLE,
            "the node took this message many times and never answered it",
        );
    }

    fn handle_loss(&mut self, now: Now, key: u64, unsent: bool) {
        let Some(entry) = self.queue.get_mut(&key) else {
            return;
        };
        let streaming = matches!(
            entry.phase,
            Phase::Sent {
                streaming: true,
                ..
            }
        );
        if streaming && entry.is_listen() {
            return self.resend(now, key);
        }
        if unsent {
            entry.phase = Phase::Waiting {
                not_before: Now::ZERO,
            };
        }
        self.lose_node(now);
    }

    fn handle_refusal(&mut self, now: Now, key: u64, status: StatusCode, body: &Bytes) {
        let Some(entry) = self.queue.get_mut(&key) else {
            return;
        };
        if status == MOVED {
            entry.phase = Phase::Waiting {
                not_before: Now::ZERO,
            };
            return self.lose_node(now);
        }
        match &entry.role {
            Role::Request(request) => {
                let in_session = entry.in_session();
                match answer::judge(status, body, &request.id, in_session) {
                    Verdict::Answer(line) => self.handle_answer(key, line, true),
                    Verdict::SessionGone(line) => self.handle_session_gone(key, line),
                }
            }
            Role::Initialized => {
                tracing::debug!(%status, "the node refused notifications/initialized");
                self.confirm(now, key);
            }
            Role::OneWay(_) => {
                tracing::debug!(%status, "the node refused a notification");
                self.remove(key);
            }
        }
    }

    /// Invariant 5: the first report of a generation begins the replay, the others wait for it.
    fn handle_session_gone(&mut self, key: u64, line: Bytes) {
        let Some(entry) = self.queue.get_mut(&key) else {
            return;
        };
        entry.session_losses += 1;
        if entry.session_losses > 1 {
            return self.handle_answer(key, line, true);
        }
        let Phase::Sent { generation, .. } = entry.phase else {
            return;
        };
        entry.phase = Phase::Waiting {
            not_before: Now::ZERO,
        };
        if generation == self.handshake.generation() {
            self.begin_replay();
        }
    }

    /// Says the client's last announcement again, under its own number, where a node that was
    /// attached to later shows no row for this seat.
    fn re_announce(&mut self, now: Now) {
        if !std::mem::take(&mut self.may_re_announce) {
            return;
        }
        if let Some((frame, request)) = self.announcement.clone() {
            self.say_again(now, frame, request);
        }
    }

    /// Sends a frame of the client again, on the bridge's own account.
    pub(super) fn say_again(&mut self, now: Now, frame: Bytes, request: super::Request) {
        let request = super::Request {
            silent: true,
            touched: true,
            ..request
        };
        self.enqueue(now, frame, Role::Request(request));
    }
}

/// The status by which a node says that it is not the one to ask.
pub(super) const MOVED: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
