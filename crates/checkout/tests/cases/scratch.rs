//! A folder of repositories that lives as long as a test, and answers of the crate in another
//! process, under an environment of the test's choice.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use earshot_checkout::{Checkout, Worktree, head, ignore_case, resolve, worktrees};
use tempfile::TempDir;

/// The option that git 2.45 brought.
pub(crate) const REFTABLE: &str = "--ref-format=reftable";

const START: &str = "CHECKOUT_TEST_START";

/// Variables that would reach another repository, user or node.
const SCRUBBED: [&str; 5] = ["GIT_", "EARSHOT", "CLAUDE", "CODEX", "GEMINI"];

pub(crate) struct Scratch {
    _folder: TempDir,
    pub(crate) root: PathBuf,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        let settings = "[user]\n\tname = t\n\temail = t@t.invalid\n[init]\n\tdefaultBranch = main\n\
                        [advice]\n\tdetachedHead = false\n[protocol \"file\"]\n\tallow = always\n";
        std::fs::write(root.join("gc"), settings).unwrap();
        Self {
            _folder: folder,
            root,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns a git that is about to run in a folder of the scratch, with its settings only.
    pub(crate) fn command(&self, folder: &str, arguments: &[&str]) -> Command {
        let mut git = Command::new("git");
        git.arg("-C").arg(self.path(folder)).args(arguments);
        git.env_clear()
            .envs(self.environment())
            .stdin(Stdio::null());
        git
    }

    /// Runs git in a folder of the scratch and returns what it printed, trimmed.
    pub(crate) fn git(&self, folder: &str, arguments: &[&str]) -> String {
        let output = self.command(folder, arguments).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "git {arguments:?} in {folder}: {complaint}"
        );
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Returns whether git can make a repository with these options; says so where it cannot.
    pub(crate) fn git_knows(&self, options: &[&str]) -> bool {
        if !options.contains(&REFTABLE) {
            return true;
        }
        let version = self.git(".", &["version"]);
        let mut numbers = version
            .split(|c: char| !c.is_ascii_digit())
            .filter(|part| !part.is_empty());
        let mut number = || {
            numbers
                .next()
                .map_or(0, |part| part.parse::<u32>().unwrap())
        };
        let known = (number(), number()) >= (2, 45);
        if !known {
            eprintln!("SKIPPED: {version} is too old for {options:?}");
        }
        known
    }

    /// Makes a repository with one commit.
    pub(crate) fn repository(&self, name: &str) -> PathBuf {
        self.repository_with(name, &[])
    }

    pub(crate) fn repository_with(&self, name: &str, options: &[&str]) -> PathBuf {
        let arguments = [&["init", "--quiet"], options, &[name]].concat();
        self.git(".", &arguments);
        std::fs::write(self.path(name).join("README"), name).unwrap();
        self.git(name, &["add", "README"]);
        self.git(name, &["commit", "--quiet", "-m", "start"]);
        self.path(name)
    }

    /// Returns what the crate says about a path in a process with these variables set.
    pub(crate) fn answer(&self, start: &Path, variables: &[(&str, &OsStr)]) -> String {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([
            "--exact",
            "scratch::answers_for_another_process",
            "--nocapture",
        ]);
        child.env_clear().envs(self.environment()).env(START, start);
        child.envs(variables.iter().copied());
        let output = child.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        let (_, answer) = text.split_once("<<").unwrap();
        answer.split_once(">>").unwrap().0.to_owned()
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut variables: Vec<_> = std::env::vars_os()
            .filter(|(name, _)| {
                let name = name.to_string_lossy();
                !SCRUBBED.iter().any(|prefix| name.starts_with(prefix))
            })
            .collect();
        variables.extend(self.settings());
        variables
    }

    fn settings(&self) -> [(OsString, OsString); 2] {
        [
            ("GIT_CONFIG_GLOBAL".into(), self.path("gc").into()),
            ("GIT_CONFIG_NOSYSTEM".into(), "1".into()),
        ]
    }
}

/// Returns one line per checkout: primary or linked, root below the scratch, state.
pub(crate) fn rows(scratch: &Scratch, checkout: &Checkout) -> Vec<String> {
    worktrees(checkout)
        .iter()
        .map(|worktree| row(scratch, worktree))
        .collect()
}

fn row(scratch: &Scratch, worktree: &Worktree) -> String {
    let kind = if worktree.primary {
        "primary"
    } else {
        "linked"
    };
    let root = worktree
        .root
        .strip_prefix(&scratch.root)
        .unwrap_or(&worktree.root);
    format!("{kind} {} {:?}", root.display(), worktree.state)
}

/// A mount that ends with the test.
pub(crate) struct Mount(pub(crate) PathBuf);

impl Mount {
    /// Makes a folder another path of a tree; says so where it cannot.
    pub(crate) fn bind(from: &Path, to: PathBuf) -> Option<Self> {
        Self::with(&["--bind".as_ref(), from.as_os_str()], to)
    }

    /// Makes a folder an overlay of a tree, as a container's root is one of its image; says so
    /// where it cannot.
    pub(crate) fn overlay(lower: &Path, scratch: &Scratch, to: PathBuf) -> Option<Self> {
        let folders = [scratch.path("upper"), scratch.path("work")];
        for folder in &folders {
            std::fs::create_dir_all(folder).unwrap();
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            folders[0].display(),
            folders[1].display()
        );
        let arguments = ["-t", "overlay", "-o", &options, "overlay"];
        Self::with(&arguments.map(OsStr::new), to)
    }

    fn with(arguments: &[&OsStr], to: PathBuf) -> Option<Self> {
        std::fs::create_dir_all(&to).unwrap();
        let mounted = Command::new("mount").args(arguments).arg(&to).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(to));
        }
        eprintln!("SKIPPED: mount {arguments:?} cannot be made here");
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        Command::new("umount").arg(&self.0).output().unwrap();
    }
}

/// Everything the crate says about one path.
fn everything(start: &Path) -> String {
    let mut text = String::new();
    match resolve(start) {
        Ok(checkout) => {
            let head = head(&checkout);
            writeln!(text, "root {}", checkout.root.display()).unwrap();
            writeln!(text, "kind {:?}", checkout.kind).unwrap();
            writeln!(text, "id {} {}", checkout.id(), checkout.repository_id()).unwrap();
            writeln!(text, "head {:?} {:?}", head.branch, head.commit).unwrap();
            writeln!(text, "folds case {}", ignore_case(&checkout)).unwrap();
            for worktree in worktrees(&checkout) {
                writeln!(
                    text,
                    "worktree {} {:?}",
                    worktree.root.display(),
                    worktree.branch
                )
                .unwrap();
            }
        }
        Err(error) => {
            writeln!(text, "error {error}").unwrap();
            writeln!(text, "hint {}", error.hint().unwrap_or_default()).unwrap();
        }
    }
    text
}

/// Speaks only when [`Scratch::answer`] started it.
#[test]
fn answers_for_another_process() {
    if let Some(start) = std::env::var_os(START) {
        println!("<<{}>>", everything(Path::new(&start)));
    }
}
