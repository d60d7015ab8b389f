//! A row as the journal keeps it.
//!
//! These are the board's only serialised types. They hold the peers' keys, so a journal is as
//! secret as they are; `Debug` shows none.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::key::PeerKey;
use super::row::{Address, Announcement, Arrival, Client, Notices, Presence, Row, Transport, Word};
use crate::claims::{Claims, ClaimsError};
use crate::id::PeerId;
use crate::limits::{INTENT_BYTES_MAX, NOTICES_MAX};
use crate::text::Line;
use crate::time::{Now, Timestamp};

/// Greatest position that a record may have, so that counting on from it cannot overflow.
const COUNTER_MAX: u64 = u64::MAX / 2;

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerRecord {
    /// Number of the position, from one.
    pub id: u64,
    /// What the peer is known by.
    pub key: KeyRecord,
    /// What its client calls itself.
    pub client_name: String,
    /// The version that its client tells.
    pub client_version: String,
    /// How it reaches the node.
    pub transport: TransportRecord,
    /// The branch of its checkout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Where its worker can be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<AddressRecord>,
    /// When it attached last, in milliseconds since 1970.
    pub attached_at_ms: u64,
    /// When it was heard of last, as far as the journal was told.
    pub last_seen_ms: u64,
    /// Its place among the departed, `None` while it is attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub departed: Option<u64>,
    /// What it has said.
    #[serde(default)]
    pub word: WordRecord,
    /// Numbers of the peers whose claims it has yet to be told of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<u64>,
    /// How many more of them found no room.
    #[serde(default)]
    pub notices_dropped: u64,
}

/// What a peer is known by.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyRecord {
    /// A seat, as 32 hex characters.
    Seat(String),
    /// A wire session.
    WireSession(String),
    /// A session named in a header.
    Session(String),
    /// A process.
    Cli {
        /// Its process id.
        pid: u32,
        /// When it started, in the system's own unit.
        started_at: u64,
    },
    /// A ticket, as 32 hex characters.
    Ticket(String),
}

impl fmt::Debug for KeyRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("KeyRecord(…)")
    }
}

/// How a peer reaches its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransportRecord {
    /// Through a bridge, or on the node's own standard input.
    Stdio,
    /// As a direct HTTP client.
    Http,
    /// By the command line.
    Cli,
}

/// Where the worker behind a peer can be reached.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRecord {
    /// Name of the machine.
    pub machine: String,
    /// Process id of the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// When that process started, in the system's own unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_started_at: Option<u64>,
    /// The provider's session id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Path of the worker's message socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
}

impl fmt::Debug for AddressRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("AddressRecord")
            .field("machine", &self.machine)
            .finish_non_exhaustive()
    }
}

/// What a peer has said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WordRecord {
    /// Nothing yet.
    #[default]
    Silent,
    /// An announcement that is in force.
    Announced {
        /// Number of the command that said it.
        n: u64,
        /// What the peer is about to do.
        intent: String,
        /// The paths it expects to touch.
        paths: Vec<String>,
        /// When it said so, in milliseconds since 1970.
        at_ms: u64,
    },
    /// An announcement that was taken back.
    Withdrawn {
        /// Number of the command that took it back.
        n: u64,
    },
}

/// A record that cannot become a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Its position, or its place among the departed, is none that a board gives.
    #[error("the row has a position that no board gives")]
    Position,
    /// Its key is not of the form that its kind has.
    #[error("the peer's key is not 32 hex characters")]
    Key,
    /// Its paths are no claims.
    #[error("the announced paths are no claims")]
    Claims(#[from] ClaimsError),
    /// Another record has its position, its key, or its place among the departed.
    #[error("another row has the same position, key or place")]
    Twice,
    /// It is of a departed peer that left no announcement.
    #[error("a departed peer without an announcement leaves nothing behind")]
    Silent,
    /// The board is full.
    #[error("the board is full")]
    Full,
}

impl PeerRecord {
    /// Returns what the journal keeps of a row.
    pub(super) fn of(row: &Row) -> Self {
        Self {
            id: row.id.number(),
            key: KeyRecord::of(&row.key),
            client_name: row.client.name.to_string(),
            client_version: row.client.version.to_string(),
            transport: TransportRecord::of(row.transport),
            branch: row.branch.as_ref().map(Line::to_string),
            address: row.address.as_ref().map(AddressRecord::of),
            attached_at_ms: row.attached_at.unix_ms(),
            last_seen_ms: row.last_seen.unix_ms(),
            departed: match row.presence {
                Presence::Attached(_) => None,
                Presence::Departed { order } => Some(order),
            },
            word: WordRecord::of(&row.word),
            notices: row.notices.about.iter().map(|peer| peer.number()).collect(),
            notices_dropped: row.notices.dropped,
        }
    }

