//! A node that dies or stops between two steps: while it starts, and inside a write.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use earshot_testkit::process::{
    Answer, Load, StdioClient, WireClient, World, eventually, is_running, kill, resume,
    skip_unless_root, skip_without,
};
use serde_json::{Value, json};

/// Longest time until something that was started is there.
const AGAIN: Duration = Duration::from_secs(10);

/// `stale_after`, and what a successor needs besides.
const AFTER_HANG: Duration = Duration::from_secs(20);

/// The calls to the system by which a starting node changes what others see.
const STEPS: [&str; 6] = ["flock", "fsync", "rename", "bind", "pwrite64", "fdatasync"];

/// A node in the foreground that gets a signal at the n-th call of a kind.
struct Signalled(Child);

impl Signalled {
    fn serve(world: &World, repo: &Path, call: &str, signal: &str, n: u32) -> Self {
        let child = world
            .command("strace", repo)
            .args(["-f", "-qq", "-o", "/dev/null", "-e"])
            .arg(format!("trace={call}"))
            .arg("-e")
            .arg(format!("inject={call}:signal={signal}:when={n}"))
            .arg(World::binary())
            .args(["serve", "--idle", "60"])
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("strace runs"))
    }

    /// Says whether it has ended.
    fn ended(&mut self) -> bool {
        self.0.try_wait().expect("it is a child").is_some()
    }
}

impl Drop for Signalled {
    fn drop(&mut self) {
        self.0.kill().ok(); // it has ended already
        self.0.wait().ok(); // so that no zombie stays
    }
}

