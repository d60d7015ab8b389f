//! What only root can set up: mounts and other users.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The user that stands for somebody else; it owns nothing.
pub const SOMEBODY_ELSE: u32 = 65_534;

/// Says whether this process is root; a test that needs it and is not says so, and passes over.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn skip_unless_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED, not passed: {test} needs root");
    }
    !root
}

/// Says whether a program is missing; a test that needs it says so, and passes over.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn skip_without(program: &str, test: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        eprintln!("SKIPPED, not passed: {test} needs {program}");
    }
    !there
}

/// A mount that goes when this value is dropped, whoever still uses it.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
}

impl Mount {
    /// Makes a folder and mounts a file system of this size there.
    ///
    /// # Panics
    /// When that fails.
    pub fn small_disk(path: PathBuf, bytes: u64) -> Self {
        fs_err::create_dir_all(&path).expect("a folder");
        let options = format!("size={bytes},mode=0700");
        let target = path.to_string_lossy().into_owned();
        run("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", &target]);
        Self { path }
    }

    /// Makes a folder and shows another one there.
    ///
    /// # Panics
    /// When that fails.
    pub fn bind(of: &Path, path: PathBuf) -> Self {
        fs_err::create_dir_all(&path).expect("a folder");
        let (of, target) = (of.to_string_lossy(), path.to_string_lossy());
        run("mount", &["--bind", &of, &target]);
        Self { path }
    }

    /// Makes a folder unwritable for everybody, root too.
    ///
    /// # Panics
    /// When that fails.
    pub fn read_only(path: PathBuf) -> Self {
        let target = path.to_string_lossy().into_owned();
        run("mount", &["--bind", &target, &target]);
        let mount = Self { path };
        run("mount", &["-o", "remount,ro,bind", &target]);
        mount
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: a process that is still there must not keep it.
        let undone = Command::new("umount").arg("-l").arg(&self.path).status();
        undone.ok(); // nothing to be done about it in a drop
    }
}

/// Runs a program of the system to its end.
fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
}
