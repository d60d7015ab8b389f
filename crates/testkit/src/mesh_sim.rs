//! Many nodes of one machine, linked to each other, driven by one seed.
//!
//! Every node runs the real [`Siblings`]; only what carries the links is simulated: each is two
//! queues of bytes with latency, which break when a process dies, is cut off, or does not read for
//! long. In the storm, nodes announce, crash, return, stop and are cut off from each other; in the
//! calm everything heals, and within a bound every replica has to equal its origin. Messages travel
//! in their form on the wire; signatures are left out, they are the link's own tests' concern.
//!
//! # Invariants
//!
//! 7. A gather ends at its deadline, and says of each sibling what became of it.
//! 8. A replica is a state that its origin had, and holds that origin's rows alone.
//! 9. After healing, replicas equal their origin within two rounds of messages.
//! 10. The number of a row's announcement never decreases in a replica; where claims of two nodes
//!     meet, both see it.
//! 11. No queue holds more than [`QUEUE_MAX`] messages.

mod plan;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use earshot_proto::board::{Client, Transport};
use earshot_proto::claims::Claims;
use earshot_proto::mesh::link::{End, Sibling};
use earshot_proto::mesh::message::{Facts, Message, SharedRow, SharedWord, StateId};
use earshot_proto::mesh::siblings::{Candidate, Effect, Input, LinkNumber, Siblings};
use earshot_proto::text::Line;
use earshot_proto::{Now, PeerId, Timestamp};
use earshot_trust::{PublicKey, SecretKey};

use crate::sim::Rng;

pub use plan::{Plan, Report};

/// Messages that wait for one node on one link before it is cut, as the carrier does.
pub const QUEUE_MAX: usize = 256;

const MS: u64 = 1_000;
const SECOND: u64 = 1_000 * MS;
/// Bytes of an envelope and its frame, which every message has on top.
const OVERHEAD: u64 = 183 + 4;
/// How long after the calm everything has to be settled.
const SETTLED_WITHIN: u64 = 60 * SECOND;

/// What is due.
#[derive(Debug)]
enum Event {
    /// A node's timer.
    Wake { node: usize, generation: u64 },
    /// The head of a queue arrives.
    Arrive { link: u64, to: usize },
    /// An end has read the other's hello.
    Up { link: u64, at: usize },
    /// A dial comes to its end.
    Dialled { from: usize, candidate: Candidate },
    /// Candidates are looked for.
    Look { node: usize, life: u64 },
    /// A link's end is noticed.
    Broken { link: u64, at: usize },
    /// A stopped process goes on.
    GoOn { node: usize },
    /// Something happens to the world.
    Turn,
}

#[derive(Debug)]
struct Node {
    key: PublicKey,
    machine: Siblings,
    epoch: u64,
    life: u64,
    up: bool,
    stopped: bool,
    /// The side of the partition that it is on.
    side: u8,
    wake: u64,
    rows: BTreeMap<PeerId, SharedRow>,
    asked: BTreeMap<u64, Now>,
}

#[derive(Debug)]
struct Wire {
    ends: [usize; 2],
    lives: [u64; 2],
    epochs: [u64; 2],
    /// What is on its way to each end.
    queues: [VecDeque<Vec<u8>>; 2],
    kinds: [VecDeque<u8>; 2],
    open: [bool; 2],
    /// Whether each end has read the other's hello.
    up: [bool; 2],
}

/// A world of nodes.
#[derive(Debug)]
struct World {
    rng: Rng,
    time: u64,
    sequence: u64,
    queue: BTreeMap<(u64, u64), Event>,
    nodes: Vec<Node>,
    wires: BTreeMap<u64, Wire>,
    next_wire: u64,
    calm: bool,
    left: u64,
    faults: u64,
    /// The rows that each node had in each state that it was in, as a hash.
    ledger: BTreeMap<(PublicKey, StateId), u64>,
    seen_n: BTreeMap<(usize, PublicKey, PeerId), (u64, u64)>,
    report: Report,
    broken: Option<String>,
    /// Messages on their way.
    flying: usize,
    /// A node that did not hold what another has when it was compared last.
    suspect: Option<(usize, usize)>,
}

