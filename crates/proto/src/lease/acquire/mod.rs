//! The life of a node as far as its lease is concerned, from the first look to the end.
//!
//! ```text
//! Electing -> Starting(e) -> Serving(e) -> Draining(e) -> Ended
//!     ^            |             |
//!     +------------+-------------+   lease, alive file or database gone from under it
//! ```
//!
//! Inputs are results of effects, the timer, and the wish to stop. Effects fall in two kinds. Those
//! on the lease and its alive file (`Examine`, `MakeAlive`, `LockLease`, `WriteLease`,
//! `UnlockLease`, `DropAlive`, `LookAtFiles`, `Beat`) are carried out one after another, in order,
//! and each result is handed in before the next of them is begun. Those that carry an epoch run
//! beside them, and their results carry it back. `StopWrites` comes before everything else.
//!
//! Invariants, whatever the shell reports and in whatever order:
//!
//! 1. The lease is written only between `LeaseLocked` and `UnlockLease`, and only after it was
//!    judged again in between.
//! 2. The alive file is locked before the lease that names it is written.
//! 3. Every lease of a new tenure has an epoch above the lease, all fences, the wall clock, and every
//!    earlier tenure of this process.
//! 4. `Serve` comes after the fence was raised in every database, after the import, and after a
//!    look under the lock showed the own token.
//! 5. After `StopWrites` nothing runs until another tenure has come all the way to `Serve`.
//! 6. A living holder is never displaced, a hung one only after it was watched, and ended only if
//!    it runs in this very place.
//! 7. `LeaseLocked` is answered by `UnlockLease`, in every state.

mod electing;
mod starting;
mod tenure;

use super::{
    AliveLock, Epoch, EpochsExhausted, Examination, Here, LeaseDocument, LeaseToken, Pid, Place,
    Predecessor, Process, ProcessFact, ReleaseVersion, Timings, Verdict,
};
use crate::Now;
use electing::Electing;
use starting::Starting;
use tenure::{Draining, Serving};

/// What this process is, as its lease will name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Where it runs.
    pub place: Place,
    /// Which process it is.
    pub process: Process,
    /// Path of its executable.
    pub exe: String,
    /// Build of its executable.
    pub build: String,
    /// Release of its executable.
    pub version: String,
    /// Path of the Unix socket that it will listen on.
    pub socket: String,
    /// Id of its node key.
    pub node_id: String,
    /// The timings that it is to be judged by.
    pub timings: Timings,
}

impl Identity {
    fn here(&self) -> Here {
        Here {
            place: self.place.clone(),
            version: ReleaseVersion::new(&self.version),
        }
    }
}

/// Which file a path led to: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// What a look at the own files showed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FilesSeen {
    /// The file that the lease's path leads to; `None` when there is none.
    pub lease: Option<FileId>,
    /// The token in it; `None` when there is none to be read.
    pub token: Option<LeaseToken>,
    /// The file that the own alive file's path leads to; `None` when there is none.
    pub alive: Option<FileId>,
    /// Whether every open database is still the file that its path leads to.
    pub databases_in_place: bool,
    /// Whether the Unix socket, if it is bound, is still what its path leads to.
    pub socket_in_place: bool,
}

/// What a look at one predecessor showed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PredecessorSeen {
    /// Its token.
    pub token: LeaseToken,
    /// Its alive lock.
    pub alive: AliveLock,
    /// Its process.
    pub process: ProcessFact,
}

