//! Linked nodes in simulation: fixed seeds, and one random one.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use earshot_testkit::mesh_sim::{Plan, run};

const SMALL: Plan = Plan {
    nodes: 6,
    events: 300,
    faults: 200,
};

#[test]
fn forty_worlds_of_six_nodes_hold_every_invariant() {
    // 89 is the one that showed two links between the same nodes closing each other.
    for seed in (0..40).chain([89]) {
        run(seed, SMALL).unwrap_or_else(|broken| panic!("{broken}"));
    }
}

#[test]
fn a_random_world_holds_every_invariant() {
    let seed = RandomState::new().build_hasher().finish();
    println!("seed {seed}");
    run(seed, SMALL).unwrap_or_else(|broken| panic!("{broken}"));
}

#[test]
fn forty_nodes_come_to_one_board() {
    let plan = Plan {
        nodes: 40,
        events: 100,
        faults: 100,
    };
    let report = run(1, plan).unwrap_or_else(|broken| panic!("{broken}"));
    println!("{report:?}");
    // Each pair says hello, what it holds, and everything, each way; dialled twice, a little more.
    assert!(report.joining_messages < 40 * 39 * 4, "{report:?}");
}
