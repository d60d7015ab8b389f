//! What reaches the HTTP surface of a node that is odd, forged, slow or astray.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::PathBuf,
    time::Duration,
};

use earshot_testkit::process::{
    Answer, StdioClient, WireClient, World, eventually, http, initialize, kill,
};
use serde_json::{Value, json};

const JSON: (&str, &str) = ("content-type", "application/json");
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bank","version":"1"}}}"#;

/// Longer than anything that is waited for here takes when all is well.
const SLOW: Duration = Duration::from_mins(1);

fn node() -> (World, PathBuf, String) {
    let world = World::new();
    let repo = world.repo("repo");
    let url = world.up(&repo);
    (world, repo, url)
}

fn connect(url: &str) -> TcpStream {
    let stream = TcpStream::connect(url.trim_start_matches("http://")).expect("it listens");
    stream.set_read_timeout(Some(SLOW)).expect("a deadline");
    stream
}

/// Sends bytes over a connection of their own, and returns the status of the first answer.
fn raw(url: &str, bytes: &[u8]) -> u16 {
    let mut stream = connect(url);
    stream.write_all(bytes).expect("it takes them");
    head(&mut stream)
}

/// Reads the first line of an answer, and returns its status.
fn head(stream: &mut TcpStream) -> u16 {
    let mut line = [0_u8; 12];
    stream.read_exact(&mut line).expect("an answer");
    let status = String::from_utf8_lossy(&line[9..]).into_owned();
    status
        .parse()
        .unwrap_or_else(|_| panic!("no answer: {line:?}"))
}

/// Every route of the node, each with a method that it knows.
fn routes(url: &str) -> Vec<(String, String)> {
    let document = http(url, "GET", "/openapi.json", &[], b"")
        .expect("an answer")
        .json();
    let paths = document["paths"].as_object().expect("paths");
    let mut routes: Vec<(String, String)> = paths
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().expect("methods").keys();
            methods.map(|method| (method.to_uppercase(), path.clone()))
        })
        .filter(|(method, _)| ["GET", "POST", "DELETE"].contains(&method.as_str()))
        .collect();
    let more = [
        "/",
        "/swagger",
        "/openapi.json",
        "/mcp",
        "/mcp/",
        "/c/x/mcp",
        "/metrics",
        "/nope",
        "/register",
    ];
    routes.extend(more.map(|path| ("GET".to_owned(), path.to_owned())));
    routes.extend(["/mcp", "/mcp/"].map(|path| ("POST".to_owned(), path.to_owned())));
    routes
}

fn with_host(url: &str, method: &str, path: &str, host: &str) -> Answer {
    // No stream is left open by who may not open one.
    let headers = [("host", host), JSON, ("accept", "application/json")];
    http(url, method, path, &headers, b"").expect("an answer")
}

// H01
#[test]
#[expect(clippy::too_many_lines, reason = "most of it is the table")]
fn every_honest_host_is_served_and_every_forged_one_turned_away_at_every_route() {
    let (_world, _repo, url) = node();
    let port = url.rsplit(':').next().unwrap().to_owned();
    let routes = routes(&url);
    assert!(routes.len() > 15, "{routes:?}");
    let honest = [
        format!("127.0.0.1:{port}"),
        "127.0.0.1".to_owned(),
        format!("localhost:{port}"),
        "localhost".to_owned(),
        format!("LOCALHOST:{port}"),
        format!("localhost.:{port}"),
        format!("[::1]:{port}"),
        "[::1]".to_owned(),
        format!("127.1.2.3:{port}"),
    ];
    let forged = [
        ("evil.example".to_owned(), 403),
        (format!("evil.example:{port}"), 403),
        ("localhost.evil.example".to_owned(), 403),
        ("127.0.0.1.nip.io".to_owned(), 403),
        ("localhost:1".to_owned(), 403),
        ("[::1]evil".to_owned(), 400),
        ("[::1]:99999".to_owned(), 400),
        ("[::1".to_owned(), 400),
        ("127.0.0.1@evil.example".to_owned(), 400),
        (format!("127.0.0.1:{port},evil"), 400),
        // The unusual forms of an address are foreign, everywhere.
        ("0.0.0.0".to_owned(), 403),
        ("2130706433".to_owned(), 403),
        ("0x7f.1".to_owned(), 403),
        ("127.1".to_owned(), 403),
        ("0177.0.0.1".to_owned(), 403),
    ];
    for (method, path) in &routes {
        for host in &honest {
            let answer = with_host(&url, method, path, host);
            assert!(
                ![400, 403].contains(&answer.status) || !turned_away(&answer),
                "{method} {path} {host}: {answer:?}"
            );
        }
        for (host, expected) in &forged {
            let answer = with_host(&url, method, path, host);
            assert_eq!(
                answer.status, *expected,
                "{method} {path} {host}: {answer:?}"
            );
            assert!(turned_away(&answer), "{method} {path} {host}: {answer:?}");
            assert!(
                !String::from_utf8_lossy(&answer.body).contains("evil"),
                "{answer:?}"
            );
        }
    }
    for (request, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
            400,
        ),
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
            400,
        ),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", 400),
        (
            "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
            403,
        ),
        (
            "GET http://localhost/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            403,
        ),
        (
            "GET / HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: localhost\r\n\r\n",
            403,
        ),
        (
            "GET / HTTP/1.1\r\nHost: evil.example\r\nForwarded: host=localhost\r\n\r\n",
            403,
        ),
        ("GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n", 403),
        (
            "GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
            200,
        ),
    ] {
        assert_eq!(raw(&url, request.as_bytes()), expected, "{request:?}");
    }
}

