//! A folder with a journal, and short forms of what tests put into it.

use std::path::{Path, PathBuf};

use earshot_proto::{
    board::{
        PeerKey,
        record::{KeyRecord, PeerRecord, TransportRecord, WordRecord},
    },
    lease::{BodyDigest, Epoch},
};
use earshot_store::{
    Batch, Begun, CommandKey, Journal, OpenError, PeerEntry, Receipt, SeatHash, WireSessionRecord,
};
use serde_json::json;
use tempfile::TempDir;

pub(crate) const CHECKOUT: &str = "0123456789abcdef0123456789abcdef";

/// A folder that goes when it is dropped.
pub(crate) struct Scratch {
    folder: TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        Self { folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder().join("journal.db")
    }

    pub(crate) fn open(&self, epoch: u64) -> Journal {
        self.try_open(epoch).unwrap()
    }

    pub(crate) fn try_open(&self, epoch: u64) -> Result<Journal, OpenError> {
        Journal::open(&self.path(), CHECKOUT, Epoch::new(epoch))
    }

    /// Opens the file as any SQLite program would.
    pub(crate) fn sqlite(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }
}

/// The first command of a seat, or any other one.
pub(crate) fn command(seat: u8, n: u64) -> CommandKey {
    CommandKey {
        seat: SeatHash::of(&PeerKey::Seat([seat; 16])),
        n,
        digest: BodyDigest::new([1; 16]),
        acked: 0,
        idempotent: false,
    }
}

/// A row of the board.
pub(crate) fn entry(id: u64, n: u64) -> PeerEntry {
    let record = PeerRecord {
        id,
        key: KeyRecord::Seat(format!("{id:032x}")),
        client_name: "client".to_owned(),
        client_version: "1.0".to_owned(),
        transport: TransportRecord::Stdio,
        branch: Some("main".to_owned()),
        address: None,
        attached_at_ms: 5,
        last_seen_ms: 6,
        departed: None,
        word: WordRecord::Announced {
            n,
            intent: "moves the parser".to_owned(),
            paths: vec!["src/parser".to_owned()],
            at_ms: 7,
        },
        notices: Vec::new(),
        notices_dropped: 0,
    };
    PeerEntry {
        record,
        session: None,
    }
}

pub(crate) fn wire_session(id: &str) -> WireSessionRecord {
    WireSessionRecord {
        id: id.to_owned(),
        initialize: json!({"protocolVersion": "2025-11-25", "capabilities": {}}),
        root: Some("/tree".to_owned()),
        session: None,
        last_seen_ms: 8,
    }
}

/// The effect of writing this row.
pub(crate) fn put(entry: PeerEntry) -> Batch {
    Batch {
        peers: vec![entry],
        ..Batch::default()
    }
}

/// Runs a command that has not been run, and returns its receipt.
pub(crate) fn run(
    journal: &mut Journal,
    command: &CommandKey,
    effect: &Batch,
    result: &[u8],
) -> Receipt {
    match journal.begin(command).unwrap() {
        Begun::Run(execution) => execution.finish(effect, result.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// What became of a command that the test does not carry out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Run,
    Answered(Vec<u8>),
    Conflict,
    Gone,
    OutcomeUnknown,
}

/// Returns what would become of a command, and gives it up.
pub(crate) fn fate(journal: &mut Journal, command: &CommandKey) -> Fate {
    match journal.begin(command).unwrap() {
        Begun::Run(execution) => {
            execution.abort().unwrap();
            Fate::Run
        }
        Begun::Answered(receipt) => Fate::Answered(receipt.into_result()),
        Begun::Conflict => Fate::Conflict,
        Begun::Gone => Fate::Gone,
        Begun::OutcomeUnknown => Fate::OutcomeUnknown,
    }
}
