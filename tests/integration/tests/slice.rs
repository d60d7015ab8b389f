//! The main job: agents attach to the node of a checkout and see each other on one board.

use earshot_testkit::process::{StdioClient, WireClient, World, http};
use serde_json::{Value, json};

const JSON: (&str, &str) = ("content-type", "application/json");

#[test]
fn two_agents_meet_on_one_board_one_through_the_bridge_one_over_http() {
    let world = World::new();
    let repo = world.repo("repo");
    let url = world.up(&repo);
    let mut alpha = StdioClient::start(&world, &repo, "alpha");
    let beta = WireClient::start(&url, "beta");

    let said = alpha.data(
        "peers_announce",
        json!({ "intent": "rewrite the cli", "paths": ["src"] }),
    );
    assert_eq!(said["collisions"], json!([]));
    let arguments = json!({ "intent": "fix main", "paths": ["./src//main.rs"] });
    let met = beta.call("peers_announce", &arguments);
    let met = &met["structuredContent"]["collisions"];
    assert_eq!(met[0]["peer"]["id"], said["peer"]);
    assert_eq!(met[0]["pairs"], json!([["src/main.rs", "src"]]));
    assert_eq!(met[0]["intent"], "rewrite the cli");

    // The other side learns of it with its very next answer, and once.
    let board = alpha.data("peers_list", json!({}));
    assert_eq!(board["count"], 2);
    assert_eq!(board["collisions"].as_array().unwrap().len(), 1);
    let notice = board["notices"][0].as_str().expect("a notice");
    assert!(notice.contains("src/main.rs"), "{notice}");
    let again = alpha.data("peers_list", json!({}));
    assert!(again.get("notices").is_none(), "{again}");

    let names: Vec<&str> = board["peers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|peer| peer["client"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["alpha", "beta"]);
}

#[test]
fn an_arriving_agent_is_told_who_is_there_before_its_first_call() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut first = StdioClient::start(&world, &repo, "first");
    first.data(
        "peers_announce",
        json!({ "intent": "write docs", "paths": ["docs"] }),
    );
    let second = StdioClient::start(&world, &repo, "second");
    let told = second.welcome["result"]["instructions"]
        .as_str()
        .unwrap()
        .to_owned();
    let url = world.json(&repo, &["serve", "status"])["url"]
        .as_str()
        .unwrap()
        .to_owned();
    for part in [
        url.as_str(),
        "you are p2",
        "p1 (\"first\")",
        "write docs",
        "docs",
        "peers_announce",
    ] {
        assert!(told.contains(part), "{part:?} is not in {told}");
    }
}

#[test]
fn a_seat_is_never_shown() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut agent = StdioClient::start_with(
        &world,
        &repo,
        "agent",
        &[("EARSHOT_SESSION_ID", "session-of-the-agent")],
    );
    agent.data("peers_announce", json!({ "intent": "x", "paths": ["src"] }));
    let board = agent.data("peers_list", json!({ "detail": true }));
    let me = &board["peers"][0];
    assert_eq!(me["seat_id"].as_str().unwrap().len(), 16);
    assert_eq!(me["address"]["pid"], json!(std::process::id()));
    let listed = agent.data("peers_list", json!({})).to_string();
    assert!(!listed.contains("session-of-the-agent"), "{listed}");
}

#[test]
fn an_anonymous_caller_reads_and_announces_with_its_ticket_only() {
    let world = World::new();
    let repo = world.repo("repo");
    let url = world.up(&repo);
    let announce = |body: Value| {
        http(
            &url,
            "POST",
            "/api/v1/peers/announce",
            &[JSON],
            body.to_string().as_bytes(),
        )
        .unwrap()
    };
    let refused = announce(json!({ "intent": "x", "paths": ["src"] }));
    assert_eq!(
        (refused.status, refused.json()["error"]["code"].clone()),
        (422, json!("refused"))
    );
    let remedy = refused.json()["error"]["remedy"].to_string();
    assert!(remedy.contains("ticket"), "{remedy}");

    let board = http(&url, "GET", "/api/v1/peers/list", &[], b"")
        .unwrap()
        .json();
    let ticket = board["ticket"].clone();
    let said = announce(json!({ "intent": "x", "paths": ["src"], "ticket": ticket }));
    assert_eq!(said.status, 200, "{said:?}");
    let forged = announce(json!({ "intent": "x", "ticket": "0".repeat(32) }));
    assert_eq!(
        (forged.status, forged.json()["error"]["code"].clone()),
        (410, json!("gone"))
    );
    let board = http(&url, "GET", "/api/v1/peers/list", &[], b"")
        .unwrap()
        .json();
    assert_eq!(board["count"], 1);
}

#[test]
fn claims_meet_by_components_and_are_stored_in_one_form() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut a = StdioClient::start(&world, &repo, "a");
    let mut b = StdioClient::start(&world, &repo, "b");
    a.data("peers_announce", json!({ "intent": "a", "paths": ["app"] }));
    let absolute = repo.join("app/x").to_string_lossy().into_owned();
    for (path, meets) in [
        ("app", true),
        ("apps", false),
        ("app.bak", false),
        ("app/x/y", true),
        ("ap", false),
        ("lib/app", false),
        ("./app/", true),
        (".", true),
        ("app/**", true),
        (&absolute, true),
    ] {
        let said = b.data("peers_announce", json!({ "intent": "b", "paths": [path] }));
        assert_eq!(
            said["collisions"].as_array().unwrap().len(),
            usize::from(meets),
            "{path}"
        );
    }
    for path in [
        "..",
        "../other",
        "/etc/passwd",
        "src/../../x",
        "",
        "src/*.rs",
        "a\u{0}b",
    ] {
        let refused = b.call("peers_announce", json!({ "intent": "b", "paths": [path] }));
        assert_eq!(refused["isError"], json!(true), "{path:?}: {refused}");
        let text = refused["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("invalid_input: "), "{path:?}: {text}");
        assert!(refused.get("structuredContent").is_none(), "{refused}");
    }
}
