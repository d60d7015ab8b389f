//! Wire sessions across the end of a node, and the caps on them.

use std::sync::atomic::Ordering;

use earshot_capability::{Code, Failure};
use earshot_trust::{Seat, SessionId};
use futures_util::future::join_all;
use proptest::prelude::*;

use super::*;

const GONE: &str = "11111111-2222-4333-8444-555555555555";

fn session(id: &str) -> (&str, &str) {
    ("mcp-session-id", id)
}

fn full_disk() -> Failure {
    Failure::new(Code::Unavailable, "the disk is full", "Make room.")
}

impl World {
    /// Starts the successor of a node that crashed.
    fn after_crash(&self) -> Self {
        Self::of(Arc::clone(&self.host), |_| {})
    }

    fn lookups(&self) -> usize {
        self.host.lookups.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_session_survives_a_crash_with_all_that_was_agreed() {
    let world = World::new();
    let id = world.open().await;
    let kept = world.host.kept.lock().unwrap().get(&id).cloned().unwrap();
    assert_eq!(kept["protocolVersion"], "2025-06-18");
    assert_eq!(kept["clientInfo"]["name"], "bank");
    let world = world.after_crash();
    let answer = world.call(&id, "sample_echo", json!({ "text": "a" })).await;
    let content = &answer["result"]["structuredContent"];
    assert_eq!(content["wire_session"], id.as_str());
    assert_eq!(content["client"], "bank");
    assert_eq!(world.host.greetings(), 1, "its client is attached already");
    assert_eq!(world.host.kept_sessions(), [id.as_str()]);
    let again = world.post(&[session(&id)], INITIALIZE).await;
    assert_eq!(again.header("mcp-session-id"), Some(id.as_str()));
    assert_eq!(again.json()["result"]["instructions"], "You are p1.");
    assert_eq!(world.service.wire_sessions(), 1);
    assert_eq!(world.host.kept_sessions(), [id.as_str()]);
}

#[tokio::test]
async fn the_version_that_was_settled_is_kept_and_not_the_one_that_was_offered() {
    let world = World::new();
    let offered = INITIALIZE.replace("2025-06-18", "2099-01-01");
    world.post(&[], offered).await;
    let kept = world.host.kept.lock().unwrap().values().next().cloned();
    assert_eq!(kept.unwrap()["protocolVersion"], "2025-11-25");
}

#[tokio::test]
async fn every_method_finds_a_session_that_only_the_host_keeps() {
    let world = World::new();
    let id = world.open().await;
    let accept = ("accept", "text/event-stream");
    let noted = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    for (method, headers, body, status) in [
        ("POST", vec![JSON, BOTH], PING, 200),
        ("POST", vec![JSON, BOTH], noted, 202),
        ("GET", vec![accept], "", 200),
        ("HEAD", vec![], "", 204),
        ("DELETE", vec![], "", 204),
    ] {
        let world = world.after_crash();
        let mut headers = headers;
        headers.push(session(&id));
        let answer = world.send(method, &headers, body).await;
        assert_eq!(answer.status(), status, "{method}");
        let here = usize::from(method != "DELETE");
        assert_eq!(world.service.wire_sessions(), here, "{method}");
        assert_eq!(world.lookups(), 1, "{method}");
        world.host.lookups.store(0, Ordering::SeqCst);
    }
    assert_eq!(world.host.kept_sessions(), [""; 0]);
}

#[tokio::test]
async fn only_a_well_formed_id_is_looked_up() {
    let world = World::new();
    for (id, lookups) in [
        (GONE, 1),
        ("../../etc/passwd", 0),
        ("11111111-2222-4333-8444-55555555555", 0),
        ("11111111-2222-4333-8444-5555555555555", 0),
        ("11111111-2222-4333-8444-55555555555G", 0),
        ("11111111-2222-4333-8444-55555555555A", 0),
        ("111111111222-4333-8444-5555555-55555", 0),
        ("é1111111-2222-4333-8444-55555555555", 0),
    ] {
        world.host.lookups.store(0, Ordering::SeqCst);
        let answer = world.post(&[session(id)], PING).await;
        assert_eq!(answer.status, if id.is_ascii() { 404 } else { 400 }, "{id}");
        assert_eq!(world.lookups(), lookups, "{id}");
    }
    assert_eq!(world.ask("DELETE", &[session(GONE)], "").await.status, 404);
    assert_eq!(world.ask("HEAD", &[session(GONE)], "").await.status, 404);
    assert_eq!(world.service.wire_sessions(), 0);
}

#[tokio::test]
async fn many_requests_at_once_bring_a_session_back_once() {
    let before = World::new();
    let id = before.open().await;
    let world = before.after_crash();
    let closed = world.host.gate.acquire().await.unwrap();
    let headers = [session(&id)];
    let ping = |n: usize| PING.replace('7', &n.to_string());
    let asking = join_all((0..8).map(|n| world.post(&headers, ping(n))));
    let opening = async {
        wait_for(|| world.lookups() > 0).await;
        drop(closed);
    };
    let (answers, ()) = tokio::join!(asking, opening);
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(world.lookups(), 1);
    assert_eq!(world.service.wire_sessions(), 1);
}

#[tokio::test]
async fn a_request_that_is_given_up_does_not_undo_the_return_of_its_session() {
    let before = World::new();
    let id = before.open().await;
    let world = before.after_crash();
    let closed = world.host.gate.acquire().await.unwrap();
    let headers = [JSON, BOTH, session(&id)];
    tokio::select! {
        _ = world.send("POST", &headers, PING) => panic!("the host does not answer yet"),
        () = wait_for(|| world.lookups() == 1) => {}
    }
    drop(closed);
    wait_for(|| world.service.wire_sessions() == 1).await;
    assert_eq!(world.post(&[session(&id)], PING).await.status, 200);
    assert_eq!(world.lookups(), 1);
}

#[tokio::test]
async fn a_host_that_cannot_say_is_not_a_session_that_is_lost() {
    let before = World::new();
    let id = before.open().await;
    let world = before.after_crash();
    *world.host.broken.lock().unwrap() = Some(full_disk());
    let answer = world.post(&[session(&id)], PING).await;
    assert_eq!(answer.error(), (503, -32000, json!(7)));
    let data = &answer.json()["error"]["data"];
    assert_eq!(data["code"], "unavailable");
    assert_eq!(data["remedy"], "Make room.");
    assert!(data["request_id"].is_string());
    for method in ["HEAD", "DELETE"] {
        let answer = world.ask(method, &[session(&id)], "").await;
        assert_eq!(answer.error(), (503, -32000, Value::Null), "{method}");
    }
    *world.host.broken.lock().unwrap() = None;
    assert_eq!(world.post(&[session(&id)], PING).await.status, 200);
}

#[tokio::test]
async fn a_session_that_cannot_be_kept_is_not_opened() {
    let world = World::new();
    *world.host.broken.lock().unwrap() = Some(full_disk());
    let answer = world.post(&[], INITIALIZE).await;
    assert_eq!(answer.error(), (503, -32000, json!(1)));
    assert_eq!(answer.json()["error"]["data"]["code"], "unavailable");
    assert_eq!(answer.header("mcp-session-id"), None);
    assert_eq!(world.host.greetings(), 0, "nobody is attached by it");
    wait_for(|| world.service.wire_sessions() == 0).await;
    *world.host.broken.lock().unwrap() = None;
    let long = INITIALIZE.replace("bank", &"x".repeat(70_000));
    let answer = world.post(&[], long).await;
    assert_eq!(answer.error(), (413, -32000, json!(1)));
    assert_eq!(world.host.kept_sessions(), [""; 0]);
}

#[tokio::test]
async fn a_client_that_is_turned_away_leaves_nothing_at_the_host() {
    let world = World::new();
    *world.host.refusing.lock().unwrap() = Some(full_disk());
    assert_eq!(world.post(&[], INITIALIZE).await.status, 503);
    assert_eq!(world.host.kept_sessions(), [""; 0]);
}

#[tokio::test]
async fn what_is_kept_and_cannot_be_read_is_ended() {
    let world = World::new();
    let unreadable = json!({ "protocolVersion": 5 });
    let kept = &world.host.kept;
    kept.lock().unwrap().insert(GONE.to_owned(), unreadable);
    let answer = world.post(&[session(GONE)], PING).await;
    assert_eq!(answer.error(), (404, -32001, json!(7)));
    assert_eq!(world.host.kept_sessions(), [""; 0]);
    assert_eq!(world.service.wire_sessions(), 0);
}

#[tokio::test]
async fn a_session_that_only_the_host_keeps_is_deleted_there_once() {
    let before = World::new();
    let id = before.open().await;
    let world = before.after_crash();
    let headers = [session(&id)];
    let closed = world.host.gate.acquire().await.unwrap();
    let deleting = join_all((0..3).map(|_| world.ask("DELETE", &headers, "")));
    let asking = async {
        wait_for(|| world.lookups() == 1).await;
        // The host goes on only once this one waits too.
        let (asked, ()) = tokio::join!(world.post(&headers, PING), async { drop(closed) });
        asked
    };
    let (deleted, asked) = tokio::join!(deleting, asking);
    let mut statuses: Vec<u16> = deleted.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [204, 404, 404]);
    assert_eq!(asked.status, 404, "what is being ended is not brought back");
    assert_eq!(world.host.kept_sessions(), [""; 0]);
    let left = world.host.left.lock().unwrap().clone();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].wire_session.as_deref(), Some(id.as_str()));
}

