//! Commands, fence, results: one journal at a time.

use earshot_proto::{
    PeerId,
    lease::{BodyDigest, Epoch},
};
use earshot_store::{
    Batch, Begun, CommandKey, CommitError, Fence, Journal, OpenError, RESULT_BYTES_MAX, SEATS_MAX,
    UNACKED_MAX,
};
use earshot_trust::SessionId;

use crate::scratch::{Fate, Scratch, command, entry, fate, put, run, wire_session};

#[test]
fn a_command_sent_again_is_answered_and_has_its_effect_once() {
    let scratch = Scratch::new();
    let mut journal = scratch.open(1);

    let receipt = run(&mut journal, &command(1, 1), &put(entry(1, 1)), b"first");

    assert_eq!(receipt.into_result(), b"first");
    assert_eq!(
        fate(&mut journal, &command(1, 1)),
        Fate::Answered(b"first".to_vec())
    );
    let other = CommandKey {
        digest: BodyDigest::new([9; 16]),
        ..command(1, 1)
    };
    assert_eq!(fate(&mut journal, &other), Fate::Conflict);
    drop(journal);
    let mut next = scratch.open(2);
    assert_eq!(
        fate(&mut next, &command(1, 1)),
        Fate::Answered(b"first".to_vec())
    );
    assert_eq!(next.load().unwrap().peers, [entry(1, 1)]);
}

#[test]
fn an_unknown_seat_begins_with_its_first_command() {
    let scratch = Scratch::new();
    let mut journal = scratch.open(1);

    for n in [0, 2, u64::MAX] {
        assert_eq!(fate(&mut journal, &command(1, n)), Fate::Gone, "{n}");
    }
    assert_eq!(fate(&mut journal, &command(1, 1)), Fate::Run);
    // Given up, it left nothing behind: the seat is as unknown as before.
    assert_eq!(fate(&mut journal, &command(1, 2)), Fate::Gone);
    // A refusal is a result: it makes the seat known.
    run(&mut journal, &command(1, 1), &Batch::default(), b"refused").into_result();
    assert_eq!(fate(&mut journal, &command(1, 2)), Fate::Run);
    assert_eq!(fate(&mut journal, &command(1, u64::MAX)), Fate::Gone);
}

#[test]
fn a_seat_that_a_lost_journal_knew_is_introduced_above_its_old_numbers() {
    let scratch = Scratch::new();
    let mut journal = scratch.open(1);
    journal.introduce(command(1, 57).seat, 56).unwrap();

    for (n, want) in [
        (1, Fate::Gone),
        (56, Fate::Gone),
        (57, Fate::Run),
        (58, Fate::Run),
    ] {
        assert_eq!(fate(&mut journal, &command(1, n)), want, "{n}");
    }
    // A known seat is not introduced below its floor, nor above it.
    journal.introduce(command(1, 1).seat, 2).unwrap();
    journal.introduce(command(1, 1).seat, 99).unwrap();
    assert_eq!(fate(&mut journal, &command(1, 56)), Fate::Gone);
    assert_eq!(fate(&mut journal, &command(1, 57)), Fate::Run);
    assert!(journal.knows(command(1, 1).seat).unwrap());
    assert!(!journal.knows(command(2, 1).seat).unwrap());
}

#[test]
fn what_is_acknowledged_is_dropped_and_never_run_again() {
    let scratch = Scratch::new();
    let mut journal = scratch.open(1);
    for n in 1..=3 {
        run(&mut journal, &command(1, n), &Batch::default(), b"r").into_result();
    }
    let acking = CommandKey {
        acked: 2,
        ..command(1, 4)
    };

    run(&mut journal, &acking, &Batch::default(), b"r").into_result();

    for (n, want) in [
        (1, Fate::Gone),
        (2, Fate::Gone),
        (3, Fate::Answered(b"r".to_vec())),
        (4, Fate::Answered(b"r".to_vec())),
        (5, Fate::Run),
    ] {
        assert_eq!(fate(&mut journal, &command(1, n)), want, "{n}");
    }
    // Nobody has acknowledged the answer to the command that it says so with.
    let lying = CommandKey {
        acked: 99,
        ..command(1, 5)
    };
    run(&mut journal, &lying, &Batch::default(), b"r").into_result();
    assert_eq!(
        fate(&mut journal, &command(1, 5)),
        Fate::Answered(b"r".to_vec())
    );
}

