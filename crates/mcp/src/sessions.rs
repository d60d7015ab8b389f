//! Wire sessions of the 2025 generation: how many, how long, and who is forgotten.
//!
//! The SDK's own manager has no cap and takes a quiet session for a dead one even while its
//! client holds a stream. This one counts streams, forgets by its own clock, and leaves to the
//! SDK only the worker of each single session. The host keeps what outlives this process:
//! `recall` brings a session back from there, `manager` is the view that the SDK drives.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use earshot_capability::Caller;
use earshot_trust::Seat;
use rmcp::transport::streamable_http_server::session::{
    SessionId,
    local::{LocalSessionHandle, SessionConfig, SessionError},
};
use tokio::{sync::watch, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{clock, handler::Shared};

mod manager;
mod recall;
mod twins;

pub(crate) use self::{
    manager::{Manager, Opened},
    recall::{Found, Restored},
    twins::{Crowded, Turn, Twins},
};

/// How long the worker of a forgotten session may take to hear of it, before it is dropped.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// Looks for silent sessions within each idle time: a session outlives it by a sixth at most.
const LOOKS_PER_IDLE: u32 = 6;

/// How long a session that was opened and never used may be silent while the node is full: an honest
/// client asks for the tools at once, and one that lost its session opens another.
const UNUSED_IDLE: Duration = Duration::from_secs(10);

/// Most wire sessions of one seat: a bridge has one, and a second while it opens it anew.
const SEAT_SESSIONS_MAX: usize = 2;

/// Most wire sessions of one execution session: its agents of every rank, each with its own.
const EXECUTION_SESSIONS_MAX: usize = 64;

/// Every wire session of this process.
#[derive(Debug)]
pub(crate) struct WireSessions {
    shared: Arc<Shared>,
    state: Mutex<State>,
    max: usize,
    idle: Duration,
    config: SessionConfig,
    tracker: TaskTracker,
}

#[derive(Debug, Default)]
struct State {
    sessions: BTreeMap<SessionId, Session>,
    /// Whose openings were admitted and have not become a session.
    opening: Vec<Owner>,
    /// Sessions on their way between here and the host, and where each will be found.
    moving: BTreeMap<SessionId, watch::Receiver<Option<Found>>>,
    /// How many sessions there ever were: the number of the next one.
    made: u64,
}

#[derive(Debug)]
struct Session {
    handle: LocalSessionHandle,
    owner: Owner,
    heard: Instant,
    streams: usize,
    /// Whether its client asked anything after the handshake.
    used: bool,
    /// Tells a session from one that was brought back under its id.
    number: u64,
    /// Whether it was brought back: the SDK did not make it and does not end it.
    restored: bool,
}

/// Against whose caps a session counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    seat: Option<Seat>,
    execution: Option<earshot_trust::SessionId>,
}

impl Owner {
    /// Returns the owner of what this caller opens.
    pub(crate) fn of(caller: &Caller) -> Self {
        Self {
            seat: caller.seat.clone(),
            execution: caller.session.clone(),
        }
    }
}

/// There is no room for another wire session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The seat holds as many as a bridge needs, and a stream in each.
    Seat,
    /// The execution session holds as many as it may.
    Execution,
    /// The node holds as many as it can.
    Node,
}

/// Room for one more wire session, until it is used or dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    sessions: Arc<WireSessions>,
    owner: Owner,
    used: AtomicBool,
}

impl Admission {
    /// Gives the room to a session, which counts from now on.
    fn use_for(&self, state: &mut State) -> Owner {
        self.release(state);
        self.owner.clone()
    }

    fn release(&self, state: &mut State) {
        if self.used.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(at) = state.opening.iter().position(|owner| *owner == self.owner) {
            state.opening.swap_remove(at);
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if !self.used.load(Ordering::Relaxed) {
            self.release(&mut self.sessions.lock());
        }
    }
}

/// A stream of a session that is open, until dropped.
struct Streaming {
    sessions: Arc<WireSessions>,
    id: SessionId,
    number: u64,
}

impl Drop for Streaming {
    fn drop(&mut self) {
        let mut state = self.sessions.lock();
        if let Some(session) = state.numbered(&self.id, self.number) {
            session.streams -= 1;
            session.heard = clock::now();
        }
    }
}

impl WireSessions {
    /// Makes an empty set that holds at most `max`, and forgets each after `idle` of silence.
    pub(crate) fn new(
        shared: Arc<Shared>,
        max: usize,
        idle: Duration,
        tracker: TaskTracker,
    ) -> Arc<Self> {
        let mut config = SessionConfig::default();
        // Silence is judged here, by a rule that knows of open streams.
        config.keep_alive = None;
        // A priming event makes some clients drop the server, or reopen every finished answer.
        config.sse_retry = None;
        Arc::new(Self {
            shared,
            state: Mutex::default(),
            max,
            idle,
            config,
            tracker,
        })
    }

    /// Returns how many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().sessions.len()
    }

    /// Says whether there is such a session.
    pub(crate) fn knows(&self, id: &str) -> bool {
        self.lock().sessions.contains_key(id)
    }

    /// Notes that a session was heard, and says whether there is such a one.
    pub(crate) fn touch(&self, id: &str) -> bool {
        let mut state = self.lock();
        let session = state.sessions.get_mut(id);
        session
            .map(|session| session.heard = clock::now())
            .is_some()
    }

