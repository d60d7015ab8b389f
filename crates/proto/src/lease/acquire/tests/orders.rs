//! Any order of inputs, against the invariants of the machine.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// An input of any kind, with the epochs that occur in one run.
fn any_input() -> impl Strategy<Value = Input> {
    let epoch = (WALL_MS..WALL_MS + 4).prop_map(Epoch::new);
    let document = (0..3_u8, 0..4_u8, WALL_MS - 2..WALL_MS + 4).prop_map(|(n, state, epoch)| {
        let state = match state {
            0 => LeaseState::Starting,
            1 => LeaseState::Serving,
            2 => LeaseState::Retiring,
            _ => LeaseState::Ended,
        };
        let (token, epoch) = (token(n), Epoch::new(epoch));
        LeaseDocument {
            alive: token.alive_name(),
            token,
            epoch,
            state,
            ..sample()
        }
    });
    let look = (prop::option::of(document), 0..3_u64, 0..3_u8).prop_map(|(lease, beat, kind)| {
        let seen = Examination {
            beat: Some(Beat::new(beat)),
            ..silent(lease)
        };
        match kind {
            0 => Examination {
                alive: AliveLock::Free,
                ..seen
            },
            1 => Examination {
                answer: HEARD,
                ..seen
            },
            _ => seen,
        }
    });
    let files = (0..3_u8, 0..4_u8).prop_map(|(n, gone)| FilesSeen {
        lease: (gone != 1).then_some(LEASE_FILE),
        token: Some(token(n)),
        alive: (gone != 2).then_some(ALIVE_FILE),
        databases_in_place: gone != 3,
        socket_in_place: n != 2,
    });
    let seen = look.clone();
    let locked = move |seen| Input::LeaseLocked {
        seen,
        fences: vec![Epoch::new(WALL_MS)],
    };
    prop_oneof![
        2 => Just(Input::Woke),
        4 => look.prop_map(Input::Examined),
        4 => (0..3_u8).prop_map(|n| Input::AliveMade { token: token(n), file: ALIVE_FILE }),
        4 => seen.prop_map(locked),
        1 => Just(Input::LockBusy { holder: None }),
        4 => Just(Input::LeaseWritten { file: LEASE_FILE }),
        1 => Just(Input::FilesFailed { why: "full".to_owned() }),
        2 => files.prop_map(Input::FilesLooked),
        2 => epoch.clone().prop_map(|epoch| Input::SocketBound { epoch }),
        2 => epoch.clone().prop_map(|epoch| Input::PredecessorsLooked { epoch, seen: vec![] }),
        2 => epoch.clone().prop_map(|epoch| Input::FenceRaised { epoch }),
        1 => epoch.clone().prop_map(|epoch| Input::FenceHigher { epoch }),
        1 => epoch.clone().prop_map(|epoch| Input::FenceBusy { epoch }),
        2 => epoch.clone().prop_map(|epoch| Input::Imported { epoch }),
        2 => epoch.clone().prop_map(|epoch| Input::ListenersBound { epoch, url: None, quic: None }),
        1 => epoch.clone().prop_map(|epoch| Input::WorkFailed { epoch, why: "full".to_owned() }),
        1 => epoch.prop_map(|epoch| Input::Drained { epoch }),
        1 => Just(Input::LookWanted),
        1 => Just(Input::Stop),
    ]
}

/// What must hold of every run, whatever the inputs were.
#[derive(Debug, Default)]
struct Order {
    /// Effects on the files whose result is still to come, in order.
    asked: VecDeque<Effect>,
    locked: bool,
    alive: bool,
    fenced: Option<Epoch>,
    epoch: Option<Epoch>,
    finished: bool,
}

impl Order {
    /// Takes the input if it can come now: results of effects on files come in order.
    fn admits(&mut self, input: &Input) -> bool {
        let fits = match (input, self.asked.front()) {
            (Input::Examined(_), Some(Effect::Examine))
            | (Input::AliveMade { .. }, Some(Effect::MakeAlive))
            | (
                Input::LeaseLocked { .. } | Input::LockBusy { .. },
                Some(Effect::LockLease { .. }),
            )
            | (Input::LeaseWritten { .. }, Some(Effect::WriteLease(_)))
            | (Input::FilesLooked(_), Some(Effect::LookAtFiles))
            | (Input::FilesFailed { .. }, Some(_)) => {
                self.asked.pop_front();
                true
            }
            (
                Input::Examined(_)
                | Input::AliveMade { .. }
                | Input::LeaseLocked { .. }
                | Input::LockBusy { .. }
                | Input::LeaseWritten { .. }
                | Input::FilesLooked(_)
                | Input::FilesFailed { .. },
                _,
            ) => false,
            (_, _) => true,
        };
        self.locked |= fits && matches!(input, Input::LeaseLocked { .. });
        self.alive |= fits && matches!(input, Input::AliveMade { .. });
        if let Input::FenceRaised { epoch } = input {
            self.fenced = Some(*epoch);
        }
        fits
    }

    fn check(&mut self, effects: &[Effect]) {
        let may_unlock = self.locked;
        for effect in effects {
            let last_words = matches!(effect, Effect::UnlockLease | Effect::DropAlive);
            assert!(!self.finished || last_words, "{effect:?} after the end");
            if let Effect::WriteLease(document) = effect {
                assert!(self.locked, "invariant 1");
                assert!(self.alive, "invariant 2");
                if document.state == LeaseState::Starting {
                    assert!(self.epoch < Some(document.epoch), "invariant 3");
                    self.epoch = Some(document.epoch);
                }
            }
            if let Effect::Serve { epoch } = effect {
                assert_eq!(self.fenced, Some(*epoch), "invariant 4");
            }
            self.locked &= *effect != Effect::UnlockLease;
            self.alive &= *effect != Effect::DropAlive;
            self.finished |= matches!(effect, Effect::Finish(_));
            if has_result(effect) {
                self.asked.push_back(effect.clone());
            }
        }
        let writing = self
            .asked
            .iter()
            .any(|effect| matches!(effect, Effect::WriteLease(_)));
        assert!(!may_unlock || !self.locked || writing, "invariant 7");
    }
}

const fn has_result(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::Examine
            | Effect::MakeAlive
            | Effect::LockLease { .. }
            | Effect::WriteLease(_)
            | Effect::LookAtFiles
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn no_order_of_inputs_breaks_an_invariant(
        inputs in proptest::collection::vec((any_input(), 0..3_000_u64), 1..150)
    ) {
        let mut machine = Lifecycle::new(identity());
        let mut order = Order::default();
        let mut now = Now::START;
        order.check(&machine.handle(now, Input::Begin));
        for (input, pause_ms) in inputs {
            now = now + Duration::from_millis(pause_ms);
            if order.admits(&input) {
                order.check(&machine.handle(now, input));
            }
            for permit in [machine.permit(now), machine.may_answer(now)] {
                if let Permit::Run(epoch) = permit {
                    prop_assert_eq!(order.fenced, Some(epoch), "invariant 5");
                }
            }
        }
    }
}
