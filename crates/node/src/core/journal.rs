//! Persisting before answering: what a step changed is in the journal before anybody hears of it.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use earshot_capability::{Call, Code, Failure};
use earshot_proto::{
    board::{Board, Changes, PeerKey},
    lease::{BodyDigest, Epoch},
};
use earshot_store::{
    Batch, Begun, CommandKey, CommitError, Execution, Fault, Journal, OpenError, PeerEntry,
    SEATS_MAX, SeatHash,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{NodeHandle, State, seats};
use crate::{clock, lease::writer_of};

/// Where the node keeps what must outlive it.
#[derive(Debug)]
pub(super) enum Keeping {
    /// Nowhere: a client is served alone.
    Nowhere,
    /// Nothing may be written: no lease is held, or not yet.
    Stopped,
    /// In the journal of this tenure.
    Journal(Box<Journal>),
}

/// What is done about a journal that another process keeps locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locked {
    /// It is waited for.
    Wait,
    /// A copy of it is used.
    LeaveBehind,
}

/// How raising the fence went.
#[derive(Debug)]
pub(crate) enum Fenced {
    /// It is raised.
    Raised,
    /// A newer node was there.
    Higher,
    /// Another process keeps the journal locked.
    Busy,
    /// It could not be raised; why, and what to do.
    Failed(String),
}

/// A step that could not be taken here at all: nobody is answered, so that the caller looks for the
/// node that can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lost;

/// Whether a command may run again although its number lies below the floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repetition {
    /// No: it is gone.
    Gone,
    /// Yes: what it says carries its own order (`attacks.md` 17).
    Ordered,
}

/// What a command answered, as the journal keeps it for a repetition.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kept<O> {
    Answer(O),
    Refusal {
        code: String,
        message: String,
        remedy: String,
    },
}

impl<O> Kept<O> {
    fn of(outcome: Result<O, Failure>) -> Self {
        match outcome {
            Ok(answer) => Self::Answer(answer),
            Err(Failure {
                code,
                message,
                remedy,
            }) => Self::Refusal {
                code: code.as_str().to_owned(),
                message,
                remedy,
            },
        }
    }

    fn into_outcome(self) -> Result<O, Failure> {
        match self {
            Self::Answer(answer) => Ok(answer),
            Self::Refusal {
                code,
                message,
                remedy,
            } => Err(Failure::new(
                Code::parse(&code).unwrap_or(Code::Internal),
                message,
                remedy,
            )),
        }
    }
}

impl NodeHandle {
    /// Runs a command on the node's thread: once, however often it is sent.
    ///
    /// The step says what it answers and what it changed; both are on the disk before this returns.
    ///
    /// # Errors
    /// The step's own refusal, `conflict` and `gone` for a number that was used before, and
    /// `unavailable` when the node cannot keep what it would acknowledge.
    ///
    /// # Cancel safety
    /// A command that was queued is run even when nobody waits for its answer any more.
    pub(crate) async fn command<O>(
        &self,
        call: &Call,
        repetition: Repetition,
        step: impl FnOnce(&mut State) -> (Result<O, Failure>, Changes) + Send + 'static,
    ) -> Result<O, Failure>
    where
        O: Serialize + DeserializeOwned + Send + 'static,
    {
        let key = command_key(call);
        self.ask_or_abandon(&call.caller, move |state| match key {
            Some(key) => state.once(key, repetition, step),
            None => state.kept(step),
        })
        .await?
    }

    /// Opens the journal for a tenure and shuts every older node out of it. Blocks.
    pub(crate) fn raise_fence(&self, path: PathBuf, epoch: Epoch, locked: Locked) -> Fenced {
        self.ask_blocking(move |state| state.raise_fence(&path, epoch, locked))
            .unwrap_or_else(|| Fenced::Failed("the node has ended".to_owned()))
    }

    /// Takes over what the journal holds. Blocks.
    pub(crate) fn import(&self) -> Result<(), String> {
        self.ask_blocking(State::import)
            .unwrap_or_else(|| Err("the node has ended".to_owned()))
    }

