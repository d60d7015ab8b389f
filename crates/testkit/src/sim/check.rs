//! The ledger of everything that matters, and the invariants that it is held against.
//!
//! The numbers are those of the design: 1 fence, 2 epochs, 3 persist first, 4 the end of a node
//! that lost its lease, 6 once and only once, 13 nothing is stuck.

use std::collections::{BTreeMap, BTreeSet};

use earshot_proto::lease::{Epoch, LeaseDocument, LeaseToken, Parsed, Phase, Timings};

use super::Violation;
use super::database::Key;
use super::disk::{Inode, ProcessId};
use super::process::Micros;
use super::world::{DATABASES, SECOND, World};

/// What is known of the world from outside of it.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    violation: Option<Violation>,
    /// The highest epoch that a lease ever showed.
    highest_epoch: Epoch,
    /// The highest epoch that was durable before its holder went on.
    durable_epoch: Epoch,
    tokens: BTreeSet<LeaseToken>,
    /// Whether lease or fences still say how far the epochs are.
    evidence_lost: bool,
    /// The highest fence ever raised in a database file.
    fences: BTreeMap<Inode, Epoch>,
    /// The last commands that were answered, with the file that they changed.
    answered: BTreeMap<u64, (Key, Inode)>,
    /// How often a command had its effect outside, by the file that knows of it.
    outside: BTreeMap<(Key, Inode), u64>,
    /// When a process's lease went to somebody else.
    taken_at: BTreeMap<ProcessId, Micros>,
    /// Leases written, and commands that took effect.
    tenures: u64,
    commits: u64,
    left_behind: u64,
}

impl Ledger {
    pub(super) const fn highest_epoch(&self) -> Epoch {
        self.highest_epoch
    }

    pub(super) const fn evidence_is_left(&self) -> bool {
        !self.evidence_lost
    }

    pub(super) const fn lease_lost(&mut self) {
        self.evidence_lost = true;
    }

    /// Forgets a lease that was shown and went with the power: nobody acted on it.
    pub(super) fn power_lost(&mut self, left: Option<Epoch>) {
        self.evidence_lost = true;
        self.highest_epoch = self.durable_epoch.max(left.unwrap_or(Epoch::NONE));
    }

    pub(super) fn state_lost(&mut self) {
        self.evidence_lost = true;
        self.answered.clear();
    }

    pub(super) fn restored(&mut self, inode: Inode, fence: Epoch) {
        self.fences.insert(inode, fence);
    }

    /// Notes that what the one file holds counts in the other from now on.
    pub(super) fn leave_behind(&mut self, from: Inode, to: Inode) {
        self.left_behind += 1;
        for (_, inode) in self.answered.values_mut() {
            if *inode == from {
                *inode = to;
            }
        }
        let known: Vec<_> = self
            .outside
            .iter()
            .filter(|((_, inode), _)| *inode == from)
            .map(|((key, _), count)| ((*key, to), *count))
            .collect();
        self.outside.extend(known);
    }

    pub(super) const fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    pub(super) const fn tenures(&self) -> u64 {
        self.tenures
    }

    pub(super) const fn commits(&self) -> u64 {
        self.commits
    }

    pub(super) const fn left_behind(&self) -> u64 {
        self.left_behind
    }
}

impl World {
    pub(super) fn violate(&mut self, invariant: u8, what: impl FnOnce() -> String) {
        if self.ledger.violation.is_none() {
            let what = what();
            self.note(|| format!("invariant {invariant}: {what}"));
            self.ledger.violation = Some(Violation {
                invariant,
                what,
                at_us: self.time,
            });
        }
    }

    /// What can be checked after every event, whatever it was.
    pub(super) fn check(&mut self) {
        let mut broken = None;
        for (inode, highest) in &self.ledger.fences {
            // Invariant 1: a fence never sinks.
            let fence = self
                .databases
                .get(inode)
                .map(|database| database.committed().fence);
            if fence.is_some_and(|fence| fence < *highest) {
                broken = Some((1, format!("the fence of file {inode} sank below {highest}")));
            }
        }
        for (key, inode) in self.ledger.answered.values() {
            // Invariant 3: what was answered is there.
            let database = self.databases.get(inode);
            let there = database.is_some_and(|database| database.committed().remembers(*key));
            if !there {
                broken = Some((
                    3,
                    format!("{key:?} was answered and is not in file {inode}"),
                ));
            }
        }
        for (of, process) in self.processes.iter().enumerate() {
            // Invariant 4: whoever ended, or stands for election again, serves nothing.
            let holds = matches!(
                process.machine.phase(),
                Phase::Serving(_) | Phase::Draining(_)
            );
            if process.serving && !holds {
                broken = Some((4, format!("{of} serves as {:?}", process.machine.phase())));
            }
        }
        if let Some((invariant, what)) = broken {
            self.violate(invariant, || what);
        }
    }

