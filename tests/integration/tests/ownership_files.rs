//! The files of a node, taken away, filled up or held by somebody else while clients work.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use earshot_testkit::process::{
    Load, Mount, StdioClient, Stopped, WireClient, World, eventually, is_running, kill,
    skip_unless_root,
};
use serde_json::{Value, json};

/// Longest time until clients are answered again: the next request starts a node.
const AGAIN: Duration = Duration::from_secs(15);

/// Bytes of a disk that a node and a few announcements fit on, and not much more.
const SMALL: u64 = 2 * 1024 * 1024;

/// A process of the test that holds something, and says so on its standard output.
struct Holder(Child);

impl Holder {
    /// Runs a Python program that prints a line when it holds what it is to hold.
    fn python(program: &str, arguments: &[&Path]) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", program])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let stdout = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        assert_eq!(line, "held\n");
        Self(child)
    }

    /// Holds an flock on a file.
    fn flock(path: &Path) -> Self {
        Self::python(
            "import fcntl, sys\n\
             f = open(sys.argv[1], 'r+')\n\
             fcntl.flock(f, fcntl.LOCK_EX)\n\
             print('held', flush=True)\n\
             sys.stdin.read()",
            &[path],
        )
    }

    /// Holds the write transaction of a database open.
    fn transaction(path: &Path) -> Self {
        Self::python(
            "import sqlite3, sys\n\
             c = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
             c.execute('BEGIN IMMEDIATE')\n\
             print('held', flush=True)\n\
             sys.stdin.read()",
            &[path],
        )
    }

    /// Keeps everybody else out of a database, readers too.
    fn exclusive(path: &Path) -> Self {
        Self::python(
            "import sqlite3, sys\n\
             c = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
             c.execute('PRAGMA locking_mode=EXCLUSIVE')\n\
             c.execute('BEGIN EXCLUSIVE')\n\
             print('held', flush=True)\n\
             sys.stdin.read()",
            &[path],
        )
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().ok(); // it has ended already
        self.0.wait().ok(); // so that no zombie stays
    }
}

fn announce(intent: &str) -> Value {
    json!({ "intent": intent, "paths": ["src"] })
}

/// Asserts that a tool answered `unavailable`, naming this.
fn unavailable(result: &Value, named: &str) {
    assert_eq!(result["isError"], true, "{result}");
    assert_eq!(result["_meta"]["error"]["code"], "unavailable", "{result}");
    let text = result["content"][0]["text"].as_str().expect("a text");
    assert!(text.contains(named), "{named:?} is not in {text:?}");
}

fn intents(board: &Value) -> Vec<&str> {
    let peers = board["peers"].as_array().expect("a list").iter();
    let intents = peers.filter_map(|peer| peer["announcement"]["intent"].as_str());
    let mut intents: Vec<&str> = intents.collect();
    intents.sort_unstable();
    intents
}

#[test]
fn a_stopped_process_that_holds_the_lease_lock_is_named_and_blocks_nobody_else() {
    let world = World::new();
    let (repo, other) = (world.repo("repo"), world.repo("other"));
    world.json(&repo, &["up"]);
    world.json(&repo, &["serve", "stop"]);
    let holder = Holder::flock(&world.node_folder(&repo).join("lease.lock"));
    let stopped = Stopped::stop(holder.pid());
    let named = format!("process {}", holder.pid());
    for arguments in [&["serve", "ensure"][..], &["serve"], &["up"]] {
        let ran = world.run(&repo, arguments);
        assert_eq!(ran.code, Some(10), "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains(&named), "{arguments:?}: {ran:?}");
    }
    assert_eq!(world.json(&other, &["up"])["standing"], "ready");
    stopped.resume();
    assert_eq!(
        world.run(&repo, &["serve"]).code,
        Some(10),
        "held, and running"
    );
    drop(holder);
    assert_eq!(world.json(&repo, &["up"])["standing"], "ready");
}

#[test]
fn a_process_stopped_inside_a_transaction_makes_writes_unavailable_and_reads_go_on() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut client = StdioClient::start(&world, &repo, "alpha");
    client.data("peers_announce", announce("before"));
    let journal = world.node_folder(&repo).join("journal.db");
    let pid = world.serving(&repo);
    let holder = Holder::transaction(&journal);
    let _stopped = Stopped::stop(holder.pid());
    let refused = client.call("peers_announce", announce("meanwhile"));
    unavailable(&refused, &journal.to_string_lossy());
    unavailable(&refused, &format!("process {}", holder.pid()));
    let board = client.data("peers_list", json!({}));
    assert_eq!(intents(&board), ["before"], "{board}");
    kill(holder.pid());
    client.data("peers_announce", announce("after"));
    let board = client.data("peers_list", json!({}));
    assert_eq!(intents(&board), ["after"], "{board}");
    assert_eq!(world.serving(&repo), pid, "the same node goes on");
}

