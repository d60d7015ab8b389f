//! Processes that die or stop while they write. Each test starts itself again as that process.

use std::{
    env,
    io::{BufRead as _, BufReader, Lines, Read as _, Write as _},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
};

use earshot_proto::lease::Epoch;
use earshot_store::{Begun, CommandKey, CommitError, Fault, Journal, OpenError};
use rustix::process::{Pid, Signal, kill_process};

use crate::scratch::{CHECKOUT, Fate, Scratch, command, entry, fate, put, run};

/// Tells a child its journal, its epoch and its first number.
const PATH: &str = "JOURNAL_PATH";
const EPOCH: &str = "JOURNAL_EPOCH";
const FIRST: &str = "JOURNAL_FIRST";

/// Numbers of a seat that are not acknowledged yet.
const BEHIND: u64 = 5;

/// A process that does what this test does as a child. It is killed when it is dropped.
struct Writer {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Writer {
    fn start(test: &str, scratch: &Scratch, epoch: u64, first: u64) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env_clear()
            .env(PATH, scratch.path())
            .env(EPOCH, epoch.to_string())
            .env(FIRST, first.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Waits for the next number that the child says it was given leave to answer.
    fn ack(&mut self) -> Option<u64> {
        self.lines
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| line.strip_prefix("ack ").map(|n| n.parse().unwrap()))
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Kills it, and returns the last number that it said before it died.
    fn kill(&mut self) -> Option<u64> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::iter::from_fn(|| self.ack()).last()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Nothing is left to be done about one that is gone already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Returns the journal and first number that this process was started for, in a child.
fn ordered() -> Option<(Journal, u64)> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test tells itself as a child what to do"
    )]
    let ordered = |name| env::var(name).ok();
    let path = PathBuf::from(ordered(PATH)?);
    let epoch = ordered(EPOCH)?.parse().unwrap();
    let first = ordered(FIRST)?.parse().unwrap();
    let journal = Journal::open(&path, CHECKOUT, Epoch::new(epoch)).unwrap();
    Some((journal, first))
}

/// Says something on a line of its own: the test harness leaves its own line open.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{line}").unwrap();
    out.flush().unwrap();
}

fn sent(n: u64) -> CommandKey {
    CommandKey {
        acked: n.saturating_sub(BEHIND),
        ..command(1, n)
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_done_twice_when_killed() {
    if let Some((mut journal, first)) = ordered() {
        for n in first.. {
            let effect = put(entry(n, n));
            let receipt = match journal.begin(&sent(n)).unwrap() {
                Begun::Run(execution) => execution
                    .finish(&effect, n.to_string().into_bytes())
                    .unwrap(),
                Begun::Answered(receipt) => receipt,
                other => panic!("{n}: {other:?}"),
            };
            assert_eq!(receipt.into_result(), n.to_string().into_bytes());
            say(&format!("ack {n}"));
        }
    }
    let test = "crash::nothing_acknowledged_is_lost_and_nothing_is_done_twice_when_killed";
    let scratch = Scratch::new();
    let mut first = 1;
    for round in 0..20 {
        let mut writer = Writer::start(test, &scratch, 2 * round + 1, first);
        let wanted = round * 7 % 23 + 1;
        let mut acked = 0;
        for _ in 0..wanted {
            acked = writer.ack().expect("the child writes until it is killed");
        }
        acked = writer.kill().unwrap_or(acked);

        let mut journal = scratch.open(2 * round + 2);
        let last = acked + 1;
        let mut rows: Vec<u64> = (1..=acked).collect();
        for n in 1..=last {
            let answered = Fate::Answered(n.to_string().into_bytes());
            let fate = fate(&mut journal, &sent(n));
            if n == last && fate == answered {
                // It was written, and killed before it could say so.
                rows.push(n);
            } else if n == last {
                assert_eq!(fate, Fate::Run, "round {round}, {n} after {acked}");
            } else if n > last.saturating_sub(BEHIND) {
                assert_eq!(fate, answered, "round {round}, {n} of {acked}");
            } else {
                let kept = fate == answered || fate == Fate::Gone;
                assert!(kept, "round {round}, {n} of {acked}: {fate:?}");
            }
        }
        // Effect and record of a command agree.
        let peers = journal.load().unwrap().peers;
        let found: Vec<u64> = peers.iter().map(|entry| entry.record.id).collect();
        assert_eq!(found, rows, "round {round}");
        first = last;
    }
}

#[test]
fn a_process_stopped_inside_a_transaction_is_reported_and_blocks_nobody_for_long() {
    if let Some((mut journal, n)) = ordered() {
        let begun = journal.begin(&command(1, n)).unwrap();
        assert!(matches!(begun, Begun::Run(_)));
        say("ack 1");
        // Holds the transaction until it is killed.
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    }
    let test =
        "crash::a_process_stopped_inside_a_transaction_is_reported_and_blocks_nobody_for_long";
    let scratch = Scratch::new();
    let mut own = scratch.open(1);
    own.write(&put(entry(1, 1))).unwrap();
    let mut writer = Writer::start(test, &scratch, 1, 1);
    assert_eq!(writer.ack(), Some(1));
    writer.signal(Signal::STOP);

    let busy = own.write(&put(entry(2, 1))).unwrap_err();
    assert!(
        matches!(&busy, CommitError::Fault(Fault::Busy { path }) if *path == scratch.path()),
        "{busy}"
    );
    let busy = scratch.try_open(2).unwrap_err();
    assert!(
        matches!(busy, OpenError::Fault(Fault::Busy { .. })),
        "{busy}"
    );
    // Reading needs no lock.
    let fence = Journal::fence_of(&scratch.path()).unwrap().unwrap();
    assert_eq!(fence.epoch, Epoch::new(1));
    assert_eq!(own.load().unwrap().peers, [entry(1, 1)]);

    assert_eq!(writer.kill(), None);
    own.write(&put(entry(2, 1))).unwrap();
    let mut next = scratch.open(2);
    assert_eq!(next.load().unwrap().peers, [entry(1, 1), entry(2, 1)]);
    run(&mut next, &command(1, 1), &put(entry(3, 1)), b"r").into_result();
}

#[test]
fn the_fence_of_a_killed_node_is_read_from_its_log() {
    if let Some((mut journal, n)) = ordered() {
        journal.write(&put(entry(n, n))).unwrap();
        say("ack 1");
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    }
    let test = "crash::the_fence_of_a_killed_node_is_read_from_its_log";
    let scratch = Scratch::new();
    let mut writer = Writer::start(test, &scratch, 77, 1);
    assert_eq!(writer.ack(), Some(1));
    writer.kill();

    let fence = Journal::fence_of(&scratch.path()).unwrap().unwrap();

    assert_eq!((fence.epoch, fence.drained), (Epoch::new(77), false));
}