/// Runs a world from its seed.
///
/// # Errors
///
/// The invariant that did not hold, and how.
pub fn run(seed: u64, plan: Plan) -> Result<Report, String> {
    let mut world = World::new(seed, plan);
    for node in 0..plan.nodes {
        world.after(0, Event::Look { node, life: 0 });
    }
    world.run_until_equal("join")?;
    world.report.joined_us = world.time;
    world.report.joining_messages = world.report.messages;
    world.report.joining_bytes = world.report.bytes;
    for _ in 0..10 {
        let from = world.time;
        world.announce(0);
        world.run_until_equal("tell")?;
        world.report.slowest_us = world.report.slowest_us.max(world.time - from);
    }
    world.after(MS, Event::Turn);
    while world.left > 0 && world.broken.is_none() {
        world.step();
    }
    world.calm_down();
    let calm_at = world.time;
    world
        .run_until_equal("settle")
        .map_err(|what| format!("seed {seed}: {what}"))?;
    world.report.settled_us = world.time.saturating_sub(calm_at);
    world.check_meetings();
    match world.broken {
        Some(what) => Err(format!("seed {seed}: {what}")),
        None => Ok(world.report),
    }
}

fn key(node: usize) -> SecretKey {
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&u64::try_from(node).unwrap_or(0).to_be_bytes());
    SecretKey::from_seed(seed)
}

fn checkout(node: usize) -> [u8; 16] {
    u128::try_from(node).unwrap_or(0).to_be_bytes()
}

const FACTS: Facts = Facts {
    repository: Some([1; 16]),
    ignores_case: false,
    attached: 0,
    left_out: 0,
};

impl World {
    fn new(seed: u64, plan: Plan) -> Self {
        let mut rng = Rng::new(seed);
        let nodes = (0..plan.nodes).map(|index| {
            let key = key(index).public();
            let epoch = 1_000 + rng.below(1_000);
            Node {
                key,
                machine: Siblings::new(key, epoch, FACTS),
                epoch,
                life: 0,
                up: true,
                stopped: false,
                side: 0,
                wake: 0,
                rows: BTreeMap::new(),
                asked: BTreeMap::new(),
            }
        });
        let nodes = nodes.collect();
        let mut world = Self {
            rng,
            time: 0,
            sequence: 0,
            queue: BTreeMap::new(),
            nodes,
            wires: BTreeMap::new(),
            next_wire: 0,
            calm: false,
            left: plan.events,
            faults: plan.faults,
            ledger: BTreeMap::new(),
            seen_n: BTreeMap::new(),
            report: Report::default(),
            broken: None,
            flying: 0,
            suspect: None,
        };
        for node in 0..plan.nodes {
            world.announce(node);
        }
        world
    }

    fn now(&self) -> Now {
        Now::from_start(Duration::from_micros(self.time))
    }

