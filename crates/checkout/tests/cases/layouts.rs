use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;

use earshot_checkout::{
    CheckoutKind, Head, RepositoryId, ResolveError, head, ignore_case, is_ignored, is_tracked,
    resolve, worktrees,
};

use crate::scratch::{REFTABLE, Scratch, rows};

#[test]
fn every_repository_format_has_a_root_a_head_and_a_list() {
    for options in [
        &[][..],
        &["--object-format=sha256"],
        &[REFTABLE],
        &[REFTABLE, "--object-format=sha256"],
    ] {
        let scratch = Scratch::new();
        if !scratch.git_knows(options) {
            continue;
        }
        let path = scratch.repository_with("r", options);
        scratch.git("r", &["worktree", "add", "--quiet", "-b", "feat/x", "../w"]);
        let primary = resolve(&path).unwrap();
        let linked = resolve(&scratch.path("w")).unwrap();
        let commit = scratch.git("r", &["rev-parse", "HEAD"]);
        let on = |branch: &str| Head {
            branch: Some(branch.to_owned()),
            commit: Some(commit.clone()),
        };
        assert_eq!(head(&primary), on("main"), "{options:?}");
        assert_eq!(head(&linked), on("feat/x"), "{options:?}");
        let branches: Vec<_> = worktrees(&linked)
            .into_iter()
            .map(|worktree| worktree.branch.unwrap())
            .collect();
        assert_eq!(branches, ["main", "feat/x"], "{options:?}");
        scratch.git("r", &["pack-refs", "--all"]);
        assert_eq!(head(&linked), on("feat/x"), "{options:?}");
        scratch.git("w", &["checkout", "--quiet", "--detach"]);
        assert_eq!(
            head(&linked),
            Head {
                branch: None,
                commit: Some(commit)
            },
            "{options:?}"
        );
        scratch.git("w", &["checkout", "--quiet", "--orphan", "fresh"]);
        assert_eq!(
            head(&linked),
            Head {
                branch: Some("fresh".into()),
                commit: None
            },
            "{options:?}"
        );
    }
}

#[test]
fn a_folder_without_git_is_a_checkout_of_its_own() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("plain/sub/.git")).unwrap();
    fs::write(scratch.path("plain/file"), "").unwrap();
    let plain = resolve(&scratch.path("plain/file")).unwrap();
    assert_eq!(
        (plain.root.clone(), plain.kind),
        (scratch.path("plain"), CheckoutKind::Folder)
    );
    assert_eq!((&plain.git_dir, &plain.common_dir), (&None, &None));
    assert_eq!(plain.repository_id(), RepositoryId::of(&plain.root));
    assert_eq!(head(&plain), Head::default());
    assert_eq!(rows(&scratch, &plain), ["primary plain Present"]);
    assert!(!ignore_case(&plain));
    // An empty `.git` folder is nothing to git.
    assert_eq!(
        resolve(&scratch.path("plain/sub")).unwrap().kind,
        CheckoutKind::Folder
    );
}

