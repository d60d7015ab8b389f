//! Standing for election: judge the holder, and take the lease if nobody holds it.

use std::time::Duration;

use super::starting::{Pending, Starting};
use super::tenure::{LOOK_BEATS_MAX, Tenure};
use super::{Effect, End, FileId, Lifecycle, State};
use crate::Now;
use crate::lease::{
    Answer, Epoch, Examination, HeartbeatWatch, LEASE_SCHEMA, LeaseDocument, LeaseState,
    LeaseToken, PREDECESSORS_MAX, Parsed, Predecessor, Timings, Verdict, holder_verdict,
    next_epoch,
};

/// How long `lease.lock` is waited for: it is held for a few file operations, some ten ms.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(2);
/// How often a retiring holder is looked at: its successor is waited for.
const RETIRING_POLL: Duration = Duration::from_millis(50);
/// What a retiring holder gets on top of its own `busy_grace`.
pub(super) const RETIRING_EXTRA: Duration = Duration::from_secs(1);
/// Looks per heartbeat at a holder that does not answer.
const LOOKS_PER_BEAT: u32 = 4;

/// An election under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Electing {
    step: Step,
    watch: HeartbeatWatch,
    /// When a retiring holder has had its time; `None` unless one was seen.
    retiring_until: Option<Now>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Step {
    /// The holder is being looked at.
    #[default]
    Examining,
    /// The holder is left in peace until the next look.
    Watching,
    /// The lease may be taken; the alive file is made first.
    MakingAlive,
    /// The alive file is locked, the lease is not yet.
    Locking { token: LeaseToken, alive: FileId },
    /// The lease is locked and being written.
    Claiming { claim: Box<Claim>, alive: FileId },
}

/// A lease about to be written, and whom it succeeds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Claim {
    document: LeaseDocument,
    pending: Vec<Pending>,
    /// How long the others may go on answering by a look that they had before.
    answering: Duration,
}

impl Electing {
    pub(super) fn handle_woke(&mut self) -> Vec<Effect> {
        match self.step {
            Step::Watching => {
                self.step = Step::Examining;
                vec![Effect::Examine]
            }
            Step::Examining | Step::MakingAlive | Step::Locking { .. } | Step::Claiming { .. } => {
                Vec::new()
            }
        }
    }

    pub(super) fn unlock_if_locked(&self) -> Vec<Effect> {
        match self.step {
            Step::Claiming { .. } => vec![Effect::UnlockLease],
            Step::Examining | Step::Watching | Step::MakingAlive | Step::Locking { .. } => {
                Vec::new()
            }
        }
    }

    /// Notes when a retiring holder has had its time, and returns whether that is past.
    fn retiring_overdue(&mut self, now: Now, lease: Option<&Parsed>) -> bool {
        let document = lease.and_then(Parsed::document);
        let retiring = document.filter(|document| document.state == LeaseState::Retiring);
        self.retiring_until = retiring.map(|document| {
            let grace = document.timings.busy_grace() + RETIRING_EXTRA;
            self.retiring_until.unwrap_or(now + grace)
        });
        self.retiring_until.is_some_and(|until| now >= until)
    }
}

impl Lifecycle {
    pub(super) fn handle_begin(&mut self) -> Vec<Effect> {
        if self.state != State::Idle {
            return Vec::new();
        }
        self.state = State::Electing(Electing::default());
        vec![Effect::Examine]
    }

    pub(super) fn handle_examined(&mut self, now: Now, seen: &Examination) -> Vec<Effect> {
        let former = self.own_former(seen);
        let here = self.identity.here();
        let State::Electing(electing) = &mut self.state else {
            return Vec::new();
        };
        if electing.step != Step::Examining {
            return Vec::new();
        }
        let lease = seen.lease.as_ref();
        let watched = electing.watch.look(now, lease, seen.beat, seen.answer);
        let verdict = former.unwrap_or_else(|| holder_verdict(seen, watched, &here));
        let overdue = electing.retiring_overdue(now, lease);
        if verdict.may_take() || overdue {
            electing.step = Step::MakingAlive;
            return vec![Effect::MakeAlive];
        }
        let retiring = electing.retiring_until.is_some();
        let heard = matches!(seen.answer, Answer::Answered { .. });
        if !retiring && (heard || electing.watch.has_progressed()) {
            return self.finish(Vec::new(), End::Attach(verdict));
        }
        electing.step = Step::Watching;
        let timings = lease.map(Parsed::timings).unwrap_or_default();
        let pause = if retiring {
            RETIRING_POLL
        } else {
            timings.heartbeat() / LOOKS_PER_BEAT
        };
        vec![Effect::WakeAt(now + pause)]
    }

    pub(super) fn handle_alive_made(
        &mut self,
        now: Now,
        token: LeaseToken,
        file: FileId,
    ) -> Vec<Effect> {
        match &mut self.state {
            State::Electing(electing) if electing.step == Step::MakingAlive => {
                electing.step = Step::Locking { token, alive: file };
                vec![Effect::LockLease {
                    deadline: now + LOCK_WAIT,
                }]
            }
            State::Idle
            | State::Electing(_)
            | State::Starting(_)
            | State::Serving(_)
            | State::Draining(_)
            | State::Ended => vec![Effect::DropAlive],
        }
    }

