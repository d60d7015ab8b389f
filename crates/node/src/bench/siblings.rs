//! `earshot bench siblings`: what many worktrees of one repository cost, and how soon they know.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
    process::Command,
};

use super::{
    BenchError, ScratchNode,
    facts::{Machine, Resident, build_json, build_line, mib},
    report,
    samples::{Samples, ms, rounded},
    scratch::Scratch,
};
use crate::{
    cli::{printer::Printer, render},
    clock, system,
};

/// Worktrees of the repository whose status is listed, and how many of them have a node: those of
/// the published figure that this is read beside.
const CHECKOUTS: usize = 118;
const LIVE: usize = 7;

/// Listings of each kind.
const LISTINGS: usize = 20;

/// Linked nodes among which an announcement goes round.
const GROUPS: [usize; 3] = [2, 10, 50];

/// Announcements in each group.
const ANNOUNCEMENTS: usize = 30;

/// Nodes that are left idle, besides the one whose siblings they are.
const IDLE: usize = 20;

/// How long they are watched.
const WATCHED: Duration = Duration::from_secs(10);

/// Pause between two looks at a board.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// Looks after which a board that still lacks something is a failure.
const LOOKS_MAX: u32 = 20_000;

/// What `earshot bench siblings` measured.
#[derive(Debug)]
pub(super) struct Measured {
    machine: Machine,
    /// `serve status --checkouts repository`, as a process.
    status: Samples,
    /// `git worktree list`, then a lease read for each and a probe of those that name an address.
    plain: Samples,
    /// `peers.list` of one of the nodes.
    board: Samples,
    /// For each group, from the announcement to the last board.
    told: Vec<(usize, Samples)>,
    /// Share of one core that all idle nodes took together, and the memory of the largest.
    idle_cores: f64,
    idle_memory: Option<Resident>,
}

/// Measures.
pub(super) async fn measure() -> Result<Measured, BenchError> {
    let machine = Machine::here();
    let (status, plain, board) = listings().await?;
    let mut told = Vec::new();
    for nodes in GROUPS {
        told.push((nodes, announcements(nodes).await?));
    }
    let (idle_cores, idle_memory) = idle().await?;
    Ok(Measured {
        machine,
        status,
        plain,
        board,
        told,
        idle_cores,
        idle_memory,
    })
}

/// Makes a repository with so many checkouts, the primary one among them.
fn checkouts(scratch: &Scratch, count: usize) -> Result<Vec<PathBuf>, BenchError> {
    let repository = scratch.repository("primary")?;
    let mut roots = vec![repository.clone()];
    for n in 1..count {
        roots.push(scratch.worktree(&repository, &format!("worktree-{n}"))?);
    }
    Ok(roots)
}

async fn listings() -> Result<(Samples, Samples, Samples), BenchError> {
    let scratch = Scratch::new()?;
    let roots = checkouts(&scratch, CHECKOUTS)?;
    let mut nodes = Vec::new();
    for root in roots.iter().take(LIVE) {
        nodes.push(scratch.ensure(root).await?);
    }
    let (mut status, mut plain, mut board) = (Vec::new(), Vec::new(), Vec::new());
    let first = roots.first().ok_or(BenchError::NoNode)?;
    let arguments = [
        "serve",
        "status",
        "--checkouts",
        "repository",
        "--format",
        "json",
    ];
    for _ in 0..LISTINGS {
        let began = clock::now();
        scratch.run(first, &arguments).await?;
        status.push(clock::now().since(began));
        let began = clock::now();
        plain_loop(first, &nodes).await?;
        plain.push(clock::now().since(began));
        let node = nodes.first().ok_or(BenchError::NoNode)?;
        let began = clock::now();
        peers(node).await?;
        board.push(clock::now().since(began));
    }
    Ok((
        Samples::new(status),
        Samples::new(plain),
        Samples::new(board),
    ))
}

