//! The board of one checkout: who is attached, what each announced, and where their claims meet.
//!
//! # States of a row
//!
//! ```text
//!            attach                    silence, detach
//! (unknown) ────────> attached ───────────────────────> departed   when it has an announcement
//!     ^                  │  ^                               │
//!     │  silence, detach │  │            attach             │
//!     ├──────────────────┘  └───────────────────────────────┤
//!     └─────────────────────────────────────────────────────┘   newer departures push it out
//! ```
//!
//! Silence is 90 s without message, ping or open stream. A command-line peer is never silent: the
//! driver detaches it when its process is gone. Of every other peer the driver reports each message
//! with [`Board::touch`], and calls [`Board::expire`] at [`Board::next_deadline`].
//!
//! # Effects
//!
//! An operation that changes what a restart must find again returns the positions concerned as
//! [`Changes`]. The driver writes [`Board::record`] of each before it answers. When a peer was heard
//! of last is written along with the next other change.
//!
//! # Invariants
//!
//! 1. A key has at most one row. A row keeps its position for its life; no two rows share one.
//! 2. An attached row is never pushed out; at most 32 departed rows are kept, the newest ones, each
//!    with an announcement.
//! 3. The number of a row's announcement never decreases, across withdrawal, departure and restart.
//! 4. Two rows whose claims meet are one collision, told once to the one that announced later, in
//!    its answer, and once to the other, as a notice; the board lists it once.
//! 5. Nothing grows past its constant in [`limits`](crate::limits).

mod collisions;
mod key;
mod list;
pub mod record;
mod row;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use self::record::{PeerRecord, RecordError};
use self::row::{Connection, Presence, Word};
use crate::claims::{Case, ClaimIndex};
use crate::id::PeerId;
use crate::limits::{ATTACHED_MAX, DEPARTED_MAX, SILENCE_MAX, STREAMS_MAX};
use crate::text::Line;
use crate::time::{Now, Timestamp};

pub use collisions::{Collision, Collisions, Meeting, Meetings};
pub use key::PeerKey;
pub use list::{Cursor, CursorError, Page};
pub use row::{Address, Announcement, Arrival, Client, Row, StreamId, Transport};
pub use words::{AnnounceError, Announced, Said, Verdict, Withdrawn};

/// The board of one checkout.
#[derive(Debug)]
pub struct Board {
    case: Case,
    rows: BTreeMap<PeerId, Row>,
    by_key: BTreeMap<PeerKey, PeerId>,
    /// The departed, the oldest first.
    departed: BTreeMap<u64, PeerId>,
    /// When to look at which attached peer: at its deadline or before.
    armed: BTreeSet<(Now, PeerId)>,
    claims: ClaimIndex<PeerId>,
    /// Pairs of rows whose claims meet.
    collisions: usize,
    attached: usize,
    next_peer: PeerId,
    next_departure: u64,
}

/// The rows that the journal must take in before the operation is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "what is not written is lost at a restart"]
pub struct Changes {
    /// Rows to write, as [`Board::record`] gives them.
    pub put: BTreeSet<PeerId>,
    /// Rows to delete.
    pub deleted: BTreeSet<PeerId>,
}

impl Changes {
    /// Returns whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.put.is_empty() && self.deleted.is_empty()
    }
}

/// The outcome of an operation, and what it changed.
#[derive(Clone, Debug)]
pub struct Applied<T> {
    /// What the caller is told.
    pub answer: T,
    /// What the journal must take in before.
    pub changes: Changes,
}

/// How a peer came to be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// It is new here.
    Joined(PeerId),
    /// It had departed, and has its row and announcement again.
    Returned(PeerId),
    /// It was attached all the time.
    Already(PeerId),
}

impl Attached {
    /// Returns the peer's position.
    pub const fn peer(self) -> PeerId {
        match self {
            Self::Joined(peer) | Self::Returned(peer) | Self::Already(peer) => peer,
        }
    }
}

/// The board has as many attached peers as it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the board has {ATTACHED_MAX} attached peers and takes no more: try again later")]
pub struct BoardFull;

/// No attached peer has this key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no attached peer has this key: attach first")]
pub struct NotAttached;

/// A stream that cannot count for its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// Its peer is not attached.
    #[error(transparent)]
    NotAttached(#[from] NotAttached),
    /// Its peer has as many as it may have.
    #[error("the peer has {STREAMS_MAX} open streams: close one first")]
    TooMany,
}

/// A board as a restart finds it again.
#[derive(Debug)]
pub struct Restored {
    /// The board.
    pub board: Board,
    /// Records that could not become rows, by their position, with the reason.
    pub refused: Vec<(u64, RecordError)>,
    /// What to write, where the records hold more than a board keeps.
    pub changes: Changes,
}

impl Board {
    /// Returns a board without peers.
    pub const fn new(case: Case) -> Self {
        Self {
            case,
            rows: BTreeMap::new(),
            by_key: BTreeMap::new(),
            departed: BTreeMap::new(),
            armed: BTreeSet::new(),
            claims: ClaimIndex::new(case),
            collisions: 0,
            attached: 0,
            next_peer: PeerId::FIRST,
            next_departure: 0,
        }
    }

