//! The simulator in the normal test run: fixed seeds, one random one, and its own sabotage.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use earshot_testkit::sim::{self, Failure, Replay, Sabotage};

/// Says what failed, and leaves the log where it can be replayed.
fn report(failure: &Failure) -> String {
    let name = format!("{}/sim-{}.jsonl", env!("CARGO_TARGET_TMPDIR"), failure.seed);
    let written = std::fs::write(&name, failure.log());
    format!("{failure}; log: {name} ({written:?})")
}

#[test]
fn two_hundred_seeds_hold_every_invariant() {
    let sum = sim::run_many(0, 200).unwrap_or_else(|failure| panic!("{}", report(&failure)));
    println!("{sum:?}");
    assert!(
        sum.tenures > 1_000 && sum.commits > 5_000,
        "the worlds are lively: {sum:?}"
    );
}

#[test]
fn a_random_seed_holds_every_invariant() {
    let seed = RandomState::new().build_hasher().finish();
    println!("seed {seed}");
    sim::run(seed, None).unwrap_or_else(|failure| panic!("{}", report(&failure)));
}

#[test]
fn every_sabotage_is_caught() {
    for sabotage in Sabotage::ALL {
        let failure = sim::first_to_catch(sabotage, 0, 100);
        let failure = failure.unwrap_or_else(|| panic!("{sabotage:?} is caught by no seed"));
        println!("{sabotage:?}: {failure}");
    }
}

#[test]
fn a_log_is_replayed_step_by_step() {
    let failure = sim::first_to_catch(Sabotage::AcknowledgeBeforeCommit, 0, 100);
    let failure = failure.expect("a sabotage that is caught");
    let log = failure.log();
    let mut replay = Replay::new(&log).expect("a log of this simulator");
    let mut last = None;
    while let Some(step) = replay.step().expect("the same run") {
        last = Some(step);
    }
    let last = last.expect("a log has steps");
    assert_eq!(last.line, log.lines().count());
    assert!(
        last.notes
            .iter()
            .any(|note| note.contains(&failure.violation.what)),
        "{last:?}"
    );
    assert!(Replay::new("{}").is_err());
    assert!(Replay::new("").is_err());
}