/// Lists worktrees as git does and asks each node that there is over HTTP, one after the other.
async fn plain_loop(root: &Path, nodes: &[ScratchNode]) -> Result<(), BenchError> {
    let listed = Command::new("git")
        .args(["worktree", "list", "--porcelain"])
        .current_dir(root)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .await?;
    let text = String::from_utf8_lossy(&listed.stdout);
    let count = text
        .lines()
        .filter(|line| line.starts_with("worktree "))
        .count();
    if count != CHECKOUTS {
        return Err(BenchError::Command {
            command: "git worktree list".to_owned(),
            said: format!("{count} worktrees instead of {CHECKOUTS}"),
        });
    }
    for node in nodes {
        let authority = node.url.strip_prefix("http://").unwrap_or(&node.url);
        let authority = authority.split('/').next().unwrap_or(authority);
        let mut stream = TcpStream::connect(authority).await?;
        let request =
            format!("GET /api/v1/live HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
    }
    Ok(())
}

/// Calls a capability at a node's socket, as the client of this session.
async fn post(node: &ScratchNode, path: &str, body: &Value) -> Result<Value, BenchError> {
    let mut stream = UnixStream::connect(&node.socket).await?;
    let body = body.to_string();
    let request = format!(
        "POST /api/v1/{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         earshot-session: bench-{pid}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}",
        pid = node.pid,
        length = body.len(),
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let text = String::from_utf8_lossy(&answer);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).map_err(|error| BenchError::Command {
        command: path.to_owned(),
        said: error.to_string(),
    })
}

async fn peers(node: &ScratchNode) -> Result<Value, BenchError> {
    post(node, "peers/list", &json!({})).await
}

/// Looks at a board until it shows this intent so many times.
async fn wait_for(node: &ScratchNode, intent: &str, times: usize) -> Result<(), BenchError> {
    for _ in 0..LOOKS_MAX {
        let board = peers(node).await?;
        let rows = board.get("peers").and_then(Value::as_array);
        let shown = rows.into_iter().flatten().filter(|row| {
            row.pointer("/announcement/intent").and_then(Value::as_str) == Some(intent)
        });
        if shown.count() >= times {
            return Ok(());
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
    Err(BenchError::NoNode)
}

/// Announces at one node, and takes the time until the last board of the others shows it.
async fn announcements(count: usize) -> Result<Samples, BenchError> {
    let scratch = Scratch::new()?;
    let mut nodes = Vec::new();
    for root in checkouts(&scratch, count)? {
        nodes.push(scratch.ensure(&root).await?);
    }
    let (first, others) = nodes.split_first().ok_or(BenchError::NoNode)?;
    let mut times = Vec::new();
    for n in 0..=ANNOUNCEMENTS {
        let intent = format!("announcement {n}");
        let began = clock::now();
        let said = json!({ "intent": intent, "paths": ["src"] });
        post(first, "peers/announce", &said).await?;
        for other in others {
            wait_for(other, &intent, 1).await?;
        }
        // The first one waits for the links.
        if n > 0 {
            times.push(clock::now().since(began));
        }
    }
    Ok(Samples::new(times))
}

/// Leaves linked nodes alone, and returns the share of a core that they take together and the
/// memory of the largest.
async fn idle() -> Result<(f64, Option<Resident>), BenchError> {
    let scratch = Scratch::new()?;
    let mut nodes = Vec::new();
    for root in checkouts(&scratch, IDLE + 1)? {
        nodes.push(scratch.ensure(&root).await?);
    }
    let first = nodes.first().ok_or(BenchError::NoNode)?;
    let said = json!({ "intent": "idle", "paths": [] });
    post(first, "peers/announce", &said).await?;
    for node in &nodes {
        wait_for(node, "idle", 1).await?;
    }
    let spent = || -> u64 {
        nodes
            .iter()
            .filter_map(|node| system::cpu_ticks(node.pid))
            .sum()
    };
    let before = spent();
    let began = clock::now();
    tokio::time::sleep(WATCHED).await;
    let took = clock::now().since(began).as_secs_f64();
    let ticks = u32::try_from(spent().saturating_sub(before)).unwrap_or(u32::MAX);
    let cores = f64::from(ticks) / f64::from(system::ticks_per_second()) / took;
    let memory = nodes.iter().filter_map(|node| Resident::of(node.pid)).max();
    Ok((cores, memory))
}

/// Writes what was measured as JSON.
pub(super) fn to_json(measured: &Measured) -> Value {
    let samples = |samples: &Samples| {
        json!({
            "median_ms": rounded(ms(samples.median())), "p99_ms": rounded(ms(samples.p99())),
            "samples": samples.count(),
        })
    };
    let told: Vec<Value> = measured
        .told
        .iter()
        .map(|(nodes, times)| json!({ "nodes": nodes, "to_the_last_board": samples(times) }))
        .collect();
    json!({
        "machine": measured.machine.json(), "build": build_json(),
        "checkouts": CHECKOUTS, "live": LIVE,
        "status": samples(&measured.status), "plain_loop": samples(&measured.plain),
        "board": samples(&measured.board), "announcements": told,
        "idle": {
            "nodes": IDLE + 1, "cores_percent": rounded(measured.idle_cores * 100.0),
            "memory": measured.idle_memory.map(Resident::json),
        },
    })
}

/// Writes what was measured for a person.
pub(super) fn to_text(printer: Printer, measured: &Measured) -> String {
    let mut rows = Vec::new();
    let mut row = |what: String, samples: &Samples| {
        rows.push(vec![
            what,
            report::time(samples.median()),
            report::time(samples.p99()),
            samples.count().to_string(),
        ]);
    };
    row(
        format!("status of {CHECKOUTS} checkouts, {LIVE} live"),
        &measured.status,
    );
    row("the same by a plain loop".to_owned(), &measured.plain);
    row(format!("board over {LIVE} nodes"), &measured.board);
    for (nodes, times) in &measured.told {
        row(format!("announcement on all of {nodes} boards"), times);
    }
    let headings = ["WHAT", "MEDIAN", "P99", "TIMES"];
    let memory = measured
        .idle_memory
        .map_or_else(|| "-".to_owned(), |it| format!("{:.1} MiB", mib(it.all)));
    let idle = render::fields(&[
        ("machine", measured.machine.line()),
        ("build", build_line()),
        (
            "idle",
            format!(
                "{} linked nodes take {:.2} % of a core together; the largest has {memory}",
                IDLE + 1,
                measured.idle_cores * 100.0,
            ),
        ),
    ]);
    format!("{idle}\n{}", render::table(printer, &headings, &rows))
}