    /// Lets go of the journal at once. Blocks.
    pub(crate) fn stop_writes(&self) {
        self.ask_blocking(State::stop_writes);
    }

    /// Says whether the journal is still the file that its path leads to. Blocks.
    pub(crate) fn is_journal_in_place(&self) -> bool {
        self.ask_blocking(|state| match &state.keeping {
            Keeping::Journal(journal) => journal.is_in_place().unwrap_or(true),
            Keeping::Nowhere | Keeping::Stopped => true,
        })
        .unwrap_or(true)
    }

    /// Counts one step of the node's thread, when it comes to it.
    pub(crate) fn count_progress(&self, counter: &Arc<AtomicU64>) {
        let counter = Arc::clone(counter);
        self.tell(move |_| {
            counter.fetch_add(1, Ordering::Release);
        });
    }

    /// Ends the journal in order: wire sessions end, and nothing is written afterwards.
    pub(crate) async fn drain(&self) -> Result<(), Failure> {
        self.ask(State::drain).await
    }
}

/// Returns the key of a command that carries one.
fn command_key(call: &Call) -> Option<CommandKey> {
    let (seat, request) = (call.caller.seat.as_ref()?, call.caller.request?);
    Some(CommandKey {
        seat: SeatHash::of(&PeerKey::Seat(*seat.bits())),
        n: request.n,
        digest: BodyDigest::new(call.digest),
        acked: request.acked,
        idempotent: false,
    })
}

impl State {
    fn raise_fence(&mut self, path: &Path, epoch: Epoch, locked: Locked) -> Fenced {
        match self.open_journal(path, epoch, locked) {
            Ok(journal) => {
                if let Err(error) = journal.remove_left_behind(path) {
                    tracing::warn!(%error, "a journal that was left behind stays");
                }
                self.keeping = Keeping::Journal(Box::new(journal));
                Fenced::Raised
            }
            Err(OpenError::Superseded { .. }) => Fenced::Higher,
            Err(OpenError::Fault(Fault::Busy { .. })) => Fenced::Busy,
            Err(error) => Fenced::Failed(error.to_string()),
        }
    }

    fn open_journal(
        &self,
        path: &Path,
        epoch: Epoch,
        locked: Locked,
    ) -> Result<Journal, OpenError> {
        let checkout = self.checkout_id.as_str();
        let current = Journal::current(path)?;
        match Journal::open(&current, checkout, epoch) {
            Err(OpenError::Fault(error @ Fault::Busy { .. })) if locked == Locked::LeaveBehind => {
                tracing::warn!(%error, "the journal is left behind, and a copy of it used");
                Journal::leave_behind(path, checkout, epoch)
            }
            // Nothing in it can be used, and a checkout is never stuck: it is kept aside.
            Err(
                error @ (OpenError::Fault(Fault::Corrupt { .. })
                | OpenError::Foreign { .. }
                | OpenError::OtherCheckout { .. }),
            ) => {
                tracing::error!(%error, "the journal is put aside, and a new one begun");
                put_aside(&current, epoch).map_err(|error| Fault::Io {
                    path: current.clone(),
                    source: error.into(),
                })?;
                Journal::open(&current, checkout, epoch)
            }
            opened => opened,
        }
    }

    /// Reads the journal. A new and empty one, in a folder that was wiped from under this very
    /// process, is filled with what the process still holds: it was acknowledged.
    fn import(&mut self) -> Result<(), String> {
        let Keeping::Journal(journal) = &mut self.keeping else {
            return Err("no journal is open".to_owned());
        };
        let loaded = journal.load().map_err(|error| error.to_string())?;
        for refused in &loaded.refused {
            tracing::error!(%refused, "the journal holds something that cannot be read");
        }
        if loaded.peers.is_empty() && loaded.wire_sessions.is_empty() {
            return self.write_all().map_err(|error| error.to_string());
        }
        self.take_in(loaded);
        Ok(())
    }

