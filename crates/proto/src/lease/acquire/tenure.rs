//! Holding the lease: heartbeats, looks at the own files, serving and the ordered end.

use super::electing::{Electing, LOCK_WAIT};
use super::{Effect, End, FileId, FilesSeen, Lifecycle, Permit, State};
use crate::Now;
use crate::lease::{
    Epoch, Examination, LeaseDocument, LeaseState, LeaseToken, PREDECESSORS_MAX, Parsed, Verdict,
};

/// Heartbeats after which a look at the own files no longer counts.
pub(super) const LOOK_BEATS_MAX: u32 = 2;

/// A lease that is held, in any state of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tenure {
    /// The lease as it was last written.
    pub(super) document: LeaseDocument,
    /// The own alive file.
    alive: FileId,
    /// The file of the lease as it was last written.
    lease: FileId,
    next_beat: Now,
    /// When the last look at the own files was asked for that found them in place.
    last_look: Now,
    /// When the look was asked for that is not yet answered.
    looking_since: Option<Now>,
}

/// A tenure that serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Serving {
    pub(super) tenure: Tenure,
}

/// A tenure that ends in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Draining {
    pub(super) tenure: Tenure,
    step: DrainStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum DrainStep {
    /// Writing `retiring` into the lease.
    Announcing,
    /// Running calls finish.
    Draining,
    /// Writing `ended` into the lease.
    Ending,
}

/// What the own files say about the tenure.
enum Ground {
    Firm,
    /// Somebody else holds the lease.
    Taken,
    /// A file was taken away from under the tenure.
    Gone,
}

impl Tenure {
    pub(super) fn new(document: LeaseDocument, alive: FileId, lease: FileId, now: Now) -> Self {
        let next_beat = now + document.timings.heartbeat();
        Self {
            document,
            alive,
            lease,
            next_beat,
            last_look: now,
            looking_since: None,
        }
    }

    pub(super) const fn epoch(&self) -> Epoch {
        self.document.epoch
    }

    pub(super) const fn next_beat(&self) -> Now {
        self.next_beat
    }

    /// Beats when it is time to, and asks to be woken for the next beat.
    pub(super) fn handle_woke(&mut self, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        if now >= self.next_beat {
            self.next_beat = now + self.document.timings.heartbeat();
            effects.push(Effect::Beat);
            effects.extend(self.look(now));
        }
        effects.push(Effect::WakeAt(self.next_beat));
        effects
    }

    /// Asks for a look at the own files, unless one is under way.
    fn look(&mut self, now: Now) -> Option<Effect> {
        if self.looking_since.is_some() {
            return None;
        }
        self.looking_since = Some(now);
        Some(Effect::LookAtFiles)
    }

    /// Forgets the look that is under way: without a good one, nothing is served.
    pub(super) const fn look_failed(&mut self) {
        self.looking_since = None;
    }

    fn judge(&mut self, seen: &FilesSeen) -> Ground {
        let own = &self.document.token;
        if seen.token.as_ref().is_some_and(|token| token != own) {
            return Ground::Taken;
        }
        let in_place = seen.token.is_some()
            && seen.lease == Some(self.lease)
            && seen.alive == Some(self.alive)
            && seen.databases_in_place;
        if !in_place {
            return Ground::Gone;
        }
        if let Some(asked) = self.looking_since.take() {
            self.last_look = asked;
        }
        Ground::Firm
    }

    /// Runs while the last look counts.
    pub(super) fn permit(&self, now: Now) -> Permit {
        if now.since(self.last_look) <= self.document.timings.heartbeat() * LOOK_BEATS_MAX {
            Permit::Run(self.epoch())
        } else {
            Permit::LookFirst
        }
    }

    /// Returns whether the lease that was read under the lock is the own one.
    pub(super) fn is_named_by(&self, lease: Option<&Parsed>) -> bool {
        lease.and_then(Parsed::token) == Some(&self.document.token)
    }

    pub(super) fn rewritten(&mut self, file: FileId, now: Now) {
        self.lease = file;
        self.last_look = now;
    }
}

impl Lifecycle {
    pub(super) fn handle_look_wanted(&mut self, now: Now) -> Vec<Effect> {
        match &mut self.state {
            State::Serving(serving) => serving.tenure.look(now).into_iter().collect(),
            State::Draining(draining) => draining.tenure.look(now).into_iter().collect(),
            State::Idle | State::Electing(_) | State::Starting(_) | State::Ended => Vec::new(),
        }
    }

    pub(super) fn handle_looked(&mut self, seen: &FilesSeen) -> Vec<Effect> {
        let (tenure, draining) = match &mut self.state {
            State::Starting(starting) => (&mut starting.tenure, false),
            State::Serving(serving) => (&mut serving.tenure, false),
            State::Draining(draining) => (&mut draining.tenure, true),
            State::Idle | State::Electing(_) | State::Ended => return Vec::new(),
        };
        match (tenure.judge(seen), draining) {
            (Ground::Firm, false) => self.keep_socket(seen),
            (Ground::Firm, true) => Vec::new(),
            (Ground::Taken, _) => self.superseded(),
            (Ground::Gone, true) => {
                self.finish(vec![Effect::StopWrites, Effect::DropAlive], End::Stopped)
            }
            (Ground::Gone, false) => self.elect_again(),
        }
    }