/// Says whether an answer is that of the access layer: nothing behind it has seen the request.
fn turned_away(answer: &Answer) -> bool {
    let Ok(body) = serde_json::from_slice::<Value>(&answer.body) else {
        return false;
    };
    let message = body["error"]["message"].as_str().unwrap_or_default();
    message.to_lowercase().contains("host")
}

// H02
#[test]
fn json_is_understood_in_every_legal_spelling_and_answered_in_a_type_that_was_asked_for() {
    let (_world, _repo, url) = node();
    let ask = |headers: &[(&str, &str)]| {
        http(&url, "POST", "/mcp", headers, INITIALIZE.as_bytes()).unwrap()
    };
    let both = ("accept", "application/json, text/event-stream");
    for (kind, expected) in [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("application/json;charset=\"UTF-8\"", 200),
        ("application/json ; foo=bar", 200),
        ("APPLICATION/JSON;CHARSET=utf-8;x=\"a;b\"", 200),
        ("application/xml", 415),
        ("application/jsonx", 415),
        ("text/json", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=application/json", 415),
        ("", 415),
    ] {
        let answer = ask(&[("content-type", kind), both]);
        assert_eq!(answer.status, expected, "{kind}: {answer:?}");
        if expected == 415 {
            assert!(
                String::from_utf8_lossy(&answer.body).contains("application/json"),
                "{answer:?}"
            );
        }
        // The routes of the capabilities read the header as `/mcp` does.
        let route = http(
            &url,
            "POST",
            "/api/v1/peers/list",
            &[("content-type", kind)],
            b"{}",
        )
        .unwrap();
        assert_eq!(route.status, expected, "{kind}: {route:?}");
    }
    assert_eq!(ask(&[both]).status, 415, "none at all");
    let (json, stream) = ("application/json", "text/event-stream");
    for (accept, expected) in [
        (None, json),
        (Some("*/*"), json),
        (Some("application/json"), json),
        (Some("text/event-stream"), stream),
        (Some("text/event-stream, application/json"), json),
        (Some("application/json, text/event-stream"), json),
        (Some("application/*, text/*"), json),
        (Some("text/*"), stream),
        (
            Some("application/json;q=0.5, text/event-stream;q=1"),
            stream,
        ),
        (Some("application/json;q=0, */*"), stream),
        (Some("APPLICATION/JSON"), json),
        (Some("Text/Event-Stream"), stream),
        (Some(""), json),
        (Some("text/html"), ""),
        (Some("application/json;q=0"), ""),
        (Some("*/*;q=0"), ""),
        (Some("application/jsonx"), ""),
    ] {
        let mut headers = vec![JSON];
        headers.extend(accept.map(|it| ("accept", it)));
        let answer = ask(&headers);
        let kind = answer.header("content-type").unwrap_or_default();
        let body = String::from_utf8_lossy(&answer.body);
        if expected.is_empty() {
            assert_eq!((answer.status, kind), (406, json), "{accept:?}: {answer:?}");
            assert!(body.contains("Accept"), "{accept:?}: {answer:?}");
            continue;
        }
        assert_eq!(
            (answer.status, kind),
            (200, expected),
            "{accept:?}: {answer:?}"
        );
        // What the type says is what the body is.
        let is_stream = body.lines().any(|line| line.starts_with("data:"));
        assert_eq!(is_stream, expected == stream, "{accept:?}: {body}");
        if !is_stream {
            answer.json();
        }
    }
}

// H03
#[test]
fn slow_and_silent_connections_cost_nobody_else_anything() {
    let (world, repo, url) = node();
    let pid = world.serving(&repo).expect("a node");
    let mut held: Vec<TcpStream> = Vec::new();
    for n in 0..400 {
        let mut stream = connect(&url);
        if n % 2 == 1 {
            stream
                .write_all(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-a: ")
                .unwrap();
        }
        held.push(stream);
    }
    for path in ["/mcp", "/api/v1/peers/list"] {
        let mut stalled = connect(&url);
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{{"
        );
        stalled.write_all(head.as_bytes()).unwrap();
        held.push(stalled);
    }
    let mut agent = StdioClient::start(&world, &repo, "agent");
    for _ in 0..5 {
        assert_eq!(http(&url, "GET", "/", &[], b"").unwrap().status, 200);
        assert_eq!(initialize(&url, "wire", &[]).status, 200);
        agent.data("peers_list", json!({}));
        assert_eq!(world.up(&repo), url);
        assert_eq!(world.serving(&repo), Some(pid));
    }
    // Those that owe the end of their headers are closed; a body has longer.
    for (n, stream) in held.iter_mut().take(400).enumerate() {
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{n}"),
        }
    }
    assert_eq!(world.serving(&repo), Some(pid));
}

// H03
#[test]
fn a_node_without_descriptors_lives_and_serves_again() {
    let (world, repo, url) = node();
    let pid = world.serving(&repo).expect("a node");
    let process = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap());
    let few = rustix::process::Rlimit {
        current: Some(64),
        maximum: Some(64),
    };
    rustix::process::prlimit(process, rustix::process::Resource::Nofile, few).unwrap();
    let held: Vec<TcpStream> = (0..200).map(|_| connect(&url)).collect();
    // The command line comes by the socket, which has descriptors of its own.
    assert_eq!(world.json(&repo, &["serve", "status"])["pid"], json!(pid));
    drop(held);
    eventually("it serves again", SLOW, || {
        http(&url, "GET", "/", &[], b"")
            .is_ok_and(|answer| answer.status == 200)
            .then_some(())
    });
    assert_eq!(world.serving(&repo), Some(pid));
}

// H03
#[test]
fn silence_is_no_use_so_that_a_node_with_silent_connections_ends() {
    let world = World::new();
    let repo = world.repo("repo");
    let up = world.json(&repo, &["up", "--idle", "1"]);
    let url = up["url"].as_str().unwrap().to_owned();
    let mut held: Vec<TcpStream> = (0..20).map(|_| connect(&url)).collect();
    for stream in held.iter_mut().skip(10) {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-a: ")
            .unwrap();
    }
    eventually("the node ends", SLOW, || {
        world.nodes().is_empty().then_some(())
    });
}

#[test]
fn what_is_announced_as_too_long_is_refused_before_it_comes() {
    let (_world, _repo, url) = node();
    for path in [
        "/mcp",
        "/mcp/",
        "/api/v1/peers/announce",
        "/api/v1/capabilities/call",
    ] {
        let head = |length: &str| {
            format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                 Accept: application/json\r\nContent-Length: {length}\r\n\r\n"
            )
        };
        let mut stream = connect(&url);
        // The answer is read while the connection is open and nothing of the body has been sent.
        stream.write_all(head("99999999999").as_bytes()).unwrap();
        assert_eq!(head_and_rest(&mut stream), (413, true), "{path}");
        assert_eq!(
            raw(&url, head("99999999999999999999999").as_bytes()),
            400,
            "{path}"
        );
    }
    assert_eq!(http(&url, "GET", "/", &[], b"").unwrap().status, 200);
}

