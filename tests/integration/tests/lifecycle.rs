//! Starting, finding and ending the node of a checkout.

use std::{process::Stdio, time::Duration};

use earshot_testkit::process::{StdioClient, World, eventually};
use serde_json::json;

#[test]
fn up_starts_a_node_once_and_says_how_to_join() {
    let world = World::new();
    let repo = world.repo("repo");
    assert_eq!(
        world.json(&repo, &["serve", "status"])["standing"],
        "absent"
    );
    let first = world.json(&repo, &["up"]);
    let second = world.json(&repo, &["up"]);
    assert_eq!(first["pid"], second["pid"]);
    assert_eq!(first["standing"], "ready");
    assert_eq!(world.nodes().len(), 1);
    let text = world.run(&repo, &["up"]).stdout;
    for part in [
        first["url"].as_str().unwrap(),
        "claude mcp add",
        "codex mcp add",
        "The board",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    // Serving changes nothing in the work tree.
    assert_eq!(
        world.git(&repo, &["status", "--porcelain", "--ignored"]),
        ""
    );
}

#[test]
fn a_subfolder_and_a_symlink_lead_to_the_same_node() {
    let world = World::new();
    let repo = world.repo("repo");
    let link = world.path().join("link");
    std::os::unix::fs::symlink(&repo, &link).unwrap();
    let pid = world.json(&repo, &["up"])["pid"].clone();
    assert_eq!(world.json(&repo.join("src"), &["up"])["pid"], pid);
    assert_eq!(world.json(&link, &["up"])["pid"], pid);
    assert_eq!(world.json(&link.join("src"), &["up"])["pid"], pid);
    assert_eq!(world.nodes().len(), 1);
}

#[test]
fn bridges_that_start_at_once_share_one_node_and_leave_nothing_behind() {
    let world = World::new();
    let repo = world.repo("repo");
    let clients: Vec<StdioClient> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..12)
            .map(|n| {
                let (world, repo) = (&world, &repo);
                scope.spawn(move || StdioClient::start(world, repo, &format!("c{n}")))
            })
            .collect();
        starts
            .into_iter()
            .map(|start| start.join().unwrap())
            .collect()
    });
    let mut clients = clients;
    let board = clients[0].data("peers_list", json!({}));
    assert_eq!(board["count"], 12);
    assert_eq!(world.nodes().len(), 1);
    for client in clients {
        assert!(client.close().0.success());
    }
    let board = world.json(&repo, &["peers"]);
    assert_eq!(board["count"], 0);
}

#[test]
fn stop_ends_the_node_in_order_and_without_one_there_is_nothing_to_do() {
    let world = World::new();
    let repo = world.repo("repo");
    assert_eq!(world.run(&repo, &["serve", "stop"]).code, Some(0));
    world.json(&repo, &["up"]);
    assert_eq!(world.json(&repo, &["serve", "stop"])["stopped"], true);
    assert_eq!(world.nodes().len(), 0);
    assert_eq!(
        world.json(&repo, &["serve", "status"])["standing"],
        "absent"
    );
    let lease = world.json(&repo, &["serve", "status"])["lease_path"]
        .as_str()
        .unwrap()
        .to_owned();
    let lease: serde_json::Value = serde_json::from_slice(&fs_err::read(lease).unwrap()).unwrap();
    assert_eq!(lease["state"], "ended");
}