#[test]
fn an_effect_outside_the_journal_is_never_begun_twice() {
    let scratch = Scratch::new();
    let mut journal = scratch.open(1);
    let Begun::Run(execution) = journal.begin(&command(1, 1)).unwrap() else {
        panic!("it was not run before");
    };
    let started = execution.start().unwrap();
    assert_eq!(fate(&mut journal, &command(1, 1)), Fate::OutcomeUnknown);
    let again = CommandKey {
        idempotent: true,
        ..command(1, 1)
    };
    assert_eq!(fate(&mut journal, &again), Fate::Run);

    let receipt = journal.finish_started(&started, &put(entry(1, 1)), b"done".to_vec());

    assert_eq!(receipt.unwrap().into_result(), b"done");
    assert_eq!(
        fate(&mut journal, &command(1, 1)),
        Fate::Answered(b"done".to_vec())
    );
    assert_eq!(journal.load().unwrap().peers, [entry(1, 1)]);
}

#[test]
fn a_crash_after_the_start_leaves_the_outcome_unknown_until_it_runs_again_to_the_end() {
    let scratch = Scratch::new();
    let mut journal = scratch.open(1);
    if let Begun::Run(execution) = journal.begin(&command(1, 1)).unwrap() {
        drop(execution.start().unwrap());
    }
    drop(journal);
    let mut journal = scratch.open(2);
    assert_eq!(fate(&mut journal, &command(1, 1)), Fate::OutcomeUnknown);

    let again = CommandKey {
        idempotent: true,
        ..command(1, 1)
    };
    run(&mut journal, &again, &Batch::default(), b"second").into_result();

    assert_eq!(
        fate(&mut journal, &command(1, 1)),
        Fate::Answered(b"second".to_vec())
    );
}

#[test]
fn an_older_node_writes_nothing_once_a_newer_one_has_opened_the_journal() {
    let scratch = Scratch::new();
    let mut old = scratch.open(1);
    let Begun::Run(execution) = old.begin(&command(1, 1)).unwrap() else {
        panic!("it was not run before");
    };
    let started = execution.start().unwrap();
    let mut new = scratch.open(2);

    let fenced = |error: CommitError| {
        let (own, other) = (Epoch::new(1), Epoch::new(2));
        matches!(error, CommitError::Fenced { fence, epoch } if fence == other && epoch == own)
    };
    assert!(fenced(old.begin(&command(2, 1)).unwrap_err()));
    assert!(fenced(old.write(&put(entry(7, 7))).unwrap_err()));
    let ended = old.finish_started(&started, &put(entry(8, 8)), Vec::new());
    assert!(fenced(ended.unwrap_err()));
    assert!(fenced(old.drain().unwrap_err()));
    assert_eq!(new.load().unwrap().peers, []);
    run(&mut new, &command(2, 1), &put(entry(1, 1)), b"new").into_result();

    let late = scratch.try_open(1).unwrap_err();
    assert!(
        matches!(late, OpenError::Superseded { fence, .. } if fence == Epoch::new(2)),
        "{late}"
    );
}

#[test]
fn the_fence_can_be_read_by_who_does_not_write() {
    let scratch = Scratch::new();
    let fence = || Journal::fence_of(&scratch.path()).unwrap();
    let of = |epoch, drained| {
        let epoch = Epoch::new(epoch);
        Some(Fence { epoch, drained })
    };
    assert_eq!(fence(), None);
    let mut journal = scratch.open(5);
    assert_eq!(fence(), of(5, false));
    // A reader within an open transaction sees what was committed, and waits for nothing.
    let begun = journal.begin(&command(1, 1)).unwrap();
    assert_eq!(fence(), of(5, false));
    drop(begun);
    journal.drain().unwrap();
    assert_eq!(fence(), of(5, true));
    let journal = scratch.open(u64::MAX);
    assert_eq!(fence(), of(u64::MAX, false));
    drop(journal);
    assert!(matches!(
        scratch.try_open(6).unwrap_err(),
        OpenError::Superseded { .. }
    ));
}

#[test]
fn what_was_written_is_loaded() {
    let scratch = Scratch::new();
    let mut journal = scratch.open(1);
    let mut bound = entry(2, 1);
    bound.session = Some(SessionId::parse("session-2").unwrap());
    let first = Batch {
        peers: vec![entry(1, 1), bound.clone(), entry(3, 1)],
        wire_sessions: vec![wire_session("a"), wire_session("b")],
        ..Batch::default()
    };
    journal.write(&first).unwrap();
    let second = Batch {
        peers: vec![entry(1, 2)],
        peers_deleted: vec![PeerId::new(3).unwrap()],
        wire_sessions_deleted: vec!["a".to_owned()],
        ..Batch::default()
    };
    journal.write(&second).unwrap();
    drop(journal);

    let loaded = scratch.open(2).load().unwrap();

    assert_eq!(loaded.peers, [entry(1, 2), bound]);
    assert_eq!(loaded.wire_sessions, [wire_session("b")]);
    assert_eq!(loaded.refused, []);
}

