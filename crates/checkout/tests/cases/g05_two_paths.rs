use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use earshot_checkout::{ClaimPathError, RootIndex, claim_path, common_dir_identity, resolve};

use crate::scratch::{Mount, Scratch};

fn linked() -> Scratch {
    let scratch = Scratch::new();
    scratch.repository("real");
    fs::create_dir(scratch.path("real/src")).unwrap();
    symlink("real", scratch.path("link")).unwrap();
    symlink(scratch.path("link/src"), scratch.path("srclink")).unwrap();
    scratch
}

#[test]
fn g05_a_symlink_leads_to_the_same_checkout() {
    let scratch = linked();
    let real = resolve(&scratch.path("real")).unwrap();
    for start in [
        "link",
        "link/src",
        "link/README",
        "srclink",
        "real/src/../src",
    ] {
        assert_eq!(resolve(&scratch.path(start)).unwrap(), real, "{start}");
    }
    fs::remove_file(scratch.path("link")).unwrap();
    symlink(scratch.path("real"), scratch.path("link")).unwrap();
    assert_eq!(resolve(&scratch.path("link")).unwrap().id(), real.id());
}

#[test]
fn g05_absolute_claims_become_relative_by_whatever_path() {
    let scratch = linked();
    symlink("..", scratch.path("real/src/up")).unwrap();
    symlink(scratch.path("elsewhere"), scratch.path("real/out")).unwrap();
    let checkout = resolve(&scratch.path("link")).unwrap();
    for (written, expected) in [
        ("link/src/a.rs", "src/a.rs"),
        ("real/src/b.rs", "src/b.rs"),
        ("srclink/c.rs", "src/c.rs"),
        ("real", "."),
        ("link/", "."),
        ("real/**", "./**"),
        ("real/src/**", "src/**"),
        ("real/new/folder/", "new/folder/"),
        ("real//src/./x/../a.rs", "src/./x/../a.rs"),
        ("link/../real/src/a.rs", "src/a.rs"),
        // What lies below the root is text: no symlink is followed there.
        ("real/src/up/README", "src/up/README"),
        ("real/out/x", "out/x"),
    ] {
        let raw = format!("{}/{written}", scratch.root.display());
        assert_eq!(
            claim_path(&checkout, &raw).as_deref(),
            Ok(expected),
            "{written}"
        );
    }
    for raw in ["src/a.rs", "./src/a.rs", "../x", "", "~/x"] {
        assert_eq!(claim_path(&checkout, raw).as_deref(), Ok(raw));
    }
}

#[test]
fn g05_an_absolute_claim_elsewhere_is_refused() {
    let scratch = linked();
    scratch.repository("real-2");
    let checkout = resolve(&scratch.path("real")).unwrap();
    let root = scratch.root.display().to_string();
    for raw in [
        "/".to_owned(),
        "/etc/passwd".to_owned(),
        format!("{root}/real-2/a"),
        format!("{root}/real/../x"),
        format!("{root}/real/src/../../x"),
        format!("{root}/nowhere/../real/a"),
        format!("{root}/real\0/a"),
    ] {
        assert_eq!(
            claim_path(&checkout, &raw),
            Err(ClaimPathError::Outside(raw.clone()))
        );
    }
}

#[test]
fn g05_a_tree_keeps_the_path_it_was_first_seen_under() {
    let scratch = linked();
    let state = scratch.path("state");
    fs::create_dir(&state).unwrap();
    let index = RootIndex::new(&state);
    let real = resolve(&scratch.path("real")).unwrap();
    assert_eq!(index.settle(real.clone()).unwrap(), real);
    // Another canonical path of the same tree, as a bind mount would give.
    let other = Path::new("/mnt/other");
    let known = |device, inode| index.canonical_root_for(other, device, inode).unwrap();
    assert_eq!(known(real.device, real.inode), real.root);
    // A second index on the same folder reads what the first wrote.
    let second = RootIndex::new(&state);
    assert_eq!(
        second
            .canonical_root_for(other, real.device, real.inode)
            .unwrap(),
        real.root
    );
}

#[test]
fn g05_a_used_again_inode_does_not_mislead() {
    let scratch = linked();
    let index = RootIndex::new(&scratch.root);
    let real = resolve(&scratch.path("real")).unwrap();
    index.settle(real.clone()).unwrap();
    fs::rename(&real.root, scratch.path("moved")).unwrap();
    // The tree is known under a path that is gone.
    let moved = resolve(&scratch.path("moved")).unwrap();
    assert_eq!((moved.device, moved.inode), (real.device, real.inode));
    assert_eq!(index.settle(moved.clone()).unwrap().root, moved.root);
    // And under one that another tree took.
    scratch.repository("real");
    fs::rename(&moved.root, scratch.path("again")).unwrap();
    let again = resolve(&scratch.path("again")).unwrap();
    assert_eq!(index.settle(again).unwrap().root, scratch.path("again"));
    let taken = resolve(&scratch.path("real")).unwrap();
    assert_eq!(index.settle(taken).unwrap().root, scratch.path("real"));
}

#[test]
fn g05_a_damaged_index_is_begun_again() {
    let scratch = linked();
    let index = RootIndex::new(&scratch.root);
    let real = resolve(&scratch.path("real")).unwrap();
    for damage in [
        &b""[..],
        b"rubbish\0\0\0",
        b"earshot-roots 1\x001 2",
        &vec![0xff; 2 << 20],
    ] {
        fs::write(scratch.path("roots"), damage).unwrap();
        assert_eq!(index.settle(real.clone()).unwrap(), real);
        assert!(fs::metadata(scratch.path("roots")).unwrap().len() < 1_000);
    }
}

#[test]
fn g05_many_first_callers_agree_on_one_path() {
    let scratch = linked();
    let metadata = fs::metadata(scratch.path("real")).unwrap();
    let paths = [scratch.path("real"), scratch.path("link")];
    let answers: Vec<_> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|caller| {
                let index = RootIndex::new(&scratch.root);
                let (path, metadata) = (&paths[caller % 2], &metadata);
                scope.spawn(move || {
                    index
                        .canonical_root_for(path, metadata.dev(), metadata.ino())
                        .unwrap()
                })
            })
            .collect();
        callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .collect()
    });
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "{answers:?}"
    );
}

#[test]
fn g05_a_bind_mount_is_the_same_checkout() {
    let scratch = linked();
    let Some(bind) = Mount::bind(&scratch.path("real"), scratch.path("bind")) else {
        return;
    };
    let real = resolve(&scratch.path("real")).unwrap();
    let mounted = resolve(&bind.0).unwrap();
    assert_eq!(mounted.root, bind.0);
    assert_eq!(
        common_dir_identity(&mounted).unwrap().inode,
        common_dir_identity(&real).unwrap().inode
    );
    let index = RootIndex::new(&scratch.root);
    index.settle(real.clone()).unwrap();
    assert_eq!(index.settle(mounted).unwrap(), real);
    let claim = format!("{}/src/a.rs", bind.0.display());
    assert_eq!(claim_path(&real, &claim).as_deref(), Ok("src/a.rs"));
}
