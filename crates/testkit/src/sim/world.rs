//! The world: its clock, its queue of events, and how an event becomes inputs and effects.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use earshot_proto::Timestamp;
use earshot_proto::lease::{
    Effect, Identity, Input, Phase, Pid, Place, Process as ProcessName, Timings,
};

use super::Sabotage;
use super::check::Ledger;
use super::client::Client;
use super::database::Database;
use super::disk::{Disk, Inode, ProcessId};
use super::fault::Weather;
use super::process::{Event, FileJob, Micros, Process, Status, Work};
use super::rng::Rng;

/// Databases of the checkout.
pub(super) const DATABASES: [&str; 2] = ["journal.db", "memory.db"];
/// Clients that send commands.
const CLIENTS: usize = 3;
/// Wall time at which every world begins.
const WALL_START_MS: u64 = 1_700_000_000_000;

pub(super) const MS: Micros = 1_000;
pub(super) const SECOND: Micros = 1_000 * MS;

/// One host with one checkout, its processes and their clients.
#[derive(Debug)]
pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) sabotage: Option<Sabotage>,
    pub(super) time: Micros,
    sequence: u64,
    queue: BTreeMap<(Micros, u64), Event>,
    pub(super) wall_ms: u64,
    pub(super) boot: u64,
    pub(super) disk: Disk,
    pub(super) databases: BTreeMap<Inode, Database>,
    pub(super) processes: Vec<Process>,
    /// Who bound the Unix socket last.
    pub(super) socket: Option<ProcessId>,
    pub(super) clients: Vec<Client>,
    pub(super) next_seat: u64,
    pub(super) weather: Weather,
    pub(super) ledger: Ledger,
    /// What the last event led to, when somebody listens.
    notes: Option<Vec<String>>,
}

impl World {
    pub(super) fn new(seed: u64, sabotage: Option<Sabotage>, listens: bool) -> Self {
        let mut rng = Rng::new(seed);
        let weather = Weather::stormy(&mut rng);
        let mut world = Self {
            rng,
            sabotage,
            time: 0,
            sequence: 0,
            queue: BTreeMap::new(),
            wall_ms: WALL_START_MS,
            boot: 1,
            disk: Disk::default(),
            databases: BTreeMap::new(),
            processes: Vec::new(),
            socket: None,
            clients: Vec::new(),
            next_seat: 1,
            weather,
            ledger: Ledger::default(),
            notes: listens.then(Vec::new),
        };
        for client in 0..CLIENTS {
            let seat = world.new_seat();
            world
                .clients
                .push(Client::new(seat, client % DATABASES.len()));
            let pause = world.rng.below(500 * MS);
            world.after(pause, Event::Turn { client });
        }
        world.after(SECOND, Event::Chaos);
        world
    }

    pub(super) const fn new_seat(&mut self) -> u64 {
        let seat = self.next_seat;
        self.next_seat += 1;
        seat
    }

    /// Lets the next event happen and returns it; `None` when nothing is due any more.
    pub(super) fn step(&mut self) -> Option<Happened> {
        let ((time, sequence), event) = self.queue.pop_first()?;
        self.time = time;
        let happened = self.notes.is_some().then(|| format!("{event:?}"));
        self.happen(event);
        self.check();
        let notes = self.notes.as_mut().map(std::mem::take).unwrap_or_default();
        Some(Happened {
            sequence,
            at: time,
            event: happened.unwrap_or_default(),
            notes,
        })
    }

    fn happen(&mut self, event: Event) {
        if let Some(of) = event.process() {
            match self.processes[of].status {
                Status::Dead => return,
                Status::Stopped => {
                    self.processes[of].parked.push(event);
                    return;
                }
                Status::Running => {}
            }
            if self.struck_down(of) {
                if self.processes[of].is_alive() {
                    self.processes[of].parked.push(event);
                }
                return;
            }
        }
        match event {
            Event::Chaos => self.draw_fault(),
            Event::Turn { client } => self.take_turn(client),
            Event::Deliver { to, request } => self.receive(to, request),
            Event::Reply {
                client,
                seat,
                n,
                answer,
            } => self.take_reply(client, (seat, n), answer),
            Event::Begin(of) => self.feed(of, Input::Begin),
            Event::FileStep(of) => self.take_file_step(of),
            Event::WorkStep { of, work } => self.take_work_step(of, work),
            Event::CommandStep(of) => self.take_command_step(of),
            Event::Wake { of, generation } => {
                if self.processes[of].wake_generation == generation {
                    self.feed(of, Input::Woke);
                }
            }
            Event::Continue(of) => self.go_on(of),
        }
    }