    fn take_in(&mut self, loaded: earshot_store::Loaded) {
        let now = clock::now();
        self.sessions.clear();
        self.bound.clear();
        let sessions: Vec<_> = loaded
            .peers
            .iter()
            .map(|entry| (entry.record.id, entry.session.clone()))
            .collect();
        let records = loaded.peers.into_iter().map(|entry| entry.record).collect();
        let restored = Board::restore(self.case, records, now);
        for (id, error) in &restored.refused {
            tracing::error!(id, %error, "a row of the journal cannot be taken in");
        }
        self.board = restored.board;
        // Streams that are open still are: the journal knows nothing of them.
        let wall = clock::wall();
        for (stream, (key, _)) in &self.streams {
            self.board.stream_opened(key, *stream, wall).ok(); // its row is gone
        }
        // Those that this process gave out are in use; the others have yet to come back.
        let mine = std::mem::take(&mut self.wire);
        for record in loaded.wire_sessions {
            if !mine.contains_key(&record.id) {
                self.unclaimed.insert(record.id.clone(), now);
            }
            self.wire.insert(record.id.clone(), record);
        }
        for (id, session) in sessions {
            let key = earshot_proto::PeerId::new(id)
                .and_then(|peer| self.board.row(peer))
                .map(|row| row.key().clone());
            if let (Some(key), Some(session)) = (key, session) {
                self.bound.insert(key.clone(), session.clone());
                self.sessions.insert(session, key);
            }
        }
        if let Err(error) = self.write(&restored.changes) {
            tracing::error!(?error, "what the journal holds beyond its bounds stays");
        }
        self.share_all();
    }

    /// Writes everything into a journal that has nothing.
    fn write_all(&mut self) -> Result<(), CommitError> {
        let mut all = Changes::default();
        all.put.extend(self.board.rows().map(|row| row.id));
        let mut batch = self.batch(&all);
        batch.wire_sessions.extend(self.wire.values().cloned());
        let Keeping::Journal(journal) = &mut self.keeping else {
            return Ok(());
        };
        journal.write(&batch)?;
        for (seat, n) in &self.seats {
            journal.introduce(*seat, *n)?;
        }
        Ok(())
    }

    pub(super) fn stop_writes(&mut self) {
        if !matches!(self.keeping, Keeping::Nowhere) {
            self.keeping = Keeping::Stopped;
        }
    }

    fn drain(&mut self) {
        let direct: Vec<PeerKey> = self
            .board
            .rows()
            .map(|row| row.key().clone())
            .filter(|key| matches!(key, PeerKey::WireSession(_)))
            .collect();
        let mut changes = Changes::default();
        for key in direct {
            merge(&mut changes, self.board.detach(&key).changes);
        }
        let mut batch = self.batch(&changes);
        batch
            .wire_sessions_deleted
            .extend(std::mem::take(&mut self.wire).into_keys());
        if let Keeping::Journal(mut journal) =
            std::mem::replace(&mut self.keeping, Keeping::Stopped)
        {
            let ended = journal.write(&batch).and_then(|()| journal.drain());
            if let Err(error) = ended {
                tracing::warn!(%error, "the journal was not ended in order; nothing in it is lost");
            }
        }
    }

    /// Runs a step whose changes are kept before its answer is given.
    pub(super) fn kept<O>(
        &mut self,
        step: impl FnOnce(&mut Self) -> (Result<O, Failure>, Changes),
    ) -> Result<Result<O, Failure>, Lost> {
        if matches!(self.keeping, Keeping::Stopped) {
            return Err(Lost);
        }
        let (outcome, changes) = step(self);
        match self.write(&changes) {
            Ok(()) => Ok(outcome),
            Err(error) => self.unkept(&error).map(Err),
        }
    }

