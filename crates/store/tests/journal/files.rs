//! Files that are no journal, not this one, or not there any more.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use earshot_proto::lease::Epoch;
use earshot_store::{Batch, Fault, Journal, OpenError};

use crate::scratch::{Scratch, entry, put};

/// Returns a journal with enough rows to fill many pages, closed.
fn filled() -> Scratch {
    let scratch = Scratch::new();
    let peers = (1..=200).map(|id| entry(id, 1)).collect();
    let mut journal = scratch.open(1);
    journal
        .write(&Batch {
            peers,
            ..Batch::default()
        })
        .unwrap();
    journal.drain().unwrap();
    scratch
}

/// Checks that a journal is refused and left as it was.
fn check_refused(scratch: &Scratch, what: &str, wanted: impl Fn(&OpenError) -> bool) {
    let before = fs::read(scratch.path()).unwrap();
    let refused = scratch.try_open(2).unwrap_err();
    assert!(wanted(&refused), "{what}: {refused:?}");
    let named = scratch.path().display().to_string();
    assert!(refused.to_string().contains(&named), "{what}: {refused}");
    assert!(
        fs::read(scratch.path()).unwrap() == before,
        "{what}: the file was changed"
    );
    assert!(!scratch.folder().join("journal.db-wal").exists(), "{what}");
}

#[test]
fn a_file_of_another_kind_is_refused_and_left_alone() {
    for (what, content) in [
        ("a short text", "hello".to_owned()),
        ("a long text", "hello, world\n".repeat(1_000)),
        ("zeros", "\0".repeat(8_192)),
    ] {
        let scratch = Scratch::new();
        fs::write(scratch.path(), content).unwrap();
        check_refused(&scratch, what, |error| {
            matches!(error, OpenError::Foreign { .. })
        });
        assert!(matches!(
            Journal::fence_of(&scratch.path()),
            Err(OpenError::Foreign { .. })
        ));
    }
    let scratch = Scratch::new();
    scratch
        .sqlite()
        .execute_batch("CREATE TABLE bookmark (url TEXT)")
        .unwrap();
    check_refused(&scratch, "another program's database", |error| {
        matches!(error, OpenError::Foreign { .. })
    });
}

#[test]
fn what_is_no_file_is_refused() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path()).unwrap();
    assert!(matches!(
        scratch.try_open(1),
        Err(OpenError::Foreign { .. })
    ));
    fs::remove_dir(scratch.path()).unwrap();
    symlink(scratch.folder().join("elsewhere"), scratch.path()).unwrap();
    assert!(matches!(
        scratch.try_open(1),
        Err(OpenError::Foreign { .. })
    ));
    assert!(!scratch.folder().join("elsewhere").exists());
}

#[test]
fn a_damaged_journal_is_refused_and_left_alone() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 3] = [
        ("a page overwritten", |bytes| {
            bytes[4_096 * 4..4_096 * 5].fill(0xff);
        }),
        ("the schema overwritten", |bytes| {
            bytes[100..4_096].fill(0xff);
        }),
        ("the end cut off", |bytes| bytes.truncate(4_096 * 6 + 100)),
    ];
    for (what, damage) in damages {
        let scratch = filled();
        let mut bytes = fs::read(scratch.path()).unwrap();
        damage(&mut bytes);
        fs::write(scratch.path(), bytes).unwrap();
        check_refused(&scratch, what, |error| {
            matches!(error, OpenError::Fault(Fault::Corrupt { .. }))
        });
    }
}

#[test]
fn a_journal_without_its_fence_is_damaged() {
    for damage in ["DROP TABLE fence", "DELETE FROM fence"] {
        let scratch = filled();
        scratch.sqlite().execute_batch(damage).unwrap();
        for error in [
            scratch.try_open(2).unwrap_err(),
            Journal::fence_of(&scratch.path()).unwrap_err(),
        ] {
            assert!(
                matches!(error, OpenError::Fault(Fault::Corrupt { .. })),
                "{error:?}"
            );
        }
    }
}

