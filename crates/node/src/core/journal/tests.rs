//! What is acknowledged is on the disk, and what is repeated runs once (`attacks.md` 1, 2, 16, 17).

use earshot_capability::{Caller, Dispatcher, RequestNumber};
use earshot_checkout::{Checkout, CheckoutKind};
use earshot_proto::claims::Case;
use earshot_trust::{Origin, Seat, Surface};
use serde_json::{Value, json};

use super::*;
use crate::{
    capabilities::{self, Serving},
    core::About,
};

/// A node with a journal, and the dispatcher that agents reach it through.
struct Fixture {
    node: NodeHandle,
    dispatcher: Arc<Dispatcher>,
}

impl Fixture {
    /// Starts a node of this epoch. In a thread of its own, for it blocks.
    async fn start(journal: PathBuf, epoch: u64) -> Self {
        let root = journal.parent().unwrap().to_owned();
        let checkout = Checkout {
            root,
            kind: CheckoutKind::Folder,
            git_dir: None,
            common_dir: None,
            device: 0,
            inode: 0,
        };
        let about = About {
            checkout,
            url: Arc::default(),
            machine: "m".to_owned(),
            idle: None,
            checkout_id: "c".to_owned(),
            alone: None,
        };
        let node = NodeHandle::start(about, Case::Kept, Some("main")).unwrap();
        let opening = node.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let fenced = opening.raise_fence(journal, Epoch::new(epoch), Locked::Wait);
            (fenced, opening.import())
        });
        let (fenced, imported) = opened.await.unwrap();
        assert!(matches!(fenced, Fenced::Raised), "{fenced:?}");
        imported.unwrap();
        let dispatcher = capabilities::dispatcher(&node, Serving::default(), "t".to_owned());
        Self { node, dispatcher }
    }

    async fn call(&self, caller: Caller, id: &str, input: Value) -> Result<Value, Failure> {
        let call = self
            .dispatcher
            .context(Arc::new(caller), self.dispatcher.request_id());
        let answer = self.dispatcher.call(id, call, input).await?;
        Ok(Value::Object(answer.structured().unwrap_or_default()))
    }

    async fn announce(&self, seat: u8, n: u64, intent: &str) -> Result<Value, Failure> {
        let input = json!({ "intent": intent, "paths": ["src"] });
        self.call(caller(seat, n), "peers.announce", input).await
    }

    async fn intents(&self) -> Vec<String> {
        let board = self
            .call(caller(99, 1), "peers.list", json!({}))
            .await
            .unwrap();
        let peers = board["peers"].as_array().unwrap();
        let said = peers
            .iter()
            .filter_map(|peer| peer["announcement"]["intent"].as_str());
        said.map(str::to_owned).collect()
    }
}

fn caller(seat: u8, n: u64) -> Caller {
    let mut caller = Caller::anonymous(Origin::Socket, Surface::Mcp);
    caller.seat = Some(Seat::new([seat; 16]));
    caller.request = Some(RequestNumber { n, acked: 0 });
    caller
}

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.db");
    (folder, journal)
}

#[tokio::test]
async fn a_repeated_command_answers_the_same_and_runs_once() {
    let (_folder, journal) = scratch();
    let node = Fixture::start(journal.clone(), 1).await;
    let first = node.announce(1, 1, "a").await.unwrap();
    node.announce(2, 1, "b").await.unwrap();
    // The board has moved on, and the answer is the old one all the same.
    assert_eq!(
        node.announce(1, 1, "a").await.unwrap()["collisions"],
        first["collisions"]
    );
    assert_eq!(
        node.announce(1, 1, "other").await.unwrap_err().code,
        Code::Conflict
    );
    // Also after a crash.
    let next = Fixture::start(journal, 2).await;
    assert_eq!(
        next.announce(1, 1, "a").await.unwrap()["collisions"],
        first["collisions"]
    );
    assert_eq!(next.intents().await, ["a", "b"]);
}

#[tokio::test]
async fn a_refusal_is_repeated_too() {
    let (_folder, journal) = scratch();
    let node = Fixture::start(journal, 1).await;
    let withdraw = |n| node.call(caller(1, n), "peers.withdraw", json!({ "ticket": "x" }));
    let refused = withdraw(1).await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidInput);
    assert_eq!(withdraw(1).await.unwrap_err(), refused);
}

#[tokio::test]
async fn a_seat_that_the_journal_never_met_loses_one_command_and_no_more() {
    let (_folder, journal) = scratch();
    let node = Fixture::start(journal, 1).await;
    let withdraw = |n| node.call(caller(1, n), "peers.withdraw", json!({}));
    assert_eq!(withdraw(7).await.unwrap_err().code, Code::Gone);
    assert_eq!(withdraw(6).await.unwrap_err().code, Code::Gone);
    assert_eq!(withdraw(8).await.unwrap(), json!({ "withdrawn": false }));
}