#[test]
fn a_journal_that_stays_locked_is_left_behind_with_nothing_lost() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut client = StdioClient::start(&world, &repo, "alpha");
    client.data("peers_announce", announce("before"));
    let journal = world.node_folder(&repo).join("journal.db");
    let holder = Holder::transaction(&journal);
    kill(world.serving(&repo).unwrap());
    let board = client.data("peers_list", json!({}));
    assert_eq!(intents(&board), ["before"], "{board}");
    client.data("peers_announce", announce("after"));
    drop(holder);
    kill(world.serving(&repo).unwrap());
    let board = client.data("peers_list", json!({}));
    assert_eq!(intents(&board), ["after"], "{board}");
    assert!(!journal.exists(), "what was left behind is still there");
}

#[test]
fn a_start_is_refused_while_the_journal_cannot_even_be_read_and_goes_on_afterwards() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut client = StdioClient::start(&world, &repo, "alpha");
    client.data("peers_announce", announce("before"));
    let journal = world.node_folder(&repo).join("journal.db");
    let node = world.serving(&repo).unwrap();
    drop(client);
    world.json(&repo, &["serve", "stop"]);
    let holder = Holder::exclusive(&journal);
    assert!(!is_running(node));
    let ran = world.run(&repo, &["serve"]);
    assert_eq!(ran.code, Some(10), "{ran:?}");
    assert!(ran.stderr.contains("journal.db is locked by"), "{ran:?}");
    drop(holder);
    world.json(&repo, &["up"]);
    assert!(journal.exists());
}

#[test]
fn a_state_folder_removed_under_load_comes_back_with_what_was_acknowledged() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut quiet = StdioClient::start(&world, &repo, "quiet");
    quiet.data("peers_announce", announce("said once"));
    let load = Load::start(&world, &repo, 6);
    load.each_goes_on(2, AGAIN);
    let folder = world.node_folder(&repo);
    for _ in 0..2 {
        fs_err::remove_dir_all(&folder).unwrap();
        load.each_goes_on(2, AGAIN);
        eventually("one node serves, and its lease is there", AGAIN, || {
            world.serving(&repo).filter(|pid| world.nodes() == [*pid])
        });
        load.each_goes_on(2, AGAIN);
    }
    let worked = load.finish();
    let failures: Vec<&String> = worked.iter().flat_map(|worker| &worker.failures).collect();
    assert!(failures.is_empty(), "{failures:?}");
    let mut wanted: Vec<&str> = worked.iter().map(|worker| worker.last.as_str()).collect();
    wanted.push("said once");
    wanted.sort_unstable();
    // The process that served carried it over, or its client's bridge says it again: without being
    // asked to, as soon as its stream has found the next node.
    let board = eventually("everything acknowledged is on the board", AGAIN, || {
        let board = world.json(&repo, &["peers"]);
        (intents(&board) == wanted).then_some(board)
    });
    assert_eq!(board["count"], 7, "{board}");
    assert_eq!(intents(&quiet.data("peers_list", json!({}))), wanted);
}

#[test]
fn a_bridge_says_again_what_a_node_without_its_journal_does_not_know() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut quiet = StdioClient::start(&world, &repo, "quiet");
    quiet.data("peers_announce", announce("said once"));
    let folder = world.node_folder(&repo);
    kill(world.serving(&repo).unwrap());
    fs_err::remove_dir_all(&folder).unwrap();
    // Somebody else starts the next node; the quiet client asks for nothing.
    world.json(&repo, &["up"]);
    eventually("it is said again", AGAIN, || {
        (intents(&world.json(&repo, &["peers"])) == ["said once"]).then_some(())
    });
    assert_eq!(world.json(&repo, &["peers"])["count"], 1);
}

