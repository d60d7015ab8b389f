//! One board over all worktrees of a machine: real nodes, linked without any set-up.

use std::{
    io::{Read as _, Write as _},
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use earshot_testkit::process::{
    SOMEBODY_ELSE, StdioClient, Stopped, World, eventually, is_running, kill, skip_unless_root,
    skip_without,
};
use serde_json::{Value, json};

/// Longest time until what one node did is on the board of another.
const AGAIN: Duration = Duration::from_secs(10);

/// A repository with a linked worktree.
fn two_worktrees(world: &World) -> (PathBuf, PathBuf) {
    let repo = world.repo("repo");
    let feat = world.path().join("feat");
    let path = feat.to_string_lossy().into_owned();
    world.git(&repo, &["worktree", "add", "-q", &path]);
    (repo, feat)
}

fn announce(intent: &str, path: &str) -> Value {
    json!({ "intent": intent, "paths": [path] })
}

/// Waits until a list shows what is asked for, and returns it.
fn listed(
    client: &mut StdioClient,
    what: &str,
    arguments: &Value,
    found: impl Fn(&Value) -> bool,
) -> Value {
    eventually(what, AGAIN, || {
        let board = client.data("peers_list", arguments.clone());
        found(&board).then_some(board)
    })
}

fn row<'a>(board: &'a Value, client: &str) -> Option<&'a Value> {
    let peers = board["peers"].as_array()?;
    peers.iter().find(|peer| peer["client"]["name"] == client)
}

fn intents(board: &Value) -> Vec<&str> {
    let peers = board["peers"].as_array().expect("a list").iter();
    peers
        .filter_map(|peer| peer["announcement"]["intent"].as_str())
        .collect()
}

#[test]
fn claims_in_two_worktrees_meet_and_both_sides_are_told_once() {
    let world = World::new();
    let (repo, feat) = two_worktrees(&world);
    let mut a = StdioClient::start(&world, &repo, "a");
    let mut b = StdioClient::start(&world, &feat, "b");
    a.data("peers_announce", announce("cli", "src"));
    listed(&mut b, "a is on b's board", &json!({}), |board| {
        row(board, "a").is_some_and(|a| a["announcement"]["intent"] == "cli")
    });
    let answer = b.data("peers_announce", announce("main", "src/main.rs"));
    let met = &answer["collisions"][0];
    assert_eq!(met["intent"], "cli", "{answer}");
    assert_eq!(met["pairs"], json!([["src/main.rs", "src"]]), "{answer}");
    assert_eq!(met["attached"], true, "{answer}");
    let board = listed(&mut a, "b is on a's board", &json!({}), |board| {
        board["collisions"]
            .as_array()
            .is_some_and(|it| !it.is_empty())
    });
    assert_eq!(board["count"], 2, "{board}");
    assert_eq!(board["collisions"].as_array().unwrap().len(), 1, "{board}");
    assert_eq!(board["unread"], json!([]), "{board}");
    let theirs = row(&board, "b").unwrap();
    assert_eq!(theirs["origin"]["kind"], "sibling", "{board}");
    assert_eq!(theirs["branch"], "feat", "{board}");
    assert_ne!(
        theirs["checkout_id"],
        row(&board, "a").unwrap()["checkout_id"]
    );
    assert!(theirs.get("address").is_none(), "{board}");
    // The notice came with the answer that showed it first, or with one before; never again.
    let again = a.data("peers_list", json!({}));
    assert!(again.get("notices").is_none(), "{again}");
    // The board of this checkout alone is as it was.
    let this = a.data("peers_list", json!({ "checkouts": "this" }));
    assert_eq!((&this["count"], intents(&this)), (&json!(1), vec!["cli"]));
    // Withdrawn there, gone here.
    b.data("capabilities_call", json!({ "id": "peers.withdraw" }));
    listed(&mut a, "b's announcement is gone", &json!({}), |board| {
        row(board, "b").is_some_and(|b| b.get("announcement").is_none())
    });
}

#[test]
fn the_first_announcement_that_meets_is_told_as_a_notice() {
    let world = World::new();
    let (repo, feat) = two_worktrees(&world);
    let mut a = StdioClient::start(&world, &repo, "a");
    let mut b = StdioClient::start(&world, &feat, "b");
    a.data("peers_announce", announce("cli", "src"));
    b.data("peers_announce", announce("main", "src/main.rs"));
    let told = eventually("a is told", AGAIN, || {
        let answer = a.data("peers_list", json!({ "checkouts": "this" }));
        answer.get("notices").cloned()
    });
    let line = told[0].as_str().unwrap();
    assert!(
        line.contains("src/main.rs") && line.contains("\"b\""),
        "{line}"
    );
    assert!(!line.contains("main\" "), "no free text: {line}");
}

