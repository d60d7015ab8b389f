//! Faults: what may go wrong, how often, and the calm after the storm.

use earshot_proto::lease::Input;

use super::database::{Database, Tables};
use super::disk::ProcessId;
use super::files::{LEASE, LEASE_LOCK};
use super::process::{Event, Micros};
use super::rng::Rng;
use super::world::{DATABASES, MS, SECOND, World};

/// How likely things go wrong, in thousandths, and what is kept for a later fault.
#[derive(Debug)]
pub(super) struct Weather {
    calm: bool,
    /// The faults of this storm, each as often as it is to be drawn.
    faults: Vec<Fault>,
    /// The longest time between two faults.
    pace: Micros,
    /// A message is lost.
    pub(super) loss: u64,
    /// A request arrives twice.
    pub(super) duplicate: u64,
    /// A process dies or is stopped before a step.
    strike: u64,
    /// A process begins in another pid namespace, where it cannot be ended from.
    pub(super) elsewhere: u64,
    /// The next process that is about to commit is stopped, for long.
    ambush: bool,
    backup: Option<Backup>,
}

/// What a restore brings back.
#[derive(Debug)]
struct Backup {
    lease: Option<Vec<u8>>,
    /// The tables of each database that there was.
    tables: Vec<Option<Tables>>,
}

impl Weather {
    /// Returns a storm of its own kind: some faults of all, at one of several paces.
    ///
    /// With every fault in every run none would be left alone for long enough to show what comes
    /// of it: a node that hangs is judged after ten seconds, if nothing else happens to it before.
    pub(super) fn stormy(rng: &mut Rng) -> Self {
        let mut faults = FAULTS.to_vec();
        faults.retain(|_| rng.chance(400));
        faults.push((Fault::Spawn, 1));
        let drawn = faults
            .iter()
            .flat_map(|(fault, weight)| vec![*fault; *weight])
            .collect();
        let pace = rng.pick(PACES.len()).map_or(SECOND, |index| PACES[index]);
        let hostile = rng.chance(500);
        Self {
            calm: false,
            faults: drawn,
            pace,
            loss: if hostile { 40 } else { 0 },
            duplicate: if hostile { 40 } else { 5 },
            strike: rng.below(3),
            elsewhere: if rng.chance(300) { 500 } else { 80 },
            ambush: false,
            backup: None,
        }
    }

    const fn calm() -> Self {
        Self {
            calm: true,
            faults: Vec::new(),
            pace: SECOND,
            loss: 0,
            duplicate: 0,
            strike: 0,
            elsewhere: 0,
            ambush: false,
            backup: None,
        }
    }
}

/// A fault that is drawn.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Stop,
    StopLong,
    StopInTransaction,
    Continue,
    OrderedStop,
    Spawn,
    PowerLoss,
    ClockJump,
    DiskFull,
    LeaseDeleted,
    LeaseTorn,
    LeaseEdited,
    LeaseOfLaterFormat,
    LockFileDeleted,
    AliveFileDeleted,
    StateWiped,
    BackupMade,
    BackupRestored,
    ExecutableReplaced,
}

/// The faults with their weights.
const FAULTS: [(Fault, usize); 20] = [
    (Fault::Kill, 4),
    (Fault::Stop, 4),
    (Fault::StopLong, 4),
    (Fault::StopInTransaction, 4),
    (Fault::Continue, 1),
    (Fault::OrderedStop, 2),
    (Fault::Spawn, 4),
    (Fault::PowerLoss, 1),
    (Fault::ClockJump, 2),
    (Fault::DiskFull, 1),
    (Fault::LeaseDeleted, 1),
    (Fault::LeaseTorn, 1),
    (Fault::LeaseEdited, 1),
    (Fault::LeaseOfLaterFormat, 1),
    (Fault::LockFileDeleted, 2),
    (Fault::AliveFileDeleted, 1),
    (Fault::StateWiped, 1),
    (Fault::BackupMade, 1),
    (Fault::BackupRestored, 1),
    (Fault::ExecutableReplaced, 1),
];

/// The longest times between two faults.
const PACES: [Micros; 4] = [SECOND / 2, 2 * SECOND, 8 * SECOND, 20 * SECOND];

