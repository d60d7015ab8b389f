//! The journal of a node: what the next node of its checkout must find again.
//!
//! # Life
//!
//! [`Journal::open`] creates or opens the file and raises its fence to the own epoch, in one
//! transaction and before anything is read. From then on every write compares the fence with that
//! epoch, so that a node whose successor has opened the file can write nothing more. A node that
//! ends in order says so with [`Journal::drain`].
//!
//! A process that was stopped inside a transaction keeps the file locked. Where it cannot be ended,
//! [`Journal::leave_behind`] copies what is committed into a file of its own for the new epoch. Of
//! several files, [`Journal::current`] is the one whose fence is the highest: an epoch that was
//! shut out of one file can therefore begin no other that counts.
//!
//! # A command
//!
//! [`Journal::begin`] opens the transaction and decides, from what is known of the command's seat
//! and number, whether it is run. [`Execution::finish`] writes its effect, its result and its
//! number together, and gives the [`Receipt`] from which alone an answer can be made.
//!
//! # Invariants
//!
//! 1. At most one epoch can commit; none after a higher one opened the file.
//! 2. A command with one (seat, n) takes effect once, or answers that its outcome is unknown where
//!    its effect lies outside the file.
//! 3. What was answered is on the disk. What failed left nothing behind, and the journal goes on.
//! 4. No process waits longer than two seconds for another one's lock.

mod command;
mod error;
mod file;
mod record;
mod schema;
mod seat;

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use earshot_proto::lease::{Decision, Epoch, FileId, Recorded, decide};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

pub use command::{Begun, CommandKey, Execution, RESULT_BYTES_MAX, Receipt, Started};
pub use error::{CommitError, Fault, OpenError};
pub use record::{Batch, Loaded, PeerEntry, Refused, WireSessionRecord};
pub use schema::Fence;
use seat::Seat;
pub use seat::{SEATS_MAX, SeatHash, UNACKED_MAX};

/// How long to wait for another process's lock: an ordinary one lasts milliseconds, and the
/// caller's own patience is longer than this.
const BUSY_WAIT: Duration = Duration::from_secs(2);

/// Bytes that the log beside the file keeps once they were carried over.
const LOG_BYTES_KEPT: i64 = 4 * 1024 * 1024;

/// An open journal, whose fence is this node's epoch or was.
#[derive(Debug)]
pub struct Journal {
    connection: Connection,
    path: PathBuf,
    epoch: Epoch,
    /// The file and the two beside it, as they were when it was opened.
    files: [(PathBuf, Option<FileId>); 3],
}

impl Journal {
    /// Creates or opens the journal of a checkout and shuts every older node out of it.
    ///
    /// A file that this release cannot use is left as it is.
    pub fn open(path: &Path, checkout: &str, epoch: Epoch) -> Result<Self, OpenError> {
        let of_io = |error| Fault::of_io(path, error);
        match file::prepare(path).map_err(of_io)? {
            file::Found::File => {}
            file::Found::Other => {
                let path = path.to_owned();
                return Err(OpenError::Foreign { path });
            }
        }
        let before = file::identity(path).map_err(of_io)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = connect(path, flags)?;
        configure(&connection, path)?;
        schema::take_over(&mut connection, path, checkout, epoch)?;
        let look = |path: PathBuf| file::identity(&path).map(|id| (path, id));
        let files = [
            look(path.to_owned()).map_err(of_io)?,
            look(file::beside(path, "-wal")).map_err(of_io)?,
            look(file::beside(path, "-shm")).map_err(of_io)?,
        ];
        if files.iter().any(|(_, id)| id.is_none()) || files[0].1 != before {
            return Err(of_io(io::Error::other("it was replaced while it was opened")).into());
        }
        Ok(Self {
            connection,
            path: path.to_owned(),
            epoch,
            files,
        })
    }

    /// Returns which of the files of a journal counts, whether or not there is one.
    ///
    /// A file that cannot be read counts as what its name says: it is not passed over in favour of
    /// an older one.
    pub fn current(path: &Path) -> Result<PathBuf, Fault> {
        let files = file::all(path).map_err(|error| Fault::of_io(path, error))?;
        let fence = |(file, named): &(PathBuf, Epoch)| {
            let fence = Self::fence_of(file).ok().flatten();
            fence.map_or(*named, |fence| fence.epoch)
        };
        let current = match files.len() {
            0 | 1 => files.into_iter().next(),
            _ => files.into_iter().max_by_key(fence),
        };
        Ok(current.map_or_else(|| path.to_owned(), |(file, _)| file))
    }

