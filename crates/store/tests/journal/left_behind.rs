//! A journal that another process keeps locked for good: a copy of it takes its place.

use std::{fs, path::Path};

use earshot_proto::lease::Epoch;
use earshot_store::{Batch, Fault, Journal, OpenError};
use rusqlite::Connection;

use crate::scratch::{CHECKOUT, Fate, Scratch, command, entry, fate, put, run};

/// Opens a write transaction, as a process does that is stopped inside of it.
fn lock(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection
        .execute_batch("BEGIN IMMEDIATE; DELETE FROM peer")
        .unwrap();
    connection
}

fn leave_behind(scratch: &Scratch, epoch: u64) -> Result<Journal, OpenError> {
    Journal::leave_behind(&scratch.path(), CHECKOUT, Epoch::new(epoch))
}

fn open_current(scratch: &Scratch, epoch: u64) -> Journal {
    let current = Journal::current(&scratch.path()).unwrap();
    Journal::open(&current, CHECKOUT, Epoch::new(epoch)).unwrap()
}

#[test]
fn what_was_committed_is_in_the_copy_and_what_was_not_is_not() {
    let scratch = Scratch::new();
    let mut first = scratch.open(1);
    first.write(&put(entry(1, 1))).unwrap();
    let effect = Batch::default();
    let _answered = run(&mut first, &command(1, 1), &effect, b"one");
    let stopped = lock(&scratch.path());

    assert!(matches!(
        scratch.try_open(2),
        Err(OpenError::Fault(Fault::Busy { .. }))
    ));
    let mut second = leave_behind(&scratch, 2).unwrap();
    assert_eq!(second.load().unwrap().peers, [entry(1, 1)]);
    assert_eq!(
        fate(&mut second, &command(1, 1)),
        Fate::Answered(b"one".to_vec())
    );
    second.write(&put(entry(2, 1))).unwrap();

    // The stopped one goes on: what it commits is in a file that counts no more.
    stopped.execute_batch("COMMIT").unwrap();
    assert!(second.is_in_place().unwrap());
    drop((first, second));
    let mut third = open_current(&scratch, 3);
    assert_eq!(third.load().unwrap().peers, [entry(1, 1), entry(2, 1)]);
}

#[test]
fn a_file_left_behind_goes_once_nobody_keeps_it_locked() {
    let scratch = Scratch::new();
    drop(scratch.open(1));
    let stopped = lock(&scratch.path());
    let second = leave_behind(&scratch, 2).unwrap();
    second.remove_left_behind(&scratch.path()).unwrap();
    assert!(scratch.path().exists(), "it is locked");
    drop(stopped);
    second.remove_left_behind(&scratch.path()).unwrap();
    let names = fs::read_dir(scratch.folder()).unwrap();
    let mut names: Vec<_> = names.map(|it| it.unwrap().file_name()).collect();
    names.sort();
    let left = ["journal.db.2", "journal.db.2-shm", "journal.db.2-wal"];
    assert_eq!(names, left);
}

#[test]
fn whoever_was_shut_out_begins_no_file_that_counts() {
    let scratch = Scratch::new();
    drop(scratch.open(1));
    let stopped = lock(&scratch.path());
    // The second one read the journal and is held up; the third one finds the lock gone.
    let late = leave_behind(&scratch, 2).unwrap();
    let shown = scratch.folder().join("journal.db.2");
    let hidden = scratch.folder().join("hidden");
    drop(late);
    fs::rename(&shown, &hidden).unwrap();
    drop(stopped);
    let mut third = open_current(&scratch, 3);
    third.write(&put(entry(3, 1))).unwrap();
    fs::rename(&hidden, &shown).unwrap();
    assert_eq!(Journal::current(&scratch.path()).unwrap(), scratch.path());
    drop(third);
    // Had it read the journal only now, it would have met the fence.
    fs::remove_file(&shown).unwrap();
    let stopped = lock(&scratch.path());
    assert!(matches!(
        leave_behind(&scratch, 2),
        Err(OpenError::Superseded { .. })
    ));
    assert!(!shown.exists());
    drop(stopped);
}

#[test]
fn a_damaged_copy_is_not_passed_over_for_an_older_file() {
    let scratch = Scratch::new();
    drop(scratch.open(1));
    let stopped = lock(&scratch.path());
    drop(leave_behind(&scratch, 2).unwrap());
    drop(stopped);
    let copy = scratch.folder().join("journal.db.2");
    fs::write(&copy, "no journal").unwrap();
    assert_eq!(Journal::current(&scratch.path()).unwrap(), copy);
}

#[test]
fn a_copy_that_was_not_finished_is_made_anew() {
    let scratch = Scratch::new();
    let mut first = scratch.open(1);
    first.write(&put(entry(1, 1))).unwrap();
    let _stopped = lock(&scratch.path());
    fs::write(scratch.folder().join("journal.db.2.new"), "half").unwrap();
    assert_eq!(Journal::current(&scratch.path()).unwrap(), scratch.path());
    let mut second = leave_behind(&scratch, 2).unwrap();
    assert_eq!(second.load().unwrap().peers, [entry(1, 1)]);
    assert!(!scratch.folder().join("journal.db.2.new").exists());
}