    fn after(&mut self, pause: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.time + pause, self.sequence), event);
    }

    fn violate(&mut self, invariant: u8, what: &str) {
        if self.broken.is_none() {
            self.broken = Some(format!("invariant {invariant} at {} us: {what}", self.time));
        }
    }

    fn run_until_equal(&mut self, what: &str) -> Result<(), String> {
        let until = self.time + SETTLED_WITHIN;
        // Comparing all with all is dear: it is done when nothing is on its way.
        loop {
            if self.flying == 0 && self.all_equal() {
                return Ok(());
            }
            if let Some(broken) = &self.broken {
                return Err(broken.clone());
            }
            if self.time > until || !self.step() {
                return Err(format!("invariant 9: no end to {what}: {}", self.unequal()));
            }
        }
    }

    fn step(&mut self) -> bool {
        let Some(((time, _), event)) = self.queue.pop_first() else {
            return false;
        };
        self.time = time;
        match event {
            Event::Wake { node, generation } => {
                let fits = self.nodes[node].wake == generation;
                if fits && self.runs(node) {
                    self.give(node, Input::Woke);
                } else if fits && self.nodes[node].up {
                    self.after(SECOND, Event::Wake { node, generation });
                }
            }
            Event::Arrive { link, to } => self.arrive(link, to),
            Event::Up { link, at } => self.handle_up(link, at),
            Event::Dialled { from, candidate } => self.dialled(from, candidate),
            Event::Look { node, life } => self.look(node, life),
            Event::Broken { link, at } => self.notice_end(link, at),
            Event::GoOn { node } => self.nodes[node].stopped = false,
            Event::Turn => self.turn(),
        }
        true
    }

    fn runs(&self, node: usize) -> bool {
        self.nodes[node].up && !self.nodes[node].stopped
    }

    fn give(&mut self, node: usize, input: Input) {
        let now = self.now();
        let effects = self.nodes[node].machine.handle(now, input);
        self.act(node, effects);
    }

    fn act(&mut self, node: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Look => {
                    let life = self.nodes[node].life;
                    self.after(MS, Event::Look { node, life });
                }
                Effect::Dial(candidate) => {
                    let pause = self.rng.between(100, 3 * MS);
                    self.after(
                        pause,
                        Event::Dialled {
                            from: node,
                            candidate,
                        },
                    );
                }
                Effect::Send(link, message) => self.send(node, link.0, &message),
                Effect::Close(link) => self.close(node, link.0),
                Effect::News(_) => {}
                Effect::Asked { number, .. } => {
                    let deadline = self.nodes[node].asked.remove(&number);
                    if deadline.is_none_or(|deadline| self.now() > deadline + WAKE_SLACK) {
                        self.violate(7, "a gather ended late, or twice");
                    }
                }
            }
        }
        let wake = self.nodes[node].machine.next_wake();
        self.nodes[node].wake += 1;
        let generation = self.nodes[node].wake;
        if let Some(at) = wake {
            let at = u64::try_from(at.since_start().as_micros()).unwrap_or(u64::MAX);
            let pause = at.saturating_sub(self.time);
            self.after(pause, Event::Wake { node, generation });
        }
    }

    fn send(&mut self, from: usize, link: u64, message: &Message) {
        if let Message::Delta(delta) = message {
            let node = &self.nodes[from];
            self.ledger
                .insert((node.key, delta.now), hash_of(node.rows.values()));
        }
        let (kind, payload) = message.encode();
        let Some(wire) = self.wires.get_mut(&link) else {
            return;
        };
        let to = usize::from(wire.ends[0] == from);
        if !wire.open[1 - to] {
            return;
        }
        self.report.messages += 1;
        self.report.bytes += OVERHEAD + u64::try_from(payload.len()).unwrap_or(0);
        self.flying += 1;
        wire.queues[to].push_back(payload);
        wire.kinds[to].push_back(kind);
        if wire.queues[to].len() > QUEUE_MAX {
            self.cut(link);
            return;
        }
        let pause = self.rng.between(30, 400);
        self.after(pause, Event::Arrive { link, to });
    }

    fn arrive(&mut self, link: u64, to: usize) {
        let Some(wire) = self.wires.get_mut(&link) else {
            return;
        };
        let (node, life) = (wire.ends[to], wire.lives[to]);
        if !wire.open[to] || self.nodes[node].life != life {
            return;
        }
        if self.nodes[node].stopped || !wire.up[to] {
            self.after(MS, Event::Arrive { link, to });
            return;
        }
        let (Some(payload), Some(kind)) = (wire.queues[to].pop_front(), wire.kinds[to].pop_front())
        else {
            return;
        };
        let sender = wire.ends[1 - to];
        self.flying -= 1;
        match Message::decode(kind, &payload) {
            Ok(message) => {
                let (link, message) = (LinkNumber(link), Box::new(message));
                self.give(node, Input::Got { link, message });
                self.check_replica(node, sender);
            }
            Err(error) => self.violate(11, &error.to_string()),
        }
    }

    fn dialled(&mut self, from: usize, candidate: Candidate) {
        if !self.nodes[from].up {
            return;
        }
        if self.nodes[from].stopped {
            self.after(SECOND, Event::Dialled { from, candidate });
            return;
        }
        let to = u128::from_be_bytes(candidate.checkout);
        let to = usize::try_from(to).unwrap_or(usize::MAX);
        let reaches = self
            .nodes
            .get(to)
            .is_some_and(|other| other.up && !other.stopped && other.side == self.nodes[from].side);
        if !reaches {
            let why = Line::name("it does not answer");
            let checkout = candidate.checkout;
            self.give(from, Input::DialFailed { checkout, why });
            return;
        }
        let number = self.next_wire;
        self.next_wire += 1;
        self.wires.insert(
            number,
            Wire {
                ends: [from, to],
                lives: [self.nodes[from].life, self.nodes[to].life],
                epochs: [self.nodes[from].epoch, self.nodes[to].epoch],
                queues: [VecDeque::new(), VecDeque::new()],
                kinds: [VecDeque::new(), VecDeque::new()],
                open: [true, true],
                up: [false, false],
            },
        );
        for at in 0..2 {
            let pause = self.rng.between(300, 3 * MS);
            self.after(pause, Event::Up { link: number, at });
        }
    }

    fn handle_up(&mut self, link: u64, at: usize) {
        let Some(wire) = self.wires.get_mut(&link) else {
            return;
        };
        let (node, life) = (wire.ends[at], wire.lives[at]);
        if !wire.open[at] || self.nodes[node].life != life {
            return;
        }
        if self.nodes[node].stopped {
            self.after(20 * MS, Event::Up { link, at });
            return;
        }
        wire.up[at] = true;
        let end = if at == 0 { End::Dialler } else { End::Acceptor };
        let (other, epoch) = (wire.ends[1 - at], wire.epochs[1 - at]);
        let sibling = Box::new(self.sibling(other, epoch, link));
        let link = LinkNumber(link);
        self.give(node, Input::Up { link, sibling, end });
    }

    fn sibling(&self, node: usize, epoch: u64, number: u64) -> Sibling {
        Sibling {
            node: self.nodes[node].key,
            machine: self.nodes[node].key,
            checkout: checkout(node),
            epoch,
            release: Line::name("0.1.0"),
            wall: Timestamp::UNIX_EPOCH,
            // Each end counts its own links; both grow with the world's.
            own_number: number,
            their_number: number,
        }
    }

    fn look(&mut self, node: usize, life: u64) {
        if !self.nodes[node].up || self.nodes[node].life != life {
            return;
        }
        let others = self.nodes.iter().enumerate();
        let candidates = others
            .filter(|(index, other)| *index != node && other.up)
            .map(|(index, other)| Candidate {
                checkout: checkout(index),
                epoch: other.epoch,
                address: String::new(),
            });
        let candidates = candidates.collect();
        self.give(node, Input::Candidates(candidates));
    }

    /// Closes one end in order: what was sent before still arrives.
    fn close(&mut self, node: usize, link: u64) {
        let Some(wire) = self.wires.get_mut(&link) else {
            return;
        };
        let mine = usize::from(wire.ends[0] != node);
        wire.open[mine] = false;
        let at = 1 - mine;
        self.after(2 * MS, Event::Broken { link, at });
    }

    /// Cuts a link at both ends.
    fn cut(&mut self, link: u64) {
        for at in 0..2 {
            self.after(MS, Event::Broken { link, at });
        }
    }

    fn notice_end(&mut self, link: u64, at: usize) {
        let Some(wire) = self.wires.get_mut(&link) else {
            return;
        };
        let (node, life) = (wire.ends[at], wire.lives[at]);
        if self.nodes[node].stopped && self.nodes[node].life == life {
            self.after(20 * MS, Event::Broken { link, at });
            return;
        }
        let noticed = !wire.open[at];
        wire.open[at] = false;
        self.flying -= wire.queues[at].len();
        wire.queues[at].clear();
        wire.kinds[at].clear();
        let (up, dialled) = (wire.up[at], at == 0);
        let other = wire.ends[1 - at];
        if !noticed && self.nodes[node].up && self.nodes[node].life == life {
            if up {
                let link = LinkNumber(link);
                self.give(node, Input::Down { link });
            } else if dialled {
                let why = Line::name("it closed the link");
                let checkout = checkout(other);
                self.give(node, Input::DialFailed { checkout, why });
            }
        }
        let wire = self.wires.get(&link);
        if wire.is_some_and(|wire| wire.open == [false, false])
            && let Some(wire) = self.wires.remove(&link)
        {
            self.flying -= wire.queues.iter().map(VecDeque::len).sum::<usize>();
        }
    }

    fn announce(&mut self, node: usize) {
        let peer = PeerId::new(1 + self.rng.below(3)).unwrap_or(PeerId::FIRST);
        let now = self.now();
        if self.rng.chance(150) {
            self.nodes[node].rows.remove(&peer);
            let effects = self.nodes[node].machine.remove(now, peer);
            self.act(node, effects);
            return;
        }
        let n = self.time + 1;
        let path = format!("src/{}", self.rng.below(6));
        let claims = Claims::parse(&[path]).unwrap_or_default();
        let row = SharedRow {
            id: peer,
            seat_id: "00ff00ff00ff00ff"
                .parse()
                .unwrap_or_else(|_| unreachable!("a seat id")),
            client: Client::new("simulated", "1"),
            transport: Transport::Stdio,
            branch: None,
            attached_at: Timestamp::UNIX_EPOCH,
            left_at: None,
            word: Some(SharedWord {
                n,
                intent: Line::intent("simulated").unwrap_or_default(),
                claims,
                at: Timestamp::from_unix_ms(self.time / MS),
            }),
        };
        self.nodes[node].rows.insert(peer, row.clone());
        let effects = self.nodes[node].machine.put(now, row);
        self.act(node, effects);
    }

    fn turn(&mut self) {
        if self.calm {
            return;
        }
        self.left = self.left.saturating_sub(1);
        let pause = self.rng.between(MS, 60 * MS);
        self.after(pause, Event::Turn);
        let Some(node) = self.rng.pick(self.nodes.len()) else {
            return;
        };
        if self.rng.chance(self.faults) {
            self.fault(node);
        } else if self.runs(node) && self.rng.chance(50) {
            let number = self.sequence;
            let deadline = self.now() + Duration::from_secs(1);
            self.nodes[node].asked.insert(number, deadline);
            self.give(node, Input::Ask { number, deadline });
        } else if self.runs(node) {
            self.announce(node);
        }
    }

    fn fault(&mut self, node: usize) {
        match self.rng.below(5) {
            0 if self.nodes[node].up => self.crash(node),
            0 | 1 => self.start(node),
            2 if self.nodes[node].up => {
                self.nodes[node].stopped = true;
                let pause = self.rng.between(100 * MS, 20 * SECOND);
                self.after(pause, Event::GoOn { node });
            }
            3 => {
                // The links between two sides break; each side goes on.
                self.nodes[node].side ^= 1;
                let of = |wire: &Wire| wire.ends.contains(&node);
                let cut: Vec<u64> = self
                    .wires
                    .iter()
                    .filter(|(_, wire)| of(wire))
                    .map(|(link, _)| *link)
                    .collect();
                for link in cut {
                    self.cut(link);
                }
            }
            _ => {
                let links: Vec<u64> = self.wires.keys().copied().collect();
                if let Some(index) = self.rng.pick(links.len()) {
                    self.cut(links[index]);
                }
            }
        }
    }

    fn crash(&mut self, node: usize) {
        self.nodes[node].up = false;
        self.nodes[node].stopped = false;
        self.nodes[node].life += 1;
        self.nodes[node].asked.clear();
        // What it had seen of others it has forgotten; what it is told now is theirs all the same.
        self.seen_n.retain(|(observer, _, _), _| *observer != node);
        let links: Vec<u64> = self.wires.keys().copied().collect();
        for link in links {
            let Some(wire) = self.wires.get_mut(&link) else {
                continue;
            };
            for at in 0..2 {
                if wire.ends[at] == node {
                    wire.open[at] = false;
                    let at = 1 - at;
                    self.after(MS, Event::Broken { link, at });
                    break;
                }
            }
        }
    }

    /// Starts a node that is down: with its rows, as its journal has them, in a newer epoch.
    fn start(&mut self, node: usize) {
        if self.nodes[node].up {
            return;
        }
        // Now and then its state was lost, and the clock set back below the epochs in it.
        let lost = self.rng.chance(100);
        let it = &mut self.nodes[node];
        it.up = true;
        it.epoch = if lost { it.epoch / 2 } else { it.epoch + 1 };
        if lost {
            it.rows.clear();
        }
        it.machine = Siblings::new(it.key, it.epoch, FACTS);
        let life = it.life;
        let rows: Vec<SharedRow> = it.rows.values().cloned().collect();
        let now = self.now();
        for row in rows {
            let effects = self.nodes[node].machine.put(now, row);
            self.act(node, effects);
        }
        self.after(MS, Event::Look { node, life });
    }

    fn calm_down(&mut self) {
        self.calm = true;
        for node in 0..self.nodes.len() {
            self.nodes[node].side = 0;
            self.nodes[node].stopped = false;
            self.start(node);
        }
    }

    /// Invariants 8 and 10, of what a node holds of another now.
    fn check_replica(&mut self, node: usize, of: usize) {
        let (own, of) = (self.nodes[node].key, self.nodes[of].key);
        let replicas = self.nodes[node].machine.replicas();
        if replicas.node(&own).is_some() {
            self.violate(8, "a node holds a replica of itself");
            return;
        }
        let Some(replica) = replicas.node(&of) else {
            return;
        };
        let had = self.ledger.get(&(of, replica.state)) == Some(&hash_of(replica.rows()));
        let epoch = replica.state.epoch;
        let numbers: Vec<(PeerId, u64)> = replica
            .rows()
            .filter_map(|row| Some((row.id, row.word.as_ref()?.n)))
            .collect();
        if !had {
            self.violate(8, &format!("{node} holds a state that {of} never had"));
        }
        for (peer, n) in numbers {
            let before = self.seen_n.insert((node, of, peer), (epoch, n));
            if before.is_some_and(|before| before > (epoch, n)) {
                self.violate(10, &format!("the number of {peer} of {of} sank to {n}"));
            }
        }
    }

    fn all_equal(&mut self) -> bool {
        // Whoever was behind a moment ago is most likely still.
        if let Some((at, of)) = self.suspect
            && !self.is_equal(at, of)
        {
            return false;
        }
        self.suspect = self.first_unequal();
        self.suspect.is_none()
    }

    /// Returns whether one node holds what another has, as far as both are there.
    fn is_equal(&self, at: usize, of: usize) -> bool {
        let (node, told) = (&self.nodes[at], &self.nodes[of]);
        if at == of || !node.up || !told.up {
            return true;
        }
        let replica = node.machine.replicas().node(&told.key);
        replica.is_some_and(|replica| {
            replica.gone_since.is_none() && replica.rows().eq(told.rows.values())
        })
    }

    fn first_unequal(&self) -> Option<(usize, usize)> {
        let all = 0..self.nodes.len();
        all.clone()
            .flat_map(|at| all.clone().map(move |of| (at, of)))
            .find(|(at, of)| !self.is_equal(*at, *of))
    }

    fn unequal(&self) -> String {
        let Some((index, other)) = self.first_unequal() else {
            return "messages are still on their way".to_owned();
        };
        let node = &self.nodes[index];
        let replica = node.machine.replicas().node(&self.nodes[other].key);
        let linked = node.machine.linked().count();
        format!(
            "{index} ({linked} links) holds {:?} of {other}, which has {:?}; unread: {:?}",
            replica.map(|it| (it.gone_since, it.state, it.rows().count())),
            self.nodes[other].rows.keys().collect::<Vec<_>>(),
            node.machine.unread().first(),
        )
    }

    /// Invariant 10: what meets is seen from both sides.
    fn check_meetings(&mut self) {
        let mut met: BTreeSet<(usize, PeerId, usize, PeerId)> = BTreeSet::new();
        let index: BTreeMap<PublicKey, usize> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(index, node)| (node.key, index))
            .collect();
        for (at, node) in self.nodes.iter().enumerate() {
            for row in node.rows.values() {
                let Some(word) = &row.word else { continue };
                let replicas = node.machine.replicas();
                for (of, _) in replicas.meeting(&word.claims, FACTS) {
                    if let Some(other) = index.get(&of.node) {
                        met.insert((at, row.id, *other, of.peer));
                    }
                }
            }
        }
        let one_sided = met
            .iter()
            .find(|(a, p, b, q)| !met.contains(&(*b, *q, *a, *p)))
            .copied();
        if let Some(one) = one_sided {
            self.violate(10, &format!("only one side sees {one:?}"));
        }
    }
}

/// A timer is exact here; what woke a stopped process may be late.
const WAKE_SLACK: Duration = Duration::from_secs(25);

fn hash_of<'a, I: Iterator<Item = &'a SharedRow>>(rows: I) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    for row in rows {
        row.id.hash(&mut hasher);
        if let Some(word) = &row.word {
            word.n.hash(&mut hasher);
            for claim in word.claims.as_slice() {
                claim.hash(&mut hasher);
            }
        }
    }
    hasher.finish()
}