    pub(super) fn after(&mut self, pause: Micros, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.time + pause, self.sequence), event);
    }

    /// Returns how long one step takes.
    pub(super) const fn latency(&mut self) -> Micros {
        if self.rng.chance(5) {
            self.rng.between(10 * MS, 80 * MS)
        } else {
            self.rng.between(40, 900)
        }
    }

    pub(super) const fn wall(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.wall_ms + self.time / MS)
    }

    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(notes) = &mut self.notes {
            notes.push(text());
        }
    }

    /// Hands an input to a process's machine and begins what it asks for.
    pub(super) fn feed(&mut self, of: ProcessId, input: Input) {
        self.note(|| format!("{of} < {input:?}"));
        let process = &mut self.processes[of];
        let now = process.now(self.time);
        for effect in process.machine.handle(now, input) {
            self.note(|| format!("{of} > {effect:?}"));
            self.begin_effect(of, effect);
        }
    }

    fn begin_effect(&mut self, of: ProcessId, effect: Effect) {
        match effect {
            Effect::StopWrites => self.stop_writes(of),
            Effect::WakeAt(at) => {
                let process = &mut self.processes[of];
                process.wake_generation += 1;
                let generation = process.wake_generation;
                let due = process.world_time(at).max(self.time);
                let pause = due - self.time;
                self.after(pause, Event::Wake { of, generation });
            }
            Effect::Serve { .. } => {
                self.processes[of].serving = true;
                if self.sabotage == Some(Sabotage::LockAfterLease) {
                    self.push_file_job(of, FileJob::LockAliveLate);
                }
                self.start_commands(of);
            }
            effect => match Process::file_job(effect) {
                Ok(job) => self.push_file_job(of, job),
                Err(effect) => match Process::work(effect) {
                    Ok(work) => {
                        let process = &mut self.processes[of];
                        let number = process.next_work;
                        process.next_work += 1;
                        process.works.insert(number, work);
                        self.work_later(of, number);
                    }
                    Err(effect) => unreachable!("no shell for {effect:?}"),
                },
            },
        }
    }

    fn push_file_job(&mut self, of: ProcessId, job: FileJob) {
        self.processes[of].files.push_back(job);
        let pause = self.latency();
        self.file_later(of, pause);
    }

    /// Takes the next file step of a process after this pause, unless one is under way.
    pub(super) fn file_later(&mut self, of: ProcessId, pause: Micros) {
        let process = &mut self.processes[of];
        if !process.filing && !process.files.is_empty() {
            process.filing = true;
            self.after(pause, Event::FileStep(of));
        }
    }

    pub(super) fn work_later(&mut self, of: ProcessId, work: u64) {
        let pause = self.latency();
        self.after(pause, Event::WorkStep { of, work });
    }

    /// Lets go of every database: rolls back, answers what waits with `Moved`.
    pub(super) fn stop_writes(&mut self, of: ProcessId) {
        for database in self.databases.values_mut() {
            database.roll_back(of);
        }
        let process = &mut self.processes[of];
        process.databases.clear();
        process.serving = false;
        process
            .works
            .retain(|_, work| matches!(work, Work::Kill { .. }));
        self.turn_away(of);
    }

    /// Starts another process that wants to hold the lease.
    pub(super) fn spawn(&mut self) {
        let of = self.processes.len();
        let dead: Vec<i64> = self
            .processes
            .iter()
            .filter(|other| !other.is_alive())
            .map(|other| other.pid)
            .collect();
        let reused = if self.rng.chance(100) {
            self.rng.pick(dead.len())
        } else {
            None
        };
        let fresh = 100 + i64::try_from(of).unwrap_or(i64::MAX);
        let taken = |pid| {
            self.processes
                .iter()
                .any(|other| other.is_alive() && other.pid == pid)
        };
        let pid = reused
            .map(|index| dead[index])
            .filter(|pid| !taken(*pid))
            .unwrap_or(fresh);
        let start = self.time + 1;
        let version = if self.rng.chance(300) {
            "1.0.0-alpha.10"
        } else {
            "1.0.0-alpha.9"
        };
        let identity = Identity {
            place: self.place(),
            process: ProcessName {
                pid: Pid::new(pid),
                pid_start: start,
            },
            exe: "/opt/earshot".to_owned(),
            build: "0".to_owned(),
            version: version.to_owned(),
            socket: "node.sock".to_owned(),
            node_id: "0".to_owned(),
            timings: Timings::default(),
        };
        let rate = self.rng.between(950_000, 1_050_000);
        self.processes.push(Process::new(identity, rate));
        self.note(|| format!("{of} spawned as {pid}"));
        let pause = self.latency();
        self.after(pause, Event::Begin(of));
    }

    /// Returns where a new process runs: now and then in another pid namespace.
    fn place(&mut self) -> Place {
        let pid_ns = if self.rng.chance(self.weather.elsewhere) {
            2
        } else {
            1
        };
        Place {
            host_id: "host".to_owned(),
            boot_id: format!("boot-{}", self.boot),
            pid_ns: Some(pid_ns),
            net_ns: None,
        }
    }

    pub(super) fn kill(&mut self, of: ProcessId) {
        self.note(|| format!("{of} dies"));
        self.disk.close_all(of);
        for database in self.databases.values_mut() {
            database.roll_back(of);
        }
        let process = &mut self.processes[of];
        process.status = Status::Dead;
        process.parked.clear();
        process.files.clear();
        process.works.clear();
        process.queue.clear();
        process.execution = None;
        process.lease_lock = None;
        process.alive = None;
        process.listening = false;
        process.serving = false;
        if self.socket == Some(of) {
            self.socket = None;
        }
    }

    pub(super) fn stop(&mut self, of: ProcessId) {
        if self.processes[of].runs() {
            self.note(|| format!("{of} is stopped"));
            self.processes[of].status = Status::Stopped;
        }
    }

    pub(super) fn go_on(&mut self, of: ProcessId) {
        if self.processes[of].status != Status::Stopped {
            return;
        }
        let process = &mut self.processes[of];
        process.status = Status::Running;
        process.went_on_at = Some(self.time);
        for event in std::mem::take(&mut process.parked) {
            let pause = self.rng.below(MS);
            self.after(pause, event);
        }
    }

    pub(super) fn living(&self) -> Vec<ProcessId> {
        (0..self.processes.len())
            .filter(|of| self.processes[*of].is_alive())
            .collect()
    }

    /// Returns the processes that stand for election or start.
    pub(super) fn candidates(&self) -> usize {
        let wants = |phase| matches!(phase, Phase::Idle | Phase::Electing | Phase::Starting(_));
        self.living()
            .into_iter()
            .filter(|of| wants(self.processes[*of].machine.phase()))
            .count()
    }

    /// Returns whether the world is as it should be when nothing disturbs it.
    pub(super) fn is_settled(&self) -> bool {
        let mut serving = self
            .living()
            .into_iter()
            .filter(|of| self.processes[*of].serving);
        let holder = serving.next();
        let named = holder.is_some_and(|of| self.is_named(of));
        let answered = self.clients.iter().all(Client::is_content);
        let alone = serving.next().is_none() && self.candidates() == 0;
        named && answered && alone
    }

    /// Returns where every living process and every client stands.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for of in self.living() {
            let process = &self.processes[of];
            let (status, phase) = (process.status, process.machine.phase());
            let named = if self.is_named(of) {
                ", named by the lease"
            } else {
                ""
            };
            let pid = process.pid;
            write!(text, "[{of} pid {pid} {status:?} {phase:?}{named}]").ok();
        }
        for (index, client) in self.clients.iter().enumerate() {
            write!(text, "[client {index} {client}]").ok();
        }
        text
    }
}

/// What one step of a world was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Happened {
    pub(super) sequence: u64,
    pub(super) at: Micros,
    pub(super) event: String,
    pub(super) notes: Vec<String>,
}
