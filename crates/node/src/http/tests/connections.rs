//! Real sockets on loopback: malformed requests, slow callers, shutdown, whose connection it is.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    task::JoinHandle,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::*;

/// Long enough that only a fault reaches it.
const NEVER: Duration = Duration::from_hours(1);
/// Short enough to wait for.
const SOON: Duration = Duration::from_millis(50);
/// When a test gives up.
const GIVE_UP: Duration = Duration::from_mins(1);

struct Serving {
    address: SocketAddr,
    shutdown: CancellationToken,
    ended: JoinHandle<()>,
}

impl Serving {
    async fn start(fixture: &mut Fixture) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        fixture.access.own_uid = rustix::process::geteuid().as_raw();
        fixture.access.own_port = Arc::new(AtomicU16::new(address.port()));
        let (shutdown, tracker) = (CancellationToken::new(), TaskTracker::new());
        let serve = serve_tcp(listener, fixture.site(), shutdown.clone(), tracker.clone());
        Self {
            address,
            shutdown,
            ended: tracker.spawn(serve),
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes over a connection of their own, and returns all that comes back.
    async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        rest(&mut stream).await
    }

    async fn stop(self) {
        self.shutdown.cancel();
        within(self.ended).await.unwrap();
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(GIVE_UP, future)
        .await
        .expect("it took too long")
}

/// Reads until the other side closes.
async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    match within(stream.read_to_end(&mut bytes)).await {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

use tokio::io::AsyncRead;

/// Sends a request on a connection that stays open, and reads one answer of JSON.
async fn keep_alive(stream: &mut TcpStream, path: &str) -> String {
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    let mut buffer = [0_u8; 4096];
    while !seen.ends_with(b"}") {
        let bytes = within(stream.read(&mut buffer)).await.unwrap();
        assert!(bytes > 0, "closed: {}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&buffer[..bytes]);
    }
    String::from_utf8(seen).unwrap()
}

fn status(answer: &str) -> u16 {
    let status = answer.split(' ').nth(1).unwrap_or_default();
    status
        .parse()
        .unwrap_or_else(|_| panic!("no answer: {answer:?}"))
}

#[tokio::test]
async fn malformed_requests_are_refused_at_the_socket() {
    let serving = Serving::start(&mut Fixture::new()).await;
    for (bytes, expected) in [
        ("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
            400,
        ),
        (
            "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            403,
        ),
        (
            "GET / HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: localhost\r\nConnection: close\r\n\r\n",
            403,
        ),
        (
            "CONNECT localhost:443 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            403,
        ),
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            400,
        ),
        ("nonsense\r\n\r\n", 400),
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            200,
        ),
        (
            "GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            200,
        ),
        ("GET / HTTP/1.0\r\nHost: localhost\r\n\r\n", 200),
    ] {
        let answer = serving.raw(bytes.as_bytes()).await;
        assert_eq!(status(&answer), expected, "{bytes:?}: {answer}");
    }
    let long = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "x".repeat(200_000)
    );
    assert_eq!(status(&serving.raw(long.as_bytes()).await), 431);
    serving.stop().await;
}

#[tokio::test]
async fn a_client_that_sends_too_much_gets_to_read_why() {
    let serving = Serving::start(&mut Fixture::new()).await;
    for (path, kind, expected) in [
        ("/api/v1/board/write", "application/json", 413),
        ("/api/v1/board/write", "text/plain", 415),
        ("/nope", "application/json", 404),
        ("/c/decaf/mcp", "application/json", 421),
    ] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: {kind}\r\nContent-Length: 8000000\r\n\r\n"
        );
        let mut bytes = head.into_bytes();
        bytes.resize(bytes.len() + 8_000_000, b'[');
        let answer = serving.raw(&bytes).await;
        assert_eq!(status(&answer), expected, "{path}: {answer}");
        assert!(answer.contains("\"request_id\""), "{answer}");
    }
    serving.stop().await;
}

#[tokio::test]
async fn a_client_that_waits_for_leave_to_send_is_refused_without_it() {
    let serving = Serving::start(&mut Fixture::new()).await;
    let head = "POST /nope HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n\
                Connection: close\r\nContent-Length: 8000000\r\n\r\n";
    assert_eq!(status(&serving.raw(head.as_bytes()).await), 404);
    serving.stop().await;
}

/// Reads one answer of JSON, and leaves the connection as it is.
async fn one(stream: &mut TcpStream) -> String {
    let mut seen = String::new();
    let mut open = 0;
    loop {
        let mut byte = [0_u8];
        assert_eq!(within(stream.read(&mut byte)).await.unwrap(), 1, "{seen}");
        seen.push(char::from(byte[0]));
        match byte[0] {
            b'{' => open += 1,
            b'}' if open == 1 => return seen,
            b'}' => open -= 1,
            _ => {}
        }
    }
}

