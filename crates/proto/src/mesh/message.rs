//! What nodes tell each other, and its form on the wire.
//!
//! The kind of a message stands in its envelope, the rest is its payload in `postcard`. Texts and
//! paths are read by the rules of this node's own board ([`text`](crate::text),
//! [`claims`](crate::claims)): a sibling is no reason to show what a client may not write.

use earshot_trust::{CERTIFICATE_BYTES, NodeCertificate, SIGNATURE_BYTES, Signature};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::frame::PAYLOAD_BYTES_MAX;
use crate::board::{Client, Row, Transport};
use crate::claims::{Case, Claims};
use crate::id::{PeerId, SeatId};
use crate::limits::SHARED_ROWS_MAX;
use crate::text::Line;
use crate::time::Timestamp;

/// The version of the protocol that this release speaks.
pub const PROTOCOL_VERSION: u16 = 1;

/// Which state of a node's own rows.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct StateId {
    /// Epoch of the node's lease, or what it adopted above it.
    pub epoch: u64,
    /// Counts the changes within the epoch.
    pub version: u64,
    /// Hash of rows and facts.
    pub hash: [u8; 16],
}

/// One row of a board, as it is told to siblings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRow {
    /// Its position on its own board.
    pub id: PeerId,
    /// What is shown in place of its key.
    pub seat_id: SeatId,
    /// What its client calls itself.
    pub client: Client,
    /// How it reaches its node.
    pub transport: Transport,
    /// The branch that its checkout has out.
    pub branch: Option<Line>,
    /// When it attached.
    pub attached_at: Timestamp,
    /// When a departed peer was heard of last; `None` while it is attached.
    pub left_at: Option<Timestamp>,
    /// What it announced.
    pub word: Option<SharedWord>,
}

/// An announcement, as it is told to siblings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedWord {
    /// Number of the command that said it: a lower one is no news.
    pub n: u64,
    /// What the peer is about to do.
    pub intent: Line,
    /// The paths that it expects to touch.
    pub claims: Claims,
    /// When it said so.
    pub at: Timestamp,
}

impl SharedRow {
    /// Returns what siblings are told of a row.
    pub fn of(row: &Row) -> Self {
        Self {
            id: row.id,
            seat_id: row.seat_id,
            client: row.client.clone(),
            transport: row.transport,
            branch: row.branch.clone(),
            attached_at: row.attached_at,
            left_at: (!row.attached()).then_some(row.last_seen),
            word: row.announcement().map(|said| SharedWord {
                n: said.n,
                intent: said.intent.clone(),
                claims: said.claims.clone(),
                at: said.at,
            }),
        }
    }
}

/// What a node tells of its checkout besides the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Hash of the repository's common folder, `None` for a folder without one.
    pub repository: Option<[u8; 16]>,
    /// Whether names that differ in case alone are one name there.
    pub ignores_case: bool,
    /// How many peers are attached.
    pub attached: u32,
    /// Rows that found no room among those that are told.
    pub left_out: u32,
}

impl Facts {
    /// Returns the rule for names in that checkout.
    pub const fn case(&self) -> Case {
        if self.ignores_case {
            Case::Folded
        } else {
            Case::Kept
        }
    }
}

/// The first message of each side: who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The machine vouches for the node.
    pub certificate: NodeCertificate,
    /// The machine says that it is there, on this link.
    pub presence: Signature,
    /// The oldest version of the protocol that the node speaks.
    pub speaks_from: u16,
    /// The newest.
    pub speaks_to: u16,
    /// Release of the node's executable.
    pub release: Line,
    /// The node's wall clock, to be shown beside the receiver's; it decides nothing.
    pub wall: Timestamp,
    /// The number that it gave the link, higher than those of its links before.
    pub number: u64,
}

/// What a node holds of the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holds {
    /// The state that it holds; `None` when it is nothing, or was not what it was said to be.
    pub state: Option<StateId>,
    /// The highest epoch of the receiver that it has seen, 0 when it has seen none.
    pub epoch: u64,
}

/// A change of a node's own rows, or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The state that it goes out from; `None` when it is everything.
    pub base: Option<StateId>,
    /// The state that it leads to.
    pub now: StateId,
    /// The facts, where they changed.
    pub facts: Option<Facts>,
    /// Rows that are new or changed.
    pub put: Vec<SharedRow>,
    /// Positions of rows that are gone.
    pub gone: Vec<PeerId>,
}

