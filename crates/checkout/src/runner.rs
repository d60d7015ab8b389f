//! The one way that earshot runs git.
//!
//! A repository may be hostile: its configuration, attributes and hooks can name commands. So git
//! runs with a cleaned environment, with everything switched off that runs a command on the way to
//! an answer, and only for [`Plumbing`] that never passes content through filters, text
//! conversions or external diffs, whose names a switch cannot foresee.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::clock::Deadline;
use crate::environment;

/// Time for one git process: a thousand times what its questions take on a quiet machine.
const RUN_MAX: Duration = Duration::from_secs(5);

/// Most that one git process may print on each of its two outputs.
const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// Most of git's complaint that an error carries.
const MESSAGE_BYTES_MAX: usize = 1_000;

/// Options before every subcommand. They are the last word: `-c` beats every configuration file.
const OPTIONS: [&str; 2] = ["--no-pager", "--no-optional-locks"];

const SETTINGS: [&str; 5] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.untrackedCache=false",
    "core.sshCommand=false",
    "protocol.allow=never",
];

/// A git subcommand that earshot may run: it reads, and never looks at the content of a work tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plumbing {
    /// `git check-ignore`, to ask what git passes over.
    CheckIgnore,
    /// `git config`, to read the settings that hold in a repository.
    Config,
    /// `git rev-list`, to walk commits.
    RevList,
    /// `git rev-parse`, to name objects and directories.
    RevParse,
    /// `git symbolic-ref`, to read where a symbolic reference points.
    SymbolicRef,
}

impl Plumbing {
    const fn name(self) -> &'static str {
        match self {
            Self::CheckIgnore => "check-ignore",
            Self::Config => "config",
            Self::RevList => "rev-list",
            Self::RevParse => "rev-parse",
            Self::SymbolicRef => "symbolic-ref",
        }
    }
}

/// Why git gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// No absolute folder of `PATH` holds a git.
    #[error("git is not installed")]
    Absent,
    /// The process could not be started or its output not be read.
    #[error("git could not be run")]
    Io(#[from] io::Error),
    /// It did not end in time and was ended.
    #[error("git gave no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// It printed more than an answer can be, and was ended.
    #[error("git printed more than {0} bytes")]
    TooLong(usize),
    /// It ended with an error, which is an answer to some questions.
    #[error("git failed: {message}")]
    Failed {
        /// The exit code, `None` where a signal ended it.
        code: Option<i32>,
        /// What git said about it, without its `fatal: `; may be empty.
        message: String,
    },
}

/// A git that runs nothing of what a repository asks for.
pub struct GitRunner {
    program: PathBuf,
    run_max: Duration,
    bare_repositories: &'static str,
}

impl GitRunner {
    /// Finds git.
    ///
    /// # Errors
    ///
    /// [`GitError::Absent`].
    pub fn new() -> Result<Self, GitError> {
        let program = environment::git_program().ok_or(GitError::Absent)?;
        Ok(Self {
            program,
            run_max: RUN_MAX,
            bare_repositories: "safe.bareRepository=explicit",
        })
    }

    /// Lets git look into a bare repository it was not explicitly pointed to, for the question
    /// whether it trusts that one.
    pub(crate) fn looking_into_bare_repositories(mut self) -> Self {
        self.bare_repositories = "safe.bareRepository=all";
        self
    }

    /// Runs one subcommand in a folder and returns what it printed.
    ///
    /// # Errors
    ///
    /// [`GitError`]; an exit code other than 0 is [`GitError::Failed`].
    pub fn run(
        &self,
        folder: &Path,
        command: Plumbing,
        arguments: &[&str],
    ) -> Result<Vec<u8>, GitError> {
        let mut git = Command::new(&self.program);
        git.args(OPTIONS);
        for setting in SETTINGS.iter().chain([&self.bare_repositories]) {
            git.args(["-c", setting]);
        }
        git.arg("-C")
            .arg(folder)
            .arg(command.name())
            .args(arguments);
        git.env_clear().envs(environment::for_git());
        // A group of its own, so that whatever git starts ends with it.
        git.stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = git.spawn()?;
        match outputs(&mut child, Deadline::after(self.run_max)) {
            Ok([stdout, stderr]) => {
                let status = child.wait()?;
                if status.success() {
                    return Ok(stdout);
                }
                Err(GitError::Failed {
                    code: status.code(),
                    message: message(&stderr),
                })
            }
            Err(stop) => {
                end(&mut child);
                Err(match stop {
                    Stop::Io(error) => GitError::Io(error),
                    Stop::TimedOut => GitError::TimedOut(self.run_max),
                    Stop::TooLong => GitError::TooLong(OUTPUT_BYTES_MAX),
                })
            }
        }
    }
}

impl fmt::Debug for GitRunner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "GitRunner({})", self.program.display())
    }
}

/// Why reading a process's outputs was given up.
enum Stop {
    Io(io::Error),
    TimedOut,
    TooLong,
}

/// One of a process's outputs, until it ends.
struct Pipe {
    file: Option<File>,
    content: Vec<u8>,
}

impl Pipe {
    fn new(end: Option<OwnedFd>) -> Self {
        Self {
            file: end.map(File::from),
            content: Vec::new(),
        }
    }

    /// Takes what is there; called when a read would not block.
    fn read(&mut self) -> Result<(), Stop> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let mut chunk = [0; 16 << 10];
        match file.read(&mut chunk) {
            Ok(0) => self.file = None,
            Ok(length) if self.content.len() + length > OUTPUT_BYTES_MAX => {
                return Err(Stop::TooLong);
            }
            Ok(length) => self.content.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Stop::Io(error)),
        }
        Ok(())
    }
}

