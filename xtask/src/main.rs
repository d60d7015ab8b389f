//! The workspace's own chores.
//!
//! - `cargo xtask tidy` holds what no compiler checks: walls between crates, file sizes, links of the
//!   documentation, decisions, unfinished code, generated files.
//! - `cargo xtask test [GATE…]` runs every gate of the project, fastest first, and closes with one
//!   line that counts what passed, failed and was skipped.

#![expect(
    clippy::print_stdout,
    reason = "the chores report to whoever runs them"
)]

mod bench;
mod command;
mod gates;
mod graph;
mod leftovers;
mod tally;
mod tidy;
mod tools;
mod tree;

use std::process::ExitCode;

use anyhow::Result;

const USAGE: &str = "usage: cargo xtask tidy | cargo xtask test [GATE…]";

fn main() -> ExitCode {
    match dispatch(std::env::args().skip(1).collect()) {
        Ok(code) => code,
        Err(error) => {
            println!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: Vec<String>) -> Result<ExitCode> {
    let mut words = arguments.into_iter();
    match words.next().as_deref() {
        Some("tidy") => {
            let bench = bench::Bench::open()?;
            let mut total = tidy::run(&bench)?;
            total += gates::generated(&bench)?;
            println!("{total}");
            Ok(exit_code(&total))
        }
        Some("test") => {
            let total = gates::run(&words.collect::<Vec<_>>())?;
            println!("{total}");
            Ok(exit_code(&total))
        }
        _ => {
            println!("{USAGE}");
            Ok(ExitCode::from(2))
        }
    }
}

fn exit_code(total: &tally::Tally) -> ExitCode {
    if total.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
