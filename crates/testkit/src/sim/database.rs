//! A database file: one writer at a time, a committed image and the one of its transaction.

use std::collections::BTreeMap;

use earshot_proto::lease::{Command, Decision, DoneRow, Epoch, Recorded, decide, raised_floor};

use super::disk::ProcessId;

/// The key of a command.
pub(super) type Key = (u64, u64);

/// The tables of a database that a command may change.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    pub(super) fence: Epoch,
    done: BTreeMap<Key, DoneRow<u64>>,
    floor: BTreeMap<u64, u64>,
    /// How often each command took effect: the state that commands change.
    pub(super) effects: BTreeMap<Key, u64>,
    /// Changes committed so far.
    counter: u64,
}

impl Tables {
    /// Decides about a command; `fence` may be another than the true one when sabotaged.
    pub(super) fn decide(
        &self,
        epoch: Epoch,
        key: Key,
        command: Command,
        fence: Epoch,
    ) -> Decision<u64> {
        let recorded = Recorded {
            fence,
            done: self.done.get(&key).cloned(),
            floor: self.floor.get(&key.0).copied(),
        };
        decide(epoch, command, recorded)
    }

    /// Gives a command its effect inside the database and returns its result.
    pub(super) fn take_effect(&mut self, key: Key) -> u64 {
        self.counter += 1;
        *self.effects.entry(key).or_default() += 1;
        self.counter
    }

    pub(super) fn mark_started(&mut self, key: Key, command: Command, acked: u64) {
        self.done.insert(
            key,
            DoneRow::Started {
                digest: command.digest,
            },
        );
        self.acknowledge(key.0, acked);
    }

    pub(super) fn mark_finished(&mut self, key: Key, command: Command, result: u64, acked: u64) {
        self.done.insert(
            key,
            DoneRow::Finished {
                digest: command.digest,
                result,
            },
        );
        self.acknowledge(key.0, acked);
    }

    /// Returns whether a command is known to have been answered: by its result, or by the floor.
    pub(super) fn remembers(&self, key: Key) -> bool {
        matches!(self.done.get(&key), Some(DoneRow::Finished { .. }))
            || self.floor.get(&key.0).is_some_and(|floor| *floor >= key.1)
    }

    /// Drops the results that the seat acknowledged, and raises its floor.
    fn acknowledge(&mut self, seat: u64, acked: u64) {
        let highest = self
            .done
            .range((seat, 0)..=(seat, u64::MAX))
            .map(|(key, _)| key.1)
            .max();
        let floor = self.floor.entry(seat).or_default();
        *floor = raised_floor(*floor, acked, highest.unwrap_or(0));
        let floor = *floor;
        self.done.retain(|key, _| key.0 != seat || key.1 > floor);
    }
}

/// A database file; it lives on while a process has it open, whatever its path leads to.
#[derive(Debug, Default)]
pub(super) struct Database {
    committed: Tables,
    writing: Option<(ProcessId, Tables)>,
}

impl Database {
    pub(super) const fn restored(committed: Tables) -> Self {
        Self {
            committed,
            writing: None,
        }
    }

    pub(super) const fn committed(&self) -> &Tables {
        &self.committed
    }

    /// Begins a write transaction, unless another process is in one.
    pub(super) fn begin(&mut self, by: ProcessId) -> bool {
        let committed = &self.committed;
        self.writing
            .get_or_insert_with(|| (by, committed.clone()))
            .0
            == by
    }

    pub(super) const fn is_locked(&self) -> bool {
        self.writing.is_some()
    }

    /// Returns the image of this process's transaction.
    pub(super) fn writing(&mut self, by: ProcessId) -> Option<&mut Tables> {
        self.writing
            .as_mut()
            .filter(|(holder, _)| *holder == by)
            .map(|(_, tables)| tables)
    }

    pub(super) fn commit(&mut self, by: ProcessId) {
        if let Some((_, tables)) = self.writing.take_if(|(holder, _)| *holder == by) {
            self.committed = tables;
        }
    }

    pub(super) fn roll_back(&mut self, by: ProcessId) {
        self.writing.take_if(|(holder, _)| *holder == by);
    }
}