#[test]
fn a_state_folder_removed_under_a_quiet_node_is_filled_again_by_the_same_process() {
    let world = World::new();
    let repo = world.repo("repo");
    let url = world.up(&repo);
    let wire = WireClient::start(&url, "wire");
    wire.call("peers_announce", &announce("over http"));
    let mut gone = StdioClient::start(&world, &repo, "gone");
    gone.data("peers_announce", announce("departed"));
    assert!(gone.close().0.success());
    let (folder, pid) = (world.node_folder(&repo), world.serving(&repo));
    fs_err::remove_dir_all(&folder).unwrap();
    eventually("the same process serves again", AGAIN, || {
        (world.serving(&repo) == pid).then_some(())
    });
    let board = wire.call("peers_list", &json!({}));
    let board = &board["structuredContent"];
    assert_eq!(intents(board), ["departed", "over http"], "{board}");
    assert_eq!(board["count"], 1, "{board}");
    // It is on the disk again, not in memory alone.
    kill(pid.unwrap());
    world.json(&repo, &["up"]);
    let board = wire.call("peers_list", &json!({}));
    let board = &board["structuredContent"];
    assert_eq!(intents(board), ["departed", "over http"], "{board}");
}

#[test]
fn a_full_disk_is_named_and_loses_nothing_that_was_acknowledged() {
    let test = "a_full_disk_is_named_and_loses_nothing_that_was_acknowledged";
    if skip_unless_root(test) {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    let state = world.home().join("state");
    let _disk = Mount::small_disk(state.clone(), SMALL);
    let mut client = StdioClient::start(&world, &repo, "alpha");
    let pid = world.serving(&repo);
    client.data("peers_announce", announce("0"));
    let ballast = state.join("ballast");
    fill(&ballast);
    // What is left of the journal's last page may still take a few.
    let mut acknowledged = 0;
    let refused = eventually("the disk is full", AGAIN, || {
        let result = client.call("peers_announce", announce(&(acknowledged + 1).to_string()));
        if result["isError"] == true {
            return Some(result);
        }
        acknowledged += 1;
        None
    });
    unavailable(&refused, "full");
    unavailable(&refused, &state.to_string_lossy());
    let wanted = acknowledged.to_string();
    assert_eq!(intents(&client.data("peers_list", json!({}))), [&wanted]);
    fs_err::remove_file(ballast).unwrap();
    client.data("peers_announce", announce("room again"));
    assert_eq!(world.serving(&repo), pid, "the same node goes on");
    kill(pid.unwrap());
    assert_eq!(
        intents(&client.data("peers_list", json!({}))),
        ["room again"]
    );
}

#[test]
fn a_node_killed_on_a_full_disk_still_knows_what_was_acknowledged() {
    let test = "a_node_killed_on_a_full_disk_still_knows_what_was_acknowledged";
    if skip_unless_root(test) {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    let state = world.home().join("state");
    let _disk = Mount::small_disk(state.clone(), SMALL);
    let mut client = StdioClient::start(&world, &repo, "alpha");
    client.data("peers_announce", announce("acknowledged"));
    let ballast = state.join("ballast");
    fill(&ballast);
    kill(world.serving(&repo).unwrap());
    let ran = world.run(&repo, &["serve", "ensure", "--wait", "3"]);
    // Room for one more lease there may be, by chance; without it the disk is named.
    if ran.code != Some(0) {
        assert!(
            ran.stderr.contains("disk") && ran.stderr.contains("hint: "),
            "{ran:?}"
        );
    }
    fs_err::remove_file(ballast).unwrap();
    assert_eq!(
        intents(&client.data("peers_list", json!({}))),
        ["acknowledged"]
    );
}

/// Writes a file until there is no room left, to the last byte.
fn fill(path: &Path) {
    let file = std::fs::File::create(path).expect("there is room for a name");
    for size in [64 * 1024, 4096, 64, 1] {
        let block = vec![0; size];
        while std::io::Write::write_all(&mut &file, &block).is_ok() {}
    }
}

#[test]
fn a_killed_node_whose_alive_file_is_gone_is_followed_by_another() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut client = StdioClient::start(&world, &repo, "alpha");
    client.data("peers_announce", announce("x"));
    let folder = world.node_folder(&repo);
    kill(world.serving(&repo).unwrap());
    fs_err::remove_file(alive_file(&folder)).unwrap();
    assert_eq!(world.json(&repo, &["serve", "status"])["standing"], "stale");
    assert_eq!(intents(&client.data("peers_list", json!({}))), ["x"]);
}

#[test]
fn an_alive_file_deleted_under_a_living_node_makes_no_second_one() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut client = StdioClient::start(&world, &repo, "alpha");
    client.data("peers_announce", announce("x"));
    let folder = world.node_folder(&repo);
    let (pid, before) = (world.serving(&repo), alive_file(&folder));
    fs_err::remove_file(&before).unwrap();
    // Missing is unknown, never free.
    assert_eq!(world.json(&repo, &["up"])["pid"], json!(pid));
    let after = eventually("the node stands for election anew", AGAIN, || {
        let lease = lease(&folder)?;
        (lease["state"] == "serving")
            .then(|| alive_file(&folder))
            .filter(|it| *it != before)
    });
    assert!(after.exists());
    assert_eq!(intents(&client.data("peers_list", json!({}))), ["x"]);
    assert_eq!(world.nodes().len(), 1);
}

