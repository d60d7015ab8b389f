//! Routes, methods, bodies, and the one form of every error.

use earshot_capability::VALUES_MAX;

use super::*;

#[tokio::test]
async fn input_comes_as_a_body_or_as_a_query_string() {
    let site = Fixture::new().site();
    let posted = request(
        "POST",
        "/api/v1/board/read",
        &[],
        r#"{"text":"a","limit":5,"paths":["x","y"]}"#,
    );
    let got = request(
        "GET",
        "/api/v1/board/read?text=a&limit=5&paths=x&paths=y",
        &[],
        "",
    );
    let expected = serde_json::json!({"text":"a","limit":5,"fresh":null,"paths":["x","y"]});
    for request in [posted, got] {
        let seen = ask(&site, request).await;
        assert_eq!((seen.status, seen.json()), (200, expected.clone()));
    }
    let empty = ask(&site, request("POST", "/api/v1/board/write", &[], "")).await;
    assert_eq!(empty.status, 200);
    for query in ["limit=x", "unknown=1", "text=a&text=b"] {
        let path = format!("/api/v1/board/read?{query}");
        assert_eq!(
            ask(&site, request("GET", &path, &[], "")).await.error(),
            "invalid_input"
        );
    }
}

#[tokio::test]
async fn content_types_are_read_as_they_may_be_written() {
    let site = Fixture::new().site();
    let write = async |kind: &str, body: &str| {
        ask(
            &site,
            request(
                "POST",
                "/api/v1/board/write",
                &[("content-type", kind)],
                body,
            ),
        )
        .await
    };
    for kind in [
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/json;charset=\"UTF-8\"",
        "application/json ; foo=bar",
    ] {
        assert_eq!(write(kind, "{}").await.status, 200, "{kind}");
    }
    for kind in [
        "application/xml",
        "application/jsonx",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain; application/json",
        "",
    ] {
        // Also without a body: a form may have none.
        for body in ["{}", ""] {
            let seen = write(kind, body).await;
            assert_eq!(seen.status, 415, "{kind}");
            assert_eq!(seen.error(), "invalid_input");
            assert!(seen.text.contains("application/json"), "{}", seen.text);
        }
    }
    let mut unsaid = request("POST", "/api/v1/board/write", &[], "{}");
    unsaid.headers_mut().remove("content-type");
    assert_eq!(ask(&site, unsaid).await.status, 415);
    let mut empty = request("POST", "/api/v1/board/write", &[], "");
    empty.headers_mut().remove("content-type");
    assert_eq!(ask(&site, empty).await.status, 200);
    let packed = request(
        "POST",
        "/api/v1/board/write",
        &[("content-encoding", "gzip")],
        "{}",
    );
    assert_eq!(ask(&site, packed).await.status, 415);
}

