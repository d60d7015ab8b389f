//! `earshot bench` measures, says what, and leaves nothing behind.

use earshot_testkit::process::World;
use serde_json::Value;

/// A world whose temporary folder is its own, so that what a run leaves there is seen.
fn run(world: &World, arguments: &[&str]) -> Value {
    let folder = world.path().join("tmp");
    fs_err::create_dir_all(&folder).expect("a folder");
    let output = world
        .earshot(world.path())
        .env("TMPDIR", &folder)
        .args(arguments)
        .args(["--format", "json"])
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    let left: Vec<_> = fs_err::read_dir(&folder)
        .expect("it is still there")
        .collect();
    assert!(left.is_empty(), "{left:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn number(value: &Value, pointer: &str) -> f64 {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("no number at {pointer} in {value}"))
}

#[test]
fn calls_are_counted_each_way_into_the_node() {
    let world = World::new();
    let measured = run(
        &world,
        &["bench", "calls", "--seconds", "1", "--clients", "2"],
    );
    let loads = measured["calls"].as_array().unwrap();
    let names: Vec<&str> = loads
        .iter()
        .map(|load| load["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "HTTP peers_list",
            "HTTP peers_announce",
            "bridges peers_announce",
            "bridges peers_list",
            "one client, Unix socket",
            "one client, bridge",
        ]
    );
    for load in loads {
        assert_eq!(load["failed"], 0, "{load}");
        for field in ["/calls", "/per_second", "/p50_ms", "/p99_ms"] {
            assert!(number(load, field) > 0.0, "{load}");
        }
    }
    for pair in measured["ratios"].as_array().unwrap() {
        assert!(
            number(pair, "/per_second") > 0.0 && number(pair, "/p50") > 0.0,
            "{pair}"
        );
    }
    number(&measured, "/bridge_cost_ms");
    for start in ["node_running", "node_absent"] {
        assert!(number(&measured, &format!("/initialize/{start}/p50_ms")) > 0.0);
    }
    assert!(number(&measured, "/version/p50_ms") > 0.0);
    assert!(number(&measured, "/executable_bytes") > 0.0);
    for place in [
        "node_started",
        "node_largest",
        "bridge_initialized",
        "bridge_largest",
    ] {
        let memory = &measured["memory"][place];
        assert!(
            number(memory, "/resident_mib") >= number(memory, "/anonymous_mib"),
            "{memory}"
        );
    }
    assert!(measured["machine"]["cpu"].is_string() && measured["build"]["version"].is_string());
}

#[test]
fn a_takeover_is_counted_for_both_kinds_of_client() {
    let world = World::new();
    let measured = run(
        &world,
        &["bench", "takeover", "--seconds", "2", "--clients", "4"],
    );
    assert_eq!(measured["kills"].as_array().unwrap().len(), 3);
    let kinds = measured["clients"].as_array().unwrap();
    assert_eq!(kinds.len(), 2);
    for kind in kinds {
        assert_eq!(kind["clients"], 2, "{kind}");
        assert!(number(kind, "/calls") > 0.0, "{kind}");
        for field in [
            "/failed",
            "/doubled",
            "/lost",
            "/slowest_ms",
            "/errors_seen",
        ] {
            number(kind, field);
        }
    }
    // A bridge promises that no call fails, whatever becomes of the node.
    assert_eq!(kinds[0]["failed"], 0, "{measured}");
}

#[test]
fn honest_clients_are_counted_beside_hostile_ones_and_the_node_stays() {
    let world = World::new();
    let arguments = ["bench", "load", "--seconds", "1", "--only", "trickle"];
    let measured = run(&world, &arguments);
    let loads = measured["loads"].as_array().unwrap();
    assert_eq!(loads.len(), 1, "{measured}");
    let load = &loads[0];
    assert_eq!(
        (&load["name"], &load["same_node"]),
        (&Value::from("trickle"), &Value::from(true)),
        "{load}"
    );
    for side in ["quiet", "control", "hostile"] {
        assert_eq!(load[side]["failed"], 0, "{load}");
        for field in ["calls", "arrivals", "p99_ms"] {
            assert!(number(load, &format!("/{side}/{field}")) > 0.0, "{load}");
        }
    }
    assert!(number(load, "/met/0/connected") > 0.0, "{load}");
    assert!(
        number(load, "/node/peak_mib") >= number(load, "/node/memory/resident_mib"),
        "{load}"
    );
    for ratio in ["/p99_to_quiet", "/p99_to_control", "/node/descriptors"] {
        assert!(number(load, ratio) > 0.0, "{load}");
    }
}

#[test]
fn a_url_that_cannot_be_measured_is_a_usage_error() {
    let world = World::new();
    let ran = world.run(
        world.path(),
        &["bench", "calls", "--beside", "https://127.0.0.1/mcp"],
    );
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("http://"), "{ran:?}");
}