#[tokio::test(start_paused = true)]
async fn silence_ends_a_session_at_the_host_too_and_the_stop_of_a_node_does_not() {
    let before = World::new();
    let stays = before.open().await;
    before.shutdown.cancel();
    wait_for(|| before.service.wire_sessions() == 0).await;
    let answer = before.post(&[session(&stays)], PING).await;
    assert_eq!(answer.error(), (503, -32000, json!(7)), "it is stopping");
    assert_eq!(before.host.kept_sessions(), [stays.as_str()]);

    let world = before.after_crash();
    world.open().await;
    assert_eq!(world.post(&[session(&stays)], PING).await.status, 200);
    assert_eq!(world.service.wire_sessions(), 2);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(world.service.wire_sessions(), 0);
    assert_eq!(world.host.kept_sessions(), [""; 0]);
    assert_eq!(world.post(&[session(&stays)], PING).await.status, 404);
}

#[tokio::test]
async fn a_full_house_has_no_room_for_one_that_comes_back() {
    let before = World::new();
    let id = before.open().await;
    let world = World::of(Arc::clone(&before.host), |it| it.sessions_max = 1);
    let other = world.open().await;
    let answer = world.post(&[session(&id)], PING).await;
    assert_eq!(answer.error(), (429, -32000, json!(7)));
    assert_eq!(answer.header("retry-after"), Some("15"));
    world.ask("DELETE", &[session(&other)], "").await;
    assert_eq!(world.post(&[session(&id)], PING).await.status, 200);
    assert_eq!(world.post(&[], INITIALIZE).await.status, 429, "it counts");
}