/// What the shell reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// The process wants to hold the lease; the first input.
    Begin,
    /// The time of the last [`Effect::WakeAt`] has come.
    Woke,
    /// [`Effect::Examine`] was carried out.
    Examined(Examination),
    /// [`Effect::MakeAlive`] was carried out.
    AliveMade {
        /// The new token.
        token: LeaseToken,
        /// The locked file.
        file: FileId,
    },
    /// [`Effect::LockLease`] was carried out; the lock is held.
    LeaseLocked {
        /// The lease and its holder, looked at under the lock, without a probe.
        seen: Examination,
        /// The fence of every database.
        fences: Vec<Epoch>,
    },
    /// [`Effect::LockLease`] met its deadline.
    LockBusy {
        /// The process that holds the lock, where the kernel tells.
        holder: Option<Pid>,
    },
    /// [`Effect::WriteLease`] was carried out, down to the folder's fsync.
    LeaseWritten {
        /// The new file.
        file: FileId,
    },
    /// An effect on the lease or the alive file failed: a full disk, a file of another owner.
    FilesFailed {
        /// What failed, naming the file and the remedy.
        why: String,
    },
    /// [`Effect::LookAtFiles`] was carried out.
    FilesLooked(FilesSeen),
    /// [`Effect::BindSocket`] was carried out.
    SocketBound {
        /// Epoch of the effect.
        epoch: Epoch,
    },
    /// [`Effect::LookAtPredecessors`] was carried out.
    PredecessorsLooked {
        /// Epoch of the effect.
        epoch: Epoch,
        /// One entry for each.
        seen: Vec<PredecessorSeen>,
    },
    /// [`Effect::RaiseFence`] was carried out in every database.
    FenceRaised {
        /// Epoch of the effect.
        epoch: Epoch,
    },
    /// [`Effect::RaiseFence`] met a fence that is not lower: somebody newer was there.
    FenceHigher {
        /// Epoch of the effect.
        epoch: Epoch,
    },
    /// [`Effect::RaiseFence`] met a database that another process keeps locked.
    FenceBusy {
        /// Epoch of the effect.
        epoch: Epoch,
    },
    /// [`Effect::Import`] was carried out.
    Imported {
        /// Epoch of the effect.
        epoch: Epoch,
    },
    /// [`Effect::BindListeners`] was carried out.
    ListenersBound {
        /// Epoch of the effect.
        epoch: Epoch,
        /// The url for direct clients; `None` when no port could be bound.
        url: Option<String>,
        /// The address of the link endpoint; `None` when there is none.
        quic: Option<String>,
    },
    /// An effect that carries an epoch failed.
    WorkFailed {
        /// Epoch of the effect.
        epoch: Epoch,
        /// What failed, and the remedy.
        why: String,
    },
    /// [`Effect::Drain`] was carried out.
    Drained {
        /// Epoch of the effect.
        epoch: Epoch,
    },
    /// A request came while [`Lifecycle::permit`] says [`Permit::LookFirst`].
    LookWanted,
    /// The process is to end in order.
    Stop,
}

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Let go of every database at once: roll back what runs, begin nothing.
    StopWrites,
    /// Hand in [`Input::Woke`] at this time; takes the place of the time given before.
    WakeAt(Now),
    /// Read the lease, try its alive lock, look at its process, probe its socket.
    Examine,
    /// Mint a token and make its alive file: temporary name, flock, fsync, rename, fsync folder.
    MakeAlive,
    /// Lock `lease.lock`, compare descriptor and path, and look at lease, holder and fences.
    LockLease {
        /// When to give up.
        deadline: Now,
    },
    /// Write the lease: temporary file, fsync, rename, fsync folder.
    ///
    /// Just before the rename, compare descriptor and path of `lease.lock` once more, and fail if
    /// they part: a deleted lock file lets a second process in.
    WriteLease(Box<LeaseDocument>),
    /// Unlock `lease.lock` if it is held, whether or not the write before it went well.
    UnlockLease,
    /// Close the own alive file; it stays where it is, free, which proves that the tenure is over.
    ///
    /// Whoever serves removes alive files that are free and that its lease does not name.
    DropAlive,
    /// Touch the own alive file, if the dispatcher made progress.
    Beat,
    /// Compare the inodes of lease, alive file, databases and socket with their paths.
    LookAtFiles,
    /// Listen on the Unix socket, in the place of whatever has its path: queue requests (bounded),
    /// execute none before `Serve`. While the node serves, this only gives the path back.
    BindSocket {
        /// The tenure's epoch.
        epoch: Epoch,
    },
    /// Try the alive locks of these, and look at their processes.
    LookAtPredecessors {
        /// The tenure's epoch.
        epoch: Epoch,
        /// Those that are waited for.
        predecessors: Vec<Predecessor>,
    },
    /// Kill this process once it is proven to be the one meant: the kernel's lock table names it
    /// for the alive file, or, where that file is gone, its start time is the recorded one.
    ///
    /// The start time alone would not do: the process may have given that tenure up since.
    Kill {
        /// Its number.
        pid: i32,
        /// The tenure that it holds.
        predecessor: Box<Predecessor>,
    },
    /// In each database, one transaction: raise the fence to this epoch where it is lower.
    ///
    /// Tried again after a locked database, it passes over those that it raised before.
    RaiseFence {
        /// The tenure's epoch.
        epoch: Epoch,
    },
    /// Leave every database behind that is still locked: copy what is committed in it into a new
    /// file, whose fence is this epoch, and use that from now on. Databases whose fence was raised
    /// are passed over. Of several files of one database, the one with the highest fence counts.
    ///
    /// The result is that of [`Effect::RaiseFence`]. Who was stopped inside a transaction may commit
    /// it into the old file when it goes on, but answers nothing: see [`Lifecycle::may_answer`].
    LeaveDatabases {
        /// The tenure's epoch.
        epoch: Epoch,
    },
    /// Read the journal; re-arm deadlines from now.
    Import {
        /// The tenure's epoch.
        epoch: Epoch,
    },
    /// Listen on TCP and for links.
    BindListeners {
        /// The tenure's epoch.
        epoch: Epoch,
    },
    /// Serve: first the queue, then what comes.
    Serve {
        /// The tenure's epoch.
        epoch: Epoch,
    },
    /// Take nothing new; let what runs finish until the deadline, then stop writes.
    Drain {
        /// The tenure's epoch.
        epoch: Epoch,
        /// When running calls are cut off.
        deadline: Now,
    },
    /// The machine has come to its end; the process does what is left to do and ends.
    Finish(End),
}

