//! One registry behind every surface: tools, routes, OpenAPI, CLI, and what each costs.

use earshot_testkit::process::{StdioClient, World, http};
use serde_json::{Value, json};

fn node(world: &World) -> (std::path::PathBuf, String) {
    let repo = world.repo("repo");
    let url = world.up(&repo);
    (repo, url)
}

#[test]
fn every_surface_names_the_same_capabilities() {
    let world = World::new();
    let (repo, url) = node(&world);
    let listed = world.json(&repo, &["capabilities", "list"]);
    let declared: Vec<&Value> = listed["capabilities"].as_array().unwrap().iter().collect();
    let ids = |keep: &dyn Fn(&Value) -> bool| -> Vec<String> {
        let kept = declared.iter().filter(|it| keep(it));
        kept.map(|it| it["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let projected = ids(&|it| it["effect"] != "operator");
    assert!(ids(&|it| it["effect"] == "operator").contains(&"server.stop".to_owned()));

    let openapi = http(&url, "GET", "/openapi.json", &[], b"").unwrap().json();
    let mut routes: Vec<String> = openapi["paths"]
        .as_object()
        .unwrap()
        .keys()
        .filter_map(|path| path.strip_prefix("/api/v1/"))
        .filter(|path| !["live", "ready"].contains(path))
        .map(|path| path.replace('/', "."))
        .collect();
    routes.sort();
    assert_eq!(routes, projected);

    let mut agent = StdioClient::start(&world, &repo, "agent");
    let tools = agent.ask("tools/list", json!({}))["result"]["tools"].clone();
    let mut names: Vec<&str> = tools
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    let expected: Vec<String> = ids(&|it| it["listed"] == true)
        .iter()
        .map(|id| id.replace('.', "_"))
        .collect();
    assert_eq!(names, expected);
    // One that is not listed can be called by its tool name all the same.
    let status = agent.data("server_status", json!({}));
    assert_eq!(status["standing"], "ready");
}

#[test]
fn the_tool_list_is_short_and_plain() {
    let world = World::new();
    let (repo, _) = node(&world);
    let mut agent = StdioClient::start(&world, &repo, "agent");
    let list = agent.ask("tools/list", json!({}))["result"].clone();
    let tools = list["tools"].as_array().unwrap();
    assert!(tools.len() <= 12, "{} tools", tools.len());
    // 2,500 tokens at four bytes each, for the twelve; the share of those that exist.
    let bound = 10_000 * tools.len() / 12;
    assert!(
        list.to_string().len() <= bound,
        "{} bytes, {bound} may be",
        list.to_string().len()
    );
    for tool in tools {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert!(
            tool["annotations"].is_object() && tool["outputSchema"].is_object(),
            "{tool}"
        );
        assert!(
            tool["name"]
                .as_str()
                .is_some_and(|name| !name.starts_with("test_")),
            "{tool}"
        );
        let text = tool.to_string();
        for word in ["$ref", "$schema", "$defs"] {
            assert!(!text.contains(word), "{word} in {tool}");
        }
    }
}

#[test]
fn operator_capabilities_answer_to_the_command_line_alone() {
    let world = World::new();
    let (repo, url) = node(&world);
    let json_type = [("content-type", "application/json")];
    let over_tcp = http(&url, "POST", "/api/v1/server/stop", &json_type, b"{}").unwrap();
    assert!([403, 404].contains(&over_tcp.status), "{over_tcp:?}");
    let mut agent = StdioClient::start(&world, &repo, "agent");
    let params = json!({ "name": "server_stop", "arguments": {} });
    let over_mcp = agent.ask("tools/call", params);
    assert_eq!(over_mcp["error"]["code"], -32602, "{over_mcp}");
    let wrapped = agent.call("capabilities_call", json!({ "id": "server.stop" }));
    assert_eq!(wrapped["isError"], true, "{wrapped}");
    assert_eq!(world.json(&repo, &["serve", "status"])["standing"], "ready");
    assert_eq!(
        world.json(&repo, &["call", "server.stop"])["pid"],
        node_pid(&world, &repo)
    );
}

fn node_pid(world: &World, _: &std::path::Path) -> u32 {
    world.nodes().first().copied().unwrap_or_default()
}

#[test]
fn errors_have_one_form_on_every_surface() {
    let world = World::new();
    let (repo, url) = node(&world);
    let input = json!({ "intent": "x", "paths": "src" });
    let json_type = [("content-type", "application/json")];
    let over_http = http(
        &url,
        "POST",
        "/api/v1/peers/announce",
        &json_type,
        input.to_string().as_bytes(),
    )
    .unwrap();
    let http_error = over_http.json()["error"].clone();
    assert_eq!(
        (over_http.status, &http_error["code"]),
        (400, &json!("invalid_input"))
    );
    assert_eq!(
        http_error["request_id"].as_str(),
        over_http.header("earshot-request-id")
    );
    assert!(over_http.header("earshot-version").is_some());

    let mut agent = StdioClient::start(&world, &repo, "agent");
    let over_mcp = agent.call("peers_announce", input.clone());
    let text = over_mcp["content"][0]["text"].as_str().unwrap();
    let meta = &over_mcp["_meta"]["error"];
    for field in ["code", "message", "remedy"] {
        assert_eq!(meta[field], http_error[field], "{over_mcp}");
    }
    assert!(text.starts_with("invalid_input: `paths`"), "{text}");

    let over_cli = world.run(
        &repo,
        &[
            "call",
            "peers.announce",
            &input.to_string(),
            "--format",
            "json",
        ],
    );
    assert_eq!(over_cli.code, Some(2), "{over_cli:?}");
    let cli_error: Value = serde_json::from_str(over_cli.stderr.trim()).unwrap();
    for field in ["code", "message", "remedy"] {
        assert_eq!(cli_error["error"][field], http_error[field], "{cli_error}");
    }
}

#[test]
fn no_call_redoes_what_start_up_did() {
    let world = World::new();
    let (repo, url) = node(&world);
    let mut agent = StdioClient::start(&world, &repo, "agent");
    agent.ask("tools/list", json!({}));
    let startup = || -> Vec<String> {
        let metrics = http(&url, "GET", "/metrics", &[], b"").unwrap();
        let text = String::from_utf8(metrics.body).unwrap();
        let lines = text
            .lines()
            .filter(|line| line.starts_with("earshot_startup"));
        lines.map(str::to_owned).collect()
    };
    let before = startup();
    assert!(before.len() >= 5, "{before:?}");
    for n in 0..150 {
        agent.data(
            "peers_announce",
            json!({ "intent": format!("step {n}"), "paths": ["src"] }),
        );
        agent.data("peers_list", json!({}));
        agent.ask("tools/list", json!({}));
    }
    for path in ["/", "/openapi.json", "/api/v1/ready", "/api/v1/peers/list"] {
        assert_eq!(
            http(&url, "GET", path, &[], b"").unwrap().status,
            200,
            "{path}"
        );
    }
    assert_eq!(startup(), before);
}