#[test]
fn whoever_announces_right_after_a_start_is_told_whom_it_meets() {
    let world = World::new();
    let (repo, feat) = two_worktrees(&world);
    let third = world.path().join("third");
    let path = third.to_string_lossy().into_owned();
    world.git(&repo, &["worktree", "add", "-q", &path]);
    let mut a = StdioClient::start(&world, &repo, "a");
    let mut b = StdioClient::start(&world, &feat, "b");
    a.data("peers_announce", announce("one", "src/a"));
    b.data("peers_announce", announce("two", "src/b"));
    let mut c = StdioClient::start(&world, &third, "c");
    let said = c.welcome["result"]["instructions"].as_str().unwrap();
    assert!(said.contains("src/a") && said.contains("src/b"), "{said}");
    for round in 0..5 {
        kill(world.serving(&third).expect("a node serves"));
        let answer = c.data("peers_announce", announce("all", "src"));
        let met = answer["collisions"].as_array().unwrap().len();
        assert_eq!(met, 2, "round {round}: {answer}");
    }
}

#[test]
fn the_rows_of_a_killed_node_are_last_seen_and_return_once() {
    let world = World::new();
    let (repo, feat) = two_worktrees(&world);
    let mut a = StdioClient::start(&world, &repo, "a");
    let mut b = StdioClient::start(&world, &feat, "b");
    b.data("peers_announce", announce("main", "docs"));
    listed(&mut a, "b is there", &json!({}), |board| {
        board["count"] == 2
    });
    kill(world.serving(&feat).expect("a node serves"));
    let board = listed(&mut a, "b is gone", &json!({}), |board| {
        row(board, "b").is_some_and(|b| b["attached"] == false)
    });
    assert_eq!(board["count"], 1, "{board}");
    assert_eq!(intents(&board), ["main"], "{board}");
    // Its client calls, a new node comes, and the row is there once.
    b.data("peers_list", json!({}));
    let board = listed(&mut a, "b is there again", &json!({}), |board| {
        board["count"] == 2
    });
    assert_eq!(board["peers"].as_array().unwrap().len(), 2, "{board}");
    assert_eq!(row(&board, "b").unwrap()["origin"]["age_ms"], 0, "{board}");
}

#[test]
fn an_ordered_end_is_seen_at_once() {
    let world = World::new();
    let (repo, feat) = two_worktrees(&world);
    let mut a = StdioClient::start(&world, &repo, "a");
    let b = StdioClient::start(&world, &feat, "b");
    listed(&mut a, "b is there", &json!({}), |board| {
        board["count"] == 2
    });
    drop(b);
    world.json(&feat, &["serve", "stop"]);
    listed(&mut a, "b is gone", &json!({}), |board| board["count"] == 1);
}

#[test]
fn another_repository_is_on_the_board_of_the_machine_and_meets_nobody() {
    let world = World::new();
    let (repo, other) = (world.repo("repo"), world.repo("other"));
    let mut a = StdioClient::start(&world, &repo, "a");
    let mut b = StdioClient::start(&world, &other, "b");
    a.data("peers_announce", announce("here", "src"));
    b.data("peers_announce", announce("there", "src"));
    let machine = json!({ "checkouts": "machine" });
    let board = listed(&mut a, "b is on the machine", &machine, |board| {
        intents(board) == ["here", "there"]
    });
    assert_eq!(board["collisions"], json!([]), "{board}");
    let board = a.data("peers_list", json!({ "checkouts": "repository" }));
    assert_eq!(intents(&board), ["here"], "{board}");
}

#[test]
fn a_node_that_hangs_is_named_among_those_that_could_not_be_read() {
    let world = World::new();
    let (repo, feat) = two_worktrees(&world);
    let mut a = StdioClient::start(&world, &repo, "a");
    let _b = StdioClient::start(&world, &feat, "b");
    listed(&mut a, "b is there", &json!({}), |board| {
        board["count"] == 2
    });
    let hung = Stopped::stop(world.serving(&feat).expect("a node serves"));
    let fresh = a.data("peers_list", json!({ "fresh": true }));
    let unread = fresh["unread"].as_array().unwrap();
    assert_eq!(unread.len(), 1, "{fresh}");
    assert_eq!(unread[0]["reason"], "it did not answer in time", "{fresh}");
    let status = world.json(&feat, &["serve", "status"]);
    assert_eq!(unread[0]["node"], status["checkout_id"], "{fresh}");
    hung.resume();
    let fresh = json!({ "fresh": true });
    listed(&mut a, "all are read", &fresh, |board| {
        board["unread"] == json!([])
    });
}

