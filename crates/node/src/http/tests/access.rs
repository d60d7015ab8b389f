//! Who is turned away, and that nothing is done for them.

use super::*;

#[tokio::test]
async fn every_honest_host_is_served_and_every_forged_one_refused_on_every_path() {
    let site = Fixture::new().site();
    let paths = [
        ("GET", "/"),
        ("POST", "/mcp"),
        ("GET", "/nope"),
        ("GET", "/api/v1/live"),
    ];
    for host in [
        "127.0.0.1:17400",
        "127.0.0.1",
        "localhost:17400",
        "localhost",
        "LOCALHOST:17400",
        "localhost.:17400",
        "[::1]:17400",
        "[::1]",
        "127.1.2.3:17400",
    ] {
        for (method, path) in paths {
            let seen = ask(&site, request(method, path, &[("host", host)], "")).await;
            let expected = if path == "/nope" { 404 } else { 200 };
            assert_eq!(seen.status, expected, "{host} {path}");
        }
    }
    for (host, expected) in [
        ("evil.example", 403),
        ("evil.example:17400", 403),
        ("localhost.evil.example", 403),
        ("localhost.evil.example:17400", 403),
        ("127.0.0.1.nip.io", 403),
        ("169.254.169.254", 403),
        ("localhost:17401", 403),
        ("[::1]evil", 400),
        ("[::1]:99999", 400),
        ("[::1", 400),
        ("127.0.0.1@evil.example", 400),
        ("127.0.0.1:17400,evil", 400),
        ("0.0.0.0", 403),
        ("2130706433", 403),
        ("0x7f.1", 403),
    ] {
        for (method, path) in paths {
            let seen = ask(&site, request(method, path, &[("host", host)], "")).await;
            assert_eq!(seen.status, expected, "{host} {path}");
            let code = if expected == 400 {
                "invalid_input"
            } else {
                "forbidden"
            };
            assert_eq!(seen.error(), code);
            assert!(
                !seen.text.contains("evil"),
                "the request is repeated: {}",
                seen.text
            );
        }
    }
}

#[tokio::test]
async fn no_host_two_hosts_and_a_foreign_target_are_refused() {
    let site = Fixture::new().site();
    let mut none = request("GET", "/", &[], "");
    none.headers_mut().remove("host");
    assert_eq!(ask(&site, none).await.status, 400);
    let mut two = request("GET", "/", &[], "");
    two.headers_mut()
        .append("host", "evil.example".parse().unwrap());
    assert_eq!(ask(&site, two).await.status, 400);
    let foreign = request("GET", "http://evil.example/", &[], "");
    assert_eq!(ask(&site, foreign).await.status, 403);
    let own = request("GET", "http://localhost:17400/", &[], "");
    assert_eq!(ask(&site, own).await.status, 200);
}

#[tokio::test]
async fn pages_of_other_origins_are_refused_and_own_ones_are_not() {
    let site = Fixture::new().site();
    let write = |headers: &[(&str, &str)]| {
        ask_write(
            &site,
            headers
                .iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect(),
        )
    };
    for origin in [
        "http://evil.example",
        "null",
        "http://localhost.evil.example:17400",
        "https://localhost:17400",
        "http://localhost:17401",
    ] {
        assert_eq!(write(&[("origin", origin)]).await, 403, "{origin}");
    }
    for site in ["cross-site", "same-site", ""] {
        assert_eq!(write(&[("sec-fetch-site", site)]).await, 403, "{site}");
    }
    assert_eq!(
        write(&[
            ("origin", "http://localhost:17400"),
            ("sec-fetch-site", "same-origin")
        ])
        .await,
        200
    );
}

async fn ask_write(site: &Site, headers: Vec<(String, String)>) -> u16 {
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(n, v)| (n.as_str(), v.as_str()))
        .collect();
    let seen = ask(site, request("POST", "/api/v1/board/write", &headers, "{}")).await;
    if seen.status != 200 {
        assert_eq!(seen.error(), "forbidden");
    }
    seen.status
}

