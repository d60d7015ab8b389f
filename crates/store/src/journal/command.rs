//! A command in the journal: decided, then given its effect and its result in one transaction.

use std::path::Path;

use earshot_proto::lease::{BodyDigest, Command};
use rusqlite::Transaction;

use super::{
    error::{CommitError, Fault},
    record::Batch,
    seat::{self, Seat, SeatHash},
};

/// Bytes of one result: what a caller is answered, with room to spare.
pub const RESULT_BYTES_MAX: usize = 1024 * 1024;

/// What tells one command from every other, and from its own repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandKey {
    /// Who commands.
    pub seat: SeatHash,
    /// The seat's number for it, from 1 and rising.
    pub n: u64,
    /// Digest of its body.
    pub digest: BodyDigest,
    /// The seat has every answer up to this number, below `n`: their results are dropped.
    pub acked: u64,
    /// Whether it may run again when a first run may have had its effect outside the journal.
    pub idempotent: bool,
}

impl CommandKey {
    /// Returns the part that the decision looks at.
    pub(super) const fn command(&self) -> Command {
        Command {
            n: self.n,
            digest: self.digest,
            idempotent: self.idempotent,
        }
    }
}

/// What is to be done about a command.
#[derive(Debug)]
#[must_use = "a command is decided to be carried out or answered"]
pub enum Begun<'j> {
    /// Give it its effect.
    Run(Execution<'j>),
    /// It had its effect before: answer the same.
    Answered(Receipt),
    /// The same number was used for another body: refuse.
    Conflict,
    /// Its number lies below the floor, or its seat is not known: refuse, it is not run.
    Gone,
    /// It may have had its effect outside the journal: answer that the outcome is unknown.
    OutcomeUnknown,
}

/// A command within the transaction that gives it its effect; dropped, nothing is kept.
///
/// A refusal is a result too and ends in [`Execution::finish`]: a seat whose first command left no
/// trace would stay unknown, and its next one be refused as `gone`. Only what the node itself could
/// not do is dropped, and may be sent again.
#[derive(Debug)]
#[must_use = "dropped, it has no effect"]
pub struct Execution<'j> {
    pub(super) transaction: Transaction<'j>,
    pub(super) path: &'j Path,
    pub(super) command: CommandKey,
    pub(super) seat: Seat,
}

/// The leave to answer a command: what it is answered is on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the caller waits for its answer"]
pub struct Receipt {
    result: Vec<u8>,
}

/// A command whose effect outside the journal may begin: that it did is on the disk.
#[derive(Debug)]
#[must_use = "without its end, the command's outcome stays unknown"]
pub struct Started {
    pub(super) command: CommandKey,
}

impl Execution<'_> {
    /// Writes the command's effect and its result, and returns the leave to answer it.
    pub fn finish(self, effect: &Batch, result: Vec<u8>) -> Result<Receipt, CommitError> {
        let receipt = Receipt::of(result)?;
        self.commit(effect, Some(&receipt.result))?;
        Ok(receipt)
    }

    /// Writes down that an effect outside the journal begins now.
    ///
    /// Before the effect begins, the caller makes sure that its node still holds the lease: what a
    /// stopped process commits when it goes on may be in a file that was left behind.
    ///
    /// [`Journal::finish_started`](super::Journal::finish_started) writes down its end. A command
    /// that is sent again in between, or after a crash, is answered that its outcome is unknown.
    pub fn start(self) -> Result<Started, CommitError> {
        let command = self.command;
        self.commit(&Batch::default(), None)?;
        Ok(Started { command })
    }

    /// Gives the command up without a trace, so that it may be sent again.
    pub fn abort(self) -> Result<(), CommitError> {
        let path = self.path;
        let undone = self.transaction.rollback();
        Ok(undone.map_err(|error| Fault::of(path, error))?)
    }

    fn commit(self, effect: &Batch, result: Option<&[u8]>) -> Result<(), CommitError> {
        let path = self.path;
        let fault = |error| Fault::of(path, error);
        effect.write(&self.transaction).map_err(fault)?;
        seat::note(&self.transaction, &self.command, self.seat, result).map_err(fault)?;
        Ok(self.transaction.commit().map_err(fault)?)
    }
}

impl Receipt {
    /// Returns the receipt of a result that is about to be written.
    pub(super) fn of(result: Vec<u8>) -> Result<Self, CommitError> {
        if result.len() > RESULT_BYTES_MAX {
            let bytes = result.len();
            return Err(CommitError::ResultTooLarge { bytes });
        }
        Ok(Self { result })
    }

    /// Returns the receipt of a result that was written.
    pub(super) const fn written(result: Vec<u8>) -> Self {
        Self { result }
    }

    /// Returns what was written.
    pub(super) fn result(&self) -> &[u8] {
        &self.result
    }

    /// Returns what to answer.
    pub fn into_result(self) -> Vec<u8> {
        self.result
    }
}
