//! Runs many simulated worlds by hand: `sim [COUNT] [FIRST_SEED]`.

use std::io::Write as _;
use std::process::ExitCode;

use earshot_testkit::sim;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let (count, first) = match (numbers.next(), numbers.next()) {
        (None, _) => (10_000, 0),
        (Some(Ok(count)), None) => (count, 0),
        (Some(Ok(count)), Some(Ok(first))) => (count, first),
        (Some(_), _) => return usage(),
    };
    match sim::run_many(first, count) {
        Ok(report) => say(&format!("{count} worlds from seed {first}: {report:?}")),
        Err(failure) => {
            let name = format!("sim-{}.jsonl", failure.seed);
            let log = std::fs::write(&name, failure.log());
            say(&format!("{failure}; log: {name} ({log:?})"));
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    say("usage: sim [COUNT] [FIRST_SEED]");
    ExitCode::from(2)
}

/// Says a line to whoever ran this by hand.
fn say(line: &str) -> ExitCode {
    match writeln!(std::io::stdout(), "{line}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
