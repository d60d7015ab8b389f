//! Every interleaving of a few electors, over the machines that the node runs.
//!
//! Where the simulator draws some of the orders in which things can happen, this goes through all
//! of them, within bounds: two or three electors, some crashes, stops and late timers. Steps that
//! no other elector can see (making the alive file, binding, importing) are taken together with the
//! step before. A timer may fire at any time, so clocks play no part in what is safe.
//!
//! The bounds here fit a normal test run; wider ones are tried by hand by changing the constants at
//! the end: one crash and one stop with six timers for two electors has 1.3 million states, one
//! crash and one timer each for three has 0.9 million.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use earshot_proto::lease::{
    AliveLock, Answer, Beat, BodyDigest, Command, Decision, DoneRow, Effect, Epoch, Examination,
    FileId, FilesSeen, Identity, Input, LeaseDocument, LeaseToken, Lifecycle, Parsed, Permit,
    Phase, Pid, Place, PredecessorSeen, Process, ProcessFact, Recorded, Timings, decide,
};
use earshot_proto::{Now, Timestamp};
use stateright::{Checker as _, Model, Property};

/// The seat's only command, sent to whoever serves.
const COMMAND: Command = Command {
    n: 1,
    digest: BodyDigest::new([1; 16]),
    idempotent: false,
};

