//! Journals that earlier releases wrote.

use earshot_proto::{
    board::{
        PeerKey,
        record::{AddressRecord, KeyRecord, PeerRecord, TransportRecord, WordRecord},
    },
    lease::{BodyDigest, Epoch},
};
use earshot_store::{CommandKey, Fence, Journal, PeerEntry, SeatHash};
use earshot_trust::SessionId;

use crate::scratch::{Fate, Scratch, fate, wire_session};

const SCHEMA_1: &str = include_str!("../fixtures/journal-1.sql");

fn written_as(sql: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.sqlite().execute_batch(sql).unwrap();
    scratch
}

fn departed() -> PeerEntry {
    PeerEntry {
        record: PeerRecord {
            id: 2,
            key: KeyRecord::Cli {
                pid: 4_242,
                started_at: 99,
            },
            client_name: "earshot".to_owned(),
            client_version: "0.1.0".to_owned(),
            transport: TransportRecord::Cli,
            branch: None,
            address: Some(AddressRecord {
                machine: "desk".to_owned(),
                pid: Some(4_242),
                pid_started_at: Some(99),
                session: None,
                socket: None,
            }),
            attached_at_ms: 1_760_000_000_000,
            last_seen_ms: 1_760_000_000_500,
            departed: Some(3),
            word: WordRecord::Withdrawn { n: 4 },
            notices: vec![1],
            notices_dropped: 1,
        },
        session: None,
    }
}

#[test]
fn a_journal_of_schema_1_is_read() {
    let scratch = written_as(SCHEMA_1);
    let fence = Journal::fence_of(&scratch.path()).unwrap();
    let epoch = Epoch::new(1_760_000_000_000);
    assert_eq!(
        fence,
        Some(Fence {
            epoch,
            drained: true
        })
    );
    let mut journal = scratch.open(1_760_000_000_001);

    let loaded = journal.load().unwrap();

    assert_eq!(loaded.refused, []);
    let [seated, gone] = loaded.peers.as_slice() else {
        panic!("{:?}", loaded.peers);
    };
    let seat = "00112233445566778899aabbccddeeff";
    assert_eq!(seated.record.key, KeyRecord::Seat(seat.to_owned()));
    assert_eq!(seated.session, Some(SessionId::parse("session-1").unwrap()));
    let intent = "moves the parser".to_owned();
    let paths = vec!["src/parser".to_owned()];
    let at_ms = 1_760_000_000_000;
    assert_eq!(
        seated.record.word,
        WordRecord::Announced {
            n: 2,
            intent,
            paths,
            at_ms
        }
    );
    assert_eq!(*gone, departed());
    assert_eq!(loaded.wire_sessions, [wire_session("wire-1")]);
}

#[test]
fn the_commands_of_schema_1_are_known() {
    let scratch = written_as(SCHEMA_1);
    let mut journal = scratch.open(1_760_000_000_001);
    let key = PeerKey::Seat(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes());
    for (n, want) in [
        (1, Fate::Gone),
        (2, Fate::Answered(b"{\"ok\":true}".to_vec())),
        (3, Fate::OutcomeUnknown),
        (4, Fate::Run),
    ] {
        let command = CommandKey {
            seat: SeatHash::of(&key),
            n,
            digest: BodyDigest::new([0xab; 16]),
            acked: 1,
            idempotent: false,
        };
        assert_eq!(fate(&mut journal, &command), want, "{n}");
    }
}

#[test]
fn a_new_journal_has_the_tables_of_the_newest_fixture() {
    let schema = |scratch: &Scratch| -> Vec<(String, Option<String>)> {
        let connection = scratch.sqlite();
        let mut statement = connection
            .prepare("SELECT name, sql FROM sqlite_schema ORDER BY name")
            .unwrap();
        let rows = statement
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        rows.map(Result::unwrap).collect()
    };
    let new = Scratch::new();
    drop(new.open(1));
    assert_eq!(schema(&new), schema(&written_as(SCHEMA_1)));
}
