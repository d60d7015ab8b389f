//! The scratch home of a run: its repositories, the processes started in it, and their end.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::Command;

use super::{BenchError, ScratchNode};
use crate::{
    cli::blocking,
    config::{Environment, Places},
    lease::pause,
    station::Station,
    system,
};

/// Variables that a measured process keeps; all others could change what it does.
const KEPT: [&str; 5] = ["PATH", "LANG", "TMPDIR", "USER", "LOGNAME"];

/// Seconds without use after which a scratch node ends by itself, should this process be killed.
const IDLE_SECONDS: u32 = 60;

/// Looks at a node that was just ensured, each with a probe of half a second.
const ENSURED_LOOKS_MAX: u32 = 10;

/// Times that a run looks for processes that are left, a millisecond apart.
const LOOKS_MAX: u32 = 2_000;

/// A scratch folder with a home of earshot in it.
///
/// Dropping it ends every process that was started in it and removes the folder.
#[derive(Debug)]
pub(super) struct Scratch {
    folder: TempDir,
    program: PathBuf,
}

impl Scratch {
    /// Makes the folder.
    pub(super) fn new() -> Result<Self, BenchError> {
        let folder = tempfile::Builder::new()
            .prefix("earshot-bench-")
            .tempdir()?;
        let config = folder.path().join("home/config");
        fs_err::create_dir_all(&config)?;
        fs_err::create_dir(folder.path().join("user"))?;
        let idle = format!("[idle]\nseconds = {IDLE_SECONDS}\n");
        fs_err::write(config.join("config.toml"), idle)?;
        Ok(Self {
            folder,
            program: system::executable()?,
        })
    }

    /// Makes a repository without commits, laid out as git itself does.
    pub(super) fn repository(&self, name: &str) -> Result<PathBuf, BenchError> {
        let root = self.folder.path().join(name);
        for folder in ["objects", "refs/heads"] {
            fs_err::create_dir_all(root.join(".git").join(folder))?;
        }
        fs_err::write(root.join(".git/HEAD"), "ref: refs/heads/main\n")?;
        let config = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n";
        fs_err::write(root.join(".git/config"), config)?;
        Ok(root)
    }

    /// Makes a linked worktree of a repository, laid out as git itself does.
    pub(super) fn worktree(&self, repository: &Path, name: &str) -> Result<PathBuf, BenchError> {
        let root = self.folder.path().join(name);
        let git_dir = repository.join(".git/worktrees").join(name);
        fs_err::create_dir_all(&root)?;
        fs_err::create_dir_all(&git_dir)?;
        fs_err::write(git_dir.join("HEAD"), format!("ref: refs/heads/{name}\n"))?;
        fs_err::write(git_dir.join("commondir"), "../..\n")?;
        let pointer = format!("{}\n", root.join(".git").display());
        fs_err::write(git_dir.join("gitdir"), pointer)?;
        fs_err::write(
            root.join(".git"),
            format!("gitdir: {}\n", git_dir.display()),
        )?;
        Ok(root)
    }

    /// Prepares this executable to run in a folder, with the scratch home and nothing of the user's.
    pub(super) fn earshot(&self, folder: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        let kept = std::env::vars_os()
            .filter(|(name, _)| name.to_str().is_some_and(|name| KEPT.contains(&name)));
        command
            .args(arguments)
            .env_clear()
            .envs(kept)
            .env("HOME", self.folder.path().join("user"))
            .env("EARSHOT_HOME", self.home())
            .env("EARSHOT_MESH", "off")
            .current_dir(folder)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs this executable to its end.
    pub(super) async fn run(
        &self,
        folder: &Path,
        arguments: &[&str],
    ) -> Result<Output, BenchError> {
        let mut command = self.earshot(folder, arguments);
        let output = command.stderr(Stdio::piped()).output().await?;
        if output.status.success() {
            return Ok(output);
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let said = if said.is_empty() {
            output.status.to_string()
        } else {
            said
        };
        Err(BenchError::Command {
            command: arguments.join(" "),
            said,
        })
    }

    /// Sees to it that a node serves a repository, as a client would.
    pub(super) async fn ensure(&self, repository: &Path) -> Result<ScratchNode, BenchError> {
        self.run(repository, &["serve", "ensure", "--wait", "20"])
            .await?;
        // On a busy machine a node that serves may leave one probe unanswered.
        for _ in 0..ENSURED_LOOKS_MAX {
            if let Some(node) = self.node(repository).await? {
                return Ok(node);
            }
        }
        Err(BenchError::NoNode)
    }

    /// Finds the node that serves a repository now.
    pub(super) async fn node(&self, repository: &Path) -> Result<Option<ScratchNode>, BenchError> {
        let (start, home) = (repository.to_owned(), OsString::from(self.home()));
        let looked = blocking(move || look(&start, &home)).await;
        // A thread that panicked is reported as one that found nothing.
        looked.unwrap_or(Err(BenchError::NoNode))
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Lists the processes that carry this very home in their environment: nobody else's do.
    fn processes(&self) -> Vec<Pid> {
        let mut mark = OsString::from("EARSHOT_HOME=");
        mark.push(self.home());
        let mark = mark.into_encoded_bytes();
        let entries = fs_err::read_dir("/proc").into_iter().flatten().flatten();
        entries
            .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
            .filter(|pid| {
                let environ = fs_err::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
                environ.is_ok_and(|bytes| bytes.split(|byte| *byte == 0).any(|one| one == mark))
            })
            .collect()
    }
}

fn look(start: &Path, home: &OsString) -> Result<Option<ScratchNode>, BenchError> {
    let environment = Environment::read(|name| (name == "EARSHOT_HOME").then(|| home.clone()));
    let host = system::host_id();
    let places =
        Places::new(&environment, host.clone()).map_err(crate::station::StationError::from)?;
    let station = Station::find(start, &places, &host)?;
    let look = station.look()?;
    Ok(look.serving(None).and_then(|lease| {
        Some(ScratchNode {
            pid: u32::try_from(lease.process.pid.number()).ok()?,
            started: lease.process.pid_start,
            url: format!("{}/c/{}/mcp", lease.url.as_ref()?, station.checkout.id()),
            socket: lease.socket.as_str().into(),
        })
    }))
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A bridge that is being killed may have started one more node: look until none is left.
        for _ in 0..LOOKS_MAX {
            let left = self.processes();
            if left.is_empty() {
                break;
            }
            for pid in left {
                kill_process(pid, Signal::KILL).ok(); // gone already is as good
            }
            pause(Duration::from_millis(1));
        }
    }
}

impl ScratchNode {
    /// Kills the node with SIGKILL, unless its process is no longer the one that was found.
    pub(super) fn kill(&self) -> bool {
        let same = system::process_start(self.pid) == Some(self.started);
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        same && pid.is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
    }
}
