use std::slice;
use std::time::Duration;

use super::super::document::tests::sample;
use super::super::{Answer, Beat, LeaseState, Outdated, Parsed};
use super::*;
use crate::Timestamp;

mod orders;

const WALL_MS: u64 = 5_000_000;
const ALIVE_FILE: FileId = FileId {
    device: 1,
    inode: 10,
};
const LEASE_FILE: FileId = FileId {
    device: 1,
    inode: 20,
};
const HEARD: Answer = Answer::Answered {
    executable_replaced: false,
};

fn identity() -> Identity {
    let document = sample();
    Identity {
        place: document.place,
        process: Process {
            pid: Pid::new(99),
            pid_start: 1,
        },
        exe: document.exe,
        build: document.build,
        version: document.version,
        socket: document.socket,
        node_id: document.node_id,
        timings: document.timings,
    }
}

/// A look at a holder whose lock is held and who does not answer.
fn silent(lease: impl Into<Option<LeaseDocument>>) -> Examination {
    let lease = lease
        .into()
        .map(|document| Parsed::Whole(Box::new(document)));
    Examination {
        alive: if lease.is_some() {
            AliveLock::Held
        } else {
            AliveLock::Missing
        },
        lease,
        beat: Some(Beat::new(1)),
        process: ProcessFact::Running,
        answer: Answer::Silent,
        wall: Timestamp::from_unix_ms(WALL_MS),
    }
}

fn dead(lease: LeaseDocument) -> Examination {
    Examination {
        alive: AliveLock::Free,
        ..silent(lease)
    }
}

fn token(n: u8) -> LeaseToken {
    LeaseToken::from_random([n; 16])
}

/// A machine, its clock, and the last lease that it wrote.
struct Rig {
    machine: Lifecycle,
    now: Now,
    written: Option<LeaseDocument>,
}

