//! Clients that go away in every way there is: what they leave, and what it does to others.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::Stdio,
    time::Duration,
};

use earshot_testkit::process::{StdioClient, World, come_and_go, eventually, is_running, kill};
use serde_json::json;

/// Longest time in which a bridge ends once its client is gone.
const GONE: Duration = Duration::from_secs(5);

const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;

/// Asserts that nobody is on the board and nothing runs but the node.
fn nothing_left(world: &World, repo: &std::path::Path) {
    eventually("nothing is left but the node", GONE, || {
        (world.processes() == world.nodes()).then_some(())
    });
    let board = world.json(repo, &["peers"]);
    assert_eq!(board["count"], 0, "{board}");
    assert!(
        board["peers"].as_array().expect("a list").len() <= 32,
        "departed rows are bounded: {board}"
    );
}

#[test]
fn a_hundred_clients_that_come_and_go_leave_no_process_and_no_row() {
    let world = World::new();
    let repo = world.repo("repo");
    come_and_go(&world, &repo, 100);
    nothing_left(&world, &repo);
    assert_eq!(world.nodes().len(), 1);
}

#[test]
fn input_that_ends_at_once_or_in_half_a_line_ends_the_bridge_in_order() {
    let world = World::new();
    let repo = world.repo("repo");
    let told = [
        String::new(),
        "{\"jsonrpc\":\"2.0\",".to_owned(),
        format!("{HELLO}\n{{\"jsonrpc\":"),
        format!("{HELLO}\n\n\r\n"),
    ];
    for said in told {
        let mut bridge = world.earshot(&repo);
        bridge
            .arg("mcp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = bridge.spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(said.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{said:?}: {output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("panic"), "{said:?}: {stderr}");
        let answers = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            answers.contains("serverInfo"),
            said.contains("initialize"),
            "{answers}"
        );
    }
    nothing_left(&world, &repo);
}

#[test]
fn a_bridge_whose_parent_was_killed_ends_though_its_input_stays_open() {
    let world = World::new();
    let repo = world.repo("repo");
    // The pipe's other end stays open in a third process.
    let script = r#"
        mkfifo "$PIPE"
        "$0" mcp <"$PIPE" >"$PIPE.out" 2>"$PIPE.err" &
        echo $!
        exec 3>"$PIPE"
        printf '%s\n' "$HELLO" >&3
        sleep 600 &
        echo $!
        wait
    "#;
    let pipe = world.path().join("pipe");
    world.json(&repo, &["up"]);
    let mut parent = world
        .command("bash", &repo)
        .args(["-c", script])
        .arg(World::binary())
        .env("PIPE", &pipe)
        .env("HELLO", HELLO)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    let mut pid = || lines.next().unwrap().unwrap().parse::<u32>().unwrap();
    let (bridge, keeper) = (pid(), pid());
    eventually("the client is attached", GONE, || {
        (world.json(&repo, &["peers"])["count"] == 1).then_some(())
    });
    parent.kill().unwrap();
    parent.wait().unwrap();
    eventually("the bridge ends", GONE, || {
        (!is_running(bridge)).then_some(())
    });
    kill(keeper);
    let stderr = fs_err::read_to_string(pipe.with_extension("err")).unwrap();
    assert!(!stderr.contains("panic"), "{stderr}");
    nothing_left(&world, &repo);
}

#[test]
fn a_bridge_that_is_told_to_end_says_goodbye_first() {
    // The official TypeScript SDK ends the server with which it probes in this way.
    use rustix::process::{Pid, Signal, kill_process};
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let world = World::new();
        let repo = world.repo("repo");
        let client = StdioClient::start(&world, &repo, "told");
        let alone = StdioClient::start(&world, world.path(), "alone");
        for pid in [client.pid(), alone.pid()] {
            let told = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            kill_process(told, signal).unwrap();
            eventually("it ends", GONE, || (!is_running(pid)).then_some(()));
        }
        nothing_left(&world, &repo);
    }
}

#[test]
fn a_bridge_that_was_killed_leaves_its_claim_and_nobody_takes_its_place() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut killed = StdioClient::start(&world, &repo, "killed");
    let mut other = StdioClient::start(&world, &repo, "other");
    killed.data(
        "peers_announce",
        json!({ "intent": "half done", "paths": ["src"] }),
    );
    kill(killed.pid());
    let said = other.data("peers_announce", json!({ "intent": "y", "paths": ["src"] }));
    assert_eq!(said["collisions"][0]["intent"], "half done", "{said}");
    // The same agent with a new bridge is another client: a seat is the bridge's own.
    let mut again = StdioClient::start(&world, &repo, "killed");
    let said = again.data("peers_announce", json!({ "intent": "z", "paths": ["src"] }));
    let met = said["collisions"].as_array().unwrap();
    assert_eq!(met.len(), 2, "{said}");
}

#[test]
fn a_closed_output_ends_the_bridge_without_a_panic() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut bridge = world.earshot(&repo);
    bridge
        .arg("mcp")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = bridge.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{HELLO}").unwrap();
    let mut first = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut first).unwrap();
    assert!(first.contains("serverInfo"), "{first}");
    drop(stdout);
    for id in 2..200 {
        let list = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" });
        if writeln!(stdin, "{list}").is_err() {
            break; // it has ended, as it should
        }
    }
    eventually("the bridge ends", GONE, || child.try_wait().unwrap());
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert!(!stderr.contains("panic"), "{stderr}");
    drop(stdin);
    nothing_left(&world, &repo);
}

#[test]
fn the_first_client_takes_nothing_along_when_it_leaves() {
    let world = World::new();
    let repo = world.repo("repo");
    let first = StdioClient::start(&world, &repo, "first");
    let mut second = StdioClient::start(&world, &repo, "second");
    let node = world.serving(&repo).unwrap();
    assert!(first.close().0.success());
    assert_eq!(second.data("peers_list", json!({}))["count"], 1);
    assert!(is_running(node));
    assert!(second.close().0.success());
    nothing_left(&world, &repo);
}

#[test]
fn a_node_that_nobody_uses_ends_and_the_next_request_starts_another() {
    let world = World::new();
    let repo = world.repo("repo");
    world.json(&repo, &["serve", "ensure", "--idle", "1"]);
    let node = world.serving(&repo).unwrap();
    eventually("the idle node ends", Duration::from_secs(10), || {
        (!is_running(node)).then_some(())
    });
    let lease = world.node_folder(&repo).join("lease.json");
    let lease: serde_json::Value = serde_json::from_slice(&fs_err::read(lease).unwrap()).unwrap();
    assert_eq!(lease["state"], "ended");
    let mut client = StdioClient::start(&world, &repo, "next");
    assert_eq!(client.data("peers_list", json!({}))["count"], 1);
}