#[tokio::test]
async fn an_announcement_carries_its_own_order() {
    let (_folder, journal) = scratch();
    let node = Fixture::start(journal, 1).await;
    // Said again on a node that knows nothing of the seat, with its original number.
    node.announce(1, 5, "again").await.unwrap();
    node.announce(1, 9, "newer").await.unwrap();
    node.announce(1, 6, "older").await.unwrap();
    assert_eq!(node.intents().await, ["newer"]);
}

#[tokio::test]
async fn the_next_node_has_the_rows_and_the_older_one_can_write_nothing() {
    let (_folder, journal) = scratch();
    let old = Fixture::start(journal.clone(), 1).await;
    old.announce(1, 1, "a").await.unwrap();
    let new = Fixture::start(journal, 2).await;
    assert_eq!(new.intents().await, ["a"]);
    let late = caller(1, 2);
    let abandoned = late.abandoned.clone();
    let input = json!({ "intent": "late", "paths": [] });
    assert_eq!(
        old.call(late, "peers.announce", input)
            .await
            .unwrap_err()
            .code,
        Code::Unavailable
    );
    assert!(
        abandoned.is_set(),
        "its surface must say that it was not executed"
    );
    assert_eq!(new.intents().await, ["a"]);
}

#[tokio::test]
async fn a_process_whose_state_was_wiped_carries_over_what_it_acknowledged() {
    let (folder, journal) = scratch();
    let node = Fixture::start(journal.clone(), 1).await;
    node.announce(1, 1, "a").await.unwrap();
    for entry in fs_err::read_dir(folder.path()).unwrap() {
        fs_err::remove_file(entry.unwrap().path()).unwrap();
    }
    let again = node.node.clone();
    let reopened = journal.clone();
    let in_place = tokio::task::spawn_blocking(move || {
        let in_place = again.is_journal_in_place();
        again.stop_writes();
        assert!(matches!(
            again.raise_fence(reopened, Epoch::new(2), Locked::Wait),
            Fenced::Raised
        ));
        again.import().unwrap();
        in_place
    });
    assert!(!in_place.await.unwrap(), "the wipe is noticed");
    assert_eq!(node.intents().await, ["a"]);
    // What may have run before the wipe does not run again; what comes next does.
    let withdraw = |n| node.call(caller(1, n), "peers.withdraw", json!({}));
    assert_eq!(withdraw(1).await.unwrap_err().code, Code::Gone);
    assert_eq!(Fixture::start(journal, 3).await.intents().await, ["a"]);
}

#[tokio::test]
async fn a_journal_that_cannot_be_used_is_put_aside_and_kept() {
    let (folder, journal) = scratch();
    fs_err::write(&journal, b"this is no database, but somebody's file").unwrap();
    let node = Fixture::start(journal, 7).await;
    node.announce(1, 1, "a").await.unwrap();
    let aside = folder.path().join("journal.db.aside-7");
    assert_eq!(
        fs_err::read(aside).unwrap(),
        b"this is no database, but somebody's file"
    );
}

#[tokio::test]
async fn wire_sessions_survive_a_crash_and_end_with_an_ordered_stop() {
    let (_folder, journal) = scratch();
    let node = Fixture::start(journal.clone(), 1).await;
    let hello = json!({ "protocolVersion": "2025-06-18" });
    let mut direct = caller(1, 1);
    direct.seat = None;
    direct.request = None;
    node.node
        .session_opened("id", hello.clone(), &direct)
        .await
        .unwrap();
    let next = Fixture::start(journal.clone(), 2).await;
    assert_eq!(next.node.session_lookup("id").await.unwrap(), Some(hello));
    next.node.drain().await.unwrap();
    let last = Fixture::start(journal, 3).await;
    assert_eq!(last.node.session_lookup("id").await.unwrap(), None);
}

#[tokio::test]
async fn without_a_journal_nothing_is_executed() {
    let (folder, _) = scratch();
    let node = Fixture::start(folder.path().join("journal.db"), 1).await;
    let stopping = node.node.clone();
    tokio::task::spawn_blocking(move || stopping.stop_writes())
        .await
        .unwrap();
    assert_eq!(
        node.announce(1, 1, "a").await.unwrap_err().code,
        Code::Unavailable
    );
}

#[tokio::test]
async fn a_seat_keeps_its_first_session_and_takes_calls_of_other_threads() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Fixture::start(folder.path().join("journal.db"), 1).await;
    let said = |n, session: &str, of_call| {
        let mut caller = caller(1, n);
        caller.session = Some(earshot_trust::SessionId::parse(session).unwrap());
        caller.session_of_call = of_call;
        let input = json!({ "intent": session, "paths": ["src"] });
        fixture.call(caller, "peers.announce", input)
    };
    let first = said(1, "t-1", true).await.unwrap();
    let second = said(2, "t-2", true).await.unwrap();
    assert_eq!(first["peer"], second["peer"]);
    let other = said(3, "t-3", false).await.unwrap_err();
    assert_eq!(other.code, Code::Conflict);
    assert_eq!(fixture.intents().await, ["t-2"]);
}
