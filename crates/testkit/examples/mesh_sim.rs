//! Runs simulated worlds of linked nodes by hand: `mesh_sim [NODES] [EVENTS] [COUNT] [FIRST_SEED]`.

use std::io::Write as _;
use std::process::ExitCode;

use earshot_testkit::mesh_sim::{Plan, run};

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let mut next = |default| match numbers.next() {
        None => Some(default),
        Some(number) => number.ok(),
    };
    let (Some(nodes), Some(events), Some(count), Some(first)) =
        (next(10), next(300), next(100), next(0))
    else {
        return say("usage: mesh_sim [NODES] [EVENTS] [COUNT] [FIRST_SEED]", 2);
    };
    let plan = Plan {
        nodes: usize::try_from(nodes).unwrap_or(10),
        events,
        faults: 200,
    };
    for seed in first..first + count {
        match run(seed, plan) {
            Ok(report) if count == 1 => return say(&format!("{nodes} nodes: {report:?}"), 0),
            Ok(_) => {}
            Err(broken) => return say(&broken, 1),
        }
    }
    say(
        &format!("{count} worlds of {nodes} nodes: every invariant held"),
        0,
    )
}

/// Says a line to whoever ran this by hand.
fn say(line: &str, code: u8) -> ExitCode {
    match writeln!(std::io::stdout(), "{line}") {
        Ok(()) => ExitCode::from(code),
        Err(_) => ExitCode::FAILURE,
    }
}