/// Returns the status of an answer, and whether it says that the connection closes.
fn head_and_rest(stream: &mut TcpStream) -> (u16, bool) {
    let status = head(stream);
    let mut rest = Vec::new();
    let mut byte = [0_u8];
    while !rest.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("the rest of the head");
        rest.push(byte[0]);
    }
    let rest = String::from_utf8_lossy(&rest).to_lowercase();
    (status, rest.contains("\r\nconnection: close\r\n"))
}

#[test]
fn large_messages_that_trickle_are_busy_in_time_and_small_ones_are_served() {
    let (world, repo, url) = node();
    let pid = world.serving(&repo).expect("a node");
    let length = 16 * 1024 * 1024;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Accept: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    let part = vec![b' '; 4 * 1024 * 1024];
    let wire = WireClient::start(&url, "small");
    let mut trickling = Vec::new();
    for _ in 0..16 {
        let mut stream = connect(&url);
        stream.write_all(head.as_bytes()).unwrap();
        // The node closes those that it refuses, while they send.
        let sent = stream.write_all(&part).is_ok();
        trickling.push((stream, sent));
        let answer = wire.call("peers_list", &json!({}));
        assert_ne!(answer["isError"], json!(true), "{answer}");
    }
    // 16 times 4 MiB are twice what those who do not say who they are may hold.
    let status = fs_err::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let resident: usize = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(resident < 160 * 1024, "{resident} kB");
    drop(trickling);
    let again = initialize(&url, "again", &[]);
    assert_eq!(again.status, 200, "{again:?}");
}