    /// Goes on in a new file, because another process keeps the current one locked: copies what is
    /// committed in it, and raises the fence in the copy.
    ///
    /// What that process commits when it goes on is not in the copy. It must not answer it.
    pub fn leave_behind(path: &Path, checkout: &str, epoch: Epoch) -> Result<Self, OpenError> {
        let locked = Self::current(path)?;
        let file = file::of_epoch(path, epoch);
        let temporary = file::beside(&file, ".new");
        let of_io = |error| Fault::of_io(&file, error);
        file::remove(&temporary).map_err(of_io)?;
        file::prepare(&temporary).map_err(of_io)?;
        let copied = copy(&locked, &temporary, checkout, epoch)
            .and_then(|()| Ok(file::show(&temporary, &file).map_err(of_io)?));
        if copied.is_err() {
            file::remove(&temporary).ok(); // the error that is reported came first
        }
        copied?;
        Self::open(&file, checkout, epoch)
    }

    /// Removes the files of a journal that were left behind and that nobody keeps locked any more.
    pub fn remove_left_behind(&self, path: &Path) -> Result<(), Fault> {
        let of_io = |error| Fault::of_io(path, error);
        for (file, _) in file::all(path).map_err(of_io)? {
            if file != self.path && !is_locked(&file) {
                file::remove(&file).map_err(of_io)?;
            }
        }
        Ok(())
    }

    /// Reads the fence of a journal, of any release, without writing; `None` where there is none.
    ///
    /// A process that holds the journal's write lock, even a stopped one, is no hindrance.
    pub fn fence_of(path: &Path) -> Result<Option<Fence>, OpenError> {
        let found = file::identity(path).map_err(|error| Fault::of_io(path, error))?;
        if found.is_none() {
            return Ok(None);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = connect(path, flags)?;
        schema::read_fence(&connection, path)
    }

    /// Reads everything that a node needs to go on where the last one stopped.
    pub fn load(&mut self) -> Result<Loaded, Fault> {
        let fault = |error| Fault::of(&self.path, error);
        let transaction = self.connection.transaction().map_err(fault)?;
        Loaded::read(&transaction).map_err(fault)
    }

    /// Opens the transaction of a command, and decides about it.
    ///
    /// [`CommitError::Fenced`] means that the node is to stop.
    pub fn begin(&mut self, command: &CommandKey) -> Result<Begun<'_>, CommitError> {
        let (epoch, path) = (self.epoch, self.path.as_path());
        let transaction = immediate(&mut self.connection, path)?;
        let fault = |error| Fault::of(path, error);
        let floor = seat::floor(&transaction, command.seat).map_err(fault)?;
        let fence = fence(&transaction).map_err(fault)?;
        let done = seat::done(&transaction, command.seat, command.n).map_err(fault)?;
        let recorded = Recorded { fence, done, floor };
        Ok(match decide(epoch, command.command(), recorded) {
            // No seat counts that far, and the file could not hold it.
            Decision::Run if i64::try_from(command.n).is_err() => Begun::Gone,
            Decision::Run => Begun::Run(Execution {
                transaction,
                path,
                command: *command,
                seat: floor.map_or(Seat::New, Seat::Known),
            }),
            Decision::Return(result) => Begun::Answered(Receipt::written(result)),
            Decision::Conflict => Begun::Conflict,
            Decision::Gone => Begun::Gone,
            Decision::OutcomeUnknown => Begun::OutcomeUnknown,
            Decision::Moved => return Err(CommitError::Fenced { fence, epoch }),
        })
    }

    /// Makes a seat known whose commands begin above this floor; one that is known stays as it is.
    ///
    /// A seat that commands nothing for a while must still be told, after a crash, from one whose
    /// earlier commands were lost with their journal.
    pub fn introduce(&mut self, seat: SeatHash, floor: u64) -> Result<(), CommitError> {
        self.write_fenced(|transaction| seat::introduce(transaction, seat, floor))
    }

    /// Returns whether a seat is known.
    pub fn knows(&mut self, seat: SeatHash) -> Result<bool, Fault> {
        let floor = seat::floor(&self.connection, seat);
        Ok(floor
            .map_err(|error| Fault::of(&self.path, error))?
            .is_some())
    }