impl World {
    pub(super) fn draw_fault(&mut self) {
        if self.weather.calm {
            return;
        }
        let pause = self.rng.between(100 * MS, self.weather.pace);
        self.after(pause, Event::Chaos);
        let Some(drawn) = self.rng.pick(self.weather.faults.len()) else {
            return;
        };
        let fault = self.weather.faults[drawn];
        self.note(|| format!("{fault:?}"));
        match fault {
            Fault::Kill => self.strike_one(Self::kill),
            Fault::Stop => self.strike_one(|world, of| world.stop_for(of, 4 * SECOND)),
            Fault::StopLong => self.strike_one(|world, of| world.stop_for(of, 40 * SECOND)),
            Fault::StopInTransaction => self.weather.ambush = true,
            Fault::Continue => self.strike_one(Self::go_on),
            Fault::OrderedStop => self.strike_one(|world, of| {
                if world.processes[of].runs() {
                    world.feed(of, Input::Stop);
                }
            }),
            Fault::Spawn => self.spawn(),
            Fault::PowerLoss => self.lose_power(),
            Fault::ClockJump => self.jump_clock(),
            Fault::DiskFull => {
                let full = !self.disk.is_full();
                self.disk.set_full(full);
            }
            Fault::LeaseDeleted => self.damage_lease(None),
            Fault::LeaseTorn => self.tear_lease(),
            Fault::LeaseEdited => self.edit_lease(),
            Fault::LeaseOfLaterFormat => self.write_later_format(),
            Fault::LockFileDeleted => {
                self.disk.remove(LEASE_LOCK);
            }
            Fault::AliveFileDeleted => self.delete_alive_file(),
            Fault::StateWiped => self.wipe_state(),
            Fault::BackupMade => self.make_backup(),
            Fault::BackupRestored => self.restore_backup(),
            Fault::ExecutableReplaced => {
                self.strike_one(|world, of| world.processes[of].executable_replaced = true);
            }
        }
    }

    /// Ends all faults: what is stopped goes on, what was full has room.
    pub(super) fn calm_down(&mut self) {
        self.weather = Weather::calm();
        self.disk.set_full(false);
        for of in self.living() {
            self.go_on(of);
        }
        for client in &mut self.clients {
            client.calm_down();
        }
        self.note(|| "the weather calms down".to_owned());
    }

    /// Lets a process die or stop right before its next step, now and then.
    pub(super) fn struck_down(&mut self, of: ProcessId) -> bool {
        if self.weather.ambush && self.is_about_to_commit(of) {
            self.weather.ambush = false;
            self.stop_for(of, 80 * SECOND);
            return true;
        }
        if !self.rng.chance(self.weather.strike) {
            return false;
        }
        if self.rng.chance(400) {
            let longest = if self.rng.chance(300) {
                40 * SECOND
            } else {
                3 * SECOND
            };
            self.stop_for(of, longest);
        } else {
            self.kill(of);
        }
        true
    }

    fn is_about_to_commit(&self, of: ProcessId) -> bool {
        let execution = self.processes[of].execution.as_ref();
        execution.is_some_and(|running| running.step.commits())
    }

    fn stop_for(&mut self, of: ProcessId, longest: Micros) {
        if self.processes[of].runs() {
            self.stop(of);
            let pause = self.rng.between(MS, longest);
            self.after(pause, Event::Continue(of));
        }
    }

    /// Does something to one living process: mostly to the node, which clients talk to.
    fn strike_one(&mut self, strike: impl FnOnce(&mut Self, ProcessId)) {
        let living = self.living();
        let node = self.socket.filter(|_| self.rng.chance(600));
        if let Some(of) = node.or_else(|| self.rng.pick(living.len()).map(|index| living[index])) {
            strike(self, of);
        }
    }

    fn lose_power(&mut self) {
        for of in self.living() {
            self.kill(of);
        }
        self.disk.lose_power(&mut self.rng);
        self.boot += 1;
        let left = self.lease().and_then(|lease| lease.epoch());
        self.ledger.power_lost(left);
    }

    /// Sets the clock; back only while lease or fences still say how far the epochs are.
    fn jump_clock(&mut self) {
        let jump = self.rng.between(1, 600_000);
        if self.rng.chance(500) {
            self.wall_ms += jump;
        } else if self.ledger.evidence_is_left() || self.fences_know() {
            self.wall_ms -= jump.min(self.wall_ms);
        }
    }

    /// Returns whether state may be lost now: not while the clock is behind the epochs.
    ///
    /// A clock that was set back *and* state that was lost leave nothing that could say how far
    /// the epochs are; the rule that closes a reset of epochs does not claim to hold then.
    fn may_lose_evidence(&self) -> bool {
        self.wall().unix_ms() > self.ledger.highest_epoch().number()
    }

