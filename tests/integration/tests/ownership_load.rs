//! Clients at work while their node is killed, stopped, ended or joined by many at once.

use std::{collections::BTreeMap, process::Stdio, time::Duration};

use earshot_testkit::process::{
    Load, SeatClient, StdioClient, Stopped, WireClient, Worked, World, eventually, initialize,
    is_running, kill, post, skip_unless_root,
};
use serde_json::{Value, json};

/// Longest time until clients are answered again after a crash: the next request starts a node.
const AGAIN: Duration = Duration::from_secs(10);

/// `stale_after`, and what a successor needs besides.
const AFTER_HANG: Duration = Duration::from_secs(20);

/// Maps the name of every attached client to its position and its seat.
fn rows(board: &Value) -> BTreeMap<String, (String, String)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let peers = board["peers"].as_array().expect("a list").iter();
    peers
        .filter(|peer| peer["attached"] == true)
        .map(|peer| {
            let seat = (text(&peer["id"]), text(&peer["seat_id"]));
            (text(&peer["client"]["name"]), seat)
        })
        .collect()
}

/// Asserts that no call of a load failed, that what each client announced last is on the board, that
/// no client has two rows, and that each collision is there once.
fn nothing_lost(world: &World, worked: &mut [Worked]) -> BTreeMap<String, (String, String)> {
    let failures: Vec<&String> = worked.iter().flat_map(|it| &it.failures).collect();
    assert!(
        failures.is_empty(),
        "{} failed: {failures:?}",
        failures.len()
    );
    let board = worked[0]
        .client
        .data("peers_list", json!({ "checkouts": "this" }));
    assert_eq!(board["count"], worked.len(), "{board}");
    let peers = board["peers"].as_array().expect("a list");
    for worker in worked.iter() {
        let held = peers
            .iter()
            .filter(|it| it["announcement"]["intent"] == worker.last.as_str());
        assert_eq!(held.count(), 1, "{:?} is not once on {board}", worker.last);
    }
    assert_eq!(peers.len(), worked.len(), "a departed row is left: {board}");
    let listed = board["collisions"].as_array().expect("a list").len();
    let more = board["collisions_more"].as_u64().unwrap_or(0);
    assert_eq!(listed as u64 + more, worked.len() as u64 / 2, "{board}");
    eventually("one node is left", AGAIN, || {
        (world.nodes().len() == 1).then_some(())
    });
    rows(&board)
}

#[test]
fn thirty_two_bridges_at_once_share_one_node_and_leave_nothing() {
    let world = World::new();
    let repo = world.repo("repo");
    let before = world.git(&repo, &["status", "--porcelain", "--ignored"]);
    let load = Load::start(&world, &repo, 32);
    load.each_goes_on(1, Duration::from_secs(20));
    let mut worked = load.finish();
    assert_eq!(nothing_lost(&world, &mut worked).len(), 32);
    for worker in worked {
        let (status, rest) = worker.client.close();
        assert!(status.success() && rest.is_empty(), "{status} {rest:?}");
    }
    assert_eq!(world.json(&repo, &["peers"])["count"], 0);
    assert_eq!(
        world.git(&repo, &["status", "--porcelain", "--ignored"]),
        before
    );
    assert_eq!(world.json(&repo, &["serve", "stop"])["stopped"], true);
    assert_eq!(world.nodes(), [0_u32; 0]);
}

#[test]
fn a_node_killed_under_twelve_clients_loses_and_doubles_nothing() {
    let world = World::new();
    let repo = world.repo("repo");
    let load = Load::start(&world, &repo, 12);
    load.each_goes_on(2, AGAIN);
    let board = world.json(&repo, &["peers"]);
    let seats = rows(&board);
    let mut epoch = 0;
    for _ in 0..3 {
        let status = eventually("a node serves", AGAIN, || {
            let status = world.json(&repo, &["serve", "status"]);
            (status["standing"] == "ready").then_some(status)
        });
        assert!(
            status["lease_epoch"].as_u64().unwrap() > epoch,
            "epochs rise: {status}"
        );
        epoch = status["lease_epoch"].as_u64().unwrap();
        kill(status["pid"].as_u64().unwrap().try_into().unwrap());
        load.each_goes_on(2, AGAIN);
    }
    let mut worked = load.finish();
    assert_eq!(
        nothing_lost(&world, &mut worked),
        seats,
        "positions and seats stay"
    );
}