/// The bounds of an exploration.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    electors: usize,
    crashes: u8,
    stops: u8,
    /// Timers that fire, in each elector.
    wakes: u8,
    /// Times that the command is sent.
    commands: u8,
    /// Whether a hung elector can be killed, or only be fenced.
    killable: bool,
    /// Whether a transaction compares the fence, as it must.
    fenced: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    electors: Vec<Elector>,
    lease: Option<(LeaseDocument, u64)>,
    lease_lock: Option<usize>,
    /// Who holds the lock of each alive file, and how often it was touched.
    alive: BTreeMap<LeaseToken, (Option<usize>, u64)>,
    socket: Option<usize>,
    fence: Epoch,
    writer: Option<usize>,
    done: Option<DoneRow<u8>>,
    effects: u8,
    files: u64,
    crashes: u8,
    stops: u8,
    commands: u8,
    highest: Epoch,
    broken: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Elector {
    place: Place,
    process: Process,
    machine: Lifecycle,
    now: Now,
    running: bool,
    dead: bool,
    wakes: u8,
    wake: Option<Now>,
    files: VecDeque<Effect>,
    work: VecDeque<Effect>,
    alive: Option<LeaseToken>,
    execution: Option<Execution>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Execution {
    Begun(Epoch),
    Decided(Epoch),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    File(usize),
    LockTimesOut(usize),
    Work(usize),
    Wake(usize),
    Command(usize),
    Execute(usize),
    Crash(usize),
    Stop(usize),
    Continue(usize),
}

fn identity(index: usize, killable: bool) -> Identity {
    let number = i64::try_from(index).unwrap_or(0);
    let room = if killable {
        0
    } else {
        u64::try_from(index).unwrap_or(0)
    };
    Identity {
        place: Place {
            host_id: String::new(),
            boot_id: String::new(),
            pid_ns: Some(room),
            net_ns: None,
        },
        process: Process {
            pid: Pid::new(10 + number),
            pid_start: 1,
        },
        exe: String::new(),
        build: String::new(),
        version: "1.0.0".to_owned(),
        socket: String::new(),
        node_id: String::new(),
        timings: Timings::default(),
    }
}

impl Elector {
    fn new(identity: Identity, wakes: u8) -> Self {
        Self {
            process: identity.process,
            place: identity.place.clone(),
            machine: Lifecycle::new(identity),
            now: Now::START,
            running: true,
            dead: false,
            wakes,
            wake: None,
            files: VecDeque::new(),
            work: VecDeque::new(),
            alive: None,
            execution: None,
        }
    }
}

impl State {
    fn file_id(number: u64) -> FileId {
        FileId {
            device: 1,
            inode: number,
        }
    }

    fn lease_token(&self) -> Option<&LeaseToken> {
        self.lease.as_ref().map(|(document, _)| &document.token)
    }

    fn feed(&mut self, index: usize, input: Input) {
        let now = self.electors[index].now;
        for effect in self.electors[index].machine.handle(now, input) {
            match effect {
                Effect::StopWrites => self.roll_back(index),
                Effect::WakeAt(at) => self.electors[index].wake = Some(at),
                Effect::Serve { .. } => {}
                Effect::BindSocket { .. }
                | Effect::LookAtPredecessors { .. }
                | Effect::Kill { .. }
                | Effect::RaiseFence { .. }
                | Effect::LeaveDatabases { .. }
                | Effect::Import { .. }
                | Effect::BindListeners { .. }
                | Effect::Drain { .. } => self.electors[index].work.push_back(effect),
                Effect::Examine
                | Effect::MakeAlive
                | Effect::LockLease { .. }
                | Effect::WriteLease(_)
                | Effect::UnlockLease
                | Effect::DropAlive
                | Effect::Beat
                | Effect::LookAtFiles
                | Effect::Finish(_) => self.electors[index].files.push_back(effect),
            }
        }
        self.take_unseen_steps(index);
    }

    /// Takes the steps that nobody else can see.
    fn take_unseen_steps(&mut self, index: usize) {
        while matches!(
            self.electors[index].files.front(),
            Some(Effect::MakeAlive | Effect::Finish(_) | Effect::UnlockLease)
        ) {
            self.file(index);
        }
        let elector = &self.electors[index];
        if matches!(
            elector.work.front(),
            Some(Effect::BindSocket { .. } | Effect::Import { .. } | Effect::BindListeners { .. })
        ) {
            self.work(index);
        }
    }

    fn examine(&self, index: usize, probe: bool) -> Examination {
        let token = self.lease_token();
        let alive = token.and_then(|token| self.alive.get(token));
        let holder = token.and_then(|token| {
            let holds = |elector: &Elector| !elector.dead && elector.machine.token() == Some(token);
            self.electors.iter().position(holds)
        });
        let place = &self.electors[index].place;
        let process = match &self.lease {
            Some((document, _)) if document.place == *place => {
                let named =
                    |elector: &Elector| !elector.dead && elector.process == document.process;
                if self.electors.iter().any(named) {
                    ProcessFact::Running
                } else {
                    ProcessFact::Gone
                }
            }
            Some(_) | None => ProcessFact::Unknown,
        };
        let hears = holder.is_some_and(|of| self.electors[of].running && self.socket == Some(of));
        let answer = match (probe && token.is_some(), hears) {
            (false, _) => Answer::NotAsked,
            (true, true) => Answer::Answered {
                executable_replaced: false,
            },
            (true, false) => Answer::Silent,
        };
        Examination {
            lease: self
                .lease
                .as_ref()
                .map(|(document, _)| Parsed::Whole(Box::new(document.clone()))),
            alive: match alive {
                None => AliveLock::Missing,
                Some((None, _)) => AliveLock::Free,
                Some((Some(_), _)) => AliveLock::Held,
            },
            beat: alive.map(|(_, beat)| Beat::new(*beat)),
            process,
            answer,
            wall: Timestamp::UNIX_EPOCH,
        }
    }

    fn file(&mut self, index: usize) {
        let Some(effect) = self.electors[index].files.pop_front() else {
            return;
        };
        match effect {
            Effect::Examine => {
                let seen = self.examine(index, true);
                self.feed(index, Input::Examined(seen));
            }
            Effect::MakeAlive => {
                self.files += 1;
                let token = LeaseToken::from_random(u128::from(self.files).to_be_bytes());
                self.alive.insert(token.clone(), (Some(index), 0));
                self.electors[index].alive = Some(token.clone());
                let file = Self::file_id(self.files);
                self.feed(index, Input::AliveMade { token, file });
            }
            Effect::LockLease { .. } => {
                self.lease_lock = Some(index);
                let seen = self.examine(index, false);
                self.feed(
                    index,
                    Input::LeaseLocked {
                        seen,
                        fences: vec![self.fence],
                    },
                );
            }
            Effect::WriteLease(document) => {
                if self.lease_token() != Some(&document.token) {
                    if document.epoch <= self.highest {
                        self.broken = Some("an epoch did not grow");
                    }
                    self.highest = document.epoch;
                }
                self.files += 1;
                self.lease = Some((*document, self.files));
                let file = Self::file_id(self.files);
                self.feed(index, Input::LeaseWritten { file });
            }
            Effect::UnlockLease => self.lease_lock = self.lease_lock.filter(|by| *by != index),
            Effect::DropAlive => {
                if let Some(token) = self.electors[index].alive.take() {
                    self.alive
                        .entry(token)
                        .and_modify(|(holder, _)| *holder = None);
                }
            }
            Effect::Beat => {
                if let Some(token) = self.electors[index].alive.clone() {
                    self.alive.entry(token).and_modify(|(_, beat)| *beat += 1);
                }
            }
            Effect::LookAtFiles => {
                let seen = self.look_at_files(index);
                self.feed(index, Input::FilesLooked(seen));
            }
            Effect::Finish(_) => self.die(index),
            other => unreachable!("{other:?} is no work on files"),
        }
    }

    fn look_at_files(&self, index: usize) -> FilesSeen {
        // The alive file's number is the one that its token was made of.
        let number = |token: &LeaseToken| u64::from_str_radix(token.as_str(), 16).ok();
        let alive = self.electors[index].alive.as_ref().and_then(number);
        FilesSeen {
            lease: self.lease.as_ref().map(|(_, file)| Self::file_id(*file)),
            token: self.lease_token().cloned(),
            alive: alive.map(Self::file_id),
            databases_in_place: true,
            socket_in_place: self.socket == Some(index),
        }
    }

    fn work(&mut self, index: usize) {
        let Some(effect) = self.electors[index].work.pop_front() else {
            return;
        };
        match effect {
            Effect::BindSocket { epoch } => {
                self.socket = Some(index);
                self.feed(index, Input::SocketBound { epoch });
            }
            Effect::LookAtPredecessors {
                epoch,
                predecessors,
            } => {
                let seen = predecessors
                    .into_iter()
                    .map(|predecessor| PredecessorSeen {
                        alive: match self.alive.get(&predecessor.token) {
                            None => AliveLock::Missing,
                            Some((None, _)) => AliveLock::Free,
                            Some((Some(_), _)) => AliveLock::Held,
                        },
                        token: predecessor.token,
                        process: ProcessFact::Unknown,
                    })
                    .collect();
                self.feed(index, Input::PredecessorsLooked { epoch, seen });
            }
            Effect::Kill { pid, .. } => {
                let meant = |elector: &Elector| elector.process.pid.signalable() == Some(pid);
                let target = self.electors.iter().position(meant);
                if let Some(target) = target {
                    if target == index {
                        self.broken = Some("an elector kills itself");
                    }
                    self.die(target);
                }
            }
            // All run in one place: whoever keeps the database locked was killed.
            Effect::LeaveDatabases { .. } => {
                self.broken = Some("a database is left behind");
            }
            Effect::RaiseFence { epoch } if self.writer.is_some() => {
                self.feed(index, Input::FenceBusy { epoch });
            }
            Effect::RaiseFence { epoch } if self.fence >= epoch => {
                self.feed(index, Input::FenceHigher { epoch });
            }
            Effect::RaiseFence { epoch } => {
                self.fence = epoch;
                self.feed(index, Input::FenceRaised { epoch });
            }
            Effect::Import { epoch } => self.feed(index, Input::Imported { epoch }),
            Effect::BindListeners { epoch } => {
                self.feed(
                    index,
                    Input::ListenersBound {
                        epoch,
                        url: None,
                        quic: None,
                    },
                );
            }
            other => unreachable!("{other:?} does not run beside"),
        }
    }

    fn roll_back(&mut self, index: usize) {
        self.electors[index].execution = None;
        self.electors[index].work.clear();
        self.writer = self.writer.filter(|writer| *writer != index);
    }

    fn die(&mut self, index: usize) {
        self.roll_back(index);
        let elector = &mut self.electors[index];
        elector.dead = true;
        elector.running = false;
        elector.files.clear();
        elector.wake = None;
        elector.alive = None;
        for (holder, _) in self.alive.values_mut() {
            *holder = holder.filter(|holder| *holder != index);
        }
        self.lease_lock = self.lease_lock.filter(|by| *by != index);
        self.socket = self.socket.filter(|of| *of != index);
    }

    fn execute(&mut self, index: usize, fenced: bool) {
        match self.electors[index].execution {
            None => {}
            Some(Execution::Begun(epoch)) => {
                let fence = if fenced { self.fence } else { epoch };
                let recorded = Recorded {
                    fence,
                    done: self.done.clone(),
                    floor: None,
                };
                if decide(epoch, COMMAND, recorded) == Decision::Run {
                    self.electors[index].execution = Some(Execution::Decided(epoch));
                } else {
                    self.electors[index].execution = None;
                    self.writer = None;
                }
            }
            Some(Execution::Decided(epoch)) => {
                if epoch != self.fence {
                    self.broken = Some("a commit behind the fence");
                }
                self.effects += 1;
                self.done = Some(DoneRow::Finished {
                    digest: COMMAND.digest,
                    result: 1,
                });
                self.electors[index].execution = None;
                self.writer = None;
            }
        }
    }
}

impl Model for Bounds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            electors: (0..self.electors)
                .map(|index| Elector::new(identity(index, self.killable), self.wakes))
                .collect(),
            lease: None,
            lease_lock: None,
            alive: BTreeMap::new(),
            socket: None,
            fence: Epoch::NONE,
            writer: None,
            done: None,
            effects: 0,
            files: 0,
            crashes: self.crashes,
            stops: self.stops,
            commands: self.commands,
            highest: Epoch::NONE,
            broken: None,
        };
        for index in 0..self.electors {
            state.feed(index, Input::Begin);
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, elector) in state.electors.iter().enumerate().filter(|(_, of)| !of.dead) {
            if !elector.running {
                actions.push(Action::Continue(index));
                continue;
            }
            match (elector.files.front(), state.lease_lock) {
                (Some(Effect::LockLease { .. }), Some(holder)) => {
                    if !state.electors[holder].running {
                        actions.push(Action::LockTimesOut(index));
                    }
                }
                (Some(_), _) => actions.push(Action::File(index)),
                (None, _) => {}
            }
            if !elector.work.is_empty() {
                actions.push(Action::Work(index));
            }
            if elector.wake.is_some() && elector.wakes > 0 && elector.files.is_empty() {
                actions.push(Action::Wake(index));
            }
            let free = state.writer.is_none() && elector.execution.is_none();
            let serves = matches!(elector.machine.permit(elector.now), Permit::Run(_));
            if state.commands > 0 && free && serves {
                actions.push(Action::Command(index));
            }
            if elector.execution.is_some() {
                actions.push(Action::Execute(index));
            }
            if state.crashes > 0 {
                actions.push(Action::Crash(index));
            }
            if state.stops > 0 {
                actions.push(Action::Stop(index));
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::File(index) => {
                state.file(index);
                state.take_unseen_steps(index);
            }
            Action::LockTimesOut(index) => {
                state.electors[index].files.pop_front();
                state.feed(index, Input::LockBusy { holder: None });
            }
            Action::Work(index) => {
                state.work(index);
                state.take_unseen_steps(index);
            }
            Action::Wake(index) => {
                let elector = &mut state.electors[index];
                let due = elector.wake.take()?;
                // Late, as timers are: one heartbeat's worth of watching.
                let late = elector.now + Duration::from_secs(2);
                elector.now = due.max(late);
                elector.wakes -= 1;
                state.feed(index, Input::Woke);
            }
            Action::Command(index) => {
                let elector = &mut state.electors[index];
                let Permit::Run(epoch) = elector.machine.permit(elector.now) else {
                    return None;
                };
                elector.execution = Some(Execution::Begun(epoch));
                state.writer = Some(index);
                state.commands -= 1;
            }
            Action::Execute(index) => state.execute(index, self.fenced),
            Action::Crash(index) => {
                state.crashes -= 1;
                state.die(index);
            }
            Action::Stop(index) => {
                state.stops -= 1;
                state.electors[index].running = false;
            }
            Action::Continue(index) => state.electors[index].running = true,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing is broken", |_: &Self, state: &State| {
                state.broken.is_none()
            }),
            Property::always("a command takes effect once", |_: &Self, state: &State| {
                state.effects <= 1
            }),
            Property::always("one epoch may commit", |_: &Self, state: &State| {
                let mut serving =
                    state
                        .electors
                        .iter()
                        .filter_map(|elector| match elector.machine.phase() {
                            Phase::Serving(epoch) if !elector.dead => Some(epoch),
                            _ => None,
                        });
                // Several may believe that they serve, each under its own epoch; the fence is one.
                let fence = state.fence;
                serving.all(|epoch| epoch <= fence)
            }),
            Property::sometimes("a command took effect", |_: &Self, state: &State| {
                state.effects == 1
            }),
            // Otherwise the exploration would show nothing about the fence.
            Property::sometimes(
                "two believe that they serve",
                |bounds: &Self, state: &State| {
                    if bounds.killable || bounds.wakes < 5 || bounds.stops == 0 {
                        return true;
                    }
                    let serves = |elector: &&Elector| {
                        !elector.dead && matches!(elector.machine.phase(), Phase::Serving(_))
                    };
                    state.electors.iter().filter(serves).count() == 2
                },
            ),
        ]
    }
}

