//! The journal against a naive model, under any sequence of commands, restarts and successors.

use std::collections::BTreeMap;

use earshot_proto::lease::BodyDigest;
use earshot_store::{Batch, Begun, CommandKey, CommitError, Journal, Started};
use proptest::prelude::*;

use crate::scratch::{Scratch, command, entry, put};

#[derive(Clone, Copy, Debug)]
enum Action {
    /// A command arrives.
    Command {
        seat: u8,
        n: u64,
        body: u8,
        acked: u64,
        then: Then,
    },
    /// An effect outside the journal ends.
    End,
    /// The node dies and the next one opens the journal.
    Restart,
    /// The next node opens the journal while this one lives; this one then tries a command.
    Succeed,
}

#[derive(Clone, Copy, Debug)]
enum Then {
    Finish,
    Abort,
    Start,
}

fn action() -> impl Strategy<Value = Action> {
    let then = prop_oneof![
        4 => Just(Then::Finish),
        1 => Just(Then::Abort),
        1 => Just(Then::Start),
    ];
    let command = (
        0..2_u8,
        0..7_u64,
        prop::bool::weighted(0.15),
        0..7_u64,
        then,
    )
        .prop_map(|(seat, n, other, acked, then)| Action::Command {
            seat,
            n,
            body: u8::from(other),
            acked,
            then,
        });
    prop_oneof![
        12 => command,
        1 => Just(Action::End),
        1 => Just(Action::Restart),
        1 => Just(Action::Succeed),
    ]
}

/// What a command of the model came to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Came {
    Begun,
    Ended(Vec<u8>),
}

#[derive(Debug, Default)]
struct Seat {
    floor: u64,
    commands: BTreeMap<u64, (u8, Came)>,
}

#[derive(Debug, Default)]
struct Model {
    seats: BTreeMap<u8, Seat>,
    /// How often each command's effect is in the journal: by seat and number.
    effects: BTreeMap<(u8, u64), u64>,
}

#[derive(Debug, PartialEq, Eq)]
enum Expected {
    Run,
    Answered(Vec<u8>),
    Conflict,
    Gone,
    OutcomeUnknown,
}

impl Model {
    fn expect(&self, seat: u8, n: u64, body: u8) -> Expected {
        let Some(known) = self.seats.get(&seat) else {
            return if n == 1 {
                Expected::Run
            } else {
                Expected::Gone
            };
        };
        match known.commands.get(&n) {
            Some((other, _)) if *other != body => Expected::Conflict,
            Some((_, Came::Ended(result))) => Expected::Answered(result.clone()),
            Some((_, Came::Begun)) => Expected::OutcomeUnknown,
            None if n <= known.floor => Expected::Gone,
            None => Expected::Run,
        }
    }

    fn note(&mut self, seat: u8, n: u64, body: u8, acked: u64, came: Came) {
        let known = self.seats.entry(seat).or_default();
        let ended =
            |(n, (_, came)): (&u64, &(u8, Came))| matches!(came, Came::Ended(_)).then_some(*n);
        let highest = known.commands.iter().filter_map(ended).max().unwrap_or(0);
        known.floor = known.floor.max(acked.min(n - 1).min(highest));
        known.commands.insert(n, (body, came));
        let floor = known.floor;
        known.commands.retain(|n, _| *n > floor);
    }

    fn end(&mut self, seat: u8, n: u64, result: Vec<u8>) {
        let known = self.seats.entry(seat).or_default();
        if let Some((_, came)) = known.commands.get_mut(&n) {
            *came = Came::Ended(result);
        }
    }

    /// The effect of a command: a row that counts how often it happened.
    fn effect(&mut self, seat: u8, n: u64) -> Batch {
        let times = self.effects.entry((seat, n)).or_default();
        *times += 1;
        let mut entry = entry(u64::from(seat) * 100 + n + 1, n);
        entry.record.notices_dropped = *times;
        put(entry)
    }
}

struct Run {
    scratch: Scratch,
    epoch: u64,
    journal: Journal,
    started: Vec<(u8, u64, Started)>,
    model: Model,
}

impl Run {
    fn new() -> Self {
        let scratch = Scratch::new();
        let journal = scratch.open(1);
        Self {
            scratch,
            epoch: 1,
            journal,
            started: Vec::new(),
            model: Model::default(),
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Command {
                seat,
                n,
                body,
                acked,
                then,
            } => self.command(seat, n, body, acked, then),
            Action::End => {
                let Some((seat, n, started)) = self.started.pop() else {
                    return;
                };
                let result = format!("{seat}/{n} ended").into_bytes();
                let effect = self.model.effect(seat, n);
                let receipt = self
                    .journal
                    .finish_started(&started, &effect, result.clone());
                assert_eq!(receipt.unwrap().into_result(), result);
                self.model.end(seat, n, result);
            }
            Action::Restart => {
                self.epoch += 1;
                self.started.clear();
                self.journal = self.scratch.open(self.epoch);
            }
            Action::Succeed => {
                self.epoch += 1;
                let next = self.scratch.open(self.epoch);
                let mut old = std::mem::replace(&mut self.journal, next);
                self.started.clear();
                let tried = old.begin(&command(0, 1));
                assert!(
                    matches!(tried, Err(CommitError::Fenced { .. })),
                    "{tried:?}"
                );
            }
        }
    }

    fn command(&mut self, seat: u8, n: u64, body: u8, acked: u64, then: Then) {
        let key = CommandKey {
            digest: BodyDigest::new([body; 16]),
            acked,
            ..command(seat, n)
        };
        let expected = self.model.expect(seat, n, body);
        let begun = self.journal.begin(&key).unwrap();
        let execution = match begun {
            Begun::Run(execution) => {
                assert_eq!(expected, Expected::Run);
                execution
            }
            Begun::Answered(receipt) => {
                return assert_eq!(expected, Expected::Answered(receipt.into_result()));
            }
            Begun::Conflict => return assert_eq!(expected, Expected::Conflict),
            Begun::Gone => return assert_eq!(expected, Expected::Gone),
            Begun::OutcomeUnknown => return assert_eq!(expected, Expected::OutcomeUnknown),
        };
        match then {
            Then::Abort => drop(execution),
            Then::Finish => {
                let result = format!("{seat}/{n}").into_bytes();
                let effect = self.model.effect(seat, n);
                let receipt = execution.finish(&effect, result.clone()).unwrap();
                assert_eq!(receipt.into_result(), result);
                self.model.note(seat, n, body, acked, Came::Ended(result));
            }
            Then::Start => {
                let started = execution.start().unwrap();
                self.started.push((seat, n, started));
                self.model.note(seat, n, body, acked, Came::Begun);
            }
        }
    }

    fn check(&mut self) {
        let loaded = self.journal.load().unwrap();
        let found: Vec<u64> = loaded
            .peers
            .iter()
            .map(|p| p.record.notices_dropped)
            .collect();
        let modelled: Vec<u64> = self.model.effects.values().copied().collect();
        assert_eq!(found, modelled);
        // Invariant 2
        assert!(
            found.iter().all(|times| *times == 1),
            "{:?}",
            self.model.effects
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn each_command_has_its_effect_once(actions in prop::collection::vec(action(), 1..50)) {
        let mut run = Run::new();
        for action in actions {
            run.act(action);
        }
        run.check();
    }
}
