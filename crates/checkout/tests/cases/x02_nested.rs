use earshot_checkout::{CheckoutKind, is_checkout_top, resolve};

use crate::scratch::{Scratch, rows};

/// A repository with worktrees, a clone, a submodule and a worktree of that below itself.
fn nested() -> Scratch {
    let scratch = Scratch::new();
    scratch.repository("l");
    scratch.repository("repo");
    for name in ["w1", "w2"] {
        scratch.git(
            "repo",
            &[
                "worktree",
                "add",
                "--quiet",
                "-b",
                name,
                &format!(".claude/worktrees/{name}"),
            ],
        );
    }
    scratch.git("repo", &["clone", "--quiet", ".", "vendor/clone"]);
    let url = scratch.path("l").display().to_string();
    scratch.git("repo", &["submodule", "--quiet", "add", &url, "sub"]);
    scratch.git(
        "repo/sub",
        &[
            "worktree",
            "add",
            "--quiet",
            "-b",
            "sw",
            "../.claude/worktrees/sw",
        ],
    );
    std::fs::create_dir_all(scratch.path("repo/src/deep")).unwrap();
    scratch
}

#[test]
fn x02_a_nested_checkout_answers_for_what_is_below_it() {
    let scratch = nested();
    let at = |name: &str| resolve(&scratch.path(name)).unwrap();
    let outer = at("repo");
    for (folder, kind, same_repository) in [
        (
            "repo/.claude/worktrees/w2",
            CheckoutKind::LinkedWorktree,
            true,
        ),
        (
            "repo/.claude/worktrees/sw",
            CheckoutKind::LinkedWorktree,
            false,
        ),
        ("repo/vendor/clone", CheckoutKind::Primary, false),
        ("repo/sub", CheckoutKind::Submodule, false),
    ] {
        let nested = at(folder);
        assert_eq!(nested.root, scratch.path(folder));
        assert_eq!(nested.kind, kind, "{folder}");
        assert_ne!(nested.id(), outer.id());
        assert_eq!(
            nested.repository_id() == outer.repository_id(),
            same_repository,
            "{folder}"
        );
        assert_eq!(at(&format!("{folder}/README")), nested);
    }
    assert_eq!(
        at("repo/sub").repository_id(),
        at("repo/.claude/worktrees/sw").repository_id()
    );
    assert_eq!(at("repo/src/deep"), outer);
}

#[test]
fn x02_a_walk_can_tell_where_another_checkout_begins() {
    let scratch = nested();
    for (folder, expected) in [
        ("repo", true),
        ("repo/.git", true),
        ("repo/.claude/worktrees/w1", true),
        ("repo/.claude/worktrees/sw", true),
        ("repo/vendor/clone", true),
        ("repo/sub", true),
        ("repo/.claude/worktrees", false),
        ("repo/vendor", false),
        ("repo/src/deep", false),
    ] {
        assert_eq!(is_checkout_top(&scratch.path(folder)), expected, "{folder}");
    }
}

#[test]
fn x02_nested_worktrees_are_listed_once() {
    let scratch = nested();
    let outer = resolve(&scratch.path("repo")).unwrap();
    assert_eq!(
        rows(&scratch, &outer),
        [
            "primary repo Present",
            "linked repo/.claude/worktrees/w1 Present",
            "linked repo/.claude/worktrees/w2 Present"
        ]
    );
}