const LIVE: &str = "GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[tokio::test]
async fn a_refusal_does_not_wait_for_the_body_that_it_refuses() {
    let mut fixture = Fixture::new();
    // Neither of them can bring the answer: the body is never sent.
    (fixture.limits.body_stall, fixture.limits.rest_stall) = (NEVER, NEVER);
    let serving = Serving::start(&mut fixture).await;
    let host = "Host: localhost\r\n";
    let json = "Content-Type: application/json\r\n";
    for (path, headers, expected) in [
        ("/api/v1/board/write", format!("{host}{json}"), 413),
        (
            "/api/v1/board/write",
            format!("{host}Content-Type: text/plain\r\n"),
            415,
        ),
        ("/nope", format!("{host}{json}"), 404),
        ("/c/decaf/mcp", format!("{host}{json}"), 421),
        (
            "/api/v1/board/write",
            format!("Host: evil.example\r\n{json}"),
            403,
        ),
        ("/api/v1/board/write", json.to_owned(), 400),
    ] {
        for length in ["2000000", "99999999999", "9223372036854775807"] {
            let mut stream = serving.connect().await;
            let head = format!("POST {path} HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            let answer = one(&mut stream).await;
            assert_eq!(status(&answer), expected, "{path} {length}: {answer}");
            let closes = answer.contains("connection: close");
            assert_eq!(closes, length != "2000000", "{path} {length}: {answer}");
        }
    }
    serving.stop().await;
}

#[tokio::test]
async fn the_body_of_a_refused_request_is_not_taken_for_the_next() {
    let serving = Serving::start(&mut Fixture::new()).await;
    let post = |headers: &str, body: &str| {
        format!("POST /nope HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n{body}")
    };
    let last = LIVE.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    let long = LIVE.repeat(2000);
    let announced = |body: &str| format!("Content-Length: {}", body.len());
    let chunk = format!("{:x}\r\n{LIVE}\r\n0\r\n\r\n", LIVE.len());
    for (bytes, expected) in [
        // Drained, and the next request on the connection is answered.
        (post(&announced(LIVE), LIVE) + &last, vec![404, 200]),
        (post(&announced(&long), &long) + &last, vec![404, 200]),
        (
            post("Transfer-Encoding: chunked", &chunk) + &last,
            vec![404, 200],
        ),
        // Nobody knows where the next one begins: the connection is closed.
        (post("Content-Length: 99999999999", LIVE) + &last, vec![404]),
        (
            post("Expect: 100-continue\r\nContent-Length: 9", LIVE) + &last,
            vec![404],
        ),
        (
            post("Transfer-Encoding: chunked", "zz\r\n") + &last,
            vec![404],
        ),
        (
            post("Content-Length: 4\r\nContent-Length: 5", LIVE),
            vec![400],
        ),
        (post("Content-Length: +4", LIVE), vec![400]),
        (
            post("Content-Length: 99999999999999999999", LIVE),
            vec![400],
        ),
        (post("Transfer-Encoding: gzip", LIVE), vec![400]),
        (post("Transfer-Encoding : chunked", LIVE), vec![400]),
        // Two framings: it is read as chunks, and whoever believed the other one is cut off.
        (
            post("Content-Length: 4\r\nTransfer-Encoding: chunked", &chunk) + &last,
            vec![404],
        ),
        (
            post("Transfer-Encoding: chunked\r\nContent-Length: 4", &chunk) + &last,
            vec![404],
        ),
    ] {
        let mut stream = serving.connect().await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        let answers = rest(&mut stream).await;
        let statuses: Vec<u16> = answers
            .split("HTTP/1.1 ")
            .skip(1)
            .map(|it| it[..3].parse().unwrap())
            .collect();
        assert_eq!(statuses, expected, "{bytes:.200}: {answers}");
    }
    serving.stop().await;
}

#[tokio::test]
async fn a_refused_body_that_trickles_is_not_read_for_ever() {
    let mut fixture = Fixture::new();
    fixture.limits.rest_stall = SOON;
    let serving = Serving::start(&mut fixture).await;
    let mut stream = serving.connect().await;
    let head = "POST /nope HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(status(&rest(&mut stream).await), 404);
    serving.stop().await;
}

#[tokio::test]
async fn bodies_that_hold_too_much_at_once_are_busy_and_small_ones_are_served() {
    let mut fixture = Fixture::new();
    fixture.limits.body_stall = NEVER;
    let serving = Serving::start(&mut fixture).await;
    let post = |length: usize| {
        format!(
            "POST /api/v1/board/write HTTP/1.1\r\nHost: localhost\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    // Each holds all but the last byte of what it may send: 34 of them fill what those who do not
    // say who they are may hold.
    let head = post(1024 * 1024);
    let mut all_but_one = head.into_bytes();
    all_but_one.resize(all_but_one.len() + 1024 * 1024 - 1, b' ');
    let mut answering = tokio::task::JoinSet::new();
    let mut finish = Vec::new();
    for _ in 0..40 {
        let mut stream = serving.connect().await;
        let (go_on, gone_on) = tokio::sync::oneshot::channel::<()>();
        finish.push(go_on);
        let bytes = all_but_one.clone();
        answering.spawn(async move {
            stream.write_all(&bytes).await.unwrap();
            tokio::select! {
                readable = stream.readable() => readable.unwrap(),
                _ = gone_on => stream.write_all(b" ").await.unwrap(),
            }
            one(&mut stream).await
        });
    }
    for _ in 0..6 {
        let refused = within(answering.join_next()).await.unwrap().unwrap();
        assert_eq!(status(&refused), 429, "{refused}");
        assert!(refused.contains("retry-after: 1"), "{refused}");
    }
    let small = post(2) + "{}";
    let mut stream = serving.connect().await;
    stream.write_all(small.as_bytes()).await.unwrap();
    assert_eq!(
        status(&one(&mut stream).await),
        200,
        "a small one is served"
    );
    drop(finish);
    while let Some(answer) = within(answering.join_next()).await {
        let status = status(&answer.unwrap());
        assert!([400, 429].contains(&status), "{status}");
    }
    all_but_one.push(b' ');
    stream.write_all(&all_but_one).await.unwrap();
    assert_eq!(
        status(&one(&mut stream).await),
        400,
        "all of it is free again"
    );
    drop(stream);
    serving.stop().await;
}

#[tokio::test]
async fn half_headers_and_silence_are_cut_off_and_quiet_connections_are_not() {
    let mut fixture = Fixture::new();
    fixture.limits.head = SOON;
    fixture.limits.idle = NEVER;
    let serving = Serving::start(&mut fixture).await;
    let mut quiet = serving.connect().await;
    assert_eq!(status(&keep_alive(&mut quiet, "/").await), 200);
    let mut silent = serving.connect().await;
    let mut half = serving.connect().await;
    half.write_all(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-a: ")
        .await
        .unwrap();
    // On a connection that has been answered, a request that was begun is due as well.
    let mut second = serving.connect().await;
    assert_eq!(status(&keep_alive(&mut second, "/").await), 200);
    second.write_all(b"GET / HT").await.unwrap();
    for stream in [&mut silent, &mut half, &mut second] {
        assert_eq!(rest(stream).await, "");
    }
    // The time of the headers has passed, and the quiet connection is there.
    assert_eq!(status(&keep_alive(&mut quiet, "/").await), 200);
    drop(quiet);
    assert_eq!(
        fixture.owner.used.load(Ordering::SeqCst),
        3,
        "silence is not use"
    );
    serving.stop().await;
}

#[tokio::test]
async fn a_trickle_of_header_bytes_does_not_extend_the_time() {
    let mut fixture = Fixture::new();
    fixture.limits.head = SOON;
    let serving = Serving::start(&mut fixture).await;
    let mut stream = serving.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nX-a: ").await.unwrap();
    let trickle = async {
        while stream.write_all(b"a").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(trickle).await;
    serving.stop().await;
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let mut fixture = Fixture::new();
    fixture.limits.head = NEVER;
    fixture.limits.idle = SOON;
    let serving = Serving::start(&mut fixture).await;
    let mut stream = serving.connect().await;
    assert_eq!(status(&keep_alive(&mut stream, "/").await), 200);
    assert_eq!(rest(&mut stream).await, "");
    serving.stop().await;
}

#[tokio::test]
async fn a_body_that_stops_coming_is_answered_so() {
    let mut fixture = Fixture::new();
    fixture.limits.body_stall = SOON;
    let serving = Serving::start(&mut fixture).await;
    let head = "POST /api/v1/board/write HTTP/1.1\r\nHost: localhost\r\n\
                Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{";
    let answer = serving.raw(head.as_bytes()).await;
    assert_eq!(status(&answer), 408, "{answer}");
    assert!(answer.contains("invalid_input"), "{answer}");
    serving.stop().await;
}

#[tokio::test]
async fn a_reader_that_stops_reading_loses_its_place() {
    let mut fixture = Fixture::new();
    fixture.limits.answer_stall = SOON;
    fixture.limits.connections = 1;
    let serving = Serving::start(&mut fixture).await;
    let mut stopped = serving.connect().await;
    stopped
        .write_all(b"GET /mcp?flood HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    stopped.readable().await.unwrap();
    // There is one place: this is accepted when the other has lost it.
    let answer = serving
        .raw(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await;
    assert_eq!(status(&answer), 200);
    serving.stop().await;
}

#[tokio::test]
async fn beyond_the_bound_a_quiet_connection_gives_way_to_a_new_one() {
    let mut fixture = Fixture::new();
    fixture.limits.connections = 1;
    let serving = Serving::start(&mut fixture).await;
    let mut first = serving.connect().await;
    assert_eq!(status(&keep_alive(&mut first, "/").await), 200);
    let mut second = serving.connect().await;
    assert_eq!(status(&keep_alive(&mut second, "/").await), 200);
    assert_eq!(rest(&mut first).await, "");
    serving.stop().await;
}

#[tokio::test]
async fn beyond_the_bound_connections_wait_while_all_others_are_answered() {
    let mut fixture = Fixture::new();
    fixture.limits.connections = 1;
    let serving = Serving::start(&mut fixture).await;
    let mut busy = Vec::new();
    for _ in 0..2 {
        let mut stream = serving.connect().await;
        stream.write_all(WAIT).await.unwrap();
        within(fixture.begun.notified()).await;
        busy.push(stream);
    }
    let mut late = serving.connect().await;
    late.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let not_yet = late.try_read(&mut [0]).unwrap_err();
    assert_eq!(not_yet.kind(), io::ErrorKind::WouldBlock);
    fixture.go_on.notify_one();
    assert_eq!(status(&rest(&mut late).await), 200);
    drop(busy);
    serving.stop().await;
}

const WAIT: &[u8] = b"POST /api/v1/board/wait HTTP/1.1\r\nHost: localhost\r\n\
                      Content-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"text\":\"a\"}";

#[tokio::test]
async fn answers_in_flight_are_finished_and_nothing_new_is_begun() {
    let mut fixture = Fixture::new();
    let serving = Serving::start(&mut fixture).await;
    let mut idle = serving.connect().await;
    assert_eq!(status(&keep_alive(&mut idle, "/").await), 200);
    let mut waiting = serving.connect().await;
    waiting.write_all(WAIT).await.unwrap();
    within(fixture.begun.notified()).await;
    serving.shutdown.cancel();
    assert_eq!(rest(&mut idle).await, "");
    fixture.go_on.notify_one();
    let answer = rest(&mut waiting).await;
    assert_eq!(status(&answer), 200);
    assert!(answer.contains(r#""text":"a""#), "{answer}");
    let address = serving.address;
    within(serving.ended).await.unwrap();
    TcpStream::connect(address).await.unwrap_err();
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_cut_off_when_the_node_ends() {
    let mut fixture = Fixture::new();
    fixture.limits.drain = SOON;
    let serving = Serving::start(&mut fixture).await;
    let mut waiting = serving.connect().await;
    waiting.write_all(WAIT).await.unwrap();
    within(fixture.begun.notified()).await;
    serving.stop().await;
    assert_eq!(rest(&mut waiting).await, "");
}

#[tokio::test]
async fn a_panic_while_answering_reaches_whoever_runs_the_loop() {
    let serving = Serving::start(&mut Fixture::new()).await;
    let head = b"POST /api/v1/board/panic HTTP/1.1\r\nHost: localhost\r\n\
                 Content-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"text\":\"a\"}";
    serving.raw(head).await;
    assert!(within(serving.ended).await.unwrap_err().is_panic());
}

#[tokio::test]
async fn the_unix_socket_serves_its_own_user_as_the_cli_too() {
    let folder = std::env::temp_dir().join(format!("earshot-http-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("node.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut fixture = Fixture::new();
    fixture.access.own_uid = rustix::process::geteuid().as_raw();
    let (shutdown, tracker) = (CancellationToken::new(), TaskTracker::new());
    let serve = serve_unix(listener, fixture.site(), shutdown.clone(), tracker.clone());
    let ended = tracker.spawn(serve);
    for (header, expected) in [("Earshot-Cli: 7:9\r\n", 200), ("", 403)] {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        let head = format!(
            "POST /api/v1/trust/grant HTTP/1.1\r\nHost: earshot\r\n{header}Connection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(status(&rest(&mut stream).await), expected);
    }
    shutdown.cancel();
    within(ended).await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn another_users_connection_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can connect as another user");
        return;
    }
    let mut fixture = Fixture::new();
    let serving = Serving::start(&mut fixture).await;
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{}; \
         printf 'GET / HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3",
        serving.address.port()
    );
    let output = tokio::process::Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "bash",
            "-c",
            &script,
        ])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .kill_on_drop(true)
        .output();
    let output = within(output).await.unwrap();
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        status(&answer),
        403,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(answer.contains("its own user only"), "{answer}");
    serving.stop().await;
}