// H04
#[test]
fn there_is_no_redirect_no_login_and_no_page_behind_a_path_that_is_not_there() {
    let (_world, _repo, url) = node();
    let accept = ("accept", "application/json, text/event-stream");
    for (path, expected) in [
        ("/mcp", 200),
        ("/mcp/", 200),
        ("/mcp?x=1", 200),
        ("/mcp/?x=1", 200),
        ("//mcp", 404),
        ("/mcp//", 404),
        ("/MCP", 404),
        ("/mcp/x", 404),
        ("/%6dcp", 404),
        ("/./mcp", 404),
        ("/x/../mcp", 404),
        ("/mcp%2f", 404),
        ("/mcp;x=1", 404),
    ] {
        let answer = http(&url, "POST", path, &[JSON, accept], INITIALIZE.as_bytes()).unwrap();
        assert_eq!(answer.status, expected, "{path}: {answer:?}");
        assert!(answer.header("location").is_none(), "{path}: {answer:?}");
    }
    // Both spellings are one place: a session of one is known at the other.
    let wire = WireClient::start(&url, "wire");
    let session = ("mcp-session-id", wire.session.as_str());
    let ping = br#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
    let answer = http(&url, "POST", "/mcp/", &[JSON, accept, session], ping).unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-protected-resource/mcp/",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/openid-configuration",
        "/mcp/.well-known/openid-configuration",
        "/mcp/.well-known/oauth-authorization-server",
        "/.well-known/",
        "/register",
        "/authorize",
        "/token",
        "/favicon.ico",
        "/robots.txt",
        "/index.html",
        "/api",
        "/api/v1",
        "/api/v1/",
        "/api/v1/nope",
        "/assets/",
        "/assets/../mcp",
        "/..%2f..%2fetc%2fpasswd",
    ] {
        for (method, kind) in [
            ("GET", "*/*"),
            ("GET", "text/html"),
            ("POST", "application/json"),
        ] {
            let headers = [JSON, ("accept", kind)];
            let body: &[u8] = if method == "POST" { b"{}" } else { b"" };
            let answer = http(&url, method, path, &headers, body).unwrap();
            assert_eq!(answer.status, 404, "{method} {path}: {answer:?}");
            assert_eq!(
                answer.header("content-type"),
                Some("application/json"),
                "{method} {path}"
            );
            assert_eq!(
                answer.json()["error"]["code"],
                "not_found",
                "{method} {path}"
            );
            for header in ["www-authenticate", "location"] {
                assert!(
                    answer.header(header).is_none(),
                    "{method} {path}: {answer:?}"
                );
            }
        }
    }
}

// H03
#[test]
fn a_killed_node_frees_its_port_though_connections_were_open() {
    let (world, repo, url) = node();
    let held: Vec<TcpStream> = (0..50).map(|_| connect(&url)).collect();
    kill(world.serving(&repo).expect("a node"));
    assert_eq!(world.up(&repo), url);
    drop(held);
}