#[test]
fn a_missing_path_is_named() {
    let scratch = Scratch::new();
    scratch.repository("r");
    for name in ["r/nowhere", "r/README/below"] {
        match resolve(&scratch.path(name)) {
            Err(error @ ResolveError::Missing { .. }) => {
                assert!(error.to_string().ends_with("does not exist"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_path_in_the_git_directory_names_the_checkouts() {
    let scratch = Scratch::new();
    scratch.repository("r");
    scratch.git("r", &["worktree", "add", "--quiet", "-b", "w", "../w"]);
    for start in [
        "r/.git",
        "r/.git/HEAD",
        "r/.git/refs/heads",
        "r/.git/worktrees/w",
    ] {
        match resolve(&scratch.path(start)) {
            Err(ResolveError::InsideGitDir { checkouts, .. }) => {
                assert_eq!(checkouts, [scratch.path("r"), scratch.path("w")], "{start}");
            }
            other => panic!("{start}: {other:?}"),
        }
    }
}

#[test]
fn a_git_file_that_leads_nowhere_is_an_error_and_not_the_parents_checkout() {
    let scratch = Scratch::new();
    scratch.repository("r");
    fs::create_dir(scratch.path("r/sub")).unwrap();
    for content in ["", "rubbish", "gitdir: \n", "gitdir: ../nowhere\n"] {
        fs::write(scratch.path("r/sub/.git"), content).unwrap();
        let answer = resolve(&scratch.path("r/sub"));
        assert!(
            matches!(answer, Err(ResolveError::Broken { .. })),
            "{content:?}: {answer:?}"
        );
    }
    // What git passes over: something that is neither file nor folder.
    fs::remove_file(scratch.path("r/sub/.git")).unwrap();
    symlink("nowhere", scratch.path("r/sub/.git")).unwrap();
    assert_eq!(
        resolve(&scratch.path("r/sub")).unwrap().root,
        scratch.path("r")
    );
}

#[test]
fn a_git_directory_of_its_own_place_is_followed() {
    let scratch = Scratch::new();
    scratch.repository_with("r", &["--separate-git-dir=store"]);
    scratch.repository("s");
    fs::rename(scratch.path("s/.git"), scratch.path("s-store")).unwrap();
    symlink("../s-store", scratch.path("s/.git")).unwrap();
    for (name, store) in [("r", "store"), ("s", "s-store")] {
        let checkout = resolve(&scratch.path(name)).unwrap();
        assert_eq!(checkout.kind, CheckoutKind::Primary);
        assert_eq!(checkout.git_dir, Some(scratch.path(store)));
        assert_eq!(head(&checkout).branch.as_deref(), Some("main"));
        assert_eq!(
            rows(&scratch, &checkout),
            [format!("primary {name} Present")]
        );
    }
}

#[test]
fn a_repositorys_settings_do_not_move_the_root() {
    let scratch = Scratch::new();
    let path = scratch.repository("r");
    scratch.git(
        "r",
        &["config", "core.worktree", scratch.root.to_str().unwrap()],
    );
    assert_eq!(resolve(&path).unwrap().root, path);
}

#[test]
fn settings_of_one_worktree_hold_for_it_alone() {
    let scratch = Scratch::new();
    scratch.repository("r");
    scratch.git("r", &["worktree", "add", "--quiet", "-b", "w", "../w"]);
    scratch.git("r", &["config", "extensions.worktreeConfig", "true"]);
    scratch.git("r", &["config", "--worktree", "core.bare", "true"]);
    assert!(matches!(
        resolve(&scratch.path("r")),
        Err(ResolveError::Bare { .. })
    ));
    let linked = resolve(&scratch.path("w")).unwrap();
    assert_eq!(rows(&scratch, &linked), ["linked w Present"]);
}

#[test]
fn folding_of_case_is_gits_setting() {
    let scratch = Scratch::new();
    let path = scratch.repository("r");
    scratch.git("r", &["config", "core.ignorecase", "true"]);
    assert!(ignore_case(&resolve(&path).unwrap()));
    scratch.git("r", &["config", "core.ignorecase", "no"]);
    assert!(!ignore_case(&resolve(&path).unwrap()));
}

#[test]
fn no_variable_of_the_environment_misroutes() {
    let scratch = Scratch::new();
    let path = scratch.repository_with("r", &[]);
    scratch.repository("other");
    scratch.git("other", &["checkout", "--quiet", "-b", "astray"]);
    scratch.git("other", &["config", "core.ignorecase", "true"]);
    fs::create_dir(scratch.path("r/src")).unwrap();
    let quiet = scratch.answer(&scratch.path("r/src"), &[]);
    assert!(
        quiet.starts_with(&format!("root {}\n", path.display())),
        "{quiet}"
    );
    let git_dir = scratch.path("other/.git");
    let other = scratch.path("other");
    let variables = [
        ("GIT_DIR", git_dir.as_os_str()),
        ("GIT_COMMON_DIR", git_dir.as_os_str()),
        ("GIT_WORK_TREE", other.as_os_str()),
        ("GIT_INDEX_FILE", git_dir.as_os_str()),
        ("GIT_OBJECT_DIRECTORY", git_dir.as_os_str()),
        ("GIT_CEILING_DIRECTORIES", path.as_os_str()),
        ("GIT_PREFIX", OsStr::new("x/")),
        ("GIT_NAMESPACE", OsStr::new("n")),
    ];
    assert_eq!(scratch.answer(&scratch.path("r/src"), &variables), quiet);
}

#[test]
fn only_what_stands_in_the_index_is_tracked() {
    let scratch = Scratch::new();
    scratch.repository("repo");
    fs::write(scratch.path("repo/untracked"), "x").unwrap();
    let checkout = resolve(&scratch.path("repo")).unwrap();
    assert!(is_tracked(&checkout, &checkout.root.join("README")));
    assert!(!is_tracked(&checkout, &checkout.root.join("untracked")));
    assert!(!is_tracked(&checkout, &checkout.root.join("missing")));
    assert!(
        is_tracked(&checkout, &scratch.path("elsewhere")),
        "not known here"
    );
}

#[test]
fn what_a_pattern_names_is_ignored_unless_it_is_tracked() {
    let scratch = Scratch::new();
    scratch.repository("repo");
    let patterns = "README\n/build/\n*.log\n!kept.log\n";
    fs::write(scratch.path("repo/.gitignore"), patterns).unwrap();
    let checkout = resolve(&scratch.path("repo")).unwrap();
    for (file, ignored) in [
        ("build/x", true),
        ("a/b.log", true),
        ("kept.log", false),
        ("README", false),
        ("-x", false),
        ("missing", false),
    ] {
        assert_eq!(
            is_ignored(&checkout, &checkout.root.join(file)),
            ignored,
            "{file}"
        );
    }
    assert!(
        !is_ignored(&checkout, &scratch.path("elsewhere")),
        "not known here"
    );
}