    /// Binds the socket of a serving node again when its path was taken or removed.
    ///
    /// A process that was stopped just before it bound the path, and lost its lease meanwhile,
    /// takes the path when it goes on. The holder lives and beats, so nobody would succeed it, and
    /// nobody would reach it.
    fn keep_socket(&self, seen: &FilesSeen) -> Vec<Effect> {
        match &self.state {
            State::Serving(serving) if !seen.socket_in_place => {
                vec![Effect::BindSocket {
                    epoch: serving.tenure.epoch(),
                }]
            }
            State::Idle
            | State::Electing(_)
            | State::Starting(_)
            | State::Serving(_)
            | State::Draining(_)
            | State::Ended => Vec::new(),
        }
    }

    /// Ends because the lease went to somebody else.
    pub(super) fn superseded(&mut self) -> Vec<Effect> {
        self.finish(vec![Effect::StopWrites, Effect::DropAlive], End::Superseded)
    }

    /// Gives the tenure up and stands for election with another token.
    fn elect_again(&mut self) -> Vec<Effect> {
        if let Some(token) = self.token().cloned() {
            self.forget(token);
        }
        self.state = State::Electing(Electing::default());
        vec![Effect::StopWrites, Effect::DropAlive, Effect::Examine]
    }

    fn forget(&mut self, token: LeaseToken) {
        self.former.insert(0, token);
        self.former.truncate(PREDECESSORS_MAX);
    }

    pub(super) fn handle_stop(&mut self, now: Now) -> Vec<Effect> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Serving(serving) => {
                let step = DrainStep::Announcing;
                self.state = State::Draining(Box::new(Draining {
                    tenure: serving.tenure,
                    step,
                }));
                vec![Effect::LockLease {
                    deadline: now + LOCK_WAIT,
                }]
            }
            State::Draining(draining) => {
                self.state = State::Draining(draining);
                Vec::new()
            }
            State::Idle => self.finish(Vec::new(), End::Stopped),
            State::Electing(electing) => {
                let mut effects = electing.unlock_if_locked();
                effects.push(Effect::DropAlive);
                self.finish(effects, End::Stopped)
            }
            State::Starting(starting) => {
                let mut effects = vec![Effect::StopWrites];
                effects.extend(starting.unlock_if_locked());
                effects.push(Effect::DropAlive);
                self.finish(effects, End::Stopped)
            }
            State::Ended => Vec::new(),
        }
    }

    /// Writes the next state of a draining tenure, now that the lease is locked.
    pub(super) fn drain_locked(&mut self, seen: &Examination) -> Vec<Effect> {
        let State::Draining(draining) = &mut self.state else {
            return Vec::new();
        };
        if !draining.tenure.is_named_by(seen.lease.as_ref()) {
            let mut effects = vec![Effect::UnlockLease];
            effects.extend(self.superseded());
            return effects;
        }
        let mut document = draining.tenure.document.clone();
        document.state = match draining.step {
            DrainStep::Announcing => LeaseState::Retiring,
            DrainStep::Draining | DrainStep::Ending => LeaseState::Ended,
        };
        draining.tenure.document = document.clone();
        vec![Effect::WriteLease(Box::new(document))]
    }

    /// Goes on with a draining tenure after its lease was written; `file` is `None` if it was not.
    pub(super) fn drain_written(&mut self, now: Now, file: Option<FileId>) -> Vec<Effect> {
        let State::Draining(draining) = &mut self.state else {
            return Vec::new();
        };
        if let Some(file) = file {
            draining.tenure.rewritten(file, now);
        }
        match draining.step {
            DrainStep::Announcing => {
                draining.step = DrainStep::Draining;
                let epoch = draining.tenure.epoch();
                let deadline = now + draining.tenure.document.timings.busy_grace();
                vec![Effect::UnlockLease, Effect::Drain { epoch, deadline }]
            }
            DrainStep::Draining => vec![Effect::UnlockLease],
            DrainStep::Ending => {
                self.finish(vec![Effect::UnlockLease, Effect::DropAlive], End::Stopped)
            }
        }
    }

    pub(super) fn handle_drained(&mut self, now: Now, epoch: Epoch) -> Vec<Effect> {
        let State::Draining(draining) = &mut self.state else {
            return Vec::new();
        };
        if draining.tenure.epoch() != epoch || draining.step != DrainStep::Draining {
            return Vec::new();
        }
        draining.step = DrainStep::Ending;
        vec![Effect::LockLease {
            deadline: now + LOCK_WAIT,
        }]
    }

    /// Returns the verdict that every look at an own former tenure has.
    pub(super) fn own_former(&self, seen: &Examination) -> Option<Verdict> {
        let token = seen.lease.as_ref().and_then(Parsed::token)?;
        self.former.contains(token).then_some(Verdict::Ended)
    }
}
