//! A simulated world of nodes, disks, databases, clocks and clients, driven by one seed.
//!
//! Every simulated process runs the real [`earshot_proto::lease::Lifecycle`] and the real
//! [`earshot_proto::lease::decide`]; only the shell around them is simulated, one step at a time,
//! so that a process can die, or be stopped, between any two steps. A world is a queue of events
//! ordered by (time, sequence) and a seeded generator: the same seed gives the same run, and a run
//! is replayed from its seed alone.
//!
//! A run has two parts. In the storm, faults are drawn: kills, stops (SIGSTOP), power losses, clock
//! jumps, a full disk, lost and doubled messages, deleted, torn, edited and foreign files, a wiped
//! or restored state folder. In the calm, every fault is healed, and within a bound one node has to
//! serve and every client has to have its answer. After every event the invariants are checked.
//!
//! What is not simulated: state that is lost while the clock is set back below the epochs in it
//! (nothing is left then that could say how far they are), and a successor taking over a healthy
//! node.

mod check;
mod client;
mod commands;
mod database;
mod disk;
mod fault;
mod files;
mod process;
mod replay;
mod rng;
mod work;
mod world;

use std::fmt;

pub use replay::{Replay, ReplayError, ReplayedStep};

pub(crate) use rng::Rng;

use check::SETTLED_WITHIN;
use process::Micros;
use world::{SECOND, World};

/// A mistake built into the simulated shell, to see that the simulator finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sabotage {
    /// A write transaction does not compare the fence with its epoch.
    SkipFence,
    /// The answer is sent before the transaction commits.
    AcknowledgeBeforeCommit,
    /// The `done` row is written in a transaction after that of the effect.
    KeyOutsideTransaction,
    /// What was committed is answered without a look at the lease, however old the last one is.
    AnswerWithoutLook,
    /// The alive file is locked only when the lease is already visible.
    LockAfterLease,
}

impl Sabotage {
    /// Every sabotage there is.
    pub const ALL: [Self; 5] = [
        Self::SkipFence,
        Self::AcknowledgeBeforeCommit,
        Self::KeyOutsideTransaction,
        Self::AnswerWithoutLook,
        Self::LockAfterLease,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::SkipFence => "skip-fence",
            Self::AcknowledgeBeforeCommit => "acknowledge-before-commit",
            Self::KeyOutsideTransaction => "key-outside-transaction",
            Self::AnswerWithoutLook => "answer-without-look",
            Self::LockAfterLease => "lock-after-lease",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|sabotage| sabotage.name() == name)
    }
}

/// What a run without a violation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Events that happened.
    pub events: u64,
    /// Leases taken.
    pub tenures: u64,
    /// Transactions committed.
    pub commits: u64,
    /// Databases left behind, because somebody stopped kept them locked.
    pub left_behind: u64,
    /// Virtual time that the world took to settle, in microseconds.
    pub settled_after_us: u64,
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number.
    pub invariant: u8,
    /// What happened.
    pub what: String,
    /// Virtual time of it, in microseconds.
    pub at_us: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            invariant,
            what,
            at_us,
        } = self;
        write!(out, "invariant {invariant} broken at {at_us} us: {what}")
    }
}

/// A run that broke an invariant.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// The sabotage of the run.
    pub sabotage: Option<Sabotage>,
    /// What broke.
    pub violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "seed {}: {}", self.seed, self.violation)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// Runs the seed again and returns its log: one JSON object a line, the first one a header.
    ///
    /// [`Replay`] steps through it.
    pub fn log(&self) -> String {
        let mut run = Run::new(self.seed, self.sabotage, true);
        let mut log = replay::header(self.seed, self.sabotage, &self.violation);
        while let Progress::Happened(happened) = run.step() {
            log.push_str(&replay::line(&happened));
        }
        log
    }
}

/// Runs one world from its seed to a settled end.
///
/// # Errors
///
/// The first invariant that did not hold.
pub fn run(seed: u64, sabotage: Option<Sabotage>) -> Result<Report, Box<Failure>> {
    let mut run = Run::new(seed, sabotage, false);
    loop {
        match run.step() {
            Progress::Happened(_) => {}
            Progress::Settled(report) => return Ok(report),
            Progress::Broken(violation) => {
                return Err(Box::new(Failure {
                    seed,
                    sabotage,
                    violation,
                }));
            }
        }
    }
}

/// Runs this many worlds, from `first` on, and returns the sum of their reports.
///
/// # Errors
///
/// The first run that broke an invariant.
pub fn run_many(first: u64, count: u64) -> Result<Report, Box<Failure>> {
    let mut sum = Report::default();
    for seed in first..first.saturating_add(count) {
        let report = run(seed, None)?;
        sum.events += report.events;
        sum.tenures += report.tenures;
        sum.commits += report.commits;
        sum.left_behind += report.left_behind;
        sum.settled_after_us = sum.settled_after_us.max(report.settled_after_us);
    }
    Ok(sum)
}

/// Returns the first of this many seeds whose run finds the sabotage, with what it found.
pub fn first_to_catch(sabotage: Sabotage, first: u64, count: u64) -> Option<Box<Failure>> {
    (first..first.saturating_add(count)).find_map(|seed| run(seed, Some(sabotage)).err())
}

/// A world on its way from storm to calm.
#[derive(Debug)]
struct Run {
    world: World,
    /// When the storm ends.
    calm_at: Micros,
    calm: bool,
    events: u64,
}

/// What one step of a run came to.
#[derive(Debug)]
enum Progress {
    Happened(world::Happened),
    Settled(Report),
    Broken(Violation),
}

impl Run {
    fn new(seed: u64, sabotage: Option<Sabotage>, listens: bool) -> Self {
        let mut world = World::new(seed, sabotage, listens);
        let calm_at = world.rng.between(20 * SECOND, 90 * SECOND);
        Self {
            world,
            calm_at,
            calm: false,
            events: 0,
        }
    }

    fn step(&mut self) -> Progress {
        let world = &mut self.world;
        if let Some(violation) = world.ledger.violation() {
            return Progress::Broken(violation.clone());
        }
        if !self.calm && world.time >= self.calm_at {
            self.calm = true;
            world.calm_down();
        }
        if self.calm && world.is_settled() {
            return Progress::Settled(Report {
                events: self.events,
                tenures: world.ledger.tenures(),
                commits: world.ledger.commits(),
                left_behind: world.ledger.left_behind(),
                settled_after_us: world.time.saturating_sub(self.calm_at),
            });
        }
        if world.time > self.calm_at + SETTLED_WITHIN {
            let stuck = world.describe();
            let what = format!("nothing settled within {SETTLED_WITHIN} us: {stuck}");
            return Progress::Broken(Violation {
                invariant: 13,
                what,
                at_us: world.time,
            });
        }
        self.events += 1;
        match world.step() {
            Some(happened) => Progress::Happened(happened),
            // Clients take turns for ever.
            None => unreachable!("the queue of events never ends"),
        }
    }
}
