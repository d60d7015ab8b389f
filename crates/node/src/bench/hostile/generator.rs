//! The hostile side, in a process of its own: every kind of load that honest clients must not feel.
//!
//! It says `ready` on a line of its own once it stands, goes on until its standard input ends, and
//! then prints what it met as one line of JSON.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_util::task::TaskTracker;

use super::Kind;
use crate::{
    bench::{
        BenchError,
        client::{Client, ClientError, HttpClient, Target},
    },
    cli::printer::{print, print_json},
};

/// Connections that trickle, half of them in their headers and half in their body.
const TRICKLES: usize = 256;
/// How often each of them sends a byte.
const TRICKLE_EVERY: Duration = Duration::from_millis(500);
/// Connections that say nothing: more than a listener of the node takes.
const SILENT: usize = 4_500;
/// Wire sessions that open streams nobody reads, and streams of each.
const UNREAD: (usize, usize) = (64, 8);
/// Connections that ask for much and read nothing.
const UNREAD_ANSWERS: usize = 64;
/// Clients that call as fast as they are answered.
const FLOODERS: usize = 32;
/// Clients that do so over a new connection each time.
const CHURNERS: usize = 8;
/// Wire sessions that are opened: more than a node keeps.
const SESSIONS: usize = 10_500;
/// Connections that they are opened over.
const SESSION_OPENERS: usize = 8;
/// Connections that send large bodies.
const BODIES: usize = 4;
/// Bytes of such a body: just below what a message may have.
const BODY_BYTES: usize = 16 * 1024 * 1024 - 1_024;
/// Pause after a connection that could not be made.
const AGAIN: Duration = Duration::from_millis(20);
/// How much this process gives way: what is measured is the node, not who is first at the cores.
const NICE: i32 = 10;

/// What the hostile clients met, by name.
#[derive(Debug, Clone, Default)]
struct Met(Arc<Mutex<BTreeMap<String, u64>>>);

impl Met {
    fn count(&self, what: &str) {
        let mut met = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match met.get_mut(what) {
            Some(count) => *count += 1,
            None => {
                met.insert(what.to_owned(), 1);
            }
        }
    }

    fn answered<T>(&self, answer: &Result<T, ClientError>) -> bool {
        match answer {
            Ok(_) => self.count("answered"),
            Err(ClientError::Refused(_)) => self.count("refused by the tool"),
            Err(error) => self.count(&error.to_string()),
        }
        answer.is_ok()
    }
}

/// Where the load goes to.
#[derive(Debug, Clone)]
struct Aim {
    target: Target,
    met: Met,
    tasks: TaskTracker,
}

/// Is hostile until its standard input ends.
///
/// # Errors
/// [`BenchError`].
pub(in crate::bench) async fn run(kind: Kind, url: &str) -> Result<(), BenchError> {
    // Neither must succeed: without them the load is only less.
    rustix::process::nice(NICE).ok();
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).ok();
    let aim = Aim {
        target: Target::tcp(url)?,
        met: Met::default(),
        tasks: TaskTracker::new(),
    };
    let stand = async {
        match kind {
            Kind::Trickle => trickle(&aim),
            Kind::Silent => silent(&aim),
            Kind::Unread => unread(&aim).await,
            Kind::Flood => flood(&aim),
            Kind::Sessions => sessions(&aim).await,
            Kind::Bodies => bodies(&aim),
        }
        print("ready\n");
        std::future::pending::<()>().await;
    };
    let mut stdin = tokio::io::stdin();
    let mut nothing = [0_u8; 64];
    tokio::select! {
        _ = stdin.read(&mut nothing) => {}
        () = stand => {}
    }
    let met = aim.met.0.lock().unwrap_or_else(PoisonError::into_inner);
    print_json(&json!(*met));
    Ok(())
}

/// Runs `each` again and again on so many tasks.
fn forever<F: Future<Output = ()> + Send + 'static>(
    aim: &Aim,
    count: usize,
    each: impl Fn(Aim, usize) -> F + Clone + Send + 'static,
) {
    for at in 0..count {
        let (aim, each) = (aim.clone(), each.clone());
        let tasks = aim.tasks.clone();
        tasks.spawn(async move {
            loop {
                each(aim.clone(), at).await;
            }
        });
    }
}

/// Connects, or waits a moment.
async fn connect(aim: &Aim) -> Option<TcpStream> {
    if let Ok(stream) = aim.target.connect().await {
        aim.met.count("connected");
        return Some(stream);
    }
    aim.met.count("no connection");
    tokio::time::sleep(AGAIN).await;
    None
}

fn trickle(aim: &Aim) {
    forever(aim, TRICKLES, |aim, at| async move {
        let Some(mut stream) = connect(&aim).await else {
            return;
        };
        let begun = if at.is_multiple_of(2) {
            format!("POST {} HTTP/1.1\r\nX-Slow: ", aim.target.path())
        } else {
            head(&aim, "POST", "Content-Length: 1000000\r\n")
        };
        if stream.write_all(begun.as_bytes()).await.is_err() {
            return;
        }
        loop {
            tokio::time::sleep(TRICKLE_EVERY).await;
            if stream.write_all(b" ").await.is_err() {
                aim.met.count("cut off");
                return;
            }
        }
    });
}

