//! The bridge's decisions, as one synchronous state machine.
//!
//! Inputs are lines of the client, what the [`Finder`](super::Finder) says, events of HTTP
//! exchanges, the passing of time and the client's end. Effects are lines to write, exchanges to
//! start or to break off, and a node to look for. [`Session::next_wake`] says when the machine
//! wants to be called next, should nothing happen.
//!
//! Two lives run beside each other. The *attachment*: unsought, seeking, pausing between two
//! searches, attached, or refused for good; a node that leaves a request unanswered is looked at,
//! and stays attached unless it has a successor. The *handshake* of the generations up to
//! 2025-11-25: none, asked, live, or being replayed because the node no longer knows the wire
//! session.
//!
//! Invariants, cited by the tests:
//!
//! 1. A request is answered once. Messages without an id are never answered.
//! 2. A request frame has one number, whatever happens to the node; numbers rise as they are sent.
//! 3. Nothing is sent while the handshake, or the very first request of the seat, is under way.
//! 4. Old connections are closed before another node is spoken to.
//! 5. One loss of the wire session makes one replay, however many requests report it, and a request
//!    that loses it twice is answered with the node's error.
//! 6. Only a request of the client starts a node.

mod attachment;
mod entry;
mod handshake;
mod intake;
mod look;
mod numbers;
mod push;
mod replies;
mod sending;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;

use self::attachment::Attachment;
use self::entry::{Entry, Request};
use self::handshake::Handshake;
use self::look::Look;
use self::numbers::Numbers;
use self::push::Push;
use super::clock::Now;
use super::exchange::{AttemptId, Call, Event};
use super::finder::{FindError, Found, Want};
use super::lines::Line;

/// Most requests at the node at once: what a node is ready to queue for one seat.
const IN_FLIGHT_MAX: usize = 64;
/// Most messages held; the client is not read beyond that. Enough for the calls in flight, and for
/// a cancellation to be seen behind those that wait.
const QUEUE_MAX: usize = 256;
/// Most bytes of messages held before the client is read no further.
const QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Most open `subscriptions/listen` streams; a client has one or two.
const LISTENS_MAX: usize = 16;
/// Most subscriptions that are said again after a replay; more are left to the client.
const SUBSCRIPTIONS_MAX: usize = 64;
/// How often one message is sent again after it may have reached a node.
const RESENDS_MAX: u32 = 32;

/// First pause before something is tried again.
const BACKOFF_MIN: Duration = Duration::from_millis(250);
/// Longest pause before something is tried again.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// A node that was silent for so long is probed; it forgets a connection after three times that.
const PROBE_AFTER: Duration = Duration::from_secs(30);
/// A node that leaves a probe unanswered for so long is taken for lost.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a request waits for a node when what keeps it from starting does not pass by itself: a
/// disk may be given room, or a folder be put right, in the time that a call takes.
const HOPELESS_DEADLINE: Duration = Duration::from_secs(10);

/// How long requests already read may still be answered after the client's input has ended: with
/// what the shell needs to say goodbye, less than the 2 s in which the bridge ends.
const DRAIN: Duration = Duration::from_millis(1200);

const _: () = assert!(IN_FLIGHT_MAX + LISTENS_MAX < QUEUE_MAX);

/// Names one search for a node; never used twice.
pub(super) type SearchId = u64;

/// What the machine is told.
#[derive(Debug)]
pub(super) enum Input {
    /// The client's input.
    Line(Line),
    /// The client's process is gone: nobody waits for answers.
    ClientGone,
    /// The result of a search.
    Found(SearchId, Result<Found, FindError>),
    /// What happened in an exchange.
    Exchange(AttemptId, Event),
    /// The time of [`Session::next_wake`] has come.
    Wake,
}

/// What the machine wants done, in order.
#[derive(Debug)]
pub(super) enum Effect {
    /// Write one line to the client.
    Write(Bytes),
    /// Search for a node, instead of any search under way.
    Find(SearchId, Want),
    /// Close all connections to the node and break off every exchange.
    Detach,
    /// Send to this node from now on.
    Attach(Found),
    /// Start an exchange.
    Call(Call),
    /// Break off an exchange: its connection is closed.
    Abort(AttemptId),
    /// Let the client be served alone, with the frames that no node has seen.
    Alone { reason: String, frames: Vec<Bytes> },
    /// End, with this exchange as goodbye.
    End { goodbye: Option<Call> },
}

/// Who an exchange is carried out for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The queue's entry with this number.
    Entry(u64),
    Replay,
    Push,
    Probe,
    /// The deletion of an abandoned wire session: whatever comes of it.
    Deletion,
}

/// An exchange under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Attempt {
    purpose: Purpose,
    since: Now,
}

/// How the client's side ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    No,
    /// Its input has ended: what was read is answered until then.
    Draining(Now),
    Ended,
}

/// The state of one bridge.
#[derive(Debug)]
pub(super) struct Session {
    /// Headers that every call carries.
    identity: HeaderMap,
    request_deadline: Duration,

    attachment: Attachment,
    /// The epoch of the last node attached to.
    last_epoch: Option<u64>,
    /// Losses of the node since it last answered anything.
    losses: u32,
    /// Searches in vain since the last node was found, and what the last one said.
    vain_searches: u32,
    last_reason: Option<String>,
    /// What the last search said will not pass by itself.
    hopeless: bool,
    next_search: SearchId,

