//! Who commanded what: the floors of seats, and the commands above them.

use earshot_proto::{
    board::PeerKey,
    lease::{BodyDigest, DoneRow, raised_floor},
};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::command::CommandKey;

/// Keeps these hashes apart from every other hash of the same bytes. Part of the file's format:
/// never changes.
const SEAT_CONTEXT: &str = "earshot 2026 journal: what commands are kept by";

/// Seats whose commands are remembered: four times what a board takes, so that only one that was
/// silent while many came and went is forgotten; its next command answers `gone`.
pub const SEATS_MAX: usize = 4 * earshot_proto::limits::ATTACHED_MAX;

/// Results kept for one seat: a bridge has 64 calls under way, so one 1,024 commands back was
/// answered long ago.
pub const UNACKED_MAX: usize = 1_024;

/// What stands for a seat, or any other key of a peer, beside its commands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SeatHash([u8; 16]);

impl SeatHash {
    /// Returns what stands for this key.
    pub fn of(key: &PeerKey) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(SEAT_CONTEXT);
        match key {
            PeerKey::Seat(seat) => hasher.update(b"seat:").update(seat),
            PeerKey::WireSession(id) => hasher.update(b"wire:").update(id.as_bytes()),
            PeerKey::Session(id) => hasher.update(b"session:").update(id.as_bytes()),
            PeerKey::Cli { pid, started_at } => hasher
                .update(b"cli:")
                .update(&pid.to_be_bytes())
                .update(&started_at.to_be_bytes()),
            PeerKey::Ticket(ticket) => hasher.update(b"ticket:").update(ticket),
        };
        let mut hash = [0; 16];
        hasher.finalize_xof().fill(&mut hash);
        Self(hash)
    }
}

/// A seat within the transaction of its command.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seat {
    /// It has a row with this floor.
    Known(u64),
    /// It gets its row now.
    New,
}

/// Returns the floor of a seat, `None` for one never seen.
pub(super) fn floor(connection: &Connection, seat: SeatHash) -> rusqlite::Result<Option<u64>> {
    connection
        .query_row("SELECT n FROM floor WHERE seat = ?1", [seat.0], |row| {
            number(row, 0)
        })
        .optional()
}

/// Returns what is known of one command.
pub(super) fn done(
    connection: &Connection,
    seat: SeatHash,
    n: u64,
) -> rusqlite::Result<Option<DoneRow<Vec<u8>>>> {
    let sql = "SELECT digest, result FROM done WHERE seat = ?1 AND n = ?2";
    connection
        .query_row(sql, params![seat.0, n.cast_signed()], |row| {
            let digest = BodyDigest::new(row.get(0)?);
            Ok(match row.get(1)? {
                Some(result) => DoneRow::Finished { digest, result },
                None => DoneRow::Started { digest },
            })
        })
        .optional()
}

/// Writes a command down, with its result or as begun, and forgets what the seat has acknowledged.
pub(super) fn note(
    connection: &Connection,
    command: &CommandKey,
    known: Seat,
    result: Option<&[u8]>,
) -> rusqlite::Result<()> {
    let seat = command.seat.0;
    let floor = match known {
        Seat::Known(floor) => floor,
        Seat::New => 0,
    };
    let raised = raise(connection, command, floor)?;
    let sql = "INSERT INTO floor (seat, n, used)
               VALUES (?1, ?2, (SELECT coalesce(max(used), 0) + 1 FROM floor))
               ON CONFLICT (seat) DO UPDATE SET n = excluded.n, used = excluded.used";
    connection.execute(sql, params![seat, raised.cast_signed()])?;
    let sql = "INSERT INTO done (seat, n, digest, result) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT (seat, n) DO UPDATE SET result = excluded.result";
    let digest = command.digest.as_bytes();
    connection.execute(sql, params![seat, command.n.cast_signed(), digest, result])?;
    if raised > floor {
        let sql = "DELETE FROM done WHERE seat = ?1 AND n <= ?2";
        connection.execute(sql, params![seat, raised.cast_signed()])?;
    }
    if matches!(known, Seat::New) {
        forget_beyond_bound(connection)?;
    }
    Ok(())
}

/// Gives a seat its row, unless it has one.
pub(super) fn introduce(
    connection: &Connection,
    seat: SeatHash,
    floor: u64,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO floor (seat, n, used)
               VALUES (?1, ?2, (SELECT coalesce(max(used), 0) + 1 FROM floor))
               ON CONFLICT (seat) DO NOTHING";
    connection.execute(sql, params![seat.0, floor.cast_signed()])?;
    forget_beyond_bound(connection)
}

fn forget_beyond_bound(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "DELETE FROM floor WHERE seat IN (SELECT seat FROM floor ORDER BY used LIMIT
                   (SELECT max(0, count(*) - ?1) FROM floor))";
    connection.execute(sql, [bound(SEATS_MAX)])?;
    Ok(())
}

/// Writes down how a command that was begun ended. One below the floor by now stays forgotten.
pub(super) fn end(
    connection: &Connection,
    command: &CommandKey,
    result: &[u8],
) -> rusqlite::Result<()> {
    let sql = "UPDATE done SET result = ?3 WHERE seat = ?1 AND n = ?2";
    let n = command.n.cast_signed();
    connection.execute(sql, params![command.seat.0, n, result])?;
    Ok(())
}

/// Returns the floor that a seat has with its next command.
fn raise(connection: &Connection, command: &CommandKey, floor: u64) -> rusqlite::Result<u64> {
    let seat = command.seat.0;
    let sql = "SELECT coalesce(max(n), 0) FROM done WHERE seat = ?1 AND result IS NOT NULL";
    let highest = connection.query_row(sql, [seat], |row| number(row, 0))?;
    let sql = "SELECT n FROM done WHERE seat = ?1 ORDER BY n DESC LIMIT 1 OFFSET ?2";
    let crowded_out = connection
        .query_row(sql, params![seat, bound(UNACKED_MAX) - 1], |row| {
            number(row, 0)
        })
        .optional()?;
    // Its own result is not answered yet, whatever it says.
    let acked = command.acked.max(crowded_out.unwrap_or_default());
    let acked = acked.min(command.n.saturating_sub(1));
    Ok(raised_floor(floor, acked, highest))
}

fn number(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(i64::cast_unsigned)
}

#[expect(
    clippy::cast_possible_wrap,
    clippy::as_conversions,
    reason = "a small constant"
)]
const fn bound(bound: usize) -> i64 {
    bound as i64
}