    /// Writes down how an effect outside the journal ended, and returns the leave to answer it.
    ///
    /// May be tried again while it fails.
    pub fn finish_started(
        &mut self,
        started: &Started,
        effect: &Batch,
        result: Vec<u8>,
    ) -> Result<Receipt, CommitError> {
        let receipt = Receipt::of(result)?;
        self.write_fenced(|transaction| {
            effect.write(transaction)?;
            seat::end(transaction, &started.command, receipt.result())
        })?;
        Ok(receipt)
    }

    /// Writes what nobody commanded: departures, a change of branch, what was heard of last.
    pub fn write(&mut self, effect: &Batch) -> Result<(), CommitError> {
        if effect.is_empty() {
            return Ok(());
        }
        self.write_fenced(|transaction| effect.write(transaction))
    }

    /// Says whether the open files are still those that their paths lead to.
    ///
    /// They are not when somebody wiped or replaced the state folder: whatever is written from then
    /// on is lost.
    pub fn is_in_place(&self) -> io::Result<bool> {
        for (path, opened) in &self.files {
            if file::identity(path)? != *opened {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Ends the journal in order: notes that this epoch writes nothing more, and closes the file.
    pub fn drain(mut self) -> Result<(), CommitError> {
        self.write_fenced(|transaction| {
            transaction.execute("UPDATE fence SET drained = 1", [])?;
            Ok(())
        })?;
        // The last one to close carries the log over; a log that stays is carried over later.
        let closed = self.connection.close();
        Ok(closed.map_err(|(_, error)| Fault::of(&self.path, error))?)
    }

    fn write_fenced(
        &mut self,
        write: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), CommitError> {
        let (epoch, path) = (self.epoch, self.path.as_path());
        let fault = |error| Fault::of(path, error);
        let transaction = immediate(&mut self.connection, path)?;
        let fence = fence(&transaction).map_err(fault)?;
        if fence != epoch {
            return Err(CommitError::Fenced { fence, epoch });
        }
        write(&transaction).map_err(fault)?;
        Ok(transaction.commit().map_err(fault)?)
    }
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, Fault> {
    let fault = |error| Fault::of(path, error);
    let connection = Connection::open_with_flags(path, flags).map_err(fault)?;
    connection.busy_timeout(BUSY_WAIT).map_err(fault)?;
    Ok(connection)
}

/// Copies what is committed in a journal into an empty file, and raises the fence there.
fn copy(from: &Path, to: &Path, checkout: &str, epoch: Epoch) -> Result<(), OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = connect(from, flags)?;
    schema::judge(&connection, from)?;
    let name = to.to_string_lossy();
    let fault = |error| Fault::of(from, error);
    connection
        .execute("VACUUM INTO ?1", [name])
        .map_err(fault)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = connect(to, flags)?;
    let fault = |error| Fault::of(to, error);
    connection
        .pragma_update(None, "synchronous", "full")
        .map_err(fault)?;
    schema::take_over(&mut connection, to, checkout, epoch)?;
    let closed = connection.close();
    Ok(closed.map_err(|(_, error)| fault(error))?)
}

/// Says whether a process holds the write lock of a journal; one that cannot be asked is locked.
fn is_locked(path: &Path) -> bool {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let Ok(mut connection) = connect(path, flags) else {
        return true;
    };
    let begun = connection
        .busy_timeout(Duration::ZERO)
        .and_then(|()| connection.transaction_with_behavior(TransactionBehavior::Immediate));
    begun.is_err()
}

/// Refuses what is no sound journal, and sets what every connection that writes needs.
fn configure(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let fault = |error| Fault::of(path, error);
    schema::judge(connection, path)?;
    let sound: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(fault)?;
    if sound != "ok" {
        let path = path.to_owned();
        return Err(Fault::Corrupt { path }.into());
    }
    let set = || -> rusqlite::Result<String> {
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection
            .pragma_update_and_check(None, "journal_size_limit", LOG_BYTES_KEPT, |_| Ok(()))?;
        connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
    };
    let mode = set().map_err(fault)?;
    if mode != "wal" {
        let why = io::Error::other("its file system cannot share memory between processes");
        return Err(Fault::of_io(path, why).into());
    }
    Ok(())
}

fn immediate<'j>(connection: &'j mut Connection, path: &Path) -> Result<Transaction<'j>, Fault> {
    connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(|error| Fault::of(path, error))
}

fn fence(connection: &Connection) -> rusqlite::Result<Epoch> {
    connection.query_row("SELECT epoch FROM fence", [], |row| {
        row.get(0)
            .map(|epoch: i64| Epoch::new(epoch.cast_unsigned()))
    })
}
