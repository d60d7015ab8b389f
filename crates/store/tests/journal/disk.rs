//! A disk without room.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use earshot_proto::lease::Epoch;
use earshot_store::{Batch, Begun, CommitError, Fault, Journal, OpenError};
use tempfile::TempDir;

use crate::scratch::{CHECKOUT, Fate, command, entry, fate, put, run};

/// A small file system, unmounted when it is dropped.
struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// Mounts one, where that is allowed.
    fn mount() -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "none"])
            .arg(folder.path())
            .output();
        mounted
            .is_ok_and(|output| output.status.success())
            .then_some(Self { folder })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("journal.db")
    }

    /// Takes all the room that is left.
    fn fill(&self) -> Filler {
        let path = self.folder.path().join("filler");
        let mut file = fs::File::create(&path).unwrap();
        while file.write_all(&[0; 512]).is_ok() {}
        Filler(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.folder.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

struct Filler(PathBuf);

impl Filler {
    fn remove(self) {
        fs::remove_file(&self.0).unwrap();
    }
}

fn open(path: &Path, epoch: u64) -> Result<Journal, OpenError> {
    Journal::open(path, CHECKOUT, Epoch::new(epoch))
}

#[test]
fn a_full_disk_is_named_and_the_journal_goes_on_when_there_is_room() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("SKIPPED: no small file system can be mounted here");
        return;
    };
    let mut journal = open(&disk.path(), 1).unwrap();
    run(&mut journal, &command(1, 1), &put(entry(1, 1)), b"first").into_result();
    let filler = disk.fill();

    // A batch of many pages: the log's room may take a small one yet.
    let many: Vec<_> = (10..1_010).map(|id| entry(id, 1)).collect();
    let many = Batch {
        peers: many,
        ..Batch::default()
    };
    let Begun::Run(execution) = journal.begin(&command(1, 2)).unwrap() else {
        panic!("it was not run before");
    };
    let full = execution.finish(&many, b"second".to_vec()).unwrap_err();
    assert!(
        matches!(&full, CommitError::Fault(Fault::DiskFull { path }) if *path == disk.path()),
        "{full:?}"
    );
    assert_eq!(
        fate(&mut journal, &command(1, 1)),
        Fate::Answered(b"first".to_vec())
    );
    assert_eq!(fate(&mut journal, &command(1, 2)), Fate::Run);
    assert_eq!(journal.load().unwrap().peers, [entry(1, 1)]);

    filler.remove();
    run(&mut journal, &command(1, 2), &put(entry(2, 2)), b"second").into_result();
    drop(journal);
    let mut next = open(&disk.path(), 2).unwrap();
    assert_eq!(next.load().unwrap().peers, [entry(1, 1), entry(2, 2)]);
}

#[test]
fn a_journal_is_not_created_on_a_full_disk_and_is_once_there_is_room() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("SKIPPED: no small file system can be mounted here");
        return;
    };
    let filler = disk.fill();

    let full = open(&disk.path(), 1).unwrap_err();
    assert!(
        matches!(full, OpenError::Fault(Fault::DiskFull { .. })),
        "{full:?}"
    );

    filler.remove();
    open(&disk.path(), 1)
        .unwrap()
        .write(&put(entry(1, 1)))
        .unwrap();
}