/// How the life of a node came to its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Somebody else holds the lease, or is about to; clients attach there.
    Attach(Verdict),
    /// The lease went to somebody else.
    Superseded,
    /// It ended in order.
    Stopped,
    /// Another process kept `lease.lock` past the deadline.
    LockHeld {
        /// That process, where the kernel tells.
        holder: Option<Pid>,
    },
    /// Another process kept a database locked past the deadline.
    DatabaseBusy,
    /// There is no epoch left.
    Exhausted(EpochsExhausted),
    /// Something could not be done.
    Failed {
        /// What, and the remedy.
        why: String,
    },
}

/// Whether a request may be executed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permit {
    /// Yes, under this epoch, which the transaction compares with the fence.
    Run(Epoch),
    /// Not before a look at the lease: hand in [`Input::LookWanted`], keep the request, ask again.
    LookFirst,
    /// Not yet: keep the request.
    Wait,
    /// Not here: answer that the node has moved.
    Moved,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lifecycle {
    identity: Identity,
    /// Tokens of own tenures that are over, the newest first: their alive files prove nothing about
    /// this process, which would otherwise wait for itself, or kill itself.
    former: Vec<LeaseToken>,
    /// The highest epoch of an own tenure: results that carry one are told apart by it.
    highest: Epoch,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Idle,
    Electing(Electing),
    Starting(Box<Starting>),
    Serving(Box<Serving>),
    Draining(Box<Draining>),
    Ended,
}

/// Where the machine stands, for logs and for status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Nothing was begun.
    Idle,
    /// It holds no lease yet.
    Electing,
    /// It holds the lease of this epoch and does not serve yet.
    Starting(Epoch),
    /// It serves.
    Serving(Epoch),
    /// It finishes what runs.
    Draining(Epoch),
    /// It is done.
    Ended,
}

impl Lifecycle {
    /// Returns a machine that has done nothing yet.
    pub const fn new(identity: Identity) -> Self {
        Self {
            identity,
            former: Vec::new(),
            highest: Epoch::NONE,
            state: State::Idle,
        }
    }

