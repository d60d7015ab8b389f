//! Mutates the corpora for some seconds each, with the stable toolchain.
//!
//! usage: earshot-fuzz [--seconds N] [--seed N] [TARGET]...

use std::{
    panic,
    process::ExitCode,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result, bail};
use earshot_fuzz::{Mutator, TARGETS, Target, corpus};

struct Options {
    seconds: u64,
    seed: u64,
    targets: Vec<Target>,
}

#[expect(clippy::print_stdout, reason = "its output is its report")]
fn main() -> Result<ExitCode> {
    let options = options()?;
    panic::set_hook(Box::new(|_| {})); // the input says more, and is printed below
    let mut failed = 0;
    for target in &options.targets {
        println!("{}: seed {}", target.name, options.seed);
        match fuzz(*target, &options)? {
            Ok(executions) => println!("{}: {executions} inputs held", target.name),
            Err(input) => {
                failed += 1;
                println!("{}: FAILED on \"{}\"", target.name, input.escape_ascii());
            }
        }
    }
    println!(
        "{} passed, {failed} failed, 0 skipped",
        options.targets.len() - failed
    );
    Ok(ExitCode::from(u8::from(failed > 0)))
}

/// Replays a target's corpus and mutates it; returns how many inputs held, or the one that did not.
fn fuzz(target: Target, options: &Options) -> Result<std::result::Result<u64, Vec<u8>>> {
    let seeds: Vec<Vec<u8>> = corpus(target.name)?
        .into_iter()
        .map(|(_, bytes)| bytes)
        .collect();
    let until = now() + Duration::from_secs(options.seconds);
    let mut mutator = Mutator::new(seeds.clone(), options.seed);
    let mut executions = 0;
    let mut seeds = seeds.into_iter();
    loop {
        let input = match seeds.next() {
            Some(seed) => seed,
            None if now() < until => mutator.input(),
            None => return Ok(Ok(executions)),
        };
        if panic::catch_unwind(|| (target.run)(&input)).is_err() {
            return Ok(Err(input));
        }
        executions += 1;
    }
}

fn options() -> Result<Options> {
    let mut options = Options {
        seconds: 10,
        seed: now_in_seconds(),
        targets: Vec::new(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || -> Result<u64> {
            let number = words
                .next()
                .with_context(|| format!("{word} needs a number"))?;
            number.parse().with_context(|| format!("{word} {number}"))
        };
        match word.as_str() {
            "--seconds" => options.seconds = number()?,
            "--seed" => options.seed = number()?,
            name => match TARGETS.iter().find(|target| target.name == name) {
                Some(target) => options.targets.push(*target),
                None => bail!(
                    "there is no target {name}; there are {}",
                    TARGETS.map(|it| it.name).join(", ")
                ),
            },
        }
    }
    if options.targets.is_empty() {
        options.targets.extend(TARGETS);
    }
    Ok(options)
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long it runs is its caller's wish"
)]
fn now() -> Instant {
    Instant::now()
}

#[expect(
    clippy::disallowed_methods,
    reason = "each run is another one; its seed is printed"
)]
fn now_in_seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
