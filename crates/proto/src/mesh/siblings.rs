//! Whom to dial, which link to keep, what each sibling is told, and asking them all.
//!
//! # Finding
//!
//! The driver looks for candidates when the node begins to serve, and whenever [`Effect::Look`] asks
//! for it: a newcomer dials everybody who is there, so that nobody has to look again and again. A
//! candidate that cannot be reached is dialled again with growing pauses while it is one.
//!
//! # Keeping
//!
//! Of two links to one node the one of the newer epoch stays. With equal epochs, the one that the
//! node with the smaller key dialled, where both sides dialled; where one side dialled twice, its
//! later one, by the number that it gave it. Both ends learn of the links in any order and come to
//! the same choice. Who loses its only link to such a choice that the other end did not share dials
//! again.
//!
//! # Telling
//!
//! A link begins with what each side holds of the other. From then on every change is told as a
//! delta from the state that was told before, at most one every [`PACE`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use earshot_trust::PublicKey;

use super::link::{End, Sibling};
use super::message::{Delta, Facts, Holds, Leave, Message, SharedRow, StateId};
use super::origin::Origin;
use super::replica::{DeltaError, Replicas, RowRef};
use crate::id::PeerId;
use crate::limits::SIBLINGS_MAX;
use crate::text::Line;
use crate::time::Now;

/// The least time between two deltas to one sibling: what changes meanwhile goes into the next.
pub const PACE: Duration = Duration::from_millis(20);

/// First pause before a candidate is dialled again.
const REDIAL_MIN: Duration = Duration::from_millis(500);
/// Longest pause before a candidate is dialled again.
const REDIAL_MAX: Duration = Duration::from_secs(30);

/// Number of a link, given by the driver and used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkNumber(pub u64);

/// A node that may be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The checkout that it serves.
    pub checkout: [u8; 16],
    /// The epoch of its lease.
    pub epoch: u64,
    /// Where it is dialled; only the driver reads it.
    pub address: String,
}

/// Why nothing was read from a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// It is not linked yet.
    #[error("it is being dialled")]
    Dialling,
    /// It cannot be linked.
    #[error("{}", .0.as_str())]
    Unreachable(Line),
    /// It is linked and did not answer in time.
    #[error("it did not answer in time")]
    Silent,
}

/// What the driver reports.
#[derive(Clone, Debug)]
pub enum Input {
    /// These are all candidates there are.
    Candidates(Vec<Candidate>),
    /// A candidate could not be dialled, or its link ended before its hello.
    DialFailed {
        /// The checkout of the candidate.
        checkout: [u8; 16],
        /// Why.
        why: Line,
    },
    /// A link is up.
    Up {
        /// Its number.
        link: LinkNumber,
        /// Who is at the other end.
        sibling: Box<Sibling>,
        /// Which end this is.
        end: End,
    },
    /// The other end of a link said this.
    Got {
        /// The link.
        link: LinkNumber,
        /// The message.
        message: Box<Message>,
    },
    /// A link that was up is closed.
    Down {
        /// The link.
        link: LinkNumber,
    },
    /// The time of [`Siblings::next_wake`] has come.
    Woke,
    /// Ask all linked nodes which state they are in.
    Ask {
        /// Number of the question, used once.
        number: u64,
        /// When it ends, whoever has not answered.
        deadline: Now,
    },
    /// The node ends in order.
    Leave,
}

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Look for candidates.
    Look,
    /// Dial this one.
    Dial(Candidate),
    /// Say this over a link.
    Send(LinkNumber, Box<Message>),
    /// Close a link, after what was sent over it; its `Down` is not waited for.
    Close(LinkNumber),
    /// Rows of siblings say something new.
    News(Vec<RowRef>),
    /// A question is answered: those of whom nothing is known for certain, with the reason.
    Asked {
        /// Its number.
        number: u64,
        /// Who did not answer.
        unread: Vec<([u8; 16], Unread)>,
    },
}

/// Siblings, links and replicas of one node.
#[derive(Debug)]
pub struct Siblings {
    me: PublicKey,
    origin: Origin,
    replicas: Replicas,
    links: BTreeMap<LinkNumber, Linked>,
    /// The link to each checkout.
    by_checkout: BTreeMap<[u8; 16], LinkNumber>,
    known: BTreeMap<[u8; 16], Known>,
    questions: BTreeMap<u64, Question>,
}