impl Rig {
    fn new() -> Self {
        Self {
            machine: Lifecycle::new(identity()),
            now: Now::START,
            written: None,
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    /// Hands an input in and returns the effects without their wakes.
    fn give(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = self.machine.handle(self.now, input);
        effects.retain(|effect| !matches!(effect, Effect::WakeAt(_)));
        for effect in &effects {
            if let Effect::WriteLease(document) = effect {
                self.written = Some(document.as_ref().clone());
            }
        }
        effects
    }

    #[track_caller]
    fn check(&mut self, input: Input, want: &[Effect]) {
        assert_eq!(self.give(input), want);
    }

    fn lease(&self) -> LeaseDocument {
        self.written.clone().expect("a lease was written")
    }

    fn epoch(&self) -> Epoch {
        self.lease().epoch
    }

    fn lock_deadline(&self) -> Effect {
        Effect::LockLease {
            deadline: self.now + electing::LOCK_WAIT,
        }
    }

    /// Takes the lease after this look, made before and under the lock.
    #[track_caller]
    fn take(&mut self, seen: &Examination, n: u8) {
        self.check(
            Input::AliveMade {
                token: token(n),
                file: ALIVE_FILE,
            },
            &[self.lock_deadline()],
        );
        let locked = Input::LeaseLocked {
            seen: seen.clone(),
            fences: vec![],
        };
        let effects = self.give(locked);
        assert!(
            matches!(effects[..], [Effect::WriteLease(_)]),
            "{effects:?}"
        );
        let epoch = self.epoch();
        self.check(
            Input::LeaseWritten { file: LEASE_FILE },
            &[Effect::UnlockLease, Effect::BindSocket { epoch }],
        );
    }

    /// Goes on from a bound socket, nobody waited for, to serving.
    #[track_caller]
    fn publish(&mut self) {
        let epoch = self.epoch();
        self.check(Input::FenceRaised { epoch }, &[Effect::Import { epoch }]);
        self.check(
            Input::Imported { epoch },
            &[Effect::BindListeners { epoch }],
        );
        let bound = Input::ListenersBound {
            epoch,
            url: None,
            quic: None,
        };
        self.check(bound, &[self.lock_deadline()]);
        let effects = self.give(Input::LeaseLocked {
            seen: silent(self.lease()),
            fences: vec![],
        });
        assert!(
            matches!(effects[..], [Effect::WriteLease(_)]),
            "{effects:?}"
        );
        assert_eq!(self.lease().state, LeaseState::Serving);
        let serve = [Effect::UnlockLease, Effect::Serve { epoch }];
        self.check(Input::LeaseWritten { file: LEASE_FILE }, &serve);
        assert_eq!(self.machine.phase(), Phase::Serving(epoch));
    }

    #[track_caller]
    fn serve(&mut self) {
        self.check(Input::Begin, &[Effect::Examine]);
        self.check(Input::Examined(silent(None)), &[Effect::MakeAlive]);
        self.take(&silent(None), 7);
        let epoch = self.epoch();
        self.check(
            Input::SocketBound { epoch },
            &[Effect::RaiseFence { epoch }],
        );
        self.publish();
    }

    /// Looks at a silent holder until it is hung.
    #[track_caller]
    fn watch_until_hung(&mut self, seen: &Examination) {
        self.check(Input::Begin, &[Effect::Examine]);
        for look in 0..100 {
            match &self.give(Input::Examined(seen.clone()))[..] {
                [] => {}
                [Effect::MakeAlive] => return,
                other => panic!("look {look}: {other:?}"),
            }
            self.pass(Duration::from_millis(500));
            self.check(Input::Woke, &[Effect::Examine]);
        }
        panic!("never judged hung");
    }

    fn firm(&self) -> FilesSeen {
        FilesSeen {
            lease: Some(LEASE_FILE),
            token: Some(self.lease().token),
            alive: Some(ALIVE_FILE),
            databases_in_place: true,
            socket_in_place: true,
        }
    }
}

#[test]
fn an_empty_seat_is_taken_step_by_step() {
    let mut rig = Rig::new();
    assert_eq!(rig.machine.permit(rig.now), Permit::Wait);
    rig.serve();
    let lease = rig.lease();
    assert_eq!(lease.token, token(7));
    assert_eq!(lease.alive, token(7).alive_name());
    assert_eq!(lease.epoch, Epoch::new(WALL_MS + 1));
    assert_eq!(rig.machine.permit(rig.now), Permit::Run(lease.epoch));
}

#[test]
fn the_epoch_is_above_the_old_lease_and_every_fence() {
    let mut old = sample();
    for (lease, fences, want) in [
        (WALL_MS + 10, vec![], WALL_MS + 11),
        (1, vec![3, WALL_MS + 20, 4], WALL_MS + 21),
        (1, vec![2], WALL_MS + 1),
    ] {
        old.epoch = Epoch::new(lease);
        let mut rig = Rig::new();
        rig.give(Input::Begin);
        rig.check(Input::Examined(dead(old.clone())), &[Effect::MakeAlive]);
        rig.give(Input::AliveMade {
            token: token(7),
            file: ALIVE_FILE,
        });
        let fences = fences.into_iter().map(Epoch::new).collect();
        rig.give(Input::LeaseLocked {
            seen: dead(old.clone()),
            fences,
        });
        assert_eq!(rig.epoch(), Epoch::new(want));
    }
    let mut rig = Rig::new();
    rig.give(Input::Begin);
    rig.give(Input::Examined(dead(old.clone())));
    rig.give(Input::AliveMade {
        token: token(7),
        file: ALIVE_FILE,
    });
    let full = Epoch::new(u64::MAX);
    let locked = Input::LeaseLocked {
        seen: dead(old),
        fences: vec![full],
    };
    let end = Effect::Finish(End::Exhausted(EpochsExhausted(full)));
    rig.check(locked, &[Effect::UnlockLease, Effect::DropAlive, end]);
}

#[test]
fn a_living_holder_is_attached_to() {
    let older = LeaseDocument {
        version: "0.1.0".to_owned(),
        ..sample()
    };
    let newer = LeaseDocument {
        version: "9.0.0".to_owned(),
        ..sample()
    };
    for (lease, verdict) in [
        (sample(), Verdict::Live),
        (older, Verdict::Outdated(Outdated::OlderRelease)),
        (newer, Verdict::Newer),
    ] {
        let mut rig = Rig::new();
        rig.give(Input::Begin);
        let seen = Examination {
            answer: HEARD,
            ..silent(lease)
        };
        rig.check(
            Input::Examined(seen),
            &[Effect::Finish(End::Attach(verdict))],
        );
    }
}

#[test]
fn a_silent_holder_that_makes_progress_is_left_alone() {
    let mut rig = Rig::new();
    rig.give(Input::Begin);
    rig.check(Input::Examined(silent(sample())), &[]);
    rig.pass(Duration::from_secs(1));
    rig.check(Input::Woke, &[Effect::Examine]);
    let beaten = Examination {
        beat: Some(Beat::new(2)),
        ..silent(sample())
    };
    rig.check(
        Input::Examined(beaten),
        &[Effect::Finish(End::Attach(Verdict::Live))],
    );
}

#[test]
fn two_who_judged_one_holder_dead_end_with_one_lease() {
    let mut rig = Rig::new();
    rig.give(Input::Begin);
    rig.check(Input::Examined(dead(sample())), &[Effect::MakeAlive]);
    rig.give(Input::AliveMade {
        token: token(7),
        file: ALIVE_FILE,
    });
    // Under the lock the lease is another's, who lives.
    let mut other = sample();
    other.token = token(8);
    other.alive = token(8).alive_name();
    other.state = LeaseState::Starting;
    let locked = Input::LeaseLocked {
        seen: silent(other),
        fences: vec![],
    };
    rig.check(
        locked,
        &[Effect::UnlockLease, Effect::DropAlive, Effect::Examine],
    );
    assert_eq!(rig.machine.phase(), Phase::Electing);
}

#[test]
fn a_hung_holder_is_killed_before_the_fence() {
    let mut rig = Rig::new();
    let hung = silent(sample());
    rig.watch_until_hung(&hung);
    rig.take(&hung, 7);
    let epoch = rig.epoch();
    let predecessor = sample().as_predecessor();
    assert_eq!(rig.lease().predecessors, slice::from_ref(&predecessor));
    let look = Effect::LookAtPredecessors {
        epoch,
        predecessors: vec![predecessor.clone()],
    };
    rig.check(Input::SocketBound { epoch }, slice::from_ref(&look));
    let seen = |alive| Input::PredecessorsLooked {
        epoch,
        seen: vec![PredecessorSeen {
            token: sample().token,
            alive,
            process: ProcessFact::Running,
        }],
    };
    let kill = Effect::Kill {
        pid: 4_711,
        predecessor: Box::new(predecessor),
    };
    rig.check(seen(AliveLock::Held), &[kill]);
    rig.pass(Duration::from_millis(50));
    rig.check(Input::Woke, &[look]);
    rig.check(seen(AliveLock::Free), &[Effect::RaiseFence { epoch }]);
    rig.publish();
    assert_eq!(rig.lease().predecessors, []);
}

#[test]
fn a_hung_holder_that_cannot_be_killed_is_fenced() {
    let mut rig = Rig::new();
    let mut document = sample();
    document.process.pid = Pid::new(1);
    let hung = silent(document);
    rig.watch_until_hung(&hung);
    rig.take(&hung, 7);
    let epoch = rig.epoch();
    rig.give(Input::SocketBound { epoch });
    let seen = Input::PredecessorsLooked {
        epoch,
        seen: vec![PredecessorSeen {
            token: sample().token,
            alive: AliveLock::Held,
            process: ProcessFact::Running,
        }],
    };
    rig.check(seen, &[Effect::RaiseFence { epoch }]);
    rig.publish();
    assert_eq!(rig.lease().predecessors.len(), 1, "it has not ended yet");
}

#[test]
fn a_hung_holder_that_wakes_before_the_lock_keeps_its_lease() {
    let mut rig = Rig::new();
    let hung = silent(sample());
    rig.watch_until_hung(&hung);
    rig.give(Input::AliveMade {
        token: token(7),
        file: ALIVE_FILE,
    });
    let awake = Examination {
        beat: Some(Beat::new(2)),
        answer: Answer::NotAsked,
        ..hung
    };
    let locked = Input::LeaseLocked {
        seen: awake,
        fences: vec![],
    };
    rig.check(
        locked,
        &[Effect::UnlockLease, Effect::DropAlive, Effect::Examine],
    );
}

#[test]
fn a_retiring_holder_is_waited_for_until_its_time_is_up() {
    let retiring = Examination {
        answer: HEARD,
        ..silent(LeaseDocument {
            state: LeaseState::Retiring,
            ..sample()
        })
    };
    let mut rig = Rig::new();
    rig.give(Input::Begin);
    rig.check(Input::Examined(retiring.clone()), &[]);
    let grace = sample().timings.busy_grace() + electing::RETIRING_EXTRA;
    rig.pass(grace.saturating_sub(Duration::from_millis(1)));
    rig.check(Input::Woke, &[Effect::Examine]);
    rig.check(Input::Examined(retiring.clone()), &[]);
    rig.pass(Duration::from_millis(1));
    rig.check(Input::Woke, &[Effect::Examine]);
    rig.check(Input::Examined(retiring.clone()), &[Effect::MakeAlive]);
    rig.take(&retiring, 7);
    assert_eq!(rig.lease().predecessors.len(), 1);
}

#[test]
fn who_lost_the_lease_ends() {
    let mut rig = Rig::new();
    rig.serve();
    let taken = FilesSeen {
        token: Some(token(9)),
        ..rig.firm()
    };
    let end = Effect::Finish(End::Superseded);
    rig.check(
        Input::FilesLooked(taken),
        &[Effect::StopWrites, Effect::DropAlive, end],
    );
    assert_eq!(rig.machine.permit(rig.now), Permit::Moved);
}

#[test]
fn who_lost_a_file_stops_writing_and_stands_again() {
    let loss: [fn(&mut FilesSeen); 5] = [
        |seen| seen.lease = None,
        |seen| seen.lease = Some(ALIVE_FILE),
        |seen| seen.token = None,
        |seen| seen.alive = None,
        |seen| seen.databases_in_place = false,
    ];
    for lose in loss {
        let mut rig = Rig::new();
        rig.serve();
        let own = rig.lease();
        let mut seen = rig.firm();
        lose(&mut seen);
        let again = [Effect::StopWrites, Effect::DropAlive, Effect::Examine];
        rig.check(Input::FilesLooked(seen), &again);
        assert_eq!(
            rig.machine.permit(rig.now),
            Permit::Wait,
            "it may be the next"
        );
        // Its own former tenure is over, even where its alive file proves nothing.
        let missing = Examination {
            alive: AliveLock::Missing,
            ..silent(own.clone())
        };
        rig.check(Input::Examined(missing.clone()), &[Effect::MakeAlive]);
        rig.take(&missing, 8);
        assert_eq!(rig.lease().predecessors, [], "it does not wait for itself");
        assert!(rig.epoch() > own.epoch);
    }
}

#[test]
fn a_socket_whose_path_was_taken_is_bound_again() {
    let mut rig = Rig::new();
    rig.serve();
    let epoch = rig.epoch();
    let seen = FilesSeen {
        socket_in_place: false,
        ..rig.firm()
    };
    rig.check(Input::FilesLooked(seen), &[Effect::BindSocket { epoch }]);
    rig.check(Input::SocketBound { epoch }, &[]);
    assert_eq!(rig.machine.permit(rig.now), Permit::Run(epoch));
}

#[test]
fn a_process_that_was_stopped_looks_before_it_serves() {
    let mut rig = Rig::new();
    rig.serve();
    let epoch = rig.epoch();
    rig.pass(Duration::from_secs(4));
    assert_eq!(rig.machine.permit(rig.now), Permit::Run(epoch));
    rig.pass(Duration::from_millis(1));
    assert_eq!(rig.machine.permit(rig.now), Permit::LookFirst);
    rig.check(Input::LookWanted, &[Effect::LookAtFiles]);
    rig.check(Input::LookWanted, &[]);
    rig.check(Input::FilesLooked(rig.firm()), &[]);
    assert_eq!(rig.machine.permit(rig.now), Permit::Run(epoch));
}

#[test]
fn every_heartbeat_touches_and_looks() {
    let mut rig = Rig::new();
    rig.serve();
    for _ in 0..3 {
        rig.pass(Duration::from_secs(1));
        rig.check(Input::Woke, &[]);
        rig.pass(Duration::from_secs(1));
        rig.check(Input::Woke, &[Effect::Beat, Effect::LookAtFiles]);
        rig.check(Input::FilesLooked(rig.firm()), &[]);
    }
}

#[test]
fn an_ordered_stop_ends_the_lease() {
    let mut rig = Rig::new();
    rig.serve();
    let epoch = rig.epoch();
    rig.check(Input::Stop, &[rig.lock_deadline()]);
    assert_eq!(rig.machine.permit(rig.now), Permit::Moved);
    rig.give(Input::LeaseLocked {
        seen: silent(rig.lease()),
        fences: vec![],
    });
    assert_eq!(rig.lease().state, LeaseState::Retiring);
    let deadline = rig.now + rig.lease().timings.busy_grace();
    let drain = [Effect::UnlockLease, Effect::Drain { epoch, deadline }];
    rig.check(Input::LeaseWritten { file: LEASE_FILE }, &drain);
    rig.check(Input::Stop, &[]);
    rig.check(Input::Drained { epoch }, &[rig.lock_deadline()]);
    rig.give(Input::LeaseLocked {
        seen: silent(rig.lease()),
        fences: vec![],
    });
    assert_eq!(rig.lease().state, LeaseState::Ended);
    let end = [
        Effect::UnlockLease,
        Effect::DropAlive,
        Effect::Finish(End::Stopped),
    ];
    rig.check(Input::LeaseWritten { file: LEASE_FILE }, &end);
}

#[test]
fn a_stop_does_not_need_the_lock() {
    let mut rig = Rig::new();
    rig.serve();
    let epoch = rig.epoch();
    rig.give(Input::Stop);
    let busy = Input::LockBusy {
        holder: Some(Pid::new(5)),
    };
    let deadline = rig.now + rig.lease().timings.busy_grace();
    rig.check(
        busy.clone(),
        &[Effect::UnlockLease, Effect::Drain { epoch, deadline }],
    );
    rig.give(Input::Drained { epoch });
    let end = [
        Effect::UnlockLease,
        Effect::DropAlive,
        Effect::Finish(End::Stopped),
    ];
    rig.check(busy, &end);
}

/// Brings the successor of a hung holder in another place to the end of its patience with a lock.
fn meet_a_lock() -> (Rig, Epoch) {
    let mut rig = Rig::new();
    let mut document = sample();
    document.place.pid_ns = Some(7);
    let hung = silent(document);
    rig.watch_until_hung(&hung);
    rig.take(&hung, 7);
    let epoch = rig.epoch();
    rig.give(Input::SocketBound { epoch });
    let seen = vec![PredecessorSeen {
        token: sample().token,
        alive: AliveLock::Held,
        process: ProcessFact::Unknown,
    }];
    let looked = Input::PredecessorsLooked { epoch, seen };
    rig.check(looked, &[Effect::RaiseFence { epoch }]);
    rig.check(Input::FenceBusy { epoch }, &[]);
    rig.pass(Duration::from_millis(100));
    rig.check(Input::Woke, &[Effect::RaiseFence { epoch }]);
    rig.pass(Duration::from_secs(2));
    (rig, epoch)
}

#[test]
fn a_locked_database_is_left_behind_once_no_old_look_counts() {
    let (mut rig, epoch) = meet_a_lock();
    // The holder's look counts for two of its heartbeats; one more is for the clocks.
    let heartbeat = sample().timings.heartbeat();
    rig.check(Input::FenceBusy { epoch }, &[]);
    rig.pass((heartbeat * 3).saturating_sub(Duration::from_millis(2_101)));
    let leave = Effect::LeaveDatabases { epoch };
    assert!(!rig.give(Input::Woke).contains(&leave));
    rig.pass(Duration::from_millis(1));
    rig.check(Input::Woke, &[leave]);
    rig.publish();
    assert_eq!(rig.lease().predecessors.len(), 1, "it has not ended yet");
}

#[test]
fn a_database_that_cannot_even_be_left_behind_is_named() {
    let (mut rig, epoch) = meet_a_lock();
    rig.check(Input::FenceBusy { epoch }, &[]);
    rig.pass(Duration::from_mins(1));
    let leave = Effect::LeaveDatabases { epoch };
    assert!(rig.give(Input::Woke).contains(&leave));
    let end = Effect::Finish(End::DatabaseBusy);
    rig.check(
        Input::FenceBusy { epoch },
        &[Effect::StopWrites, Effect::DropAlive, end],
    );
}

#[test]
fn nothing_is_answered_by_an_old_look() {
    let mut rig = Rig::new();
    rig.serve();
    let run = Permit::Run(rig.epoch());
    assert_eq!(rig.machine.may_answer(rig.now), run);
    rig.pass(Duration::from_secs(15));
    assert_eq!(rig.machine.may_answer(rig.now), Permit::LookFirst);
    rig.check(Input::LookWanted, &[Effect::LookAtFiles]);
    let firm = rig.firm();
    rig.check(Input::FilesLooked(firm.clone()), &[]);
    assert_eq!(rig.machine.may_answer(rig.now), run);
    // What runs when the node retires is answered, and by the same rule.
    rig.give(Input::Stop);
    assert_eq!(rig.machine.permit(rig.now), Permit::Moved);
    assert_eq!(rig.machine.may_answer(rig.now), run);
    rig.pass(Duration::from_secs(15));
    assert_eq!(rig.machine.may_answer(rig.now), Permit::LookFirst);
    rig.check(Input::LookWanted, &[Effect::LookAtFiles]);
    let taken = FilesSeen {
        token: Some(token(9)),
        ..firm
    };
    rig.give(Input::FilesLooked(taken));
    assert_eq!(rig.machine.may_answer(rig.now), Permit::Moved);
}

#[test]
fn an_epoch_is_above_every_own_one_before() {
    let mut rig = Rig::new();
    rig.serve();
    let own = rig.epoch();
    // Everything is gone, and the clock has not moved on, or was set back.
    rig.give(Input::FilesLooked(FilesSeen {
        lease: None,
        token: None,
        alive: None,
        ..rig.firm()
    }));
    let nothing = Examination {
        wall: Timestamp::from_unix_ms(WALL_MS - 1),
        ..silent(None)
    };
    rig.check(Input::Examined(nothing.clone()), &[Effect::MakeAlive]);
    rig.take(&nothing, 8);
    assert!(rig.epoch() > own, "{} after {own}", rig.epoch());
}

#[test]
fn a_higher_fence_ends_the_start() {
    let mut rig = Rig::new();
    rig.give(Input::Begin);
    rig.give(Input::Examined(silent(None)));
    rig.take(&silent(None), 7);
    let epoch = rig.epoch();
    rig.give(Input::SocketBound { epoch });
    let end = Effect::Finish(End::Superseded);
    rig.check(
        Input::FenceHigher { epoch },
        &[Effect::StopWrites, Effect::DropAlive, end],
    );
}

#[test]
fn results_of_an_earlier_tenure_mean_nothing() {
    let mut rig = Rig::new();
    rig.give(Input::Begin);
    rig.give(Input::Examined(silent(None)));
    rig.take(&silent(None), 7);
    let epoch = Epoch::new(rig.epoch().number() - 1);
    for input in [
        Input::SocketBound { epoch },
        Input::FenceHigher { epoch },
        Input::WorkFailed {
            epoch,
            why: String::new(),
        },
        Input::Drained { epoch },
    ] {
        rig.check(input, &[]);
    }
    assert_eq!(rig.machine.phase(), Phase::Starting(rig.epoch()));
}