#[tokio::test]
async fn whose_connection_it_is_decides_over_loopback() {
    let site = Fixture::new().site();
    for (peer_uid, expected) in [
        (PeerUid::Known(ME), 200),
        (PeerUid::Known(0), 403),
        (PeerUid::Known(65_534), 403),
        (PeerUid::NotFound, 403),
        (PeerUid::Unsupported, 403),
    ] {
        let peer = "127.0.0.1".parse().unwrap();
        let transport = Transport::Tcp { peer, peer_uid };
        let seen = ask_from(&site, transport, request("GET", "/", &[], "")).await;
        assert_eq!(seen.status, expected, "{peer_uid:?}");
    }
}

#[tokio::test]
async fn callers_from_elsewhere_read_what_is_not_local_and_write_nothing() {
    let site = Fixture::new().site();
    let direct = [("host", "192.0.2.7:17400")];
    let forwarded = [("x-forwarded-for", "192.0.2.9")];
    for (transport, headers) in [(LAN, &direct), (LOOPBACK, &forwarded)] {
        for (path, expected) in [
            ("/api/v1/board/read", 200),
            ("/api/v1/board/here", 403),
            ("/api/v1/board/write", 403),
            ("/api/v1/trust/grant", 403),
        ] {
            let seen = ask_from(&site, transport, request("POST", path, headers, "{}")).await;
            assert_eq!(seen.status, expected, "{path}");
        }
    }
    let unlisted = request("GET", "/", &[("host", "192.0.2.8:17400")], "");
    assert_eq!(ask_from(&site, LAN, unlisted).await.status, 403);
}

#[tokio::test]
async fn what_only_a_person_may_do_takes_the_cli_over_the_unix_socket() {
    let site = Fixture::new().site();
    let grant = |headers: &[(&str, &str)]| request("POST", "/api/v1/trust/grant", headers, "{}");
    let cli = [("earshot-cli", "7:9")];
    assert_eq!(ask_from(&site, SOCKET, grant(&cli)).await.status, 200);
    assert_eq!(
        ask_from(&site, SOCKET, grant(&[])).await.error(),
        "forbidden"
    );
    assert_eq!(ask(&site, grant(&[])).await.error(), "forbidden");
    assert_eq!(ask(&site, grant(&cli)).await.error(), "forbidden");
    let other_user = Transport::UnixSocket { uid: 0 };
    assert_eq!(ask_from(&site, other_user, grant(&cli)).await.status, 403);
}

#[tokio::test]
async fn a_seat_is_taken_over_the_unix_socket_only_and_never_repeated() {
    let site = Fixture::new().site();
    let seat = [("earshot-seat", "000102030405060708090a0b0c0d0e0f")];
    let seen = ask(&site, request("POST", "/mcp", &seat, "{}")).await;
    assert_eq!(seen.error(), "forbidden");
    assert!(!seen.text.contains("0001"));
    let seen = ask_from(&site, SOCKET, request("POST", "/mcp", &seat, "{}")).await;
    assert_eq!(seen.json()["surface"], "Mcp");
}

#[tokio::test]
async fn a_machine_that_asks_for_its_key_gets_it_with_every_write() {
    let mut fixture = Fixture::new();
    fixture.access.policy = LoopbackPolicy::Key;
    fixture.access.key = Some(MachineKey::new("s3cret\n"));
    let site = fixture.site();
    let ask = async |path, headers: &[(&str, &str)]| {
        ask(&site, request("POST", path, headers, "{}"))
            .await
            .status
    };
    assert_eq!(ask("/api/v1/board/read", &[]).await, 200);
    assert_eq!(ask("/api/v1/board/write", &[]).await, 403);
    assert_eq!(
        ask("/api/v1/board/write", &[("earshot-key", "s3cre")]).await,
        403
    );
    assert_eq!(
        ask("/api/v1/board/write", &[("earshot-key", "s3cret")]).await,
        200
    );
}

#[tokio::test]
async fn probes_and_health_are_not_use_and_neither_is_who_is_turned_away() {
    let fixture = Fixture::new();
    let site = fixture.site();
    for path in ["/api/v1/live", "/api/v1/ready", "/metrics"] {
        ask(&site, request("GET", path, &[], "")).await;
    }
    ask(&site, request("GET", "/", &[("earshot-probe", "1")], "")).await;
    ask(&site, request("GET", "/", &[("host", "evil.example")], "")).await;
    assert_eq!(fixture.owner.used.load(Ordering::SeqCst), 0);
    ask(&site, request("GET", "/api/v1/board/read", &[], "")).await;
    assert_eq!(fixture.owner.used.load(Ordering::SeqCst), 1);
}
