//! What a journal keeps, and what is found in it again.

use std::fmt;

use earshot_proto::{PeerId, board::record::PeerRecord};
use earshot_trust::SessionId;
use rusqlite::{Connection, Row, params, types::ValueRef};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

/// A row of the board, and the execution session that its peer is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerEntry {
    /// The row.
    pub record: PeerRecord,
    /// The session, `None` where the peer named none.
    pub session: Option<SessionId>,
}

/// A wire session of a direct client.
///
/// Whoever knows its id speaks as that client, so `Debug` shows none.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireSessionRecord {
    /// Its id.
    pub id: String,
    /// The parameters of the `initialize` that opened it.
    pub initialize: Value,
    /// The client's root, where it told one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// The execution session that the client named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// When it was heard of last, in milliseconds since 1970, as far as the journal was told.
    pub last_seen_ms: u64,
}

impl fmt::Debug for WireSessionRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("WireSessionRecord")
            .field("last_seen_ms", &self.last_seen_ms)
            .finish_non_exhaustive()
    }
}

/// What is written together, all or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Rows of the board to write, in place of what their positions had.
    pub peers: Vec<PeerEntry>,
    /// Positions whose rows go, before any is written.
    pub peers_deleted: Vec<PeerId>,
    /// Wire sessions to write, in place of what their ids had.
    pub wire_sessions: Vec<WireSessionRecord>,
    /// Ids of wire sessions that go, before any is written.
    pub wire_sessions_deleted: Vec<String>,
}

/// Everything that a journal holds for the next node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The rows of the board, by position.
    pub peers: Vec<PeerEntry>,
    /// The wire sessions.
    pub wire_sessions: Vec<WireSessionRecord>,
    /// Rows that cannot be read. They stay in the file until something is written in their place.
    pub refused: Vec<Refused>,
}

/// A row that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row {row} of {table} cannot be read: {reason}")]
pub struct Refused {
    /// Its table.
    pub table: &'static str,
    /// Its number in that table.
    pub row: i64,
    /// What is wrong, without a word of what it holds.
    pub reason: String,
}

impl Batch {
    /// Returns whether there is nothing to write.
    pub const fn is_empty(&self) -> bool {
        self.peers.is_empty()
            && self.peers_deleted.is_empty()
            && self.wire_sessions.is_empty()
            && self.wire_sessions_deleted.is_empty()
    }

    /// Writes it within the transaction that is open.
    pub(super) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        each(
            connection,
            "DELETE FROM peer WHERE id = ?1",
            &self.peers_deleted,
            |run, id| run.execute([id.number().cast_signed()]),
        )?;
        let sql = "INSERT OR REPLACE INTO peer (id, record, session) VALUES (?1, ?2, ?3)";
        each(connection, sql, &self.peers, |run, entry| {
            let session = entry.session.as_ref().map(SessionId::as_str);
            let record = json(&entry.record);
            run.execute(params![entry.record.id.cast_signed(), record, session])
        })?;
        let sql = "DELETE FROM wire_session WHERE id = ?1";
        each(connection, sql, &self.wire_sessions_deleted, |run, id| {
            run.execute([id])
        })?;
        let sql = "INSERT OR REPLACE INTO wire_session (id, record) VALUES (?1, ?2)";
        each(connection, sql, &self.wire_sessions, |run, record| {
            run.execute(params![record.id, json(record)])
        })
    }
}

/// Runs one statement for each item, and does not prepare it when there is none.
fn each<T>(
    connection: &Connection,
    sql: &str,
    items: &[T],
    mut run: impl FnMut(&mut rusqlite::Statement<'_>, &T) -> rusqlite::Result<usize>,
) -> rusqlite::Result<()> {
    if items.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare(sql)?;
    for item in items {
        run(&mut statement, item)?;
    }
    Ok(())
}

fn json(record: &impl Serialize) -> String {
    serde_json::to_string(record).expect("records of named fields can be written as JSON")
}

impl Loaded {
    /// Reads everything within the transaction that is open.
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut loaded = Self::default();
        let mut statement =
            connection.prepare("SELECT id, record, session FROM peer ORDER BY id")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            match peer(row) {
                Ok(entry) => loaded.peers.push(entry),
                Err(reason) => loaded.refuse("peer", row.get(0)?, reason),
            }
        }
        let sql = "SELECT rowid, id, record FROM wire_session ORDER BY rowid";
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            match wire_session(row) {
                Ok(record) => loaded.wire_sessions.push(record),
                Err(reason) => loaded.refuse("wire_session", row.get(0)?, reason),
            }
        }
        Ok(loaded)
    }

    fn refuse(&mut self, table: &'static str, row: i64, reason: String) {
        self.refused.push(Refused { table, row, reason });
    }
}

fn peer(row: &Row<'_>) -> Result<PeerEntry, String> {
    let record: PeerRecord = parse(row, 1)?;
    if row.get(0) != Ok(record.id.cast_signed()) {
        return Err("its record is of another position".to_owned());
    }
    let session = match row.get_ref(2).map_err(|error| error.to_string())? {
        ValueRef::Null => None,
        value => {
            let text = value.as_str().map_err(|_| "its session is no text")?;
            Some(SessionId::parse(text).map_err(|error| error.to_string())?)
        }
    };
    Ok(PeerEntry { record, session })
}

fn wire_session(row: &Row<'_>) -> Result<WireSessionRecord, String> {
    let record: WireSessionRecord = parse(row, 2)?;
    if row.get_ref(1).and_then(|id| Ok(id.as_str()? == record.id)) != Ok(true) {
        return Err("its record is of another wire session".to_owned());
    }
    Ok(record)
}

/// Reads a record, and tells an error by its place alone: a record holds secrets.
fn parse<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<T, String> {
    let value = row.get_ref(column).map_err(|error| error.to_string())?;
    let text = value.as_str().map_err(|_| "its record is no text")?;
    serde_json::from_str(text).map_err(|error| {
        let what = if error.is_data() {
            "no such record"
        } else {
            "no JSON"
        };
        format!("{what} at column {}", error.column())
    })
}