#[derive(Debug)]
struct Linked {
    sibling: Sibling,
    end: End,
    told: Told,
    told_at: Option<Now>,
    /// Whether it has told what is on its board, or that this node knows it.
    has_told: bool,
}

/// What a sibling holds of this node.
#[derive(Clone, Copy, Debug)]
enum Told {
    /// It has not said yet.
    Unsaid,
    /// What it said, or was told last.
    Holds(Option<StateId>),
}

#[derive(Debug)]
struct Known {
    candidate: Candidate,
    dial: Dial,
    /// Failures since it last said what it holds.
    failures: u32,
}

#[derive(Debug)]
enum Dial {
    /// It is dialled, or linked.
    Begun,
    /// It could not be reached, or its link broke.
    Pausing { until: Now, why: Line },
}

impl Known {
    fn pause(&mut self, now: Now, why: Line) {
        let pause = REDIAL_MIN * 2_u32.saturating_pow(self.failures.min(8));
        self.failures = self.failures.saturating_add(1);
        let until = now + pause.min(REDIAL_MAX);
        self.dial = Dial::Pausing { until, why };
    }
}

#[derive(Debug)]
struct Question {
    deadline: Now,
    open: BTreeSet<LinkNumber>,
}

impl Siblings {
    /// Returns a node without siblings; `epoch` is that of its lease.
    pub fn new(me: PublicKey, epoch: u64, facts: Facts) -> Self {
        Self {
            me,
            origin: Origin::new(epoch, facts),
            replicas: Replicas::new(me),
            links: BTreeMap::new(),
            by_checkout: BTreeMap::new(),
            known: BTreeMap::new(),
            questions: BTreeMap::new(),
        }
    }

    /// Returns what the siblings told.
    pub const fn replicas(&self) -> &Replicas {
        &self.replicas
    }

    /// Returns whether some node that was found has neither told what is on its board nor turned out
    /// to be out of reach.
    pub fn is_settling(&self) -> bool {
        self.known.iter().any(|(checkout, known)| {
            let told = self
                .link_to(checkout)
                .and_then(|link| self.links.get(&link))
                .is_some_and(|linked| linked.has_told);
            !told && matches!(known.dial, Dial::Begun)
        })
    }

    /// Returns who is linked.
    pub fn linked(&self) -> impl Iterator<Item = &Sibling> {
        self.links.values().map(|linked| &linked.sibling)
    }

    /// Returns the nodes that may be there and are not linked, with the reason.
    pub fn unread(&self) -> Vec<([u8; 16], Unread)> {
        let unlinked = self
            .known
            .iter()
            .filter(|(checkout, _)| self.link_to(checkout).is_none());
        unlinked
            .map(|(checkout, known)| {
                let why = match &known.dial {
                    Dial::Begun => Unread::Dialling,
                    Dial::Pausing { why, .. } => Unread::Unreachable(why.clone()),
                };
                (*checkout, why)
            })
            .collect()
    }

    /// Returns the own rows that siblings are told of, or would be if there were room.
    pub fn told_peers(&self) -> impl Iterator<Item = PeerId> {
        self.origin.peers()
    }

    /// Takes a row of the own board that is new or changed.
    pub fn put(&mut self, now: Now, row: SharedRow) -> Vec<Effect> {
        let claims = row.word.as_ref().map(|word| &word.claims);
        self.replicas.say_own(row.id, claims, self.origin.facts());
        self.origin.put(row);
        self.tell_all(now)
    }

    /// Takes it that a row of the own board is gone.
    pub fn remove(&mut self, now: Now, peer: PeerId) -> Vec<Effect> {
        self.replicas.say_own(peer, None, self.origin.facts());
        self.origin.remove(peer);
        self.tell_all(now)
    }

    /// Returns the facts of the own checkout.
    pub const fn facts(&self) -> Facts {
        self.origin.facts()
    }

    /// Takes the facts of the own checkout; where it is and what names mean there stays as it was
    /// at the beginning.
    pub fn set_facts(&mut self, now: Now, facts: Facts) -> Vec<Effect> {
        self.origin.set_facts(facts);
        self.tell_all(now)
    }