/// Returns how many states were seen, all of them good.
fn explore(bounds: Bounds) -> usize {
    let checker = bounds.checker().threads(1).spawn_bfs().join();
    checker.assert_properties();
    checker.unique_state_count()
}

/// Two electors, one of them stopped anywhere and continued anywhere, none killed.
const TWO: Bounds = Bounds {
    electors: 2,
    crashes: 0,
    stops: 1,
    // Five looks, two seconds apart, make a serving holder hung.
    wakes: 5,
    commands: 2,
    killable: false,
    fenced: true,
};
/// Three electors and nothing else.
const THREE: Bounds = Bounds {
    electors: 3,
    stops: 0,
    wakes: 0,
    commands: 1,
    ..TWO
};

#[test]
fn two_electors_and_a_stop() {
    println!("{} states", explore(TWO));
}

#[test]
fn two_electors_and_a_stop_that_ends_in_a_kill() {
    println!(
        "{} states",
        explore(Bounds {
            killable: true,
            commands: 1,
            ..TWO
        })
    );
}

#[test]
fn two_electors_and_a_crash() {
    println!(
        "{} states",
        explore(Bounds {
            crashes: 1,
            stops: 0,
            wakes: 2,
            ..TWO
        })
    );
}

#[test]
fn three_electors_and_a_crash() {
    println!(
        "{} states",
        explore(Bounds {
            crashes: 1,
            ..THREE
        })
    );
}

#[test]
fn three_electors_and_a_stop() {
    println!("{} states", explore(Bounds { stops: 1, ..THREE }));
}

#[test]
fn without_the_fence_a_counterexample_is_found() {
    let bounds = Bounds {
        fenced: false,
        ..TWO
    };
    let checker = bounds.checker().threads(1).spawn_bfs().join();
    assert!(checker.discovery("nothing is broken").is_some());
}
