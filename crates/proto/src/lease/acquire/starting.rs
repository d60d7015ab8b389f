//! From a written lease to serving: socket, predecessors, fence, import, listeners.

use std::time::Duration;

use super::electing::LOCK_WAIT;
use super::tenure::{Serving, Tenure};
use super::{Effect, End, FileId, Input, Lifecycle, PredecessorSeen, State};
use crate::Now;
use crate::lease::{
    AliveLock, Epoch, Examination, LeaseState, Place, Predecessor, ProcessFact, kill_target,
};

/// How often predecessors are looked at while they are waited for.
const PREDECESSOR_POLL: Duration = Duration::from_millis(50);
/// How long a killed process is waited for; SIGKILL frees its locks in some 5 ms.
const KILL_GRACE: Duration = Duration::from_secs(1);
/// How long a locked database is waited for before it is left behind.
const FENCE_WAIT: Duration = Duration::from_secs(2);
/// How often the fence is tried while a database is locked.
const FENCE_POLL: Duration = Duration::from_millis(100);

/// A tenure whose node does not serve yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Starting {
    pub(super) tenure: Tenure,
    step: Step,
    pending: Vec<Pending>,
    /// When no predecessor answers any more by a look that it had before.
    quiet_at: Now,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// The Unix socket is being bound.
    Binding,
    /// Predecessors are being looked at.
    Looking,
    /// Predecessors are left in peace until the next look.
    Waiting { until: Now },
    /// The fence is being raised.
    Fencing { give_up: Now },
    /// A database was locked; the fence is tried again then.
    FencePause { until: Now, give_up: Now },
    /// A database stays locked; it is left behind then.
    LeavePause { until: Now },
    /// Locked databases are being left behind.
    Leaving,
    /// The journal is being read.
    Importing,
    /// The listeners are being bound.
    BindingListeners,
    /// The lease is being locked, to be published as `serving`.
    Locking,
    /// The lease is locked and being written.
    Publishing,
}

/// A predecessor that is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pending {
    pub(super) predecessor: Predecessor,
    /// When it has had its time.
    until: Now,
    killed: bool,
}

impl Pending {
    pub(super) const fn new(predecessor: Predecessor, until: Now) -> Self {
        Self {
            predecessor,
            until,
            killed: false,
        }
    }

    /// Returns whether it is still to be waited for; may kill it.
    fn wait(&mut self, now: Now, here: &Place, effects: &mut Vec<Effect>) -> bool {
        if now < self.until {
            return true;
        }
        let Some(pid) = kill_target(&self.predecessor, here).filter(|_| !self.killed) else {
            // It cannot be ended, or would not: the fence keeps it from writing.
            return false;
        };
        let predecessor = Box::new(self.predecessor.clone());
        effects.push(Effect::Kill { pid, predecessor });
        self.killed = true;
        self.until = now + KILL_GRACE;
        true
    }
}

impl Starting {
    pub(super) const fn new(tenure: Tenure, pending: Vec<Pending>, quiet_at: Now) -> Self {
        Self {
            tenure,
            step: Step::Binding,
            pending,
            quiet_at,
        }
    }

    pub(super) fn unlock_if_locked(&self) -> Vec<Effect> {
        if self.step == Step::Publishing {
            vec![Effect::UnlockLease]
        } else {
            Vec::new()
        }
    }

    pub(super) fn handle_woke(&mut self, now: Now) -> Vec<Effect> {
        let mut effects = self.tenure.handle_woke(now);
        match self.step {
            Step::Waiting { until } if now >= until => effects.extend(self.look()),
            Step::FencePause { until, give_up } if now >= until => {
                effects.extend(self.fence(give_up));
            }
            Step::LeavePause { until } if now >= until => effects.extend(self.leave()),
            Step::Waiting { until }
            | Step::FencePause { until, .. }
            | Step::LeavePause { until } => {
                effects.push(Effect::WakeAt(until.min(self.tenure.next_beat())));
            }
            Step::Binding
            | Step::Looking
            | Step::Fencing { .. }
            | Step::Leaving
            | Step::Importing
            | Step::BindingListeners
            | Step::Locking
            | Step::Publishing => {}
        }
        effects
    }

    /// Looks at the predecessors that are waited for; without any, goes on to the fence.
    fn look(&mut self) -> Vec<Effect> {
        self.step = Step::Looking;
        let predecessors = self
            .pending
            .iter()
            .map(|pending| pending.predecessor.clone())
            .collect();
        vec![Effect::LookAtPredecessors {
            epoch: self.tenure.epoch(),
            predecessors,
        }]
    }

    fn looked(&mut self, now: Now, seen: &[PredecessorSeen], here: &Place) -> Vec<Effect> {
        let ended = |token| {
            seen.iter()
                .any(|seen| seen.token == token && has_ended(seen))
        };
        let mut effects = Vec::new();
        let mut waiting = Vec::new();
        let mut unended = Vec::new();
        for mut pending in std::mem::take(&mut self.pending) {
            if ended(pending.predecessor.token.clone()) {
                continue;
            }
            unended.push(pending.predecessor.clone());
            if pending.wait(now, here, &mut effects) {
                waiting.push(pending);
            }
        }
        // Those given up on before stay listed for the next tenure.
        let given_up = self
            .tenure
            .document
            .predecessors
            .iter()
            .filter(|listed| !seen.iter().any(|seen| seen.token == listed.token));
        unended.extend(given_up.cloned());
        self.tenure.document.predecessors = unended;
        self.pending = waiting;
        effects.extend(self.wait_or_fence(now));
        effects
    }

