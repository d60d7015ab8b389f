//! One peer as the board holds it.

use std::collections::BTreeSet;
use std::fmt;

use super::key::PeerKey;
use crate::claims::Claims;
use crate::id::{PeerId, SeatId};
use crate::limits::NOTICES_MAX;
use crate::text::Line;
use crate::time::{Now, Timestamp};

/// What a client calls itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its name, never empty.
    pub name: Line,
    /// Its version, which may be empty.
    pub version: Line,
}

impl Client {
    /// Returns the client that gives itself this name and version.
    pub fn new(name: &str, version: &str) -> Self {
        let name = Line::name(name);
        let name = if name.is_empty() {
            Line::name("unnamed")
        } else {
            name
        };
        Self {
            name,
            version: Line::name(version),
        }
    }
}

/// How a peer reaches its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Through a bridge, or on the node's own standard input.
    Stdio,
    /// As a direct HTTP client.
    Http,
    /// By the command line.
    Cli,
}

impl Transport {
    /// Returns the word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Cli => "cli",
        }
    }
}

/// Where the worker behind a peer can be reached; it is told on this machine only.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// Name of the machine.
    pub machine: Line,
    /// Process id of the worker.
    pub pid: Option<u32>,
    /// When that process started, in the system's own unit.
    pub pid_started_at: Option<u64>,
    /// The provider's session id, which `Debug` does not print.
    pub session: Option<Line>,
    /// Path of the worker's message socket, which `Debug` does not print.
    pub socket: Option<Line>,
}

impl fmt::Debug for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Address")
            .field("machine", &self.machine)
            .field("pid", &self.pid)
            .field("pid_started_at", &self.pid_started_at)
            .finish_non_exhaustive()
    }
}

/// A client that attaches.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// What it is known by.
    pub key: PeerKey,
    /// What it calls itself.
    pub client: Client,
    /// How it came.
    pub transport: Transport,
    /// The branch that its checkout has out, `None` without one.
    pub branch: Option<Line>,
    /// Where its worker can be reached, where it told.
    pub address: Option<Address>,
}

/// What a peer says it is about to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Number of the command that said it; rises within a row and across withdrawals.
    pub n: u64,
    /// What it is about to do.
    pub intent: Line,
    /// The paths it expects to touch.
    pub claims: Claims,
    /// When it said so.
    pub at: Timestamp,
}

/// One open event stream of a peer, as its transport numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// A peer on the board.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its position.
    pub id: PeerId,
    /// What is shown in place of its key.
    pub seat_id: SeatId,
    /// What its client calls itself.
    pub client: Client,
    /// How it reaches the node.
    pub transport: Transport,
    /// The branch that its checkout has out; for a departed peer, had out.
    pub branch: Option<Line>,
    /// Where its worker can be reached.
    pub address: Option<Address>,
    /// When it attached last.
    pub attached_at: Timestamp,
    /// When it was heard of last.
    pub last_seen: Timestamp,
    pub(super) key: PeerKey,
    pub(super) presence: Presence,
    pub(super) word: Word,
    /// How many other rows' claims meet this one's.
    pub(super) met: usize,
    pub(super) notices: Notices,
}

impl Row {
    pub(super) fn new(id: PeerId, arrival: Arrival, now: Now, wall: Timestamp) -> Self {
        let Arrival {
            key,
            client,
            transport,
            branch,
            address,
        } = arrival;
        Self {
            id,
            seat_id: key.seat_id(),
            client,
            transport,
            branch,
            address,
            attached_at: wall,
            last_seen: wall,
            key,
            presence: Presence::Attached(Connection::heard(now)),
            word: Word::Silent,
            met: 0,
            notices: Notices::default(),
        }
    }

    /// Returns what the board knows the peer by: a secret.
    pub const fn key(&self) -> &PeerKey {
        &self.key
    }

    /// Returns whether the peer is attached, or has departed and left its announcement.
    pub const fn attached(&self) -> bool {
        match self.presence {
            Presence::Attached(_) => true,
            Presence::Departed { .. } => false,
        }
    }

    /// Returns what the peer says it is about to do.
    pub const fn announcement(&self) -> Option<&Announcement> {
        match &self.word {
            Word::Announced(announcement) => Some(announcement),
            Word::Silent | Word::Withdrawn { .. } => None,
        }
    }

    /// Takes over what an arrival tells, and returns whether any of it is new.
    pub(super) fn describe(&mut self, arrival: Arrival) -> bool {
        let Arrival {
            key: _,
            client,
            transport,
            branch,
            address,
        } = arrival;
        let same = self.client == client
            && self.transport == transport
            && self.branch == branch
            && self.address == address;
        (self.client, self.transport) = (client, transport);
        (self.branch, self.address) = (branch, address);
        !same
    }
}

/// Whether a peer is there.
#[derive(Clone, Debug)]
pub(super) enum Presence {
    /// It is.
    Attached(Connection),
    /// It is not, and its announcement is kept.
    Departed {
        /// Rises with every departure, so that the oldest is known without a clock.
        order: u64,
    },
}

/// What shows that an attached peer is still there.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) last_heard: Now,
    pub(super) streams: BTreeSet<StreamId>,
    /// When the board looks at this connection again, `None` while a stream is open.
    pub(super) armed: Option<Now>,
}

impl Connection {
    pub(super) const fn heard(now: Now) -> Self {
        Self {
            last_heard: now,
            streams: BTreeSet::new(),
            armed: None,
        }
    }
}

/// What a peer has said, through all of its life.
#[derive(Clone, Debug)]
pub(super) enum Word {
    /// Nothing yet.
    Silent,
    /// This is in force.
    Announced(Announcement),
    /// Something, and took it back.
    Withdrawn {
        /// Number of the command that took it back.
        n: u64,
    },
}

impl Word {
    /// Returns the number of the last command that changed it.
    pub(super) const fn n(&self) -> Option<u64> {
        match self {
            Self::Silent => None,
            Self::Announced(announcement) => Some(announcement.n),
            Self::Withdrawn { n } => Some(*n),
        }
    }
}

/// The peers whose new claims a row has yet to be told of, the longest waiting first.
#[derive(Clone, Debug, Default)]
pub(super) struct Notices {
    pub(super) about: Vec<PeerId>,
    /// How many found no room.
    pub(super) dropped: u64,
}

impl Notices {
    /// Adds a peer, once, as the newest; the oldest makes room. One line is left to count those.
    pub(super) fn add(&mut self, peer: PeerId) {
        self.about.retain(|waiting| *waiting != peer);
        self.about.push(peer);
        if self.about.len() >= NOTICES_MAX {
            self.about.remove(0);
            self.dropped += 1;
        }
    }

    /// Takes a peer out, and returns whether it was waiting.
    pub(super) fn remove(&mut self, peer: PeerId) -> bool {
        let before = self.about.len();
        self.about.retain(|waiting| *waiting != peer);
        self.about.len() != before
    }
}