    /// Makes room for a session that is about to be opened.
    ///
    /// A seat over its cap gives up its own session that was heard longest ago: whoever opens a
    /// third has lost sight of the first. The other caps cost only who has been silent for the
    /// whole idle time, or in a full node who has used nothing.
    pub(crate) fn admit(self: &Arc<Self>, owner: Owner) -> Result<Admission, Full> {
        let mut state = self.lock();
        if owner.seat.is_some() {
            let same = |other: &Owner| other.seat == owner.seat;
            self.make_room(&mut state, SEAT_SESSIONS_MAX, Duration::ZERO, same)
                .ok_or(Full::Seat)?;
        }
        if owner.execution.is_some() {
            let same = |other: &Owner| other.execution == owner.execution;
            self.make_room(&mut state, EXECUTION_SESSIONS_MAX, self.idle, same)
                .ok_or(Full::Execution)?;
        }
        self.make_room(&mut state, self.max, self.idle, |_| true)
            .or_else(|| self.forget_unused(&mut state))
            .ok_or(Full::Node)?;
        state.opening.push(owner.clone());
        drop(state);
        Ok(Admission {
            sessions: Arc::clone(self),
            owner,
            used: AtomicBool::new(false),
        })
    }

    /// Makes sure that fewer than `max` of these owners' sessions are left, at the cost of the
    /// one that has been silent longest, if that is at least `silence`.
    fn make_room(
        self: &Arc<Self>,
        state: &mut State,
        max: usize,
        silence: Duration,
        counts: impl Fn(&Owner) -> bool,
    ) -> Option<()> {
        let held = state.sessions.values().map(|session| &session.owner);
        let all = held.chain(&state.opening);
        if all.filter(|owner| counts(owner)).count() < max {
            return Some(());
        }
        let now = clock::now();
        let silent = state
            .sessions
            .iter()
            .filter(|(_, session)| counts(&session.owner) && session.is_silent(now, silence))
            .min_by_key(|(_, session)| session.heard)
            .map(|(id, _)| SessionId::clone(id))?;
        self.forget(state, &silent);
        Some(())
    }

    /// Forgets the session that was opened first of those which nobody uses: whoever opens them by
    /// the thousand must not shut others out.
    fn forget_unused(self: &Arc<Self>, state: &mut State) -> Option<()> {
        let now = clock::now();
        let unused = state
            .sessions
            .iter()
            .filter(|(_, session)| !session.used && session.is_silent(now, UNUSED_IDLE))
            .min_by_key(|(_, session)| session.number)
            .map(|(id, _)| SessionId::clone(id))?;
        self.forget(state, &unused);
        Some(())
    }

    /// Forgets silent sessions until shutdown.
    ///
    /// # Cancel safety
    /// Cancel safe: each look is complete in itself.
    pub(crate) async fn watch(self: Arc<Self>, shutdown: CancellationToken) {
        let every = self.idle / LOOKS_PER_IDLE;
        while shutdown
            .run_until_cancelled(tokio::time::sleep(every))
            .await
            .is_some()
        {
            self.forget_silent();
        }
    }

    fn forget_silent(self: &Arc<Self>) {
        let now = clock::now();
        let mut state = self.lock();
        let silent: Vec<SessionId> = state
            .sessions
            .iter()
            .filter(|(_, session)| session.is_silent(now, self.idle))
            .map(|(id, _)| SessionId::clone(id))
            .collect();
        for id in silent {
            self.forget(&mut state, &id);
        }
    }

    /// Ends a session here and at the host; meanwhile it is known in neither place.
    fn forget(self: &Arc<Self>, state: &mut State, id: &SessionId) {
        if let Some(session) = state.sessions.remove(id) {
            tracing::debug!("a silent wire session is forgotten");
            let (transit, _) = self.depart(state, id);
            self.tracker.spawn(transit.close(Some(session.handle)));
        }
    }

    /// Notes that a session was heard, and returns its worker, with the session's number.
    fn hear(&self, id: &SessionId) -> Option<(LocalSessionHandle, u64)> {
        let mut state = self.lock();
        let session = state.sessions.get_mut(id)?;
        session.heard = clock::now();
        Some((session.handle.clone(), session.number))
    }

    /// Notes that a session is used, and has one more open stream.
    fn ask(self: &Arc<Self>, id: &SessionId, number: u64) -> Option<Streaming> {
        let streaming = self.open(id, number)?;
        if let Some(session) = self.lock().numbered(id, number) {
            session.used = true;
        }
        Some(streaming)
    }

    /// Notes that a session has one more open stream.
    fn open(self: &Arc<Self>, id: &SessionId, number: u64) -> Option<Streaming> {
        let mut state = self.lock();
        state.numbered(id, number)?.streams += 1;
        drop(state);
        Some(Streaming {
            sessions: Arc::clone(self),
            id: SessionId::clone(id),
            number,
        })
    }

    /// Drops a session whose worker has ended. What the host keeps of it stays: its client may
    /// come back to it, as it may after the end of this process.
    fn lose(&self, id: &SessionId, number: u64) {
        let mut state = self.lock();
        if state.numbered(id, number).is_some() {
            state.sessions.remove(id);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change below this lock is a single step, so a panic elsewhere leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next_number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    fn numbered(&mut self, id: &SessionId, number: u64) -> Option<&mut Session> {
        let session = self.sessions.get_mut(id);
        session.filter(|session| session.number == number)
    }
}

impl Session {
    fn is_silent(&self, now: Instant, idle: Duration) -> bool {
        self.streams == 0 && now.saturating_duration_since(self.heard) >= idle
    }
}

/// Ends the worker of a session, without waiting for one that does not listen.
async fn end(handle: LocalSessionHandle) {
    // A worker that is gone already, or that does not read, ends with its last handle.
    tokio::time::timeout(CLOSE_PATIENCE, handle.close())
        .await
        .ok();
}

#[cfg(test)]
mod tests;