    /// Judges a lease at the moment when it becomes visible.
    pub(super) fn judge_lease(&mut self, of: ProcessId, document: &LeaseDocument, inode: Inode) {
        // Invariant 3: a lease is durable before anybody sees it.
        if !self.disk.is_synced(inode) {
            self.violate(3, || format!("{of} shows a lease that is not on the disk"));
        }
        self.ledger.taken_at.remove(&of);
        let old = self.lease();
        let shown = old.as_ref().and_then(Parsed::epoch);
        // A fault that wrote a lease did not ask for the lock.
        let honest = self.ledger.evidence_is_left();
        if honest && shown.is_some_and(|shown| shown > document.epoch) {
            self.violate(2, || format!("{of} writes over the lease of {shown:?}"));
        }
        self.judge_epoch(document);
        let Some(old) = old.as_ref().and_then(Parsed::token) else {
            return;
        };
        if *old == document.token {
            return;
        }
        let grace = micros(Timings::default().bind_grace());
        let disturbed = |went_on: Micros| self.time < went_on + grace;
        let displaced = self.living().into_iter().find(|other| {
            let process = &self.processes[*other];
            process.machine.token() == Some(old) && *other != of
        });
        let Some(displaced) = displaced else { return };
        let process = &self.processes[displaced];
        // Invariant 4, its other half: who holds its lease, beats and answers is not displaced.
        let whole = process.alive.as_ref().is_some_and(|(token, inode)| {
            self.disk.lookup(token.alive_name().as_str()) == Some(*inode)
        });
        let healthy = process.runs() && !process.went_on_at.is_some_and(disturbed);
        let retiring = matches!(process.machine.phase(), Phase::Draining(_));
        if honest && healthy && whole && !retiring {
            self.violate(4, || {
                format!("{of} takes the lease of {displaced}, which lives")
            });
        }
        self.ledger.taken_at.insert(displaced, self.time);
    }

    fn judge_epoch(&mut self, document: &LeaseDocument) {
        let known = self.ledger.tokens.contains(&document.token);
        let grown = document.epoch > self.ledger.highest_epoch;
        // Invariant 2: epochs only grow, no token is used twice.
        if !known && !grown {
            let highest = self.ledger.highest_epoch;
            self.violate(2, || format!("epoch {} after {highest}", document.epoch));
        }
        if !known {
            self.ledger.tokens.insert(document.token.clone());
            self.ledger.highest_epoch = document.epoch;
            self.ledger.evidence_lost = false;
            self.ledger.tenures += 1;
        }
    }

    /// Notes a lease that is durable, so that its holder goes on.
    pub(super) fn note_durable(&mut self, document: &LeaseDocument) {
        self.ledger.durable_epoch = self.ledger.durable_epoch.max(document.epoch);
    }

    pub(super) fn judge_fence(&mut self, inode: Inode, epoch: Epoch) {
        let before = self.ledger.fences.insert(inode, epoch);
        if before.is_some_and(|before| before >= epoch) {
            self.violate(1, || {
                format!("two tenures raised the fence of {inode} to {epoch}")
            });
        }
    }

    /// Judges a command as it begins.
    pub(super) fn judge_begin(&mut self, of: ProcessId) {
        // Invariant 4: two heartbeats of its own clock after its lease went, nothing begins.
        let grace = micros(Timings::default().heartbeat()) * 2 * 11 / 10;
        let taken = self.ledger.taken_at.get(&of).copied();
        if taken.is_some_and(|taken| self.time > taken + grace) {
            self.violate(4, || format!("{of} begins a command without its lease"));
        }
    }

    /// Judges a transaction as it commits.
    pub(super) fn judge_commit(&mut self, inode: Inode, epoch: Epoch) {
        self.ledger.commits += 1;
        // Invariant 1: only the epoch of the fence commits.
        let fence = self.ledger.fences.get(&inode).copied();
        if fence != Some(epoch) {
            self.violate(1, || {
                format!("epoch {epoch} commits behind the fence {fence:?}")
            });
        }
    }

    pub(super) fn judge_effects(&mut self, inode: Inode, key: Key) {
        let database = self.database(inode);
        let count = database.committed().effects.get(&key).copied().unwrap_or(0);
        // Invariant 6: once and only once.
        if count > 1 {
            self.violate(6, || format!("{key:?} took effect {count} times"));
        }
    }

    pub(super) fn judge_effect_outside(&mut self, inode: Inode, key: Key) {
        let count = self.ledger.outside.entry((key, inode)).or_default();
        *count += 1;
        let count = *count;
        // Invariant 6, outside of the database: at most once.
        if count > 1 {
            self.violate(6, || {
                format!("{key:?} had its effect outside {count} times")
            });
        }
    }

    /// Judges an answer as it is sent.
    pub(super) fn judge_answer(&mut self, of: ProcessId, key: Key, inode: Inode) {
        let there = self.database(inode).committed().remembers(key);
        // Invariant 3: nothing is sent that was not persisted first.
        if !there {
            self.violate(3, || format!("{of} answers {key:?} before it is committed"));
        }
        for index in 0..DATABASES.len() {
            if self.current(index) == Some(inode) {
                self.ledger.answered.insert(key.0, (key, inode));
            } else if self.is_in_place(index, inode) {
                self.violate(3, || {
                    format!("{of} answers {key:?} from a file that was left behind")
                });
            }
        }
    }

    pub(super) fn judge_kill(&mut self, by: ProcessId, target: ProcessId, token: &LeaseToken) {
        if by == target {
            self.violate(13, || format!("{by} kills itself"));
        }
        if self.processes[by].place != self.processes[target].place {
            self.violate(4, || {
                format!("{by} kills {target}, which runs in another place")
            });
        }
        let held = self.processes[target].machine.token();
        // Without its alive file, the process is all that is known of the tenure.
        let by_lock = self.disk.lookup(token.alive_name().as_str()).is_some();
        if by_lock && held.is_some_and(|held| held != token) {
            self.violate(4, || {
                format!("{by} kills {target}, which holds another tenure")
            });
        }
    }
}

/// Returns the whole microseconds of a duration.
pub(super) fn micros(duration: std::time::Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// How long a world may take to settle once nothing disturbs it.
///
/// The longest wait is for a lease of a later format without its alive file: two minutes.
pub(super) const SETTLED_WITHIN: Micros = 180 * SECOND;