    /// Returns where the machine stands.
    pub fn phase(&self) -> Phase {
        match &self.state {
            State::Idle => Phase::Idle,
            State::Electing(_) => Phase::Electing,
            State::Starting(starting) => Phase::Starting(starting.tenure.epoch()),
            State::Serving(serving) => Phase::Serving(serving.tenure.epoch()),
            State::Draining(draining) => Phase::Draining(draining.tenure.epoch()),
            State::Ended => Phase::Ended,
        }
    }

    /// Returns the token that answers probes, and keys their answers.
    pub fn token(&self) -> Option<&LeaseToken> {
        match &self.state {
            State::Starting(starting) => Some(&starting.tenure.document.token),
            State::Serving(serving) => Some(&serving.tenure.document.token),
            State::Draining(draining) => Some(&draining.tenure.document.token),
            State::Idle | State::Electing(_) | State::Ended => None,
        }
    }

    /// Returns whether a request may be executed now.
    ///
    /// A process whose last look at its files is older than two heartbeats was stopped, or is
    /// overloaded: it looks again before it serves. The fence would stop its writes, but not a
    /// stale read.
    pub fn permit(&self, now: Now) -> Permit {
        match &self.state {
            State::Serving(serving) => serving.tenure.permit(now),
            State::Idle | State::Starting(_) => Permit::Wait,
            // It still holds what the board was when its files went: it is the likely next one.
            State::Electing(_) if !self.former.is_empty() => Permit::Wait,
            State::Electing(_) | State::Draining(_) | State::Ended => Permit::Moved,
        }
    }

    /// Returns whether what was executed may be answered now.
    ///
    /// A process that was stopped inside a transaction commits it when it goes on, perhaps into a
    /// file that its successor has left behind ([`Effect::LeaveDatabases`]). Its last look is old by
    /// then, and the next one shows the successor's lease, so that nobody is told of it. The
    /// successor waits for longer than a look counts before it copies.
    pub fn may_answer(&self, now: Now) -> Permit {
        match &self.state {
            State::Draining(draining) => draining.tenure.permit(now),
            State::Idle | State::Electing(_) | State::Starting(_) | State::Serving(_) => {
                self.permit(now)
            }
            State::Ended => Permit::Moved,
        }
    }

    /// Takes an input and returns what is to be done about it, in order.
    pub fn handle(&mut self, now: Now, input: Input) -> Vec<Effect> {
        match input {
            Input::Begin => self.handle_begin(),
            Input::Woke => self.handle_woke(now),
            Input::Examined(seen) => self.handle_examined(now, &seen),
            Input::AliveMade { token, file } => self.handle_alive_made(now, token, file),
            Input::LeaseLocked { seen, fences } => self.handle_locked(now, &seen, fences),
            Input::LockBusy { holder } => self.handle_unwritten(now, End::LockHeld { holder }),
            Input::LeaseWritten { file } => self.handle_written(now, file),
            Input::FilesFailed { why } => self.handle_unwritten(now, End::Failed { why }),
            Input::FilesLooked(seen) => self.handle_looked(&seen),
            Input::SocketBound { epoch }
            | Input::PredecessorsLooked { epoch, .. }
            | Input::FenceRaised { epoch }
            | Input::FenceHigher { epoch }
            | Input::FenceBusy { epoch }
            | Input::Imported { epoch }
            | Input::ListenersBound { epoch, .. }
            | Input::WorkFailed { epoch, .. } => self.handle_work(now, epoch, input),
            Input::Drained { epoch } => self.handle_drained(now, epoch),
            Input::LookWanted => self.handle_look_wanted(now),
            Input::Stop => self.handle_stop(now),
        }
    }

    fn handle_woke(&mut self, now: Now) -> Vec<Effect> {
        match &mut self.state {
            State::Electing(electing) => electing.handle_woke(),
            State::Starting(starting) => starting.handle_woke(now),
            State::Serving(serving) => serving.tenure.handle_woke(now),
            State::Draining(draining) => draining.tenure.handle_woke(now),
            State::Idle | State::Ended => Vec::new(),
        }
    }

    /// Ends with these last effects.
    fn finish(&mut self, mut effects: Vec<Effect>, end: End) -> Vec<Effect> {
        self.state = State::Ended;
        effects.push(Effect::Finish(end));
        effects
    }
}

#[cfg(test)]
mod tests;