/// Why a node leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leave {
    /// It ends in order.
    Ending,
    /// The same two nodes have another link.
    Duplicate,
}

/// What nodes tell each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Who I am.
    Hello(Hello),
    /// What I hold of you.
    Holds(Holds),
    /// What changed on my board.
    Delta(Delta),
    /// Say which state you are in, so that I know how fresh mine is.
    Ask(u64),
    /// The answer to the question of that number.
    Told(u64, StateId),
    /// I leave.
    Goodbye(Leave),
}

/// Bytes that are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// No message is of this kind.
    #[error("no message has the kind {0}")]
    Kind(u8),
    /// The payload is none of its kind.
    #[error("the payload of a message of kind {0} cannot be read")]
    Payload(u8),
    /// It says more than one may.
    #[error("the message tells of {rows} rows; {SHARED_ROWS_MAX} are told at most")]
    TooMany {
        /// Rows that are put or gone.
        rows: usize,
    },
}

const HELLO: u8 = 1;
const HOLDS: u8 = 2;
const DELTA: u8 = 3;
const ASK: u8 = 4;
const TOLD: u8 = 5;
const GOODBYE: u8 = 6;

#[derive(Serialize, Deserialize)]
struct WireHello {
    speaks_from: u16,
    speaks_to: u16,
    certificate: Vec<u8>,
    presence: Vec<u8>,
    release: String,
    wall_ms: u64,
    number: u64,
}

#[derive(Serialize, Deserialize)]
struct WireRow {
    id: u64,
    seat_id: [u8; 8],
    client: String,
    version: String,
    transport: u8,
    branch: Option<String>,
    attached_at_ms: u64,
    left_at_ms: Option<u64>,
    word: Option<WireWord>,
}

#[derive(Serialize, Deserialize)]
struct WireWord {
    n: u64,
    intent: String,
    paths: Vec<String>,
    at_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct WireDelta {
    base: Option<StateId>,
    now: StateId,
    facts: Option<Facts>,
    put: Vec<WireRow>,
    gone: Vec<u64>,
}

impl Message {
    /// Returns the kind and the payload that travel.
    pub fn encode(&self) -> (u8, Vec<u8>) {
        match self {
            Self::Hello(hello) => (HELLO, bytes(&wire_hello(hello))),
            Self::Holds(holds) => (HOLDS, bytes(holds)),
            Self::Delta(delta) => (DELTA, bytes(&wire_delta(delta))),
            Self::Ask(number) => (ASK, bytes(number)),
            Self::Told(number, state) => (TOLD, bytes(&(number, state))),
            Self::Goodbye(leave) => (GOODBYE, bytes(leave)),
        }
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`MessageError`]: whoever sent it speaks another language, or means ill.
    pub fn decode(kind: u8, payload: &[u8]) -> Result<Self, MessageError> {
        let unreadable = MessageError::Payload(kind);
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(unreadable);
        }
        match kind {
            HELLO => read(kind, payload)
                .and_then(|wire| read_hello(wire).ok_or(unreadable))
                .map(Self::Hello),
            HOLDS => read(kind, payload).map(Self::Holds),
            DELTA => read(kind, payload).and_then(read_delta).map(Self::Delta),
            ASK => read(kind, payload).map(Self::Ask),
            TOLD => read(kind, payload).map(|(number, state)| Self::Told(number, state)),
            GOODBYE => read(kind, payload).map(Self::Goodbye),
            other => Err(MessageError::Kind(other)),
        }
    }
}

/// Returns the bytes that a row's share of a state's hash is made of.
pub(super) fn row_bytes(row: &SharedRow) -> Vec<u8> {
    bytes(&wire_row(row))
}

/// Returns the bytes that the facts' share of a state's hash is made of.
pub(super) fn facts_bytes(facts: &Facts) -> Vec<u8> {
    bytes(facts)
}

fn bytes(value: &impl Serialize) -> Vec<u8> {
    // Into memory, and of these types, it cannot fail; an empty payload would be refused.
    postcard::to_stdvec(value).unwrap_or_default()
}

fn read<T: DeserializeOwned>(kind: u8, payload: &[u8]) -> Result<T, MessageError> {
    match postcard::take_from_bytes(payload) {
        Ok((value, [])) => Ok(value),
        Ok((_, [..])) | Err(_) => Err(MessageError::Payload(kind)),
    }
}

