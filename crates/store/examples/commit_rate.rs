//! Prints how many commands a second a journal takes, each with its row and its own sync.
//!
//! `cargo run --release -p earshot-store --example commit_rate -- FOLDER`, the folder on the disk
//! to be measured.

use std::{path::Path, time::Instant};

use earshot_proto::{
    board::{
        PeerKey,
        record::{KeyRecord, PeerRecord, TransportRecord, WordRecord},
    },
    lease::{BodyDigest, Epoch},
};
use earshot_store::{Batch, Begun, CommandKey, Journal, PeerEntry, SeatHash};

const COMMANDS: u64 = 4_000;
const PEERS: u64 = 16_384;

#[expect(clippy::print_stdout, reason = "printing is what this is for")]
#[expect(clippy::disallowed_methods, reason = "time is what this measures")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("name a folder")?;
    let path = Path::new(&folder).join("commit-rate.db");
    let mut journal = Journal::open(&path, "checkout", Epoch::new(1))?;
    let begun = Instant::now();
    for n in 1..=COMMANDS {
        command(&mut journal, n)?;
    }
    let elapsed = begun.elapsed();
    println!(
        "{:.0} commands/s",
        f64::from(u32::try_from(COMMANDS)?) / elapsed.as_secs_f64()
    );

    let peers = (1..=PEERS).map(|id| entry(id, 1)).collect();
    journal.write(&Batch {
        peers,
        ..Batch::default()
    })?;
    drop(journal);
    let begun = Instant::now();
    let mut journal = Journal::open(&path, "checkout", Epoch::new(2))?;
    let opened = begun.elapsed();
    let loaded = journal.load()?.peers.len();
    println!(
        "opened after {opened:?}, {loaded} rows loaded after {:?}",
        begun.elapsed()
    );
    Ok(())
}

fn command(journal: &mut Journal, n: u64) -> Result<(), Box<dyn std::error::Error>> {
    let key = CommandKey {
        seat: SeatHash::of(&PeerKey::Seat([1; 16])),
        n,
        digest: BodyDigest::new([2; 16]),
        acked: n - 1,
        idempotent: false,
    };
    let Begun::Run(execution) = journal.begin(&key)? else {
        return Err("the command is not run".into());
    };
    let effect = Batch {
        peers: vec![entry(n % 200 + 1, n)],
        ..Batch::default()
    };
    assert!(
        !execution
            .finish(&effect, vec![b'x'; 400])?
            .into_result()
            .is_empty()
    );
    Ok(())
}

fn entry(id: u64, n: u64) -> PeerEntry {
    let record = PeerRecord {
        id,
        key: KeyRecord::Seat(format!("{id:032x}")),
        client_name: "client".to_owned(),
        client_version: "1.0".to_owned(),
        transport: TransportRecord::Stdio,
        branch: Some("main".to_owned()),
        address: None,
        attached_at_ms: 1,
        last_seen_ms: 1,
        departed: None,
        word: WordRecord::Announced {
            n,
            intent: "moves the parser".to_owned(),
            paths: vec!["src/parser".to_owned(), "src/lib.rs".to_owned()],
            at_ms: 1,
        },
        notices: Vec::new(),
        notices_dropped: 0,
    };
    PeerEntry {
        record,
        session: None,
    }
}