    /// Returns when [`Input::Woke`] is due.
    pub fn next_wake(&mut self) -> Option<Now> {
        // The state's hash is not made where nobody would be told of it.
        let state = (!self.links.is_empty()).then(|| self.origin.id());
        let behind = |it: &&Linked| state.is_some_and(|state| it.is_behind(state));
        let behind = self.links.values().filter(behind);
        let telling = behind.filter_map(|it| it.told_at.map(|at| at + PACE)).min();
        let dialling = self.known.values().filter_map(|known| match known.dial {
            Dial::Begun => None,
            Dial::Pausing { until, .. } => Some(until),
        });
        let asking = self.questions.values().map(|question| question.deadline);
        [telling, self.replicas.next_expiry()]
            .into_iter()
            .flatten()
            .chain(dialling)
            .chain(asking)
            .min()
    }

    /// Takes an input and returns what is to be done, in order.
    pub fn handle(&mut self, now: Now, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Candidates(candidates) => self.handle_candidates(candidates, &mut effects),
            Input::DialFailed { checkout, why } => self.handle_failed(now, checkout, why),
            Input::Up { link, sibling, end } => {
                self.handle_up(now, link, *sibling, end, &mut effects);
            }
            Input::Got { link, message } => self.handle_got(now, link, *message, &mut effects),
            Input::Down { link } => self.handle_down(now, link, &mut effects),
            Input::Woke => self.handle_woke(now, &mut effects),
            Input::Ask { number, deadline } => {
                self.handle_ask(number, deadline, &mut effects);
            }
            Input::Leave => {
                self.by_checkout.clear();
                for link in std::mem::take(&mut self.links).into_keys() {
                    let goodbye = Message::Goodbye(Leave::Ending);
                    effects.push(Effect::Send(link, Box::new(goodbye)));
                    effects.push(Effect::Close(link));
                }
                self.known.clear();
            }
        }
        effects
    }

    fn handle_candidates(&mut self, candidates: Vec<Candidate>, effects: &mut Vec<Effect>) {
        let mut before = std::mem::take(&mut self.known);
        for candidate in candidates.into_iter().take(SIBLINGS_MAX) {
            let checkout = candidate.checkout;
            let same = |known: &Known| known.candidate == candidate;
            let known = before.remove(&checkout).filter(same);
            let dials = known.is_none() && self.link_to(&checkout).is_none();
            if dials {
                effects.push(Effect::Dial(candidate.clone()));
            }
            let known = known.unwrap_or(Known {
                candidate,
                dial: Dial::Begun,
                failures: 0,
            });
            self.known.insert(checkout, known);
        }
    }

    fn handle_failed(&mut self, now: Now, checkout: [u8; 16], why: Line) {
        // A dial that lost to another link is no failure.
        if self.link_to(&checkout).is_some() {
            return;
        }
        if let Some(known) = self.known.get_mut(&checkout) {
            known.pause(now, why);
        }
    }

    fn handle_up(
        &mut self,
        now: Now,
        link: LinkNumber,
        sibling: Sibling,
        end: End,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(other) = self.link_to(&sibling.checkout) {
            let goodbye = Message::Goodbye(Leave::Duplicate);
            let loser = if self.is_preferred(other, &sibling, end) {
                self.unlink(other);
                other
            } else {
                link
            };
            effects.push(Effect::Send(loser, Box::new(goodbye)));
            effects.push(Effect::Close(loser));
            if loser == link {
                return;
            }
        }
        let node = sibling.node;
        // A node that lost its key is the same one for its checkout.
        let strangers: Vec<PublicKey> = self
            .replicas
            .nodes()
            .filter(|(other, replica)| replica.checkout == sibling.checkout && **other != node)
            .map(|(other, _)| *other)
            .collect();
        for other in strangers {
            self.replicas.forget(&other);
        }
        if let Some(known) = self.known.get_mut(&sibling.checkout) {
            known.dial = Dial::Begun;
        }
        self.replicas.heard(now, &node);
        self.by_checkout.insert(sibling.checkout, link);
        self.links.insert(
            link,
            Linked {
                sibling,
                end,
                told: Told::Unsaid,
                told_at: None,
                has_told: false,
            },
        );
        effects.push(self.holds(link, &node, self.replicas.held(&node)));
    }

    fn handle_got(
        &mut self,
        now: Now,
        link: LinkNumber,
        message: Message,
        effects: &mut Vec<Effect>,
    ) {
        let Some(linked) = self.links.get_mut(&link) else {
            return;
        };
        let node = linked.sibling.node;
        match message {
            Message::Holds(Holds { state, epoch }) => {
                linked.told = Told::Holds(state);
                linked.told_at = None;
                if let Some(known) = self.known.get_mut(&linked.sibling.checkout) {
                    known.failures = 0;
                }
                if self.origin.outbid(epoch) {
                    effects.extend(self.tell_all(now));
                } else {
                    effects.extend(self.tell(now, link));
                }
            }
            Message::Delta(delta) => self.take_delta(now, link, &delta, effects),
            Message::Ask(number) => {
                // What it will hold when it reads the answer.
                effects.extend(self.tell_at_once(now, link));
                let state = self.origin.id();
                let told = Message::Told(number, state);
                effects.push(Effect::Send(link, Box::new(told)));
            }
            Message::Told(number, state) => {
                if self.replicas.held(&node) == Some(state) {
                    self.replicas.heard(now, &node);
                    self.answered(number, link, effects);
                }
            }
            Message::Goodbye(Leave::Ending) => {
                self.known.remove(&linked.sibling.checkout);
                self.replicas.lost(now, &node);
            }
            // The driver hears the end of it; the other link stays.
            Message::Goodbye(Leave::Duplicate) => {
                let checkout = linked.sibling.checkout;
                self.unlink(link);
                if self.link_to(&checkout).is_none() {
                    self.replicas.lost(now, &node);
                    if let Some(known) = self.known.get_mut(&checkout) {
                        known.pause(now, Line::name("it has another link"));
                    }
                }
            }
            // The link lets no second one through.
            Message::Hello(_) => {}
        }
    }

    fn take_delta(&mut self, now: Now, link: LinkNumber, delta: &Delta, effects: &mut Vec<Effect>) {
        let Some(linked) = self.links.get(&link) else {
            return;
        };
        let (node, checkout) = (linked.sibling.node, linked.sibling.checkout);
        let applied = self.replicas.apply(now, node, checkout, delta);
        if applied.is_ok()
            && let Some(linked) = self.links.get_mut(&link)
        {
            linked.has_told = true;
        }
        match applied {
            Ok(news) if news.is_empty() => {}
            Ok(news) => effects.push(Effect::News(news)),
            Err(DeltaError::Base | DeltaError::Hash | DeltaError::Epoch) => {
                effects.push(self.holds(link, &node, None));
            }
            Err(error @ (DeltaError::Rows | DeltaError::Full)) => {
                self.unlink(link);
                self.replicas.lost(now, &node);
                if let Some(known) = self.known.get_mut(&checkout) {
                    known.failures = u32::MAX;
                    known.pause(now, Line::name(&error.to_string()));
                }
                effects.push(Effect::Close(link));
            }
        }
    }

    fn handle_down(&mut self, now: Now, link: LinkNumber, effects: &mut Vec<Effect>) {
        let Some(linked) = self.unlink(link) else {
            return;
        };
        self.replicas.lost(now, &linked.sibling.node);
        if let Some(known) = self.known.get_mut(&linked.sibling.checkout) {
            known.pause(now, Line::name("the link to it broke"));
        }
        let questions: Vec<u64> = self.questions.keys().copied().collect();
        for number in questions {
            self.answered(number, link, effects);
        }
        // It ended, and its successor will dial; or the link alone broke, and it is still there.
        effects.push(Effect::Look);
    }

    fn handle_woke(&mut self, now: Now, effects: &mut Vec<Effect>) {
        effects.extend(self.tell_all(now));
        self.replicas.expire(now);
        let due = |known: &Known| matches!(known.dial, Dial::Pausing { until, .. } if until <= now);
        if self.known.values().any(due) {
            // Only what is still there is dialled again.
            for known in self.known.values_mut().filter(|known| due(known)) {
                if let Dial::Pausing { until, .. } = &mut known.dial {
                    *until = now + REDIAL_MAX;
                }
                effects.push(Effect::Dial(known.candidate.clone()));
            }
        }
        let over: Vec<u64> = self
            .questions
            .iter()
            .filter(|(_, question)| question.deadline <= now)
            .map(|(number, _)| *number)
            .collect();
        for number in over {
            self.close_question(number, effects);
        }
    }

    fn handle_ask(&mut self, number: u64, deadline: Now, effects: &mut Vec<Effect>) {
        let open: BTreeSet<LinkNumber> = self.links.keys().copied().collect();
        for link in &open {
            effects.push(Effect::Send(*link, Box::new(Message::Ask(number))));
        }
        let nobody = open.is_empty();
        self.questions.insert(number, Question { deadline, open });
        if nobody {
            self.close_question(number, effects);
        }
    }

    fn answered(&mut self, number: u64, link: LinkNumber, effects: &mut Vec<Effect>) {
        let Some(question) = self.questions.get_mut(&number) else {
            return;
        };
        question.open.remove(&link);
        if question.open.is_empty() {
            self.close_question(number, effects);
        }
    }

    fn close_question(&mut self, number: u64, effects: &mut Vec<Effect>) {
        let Some(question) = self.questions.remove(&number) else {
            return;
        };
        let mut unread = self.unread();
        let silent = question.open.iter().filter_map(|link| self.links.get(link));
        unread.extend(silent.map(|linked| (linked.sibling.checkout, Unread::Silent)));
        effects.push(Effect::Asked { number, unread });
    }

    /// Returns whether a link that is up now takes the place of another to the same checkout.
    fn is_preferred(&self, other: LinkNumber, sibling: &Sibling, end: End) -> bool {
        let Some(other) = self.links.get(&other) else {
            return true;
        };
        if sibling.epoch != other.sibling.epoch {
            return sibling.epoch > other.sibling.epoch;
        }
        if end == other.end {
            return match end {
                End::Dialler => sibling.own_number > other.sibling.own_number,
                End::Acceptor => sibling.their_number > other.sibling.their_number,
            };
        }
        let smaller_is_me = self.me < sibling.node;
        (end == End::Dialler) == smaller_is_me
    }

    fn link_to(&self, checkout: &[u8; 16]) -> Option<LinkNumber> {
        self.by_checkout.get(checkout).copied()
    }

    /// Forgets a link, and returns what it was.
    fn unlink(&mut self, link: LinkNumber) -> Option<Linked> {
        let linked = self.links.remove(&link)?;
        let checkout = linked.sibling.checkout;
        if self.link_to(&checkout) == Some(link) {
            self.by_checkout.remove(&checkout);
        }
        Some(linked)
    }

    fn holds(&self, link: LinkNumber, node: &PublicKey, state: Option<StateId>) -> Effect {
        let holds = Holds {
            state,
            epoch: self.replicas.highest_epoch(node),
        };
        Effect::Send(link, Box::new(Message::Holds(holds)))
    }

    fn tell_all(&mut self, now: Now) -> Vec<Effect> {
        let links: Vec<LinkNumber> = self.links.keys().copied().collect();
        links
            .into_iter()
            .filter_map(|link| self.tell(now, link))
            .collect()
    }

    /// Tells a sibling what changed, unless it was told something a moment ago.
    fn tell(&mut self, now: Now, link: LinkNumber) -> Option<Effect> {
        let linked = self.links.get(&link)?;
        if linked.told_at.is_some_and(|at| now < at + PACE) {
            return None;
        }
        self.tell_at_once(now, link)
    }

    fn tell_at_once(&mut self, now: Now, link: LinkNumber) -> Option<Effect> {
        let linked = self.links.get_mut(&link)?;
        let Told::Holds(held) = linked.told else {
            return None;
        };
        let delta = self.origin.since(held)?;
        linked.told = Told::Holds(Some(delta.now));
        linked.told_at = Some(now);
        Some(Effect::Send(link, Box::new(Message::Delta(delta))))
    }
}

impl Linked {
    fn is_behind(&self, state: StateId) -> bool {
        matches!(self.told, Told::Holds(held) if held != Some(state))
    }
}

#[cfg(test)]
mod tests;
