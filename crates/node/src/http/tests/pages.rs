//! Identity, health, measures, and what a person sees.

use super::*;

#[tokio::test]
async fn the_root_says_who_answers_and_no_path_of_the_file_system() {
    let site = Fixture::new().site();
    let seen = ask(&site, request("GET", "/", &[("accept", "*/*")], "")).await;
    assert_eq!(seen.header("vary"), "accept");
    let said = seen.json();
    let expected = serde_json::json!({
        "version": "0.1.0", "commit": "0123abc", "dirty": false, "stale": null,
        "checkout_id": CHECKOUT, "repository_id": "r1", "branch": "main", "head": "4567def",
        "linked_worktree": false, "leaseholder": true,
        "surfaces": {
            "home": "/", "live": "/api/v1/live", "mcp": "/c/c0ffee/mcp", "metrics": "/metrics",
            "openapi": "/openapi.json", "ready": "/api/v1/ready", "swagger": "/swagger",
        },
    });
    assert_eq!(said, expected);
    for path in said["surfaces"].as_object().unwrap().values() {
        let seen = ask(&site, request("GET", path.as_str().unwrap(), &[], "")).await;
        assert_eq!(seen.status, 200, "{path}");
    }
}

#[tokio::test]
async fn pages_load_only_what_the_node_serves_and_their_policy_allows() {
    let site = Fixture::new().site();
    for path in ["/", "/swagger"] {
        let seen = ask(&site, request("GET", path, &[("accept", "text/html")], "")).await;
        assert_eq!(seen.header("content-type"), "text/html; charset=utf-8");
        let policy = seen.header("content-security-policy");
        for rule in [
            "default-src 'none'",
            "script-src 'self'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(rule), "{policy}");
        }
        for forbidden in ["unsafe", "http:", "https:", "*"] {
            assert!(!policy.contains(forbidden), "{policy}");
        }
        for forbidden in ["http://", "https://", "<script>", "style=", "onclick", "{{"] {
            assert!(!seen.text.contains(forbidden), "{path}: {forbidden}");
        }
        for part in seen.text.split('"').filter(|part| part.starts_with('/')) {
            let asset = ask(&site, request("GET", part, &[], "")).await;
            assert_eq!(asset.status, 200, "{path} names {part}");
        }
    }
    let script = ask(&site, request("GET", "/assets/swagger.js", &[], "")).await;
    assert_eq!(
        script.header("content-type"),
        "text/javascript; charset=utf-8"
    );
    for sink in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
    ] {
        assert!(!script.text.contains(sink), "{sink}");
    }
    let style = ask(&site, request("GET", "/assets/page.css", &[], "")).await;
    assert!(style.text.contains("prefers-color-scheme: dark"));
}

#[tokio::test]
async fn ready_means_the_node_of_its_checkout_from_the_program_on_disk() {
    let fixture = Fixture::new();
    let site = fixture.site();
    let ready = async || ask(&site, request("GET", "/api/v1/ready", &[], "")).await;
    let live = async || ask(&site, request("GET", "/api/v1/live", &[], "")).await;
    let seen = ready().await;
    assert_eq!(seen.status, 200);
    let expected =
        serde_json::json!({"ready": true, "version": "0.1.0", "commit": "0123abc", "dirty": false});
    assert_eq!(seen.json(), expected);
    fixture
        .identity
        .send_modify(|it| it.stale = Some("the program was replaced".to_owned()));
    let seen = ready().await;
    assert_eq!(
        (seen.status, &seen.json()["reason"]),
        (503, &"the program was replaced".into())
    );
    fixture.identity.send_modify(|it| it.leaseholder = false);
    let seen = ready().await;
    assert_eq!(seen.status, 503);
    assert!(seen.json()["reason"].as_str().unwrap().contains("lease"));
    let seen = live().await;
    assert_eq!((seen.status, &seen.json()["live"]), (200, &true.into()));
}

#[tokio::test]
async fn measures_are_by_route_and_class_and_name_no_caller() {
    let site = Fixture::new().site();
    let who = [("earshot-session", "session-secret")];
    ask(&site, request("GET", "/api/v1/board/read?text=a", &who, "")).await;
    ask(&site, request("GET", "/api/v1/board/write", &who, "")).await;
    ask(&site, request("GET", "/some/path", &who, "")).await;
    ask(&site, request("POST", "/c/decaf/mcp", &who, "")).await;
    let text = ask(&site, request("GET", "/metrics", &[], "")).await.text;
    for line in [
        r#"earshot_build_info{version="0.1.0",commit="0123abc",dirty="false"} 1"#,
        r#"earshot_http_requests_total{route="/api/v1/board/read",status="2xx"} 1"#,
        r#"earshot_http_requests_total{route="/api/v1/board/write",status="4xx"} 1"#,
        r#"earshot_http_requests_total{route="unrouted",status="4xx"} 1"#,
        r#"earshot_http_requests_total{route="/c/{checkout_id}/mcp",status="4xx"} 1"#,
        "# TYPE earshot_peers gauge",
        "earshot_peers 3",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} in {text}");
    }
    assert!(text.contains(r#"earshot_startup_steps_total{step="openapi_rendered"}"#));
    for hidden in ["secret", "some", "decaf"] {
        assert!(!text.contains(hidden), "{hidden} in {text}");
    }
}
