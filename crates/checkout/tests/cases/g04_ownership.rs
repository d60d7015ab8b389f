use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use crate::scratch::Scratch;

const NOBODY: u32 = 65_534;

/// A repository inside another one, and whether its owner could be changed.
fn somebody_elses(kind: &[&str]) -> Option<Scratch> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can give a repository to another user");
        return None;
    }
    let scratch = Scratch::new();
    scratch.repository("outer");
    if kind.contains(&"--bare") {
        scratch.git("outer", &["init", "--quiet", "--bare", "o"]);
    } else {
        scratch.repository_with("outer/o", kind);
    }
    give_away(&scratch.path("outer/o"));
    Some(scratch)
}

fn give_away(path: &Path) {
    std::os::unix::fs::lchown(path, Some(NOBODY), None).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give_away(&entry.unwrap().path());
        }
    }
}

fn is_refused_with_the_remedy(answer: &str, path: &Path) {
    assert!(
        answer.starts_with("error git refuses the repository at"),
        "{answer}"
    );
    assert!(answer.contains("dubious ownership"), "{answer}");
    let remedy = format!(
        "git config --global --add safe.directory {}",
        path.display()
    );
    assert!(answer.contains(&remedy), "{answer}");
    assert!(
        !answer.to_lowercase().contains("not a git repository"),
        "{answer}"
    );
}

#[test]
fn g04_a_repository_of_another_owner_is_refused_with_gits_reason_and_remedy() {
    let Some(scratch) = somebody_elses(&[]) else {
        return;
    };
    let settings = fs::read(scratch.path("gc")).unwrap();
    fs::create_dir(scratch.path("outer/o/src")).unwrap();
    for start in ["outer/o", "outer/o/src", "outer/o/README"] {
        let answer = scratch.answer(&scratch.path(start), &[]);
        is_refused_with_the_remedy(&answer, &scratch.path("outer/o"));
    }
    assert_eq!(fs::read(scratch.path("gc")).unwrap(), settings);
}

#[test]
fn g04_without_a_git_to_ask_another_owners_repository_is_refused_and_the_own_one_served() {
    let Some(scratch) = somebody_elses(&[]) else {
        return;
    };
    // A folder without programs: no git is found.
    let nowhere = [("PATH", scratch.root.as_os_str())];
    let answer = scratch.answer(&scratch.path("outer/o"), &nowhere);
    assert!(
        answer.starts_with("error git refuses the repository at"),
        "{answer}"
    );
    assert!(answer.contains("no git is there"), "{answer}");
    let own = scratch.answer(&scratch.path("outer"), &nowhere);
    assert!(!own.starts_with("error"), "{own}");
}

#[test]
fn g04_a_bare_repository_of_another_owner_is_refused() {
    let Some(scratch) = somebody_elses(&["--bare"]) else {
        return;
    };
    let answer = scratch.answer(&scratch.path("outer/o"), &[]);
    is_refused_with_the_remedy(&answer, &scratch.path("outer/o"));
}

#[test]
fn g04_the_users_own_safe_directories_are_respected() {
    let Some(scratch) = somebody_elses(&[]) else {
        return;
    };
    let path = scratch.path("outer/o");
    scratch.git(
        ".",
        &[
            "config",
            "--global",
            "--add",
            "safe.directory",
            path.to_str().unwrap(),
        ],
    );
    let answer = scratch.answer(&path, &[]);
    assert!(
        answer.starts_with(&format!("root {}\nkind Primary", path.display())),
        "{answer}"
    );
    assert!(answer.contains(r#"head Some("main")"#), "{answer}");
}

#[test]
fn g04_no_safe_directory_comes_through_the_environment() {
    let Some(scratch) = somebody_elses(&[]) else {
        return;
    };
    for variables in [
        &[
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "safe.directory"),
            ("GIT_CONFIG_VALUE_0", "*"),
        ][..],
        &[("GIT_CONFIG_PARAMETERS", "'safe.directory=*'")],
    ] {
        let variables: Vec<_> = variables
            .iter()
            .map(|(name, value)| (*name, OsStr::new(*value)))
            .collect();
        let answer = scratch.answer(&scratch.path("outer/o"), &variables);
        is_refused_with_the_remedy(&answer, &scratch.path("outer/o"));
    }
}

#[test]
fn g04_only_the_git_directory_being_somebody_elses_is_refused() {
    let Some(scratch) = somebody_elses(&[]) else {
        return;
    };
    let path = scratch.path("outer/o");
    std::os::unix::fs::lchown(&path, Some(0), None).unwrap();
    is_refused_with_the_remedy(&scratch.answer(&path, &[]), &path);
    // Nor is the other half enough.
    std::os::unix::fs::lchown(path.join(".git"), Some(0), None).unwrap();
    std::os::unix::fs::lchown(&path, Some(NOBODY), None).unwrap();
    is_refused_with_the_remedy(&scratch.answer(&path, &[]), &path);
}

#[test]
fn g04_git_told_to_assume_another_owner_refuses() {
    let scratch = Scratch::new();
    let path = scratch.repository("o");
    let variable = ("GIT_TEST_ASSUME_DIFFERENT_OWNER", OsStr::new("1"));
    is_refused_with_the_remedy(&scratch.answer(&path, &[variable]), &path);
    assert!(scratch.answer(&path, &[]).starts_with("root "));
}