#[test]
fn a_lease_lock_deleted_while_held_lets_no_second_node_in() {
    let world = World::new();
    let repo = world.repo("repo");
    let pid = world.json(&repo, &["up"])["pid"].clone();
    let folder = world.node_folder(&repo);
    let holder = Holder::flock(&folder.join("lease.lock"));
    fs_err::remove_file(folder.join("lease.lock")).unwrap();
    // Whoever comes now locks another file, and still finds the holder of the lease alive.
    assert_eq!(world.json(&repo, &["up"])["pid"], pid);
    let second = world.run(&repo, &["serve"]);
    assert_eq!(second.code, Some(0), "{second:?}");
    assert_eq!(world.json(&repo, &["serve", "status"])["pid"], pid);
    assert_eq!(world.json(&repo, &["serve", "stop"])["stopped"], true);
    // Two electors at once on a file that was made anew: one lease.
    let load = Load::start(&world, &repo, 4);
    load.each_goes_on(1, AGAIN);
    assert!(
        load.finish()
            .iter()
            .all(|worker| worker.failures.is_empty())
    );
    eventually("one node is left", AGAIN, || {
        (world.nodes().len() == 1).then_some(())
    });
    assert!(is_running(holder.pid()));
}

#[test]
fn a_state_folder_that_cannot_be_trusted_or_written_serves_the_client_alone() {
    let world = World::new();
    let repo = world.repo("repo");
    world.json(&repo, &["up"]);
    world.json(&repo, &["serve", "stop"]);
    let folder = world.node_folder(&repo);
    let state = world.home().join("state");
    let within = folder.ancestors().take_while(|it| *it != world.home());
    for part in within {
        let mode = |mode| fs_err::set_permissions(part, std::fs::Permissions::from_mode(mode));
        mode(0o777).unwrap();
        refused_and_alone(&world, &repo, part, "can be written by others");
        mode(0o700).unwrap();
    }
    if skip_unless_root("a state folder that is read-only or somebody else's") {
        return;
    }
    let read_only = Mount::read_only(state);
    refused_and_alone(&world, &repo, &folder, "Read-only file system");
    drop(read_only);
    let to = |user| std::os::unix::fs::chown(&folder, Some(user), Some(user));
    to(earshot_testkit::process::SOMEBODY_ELSE).unwrap();
    refused_and_alone(&world, &repo, &folder, "belongs to user 65534");
    to(0).unwrap();
    assert_eq!(world.json(&repo, &["up"])["standing"], "ready");
}

/// Asserts that `up` refuses with the reason and the remedy, and that a client is served alone with
/// one line that says why.
fn refused_and_alone(world: &World, repo: &Path, folder: &Path, reason: &str) {
    let ran = world.run(repo, &["up"]);
    assert_eq!(ran.code, Some(12), "{reason}: {ran:?}");
    assert!(
        ran.stderr.contains(reason) && ran.stderr.contains("hint: "),
        "{ran:?}"
    );
    let named = folder.to_string_lossy();
    assert!(
        ran.stderr.contains(named.as_ref()),
        "{named} is not in {ran:?}"
    );
    let said = world.path().join("said");
    let mut command = world.earshot(repo);
    command
        .arg("mcp")
        .stderr(std::fs::File::create(&said).expect("a file"));
    let mut alone = StdioClient::start_command(command, "alone");
    let told = alone.welcome["result"]["instructions"]
        .as_str()
        .expect("a text")
        .to_owned();
    assert!(told.contains("served alone"), "{reason}: {told}");
    assert_eq!(alone.data("peers_list", json!({}))["count"], 1);
    assert!(alone.close().0.success());
    let said = fs_err::read_to_string(said).expect("a file");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(reason), "{said}");
}

fn lease(folder: &Path) -> Option<Value> {
    serde_json::from_slice(&fs_err::read(folder.join("lease.json")).ok()?).ok()
}

fn alive_file(folder: &Path) -> std::path::PathBuf {
    let lease = lease(folder).expect("a lease");
    folder.join(lease["alive"].as_str().expect("it names one"))
}