    /// Runs a command that carries a key, once.
    fn once<O: Serialize + DeserializeOwned>(
        &mut self,
        key: CommandKey,
        repetition: Repetition,
        step: impl FnOnce(&mut Self) -> (Result<O, Failure>, Changes),
    ) -> Result<Result<O, Failure>, Lost> {
        // Taken out, so that the open transaction and the step can go side by side.
        let mut journal = match std::mem::replace(&mut self.keeping, Keeping::Stopped) {
            Keeping::Journal(journal) => journal,
            Keeping::Stopped => return Err(Lost),
            Keeping::Nowhere => {
                self.keeping = Keeping::Nowhere;
                return self.kept(step);
            }
        };
        self.saw(key.seat, key.n);
        let decided = match journal.begin(&key) {
            Ok(Begun::Run(execution)) => self.execute(execution, step),
            Ok(Begun::Answered(receipt)) => Decided::Outcome(read_kept(&receipt.into_result())),
            Ok(Begun::Conflict) => Decided::Outcome(Err(conflict())),
            Ok(Begun::OutcomeUnknown) => Decided::Outcome(Err(outcome_unknown())),
            Ok(Begun::Gone) => Decided::Gone(step),
            Err(error) => Decided::Unkept(error),
        };
        self.keeping = Keeping::Journal(journal);
        match decided {
            Decided::Outcome(outcome) => Ok(outcome),
            Decided::Gone(step) if repetition == Repetition::Ordered => self.kept(step),
            Decided::Gone(_) => self.gone(key).map(Err),
            Decided::Unkept(error) => self.unkept(&error).map(Err),
        }
    }

