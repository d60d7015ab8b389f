use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use earshot_checkout::{CheckoutKind, ResolveError, resolve};

use crate::scratch::{Scratch, rows};

fn hub() -> Scratch {
    let scratch = Scratch::new();
    scratch.repository("seed");
    fs::create_dir(scratch.path("hub")).unwrap();
    scratch.git(".", &["clone", "--quiet", "--bare", "seed", "hub/.bare"]);
    fs::write(scratch.path("hub/.git"), "gitdir: ./.bare\n").unwrap();
    scratch.git("hub", &["worktree", "add", "--quiet", "a", "main"]);
    scratch.git("hub", &["worktree", "add", "--quiet", "-b", "f", "b"]);
    fs::create_dir(scratch.path("hub/notes")).unwrap();
    scratch
}

#[test]
fn g01_worktrees_of_a_bare_hub_are_checkouts_of_one_repository() {
    let scratch = hub();
    let a = resolve(&scratch.path("hub/a")).unwrap();
    let b = resolve(&scratch.path("hub/b")).unwrap();
    assert_eq!(a.root, scratch.path("hub/a"));
    assert_eq!(a.kind, CheckoutKind::LinkedWorktree);
    assert_eq!(a.common_dir, Some(scratch.path("hub/.bare")));
    assert_ne!(a.id(), b.id());
    assert_eq!(a.repository_id(), b.repository_id());
}

#[test]
fn g01_the_bare_directory_is_never_a_row() {
    let scratch = hub();
    let a = resolve(&scratch.path("hub/a")).unwrap();
    assert_eq!(
        rows(&scratch, &a),
        ["linked hub/a Present", "linked hub/b Present"]
    );
}

#[test]
fn g01_the_hub_and_its_bare_repository_name_their_checkouts() {
    let scratch = hub();
    for start in [
        "hub",
        "hub/notes",
        "hub/.git",
        "hub/.bare",
        "hub/.bare/refs",
        "hub/.bare/worktrees/a",
    ] {
        match resolve(&scratch.path(start)) {
            Err(error @ ResolveError::Bare { .. }) => {
                let text = error.to_string();
                for expected in [
                    "is a bare repository without a work tree",
                    "/hub/a",
                    "/hub/b",
                ] {
                    assert!(text.contains(expected), "{start}: {text}");
                }
            }
            other => panic!("{start}: {other:?}"),
        }
    }
}

#[test]
fn g01_looking_writes_nothing_into_the_hub() {
    let scratch = hub();
    let listing = || listed(&scratch.path("hub"));
    let before = listing();
    for start in ["hub", "hub/.bare", "hub/a"] {
        scratch.answer(&scratch.path(start), &[]);
    }
    assert_eq!(listing(), before);
}

/// Every path below a folder, with when it was changed.
fn listed(folder: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            found.append(&mut listed(&path));
        }
        found.insert(path, metadata.modified().unwrap());
    }
    found
}