#[test]
fn clients_in_loops_through_an_ordered_stop_see_no_failed_call() {
    let world = World::new();
    let repo = world.repo("repo");
    let load = Load::start(&world, &repo, 8);
    for _ in 0..2 {
        load.each_goes_on(2, AGAIN);
        let ran = world.run(&repo, &["serve", "stop", "--format", "json"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        load.each_goes_on(2, AGAIN);
    }
    let mut worked = load.finish();
    nothing_lost(&world, &mut worked);
}

#[test]
fn a_stopped_node_is_noticed_by_its_clients_ended_and_succeeded_at_the_same_port() {
    let world = World::new();
    let repo = world.repo("repo");
    let load = Load::start(&world, &repo, 6);
    load.each_goes_on(2, AGAIN);
    let before = world.json(&repo, &["serve", "status"]);
    let seats = rows(&world.json(&repo, &["peers"]));
    let pid = world.serving(&repo).unwrap();
    let stopped = Stopped::stop(pid);
    load.each_goes_on(2, AFTER_HANG);
    assert!(!is_running(pid), "the stopped node was not ended");
    stopped.resume();
    load.each_goes_on(2, AGAIN);
    let mut worked = load.finish();
    let held = nothing_lost(&world, &mut worked);
    assert_eq!(held, seats, "positions and seats stay");
    let after = world.json(&repo, &["serve", "status"]);
    assert!(after["lease_epoch"].as_u64() > before["lease_epoch"].as_u64());
    assert_eq!(
        after["url"], before["url"],
        "the port is the checkout's own"
    );
}

#[test]
fn a_stopped_node_that_cannot_be_ended_commits_nothing_when_it_goes_on() {
    let test = "a_stopped_node_that_cannot_be_ended_commits_nothing_when_it_goes_on";
    if skip_unless_root(test) {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    let mut container = world
        .command("unshare", &repo)
        .args(["-pmf", "--mount-proc", "--kill-child"])
        .arg(World::binary())
        .args(["serve", "--idle", "60"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("it serves", AGAIN, || world.serving(&repo));
    let child = |pid: &u32| {
        let parent = fs_err::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        parent.contains(&format!(" {} ", container.id()))
    };
    let old = world.nodes().into_iter().find(child).expect("its node");
    let socket = world.socket(&repo);
    let client = SeatClient::new(&socket, 0xa);
    let announce = |intent: &str| json!({ "intent": intent, "paths": ["src"] });
    assert_eq!(
        client
            .command("peers.announce", 1, 0, &announce("before"))
            .0,
        200
    );
    let stopped = Stopped::stop(old);
    let mut successor = world
        .earshot(&repo)
        .arg("serve")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (late, ensured) = std::thread::scope(|scope| {
        // It waits in the stopped process's queue.
        let late = scope.spawn(|| client.send("peers.announce", 2, 1, &announce("late")));
        let ensured = scope.spawn(|| world.run(&repo, &["serve", "ensure", "--wait", "20"]));
        eventually("a successor serves", AFTER_HANG, || {
            world.serving(&repo).filter(|pid| *pid != old)
        });
        assert!(is_running(old), "it is out of reach, and was signalled");
        let taken = client.command("peers.announce", 2, 1, &announce("newer"));
        assert_eq!(taken.0, 200, "{taken:?}");
        stopped.resume();
        (late.join().unwrap(), ensured.join().unwrap())
    });
    assert!(
        late.as_ref().map_or(true, |answer| answer.status == 503),
        "{late:?}"
    );
    eventually("it finds that it was succeeded, and ends", AGAIN, || {
        (!is_running(old)).then_some(())
    });
    container.wait().unwrap();
    let board = world.json(&repo, &["peers"]);
    assert_eq!(
        board["peers"][0]["announcement"]["intent"], "newer",
        "{board}"
    );
    assert_eq!(world.nodes().len(), 1);
    successor.kill().ok(); // it may have left the checkout to the one that `ensure` started
    successor.wait().unwrap();
    assert_eq!(
        ensured.code,
        Some(0),
        "nobody had to take it over: {ensured:?}"
    );
}

#[test]
fn wire_sessions_outlive_a_crash_and_end_with_an_ordered_stop() {
    let world = World::new();
    let repo = world.repo("repo");
    let url = world.up(&repo);
    let alpha = WireClient::start(&url, "alpha");
    alpha.call(
        "peers_announce",
        &json!({ "intent": "x", "paths": ["src"] }),
    );
    let list = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list" });

    kill(world.serving(&repo).unwrap());
    assert_eq!(world.json(&repo, &["up"])["url"], url.as_str());
    let answer = alpha.send(&list);
    assert_eq!(answer.status, 200, "a crash ends no session: {answer:?}");
    let board = alpha.call("peers_list", &json!({}));
    assert_eq!(board["structuredContent"]["count"], 1, "{board}");

    world.json(&repo, &["serve", "stop"]);
    assert_eq!(world.json(&repo, &["up"])["url"], url.as_str());
    // a: the session is gone, and the answer says so under the request's own id.
    let answer = alpha.send(&list);
    assert_eq!(answer.status, 404, "{answer:?}");
    let body = answer.json();
    assert_eq!(
        (&body["error"]["code"], &body["id"]),
        (&json!(-32001), &json!(7))
    );
    // b: a fresh initialize that still carries the old id gets a new one.
    let stale = [("mcp-session-id", alpha.session.as_str())];
    let answer = initialize(&url, "alpha", &stale);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_ne!(
        answer.header("mcp-session-id"),
        Some(alpha.session.as_str())
    );
    // c: ending what is gone is no fault.
    let path = "/mcp";
    let answer = earshot_testkit::process::http(&url, "DELETE", path, &stale, b"").unwrap();
    assert!(matches!(answer.status, 200..300 | 404), "{answer:?}");
    // d: without a session one is asked for; nothing has expired.
    assert_eq!(post(&url, &[], &list).status, 400);
    // e: an empty id is none.
    assert_eq!(
        initialize(&url, "alpha", &[("mcp-session-id", "")]).status,
        200
    );
}

#[test]
fn a_command_that_is_sent_again_takes_effect_once_across_a_crash_too() {
    let world = World::new();
    let repo = world.repo("repo");
    world.json(&repo, &["up"]);
    let socket = world.socket(&repo);
    let announce = |intent: &str| json!({ "intent": intent, "paths": ["src"] });
    let withdraw = json!({});
    let client = SeatClient::new(&socket, 0x00c0_ffee);

    let first = client.command("peers.announce", 1, 0, &announce("x"));
    assert_eq!(first.0, 200, "{first:?}");
    let announced = client.command("peers.announce", 1, 0, &announce("x"));
    assert_eq!(announced, first, "the same answer, byte for byte");
    // Another client meets it: a second run of the first command would answer with that. What came
    // up meanwhile is told besides, with whatever is answered next.
    let other = SeatClient::new(&socket, 0xbeef);
    assert_eq!(other.command("peers.announce", 1, 0, &announce("y")).0, 200);
    let again = client.command("peers.announce", 1, 0, &announce("x"));
    let again: Value = serde_json::from_str(&again.1).unwrap();
    assert_eq!(again["collisions"], json!([]), "{again}");
    let refused = client.command("peers.announce", 1, 0, &announce("z"));
    assert_eq!(refused.0, 409, "{refused:?}");
    assert!(refused.1.contains("conflict"), "{refused:?}");

    kill(world.serving(&repo).unwrap());
    world.json(&repo, &["up"]);
    assert_eq!(
        client.command("peers.announce", 1, 0, &announce("x")),
        first
    );
    assert_eq!(
        client.command("peers.announce", 1, 0, &announce("z")).0,
        409
    );

    // What was acknowledged is forgotten, and not run again.
    let second = client.command("peers.withdraw", 2, 1, &withdraw);
    assert_eq!(second.0, 200, "{second:?}");
    assert_eq!(client.command("peers.withdraw", 2, 1, &withdraw), second);
    let third = client.command("peers.announce", 3, 2, &announce("new"));
    assert_eq!(third.0, 200, "{third:?}");
    let below = client.command("peers.withdraw", 2, 1, &withdraw);
    assert_eq!(below.0, 410, "{below:?}");
    let board = world.json(&repo, &["peers"]);
    let intents: Vec<&Value> = board["peers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|peer| &peer["announcement"]["intent"])
        .collect();
    assert_eq!(intents, ["new", "y"], "{board}");

    // A seat that this journal never met is refused once, and then known.
    let stranger = SeatClient::new(&socket, 0x57a9);
    let refused = stranger.command("peers.withdraw", 5, 4, &withdraw);
    assert_eq!(refused.0, 410, "{refused:?}");
    let next = stranger.command("peers.announce", 6, 5, &announce("here"));
    assert_eq!(next.0, 200, "{next:?}");
}

#[test]
fn two_agents_meet_by_components_and_a_crash_keeps_what_they_said() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut alpha = StdioClient::start(&world, &repo, "alpha");
    let mut beta = StdioClient::start(&world, &repo, "beta");
    let meets = |alpha: &mut StdioClient, beta: &mut StdioClient, claim: &str, path: &str| {
        alpha.data("peers_announce", json!({ "intent": "a", "paths": [claim] }));
        let said = beta.data("peers_announce", json!({ "intent": "b", "paths": [path] }));
        let board = alpha.data("peers_list", json!({}));
        let met = said["collisions"].as_array().unwrap().len();
        let listed = board["collisions"].as_array().unwrap().len();
        assert_eq!(met, listed, "{claim} and {path}: both sides see the same");
        met == 1
    };
    let cases = [
        ("app", "app", true),
        ("app", "app/x", true),
        ("app", "app/x/y", true),
        ("app", "apps", false),
        ("app", "app-old", false),
        ("app", "app.bak", false),
        ("app", "application", false),
        ("app", "ap", false),
        ("app", "appx/app", false),
        ("app", "lib/app", false),
        ("src/main", "src/main.rs", false),
        ("src/main", "src/main/x", true),
        ("src/main", "src", true),
        ("src/main", "src/mainframe", false),
        ("src/a.rs", "./src/a.rs", true),
        ("src/a.rs", "src//a.rs", true),
        ("src/a.rs", "src/./a.rs", true),
        ("src/a.rs", "src/x/../a.rs", true),
        ("src/a.rs", "src/a.rs/", true),
        ("src/a.rs", ".", true),
        ("src/a.rs", "./", true),
    ];
    for (claim, path, wanted) in cases {
        assert_eq!(
            meets(&mut alpha, &mut beta, claim, path),
            wanted,
            "{claim} and {path}"
        );
    }
    let absolute = repo.join("src/a.rs");
    assert!(meets(
        &mut alpha,
        &mut beta,
        "src/a.rs",
        absolute.to_str().unwrap()
    ));
    for path in [
        "..",
        "../other",
        "/etc/passwd",
        "src/../../x",
        "src/a.rs\0",
        "",
        "/",
    ] {
        let refused = beta.call("peers_announce", json!({ "intent": "b", "paths": [path] }));
        assert_eq!(refused["isError"], true, "{path:?}: {refused}");
        assert_eq!(
            refused["_meta"]["error"]["code"], "invalid_input",
            "{path:?}: {refused}"
        );
    }
    kill(world.serving(&repo).unwrap());
    let board = alpha.data("peers_list", json!({}));
    assert_eq!(board["count"], 2, "{board}");
    assert_eq!(board["collisions"].as_array().unwrap().len(), 1, "{board}");
}
