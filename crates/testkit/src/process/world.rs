//! A scratch home, scratch repositories, and the binary run in them.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

/// Variables that a test never hands on: earshot reads them, and so does git.
const SCRUBBED: [&str; 6] = [
    "EARSHOT",
    "CLAUDE",
    "CODEX",
    "GEMINI",
    "GIT_",
    "XDG_RUNTIME_DIR",
];

/// A scratch world: its own `EARSHOT_HOME`, git configuration and repositories, the mesh off.
///
/// Dropping it ends every process that runs in it and removes it.
#[derive(Debug)]
pub struct World {
    folder: TempDir,
}

/// What a finished command left.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Ran {
    /// Returns the standard output as JSON.
    ///
    /// # Panics
    /// When it is none: the test has failed.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }
}

impl World {
    /// Makes a world.
    ///
    /// # Panics
    /// When the scratch folder cannot be made, or the binary is not built.
    pub fn new() -> Self {
        let binary = Self::binary();
        assert!(
            binary.exists(),
            "{} is not built: cargo build -p earshot",
            binary.display()
        );
        let folder = tempfile::Builder::new()
            .prefix("earshot-")
            .tempdir()
            .expect("a scratch folder");
        let config = "[user]\nname = t\nemail = t@t.invalid\n[init]\ndefaultBranch = main\n";
        fs_err::write(folder.path().join("gitconfig"), config).expect("a git configuration");
        fs_err::create_dir(folder.path().join("userhome")).expect("a user's home");
        Self { folder }
    }

    /// Returns the binary under test: `EARSHOT_BIN`, else the one of this build.
    ///
    /// # Panics
    /// When the test itself was started from nowhere.
    pub fn binary() -> PathBuf {
        std::env::var_os("EARSHOT_BIN").map_or_else(
            || {
                let test = std::env::current_exe().expect("a test runs from a file");
                let deps = test.parent().expect("in a folder");
                deps.parent().expect("of a profile").join("earshot")
            },
            PathBuf::from,
        )
    }

    /// Returns the scratch folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the world's `EARSHOT_HOME`.
    pub fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    /// Makes a repository with one commit.
    ///
    /// # Panics
    /// When that fails.
    pub fn repo(&self, name: &str) -> PathBuf {
        let root = self.path().join(name);
        fs_err::create_dir_all(root.join("src")).expect("a folder");
        fs_err::write(root.join("src/main.rs"), "fn main() {}\n").expect("a file");
        self.git(&root, &["init", "-q"]);
        self.git(&root, &["add", "."]);
        self.git(&root, &["commit", "-qm", "first"]);
        root
    }

    /// Runs git.
    ///
    /// # Panics
    /// When it fails.
    pub fn git(&self, folder: &Path, arguments: &[&str]) -> String {
        let output = self
            .command("git", folder)
            .args(arguments)
            .output()
            .expect("git runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "git {arguments:?}: {output:?}");
        text
    }

    /// Prepares a program to run in a folder with this world's environment and no other.
    pub fn command(&self, program: impl Into<OsString>, folder: &Path) -> Command {
        let mut command = Command::new(program.into());
        let kept = std::env::vars_os().filter(|(name, _)| {
            let name = name.to_string_lossy();
            !SCRUBBED.iter().any(|prefix| name.starts_with(prefix))
        });
        command
            .env_clear()
            .envs(kept)
            .env("EARSHOT_HOME", self.home())
            .env("EARSHOT_MESH", "off")
            .env("HOME", self.path().join("userhome"))
            .env("GIT_CONFIG_GLOBAL", self.path().join("gitconfig"))
            .current_dir(folder)
            .stdin(Stdio::null());
        command
    }

    /// Prepares the binary to run in a folder.
    pub fn earshot(&self, folder: &Path) -> Command {
        self.command(Self::binary(), folder)
    }

    /// Runs the binary to its end.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn run(&self, folder: &Path, arguments: &[&str]) -> Ran {
        let output = self
            .earshot(folder)
            .args(arguments)
            .output()
            .expect("the binary runs");
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs the binary with `--format json`, and returns what it printed.
    ///
    /// # Panics
    /// When it fails.
    pub fn json(&self, folder: &Path, arguments: &[&str]) -> Value {
        let ran = self.run(folder, &[arguments, &["--format", "json"]].concat());
        assert_eq!(ran.code, Some(0), "earshot {arguments:?}: {ran:?}");
        ran.json()
    }

    /// Sees to it that the node of a checkout runs, and returns its url.
    ///
    /// # Panics
    /// When `earshot up` fails.
    pub fn up(&self, checkout: &Path) -> String {
        let up = self.json(checkout, &["up"]);
        up["url"].as_str().expect("up names the url").to_owned()
    }

    /// Returns the state folder of the node of a checkout, which need not exist.
    ///
    /// # Panics
    /// When it cannot be found out.
    pub fn node_folder(&self, checkout: &Path) -> PathBuf {
        let lease = self.json(checkout, &["serve", "status"])["lease_path"].clone();
        let lease = PathBuf::from(lease.as_str().expect("a path"));
        lease.parent().expect("it lies in a folder").to_owned()
    }

    /// Returns the Unix socket that the lease of a checkout names: beside it, or elsewhere where that
    /// path would be too long.
    ///
    /// # Panics
    /// When there is no lease.
    pub fn socket(&self, checkout: &Path) -> PathBuf {
        let lease = fs_err::read(self.node_folder(checkout).join("lease.json"));
        let lease: Value = serde_json::from_slice(&lease.expect("a lease")).expect("JSON");
        lease["socket"].as_str().expect("a path").into()
    }

    /// Returns the process that serves a checkout, if one does.
    pub fn serving(&self, checkout: &Path) -> Option<u32> {
        let status = self.run(checkout, &["serve", "status", "--format", "json"]);
        let status: Value = serde_json::from_str(&status.stdout).ok()?;
        let ready = status["standing"] == "ready";
        ready.then(|| status["pid"].as_u64()?.try_into().ok())?
    }

    /// Lists the processes of this world that serve.
    pub fn nodes(&self) -> Vec<u32> {
        serving_processes(&self.mark())
    }

    /// Lists all processes of this world: nodes, bridges, and what else runs in its environment.
    pub fn processes(&self) -> Vec<u32> {
        let mark = self.mark();
        processes(|pid| holds(pid, "environ", &mark))
    }

    /// What the environment of this world's processes holds, and of no other's.
    fn mark(&self) -> String {
        format!("EARSHOT_HOME={}", self.home().display())
    }
}

/// Lists the processes that serve with this in their environment.
pub fn serving_processes(mark: &str) -> Vec<u32> {
    processes(|pid| holds(pid, "cmdline", "serve") && holds(pid, "environ", mark))
}

fn processes(wanted: impl Fn(u32) -> bool) -> Vec<u32> {
    let entries = fs_err::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| wanted(*pid))
        .collect()
}

/// Says whether one of the words in a file of a process is this.
fn holds(pid: u32, file: &str, word: &str) -> bool {
    let bytes = fs_err::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    bytes
        .split(|byte| *byte == 0)
        .any(|it| it == word.as_bytes())
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for pid in self.processes() {
            let pid = i32::try_from(pid)
                .ok()
                .and_then(rustix::process::Pid::from_raw);
            if let Some(pid) = pid {
                // Gone already is as good.
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
            }
        }
    }
}