#[test]
fn a_start_that_dies_at_any_step_leaves_a_checkout_that_starts() {
    let test = "a_start_that_dies_at_any_step_leaves_a_checkout_that_starts";
    if skip_without("strace", test) {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    let mut client = StdioClient::start(&world, &repo, "alpha");
    client.data("peers_announce", json!({ "intent": "x", "paths": ["src"] }));
    let mut epoch = 0;
    let mut died = 0;
    for call in STEPS {
        for n in 1..=3 {
            kill(world.serving(&repo).expect("a node serves"));
            let mut dying = Signalled::serve(&world, &repo, call, "SIGKILL", n);
            let ended = eventually("it dies, or serves", AGAIN, || {
                let ended = dying.ended();
                (ended || world.serving(&repo).is_some()).then_some(ended)
            });
            died += u32::from(ended);
            let status = world.json(&repo, &["serve", "ensure"]);
            assert_eq!(status["standing"], "ready", "{call} {n}: {status}");
            let now = status["lease_epoch"].as_u64().unwrap();
            assert!(now > epoch, "{call} {n}: the epoch rises: {status}");
            epoch = now;
            let board = client.data("peers_list", json!({}));
            let peer = &board["peers"][0];
            assert_eq!(board["count"], 1, "{call} {n}: {board}");
            assert_eq!(peer["announcement"]["intent"], "x", "{call} {n}: {board}");
        }
    }
    assert!(
        died >= 8,
        "only {died} starts died: the steps have other names by now"
    );
}

#[test]
fn an_elector_stopped_with_the_lease_lock_in_its_hand_lets_no_second_node_in() {
    let test = "an_elector_stopped_with_the_lease_lock_in_its_hand_lets_no_second_node_in";
    if skip_without("strace", test) {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    world.json(&repo, &["up"]);
    world.json(&repo, &["serve", "stop"]);
    // The first rename shows its alive file, the second one its lease.
    let stopped = Signalled::serve(&world, &repo, "rename", "SIGSTOP", 2);
    let elector = wait_until_stopped(|| world.nodes().into_iter().find(|pid| is_no_tracer(*pid)));
    // Whether the wait is over before the refusal that names the holder of the lock is a matter of
    // timings; nobody else serves either way.
    let ran = world.run(&repo, &["serve", "ensure"]);
    assert_eq!(ran.code, Some(10), "{ran:?}");
    let status = world.json(&repo, &["serve", "status"]);
    assert_eq!(status["pid"], json!(elector), "{status}");
    assert_ne!(status["standing"], "ready", "{status}");
    kill(elector);
    assert_eq!(world.json(&repo, &["up"])["standing"], "ready");
    drop(stopped);
    eventually("one node is left", AGAIN, || {
        (world.nodes().len() == 1).then_some(())
    });
}

#[test]
fn a_node_stopped_inside_a_write_is_ended_and_every_command_takes_effect_once() {
    let test = "a_node_stopped_inside_a_write_is_ended_and_every_command_takes_effect_once";
    if skip_without("strace", test) {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    // The node's thread makes the journal lasting with every command; it stops inside of one.
    let mut traced = Signalled::serve(&world, &repo, "fsync,fdatasync", "SIGSTOP", 60);
    let node = eventually("it serves", AGAIN, || world.serving(&repo));
    let load = Load::start(&world, &repo, 4);
    wait_until_stopped(|| Some(node));
    let after = world.json(&repo, &["serve", "ensure", "--wait", "20"]);
    assert_ne!(after["pid"], json!(node));
    assert!(!is_running(node), "the stopped node was not ended");
    load.each_goes_on(2, AFTER_HANG);
    eventually("its tracer ends", AGAIN, || traced.ended().then_some(()));
    let mut worked = load.finish();
    let failures: Vec<&String> = worked.iter().flat_map(|it| &it.failures).collect();
    assert!(failures.is_empty(), "{failures:?}");
    let board = worked[0].client.data("peers_list", json!({}));
    assert_eq!(board["count"], 4, "{board}");
    for worker in &worked {
        let peers = board["peers"].as_array().unwrap().iter();
        let held = peers.filter(|it| it["announcement"]["intent"] == worker.last.as_str());
        assert_eq!(held.count(), 1, "{:?} is not once on {board}", worker.last);
    }
}

/// Announces over HTTP, one intent after the other, until one is not acknowledged; returns how many
/// were, and the answer to that last one.
fn announce_until_refused(client: &WireClient) -> (u32, Option<Answer>) {
    for n in 1.. {
        let answer = client.try_send(&json!({
            "jsonrpc": "2.0", "id": n, "method": "tools/call",
            "params": {
                "name": "peers_announce",
                "arguments": { "intent": format!("intent {n}"), "paths": ["src"] },
            },
        }));
        match answer {
            Ok(answer) if answer.status == 200 => {
                assert_ne!(answer.json()["result"]["isError"], true, "{answer:?}");
            }
            other => return (n - 1, other.ok()),
        }
    }
    unreachable!("the node stops at some write")
}

fn intent_of(board: &Value, client: &str) -> Value {
    let peers = board["peers"].as_array().expect("a list");
    let row = peers.iter().find(|peer| peer["client"]["name"] == client);
    row.unwrap_or_else(|| panic!("{client} is not on {board}"))["announcement"]["intent"].clone()
}

#[test]
fn a_node_stopped_inside_a_write_that_cannot_be_ended_is_left_behind_with_its_journal() {
    let test = "a_node_stopped_inside_a_write_that_cannot_be_ended_is_left_behind_with_its_journal";
    if skip_without("strace", test) || skip_unless_root(test) {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    let traced = Signalled::serve(&world, &repo, "fsync,fdatasync", "SIGSTOP", 30);
    let node = eventually("it serves", AGAIN, || world.serving(&repo));
    let url = world.json(&repo, &["serve", "status"])["url"].clone();
    let direct = WireClient::start(url.as_str().unwrap(), "direct");
    let announcing = thread::spawn(move || announce_until_refused(&direct));
    wait_until_stopped(|| Some(node));
    let journal = world.node_folder(&repo).join("journal.db");
    assert!(is_locked(&journal), "it was not stopped inside a write");

    // From another pid namespace it can neither be asked nor ended.
    let mut command = world.command("unshare", &repo);
    command
        .args(["-pmf", "--mount-proc", "--kill-child"])
        .arg(World::binary())
        .arg("mcp");
    let mut inside = StdioClient::start_command(command, "inside");
    inside.data(
        "peers_announce",
        json!({ "intent": "inside", "paths": ["docs"] }),
    );
    let board = inside.data("peers_list", json!({}));
    assert!(is_running(node), "it was ended");
    let successor = world.serving(&repo).expect("a successor");
    assert_ne!(successor, node);

    // It goes on, commits what it was about to, and tells nobody.
    resume(node);
    let (acknowledged, last) = announcing.join().expect("the client ran");
    assert!(acknowledged > 0);
    assert!(last.as_ref().is_none_or(|it| it.status == 503), "{last:?}");
    eventually("the old node ends", AFTER_HANG, || {
        (!is_running(node)).then_some(())
    });
    drop(traced);
    let said = format!("intent {acknowledged}");
    assert_eq!(intent_of(&board, "direct"), said.as_str(), "{board}");

    // Nor does it come back: the journal of the new epoch counts, and the old one goes.
    drop(inside);
    eventually("the node inside ends", AGAIN, || {
        (!world.nodes().contains(&successor)).then_some(())
    });
    world.json(&repo, &["up"]);
    let board = world.json(&repo, &["peers"]);
    assert_eq!(intent_of(&board, "direct"), said.as_str(), "{board}");
    assert!(!journal.exists(), "the old journal is still there");
}

/// Says whether a process is inside a write transaction of a database.
fn is_locked(database: &Path) -> bool {
    let script = "import sqlite3, sys\n\
         c = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)\n\
         c.execute('BEGIN IMMEDIATE')";
    let python = Command::new("python3")
        .args(["-c", script])
        .arg(database)
        .output();
    !python.expect("python3 runs").status.success()
}

/// Tells a node from its tracer, which has the same words among its arguments.
fn is_no_tracer(pid: u32) -> bool {
    let name = fs_err::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    !name.starts_with("strace")
}

/// Waits until a traced process has stopped: a tracer halts every thread again and again, but all of
/// them look after look only when it is a signal that stopped them.
fn wait_until_stopped(mut find: impl FnMut() -> Option<u32>) -> u32 {
    let mut looks = 0;
    eventually("it stops", AGAIN, || {
        let stopped = find().filter(|pid| all_threads_stand(*pid));
        looks = if stopped.is_some() { looks + 1 } else { 0 };
        stopped.filter(|_| looks >= 10)
    })
}

fn all_threads_stand(pid: u32) -> bool {
    let threads = fs_err::read_dir(format!("/proc/{pid}/task")).into_iter();
    let mut states = threads.flatten().flatten().map(|thread| {
        let status = fs_err::read_to_string(thread.path().join("status")).unwrap_or_default();
        status.contains("State:\tT") || status.contains("State:\tt")
    });
    states.next() == Some(true) && states.all(|stands| stands)
}