fn wire_hello(hello: &Hello) -> WireHello {
    WireHello {
        speaks_from: hello.speaks_from,
        speaks_to: hello.speaks_to,
        certificate: hello.certificate.to_bytes(),
        presence: hello.presence.as_bytes().to_vec(),
        release: hello.release.as_str().to_owned(),
        wall_ms: hello.wall.unix_ms(),
        number: hello.number,
    }
}

fn read_hello(wire: WireHello) -> Option<Hello> {
    let certificate: [u8; CERTIFICATE_BYTES] = wire.certificate.try_into().ok()?;
    let presence: [u8; SIGNATURE_BYTES] = wire.presence.try_into().ok()?;
    Some(Hello {
        certificate: NodeCertificate::open(&certificate).ok()?,
        presence: Signature::new(presence),
        speaks_from: wire.speaks_from,
        speaks_to: wire.speaks_to,
        release: Line::name(&wire.release),
        wall: Timestamp::from_unix_ms(wire.wall_ms),
        number: wire.number,
    })
}

fn wire_row(row: &SharedRow) -> WireRow {
    WireRow {
        id: row.id.number(),
        seat_id: row.seat_id.to_bits(),
        client: row.client.name.as_str().to_owned(),
        version: row.client.version.as_str().to_owned(),
        transport: match row.transport {
            Transport::Stdio => 0,
            Transport::Http => 1,
            Transport::Cli => 2,
        },
        branch: row.branch.as_ref().map(|branch| branch.as_str().to_owned()),
        attached_at_ms: row.attached_at.unix_ms(),
        left_at_ms: row.left_at.map(Timestamp::unix_ms),
        word: row.word.as_ref().map(|word| WireWord {
            n: word.n,
            intent: word.intent.as_str().to_owned(),
            paths: word
                .claims
                .as_slice()
                .iter()
                .map(|claim| claim.as_str().to_owned())
                .collect(),
            at_ms: word.at.unix_ms(),
        }),
    }
}

fn read_row(wire: WireRow) -> Option<SharedRow> {
    let word = wire.word.map(|word| {
        Some(SharedWord {
            n: word.n,
            intent: Line::intent(&word.intent).ok()?,
            claims: Claims::parse(&word.paths).ok()?,
            at: Timestamp::from_unix_ms(word.at_ms),
        })
    });
    let word = match word {
        Some(None) => return None,
        Some(Some(word)) => Some(word),
        None => None,
    };
    Some(SharedRow {
        id: PeerId::new(wire.id)?,
        seat_id: SeatId::from_bits(wire.seat_id),
        client: Client::new(&wire.client, &wire.version),
        transport: match wire.transport {
            0 => Transport::Stdio,
            1 => Transport::Http,
            2 => Transport::Cli,
            _ => return None,
        },
        branch: wire.branch.as_deref().map(Line::name),
        attached_at: Timestamp::from_unix_ms(wire.attached_at_ms),
        left_at: wire.left_at_ms.map(Timestamp::from_unix_ms),
        word,
    })
}

fn wire_delta(delta: &Delta) -> WireDelta {
    WireDelta {
        base: delta.base,
        now: delta.now,
        facts: delta.facts,
        put: delta.put.iter().map(wire_row).collect(),
        gone: delta.gone.iter().map(|id| id.number()).collect(),
    }
}