#[test]
fn an_empty_file_becomes_a_journal() {
    let scratch = Scratch::new();
    fs::write(scratch.path(), "").unwrap();
    assert_eq!(Journal::fence_of(&scratch.path()).unwrap(), None);
    let mut journal = scratch.open(1);
    journal.write(&put(entry(1, 1))).unwrap();
    drop(journal);
    // As a creation leaves it that dies between its two steps.
    let scratch = Scratch::new();
    scratch
        .sqlite()
        .execute_batch("PRAGMA journal_mode = wal")
        .unwrap();
    assert_eq!(Journal::fence_of(&scratch.path()).unwrap(), None);
    scratch.open(1).write(&put(entry(1, 1))).unwrap();
}

#[test]
fn a_journal_of_a_later_release_is_refused_and_still_tells_its_fence() {
    let scratch = filled();
    scratch
        .sqlite()
        .execute_batch("PRAGMA user_version = 99")
        .unwrap();
    for path in ["journal.db-wal", "journal.db-shm"] {
        assert!(!scratch.folder().join(path).exists());
    }
    check_refused(&scratch, "a later schema", |error| {
        matches!(error, OpenError::Later { schema: 99, .. })
            && error.to_string().contains("written by a later release")
    });
    let fence = Journal::fence_of(&scratch.path()).unwrap().unwrap();
    assert_eq!(fence.epoch, Epoch::new(1));
}

#[test]
fn the_journal_of_another_checkout_is_refused() {
    let scratch = filled();
    let other = Journal::open(&scratch.path(), "another", Epoch::new(2)).unwrap_err();
    assert!(
        matches!(other, OpenError::OtherCheckout { .. }),
        "{other:?}"
    );
    let fence = Journal::fence_of(&scratch.path()).unwrap().unwrap();
    assert_eq!(fence.epoch, Epoch::new(1));
}

#[test]
fn nobody_else_may_read_a_journal() {
    let scratch = Scratch::new();
    let modes = || {
        ["journal.db", "journal.db-wal", "journal.db-shm"].map(|name| {
            let found = fs::metadata(scratch.folder().join(name)).unwrap();
            found.permissions().mode() & 0o777
        })
    };
    let journal = scratch.open(1);
    assert_eq!(modes(), [0o600; 3]);
    drop(journal);
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o644)).unwrap();
    let _journal = scratch.open(2);
    assert_eq!(modes(), [0o600; 3]);
}

#[test]
fn a_wiped_or_replaced_file_is_noticed() {
    type Wipe = fn(&Scratch);
    let wipes: [(&str, Wipe); 5] = [
        ("the folder", |scratch| {
            fs::remove_dir_all(scratch.folder()).unwrap();
        }),
        ("the file", |scratch| {
            fs::remove_file(scratch.path()).unwrap();
        }),
        ("the log", |scratch| {
            fs::remove_file(scratch.folder().join("journal.db-wal")).unwrap();
        }),
        ("the shared memory", |scratch| {
            fs::remove_file(scratch.folder().join("journal.db-shm")).unwrap();
        }),
        ("a copy in its place", |scratch| {
            let copy = scratch.folder().join("copy");
            fs::copy(scratch.path(), &copy).unwrap();
            fs::rename(copy, scratch.path()).unwrap();
        }),
    ];
    for (what, wipe) in wipes {
        let scratch = Scratch::new();
        let mut journal = scratch.open(1);
        journal.write(&put(entry(1, 1))).unwrap();
        assert!(journal.is_in_place().unwrap(), "{what}");
        wipe(&scratch);
        assert!(!journal.is_in_place().unwrap(), "{what}");
    }
}

#[test]
fn a_drained_journal_is_one_file() {
    let scratch = filled();
    let names: Vec<_> = fs::read_dir(scratch.folder())
        .unwrap()
        .map(|found| found.unwrap().file_name())
        .collect();
    assert_eq!(names, ["journal.db"]);
}