    handshake: Handshake,
    numbers: Numbers,
    /// A node has answered this seat: later requests no longer wait for the first.
    seat_known: bool,

    /// Everything from the client that is not done with, in the order in which it came.
    queue: BTreeMap<u64, Entry>,
    queue_bytes: usize,
    next_entry: u64,

    attempts: BTreeMap<AttemptId, Attempt>,
    next_attempt: AttemptId,

    push: Push,
    push_failures: u32,
    /// The push stream has found the wire session gone, and no stream was open since.
    push_replayed: bool,

    /// When the node last gave a sign of life.
    heard_at: Now,
    probe: Option<(AttemptId, Now)>,
    look: Look,

    /// The version of the last request that stood alone: its notifications go under it.
    stateless_version: Option<String>,

    /// The last announcement that a node accepted, with its number.
    announcement: Option<(Bytes, Request)>,
    /// What the client has subscribed to in the wire session, by uri: said again after a replay.
    subscriptions: BTreeMap<String, (Bytes, Request)>,
    /// The node may be another than the one that took the announcement (attached to later, or its
    /// wire session is gone), and the announcement has not been repeated since.
    may_re_announce: bool,

    ending: Ending,
    effects: Vec<Effect>,
}

impl Session {
    /// Returns the machine of a bridge that has read nothing yet.
    pub(super) fn new(identity: HeaderMap, request_deadline: Duration) -> Self {
        Self {
            identity,
            request_deadline,
            attachment: Attachment::Unsought,
            last_epoch: None,
            losses: 0,
            vain_searches: 0,
            last_reason: None,
            hopeless: false,
            next_search: 0,
            handshake: Handshake::None,
            numbers: Numbers::default(),
            seat_known: false,
            queue: BTreeMap::new(),
            queue_bytes: 0,
            next_entry: 0,
            attempts: BTreeMap::new(),
            next_attempt: 0,
            push: Push::Off,
            push_failures: 0,
            push_replayed: false,
            heard_at: Now::ZERO,
            probe: None,
            look: Look::default(),
            stateless_version: None,
            announcement: None,
            subscriptions: BTreeMap::new(),
            may_re_announce: false,
            ending: Ending::No,
            effects: Vec::new(),
        }
    }

    /// Takes one input and returns what is to be done about it.
    pub(super) fn handle(&mut self, now: Now, input: Input) -> Vec<Effect> {
        if self.ending == Ending::Ended {
            return Vec::new();
        }
        match input {
            Input::Line(line) => self.handle_line(now, line),
            Input::ClientGone => self.end(now),
            Input::Found(search, result) => self.handle_found(now, search, result),
            Input::Exchange(attempt, event) => self.handle_event(now, attempt, event),
            Input::Wake => self.handle_wake(now),
        }
        self.pump(now);
        self.end_if_drained(now);
        std::mem::take(&mut self.effects)
    }

    /// Returns whether another line of the client may be handed in.
    pub(super) fn wants_input(&self) -> bool {
        self.ending == Ending::No
            && self.queue.len() < QUEUE_MAX
            && self.queue_bytes < QUEUE_BYTES_MAX
    }

    /// Returns when [`Input::Wake`] is due.
    pub(super) fn next_wake(&self) -> Option<Now> {
        let drain = match self.ending {
            Ending::No => None,
            Ending::Draining(until) => Some(until),
            Ending::Ended => return None,
        };
        let entries = self.queue.values().filter_map(|entry| {
            if self.is_attached() {
                entry.retry_at()
            } else {
                entry.expires_at(self.patience())
            }
        });
        [
            drain,
            self.attachment_wake(),
            self.look_wake(),
            self.push_wake(),
        ]
        .into_iter()
        .flatten()
        .chain(entries)
        .min()
    }

    fn handle_wake(&mut self, now: Now) {
        if matches!(self.ending, Ending::Draining(until) if now >= until) {
            self.refuse_owed("the client's input ended before a node answered");
            return;
        }
        self.wake_attachment(now);
        self.look_if_due(now);
        self.expire(now);
    }

    /// Begins to end: what was read is still answered, within [`DRAIN`].
    fn drain(&mut self, now: Now) {
        self.ending = Ending::Draining(now + DRAIN);
    }

    fn end_if_drained(&mut self, now: Now) {
        let draining = matches!(self.ending, Ending::Draining(_));
        if draining && !self.queue.values().any(Entry::is_owed) {
            self.end(now);
        }
    }

    fn end(&mut self, now: Now) {
        let goodbye = self.goodbye(now);
        self.ending = Ending::Ended;
        self.effects.push(Effect::End { goodbye });
    }

    fn write(&mut self, line: Bytes) {
        self.effects.push(Effect::Write(line));
    }
}

/// Returns the pause after `failures` failures in a row.
fn backoff(failures: u32) -> Duration {
    // Sixteen doublings are far beyond the longest pause.
    BACKOFF_MIN
        .saturating_mul(1 << failures.min(16))
        .min(BACKOFF_MAX)
}

#[cfg(test)]
mod tests;