    fn execute<O: Serialize, S>(&mut self, execution: Execution<'_>, step: S) -> Decided<O, S>
    where
        S: FnOnce(&mut Self) -> (Result<O, Failure>, Changes),
    {
        let (outcome, changes) = step(self);
        let kept = Kept::of(outcome);
        let Ok(result) = serde_json::to_vec(&kept) else {
            return Decided::Outcome(Err(Failure::new(
                Code::Internal,
                "the answer could not be written",
                "Report this as a fault of earshot.",
            )));
        };
        match execution.finish(&self.batch(&changes), result) {
            Ok(_receipt) => {
                self.share(&changes);
                Decided::Outcome(kept.into_outcome())
            }
            Err(error) => Decided::Unkept(error),
        }
    }

    /// Refuses a command whose number was used up. A seat that this journal never met, because an
    /// older one was lost, is known from now on, so that only this command is refused.
    fn gone(&mut self, key: CommandKey) -> Result<Failure, Lost> {
        if let Keeping::Journal(journal) = &mut self.keeping
            && let Err(error) = journal.introduce(key.seat, key.n)
        {
            return self.unkept(&error);
        }
        Ok(Failure::new(
            Code::Gone,
            "this command may have been carried out before and is not run again",
            "Look at the board, then send it anew if it is still needed.",
        ))
    }

    /// Notes a seat's number; a seat that begins at 1 is made known at once.
    pub(super) fn saw(&mut self, seat: SeatHash, n: u64) {
        let new = seats::note(&mut self.seats, seat, n, SEATS_MAX);
        if new
            && n == 1
            && let Keeping::Journal(journal) = &mut self.keeping
            && let Err(error) = journal.introduce(seat, 0)
        {
            // Its first command says so again, and is refused where it cannot be kept.
            self.seats.remove(&seat);
            tracing::warn!(%error, "a client cannot be made known to the journal");
        }
    }

    /// Makes a seat known whose client arrives with this number. Lower ones are not run any more:
    /// a journal that was lost may have seen them.
    pub(super) fn introduce(&mut self, seat: SeatHash, n: u64) {
        seats::note(&mut self.seats, seat, n, SEATS_MAX);
        if let Keeping::Journal(journal) = &mut self.keeping
            && let Err(error) = journal.introduce(seat, n.saturating_sub(1))
        {
            tracing::warn!(%error, "a client cannot be made known to the journal");
        }
    }

    /// Writes what changed by itself; what cannot be written now, with the next heartbeat.
    pub(super) fn write_or_later(&mut self, changes: Changes) {
        let mut all = std::mem::take(&mut self.unwritten);
        merge(&mut all, changes);
        if let Err(error) = self.write(&all) {
            tracing::warn!(%error, "what changed by itself is written later");
            self.unwritten = all;
        }
    }

    /// Writes changes that nobody commanded.
    pub(super) fn write(&mut self, changes: &Changes) -> Result<(), CommitError> {
        let batch = self.batch(changes);
        self.write_batch(&batch)?;
        self.share(changes);
        Ok(())
    }

    pub(super) fn write_batch(&mut self, batch: &Batch) -> Result<(), CommitError> {
        match &mut self.keeping {
            Keeping::Journal(journal) => journal.write(batch),
            Keeping::Nowhere | Keeping::Stopped => Ok(()),
        }
    }

    /// Collects what changed, as the journal takes it.
    fn batch(&self, changes: &Changes) -> Batch {
        let entry = |peer: &earshot_proto::PeerId| {
            let session = self
                .board
                .row(*peer)
                .and_then(|row| self.bound.get(row.key()));
            let record = self.board.record(*peer)?;
            Some(PeerEntry {
                record,
                session: session.cloned(),
            })
        };
        Batch {
            peers: changes.put.iter().filter_map(entry).collect(),
            peers_deleted: changes.deleted.iter().copied().collect(),
            ..Batch::default()
        }
    }

    /// Goes back to what is on the disk after a change that is not, and says why.
    pub(super) fn unkept(&mut self, error: &CommitError) -> Result<Failure, Lost> {
        if let CommitError::Fenced { .. } = error {
            tracing::warn!(%error, "nothing more is written");
            self.keeping = Keeping::Stopped;
            return Err(Lost);
        }
        tracing::error!(%error, "a change could not be kept");
        if let Keeping::Journal(journal) = &mut self.keeping {
            match journal.load() {
                Ok(loaded) => self.take_in(loaded),
                Err(error) => tracing::error!(%error, "the journal cannot be read back"),
            }
        }
        Ok(Failure::new(
            Code::Unavailable,
            format!(
                "the change was not made, because it cannot be kept: {error}{}",
                writer(error)
            ),
            "Remove the cause that is named, then try again.",
        ))
    }
}

/// Names the process that keeps the journal locked, where the kernel tells.
fn writer(error: &CommitError) -> String {
    let CommitError::Fault(Fault::Busy { path }) = error else {
        return String::new();
    };
    writer_of(path).map_or_else(String::new, |pid| format!(" (it is process {pid})"))
}

/// What became of a command within its transaction.
enum Decided<O, S> {
    Outcome(Result<O, Failure>),
    Gone(S),
    Unkept(CommitError),
}

fn read_kept<O: DeserializeOwned>(bytes: &[u8]) -> Result<O, Failure> {
    match serde_json::from_slice::<Kept<O>>(bytes) {
        Ok(kept) => kept.into_outcome(),
        // Another release answered it in a form that this one does not know.
        Err(_) => Err(outcome_known_elsewhere()),
    }
}

fn conflict() -> Failure {
    Failure::new(
        Code::Conflict,
        "another command was sent with this number before",
        "Give each command a number of its own.",
    )
}

fn outcome_unknown() -> Failure {
    Failure::new(
        Code::Unavailable,
        "the command was begun before a crash, and whether it took effect is not known",
        "Look at what it should have changed before sending it anew.",
    )
}

fn outcome_known_elsewhere() -> Failure {
    Failure::new(
        Code::Gone,
        "the command was carried out by another release, whose answer cannot be read",
        "Look at the board: it took effect once.",
    )
}

/// Adds changes to others.
pub(super) fn merge(into: &mut Changes, more: Changes) {
    into.put.extend(more.put);
    into.deleted.extend(more.deleted);
}

/// Moves a journal that cannot be used out of the way, with the files beside it.
fn put_aside(path: &Path, epoch: Epoch) -> std::io::Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        let mut from = path.as_os_str().to_owned();
        from.push(suffix);
        let mut to = path.as_os_str().to_owned();
        to.push(format!(".aside-{epoch}{suffix}"));
        match fs_err::rename(PathBuf::from(from), PathBuf::from(to)) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