    /// Returns the board of these records; every attached peer counts as heard of now.
    pub fn restore(case: Case, records: Vec<PeerRecord>, now: Now) -> Restored {
        let mut board = Self::new(case);
        let mut refused = Vec::new();
        let mut changes = Changes::default();
        for record in records {
            let id = record.id;
            if let Err(error) = record.into_row(now).and_then(|row| board.take_in(row)) {
                refused.push((id, error));
            }
        }
        board.evict(&mut changes);
        Restored {
            board,
            refused,
            changes,
        }
    }

    /// Returns what the journal keeps of a row, `None` when there is no such row.
    pub fn record(&self, peer: PeerId) -> Option<PeerRecord> {
        self.rows.get(&peer).map(PeerRecord::of)
    }

    /// Attaches a peer.
    ///
    /// Doing so again, as a second `initialize` does, changes what the row tells of its client and
    /// nothing else; a departed peer gets its row back.
    pub fn attach(
        &mut self,
        arrival: Arrival,
        now: Now,
        wall: Timestamp,
    ) -> Result<Applied<Attached>, BoardFull> {
        let mut changes = Changes::default();
        if let Some(peer) = self.touch(&arrival.key, now, wall) {
            if self
                .rows
                .get_mut(&peer)
                .is_some_and(|row| row.describe(arrival))
            {
                changes.put.insert(peer);
            }
            return Ok(Applied {
                answer: Attached::Already(peer),
                changes,
            });
        }
        if self.attached >= ATTACHED_MAX {
            return Err(BoardFull);
        }
        let known = self.by_key.get(&arrival.key).copied();
        let answer = if let Some(peer) = known {
            self.revive(peer, arrival, now, wall);
            Attached::Returned(peer)
        } else {
            let peer = self.next_peer;
            self.next_peer = peer.next();
            self.by_key.insert(arrival.key.clone(), peer);
            self.rows.insert(peer, Row::new(peer, arrival, now, wall));
            Attached::Joined(peer)
        };
        self.attached += 1;
        self.arm(answer.peer());
        changes.put.insert(answer.peer());
        Ok(Applied { answer, changes })
    }

    /// Notes a message or ping of an attached peer, and returns its position.
    pub fn touch(&mut self, key: &PeerKey, now: Now, wall: Timestamp) -> Option<PeerId> {
        let peer = *self.by_key.get(key)?;
        let connection = self.hear(peer, wall)?;
        connection.last_heard = connection.last_heard.max(now);
        Some(peer)
    }

    /// Notes that a peer opened an event stream: while it is open, the peer is not silent.
    pub fn stream_opened(
        &mut self,
        key: &PeerKey,
        stream: StreamId,
        wall: Timestamp,
    ) -> Result<PeerId, StreamError> {
        let peer = *self.by_key.get(key).ok_or(NotAttached)?;
        let connection = self.hear(peer, wall).ok_or(NotAttached)?;
        if connection.streams.len() >= STREAMS_MAX && !connection.streams.contains(&stream) {
            return Err(StreamError::TooMany);
        }
        connection.streams.insert(stream);
        Ok(peer)
    }

    /// Notes that an event stream of a peer closed; its silence begins with the last one.
    pub fn stream_closed(&mut self, key: &PeerKey, stream: StreamId, now: Now, wall: Timestamp) {
        let Some(peer) = self.by_key.get(key).copied() else {
            return;
        };
        let Some(connection) = self.connection(peer) else {
            return;
        };
        if !connection.streams.remove(&stream) {
            return;
        }
        connection.last_heard = connection.last_heard.max(now);
        self.hear(peer, wall);
        self.arm(peer);
    }

    /// Lets a peer depart: it said that it leaves, or its process is gone.
    pub fn detach(&mut self, key: &PeerKey) -> Applied<Option<PeerId>> {
        let mut changes = Changes::default();
        let known = self.by_key.get(key).copied();
        let answer = known.filter(|peer| self.depart(*peer, &mut changes));
        Applied { answer, changes }
    }

    /// Lets all peers depart that have been silent for too long.
    pub fn expire(&mut self, now: Now) -> Applied<Vec<PeerId>> {
        let mut changes = Changes::default();
        let mut answer = Vec::new();
        while let Some((_, peer)) = self.armed.first().copied().filter(|(at, _)| *at <= now) {
            self.armed.pop_first();
            let Some(connection) = self.connection(peer) else {
                continue;
            };
            connection.armed = None;
            if !connection.streams.is_empty() {
                continue;
            }
            if connection.last_heard + SILENCE_MAX > now {
                self.arm(peer);
            } else if self.depart(peer, &mut changes) {
                answer.push(peer);
            }
        }
        Applied { answer, changes }
    }

    /// Returns when to call [`Board::expire`] next, `None` while no peer can fall silent.
    ///
    /// It may be early: then nobody departs, and there is a new time.
    pub fn next_deadline(&self) -> Option<Now> {
        self.armed.first().map(|(at, _)| *at)
    }

