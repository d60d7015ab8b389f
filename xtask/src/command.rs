//! Running other programs: with a scrubbed environment, a time limit, and their output both shown and
//! kept.

use std::{
    io::{BufRead as _, BufReader, Read},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};

/// Lines in flight between the readers of a child's output and the one who prints them.
const LINES_QUEUED_MAX: usize = 1024;

/// How long a program gets to end by itself after its time ran out.
const TERMINATION_GRACE: Duration = Duration::from_secs(15);

/// How long output is awaited after its writer ended: a grandchild may have kept the pipe open.
const DRAIN_GRACE: Duration = Duration::from_secs(2);

/// Prefixes of variables that a client, an agent or a git hook may have set.
const SCRUBBED_PREFIXES: [&str; 5] = ["EARSHOT", "CLAUDE", "CODEX", "GEMINI", "GIT_"];

/// What a finished program left.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Whether it ended with status 0 inside its time.
    pub(crate) success: bool,
    /// Its lines on both streams, in order of arrival.
    pub(crate) lines: Vec<String>,
}

/// Returns a command whose environment carries nothing of the caller's client, and keeps off the
/// network beyond this machine.
pub(crate) fn scrubbed(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if is_scrubbed(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
    command.env("EARSHOT_MESH", "off");
    command
}

/// Returns the cargo that runs this program, so that one toolchain does all of it.
pub(crate) fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Returns whether a program can be started at all.
pub(crate) fn is_present(program: &str, arguments: &[&str]) -> bool {
    scrubbed(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a program to its end or to its limit, showing its output as it comes.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<Outcome> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let pid = child.id();
    let (events, inbox) = mpsc::sync_channel(LINES_QUEUED_MAX);
    let mut streams_open = 0;
    if let Some(stdout) = child.stdout.take() {
        streams_open += 1;
        read_lines(stdout, events.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        streams_open += 1;
        read_lines(stderr, events.clone());
    }
    let (ended, watchdog_inbox) = mpsc::sync_channel(1);
    let watchdog = thread::spawn(move || watch(pid, limit, &watchdog_inbox));
    wait(child, events, ended);
    let (status, lines) = collect(&inbox, streams_open)?;
    let in_time = watchdog.join().unwrap_or(false);
    if !in_time {
        println!("ended after its limit of {} s", limit.as_secs());
    }
    Ok(Outcome {
        success: in_time && status.success(),
        lines,
    })
}

enum Event {
    Line(String),
    StreamEnded,
    Exited(std::io::Result<ExitStatus>),
}

fn read_lines(stream: impl Read + Send + 'static, events: SyncSender<Event>) {
    thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut bytes = Vec::new();
        while reader
            .read_until(b'\n', &mut bytes)
            .is_ok_and(|read| read > 0)
        {
            let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            bytes.clear();
            if events.send(Event::Line(line)).is_err() {
                return;
            }
        }
        // The reader of events may be gone already; then nobody waits for the end of this stream.
        events.send(Event::StreamEnded).ok();
    });
}

fn wait(mut child: Child, events: SyncSender<Event>, ended: SyncSender<()>) {
    thread::spawn(move || {
        let status = child.wait();
        // Both receivers outlive the child, except where the caller gave up on an error.
        ended.send(()).ok();
        events.send(Event::Exited(status)).ok();
    });
}

/// Returns whether the program ended before its limit.
fn watch(pid: u32, limit: Duration, ended: &Receiver<()>) -> bool {
    if ended.recv_timeout(limit) != Err(RecvTimeoutError::Timeout) {
        return true;
    }
    signal(pid, "-TERM");
    if ended.recv_timeout(TERMINATION_GRACE) == Err(RecvTimeoutError::Timeout) {
        signal(pid, "-KILL");
    }
    false
}

/// Sends a signal to one process.
pub(crate) fn signal(pid: u32, name: &str) {
    // A process that ended in the meantime is what was wanted.
    Command::new("kill")
        .args([name, &pid.to_string()])
        .stderr(Stdio::null())
        .status()
        .ok();
}

fn collect(inbox: &Receiver<Event>, mut streams_open: usize) -> Result<(ExitStatus, Vec<String>)> {
    let mut lines = Vec::new();
    let mut exited = None;
    while exited.is_none() || streams_open > 0 {
        let event = if exited.is_none() {
            inbox.recv().ok()
        } else {
            inbox.recv_timeout(DRAIN_GRACE).ok()
        };
        match event {
            Some(Event::Line(line)) => {
                println!("{line}");
                lines.push(line);
            }
            Some(Event::StreamEnded) => streams_open -= 1,
            Some(Event::Exited(status)) => exited = Some(status),
            None => break,
        }
    }
    let status = exited
        .context("a child was never waited for")?
        .context("cannot wait for a child")?;
    Ok((status, lines))
}

fn is_scrubbed(name: &str) -> bool {
    SCRUBBED_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = scrubbed("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_streams_and_the_status_are_kept() {
        let outcome = run(
            &mut shell("echo out; echo err >&2; exit 3"),
            Duration::from_mins(1),
        )
        .unwrap();
        let mut lines = outcome.lines;
        lines.sort();
        assert_eq!(
            (outcome.success, lines),
            (false, vec!["err".to_owned(), "out".to_owned()])
        );
    }

    #[test]
    fn a_program_past_its_limit_is_ended_and_has_failed() {
        let outcome = run(&mut shell("exec sleep 3600"), Duration::from_millis(50)).unwrap();
        assert!(!outcome.success);
    }

    #[test]
    fn variables_of_clients_and_git_are_not_passed_on() {
        for name in [
            "EARSHOT_HOME",
            "CLAUDECODE",
            "CODEX_HOME",
            "GEMINI_CLI",
            "GIT_DIR",
        ] {
            assert!(is_scrubbed(name), "{name}");
        }
        assert!(!is_scrubbed("PATH"));
    }
}