/// Reads both outputs to their end, without a thread.
fn outputs(child: &mut Child, deadline: Deadline) -> Result<[Vec<u8>; 2], Stop> {
    let mut pipes = [
        Pipe::new(child.stdout.take().map(OwnedFd::from)),
        Pipe::new(child.stderr.take().map(OwnedFd::from)),
    ];
    loop {
        let open: Vec<_> = (0..pipes.len())
            .filter(|index| pipes[*index].file.is_some())
            .collect();
        if open.is_empty() {
            return Ok(pipes.map(|pipe| pipe.content));
        }
        let left = deadline.remaining().ok_or(Stop::TimedOut)?;
        // A wait longer than fits is none: `run_max` is seconds.
        let timeout = Timespec::try_from(left).ok();
        let mut watched: Vec<_> = open
            .iter()
            .filter_map(|index| pipes[*index].file.as_ref())
            .map(|file| PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN))
            .collect();
        match rustix::event::poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Stop::Io(error.into())),
        }
        let ready: Vec<_> = watched
            .iter()
            .map(|end| !end.revents().is_empty())
            .collect();
        for (index, _) in open.into_iter().zip(ready).filter(|(_, ready)| *ready) {
            pipes[index].read()?;
        }
    }
}

/// Ends the process and whatever it started.
fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    {
        // It may have ended in the meantime; it has not been waited for, so the number is its own.
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
    }
    // Nothing is left to do about a process that cannot be waited for.
    child.wait().ok();
}

/// The first line that says what went wrong.
fn message(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(&stderr[..stderr.len().min(MESSAGE_BYTES_MAX)]);
    let line = text
        .lines()
        .find(|line| line.starts_with("fatal: ") || line.starts_with("error: "))
        .or_else(|| text.lines().next())
        .unwrap_or_default();
    line.trim_start_matches("fatal: ")
        .trim_start_matches("error: ")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// A program in git's place.
    fn in_place_of_git(folder: &Path, script: &str, run_max: Duration) -> GitRunner {
        let program = folder.join("git");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        GitRunner {
            program,
            run_max,
            bare_repositories: "safe.bareRepository=explicit",
        }
    }

    #[test]
    fn git_runner_flags_are_given_before_the_subcommand() {
        let folder = tempfile::tempdir().unwrap();
        let script = "for a; do echo \"$a\"; done; env | grep ^GIT_ | grep -v ^GIT_CONFIG_ | sort";
        let runner = in_place_of_git(folder.path(), script, RUN_MAX);
        let printed = runner
            .run(folder.path(), Plumbing::RevParse, &["HEAD"])
            .unwrap();
        let text = String::from_utf8(printed).unwrap();
        let (options, rest) = text.split_once("rev-parse\nHEAD\n").unwrap();
        for option in [
            "--no-pager",
            "--no-optional-locks",
            "safe.bareRepository=explicit",
            "core.fsmonitor=false",
            "core.hooksPath=/dev/null",
            "core.untrackedCache=false",
        ] {
            assert!(
                options.lines().any(|line| line == option),
                "{option} missing in {options}"
            );
        }
        assert_eq!(
            rest.lines().collect::<Vec<_>>(),
            [
                "GIT_ALLOW_PROTOCOL=none",
                "GIT_NO_LAZY_FETCH=1",
                "GIT_OPTIONAL_LOCKS=0",
                "GIT_PAGER=cat",
                "GIT_TERMINAL_PROMPT=0"
            ]
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn git_runner_ends_a_process_that_gives_no_answer_and_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let script = "sleep 1000 & echo $! > \"$0.child\"; wait";
        let runner = in_place_of_git(folder.path(), script, Duration::from_secs(2));
        let answer = runner.run(folder.path(), Plumbing::RevParse, &[]);
        assert!(matches!(answer, Err(GitError::TimedOut(_))), "{answer:?}");
        let child = std::fs::read_to_string(folder.path().join("git.child")).unwrap();
        let pid = rustix::process::Pid::from_raw(child.trim().parse().unwrap()).unwrap();
        let flags = rustix::process::PidfdFlags::empty();
        // The signal was sent; a process that is not gone yet becomes readable when it is.
        if let Ok(process) = rustix::process::pidfd_open(pid, flags) {
            let mut watched = [PollFd::new(&process, PollFlags::IN)];
            let limit = Timespec {
                tv_sec: 30,
                tv_nsec: 0,
            };
            assert_eq!(rustix::event::poll(&mut watched, Some(&limit)), Ok(1));
        }
    }

    #[test]
    fn git_runner_bounds_what_is_printed() {
        let folder = tempfile::tempdir().unwrap();
        let runner = in_place_of_git(folder.path(), "exec cat /dev/zero", RUN_MAX);
        let answer = runner.run(folder.path(), Plumbing::RevParse, &[]);
        assert!(matches!(answer, Err(GitError::TooLong(_))), "{answer:?}");
    }

    #[test]
    fn git_runner_reports_a_failure_in_gits_words() {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo warning: w >&2; echo fatal: it is so >&2; exit 128";
        let runner = in_place_of_git(folder.path(), script, RUN_MAX);
        match runner.run(folder.path(), Plumbing::Config, &[]) {
            Err(GitError::Failed {
                code: Some(128),
                message,
            }) => assert_eq!(message, "it is so"),
            other => panic!("{other:?}"),
        }
    }
}
