//! A simulated process: the real machine of `earshot_proto`, and the shell around it as data.

use std::collections::{BTreeMap, VecDeque};

use earshot_proto::Now;
use earshot_proto::lease::{
    BodyDigest, Effect, Epoch, Identity, LeaseDocument, LeaseToken, Lifecycle, Place, Predecessor,
};

use super::database::Tables;
use super::disk::{Inode, ProcessId};

/// Virtual time in microseconds since the world began.
pub(super) type Micros = u64;

/// Something that is due at a time.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A fault is drawn.
    Chaos,
    /// A client looks what it has to do.
    Turn { client: usize },
    /// A request arrives.
    Deliver { to: ProcessId, request: Request },
    /// An answer arrives.
    Reply {
        client: usize,
        seat: u64,
        n: u64,
        answer: Answered,
    },
    /// A process begins.
    Begin(ProcessId),
    /// A process takes the next step of its work on lease and alive file.
    FileStep(ProcessId),
    /// A process takes the next step of work that runs beside.
    WorkStep { of: ProcessId, work: u64 },
    /// A process takes the next step of a command.
    CommandStep(ProcessId),
    /// A process's timer fires, unless it was set anew.
    Wake { of: ProcessId, generation: u64 },
    /// A stopped process goes on.
    Continue(ProcessId),
}

impl Event {
    /// Returns the process that the event happens in.
    pub(super) const fn process(&self) -> Option<ProcessId> {
        match self {
            Self::Deliver { to, .. } => Some(*to),
            Self::Begin(of)
            | Self::FileStep(of)
            | Self::CommandStep(of)
            | Self::WorkStep { of, .. }
            | Self::Wake { of, .. } => Some(*of),
            Self::Chaos | Self::Turn { .. } | Self::Reply { .. } | Self::Continue(_) => None,
        }
    }
}

/// A command on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) client: usize,
    pub(super) seat: u64,
    pub(super) n: u64,
    pub(super) digest: BodyDigest,
    /// Whether its effect lies outside the database.
    pub(super) outside: bool,
    /// The answers up to this n have arrived.
    pub(super) acked: u64,
    /// Which database it changes.
    pub(super) database: usize,
}

impl Request {
    pub(super) const fn key(&self) -> (u64, u64) {
        (self.seat, self.n)
    }
}

/// What a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    Result(u64),
    Conflict,
    Gone,
    OutcomeUnknown,
    Moved,
    Unavailable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Running,
    Stopped,
    Dead,
}

/// Work on lease and alive file, done one after another.
#[derive(Debug)]
pub(super) enum FileJob {
    Examine,
    MakeAlive {
        made: Option<(LeaseToken, Inode)>,
        stage: u8,
    },
    LockLease {
        deadline: Now,
        opened: Option<Inode>,
        locked: bool,
    },
    WriteLease {
        document: Box<LeaseDocument>,
        file: Option<Inode>,
        stage: u8,
    },
    /// Only when sabotaged: the alive file is locked when the lease is long visible.
    LockAliveLate,
    Unlock,
    DropAlive,
    Beat,
    Look,
    Exit,
}

/// Work that carries an epoch and runs beside.
#[derive(Debug)]
pub(super) enum Work {
    BindSocket {
        epoch: Epoch,
    },
    Look {
        epoch: Epoch,
        predecessors: Vec<Predecessor>,
    },
    Kill {
        pid: i32,
        predecessor: Box<Predecessor>,
    },
    RaiseFence {
        epoch: Epoch,
        index: usize,
        begun: Option<Inode>,
        /// What is done about a database that is locked.
        locked: Locked,
    },
    Import {
        epoch: Epoch,
    },
    BindListeners {
        epoch: Epoch,
    },
    Drain {
        epoch: Epoch,
        deadline: Now,
    },
}

/// What is done about a database that another process keeps locked.
#[derive(Debug)]
pub(super) enum Locked {
    /// It is waited for.
    Wait,
    /// It is left behind.
    Leave,
    /// It is being left behind: this is the copy of what was committed in that file.
    Copied(Inode, Box<Tables>),
}

/// The command that is being executed.
#[derive(Debug)]
pub(super) struct Execution {
    pub(super) request: Request,
    pub(super) step: Step,
    /// When a locked database makes it `unavailable`.
    pub(super) give_up: Now,
}

/// The next step of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Begin,
    Decide {
        epoch: Epoch,
    },
    Commit {
        epoch: Epoch,
        result: u64,
    },
    /// Only when sabotaged: the key is written in a transaction of its own.
    KeyApart {
        result: u64,
    },
    CommitStarted {
        epoch: Epoch,
    },
    EffectOutside {
        epoch: Epoch,
    },
    BeginFinish {
        epoch: Epoch,
    },
    Finish {
        epoch: Epoch,
    },
    Answer {
        result: u64,
    },
    Done,
}