    fn wait_or_fence(&mut self, now: Now) -> Vec<Effect> {
        if self.pending.is_empty() {
            return self.fence(now + FENCE_WAIT);
        }
        self.pause(now + PREDECESSOR_POLL, |until| Step::Waiting { until })
    }

    fn fence(&mut self, give_up: Now) -> Vec<Effect> {
        self.step = Step::Fencing { give_up };
        vec![Effect::RaiseFence {
            epoch: self.tenure.epoch(),
        }]
    }

    fn leave(&mut self) -> Vec<Effect> {
        self.step = Step::Leaving;
        vec![Effect::LeaveDatabases {
            epoch: self.tenure.epoch(),
        }]
    }

    fn pause(&mut self, until: Now, step: impl FnOnce(Now) -> Step) -> Vec<Effect> {
        self.step = step(until);
        vec![Effect::WakeAt(until.min(self.tenure.next_beat()))]
    }
}

/// Returns whether a predecessor is proven to have ended.
fn has_ended(seen: &PredecessorSeen) -> bool {
    match seen.alive {
        AliveLock::Free => true,
        AliveLock::Held => false,
        AliveLock::Missing | AliveLock::Unknown => seen.process == ProcessFact::Gone,
    }
}

impl Lifecycle {
    /// Takes a result that carries an epoch; one of an earlier tenure means nothing.
    pub(super) fn handle_work(&mut self, now: Now, epoch: Epoch, input: Input) -> Vec<Effect> {
        let State::Starting(starting) = &mut self.state else {
            return Vec::new();
        };
        if starting.tenure.epoch() != epoch {
            return Vec::new();
        }
        match (input, starting.step) {
            (Input::SocketBound { .. }, Step::Binding) if starting.pending.is_empty() => {
                starting.fence(now + FENCE_WAIT)
            }
            (Input::SocketBound { .. }, Step::Binding) => starting.look(),
            (Input::PredecessorsLooked { seen, .. }, Step::Looking) => {
                starting.looked(now, &seen, &self.identity.place)
            }
            (Input::FenceRaised { .. }, Step::Fencing { .. } | Step::Leaving) => {
                starting.step = Step::Importing;
                vec![Effect::Import { epoch }]
            }
            (Input::FenceHigher { .. }, Step::Fencing { .. } | Step::Leaving) => self.superseded(),
            (Input::FenceBusy { .. }, Step::Fencing { give_up }) if now < give_up => starting
                .pause(now + FENCE_POLL, |until| Step::FencePause {
                    until,
                    give_up,
                }),
            // Somebody was stopped inside a transaction, and cannot be ended from here.
            (Input::FenceBusy { .. }, Step::Fencing { .. }) => {
                let quiet_at = starting.quiet_at.max(now);
                starting.pause(quiet_at, |until| Step::LeavePause { until })
            }
            (Input::FenceBusy { .. }, Step::Leaving) => self.give_up(End::DatabaseBusy),
            (Input::Imported { .. }, Step::Importing) => {
                starting.step = Step::BindingListeners;
                vec![Effect::BindListeners { epoch }]
            }
            (Input::ListenersBound { url, quic, .. }, Step::BindingListeners) => {
                starting.tenure.document.url = url;
                starting.tenure.document.quic = quic;
                starting.step = Step::Locking;
                vec![Effect::LockLease {
                    deadline: now + LOCK_WAIT,
                }]
            }
            (Input::WorkFailed { why, .. }, _) => self.give_up(End::Failed { why }),
            // The result of a step that is over.
            (_, _) => Vec::new(),
        }
    }

    fn give_up(&mut self, end: End) -> Vec<Effect> {
        self.finish(vec![Effect::StopWrites, Effect::DropAlive], end)
    }

    pub(super) fn handle_locked(
        &mut self,
        now: Now,
        seen: &Examination,
        fences: Vec<Epoch>,
    ) -> Vec<Effect> {
        match &mut self.state {
            State::Electing(_) => self.election_locked(now, seen, fences),
            State::Starting(starting) if starting.step == Step::Locking => {
                if !starting.tenure.is_named_by(seen.lease.as_ref()) {
                    let mut effects = vec![Effect::UnlockLease];
                    effects.extend(self.superseded());
                    return effects;
                }
                starting.step = Step::Publishing;
                starting.tenure.document.state = LeaseState::Serving;
                vec![Effect::WriteLease(Box::new(
                    starting.tenure.document.clone(),
                ))]
            }
            State::Draining(_) => self.drain_locked(seen),
            State::Idle | State::Starting(_) | State::Serving(_) | State::Ended => {
                vec![Effect::UnlockLease]
            }
        }
    }

    pub(super) fn handle_written(&mut self, now: Now, file: FileId) -> Vec<Effect> {
        match &mut self.state {
            State::Electing(_) => self.election_written(now, file),
            State::Starting(starting) if starting.step == Step::Publishing => {
                let mut tenure = starting.tenure.clone();
                tenure.rewritten(file, now);
                let epoch = tenure.epoch();
                self.state = State::Serving(Box::new(Serving { tenure }));
                vec![Effect::UnlockLease, Effect::Serve { epoch }]
            }
            State::Draining(_) => self.drain_written(now, Some(file)),
            State::Idle | State::Starting(_) | State::Serving(_) | State::Ended => Vec::new(),
        }
    }
}