#[test]
fn sigterm_is_an_ordered_stop() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut node = world
        .earshot(&repo)
        .arg("serve")
        .stderr(Stdio::piped())
        .spawn()
        .expect("the node starts");
    // Not `ensure`: where the node has not begun yet, it would start a second one.
    eventually("it serves", Duration::from_secs(20), || {
        world.serving(&repo)
    });
    let pid = rustix::process::Pid::from_raw(i32::try_from(node.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(node.wait().unwrap().success());
    assert_eq!(
        world.json(&repo, &["serve", "status"])["standing"],
        "absent"
    );
}

#[test]
fn a_second_node_defers_to_the_first() {
    let world = World::new();
    let repo = world.repo("repo");
    let pid = world.json(&repo, &["up"])["pid"].clone();
    let second = world.run(&repo, &["serve"]);
    assert_eq!(second.code, Some(0), "{second:?}");
    assert!(
        second.stderr.contains("another node holds this checkout"),
        "{second:?}"
    );
    assert_eq!(world.json(&repo, &["serve", "status"])["pid"], pid);
}

#[test]
fn a_killed_node_is_followed_by_another_with_a_higher_epoch() {
    let world = World::new();
    let repo = world.repo("repo");
    let first = world.json(&repo, &["up"]);
    let pid = i32::try_from(first["pid"].as_i64().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let second = world.json(&repo, &["up"]);
    assert!(second["lease_epoch"].as_u64() > first["lease_epoch"].as_u64());
    assert_eq!(
        second["url"], first["url"],
        "the port is the checkout's own"
    );
}

#[test]
fn an_address_that_cannot_be_bound_is_named_and_leaves_no_lease() {
    let world = World::new();
    let repo = world.repo("repo");
    let ran = world.run(&repo, &["serve", "--host", "192.0.2.7"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stderr.contains("192.0.2.7") && ran.stderr.contains("hint: "),
        "{ran:?}"
    );
    assert_eq!(
        world.json(&repo, &["serve", "status"])["standing"],
        "absent"
    );
}

#[test]
fn a_configuration_that_does_not_fit_is_named_with_its_line() {
    let world = World::new();
    let repo = world.repo("repo");
    fs_err::create_dir_all(world.home().join("config")).unwrap();
    fs_err::write(
        world.home().join("config/config.toml"),
        "[http]\nlopback = \"key\"\n",
    )
    .unwrap();
    let ran = world.run(&repo, &["up"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("line 2") && ran.stderr.contains("loopback"),
        "{ran:?}"
    );
}

#[test]
fn a_bare_repository_has_no_node_and_says_where_its_checkouts_are() {
    let world = World::new();
    let repo = world.repo("repo");
    let hub = world.path().join("hub.git");
    let (from, to) = (repo.to_string_lossy(), hub.to_string_lossy());
    world.git(world.path(), &["clone", "-q", "--bare", &from, &to]);
    let ran = world.run(&hub, &["up"]);
    assert_eq!(ran.code, Some(12), "{ran:?}");
    assert!(ran.stderr.contains("bare"), "{ran:?}");
    assert!(!hub.join("earshot").exists());
}

#[test]
fn a_client_is_served_alone_where_no_node_can_run() {
    let world = World::new();
    let repo = world.repo("repo");
    for (env, arguments) in [
        (("EARSHOT", "off"), "off"),
        (("EARSHOT_HOME", "relative"), "absolute"),
    ] {
        let mut alone = StdioClient::start_with(&world, &repo, "alone", &[env]);
        let told = alone.welcome["result"]["instructions"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(told.contains("served alone"), "{arguments}: {told}");
        let said = alone.data("peers_announce", json!({ "intent": "x", "paths": ["src"] }));
        assert_eq!(said["peer"], "p1");
        let (status, rest) = alone.close();
        assert!(status.success() && rest.is_empty(), "{status} {rest:?}");
    }
    assert_eq!(world.nodes().len(), 0);
}

#[test]
fn the_repository_key_is_shared_by_worktrees_and_kept_through_a_move() {
    let world = World::new();
    let repo = world.repo("repo");
    world.git(&repo, &["worktree", "add", "-q", "../wt"]);
    let key = |folder: &std::path::Path| {
        world.json(folder, &["serve", "status"])["repository_key"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let mine = key(&repo);
    assert_eq!(mine.len(), 32);
    assert_eq!(key(&world.path().join("wt")), mine);
    let moved = world.path().join("moved");
    fs_err::rename(&repo, &moved).unwrap();
    assert_eq!(key(&moved), mine);
    assert_ne!(
        key(&world.repo("repo")),
        mine,
        "a new repository at the old path inherits nothing"
    );
}

#[test]
fn a_removed_checkout_takes_its_node_along() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut node = world.earshot(&repo).arg("serve").spawn().unwrap();
    world.json(&repo, &["serve", "ensure"]);
    fs_err::remove_dir_all(&repo).unwrap();
    // Three heartbeats of two seconds.
    assert!(node.wait().unwrap().success());
}