impl Step {
    pub(super) const fn commits(self) -> bool {
        matches!(
            self,
            Self::Commit { .. } | Self::CommitStarted { .. } | Self::Finish { .. }
        )
    }
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: i64,
    pub(super) start: u64,
    pub(super) place: Place,
    pub(super) machine: Lifecycle,
    pub(super) status: Status,
    /// When it last went on after it was stopped; `None` if it never was.
    pub(super) went_on_at: Option<Micros>,
    /// Speed of its clock, in millionths.
    pub(super) rate: u64,
    pub(super) executable_replaced: bool,
    /// What happened to it while it was stopped.
    pub(super) parked: Vec<Event>,
    pub(super) files: VecDeque<FileJob>,
    /// Whether its next file step is under way.
    pub(super) filing: bool,
    pub(super) works: BTreeMap<u64, Work>,
    pub(super) next_work: u64,
    pub(super) wake_generation: u64,
    pub(super) alive: Option<(LeaseToken, Inode)>,
    pub(super) lease_lock: Option<Inode>,
    pub(super) databases: BTreeMap<usize, Inode>,
    pub(super) listening: bool,
    pub(super) serving: bool,
    pub(super) queue: VecDeque<Request>,
    pub(super) execution: Option<Execution>,
    /// Whether its next command step is under way.
    pub(super) executing: bool,
}

impl Process {
    /// Returns a process that has done nothing yet, with a clock of this speed.
    pub(super) fn new(identity: Identity, rate: u64) -> Self {
        Self {
            pid: identity.process.pid.number(),
            start: identity.process.pid_start,
            place: identity.place.clone(),
            machine: Lifecycle::new(identity),
            status: Status::Running,
            went_on_at: None,
            rate,
            executable_replaced: false,
            parked: Vec::new(),
            files: VecDeque::new(),
            filing: false,
            works: BTreeMap::new(),
            next_work: 0,
            wake_generation: 0,
            alive: None,
            lease_lock: None,
            databases: BTreeMap::new(),
            listening: false,
            serving: false,
            queue: VecDeque::new(),
            execution: None,
            executing: false,
        }
    }

    pub(super) const fn now(&self, time: Micros) -> Now {
        Now::from_start(std::time::Duration::from_micros(self.local_micros(time)))
    }

    const fn local_micros(&self, time: Micros) -> Micros {
        time.saturating_mul(self.rate) / 1_000_000
    }

    /// Returns the world's time at which this process's clock shows `now`.
    pub(super) fn world_time(&self, now: Now) -> Micros {
        let local = u64::try_from(now.since_start().as_micros()).unwrap_or(u64::MAX);
        local.saturating_mul(1_000_000) / self.rate + 1
    }

    pub(super) const fn is_alive(&self) -> bool {
        !matches!(self.status, Status::Dead)
    }

    pub(super) const fn runs(&self) -> bool {
        matches!(self.status, Status::Running)
    }

    /// Turns an effect on lease or alive file into a job, or gives it back.
    pub(super) fn file_job(effect: Effect) -> Result<FileJob, Effect> {
        match effect {
            Effect::Examine => Ok(FileJob::Examine),
            Effect::MakeAlive => Ok(FileJob::MakeAlive {
                made: None,
                stage: 0,
            }),
            Effect::LockLease { deadline } => Ok(FileJob::LockLease {
                deadline,
                opened: None,
                locked: false,
            }),
            Effect::WriteLease(document) => Ok(FileJob::WriteLease {
                document,
                file: None,
                stage: 0,
            }),
            Effect::UnlockLease => Ok(FileJob::Unlock),
            Effect::DropAlive => Ok(FileJob::DropAlive),
            Effect::Beat => Ok(FileJob::Beat),
            Effect::LookAtFiles => Ok(FileJob::Look),
            Effect::Finish(_) => Ok(FileJob::Exit),
            other => Err(other),
        }
    }

    /// Turns an effect that runs beside into work, or gives it back.
    pub(super) fn work(effect: Effect) -> Result<Work, Effect> {
        match effect {
            Effect::BindSocket { epoch } => Ok(Work::BindSocket { epoch }),
            Effect::LookAtPredecessors {
                epoch,
                predecessors,
            } => Ok(Work::Look {
                epoch,
                predecessors,
            }),
            Effect::Kill { pid, predecessor } => Ok(Work::Kill { pid, predecessor }),
            Effect::RaiseFence { epoch } => Ok(Work::RaiseFence {
                epoch,
                index: 0,
                begun: None,
                locked: Locked::Wait,
            }),
            Effect::LeaveDatabases { epoch } => Ok(Work::RaiseFence {
                epoch,
                index: 0,
                begun: None,
                locked: Locked::Leave,
            }),
            Effect::Import { epoch } => Ok(Work::Import { epoch }),
            Effect::BindListeners { epoch } => Ok(Work::BindListeners { epoch }),
            Effect::Drain { epoch, deadline } => Ok(Work::Drain { epoch, deadline }),
            other => Err(other),
        }
    }
}