#[tokio::test]
async fn a_third_session_of_a_seat_takes_the_place_of_its_own_quietest() {
    let mut world = World::new();
    let stranger = world.open().await;
    world.caller.seat = Some(Seat::new([7; 16]));
    let (first, second) = (world.open().await, world.open().await);
    assert_eq!(world.post(&[session(&first)], PING).await.status, 200);
    let third = world.open().await;
    wait_for(|| world.host.kept_sessions().len() == 3).await;
    assert_eq!(world.post(&[session(&second)], PING).await.status, 404);
    for id in [&stranger, &first, &third] {
        assert_eq!(world.post(&[session(id)], PING).await.status, 200);
    }
    let accept = ("accept", "text/event-stream");
    let _one = world.send("GET", &[accept, session(&first)], "").await;
    let _two = world.send("GET", &[accept, session(&third)], "").await;
    let answer = world.post(&[], INITIALIZE).await;
    assert_eq!(answer.error(), (429, -32000, json!(1)), "both are in use");
    assert_eq!(answer.header("retry-after"), Some("15"));
    assert!(answer.text.contains("this client"), "{}", answer.text);
}

#[tokio::test(start_paused = true)]
async fn an_execution_session_has_a_cap_that_only_its_silent_sessions_give_way_to() {
    let mut world = World::new();
    world.caller.session = Some(SessionId::parse("s-1").unwrap());
    let opened = join_all((0..64).map(|_| world.open())).await;
    let answer = world.post(&[], INITIALIZE).await;
    assert_eq!(answer.error(), (429, -32000, json!(1)));
    assert!(answer.text.contains("this execution session"));
    world.caller.session = Some(SessionId::parse("s-2").unwrap());
    world.open().await;
    world.caller.session = Some(SessionId::parse("s-1").unwrap());
    world.ask("DELETE", &[session(&opened[0])], "").await;
    world.open().await;
    assert_eq!(world.post(&[], INITIALIZE).await.status, 429);
    assert_eq!(world.service.wire_sessions(), 65);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_while_it_opens_leaves_nothing_for_good() {
    let world = World::new();
    let closed = world.host.gate.acquire().await.unwrap();
    tokio::select! {
        _ = world.send("POST", &[JSON, BOTH], INITIALIZE) => panic!("nothing is kept yet"),
        () = wait_for(|| world.service.wire_sessions() == 1) => {}
    }
    drop(closed);
    wait_for(|| world.host.kept_sessions().len() == 1).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(world.host.kept_sessions(), [""; 0]);
    assert_eq!(world.service.wire_sessions(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_ping_is_heard_and_keeps_its_session() {
    let mut world = World::new();
    let id = world.open().await;
    let touched = || world.host.touched.load(Ordering::SeqCst);
    let before = touched();
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_mins(1)).await;
        let answer = world.ask("HEAD", &[session(&id)], "").await;
        assert_eq!((answer.status, answer.text.as_str()), (204, ""));
    }
    assert_eq!(touched() - before, 10);
    assert_eq!(world.ask("HEAD", &[], "").await.status, 405);
    assert_eq!(touched() - before, 10, "nobody pinged");
    world.caller.seat = Some(Seat::new([7; 16]));
    assert_eq!(world.ask("HEAD", &[], "").await.status, 204);
    let gone = world.ask("HEAD", &[session(GONE)], "").await;
    assert_eq!(gone.status, 404, "its session is gone, the seat is not");
    assert_eq!(world.host.touched.load(Ordering::SeqCst) - before, 12);
}

#[tokio::test]
async fn a_seat_without_a_row_is_told_so_when_it_opens() {
    let mut world = World::new();
    for (seat, absent, told) in [
        (false, true, None),
        (true, false, None),
        (true, true, Some("absent")),
    ] {
        world.caller.seat = seat.then(|| Seat::new([7; 16]));
        world.host.row_absent.store(absent, Ordering::SeqCst);
        let answer = world.post(&[], INITIALIZE).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("earshot-row"), told, "{seat} {absent}");
        let id = answer.header("mcp-session-id").unwrap().to_owned();
        let ping = world.post(&[session(&id)], PING).await;
        assert_eq!(ping.header("earshot-row"), None);
    }
    *world.host.refusing.lock().unwrap() = Some(full_disk());
    let refused = world.post(&[], INITIALIZE).await;
    assert_eq!(refused.header("earshot-row"), None);
}

#[derive(Debug, Clone)]
enum Step {
    Open,
    Use(usize),
    Delete(usize),
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => Just(Step::Open),
        4 => (0_usize..6).prop_map(Step::Use),
        2 => (0_usize..6).prop_map(Step::Delete),
        1 => Just(Step::Crash),
    ];
    proptest::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever happens, a session answers until its client ends it, and the host keeps just
    /// those that answer.
    #[test]
    fn a_session_lives_from_its_opening_to_its_deletion(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new();
            let mut all: Vec<(String, bool)> = vec![];
            for step in steps {
                match step {
                    Step::Open => all.push((world.open().await, true)),
                    Step::Use(at) => if let Some((id, alive)) = all.get(at) {
                        let status = world.post(&[session(id)], PING).await.status;
                        assert_eq!(status, if *alive { 200 } else { 404 });
                    },
                    Step::Delete(at) => if let Some((id, alive)) = all.get_mut(at) {
                        let status = world.ask("DELETE", &[session(id)], "").await.status;
                        assert_eq!(status, if *alive { 204 } else { 404 });
                        *alive = false;
                    },
                    Step::Crash => world = world.after_crash(),
                }
                let mut alive: Vec<_> = all.iter().filter(|it| it.1).map(|it| it.0.clone()).collect();
                alive.sort_unstable();
                assert_eq!(world.host.kept_sessions(), alive);
            }
        });
    }
}