#[tokio::test]
async fn bodies_are_bounded_in_size_and_depth() {
    let site = Fixture::new().site();
    let write =
        async |body: &str| ask(&site, request("POST", "/api/v1/board/write", &[], body)).await;
    let fits = format!(r#"{{"text":"{}"}}"#, "x".repeat(1024 * 1024 - 11));
    assert_eq!(fits.len(), 1024 * 1024);
    assert_eq!(write(&fits).await.status, 200);
    assert_eq!(write(&format!("{fits} ")).await.error(), "too_large");
    assert_eq!(write(&"[".repeat(8_000_000)).await.status, 413);
    assert_eq!(write(&"[".repeat(60_000)).await.error(), "invalid_input");
    let many = format!(r#"{{"text":[{}0]}}"#, "0,".repeat(VALUES_MAX));
    assert_eq!(write(&many).await.error(), "too_large");
    assert_eq!(write(&r#"{"text":"#.repeat(1000)).await.status, 400);
    for body in ["{", "[]", "null\n{}", "\u{feff}{}", "\"x\""] {
        assert_eq!(write(body).await.error(), "invalid_input", "{body}");
    }
}

#[tokio::test]
async fn a_wrong_method_names_the_right_ones_and_no_page_may_ask_across_origins() {
    let site = Fixture::new().site();
    for (method, path, allow) in [
        ("GET", "/api/v1/board/write", "POST"),
        ("DELETE", "/api/v1/board/read", "POST,GET,HEAD"),
        ("OPTIONS", "/api/v1/board/write", "POST"),
        ("OPTIONS", "/mcp", "DELETE,GET,HEAD,POST"),
        ("PUT", "/mcp/", "DELETE,GET,HEAD,POST"),
        ("PATCH", "/c/c0ffee/mcp", "DELETE,GET,HEAD,POST"),
        ("POST", "/", "GET,HEAD"),
        ("POST", "/openapi.json", "GET,HEAD"),
        ("OPTIONS", "/", "GET,HEAD"),
    ] {
        let seen = ask(&site, request(method, path, &[], "")).await;
        assert_eq!(seen.status, 405, "{method} {path}");
        let mut named: Vec<&str> = seen.header("allow").split(',').collect();
        let mut expected: Vec<&str> = allow.split(',').collect();
        named.sort_unstable();
        expected.sort_unstable();
        assert_eq!(named, expected, "{method} {path}");
        assert_eq!(seen.error(), "invalid_input");
    }
}

#[tokio::test]
async fn head_is_answered_where_get_is() {
    let site = Fixture::new().site();
    for path in [
        "/",
        "/openapi.json",
        "/swagger",
        "/api/v1/live",
        "/api/v1/board/read",
        "/metrics",
    ] {
        let seen = ask(&site, request("HEAD", path, &[], "")).await;
        assert_eq!((seen.status, seen.text.as_str()), (200, ""), "{path}");
        assert!(
            seen.header("content-length").parse::<usize>().unwrap() > 0,
            "{path}"
        );
    }
}

#[tokio::test]
async fn stray_paths_and_oauth_probes_are_not_found() {
    let site = Fixture::new().site();
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/openid-configuration",
        "/mcp/.well-known/openid-configuration",
        "/favicon.ico",
        "/robots.txt",
        "/register",
        "/nope",
        "//mcp",
        "/MCP",
        "/mcp/x",
        "/mcp//",
        "/c/mcp",
        "/c//mcp",
        "/c/c0ffee/x/mcp",
        "/api/v1",
        "/api/v1/",
        "/api/v1/board",
        "/api/v1/board/read/",
        "/api/v1/%62oard/read",
        "/api/v1/%2e%2e/%2e%2e/etc/passwd",
        "/api/v1/../../etc/passwd",
        "/assets/",
        "/assets/..%2fpage.css",
        "/%ff",
    ] {
        for method in ["GET", "POST"] {
            let seen = ask(
                &site,
                request(method, path, &[("accept", "text/html")], "{}"),
            )
            .await;
            let expected = if path == "/c//mcp" {
                [404, 421]
            } else {
                [404, 404]
            };
            assert!(
                expected.contains(&seen.status),
                "{method} {path}: {}",
                seen.status
            );
            seen.error();
            assert!(!seen.headers.contains_key("www-authenticate"));
        }
    }
}

#[tokio::test]
async fn mcp_is_served_with_and_without_a_slash_and_under_its_own_checkout() {
    let site = Fixture::new().site();
    for path in [
        "/mcp",
        "/mcp/",
        "/mcp?x=1",
        "/c/c0ffee/mcp",
        "/c/c0ffee/mcp/",
    ] {
        let seen = ask(&site, request("POST", path, &[], "{\"a\":1}")).await;
        assert_eq!(
            seen.json(),
            serde_json::json!({"mcp": true, "surface": "Mcp", "bytes": 7}),
            "{path}"
        );
    }
    for path in [
        "/c/decaf/mcp",
        "/c/%63offee/mcp",
        "/c/C0FFEE/mcp",
        "/c/%ff/mcp/",
    ] {
        for method in ["GET", "POST", "DELETE"] {
            let seen = ask(&site, request(method, path, &[], "{}")).await;
            assert_eq!(seen.status, 421, "{path}");
            assert_eq!(seen.error(), "invalid_input");
            assert!(seen.text.contains("/c/c0ffee/mcp"), "{}", seen.text);
        }
    }
}

#[tokio::test]
async fn too_many_or_too_long_headers_get_the_error_object() {
    let site = Fixture::new().site();
    let long = "x".repeat(33 * 1024);
    let seen = ask(&site, request("GET", "/", &[("x-long", &long)], "")).await;
    assert_eq!((seen.status, seen.error().as_str()), (431, "invalid_input"));
    let mut many = request("GET", "/", &[], "");
    for _ in 0..101 {
        many.headers_mut().append("x-more", "1".parse().unwrap());
    }
    assert_eq!(ask(&site, many).await.status, 431);
}

#[tokio::test]
async fn one_call_too_many_is_busy_and_says_when_to_come_back() {
    let mut fixture = Fixture::new();
    fixture.limits.calls = 1;
    let site = fixture.site();
    let waiting = ask(&site, request("POST", "/api/v1/board/wait", &[], ""));
    let meanwhile = async {
        fixture.begun.notified().await;
        let seen = ask(&site, request("GET", "/api/v1/board/read", &[], "")).await;
        assert_eq!((seen.status, seen.error().as_str()), (429, "busy"));
        assert_eq!(seen.header("retry-after"), "1");
        // What is no capability is answered all the same.
        assert_eq!(
            ask(&site, request("GET", "/api/v1/live", &[], ""))
                .await
                .status,
            200
        );
        fixture.go_on.notify_one();
    };
    let (waited, ()) = tokio::join!(waiting, meanwhile);
    assert_eq!(waited.status, 200);
}

#[tokio::test]
async fn startup_work_is_not_done_again_by_calls() {
    let site = Fixture::new().site();
    let counted = async || {
        let text = ask(&site, request("GET", "/metrics", &[], "")).await.text;
        let steps = text
            .lines()
            .filter(|line| line.starts_with("earshot_startup_steps_total"));
        steps.map(str::to_owned).collect::<Vec<_>>()
    };
    // Other tests of this process may build sites of their own; one process per test, as nextest
    // runs them, holds this still.
    let before = counted().await;
    for _ in 0..50 {
        for (method, path) in [
            ("GET", "/"),
            ("GET", "/openapi.json"),
            ("GET", "/swagger"),
            ("GET", "/api/v1/capabilities/list"),
            ("POST", "/api/v1/board/write"),
        ] {
            ask(&site, request(method, path, &[], "")).await;
        }
    }
    if std::env::var_os("NEXTEST").is_some() {
        assert_eq!(counted().await, before);
    }
}
