//! What can go wrong with a journal, by what there is to be done about it.

use std::path::{Path, PathBuf};

use earshot_proto::lease::Epoch;
use rusqlite::{ErrorCode, ffi};

/// The file failed, or was not to be had.
///
/// Nothing of the operation was kept. After [`Fault::Busy`] and [`Fault::DiskFull`] the same may be
/// tried again.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Another process holds the file's write lock, and held it for two seconds.
    #[error(
        "{} is locked by another process: end the one that holds a lock on {}-shm",
        path.display(),
        path.display()
    )]
    Busy {
        /// The journal.
        path: PathBuf,
    },
    /// There is no room on the disk.
    #[error("the disk of {} is full: make room there", path.display())]
    DiskFull {
        /// The journal.
        path: PathBuf,
    },
    /// The file is damaged.
    #[error(
        "{} is damaged: move it away with its -wal and -shm files; clients then attach anew",
        path.display()
    )]
    Corrupt {
        /// The journal.
        path: PathBuf,
    },
    /// The system refused a file operation.
    #[error("{} cannot be used", path.display())]
    Io {
        /// The journal.
        path: PathBuf,
        /// What it said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Why a journal could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A node with a higher epoch opened it before: this one ends.
    #[error("a newer node has taken over {}: its epoch is {fence}, this one's {epoch}", path.display())]
    Superseded {
        /// The journal.
        path: PathBuf,
        /// The fence found.
        fence: Epoch,
        /// The own epoch.
        epoch: Epoch,
    },
    /// It is not a file, not a database, or one of another program.
    #[error("{} is not a journal of earshot: move it away", path.display())]
    Foreign {
        /// What stands in the journal's place.
        path: PathBuf,
    },
    /// It is the journal of another checkout, put here by hand.
    #[error("{} is the journal of the checkout {found}: move it away", path.display())]
    OtherCheckout {
        /// The journal.
        path: PathBuf,
        /// The checkout that it belongs to.
        found: String,
    },
    /// A later release wrote it.
    #[error(
        "{} was written by a later release (schema {schema}, this one reads up to {newest}): \
         use that release, or move the file away",
        path.display()
    )]
    Later {
        /// The journal.
        path: PathBuf,
        /// Its schema.
        schema: u32,
        /// The newest schema that this release reads.
        newest: u32,
    },
    /// The file failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The fence is not this node's any more: it stops, and answers that the node has moved.
    #[error("another node has taken over: the fence is {fence}, this node's epoch {epoch}")]
    Fenced {
        /// The fence found.
        fence: Epoch,
        /// The own epoch.
        epoch: Epoch,
    },
    /// The result is larger than a journal keeps for a repetition.
    #[error("the result of {bytes} bytes is too large to be kept for a repetition")]
    ResultTooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The file failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl Fault {
    /// Returns what an error of the database engine means for the file.
    pub(super) fn of(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy { path },
            Some(ErrorCode::DiskFull) => Self::DiskFull { path },
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt { path },
            // The file that readers and writers share could not grow.
            _ if error.sqlite_extended_error_code() == Some(ffi::SQLITE_IOERR_SHMSIZE) => {
                Self::DiskFull { path }
            }
            // A column is not of its type, a row or a table is missing.
            None => Self::Corrupt { path },
            _ if error.sqlite_extended_error_code() == Some(ffi::SQLITE_ERROR) => {
                Self::Corrupt { path }
            }
            Some(_) => Self::Io {
                path,
                source: error.into(),
            },
        }
    }

    /// Returns the fault of a failed file operation.
    pub(super) fn of_io(path: &Path, error: std::io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { path }
            }
            _ => Self::Io {
                path,
                source: error.into(),
            },
        }
    }
}