#[test]
fn a_row_that_cannot_be_read_is_named_and_stays() {
    let scratch = Scratch::new();
    let mut journal = scratch.open(1);
    let peers = (1..=4).map(|id| entry(id, 1)).collect();
    let wire_sessions = vec![wire_session("a")];
    journal
        .write(&Batch {
            peers,
            wire_sessions,
            ..Batch::default()
        })
        .unwrap();
    drop(journal);
    scratch
        .sqlite()
        .execute_batch(
            "UPDATE peer SET record = '{\"id\":1,\"key\":\"secret' WHERE id = 1;
             UPDATE peer SET record = (SELECT record FROM peer WHERE id = 4) WHERE id = 2;
             UPDATE peer SET session = 'not a session' WHERE id = 3;
             UPDATE wire_session SET record = '[\"secret\"]' WHERE id = 'a';",
        )
        .unwrap();
    let mut journal = scratch.open(2);

    let loaded = journal.load().unwrap();

    assert_eq!(loaded.peers, [entry(4, 1)]);
    let named: Vec<_> = loaded.refused.iter().map(|r| (r.table, r.row)).collect();
    assert_eq!(
        named,
        [("peer", 1), ("peer", 2), ("peer", 3), ("wire_session", 1)]
    );
    for refused in &loaded.refused {
        assert!(!refused.to_string().contains("secret"), "{refused}");
    }
    drop(journal);
    let rows: i64 = scratch
        .sqlite()
        .query_row("SELECT count(*) FROM peer", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 4);
}

#[test]
fn a_result_has_a_bound() {
    let scratch = Scratch::new();
    let mut journal = scratch.open(1);
    let Begun::Run(execution) = journal.begin(&command(1, 1)).unwrap() else {
        panic!("it was not run before");
    };

    let refused = execution.finish(&put(entry(1, 1)), vec![0; RESULT_BYTES_MAX + 1]);

    assert!(matches!(
        refused.unwrap_err(),
        CommitError::ResultTooLarge { .. }
    ));
    assert_eq!(journal.load().unwrap().peers, []);
    let large = vec![0; RESULT_BYTES_MAX];
    run(&mut journal, &command(1, 1), &Batch::default(), &large).into_result();
}

#[test]
fn who_acknowledges_nothing_has_its_oldest_results_dropped() {
    let scratch = Scratch::new();
    let mut journal = scratch.open(1);
    run(&mut journal, &command(1, 1), &Batch::default(), b"r").into_result();
    let most = u64::try_from(UNACKED_MAX).unwrap();
    let sql = "INSERT INTO done (seat, n, digest, result)
               WITH RECURSIVE more (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM more LIMIT ?1)
               SELECT seat, more.n, digest, result FROM done, more";
    let rows = i64::try_from(UNACKED_MAX).unwrap() - 1;
    scratch.sqlite().execute(sql, [rows]).unwrap();

    for n in [most + 1, most + 2] {
        run(&mut journal, &command(1, n), &Batch::default(), b"r").into_result();
    }

    assert_eq!(fate(&mut journal, &command(1, 2)), Fate::Gone);
    assert_eq!(
        fate(&mut journal, &command(1, 3)),
        Fate::Answered(b"r".to_vec())
    );
    drop(journal);
    let rows: isize = scratch
        .sqlite()
        .query_row("SELECT count(*) FROM done", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, isize::try_from(UNACKED_MAX).unwrap());
}

#[test]
fn the_seat_that_was_silent_longest_is_forgotten_first() {
    let scratch = Scratch::new();
    let mut journal = scratch.open(1);
    for seat in 1..=2 {
        run(&mut journal, &command(seat, 1), &Batch::default(), b"r").into_result();
    }
    // Seat 1 speaks again, so that seat 2 is the silent one.
    run(&mut journal, &command(1, 2), &Batch::default(), b"r").into_result();
    let sql = "INSERT INTO floor (seat, n, used)
               WITH RECURSIVE seats (i) AS (SELECT 4 UNION ALL SELECT i + 1 FROM seats LIMIT ?1)
               SELECT CAST(i AS BLOB), 1, i FROM seats";
    scratch
        .sqlite()
        .execute(sql, [i64::try_from(SEATS_MAX).unwrap() - 2])
        .unwrap();

    run(&mut journal, &command(3, 1), &Batch::default(), b"r").into_result();

    assert_eq!(fate(&mut journal, &command(1, 3)), Fate::Run);
    assert_eq!(fate(&mut journal, &command(2, 2)), Fate::Gone);
    assert_eq!(fate(&mut journal, &command(3, 2)), Fate::Run);
    drop(journal);
    let (seats, orphans): (isize, isize) = scratch
        .sqlite()
        .query_row(
            "SELECT (SELECT count(*) FROM floor),
                    (SELECT count(*) FROM done WHERE seat NOT IN (SELECT seat FROM floor))",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!((seats, orphans), (isize::try_from(SEATS_MAX).unwrap(), 0));
}
