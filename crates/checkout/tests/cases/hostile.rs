use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::scratch::{REFTABLE, Scratch};

/// Fills a repository's git directory with every setting that names a command.
fn arm(scratch: &Scratch, git_dir: &Path) {
    let script = scratch.path("evil");
    let marker = scratch.path("marker");
    fs::write(
        &script,
        format!("#!/bin/sh\necho ran >>{}\n", marker.display()),
    )
    .unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let evil = script.display();
    let config = fs::read_to_string(git_dir.join("config")).unwrap();
    let armed = format!(
        "[core]\n\tfsmonitor = {evil}\n\thooksPath = {hooks}\n\tpager = {evil}\n\teditor = {evil}\n\
         \tsshCommand = {evil}\n\taskPass = {evil}\n\tgitProxy = {evil}\n\talternateRefsCommand = {evil}\n\
         [alias]\n\trev-parse = !{evil}\n\tsymbolic-ref = !{evil}\n\tconfig = !{evil}\n\
         [filter \"f\"]\n\tclean = {evil}\n\tsmudge = {evil}\n\tprocess = {evil}\n\trequired = true\n\
         [diff]\n\texternal = {evil}\n[diff \"f\"]\n\ttextconv = {evil}\n\tcommand = {evil}\n\
         [credential]\n\thelper = {evil}\n[gpg]\n\tprogram = {evil}\n[pager]\n\tconfig = {evil}\n\
         [extensions]\n\tpartialClone = origin\n\
         [remote \"origin\"]\n\turl = ssh://x.invalid/r\n\tpromisor = true\n\tuploadpack = {evil}\n\
         [protocol]\n\tallow = always\n",
        hooks = git_dir.join("hooks").display(),
    );
    fs::write(git_dir.join("config"), config + &armed).unwrap();
    fs::create_dir_all(git_dir.join("hooks")).unwrap();
    for hook in [
        "post-checkout",
        "pre-commit",
        "post-index-change",
        "reference-transaction",
    ] {
        fs::copy(&script, git_dir.join("hooks").join(hook)).unwrap();
    }
}

fn hostile(options: &[&str]) -> Scratch {
    let scratch = Scratch::new();
    let path = scratch.repository_with("r", options);
    scratch.git("r", &["worktree", "add", "--quiet", "-b", "w", "../w"]);
    fs::write(path.join(".gitattributes"), "* filter=f diff=f\n").unwrap();
    // A bare repository among the tracked files, as a clone brings it along.
    scratch.git("r", &["init", "--quiet", "--bare", "embedded"]);
    arm(&scratch, &path.join("embedded"));
    arm(&scratch, &path.join(".git"));
    // The commit is missing, so that a partial clone would fetch it.
    for entry in fs::read_dir(path.join(".git/objects")).unwrap() {
        let folder = entry.unwrap().path();
        if folder.file_name().is_some_and(|name| name.len() == 2) {
            fs::remove_dir_all(folder).unwrap();
        }
    }
    scratch
}

#[test]
fn git_runner_flags_keep_a_hostile_repository_from_running_anything() {
    for options in [&[][..], &[REFTABLE]] {
        if !Scratch::new().git_knows(options) {
            continue;
        }
        let scratch = hostile(options);
        for start in ["r", "w", "r/.git", "r/embedded", "r/embedded/refs"] {
            scratch.answer(&scratch.path(start), &[]);
            // git is asked about the owner as well.
            let assume = ("GIT_TEST_ASSUME_DIFFERENT_OWNER", OsStr::new("1"));
            scratch.answer(&scratch.path(start), &[assume]);
        }
        assert!(!scratch.path("marker").exists(), "{options:?}");
        let answer = scratch.answer(&scratch.path("r"), &[]);
        assert!(answer.contains(r#"head Some("main")"#), "{answer}");
    }
}

#[test]
fn git_runner_flags_are_what_keeps_it_quiet() {
    let scratch = hostile(&[]);
    // The same repository under a plain git, so that the test above means something.
    let marker = scratch.path("marker");
    for arguments in [["status", "--porcelain"], ["rev-parse", "HEAD^{commit}"]] {
        // Whether it succeeds is not the question.
        scratch.command("r", &arguments).output().unwrap();
        assert!(marker.exists(), "{arguments:?}");
        fs::remove_file(&marker).unwrap();
    }
}