    /// Notes which branch the checkout has out now; the departed keep theirs.
    pub fn set_branch(&mut self, branch: Option<&Line>) -> Changes {
        let mut changes = Changes::default();
        for row in self.rows.values_mut().filter(|row| row.attached()) {
            if row.branch.as_ref() != branch {
                row.branch = branch.cloned();
                changes.put.insert(row.id);
            }
        }
        changes
    }

    /// Returns how many peers are attached.
    pub const fn count(&self) -> usize {
        self.attached
    }

    /// Returns the row of an attached or departed peer.
    pub fn row(&self, peer: PeerId) -> Option<&Row> {
        self.rows.get(&peer)
    }

    /// Returns the row that this key has.
    pub fn row_of(&self, key: &PeerKey) -> Option<&Row> {
        self.by_key.get(key).and_then(|peer| self.rows.get(peer))
    }

    /// Returns all rows in the order of their positions.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    fn connection(&mut self, peer: PeerId) -> Option<&mut Connection> {
        match &mut self.rows.get_mut(&peer)?.presence {
            Presence::Attached(connection) => Some(connection),
            Presence::Departed { .. } => None,
        }
    }

    /// Notes that something came from an attached peer.
    fn hear(&mut self, peer: PeerId, wall: Timestamp) -> Option<&mut Connection> {
        let row = self.rows.get_mut(&peer)?;
        match &mut row.presence {
            Presence::Attached(connection) => {
                row.last_seen = wall;
                Some(connection)
            }
            Presence::Departed { .. } => None,
        }
    }

    /// Sets the time to look at a peer again, where it can fall silent and none is set.
    fn arm(&mut self, peer: PeerId) {
        if !self
            .rows
            .get(&peer)
            .is_some_and(|row| row.key.departs_in_silence())
        {
            return;
        }
        let Some(connection) = self.connection(peer) else {
            return;
        };
        if connection.armed.is_none() && connection.streams.is_empty() {
            let at = connection.last_heard + SILENCE_MAX;
            connection.armed = Some(at);
            self.armed.insert((at, peer));
        }
    }

    fn revive(&mut self, peer: PeerId, arrival: Arrival, now: Now, wall: Timestamp) {
        let Some(row) = self.rows.get_mut(&peer) else {
            return;
        };
        if let Presence::Departed { order } = row.presence {
            self.departed.remove(&order);
        }
        row.presence = Presence::Attached(Connection::heard(now));
        (row.attached_at, row.last_seen) = (wall, wall);
        row.describe(arrival);
    }

    /// Lets an attached peer depart, and returns whether it was attached.
    fn depart(&mut self, peer: PeerId, changes: &mut Changes) -> bool {
        let Some(row) = self.rows.get_mut(&peer) else {
            return false;
        };
        let Presence::Attached(connection) = &row.presence else {
            return false;
        };
        if let Some(at) = connection.armed {
            self.armed.remove(&(at, peer));
        }
        self.attached -= 1;
        if row.announcement().is_none() {
            self.forget(peer, changes);
            return true;
        }
        let order = self.next_departure;
        self.next_departure += 1;
        row.presence = Presence::Departed { order };
        self.departed.insert(order, peer);
        changes.put.insert(peer);
        self.evict(changes);
        true
    }

    /// Forgets the oldest of the departed, down to as many as are kept.
    fn evict(&mut self, changes: &mut Changes) {
        while self.departed.len() > DEPARTED_MAX {
            if let Some((_, oldest)) = self.departed.pop_first() {
                self.forget(oldest, changes);
            }
        }
    }

    fn forget(&mut self, peer: PeerId, changes: &mut Changes) {
        self.replace_word(peer, Word::Silent, changes);
        if let Some(row) = self.rows.remove(&peer) {
            self.by_key.remove(&row.key);
        }
        changes.put.remove(&peer);
        changes.deleted.insert(peer);
    }

    /// Takes in a row of the journal.
    fn take_in(&mut self, mut row: Row) -> Result<(), RecordError> {
        let peer = row.id;
        if self.rows.contains_key(&peer) || self.by_key.contains_key(&row.key) {
            return Err(RecordError::Twice);
        }
        match row.presence {
            Presence::Attached(_) if self.attached >= ATTACHED_MAX => {
                return Err(RecordError::Full);
            }
            Presence::Attached(_) => self.attached += 1,
            Presence::Departed { order } => {
                if self.departed.contains_key(&order) {
                    return Err(RecordError::Twice);
                }
                if row.announcement().is_none() {
                    return Err(RecordError::Silent);
                }
                self.departed.insert(order, peer);
                self.next_departure = self.next_departure.max(order + 1);
            }
        }
        self.next_peer = self.next_peer.max(peer.next());
        self.by_key.insert(row.key.clone(), peer);
        let notices = std::mem::take(&mut row.notices);
        let word = std::mem::replace(&mut row.word, Word::Silent);
        self.rows.insert(peer, row);
        // What this row says is no news to the others: whom it is news to, their records tell.
        self.enter_word(peer, word);
        if let Some(row) = self.rows.get_mut(&peer) {
            row.notices = notices;
        }
        self.arm(peer);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
