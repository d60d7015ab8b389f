use earshot_checkout::{CheckoutKind, ResolveError, resolve, worktrees};

use crate::scratch::{Scratch, rows};

/// A submodule whose own path contains `modules`, and a worktree of it.
fn submodule() -> Scratch {
    let scratch = Scratch::new();
    scratch.repository("lib");
    scratch.repository("super");
    let url = scratch.path("lib").display().to_string();
    scratch.git(
        "super",
        &["submodule", "--quiet", "add", &url, "modules/lib"],
    );
    scratch.git("super", &["commit", "--quiet", "-m", "s"]);
    scratch.git(
        "super/modules/lib",
        &["worktree", "add", "--quiet", "-b", "wt", "../../../libwt"],
    );
    scratch
}

#[test]
fn g03_three_checkouts_two_repositories() {
    let scratch = submodule();
    let at = |name: &str| resolve(&scratch.path(name)).unwrap();
    let (outer, lib, libwt) = (at("super"), at("super/modules/lib"), at("libwt"));
    assert_eq!(outer.kind, CheckoutKind::Primary);
    assert_eq!(lib.kind, CheckoutKind::Submodule);
    assert_eq!(libwt.kind, CheckoutKind::LinkedWorktree);
    assert_eq!(lib.root, scratch.path("super/modules/lib"));
    assert_eq!(lib.repository_id(), libwt.repository_id());
    assert_ne!(lib.repository_id(), outer.repository_id());
    assert_ne!(lib.id(), libwt.id());
    assert_eq!(
        lib.common_dir,
        Some(scratch.path("super/.git/modules/modules/lib"))
    );
}

#[test]
fn g03_a_submodules_first_row_is_its_work_tree() {
    let scratch = submodule();
    let expected = ["primary super/modules/lib Present", "linked libwt Present"];
    for name in ["super/modules/lib", "libwt"] {
        let checkout = resolve(&scratch.path(name)).unwrap();
        assert_eq!(rows(&scratch, &checkout), expected, "{name}");
    }
    let outer = resolve(&scratch.path("super")).unwrap();
    assert_eq!(rows(&scratch, &outer), ["primary super Present"]);
    let lib = resolve(&scratch.path("libwt")).unwrap();
    assert_eq!(worktrees(&lib)[0].branch.as_deref(), Some("main"));
    assert_eq!(worktrees(&lib)[1].branch.as_deref(), Some("wt"));
}

#[test]
fn g03_a_submodule_of_a_linked_worktree_is_a_submodule() {
    let scratch = submodule();
    scratch.git(
        "super",
        &["worktree", "add", "--quiet", "-b", "w", "../superwt"],
    );
    scratch.git("superwt", &["submodule", "--quiet", "update", "--init"]);
    let lib = resolve(&scratch.path("superwt/modules/lib")).unwrap();
    assert_eq!(lib.kind, CheckoutKind::Submodule);
    assert_eq!(
        rows(&scratch, &lib),
        ["primary superwt/modules/lib Present"]
    );
}

#[test]
fn g03_a_repository_in_a_folder_called_modules_is_no_submodule() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("modules")).unwrap();
    scratch.repository_with("modules/own", &["--separate-git-dir=modules/store"]);
    let own = resolve(&scratch.path("modules/own")).unwrap();
    assert_eq!(own.kind, CheckoutKind::Primary);
    assert_eq!(rows(&scratch, &own), ["primary modules/own Present"]);
}

#[test]
fn g03_a_submodules_git_directory_names_its_checkouts() {
    let scratch = submodule();
    match resolve(&scratch.path("super/.git/modules/modules/lib/refs")) {
        Err(ResolveError::InsideGitDir { git_dir, checkouts }) => {
            assert_eq!(git_dir, scratch.path("super/.git/modules/modules/lib"));
            assert_eq!(
                checkouts,
                [scratch.path("super/modules/lib"), scratch.path("libwt")]
            );
        }
        other => panic!("{other:?}"),
    }
}
