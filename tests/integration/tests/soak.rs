//! What takes longer than a run of all tests should: `cargo nextest run --profile soak`.

use std::time::Duration;

use earshot_testkit::process::{StdioClient, World, come_and_go, eventually, kill};
use serde_json::json;

#[test]
fn soak_five_hundred_clients_that_come_and_go_leave_nothing() {
    let world = World::new();
    let repo = world.repo("repo");
    come_and_go(&world, &repo, 500);
    eventually(
        "nothing is left but the node",
        Duration::from_secs(10),
        || {
            let nodes = world.nodes();
            (world.processes() == nodes && nodes.len() == 1).then_some(())
        },
    );
    let board = world.json(&repo, &["peers"]);
    assert_eq!(board["count"], 0, "{board}");
}

#[test]
fn soak_clients_come_and_go_while_their_node_is_killed_again_and_again() {
    let world = World::new();
    let repo = world.repo("repo");
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| come_and_go(&world, &repo, 200));
        while !clients.is_finished() {
            if let Some(pid) = world.serving(&repo) {
                kill(pid);
            }
            eventually(
                "a node serves, or all have gone",
                Duration::from_secs(20),
                || (clients.is_finished() || world.serving(&repo).is_some()).then_some(()),
            );
        }
        clients.join().unwrap();
    });
    world.json(&repo, &["up"]);
    // A client whose goodbye met no node is forgotten once it was silent for long enough.
    let intents = world.json(&repo, &["peers"]);
    assert!(
        intents["peers"].as_array().unwrap().len() <= 200,
        "{intents}"
    );
}

#[test]
fn soak_a_client_whose_bridge_was_killed_is_forgotten_after_its_silence() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut killed = StdioClient::start(&world, &repo, "killed");
    let mut other = StdioClient::start(&world, &repo, "other");
    let announcement = json!({ "intent": "half done", "paths": ["src"] });
    killed.data("peers_announce", announcement.clone());
    kill(killed.pid());
    // Ninety seconds of silence, and a heartbeat.
    eventually("its row departs", Duration::from_secs(100), || {
        (other.data("peers_list", json!({}))["count"] == 1).then_some(())
    });
    let said = other.data("peers_announce", announcement);
    let met = &said["collisions"][0];
    assert_eq!(
        (&met["intent"], &met["attached"]),
        (&json!("half done"), &json!(false)),
        "{said}"
    );
}

#[test]
fn soak_a_minute_of_clients_is_counted_and_leaves_nothing() {
    let world = World::new();
    let arguments = ["bench", "soak", "--minutes", "1"];
    let measured = world.json(world.path(), &arguments);
    assert_eq!(
        measured["samples"].as_array().unwrap().len(),
        2,
        "{measured}"
    );
    assert_eq!(
        (&measured["failed"], &measured["same_node"]),
        (&json!(0), &json!(true)),
        "{measured}"
    );
    assert!(measured["comers"].as_u64() > Some(10), "{measured}");
    assert!(
        measured["slopes_per_minute"]["node_descriptors"].is_number(),
        "{measured}"
    );
}