#[test]
fn a_newcomer_names_the_node_that_it_cannot_reach() {
    let world = World::new();
    let (repo, feat) = two_worktrees(&world);
    let b = StdioClient::start(&world, &feat, "b");
    let hung = Stopped::stop(world.serving(&feat).expect("a node serves"));
    let mut a = StdioClient::start(&world, &repo, "a");
    let board = listed(&mut a, "the reason is there", &json!({}), |board| {
        let reason = board["unread"][0]["reason"].as_str();
        reason.is_some_and(|reason| reason.contains("no hello"))
    });
    assert_eq!(board["count"], 1, "{board}");
    hung.resume();
    listed(&mut a, "they are linked", &json!({}), |board| {
        board["count"] == 2
    });
    drop(b);
}

#[test]
fn status_lists_the_checkouts_of_the_repository_and_of_the_machine() {
    let world = World::new();
    let (repo, feat) = two_worktrees(&world);
    let gone = world.path().join("gone");
    let path = gone.to_string_lossy().into_owned();
    world.git(&repo, &["worktree", "add", "-q", &path]);
    fs_err::remove_dir_all(&gone).unwrap();
    let other = world.repo("other");
    let _a = StdioClient::start(&world, &repo, "a");
    let _b = StdioClient::start(&world, &feat, "b");
    let _c = StdioClient::start(&world, &other, "c");
    let list = |which: &str| {
        let status = world.json(&repo, &["serve", "status", "--checkouts", which]);
        status["checkouts"].as_array().unwrap().clone()
    };
    let here = list("repository");
    let of = |list: &[Value], root: &Path| {
        let name = root.file_name().unwrap().to_string_lossy().into_owned();
        let found = list.iter().find(|it| {
            it["root"]
                .as_str()
                .is_some_and(|root| root.ends_with(&format!("/{name}")))
        });
        found
            .unwrap_or_else(|| panic!("{name} is not in {list:?}"))
            .clone()
    };
    assert_eq!(here.len(), 3, "{here:?}");
    let (primary, linked, missing) = (of(&here, &repo), of(&here, &feat), of(&here, &gone));
    for (it, worktree) in [(&primary, false), (&linked, true)] {
        assert_eq!(it["standing"], "ready", "{it}");
        assert_eq!(it["peers"], 1, "{it}");
        assert_eq!(it["linked_worktree"], worktree, "{it}");
        assert_eq!(it["missing"], false, "{it}");
        assert_eq!(it["repository_id"], primary["repository_id"], "{it}");
    }
    assert_ne!(primary["pid"], linked["pid"]);
    assert_eq!(missing["missing"], true, "{missing}");
    assert_eq!(missing["standing"], "absent", "{missing}");
    let all = list("machine");
    assert_eq!(all.len(), 4, "{all:?}");
    assert_eq!(of(&all, &other)["standing"], "ready");
    let table = world.run(&repo, &["serve", "status", "--checkouts", "repository"]);
    assert_eq!(table.stdout.lines().count(), 4, "{table:?}");
}

#[test]
fn the_machine_has_one_key_and_each_node_its_own() {
    let world = World::new();
    let (repo, feat) = two_worktrees(&world);
    world.json(&repo, &["up"]);
    world.json(&feat, &["up"]);
    let keys = |pattern: &str| {
        let found = Command::new("find")
            .arg(world.path().join("home"))
            .args(["-name", pattern])
            .output()
            .unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        found.lines().map(PathBuf::from).collect::<Vec<_>>()
    };
    let machine = eventually("the machine's key is there", AGAIN, || {
        let keys = keys("machine.key");
        (!keys.is_empty()).then_some(keys)
    });
    let nodes = eventually("both nodes' keys are there", AGAIN, || {
        let keys = keys("node.key");
        (keys.len() == 2).then_some(keys)
    });
    assert_eq!(machine.len(), 1);
    for key in machine.iter().chain(&nodes) {
        let mode = fs_err::metadata(key).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", key.display());
    }
    assert_ne!(
        fs_err::read(&nodes[0]).unwrap(),
        fs_err::read(&nodes[1]).unwrap()
    );
}