    /// Returns the row of this record, whose peer counts as heard of now.
    pub(super) fn into_row(self, now: Now) -> Result<Row, RecordError> {
        let key = self.key.into_key()?;
        let arrival = Arrival {
            key,
            client: Client::new(&self.client_name, &self.client_version),
            transport: self.transport.into_transport(),
            branch: self.branch.as_deref().map(Line::name),
            address: self.address.map(AddressRecord::into_address),
        };
        let counters = [self.id, self.departed.unwrap_or_default()];
        if counters.iter().any(|counter| *counter > COUNTER_MAX) {
            return Err(RecordError::Position);
        }
        let id = PeerId::new(self.id).ok_or(RecordError::Position)?;
        let mut row = Row::new(
            id,
            arrival,
            now,
            Timestamp::from_unix_ms(self.attached_at_ms),
        );
        row.last_seen = Timestamp::from_unix_ms(self.last_seen_ms);
        if let Some(order) = self.departed {
            row.presence = Presence::Departed { order };
        }
        row.word = self.word.into_word()?;
        let about = self.notices.into_iter().filter_map(PeerId::new);
        row.notices = Notices {
            about: about.take(NOTICES_MAX - 1).collect(),
            dropped: self.notices_dropped,
        };
        Ok(row)
    }
}

impl KeyRecord {
    fn of(key: &PeerKey) -> Self {
        let hex = |bytes: &[u8; 16]| format!("{:032x}", u128::from_be_bytes(*bytes));
        match key {
            PeerKey::Seat(seat) => Self::Seat(hex(seat)),
            PeerKey::WireSession(id) => Self::WireSession(id.clone()),
            PeerKey::Session(id) => Self::Session(id.clone()),
            PeerKey::Cli { pid, started_at } => Self::Cli {
                pid: *pid,
                started_at: *started_at,
            },
            PeerKey::Ticket(ticket) => Self::Ticket(hex(ticket)),
        }
    }

    fn into_key(self) -> Result<PeerKey, RecordError> {
        let bytes = |hex: &str| match u128::from_str_radix(hex, 16) {
            Ok(bits) if hex.len() == 32 => Ok(bits.to_be_bytes()),
            Ok(_) | Err(_) => Err(RecordError::Key),
        };
        Ok(match self {
            Self::Seat(hex) => PeerKey::Seat(bytes(&hex)?),
            Self::WireSession(id) => PeerKey::WireSession(id),
            Self::Session(id) => PeerKey::Session(id),
            Self::Cli { pid, started_at } => PeerKey::Cli { pid, started_at },
            Self::Ticket(hex) => PeerKey::Ticket(bytes(&hex)?),
        })
    }
}

impl TransportRecord {
    const fn of(transport: Transport) -> Self {
        match transport {
            Transport::Stdio => Self::Stdio,
            Transport::Http => Self::Http,
            Transport::Cli => Self::Cli,
        }
    }

    const fn into_transport(self) -> Transport {
        match self {
            Self::Stdio => Transport::Stdio,
            Self::Http => Transport::Http,
            Self::Cli => Transport::Cli,
        }
    }
}

impl AddressRecord {
    fn of(address: &Address) -> Self {
        Self {
            machine: address.machine.to_string(),
            pid: address.pid,
            pid_started_at: address.pid_started_at,
            session: address.session.as_ref().map(Line::to_string),
            socket: address.socket.as_ref().map(Line::to_string),
        }
    }

    fn into_address(self) -> Address {
        Address {
            machine: Line::name(&self.machine),
            pid: self.pid,
            pid_started_at: self.pid_started_at,
            session: self.session.as_deref().map(Line::name),
            socket: self.socket.as_deref().map(Line::name),
        }
    }
}

impl WordRecord {
    fn of(word: &Word) -> Self {
        match word {
            Word::Silent => Self::Silent,
            Word::Announced(announcement) => Self::Announced {
                n: announcement.n,
                intent: announcement.intent.to_string(),
                paths: announcement
                    .claims
                    .as_slice()
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                at_ms: announcement.at.unix_ms(),
            },
            Word::Withdrawn { n } => Self::Withdrawn { n: *n },
        }
    }

    fn into_word(self) -> Result<Word, RecordError> {
        Ok(match self {
            Self::Silent => Word::Silent,
            Self::Announced {
                n,
                intent,
                paths,
                at_ms,
            } => Word::Announced(Announcement {
                n,
                intent: Line::cut(&intent, INTENT_BYTES_MAX),
                claims: Claims::parse(&paths)?,
                at: Timestamp::from_unix_ms(at_ms),
            }),
            Self::Withdrawn { n } => Word::Withdrawn { n },
        })
    }
}
