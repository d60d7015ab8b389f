use std::fs;
use std::path::Path;

use earshot_checkout::{Checkout, CheckoutKind, ResolveError, head, resolve, worktrees};

use crate::scratch::{Scratch, rows};

/// A repository with a deleted, a moved, a locked and unmounted, and a relative worktree.
fn scattered() -> Scratch {
    let scratch = Scratch::new();
    scratch.repository("m");
    for name in ["gone", "moved", "lock", "rel"] {
        scratch.git(
            "m",
            &[
                "worktree",
                "add",
                "--quiet",
                "-b",
                name,
                &format!("../{name}"),
            ],
        );
    }
    fs::remove_dir_all(scratch.path("gone")).unwrap();
    fs::rename(scratch.path("moved"), scratch.path("elsewhere")).unwrap();
    scratch.git(
        "m",
        &["worktree", "lock", "--reason", "on a disk", "../lock"],
    );
    fs::rename(scratch.path("lock"), scratch.path("lock.unmounted")).unwrap();
    fs::write(
        scratch.path("rel/.git"),
        "gitdir: ../m/.git/worktrees/rel\n",
    )
    .unwrap();
    fs::write(
        scratch.path("m/.git/worktrees/rel/gitdir"),
        "../../../../rel/.git\n",
    )
    .unwrap();
    scratch
}

fn at(scratch: &Scratch, name: &str) -> Checkout {
    resolve(&scratch.path(name)).unwrap()
}

const LOCKED: &str = r#"linked lock Locked { reason: Some("on a disk"), present: false }"#;

#[test]
fn g02_every_registered_worktree_is_listed_with_its_state() {
    let scratch = scattered();
    let expected = [
        "primary m Present",
        "linked gone Missing",
        LOCKED,
        "linked moved Missing",
        "linked rel Present",
    ];
    assert_eq!(rows(&scratch, &at(&scratch, "m")), expected);
    assert_eq!(rows(&scratch, &at(&scratch, "rel")), expected);
}

#[test]
fn g02_listing_creates_and_prunes_nothing() {
    let scratch = scattered();
    let registered = || {
        fs::read_dir(scratch.path("m/.git/worktrees"))
            .unwrap()
            .count()
    };
    let before = registered();
    worktrees(&at(&scratch, "m"));
    for name in ["gone", "moved", "lock"] {
        assert!(!scratch.path(name).exists(), "{name}");
    }
    assert_eq!(registered(), before);
}

#[test]
fn g02_moved_worktree_resolves_where_it_is_and_lists_itself_once() {
    let scratch = scattered();
    let moved = at(&scratch, "elsewhere");
    assert_eq!(moved.root, scratch.path("elsewhere"));
    assert_eq!(moved.repository_id(), at(&scratch, "m").repository_id());
    assert_eq!(head(&moved).branch.as_deref(), Some("moved"));
    let expected = [
        "primary m Present",
        "linked elsewhere Present",
        "linked gone Missing",
        LOCKED,
        "linked rel Present",
    ];
    assert_eq!(rows(&scratch, &moved), expected);
    scratch.git("m", &["worktree", "repair", "../elsewhere"]);
    assert_eq!(rows(&scratch, &moved), expected);
    assert_eq!(rows(&scratch, &at(&scratch, "m")), expected);
}

#[test]
fn g02_relative_worktree_is_found_from_any_working_directory() {
    let scratch = scattered();
    // A repository that newer git made: older git refuses it, its files say the same.
    scratch.git("m", &["config", "core.repositoryFormatVersion", "1"]);
    scratch.git("m", &["config", "extensions.relativeWorktrees", "true"]);
    for name in ["rel", "m"] {
        let listed = worktrees(&at(&scratch, name));
        let rel = listed
            .iter()
            .find(|worktree| worktree.root == scratch.path("rel"))
            .unwrap();
        assert!(rel.state.is_present());
        assert_eq!(rel.branch.as_deref(), Some("rel"));
    }
    let rel = at(&scratch, "rel");
    assert_eq!(rel.kind, CheckoutKind::LinkedWorktree);
    assert_eq!(rel.common_dir, Some(scratch.path("m/.git")));
    assert!(head(&rel).commit.is_some());
}

#[test]
fn g02_the_order_is_gits() {
    let scratch = Scratch::new();
    scratch.repository("m");
    for name in ["z", "a-b", "a", "a/b", "B", "é"] {
        scratch.git(
            "m",
            &[
                "worktree",
                "add",
                "--quiet",
                "--detach",
                &format!("../{name}"),
            ],
        );
    }
    let porcelain = scratch.git("m", &["worktree", "list", "--porcelain", "-z"]);
    let gits: Vec<_> = porcelain
        .split('\0')
        .filter_map(|line| line.strip_prefix("worktree "))
        .collect();
    let ours = worktrees(&at(&scratch, "m"));
    assert_eq!(
        ours.iter()
            .map(|worktree| worktree.root.as_path())
            .collect::<Vec<_>>(),
        gits.iter().map(Path::new).collect::<Vec<_>>()
    );
}

#[test]
fn g02_a_place_that_another_checkout_took_is_not_the_worktree() {
    let scratch = scattered();
    scratch.repository("gone");
    fs::create_dir(scratch.path("moved")).unwrap();
    assert_eq!(
        rows(&scratch, &at(&scratch, "m")),
        [
            "primary m Present",
            "linked gone Unlinked",
            LOCKED,
            "linked moved Prunable",
            "linked rel Present"
        ]
    );
    assert_ne!(
        at(&scratch, "gone").repository_id(),
        at(&scratch, "m").repository_id()
    );
}

#[test]
fn g02_a_locked_worktree_that_is_there_can_be_used() {
    let scratch = scattered();
    fs::rename(scratch.path("lock.unmounted"), scratch.path("lock")).unwrap();
    let listed = worktrees(&at(&scratch, "m"));
    let lock = listed
        .iter()
        .find(|worktree| worktree.root == scratch.path("lock"))
        .unwrap();
    assert!(lock.state.is_present());
}

#[test]
fn g02_a_worktree_whose_repository_is_gone_is_no_folder_of_its_parent() {
    let scratch = scattered();
    scratch.repository("outer");
    fs::rename(scratch.path("elsewhere"), scratch.path("outer/inner")).unwrap();
    fs::rename(scratch.path("m"), scratch.path("n")).unwrap();
    match resolve(&scratch.path("outer/inner")) {
        Err(error @ ResolveError::Broken { .. }) => {
            assert!(
                error.to_string().contains("m/.git/worktrees/moved"),
                "{error}"
            );
            assert!(error.hint().unwrap().contains("git worktree repair"));
        }
        other => panic!("{other:?}"),
    }
    // The relative one lost its way, too; the primary lists it as what it is.
    assert!(rows(&scratch, &at(&scratch, "n")).contains(&"linked rel Unlinked".to_owned()));
}