    /// Judges again, now that nobody else can write the lease, and writes it if it may be taken.
    pub(super) fn election_locked(
        &mut self,
        now: Now,
        seen: &Examination,
        fences: Vec<Epoch>,
    ) -> Vec<Effect> {
        let former = self.own_former(seen);
        let here = self.identity.here();
        let State::Electing(electing) = &mut self.state else {
            return vec![Effect::UnlockLease];
        };
        let Step::Locking { token, alive } = electing.step.clone() else {
            return vec![Effect::UnlockLease];
        };
        let lease = seen.lease.as_ref();
        let watched = electing.watch.look(now, lease, seen.beat, Answer::NotAsked);
        let verdict = former.unwrap_or_else(|| holder_verdict(seen, watched, &here));
        let overdue = electing.retiring_overdue(now, lease);
        if !verdict.may_take() && !overdue {
            electing.step = Step::Examining;
            return vec![Effect::UnlockLease, Effect::DropAlive, Effect::Examine];
        }
        let highest = seen
            .lease
            .as_ref()
            .and_then(Parsed::epoch)
            .unwrap_or(Epoch::NONE)
            .max(self.highest);
        let epoch = match next_epoch(highest, fences, seen.wall) {
            Ok(epoch) => epoch,
            Err(exhausted) => {
                let effects = vec![Effect::UnlockLease, Effect::DropAlive];
                return self.finish(effects, End::Exhausted(exhausted));
            }
        };
        let displaced = if verdict == Verdict::Hung || overdue {
            lease.and_then(Parsed::as_predecessor)
        } else {
            None
        };
        let claim = self.claim(now, seen, token, epoch, displaced);
        let document = claim.document.clone();
        if let State::Electing(electing) = &mut self.state {
            electing.step = Step::Claiming {
                claim: Box::new(claim),
                alive,
            };
        }
        vec![Effect::WriteLease(Box::new(document))]
    }

    pub(super) fn election_written(&mut self, now: Now, file: FileId) -> Vec<Effect> {
        let State::Electing(electing) = &mut self.state else {
            return Vec::new();
        };
        let Step::Claiming { claim, alive } = std::mem::take(&mut electing.step) else {
            return Vec::new();
        };
        let tenure = Tenure::new(claim.document, alive, file, now);
        let epoch = tenure.epoch();
        let next_beat = tenure.next_beat();
        let quiet_at = now + claim.answering;
        self.highest = epoch;
        self.state = State::Starting(Box::new(Starting::new(tenure, claim.pending, quiet_at)));
        vec![
            Effect::UnlockLease,
            Effect::BindSocket { epoch },
            Effect::WakeAt(next_beat),
        ]
    }

    fn claim(
        &self,
        now: Now,
        seen: &Examination,
        token: LeaseToken,
        epoch: Epoch,
        displaced: Option<Predecessor>,
    ) -> Claim {
        let old = seen.lease.as_ref().and_then(Parsed::document);
        let listed = old.map(|old| old.predecessors.clone()).unwrap_or_default();
        // Nothing says what those that were listed before were to be judged by.
        let heartbeat = old
            .filter(|_| listed.is_empty())
            .map_or(Timings::HEARTBEAT_MAX, |old| old.timings.heartbeat());
        // One more than a look counts, for clocks that do not go alike.
        let answering = heartbeat * (LOOK_BEATS_MAX + 1);
        let patience = now + self.identity.timings.busy_grace() + RETIRING_EXTRA;
        // The displaced one had its time before; those that it listed were never waited for.
        let displaced = displaced.map(|predecessor| Pending::new(predecessor, now));
        let listed = listed
            .into_iter()
            .map(|predecessor| Pending::new(predecessor, patience));
        let pending: Vec<Pending> = displaced
            .into_iter()
            .chain(listed)
            .filter(|pending| !self.former.contains(&pending.predecessor.token))
            .take(PREDECESSORS_MAX)
            .collect();
        let identity = &self.identity;
        let document = LeaseDocument {
            schema: LEASE_SCHEMA,
            min_reader: LEASE_SCHEMA,
            alive: token.alive_name(),
            token,
            epoch,
            state: LeaseState::Starting,
            place: identity.place.clone(),
            process: identity.process,
            exe: identity.exe.clone(),
            build: identity.build.clone(),
            version: identity.version.clone(),
            url: None,
            socket: identity.socket.clone(),
            quic: None,
            node_id: identity.node_id.clone(),
            timings: identity.timings,
            started_at: seen.wall,
            predecessors: pending
                .iter()
                .map(|pending| pending.predecessor.clone())
                .collect(),
            unknown: old.map(|old| old.unknown.clone()).unwrap_or_default(),
        };
        Claim {
            document,
            pending,
            answering,
        }
    }

    /// Goes on without a lease that could not be locked or written.
    pub(super) fn handle_unwritten(&mut self, now: Now, end: End) -> Vec<Effect> {
        let effects = match &mut self.state {
            State::Idle | State::Ended => return Vec::new(),
            State::Serving(serving) => {
                serving.tenure.look_failed();
                return Vec::new();
            }
            // A tenure that ends needs no lease to end.
            State::Draining(_) => return self.drain_written(now, None),
            State::Electing(electing) => electing.unlock_if_locked(),
            State::Starting(starting) => {
                let mut effects = vec![Effect::StopWrites];
                effects.extend(starting.unlock_if_locked());
                effects
            }
        };
        let effects = effects.into_iter().chain([Effect::DropAlive]).collect();
        self.finish(effects, end)
    }
}