fn silent(aim: &Aim) {
    forever(aim, SILENT, |aim, _| async move {
        if let Some(mut stream) = connect(&aim).await {
            stream.read_u8().await.ok(); // it ends when the node has had enough
            aim.met.count("cut off");
            tokio::time::sleep(AGAIN).await;
        }
    });
}

async fn unread(aim: &Aim) {
    let (sessions, streams) = UNREAD;
    let mut held = Vec::new();
    for at in 0..sessions {
        let name = format!("unread-{at}");
        let opened = HttpClient::open(aim.target.clone(), name, aim.tasks.clone()).await;
        let Ok(client) = opened else {
            aim.met.count("no session");
            continue;
        };
        for _ in 0..streams {
            let headers = format!(
                "Accept: text/event-stream\r\nMcp-Session-Id: {}\r\n",
                client.session().unwrap_or_default()
            );
            if let Some(mut stream) = connect(aim).await {
                let asked = head(aim, "GET", &headers);
                stream.write_all(asked.as_bytes()).await.ok(); // it is only one of many
                held.push(stream);
            }
        }
    }
    forever(aim, UNREAD_ANSWERS, |aim, _| async move {
        let Some(mut stream) = connect(&aim).await else {
            return;
        };
        let asked = format!(
            "GET /openapi.json HTTP/1.1\r\nHost: {}\r\n\r\n",
            aim.target.host()
        );
        while stream.write_all(asked.as_bytes()).await.is_ok() {
            aim.met.count("asked and not read");
        }
        aim.met.count("cut off");
    });
    aim.tasks.spawn(async move {
        let _held = held;
        std::future::pending::<()>().await;
    });
}

/// Calls everything there is as fast as it is answered.
fn flood(aim: &Aim) {
    forever(aim, FLOODERS, |aim, at| async move {
        let name = format!("flood-{at}");
        let opened = HttpClient::open(aim.target.clone(), name, aim.tasks.clone()).await;
        let Ok(client) = opened else {
            aim.met.count("no session");
            return tokio::time::sleep(AGAIN).await;
        };
        let mut client = Client::Http(Box::new(client));
        for call in 0_u64.. {
            let answer = if at.is_multiple_of(4) {
                let arguments =
                    format!("{{\"intent\":\"flood {call}\",\"paths\":[\"src\",\"flood{at}\"]}}");
                client.call("peers_announce", &arguments).await
            } else {
                client.call("peers_list", "{}").await
            };
            if !aim.met.answered(&answer) {
                return tokio::time::sleep(AGAIN).await;
            }
        }
    });
    forever(aim, CHURNERS, |aim, at| async move {
        let name = format!("churn-{at}");
        let client = HttpClient::stateless(aim.target.clone(), name, aim.tasks.clone());
        let mut client = Client::Http(Box::new(client));
        if !aim.met.answered(&client.call("peers_list", "{}").await) {
            tokio::time::sleep(AGAIN).await;
        }
    });
}

async fn sessions(aim: &Aim) {
    let mut opening = Vec::new();
    for at in 0..SESSION_OPENERS {
        let aim = aim.clone();
        let tasks = aim.tasks.clone();
        opening.push(tasks.spawn(async move {
            let name = format!("many-{at}");
            let opened = HttpClient::open(aim.target.clone(), name, aim.tasks.clone()).await;
            let Ok(mut client) = opened else {
                aim.met.count("no session");
                return;
            };
            for _ in 1..SESSIONS / SESSION_OPENERS {
                aim.met.answered(&client.initialize().await);
            }
            aim.tasks.spawn(async move {
                let _held = client;
                std::future::pending::<()>().await;
            });
        }));
    }
    for one in opening {
        one.await.ok(); // a panic is counted by what is missing
    }
}

/// Sends the largest messages there may be: one long text, or as many values as fit.
fn bodies(aim: &Aim) {
    let begun = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":\
                 {\"name\":\"peers_announce\",\"arguments\":{\"intent\":";
    let text = format!("{begun}\"{}\"}}}}}}", "x".repeat(BODY_BYTES));
    let values = format!("{begun}[{}0]}}}}}}", "0,".repeat(BODY_BYTES / 2));
    let shared = [Bytes::from(text), Bytes::from(values)];
    forever(aim, BODIES, move |aim, at| {
        let body = shared.get(at % 2).cloned().unwrap_or_default();
        async move {
            let name = format!("body-{at}");
            let opened = HttpClient::open(aim.target.clone(), name, aim.tasks.clone()).await;
            let Ok(mut client) = opened else {
                aim.met.count("no session");
                return tokio::time::sleep(AGAIN).await;
            };
            while aim.met.answered(&client.post(body.clone()).await) {}
            tokio::time::sleep(AGAIN).await;
        }
    });
}

/// Writes the head of a request to the endpoint.
fn head(aim: &Aim, method: &str, headers: &str) -> String {
    format!(
        "{method} {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{headers}\r\n",
        aim.target.path(),
        aim.target.host()
    )
}