fn read_delta(wire: WireDelta) -> Result<Delta, MessageError> {
    let rows = wire.put.len() + wire.gone.len();
    // A row can go and another come in its place, so that both lists may be full.
    if wire.put.len() > SHARED_ROWS_MAX || wire.gone.len() > SHARED_ROWS_MAX {
        return Err(MessageError::TooMany { rows });
    }
    let unreadable = MessageError::Payload(DELTA);
    let put: Option<Vec<SharedRow>> = wire.put.into_iter().map(read_row).collect();
    let gone: Option<Vec<PeerId>> = wire.gone.into_iter().map(PeerId::new).collect();
    Ok(Delta {
        base: wire.base,
        now: wire.now,
        facts: wire.facts,
        put: put.ok_or_else(|| unreadable.clone())?,
        gone: gone.ok_or(unreadable)?,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use earshot_trust::{LinkId, SecretKey, sign_presence};
    use proptest::prelude::*;

    use super::*;

    pub(in crate::mesh) fn row(id: u64, paths: &[&str]) -> SharedRow {
        SharedRow {
            id: PeerId::new(id).unwrap(),
            seat_id: SeatId::from_bits(id.to_be_bytes()),
            client: Client::new("client", "1.0"),
            transport: Transport::Stdio,
            branch: Some(Line::name("main")),
            attached_at: Timestamp::from_unix_ms(5),
            left_at: None,
            word: Some(SharedWord {
                n: 1,
                intent: Line::intent("moves the parser").unwrap(),
                claims: Claims::parse(paths).unwrap(),
                at: Timestamp::from_unix_ms(7),
            }),
        }
    }

    fn hello() -> Hello {
        let machine = SecretKey::from_seed([1; 32]);
        let node = SecretKey::from_seed([2; 32]).public();
        let link = LinkId::of_greetings(b"a", b"b");
        Hello {
            certificate: NodeCertificate::issue(&machine, node, [3; 16], 9),
            presence: sign_presence(&machine, &link, node),
            speaks_from: 1,
            speaks_to: 1,
            release: Line::name("0.1.0"),
            wall: Timestamp::from_unix_ms(1_700_000_000_000),
            number: 3,
        }
    }

    fn messages() -> Vec<Message> {
        let state = StateId {
            epoch: 9,
            version: 4,
            hash: [5; 16],
        };
        let silent = SharedRow {
            word: None,
            branch: None,
            left_at: Some(Timestamp::from_unix_ms(11)),
            transport: Transport::Cli,
            ..row(2, &[])
        };
        vec![
            Message::Hello(hello()),
            Message::Holds(Holds::default()),
            Message::Holds(Holds {
                state: Some(state),
                epoch: 9,
            }),
            Message::Delta(Delta {
                base: None,
                now: state,
                facts: Some(Facts {
                    repository: Some([6; 16]),
                    ignores_case: true,
                    attached: 2,
                    left_out: 0,
                }),
                put: vec![row(1, &["src", "docs/a.md"]), silent],
                gone: vec![PeerId::new(7).unwrap()],
            }),
            Message::Ask(1),
            Message::Told(1, state),
            Message::Goodbye(Leave::Ending),
            Message::Goodbye(Leave::Duplicate),
        ]
    }

    #[test]
    fn every_message_is_read_as_it_was_said() {
        for message in messages() {
            let (kind, payload) = message.encode();
            assert_eq!(Message::decode(kind, &payload), Ok(message));
        }
    }

    #[test]
    fn bytes_too_few_and_too_many_are_refused() {
        for message in messages() {
            let (kind, payload) = message.encode();
            for length in 0..payload.len() {
                let cut = &payload[..length];
                assert_eq!(Message::decode(kind, cut), Err(MessageError::Payload(kind)));
            }
            let longer = [payload.as_slice(), &[0]].concat();
            let read = Message::decode(kind, &longer);
            assert_eq!(read, Err(MessageError::Payload(kind)), "{message:?}");
        }
        assert_eq!(Message::decode(0, &[]), Err(MessageError::Kind(0)));
        assert_eq!(Message::decode(200, &[]), Err(MessageError::Kind(200)));
    }

    #[test]
    fn a_row_is_read_by_the_rules_of_the_own_board() {
        let mut wire = wire_row(&row(1, &["src"]));
        wire.client = "evil\u{1b}[31m\u{202e}\nname".to_owned();
        let read = read_row(wire).unwrap();
        assert_eq!(read.client.name.as_str(), "evil name");
        let mut wire = wire_row(&row(1, &["src"]));
        wire.word.as_mut().unwrap().paths = vec!["../../etc".to_owned()];
        assert_eq!(read_row(wire), None);
        let mut wire = wire_row(&row(1, &["src"]));
        wire.id = 0;
        assert_eq!(read_row(wire), None);
        let mut wire = wire_row(&row(1, &["src"]));
        wire.transport = 3;
        assert_eq!(read_row(wire), None);
    }

    #[test]
    fn more_rows_than_are_told_are_refused() {
        let rows = (1..=u64::try_from(SHARED_ROWS_MAX).unwrap() + 1).map(|id| row(id, &[]));
        let delta = Delta {
            base: None,
            now: StateId::default(),
            facts: None,
            put: rows.collect(),
            gone: Vec::new(),
        };
        let (kind, payload) = Message::Delta(delta).encode();
        let rows = SHARED_ROWS_MAX + 1;
        let read = Message::decode(kind, &payload);
        assert_eq!(read, Err(MessageError::TooMany { rows }));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(kind in 0..8_u8, payload in prop::collection::vec(any::<u8>(), 0..300)) {
            Message::decode(kind, &payload).ok(); // refused or read, it returns
        }
    }
}