#[test]
fn a_key_that_others_can_read_is_refused_and_the_node_serves_alone() {
    let world = World::new();
    let (repo, feat) = two_worktrees(&world);
    world.json(&repo, &["up"]);
    let key = world.node_folder(&repo).join("node.key");
    eventually("the key is there", AGAIN, || key.exists().then_some(()));
    world.json(&repo, &["serve", "stop"]);
    fs_err::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut a = StdioClient::start(&world, &repo, "a");
    let mut b = StdioClient::start(&world, &feat, "b");
    a.data("peers_announce", announce("alone", "src"));
    let log = world.node_folder(&repo).join("node.log");
    eventually("the log says why", AGAIN, || {
        let log = fs_err::read_to_string(&log).unwrap_or_default();
        log.contains("chmod 600").then_some(())
    });
    let board = b.data("peers_list", json!({}));
    assert!(row(&board, "a").is_none(), "{board}");
}

#[test]
fn what_is_no_sibling_gets_no_link() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut a = StdioClient::start(&world, &repo, "a");
    a.data("peers_announce", announce("secret", "src"));
    let socket = world.socket(&repo);
    // It speaks the protocol, and is no node of this machine: it hears the greeting and a hello,
    // both of which say nothing about the board, and then nothing.
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.set_read_timeout(Some(AGAIN)).unwrap();
    let mut greeting = b"earshot-link/1\r\n".to_vec();
    greeting.extend([7; 64]);
    greeting.extend([0, 0, 0, 9]);
    greeting.extend(b"no hello!");
    stream.write_all(&greeting).unwrap();
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).unwrap();
    assert!(heard.starts_with(b"earshot-link/1\r\n"));
    let text = String::from_utf8_lossy(&heard);
    assert!(!text.contains("secret") && !text.contains("src"), "{text}");
    // Two thousand bytes of nonsense do it no harm.
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(&[b'e'; 2_000]).unwrap();
    stream.set_read_timeout(Some(AGAIN)).unwrap();
    stream.read_to_end(&mut heard).ok(); // closed, or reset for what it has not read
    assert_eq!(a.data("peers_list", json!({}))["count"], 1);
}

#[test]
fn another_user_gets_no_link() {
    let test = "another_user_gets_no_link";
    if skip_unless_root(test) || skip_without("setpriv", test) || skip_without("perl", test) {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    let _a = StdioClient::start(&world, &repo, "a");
    let socket = world.socket(&repo);
    let own = world.path().to_owned();
    for folder in socket
        .ancestors()
        .skip(1)
        .take_while(|it| it.starts_with(&own))
    {
        fs_err::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs_err::set_permissions(&socket, std::fs::Permissions::from_mode(0o777)).unwrap();
    let script = "use IO::Socket::UNIX; \
         my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die \"no connection: $!\"; \
         $s->syswrite(\"earshot-link/1\\r\\n\" . (\"\\0\" x 64)); \
         $s->sysread(my $heard, 100); print \"heard \", length($heard // \"\")";
    let user = SOMEBODY_ELSE.to_string();
    let ran = Command::new("setpriv")
        .args([
            "--reuid",
            &user,
            "--regid",
            &user,
            "--clear-groups",
            "perl",
            "-e",
            script,
        ])
        .arg(&socket)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "heard 0", "{ran:?}");
    assert!(is_running(world.serving(&repo).unwrap()));
}

#[test]
fn many_worktrees_started_at_once_come_to_one_board() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut folders = vec![repo.clone()];
    for n in 0..7 {
        let path = world.path().join(format!("w{n}"));
        let text = path.to_string_lossy().into_owned();
        world.git(
            &repo,
            &["worktree", "add", "-q", "-b", &format!("b{n}"), &text],
        );
        folders.push(path);
    }
    let mut clients: Vec<StdioClient> = std::thread::scope(|scope| {
        let starting: Vec<_> = folders
            .iter()
            .enumerate()
            .map(|(n, folder)| {
                let world = &world;
                scope.spawn(move || StdioClient::start(world, folder, &format!("c{n}")))
            })
            .collect();
        starting.into_iter().map(|it| it.join().unwrap()).collect()
    });
    for client in &mut clients {
        let board = listed(client, "all are on the board", &json!({}), |board| {
            board["count"] == 8
        });
        assert_eq!(board["peers"].as_array().unwrap().len(), 8, "{board}");
    }
    // A client in the middle of it announces, and everybody knows.
    clients[3].data("peers_announce", announce("everywhere", "src"));
    for client in &mut clients {
        listed(client, "all know", &json!({}), |board| {
            intents(board) == ["everywhere"]
        });
    }
}
