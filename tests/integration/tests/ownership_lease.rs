//! Leases that lie: a reused process number, torn and foreign documents, formats of the future.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use earshot_testkit::process::{
    Ran, StdioClient, Stopped, World, eventually, is_running, kill, skip_unless_root,
};
use serde_json::{Value, json};

/// Longest time until a node serves where nobody holds the lease.
const AGAIN: Duration = Duration::from_secs(10);

/// A process that has nothing to do with earshot.
struct Innocent(Child);

impl Innocent {
    fn start() -> Self {
        let child = Command::new("sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn();
        Self(child.expect("sleep runs"))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Innocent {
    fn drop(&mut self) {
        self.0.kill().ok(); // it has ended already
        self.0.wait().ok(); // so that no zombie stays
    }
}

/// A checkout whose node died by SIGKILL, and the lease that it left.
struct Left {
    world: World,
    repo: PathBuf,
    folder: PathBuf,
    client: StdioClient,
}

impl Left {
    fn by_a_killed_node() -> Self {
        let world = World::new();
        let repo = world.repo("repo");
        let mut client = StdioClient::start(&world, &repo, "alpha");
        client.data("peers_announce", json!({ "intent": "x", "paths": ["src"] }));
        let folder = world.node_folder(&repo);
        kill(world.serving(&repo).expect("a node serves"));
        Self {
            world,
            repo,
            folder,
            client,
        }
    }

    fn lease(&self) -> Value {
        serde_json::from_slice(&fs_err::read(self.lease_file()).expect("it can be read"))
            .expect("it is JSON")
    }

    fn lease_file(&self) -> PathBuf {
        self.folder.join("lease.json")
    }

    fn write(&self, bytes: impl AsRef<[u8]>) {
        fs_err::write(self.lease_file(), bytes).expect("a file");
    }

    fn edit(&self, change: impl FnOnce(&mut Value)) {
        let mut lease = self.lease();
        change(&mut lease);
        self.write(serde_json::to_vec_pretty(&lease).expect("it is JSON"));
    }

    /// Asserts that `stop` signals nobody and says that there is nothing to stop.
    fn nothing_to_stop(&self) -> Ran {
        let ran = self.world.run(&self.repo, &["serve", "stop"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran
    }

    fn standing(&self) -> String {
        let status = self.world.json(&self.repo, &["serve", "status"]);
        status["standing"].as_str().expect("a text").to_owned()
    }

    /// Asserts that the lease is taken over and that what was on the board still is.
    fn is_taken_over(&mut self, what: &str) {
        let epoch = fence(&self.folder.join("journal.db"));
        let board = self.client.try_call("peers_list", &json!({}), AGAIN);
        let board = board.unwrap_or_else(|why| panic!("{what}: {why}"));
        assert_eq!(
            board["peers"][0]["announcement"]["intent"], "x",
            "{what}: {board}"
        );
        let lease = self.lease();
        assert_eq!(lease["state"], "serving", "{what}: {lease}");
        assert!(
            lease["epoch"].as_u64() > Some(epoch),
            "{what}: the epoch rises: {lease}"
        );
        assert_eq!(self.world.nodes().len(), 1, "{what}");
    }
}

/// Reads the fence of a journal with another program.
fn fence(journal: &Path) -> u64 {
    let program = "import sqlite3, sys\n\
                   print(sqlite3.connect(sys.argv[1]).execute('SELECT epoch FROM fence').fetchone()[0])";
    let output = Command::new("python3")
        .args(["-c", program])
        .arg(journal)
        .output()
        .expect("it runs");
    let text = String::from_utf8(output.stdout).expect("it is text");
    text.trim()
        .parse()
        .unwrap_or_else(|_| panic!("no fence in {text:?}"))
}

#[test]
fn a_reused_process_number_is_never_signalled() {
    let mut left = Left::by_a_killed_node();
    let innocent = Innocent::start();
    left.edit(|lease| lease["pid"] = json!(innocent.pid()));
    assert_eq!(left.standing(), "stale");
    let said = left.nothing_to_stop();
    assert!(said.stderr.contains("nothing was signalled"), "{said:?}");
    left.is_taken_over("the number of another process");
    // Also where the alive file is gone, and the number is all that is left.
    kill(left.world.serving(&left.repo).unwrap());
    let alive = left.lease()["alive"].as_str().unwrap().to_owned();
    fs_err::remove_file(left.folder.join(alive)).unwrap();
    left.edit(|lease| lease["pid"] = json!(innocent.pid()));
    assert_eq!(left.standing(), "stale");
    left.nothing_to_stop();
    left.is_taken_over("the number of another process, without an alive file");
    assert!(is_running(innocent.pid()));
}

#[test]
fn a_process_number_and_start_of_an_innocent_one_do_not_make_it_the_holder() {
    let mut left = Left::by_a_killed_node();
    let innocent = Innocent::start();
    let stat = fs_err::read_to_string(format!("/proc/{}/stat", innocent.pid())).unwrap();
    let start: u64 = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_ascii_whitespace()
        .nth(19)
        .unwrap()
        .parse()
        .unwrap();
    // The free lock proves death, whatever number the lease names.
    left.edit(|lease| {
        lease["pid"] = json!(innocent.pid());
        lease["pid_start"] = json!(start);
    });
    assert_eq!(left.standing(), "stale");
    left.nothing_to_stop();
    left.is_taken_over("the number and the start of another process");
    assert!(is_running(innocent.pid()));
}

#[test]
fn absurd_process_numbers_lead_to_no_signal() {
    if skip_unless_root("absurd_process_numbers_lead_to_no_signal") {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    world.json(&repo, &["up"]);
    let lease = world.node_folder(&repo).join("lease.json");
    world.json(&repo, &["serve", "stop"]);
    // In a pid namespace of its own: a naive stop would signal pid 1 or every process there.
    let script = r#"
        set -e
        sleep 0.05 # so that process 1 does not start in the very tick in which a node does
        for n in 1 0 -1 4194304 99999999999; do
            "$EARSHOT" serve ensure >/dev/null
            sed -i -E "s/(\"pid\": *)-?[0-9]+/\1$n/" "$LEASE"
            "$EARSHOT" serve status --format json
            rc=0; "$EARSHOT" serve stop >/dev/null || rc=$?
            echo "$n stop=$rc"
        done
        echo still-here
    "#;
    let output = world
        .command("unshare", &repo)
        .args(["-pf", "--mount-proc", "bash", "-c", script])
        .env("EARSHOT", World::binary())
        .env("LEASE", &lease)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.ends_with("still-here\n"), "{output:?}");
    assert_eq!(said.matches("stop=0").count(), 5, "{output:?}");
}

#[test]
fn what_is_no_lease_is_taken_over_and_named_in_the_log() {
    let mut left = Left::by_a_killed_node();
    let whole = fs_err::read(left.lease_file()).unwrap();
    let cases: [(&str, Vec<u8>); 7] = [
        ("empty", Vec::new()),
        ("torn", whole[..whole.len() / 2].to_vec()),
        ("not JSON", b"\x00\xff\x13 not a lease".to_vec()),
        (
            "JSON of something else",
            br#"{"pid": 1, "name": "other"}"#.to_vec(),
        ),
        ("JSON, but no object", b"[1, 2]".to_vec()),
        ("a field of a wrong type", br#"{"schema": "one"}"#.to_vec()),
        ("far too large", vec![b' '; 1024 * 1024]),
    ];
    for (what, bytes) in cases {
        let log = left.folder.join("node.log");
        let before = fs_err::read_to_string(&log).unwrap_or_default().len();
        left.write(bytes);
        assert_eq!(left.standing(), "stale", "{what}");
        left.nothing_to_stop();
        left.is_taken_over(what);
        let log = fs_err::read_to_string(&log).unwrap();
        assert!(
            log[before..].contains("lease"),
            "{what} is not named: {:?}",
            &log[before..]
        );
        kill(left.world.serving(&left.repo).unwrap());
    }
}

#[test]
fn a_lease_that_is_no_file_is_refused_and_harms_nobody() {
    let left = Left::by_a_killed_node();
    let outside = left.world.path().join("outside");
    fs_err::write(&outside, "mine").unwrap();
    fs_err::remove_file(left.lease_file()).unwrap();
    std::os::unix::fs::symlink(&outside, left.lease_file()).unwrap();
    let ran = left.world.run(&left.repo, &["serve", "ensure"]);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("hint: "), "{ran:?}");
    assert_eq!(fs_err::read_to_string(&outside).unwrap(), "mine");
}

#[test]
fn a_future_format_is_taken_over_when_dead_and_left_alone_while_it_lives() {
    let mut left = Left::by_a_killed_node();
    let future = |lease: &mut Value| {
        lease["schema"] = json!(99);
        lease["min_reader"] = json!(99);
        lease["pid"] = json!({ "another": "shape" });
    };
    left.edit(future);
    assert_eq!(left.standing(), "stale");
    left.is_taken_over("a future format with a free lock");

    let pid = left.world.serving(&left.repo).unwrap();
    left.edit(future);
    // The node itself notices within two heartbeats that its lease is another file; stopped, it
    // stands for a living one of a later release that says nothing.
    let stopped = Stopped::stop(pid);
    left.edit(future);
    let written = fs_err::read(left.lease_file()).unwrap();
    assert_eq!(left.standing(), "elsewhere");
    let ran = left
        .world
        .run(&left.repo, &["serve", "ensure", "--wait", "2"]);
    assert_eq!(ran.code, Some(10), "{ran:?}");
    assert!(ran.stderr.contains("elsewhere"), "{ran:?}");
    let ran = left.world.run(&left.repo, &["serve", "stop"]);
    assert_eq!(ran.code, Some(12), "{ran:?}");
    assert_eq!(
        fs_err::read(left.lease_file()).unwrap(),
        written,
        "it is left alone"
    );
    assert!(is_running(pid));
    assert_eq!(left.world.nodes(), [pid]);
    stopped.resume();
    let board = eventually("all is well again", AGAIN, || {
        left.client.try_call("peers_list", &json!({}), AGAIN).ok()
    });
    assert_eq!(board["peers"][0]["announcement"]["intent"], "x", "{board}");
}

#[test]
fn an_ended_lease_and_a_clock_set_back_still_let_the_epoch_rise() {
    let mut left = Left::by_a_killed_node();
    let far = u64::MAX / 4;
    left.edit(|lease| {
        lease["state"] = json!("ended");
        lease["epoch"] = json!(far);
    });
    left.is_taken_over("an epoch of the far future");
    assert_eq!(left.lease()["epoch"].as_u64(), Some(far + 1));
    // A restore from an old backup: the fence remembers.
    kill(left.world.serving(&left.repo).unwrap());
    left.edit(|lease| lease["epoch"] = json!(1));
    left.is_taken_over("an epoch of the past");
    assert_eq!(left.lease()["epoch"].as_u64(), Some(far + 2));
}

#[test]
fn a_client_whose_node_cannot_come_back_is_soon_told_why() {
    for damage in ["folder", "link"] {
        let world = World::new();
        let repo = world.repo("repo");
        let mut client = StdioClient::start(&world, &repo, "alpha");
        client.data("peers_list", json!({}));
        world.json(&repo, &["serve", "stop"]);
        let lease = world.node_folder(&repo).join("lease.json");
        fs_err::remove_file(&lease).unwrap();
        if damage == "folder" {
            fs_err::create_dir(&lease).unwrap();
        } else {
            std::os::unix::fs::symlink("/dev/zero", &lease).unwrap();
        }
        let why = client
            .try_call("peers_list", &json!({}), 2 * AGAIN)
            .unwrap_err();
        assert!(why.contains("no node within 10 s"), "{damage}: {why}");
        assert!(why.contains("lease"), "{damage}: {why}");
        // Put right, it works again.
        if damage == "folder" {
            fs_err::remove_dir(&lease).unwrap();
        } else {
            fs_err::remove_file(&lease).unwrap();
        }
        assert_eq!(client.data("peers_list", json!({}))["count"], 1, "{damage}");
    }
}