    /// Returns whether a fence says how far the epochs are.
    fn fences_know(&self) -> bool {
        let highest = self.ledger.highest_epoch();
        (0..DATABASES.len())
            .filter_map(|index| self.databases.get(&self.current(index)?))
            .any(|database| database.committed().fence >= highest)
    }

    fn damage_lease(&mut self, content: Option<Vec<u8>>) {
        if !self.may_lose_evidence() && !self.fences_know() {
            return;
        }
        match content {
            None => {
                self.disk.remove(LEASE);
            }
            Some(content) => {
                let Ok(inode) = self.disk.create(LEASE) else {
                    return;
                };
                self.disk.write(inode, content).ok();
                self.disk.sync_file(inode);
            }
        }
        self.ledger.lease_lost();
    }

    fn tear_lease(&mut self) {
        let content = self
            .disk
            .read(LEASE)
            .map(<[u8]>::to_vec)
            .unwrap_or_default();
        let keep = self.rng.pick(content.len() + 1).unwrap_or(0);
        self.damage_lease(content.get(..keep).map(<[u8]>::to_vec));
    }

    /// Gives the lease another process number, as an editor does: through a new file.
    fn edit_lease(&mut self) {
        let Some(mut document) = self.lease().and_then(|lease| lease.document().cloned()) else {
            return;
        };
        let numbers = [0, 1, -1, 4_194_304, 100, 101];
        if let Some(index) = self.rng.pick(numbers.len()) {
            document.process.pid = earshot_proto::lease::Pid::new(numbers[index]);
        }
        self.damage_lease(Some(document.encode()));
    }

    fn write_later_format(&mut self) {
        let number = self.rng.next();
        let alive = format!("alive-later-{number}.lock");
        let epoch = self.wall().unix_ms();
        let content = format!(
            r#"{{"schema": 9, "min_reader": 9, "token": "later-{number}", "epoch": {epoch},
            "host_id": "host", "alive": "{alive}", "holder": [1]}}"#
        );
        if self.disk.is_full() {
            return;
        }
        // The later release has died; only now and then its alive file is gone as well.
        if self.rng.chance(900) {
            self.disk.create(&alive).ok();
        }
        self.damage_lease(Some(content.into_bytes()));
    }

    fn delete_alive_file(&mut self) {
        let alive: Vec<String> = self
            .disk
            .names()
            .filter(|name| name.starts_with("alive-"))
            .cloned()
            .collect();
        let named = self.lease().and_then(|lease| lease.alive().cloned());
        let chosen = named
            .map(|name| name.as_str().to_owned())
            .filter(|_| self.rng.chance(700));
        let other = self.rng.pick(alive.len()).map(|index| alive[index].clone());
        if let Some(name) = chosen.or(other) {
            self.disk.remove(&name);
        }
    }

    fn wipe_state(&mut self) {
        if !self.may_lose_evidence() {
            return;
        }
        for name in self.disk.names().cloned().collect::<Vec<_>>() {
            self.disk.remove(&name);
        }
        self.lose_state();
    }

    fn make_backup(&mut self) {
        let lease = self.disk.read(LEASE).map(<[u8]>::to_vec);
        let tables = (0..DATABASES.len())
            .map(|index| {
                let database = self.databases.get(&self.current(index)?)?;
                Some(database.committed().clone())
            })
            .collect();
        self.weather.backup = Some(Backup { lease, tables });
    }

    fn restore_backup(&mut self) {
        if !self.may_lose_evidence() || self.disk.is_full() {
            return;
        }
        let Some(Backup { lease, tables }) = self.weather.backup.take() else {
            return;
        };
        for (index, tables) in tables.into_iter().enumerate() {
            for (name, _) in self.files_of(index) {
                self.disk.remove(&name);
            }
            let name = DATABASES[index];
            if let Some(tables) = tables
                && let Ok(inode) = self.disk.create(name)
            {
                self.ledger.restored(inode, tables.fence);
                self.databases.insert(inode, Database::restored(tables));
            }
        }
        self.damage_lease(lease);
        self.lose_state();
    }

    fn lose_state(&mut self) {
        self.ledger.state_lost();
        let time = self.time;
        for client in &mut self.clients {
            client.lose_state(time);
        }
    }
}
