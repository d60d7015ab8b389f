//! The tables of a journal, release by release.

use std::path::Path;

use earshot_proto::lease::Epoch;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, TransactionBehavior, params};

use super::error::{Fault, OpenError};

/// What marks a SQLite file as a journal of earshot, in its header. Never changes.
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"Ears");

/// Each step leads from the schema of its position to the next one. A released step never changes.
///
/// The table `fence` and its columns are frozen for all releases: a node of any release must be
/// able to shut one of any other out.
const MIGRATIONS: [&str; 1] = [include_str!("schema/1.sql")];

/// The newest schema that this release reads and writes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::as_conversions,
    reason = "a handful"
)]
pub(super) const NEWEST: u32 = MIGRATIONS.len() as u32;

/// What the header of a file says.
enum Header {
    /// It has no tables yet.
    Blank,
    /// It is a journal of this schema.
    Journal(u32),
    /// It belongs to another program.
    Foreign,
}

fn header(connection: &Connection) -> rusqlite::Result<Header> {
    let application: i32 = connection.pragma_query_one(None, "application_id")?;
    let schema: u32 = connection.pragma_query_one(None, "user_version")?;
    let tables: i64 =
        connection.query_one("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match (application, schema, tables) {
        (APPLICATION_ID, 1.., 1..) => Header::Journal(schema),
        (0, 0, 0) => Header::Blank,
        _ => Header::Foreign,
    })
}

/// Returns the schema of a journal, 0 for a file without tables; refuses a file of another program
/// and one of a later release.
pub(super) fn judge(connection: &Connection, path: &Path) -> Result<u32, OpenError> {
    match header(connection) {
        Ok(Header::Journal(schema)) if schema > NEWEST => Err(OpenError::Later {
            path: path.to_owned(),
            schema,
            newest: NEWEST,
        }),
        Ok(Header::Blank) => Ok(0),
        Ok(Header::Journal(schema)) => Ok(schema),
        Ok(Header::Foreign) => Err(foreign(path)),
        Err(error) => Err(unreadable(path, error)),
    }
}

/// The highest epoch that opened a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// That epoch.
    pub epoch: Epoch,
    /// Whether its node ended in order, having written all it had to write.
    pub drained: bool,
}

/// Returns the fence of a journal, `None` for a file without tables.
pub(super) fn read_fence(connection: &Connection, path: &Path) -> Result<Option<Fence>, OpenError> {
    match header(connection).map_err(|error| unreadable(path, error))? {
        Header::Blank => Ok(None),
        Header::Foreign => Err(foreign(path)),
        Header::Journal(_) => {
            let row = fence_row(connection).map_err(|error| Fault::of(path, error))?;
            let corrupt = || Fault::Corrupt {
                path: path.to_owned(),
            };
            Ok(Some(row.ok_or_else(corrupt)?.1))
        }
    }
}

/// Returns the checkout of a journal and its fence.
fn fence_row(connection: &Connection) -> rusqlite::Result<Option<(String, Fence)>> {
    let sql = "SELECT checkout, epoch, drained FROM fence";
    connection
        .query_row(sql, [], |row| {
            let epoch: i64 = row.get(1)?;
            let fence = Fence {
                epoch: Epoch::new(epoch.cast_unsigned()),
                drained: row.get(2)?,
            };
            Ok((row.get(0)?, fence))
        })
        .optional()
}

/// Brings a file up to the newest schema and raises its fence, all or nothing.
pub(super) fn take_over(
    connection: &mut Connection,
    path: &Path,
    checkout: &str,
    epoch: Epoch,
) -> Result<(), OpenError> {
    let fault = |error| Fault::of(path, error);
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(fault)?;
    // Another process may have been faster since the file was judged.
    let schema = judge(&transaction, path)?;
    if schema > 0 {
        judge_fence(&transaction, path, checkout, epoch)?;
    }
    if schema < NEWEST {
        migrate(&transaction, schema).map_err(fault)?;
    }
    let sql = "INSERT INTO fence (one, checkout, epoch, drained) VALUES (1, ?1, ?2, 0)
               ON CONFLICT (one) DO UPDATE SET epoch = excluded.epoch, drained = 0";
    transaction
        .execute(sql, params![checkout, epoch.number().cast_signed()])
        .map_err(fault)?;
    transaction.commit().map_err(fault)?;
    Ok(())
}

/// Refuses the journal of a newer node and of another checkout.
fn judge_fence(
    connection: &Connection,
    path: &Path,
    checkout: &str,
    epoch: Epoch,
) -> Result<(), OpenError> {
    let row = fence_row(connection).map_err(|error| Fault::of(path, error))?;
    let Some((found, fence)) = row else {
        let path = path.to_owned();
        return Err(Fault::Corrupt { path }.into());
    };
    if found != checkout {
        let path = path.to_owned();
        return Err(OpenError::OtherCheckout { path, found });
    }
    if fence.epoch > epoch {
        return Err(OpenError::Superseded {
            path: path.to_owned(),
            fence: fence.epoch,
            epoch,
        });
    }
    Ok(())
}

fn migrate(connection: &Connection, schema: u32) -> rusqlite::Result<()> {
    let done = usize::try_from(schema).unwrap_or(usize::MAX);
    for step in MIGRATIONS.iter().skip(done) {
        connection.execute_batch(step)?;
    }
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", NEWEST)
}

fn foreign(path: &Path) -> OpenError {
    OpenError::Foreign {
        path: path.to_owned(),
    }
}

/// Tells a file that is no database from a database that fails.
fn unreadable(path: &Path, error: rusqlite::Error) -> OpenError {
    if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) {
        foreign(path)
    } else {
        Fault::of(path, error).into()
    }
}
