//! How long things take to start: a bridge's first answer, and the executable itself.

use std::{path::Path, time::Duration};

use super::{
    BenchError,
    client::{Client, StdioClient},
    facts::{Resident, cpu_time},
    samples::Samples,
    scratch::Scratch,
};
use crate::clock;

/// Starts of each kind.
const INITIALIZE_RUNS: usize = 10;

/// Starts of `earshot --version`.
const VERSION_RUNS: usize = 20;

/// What starting was measured to take.
#[derive(Debug)]
pub(super) struct Starts {
    /// From the start of a bridge to the answer to `initialize`, with a node running.
    pub(super) running: Samples,
    /// The same, in a checkout that never had a node: it is started first.
    pub(super) absent: Samples,
    /// From the start of `earshot --version` to its end.
    pub(super) version: Samples,
    /// The memory of a bridge that has said nothing but `initialize`.
    pub(super) bridge: Option<Resident>,
    /// The memory of a node that has seen one client and no call.
    pub(super) node: Option<Resident>,
    /// What they take when nothing is asked.
    pub(super) idle: Idle,
}

/// Parts of a core that are used while nothing is asked, in percent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Idle {
    pub(super) bridge: Option<f64>,
    /// Of a node with that bridge attached.
    pub(super) node: Option<f64>,
}

/// How long nothing is asked: several heartbeats of the node, and no ping of the bridge.
const IDLE_TIME: Duration = Duration::from_secs(5);

async fn idle(scratch: &Scratch, repository: &Path, node: u32) -> Result<Idle, BenchError> {
    let started = StdioClient::start(scratch, repository, "idle").await;
    let client = started.map_err(|source| BenchError::Client {
        what: "a bridge".to_owned(),
        source,
    })?;
    let client = Client::Stdio(Box::new(client));
    let pids = [client.bridge_pid(), Some(node)];
    let times = || pids.map(|pid| pid.and_then(cpu_time));
    // What arriving takes is not idleness.
    tokio::time::sleep(IDLE_TIME / 5).await;
    let (began, before) = (clock::now(), times());
    tokio::time::sleep(IDLE_TIME).await;
    let (took, after) = (clock::now().since(began), times());
    let [bridge, node] = [0, 1].map(|at: usize| {
        let used = after
            .get(at)
            .copied()??
            .checked_sub(before.get(at).copied()??)?;
        Some(100.0 * used.as_secs_f64() / took.as_secs_f64())
    });
    client.close().await;
    Ok(Idle { bridge, node })
}

/// Measures the starts, in repositories of their own.
pub(super) async fn measure(scratch: &Scratch) -> Result<Starts, BenchError> {
    let repository = scratch.repository("starts")?;
    let node = scratch.ensure(&repository).await?;
    let (mut running, mut absent, mut version) = (Vec::new(), Vec::new(), Vec::new());
    let mut bridge = None;
    for _ in 0..INITIALIZE_RUNS {
        let (took, memory) = first_answer(scratch, &repository).await?;
        running.push(took);
        bridge = bridge.max(memory);
    }
    let resident = Resident::of(node.pid);
    let idle = idle(scratch, &repository, node.pid).await?;
    for run in 0..INITIALIZE_RUNS {
        // A checkout that never had a node: its state folder is made on the way.
        let repository = scratch.repository(&format!("start-{run}"))?;
        absent.push(first_answer(scratch, &repository).await?.0);
        if let Some(node) = scratch.node(&repository).await? {
            node.kill();
        }
    }
    for _ in 0..VERSION_RUNS {
        let began = clock::now();
        scratch.run(&repository, &["--version"]).await?;
        version.push(clock::now().since(began));
    }
    Ok(Starts {
        running: Samples::new(running),
        absent: Samples::new(absent),
        version: Samples::new(version),
        bridge,
        node: resident,
        idle,
    })
}

/// Starts a bridge, and returns how long its first answer took and how much memory it holds.
async fn first_answer(
    scratch: &Scratch,
    repository: &Path,
) -> Result<(Duration, Option<Resident>), BenchError> {
    let began = clock::now();
    let started = StdioClient::start(scratch, repository, "bench").await;
    let took = clock::now().since(began);
    let client = started.map_err(|source| BenchError::Client {
        what: "a bridge".to_owned(),
        source,
    })?;
    let client = Client::Stdio(Box::new(client));
    let memory = client.bridge_pid().and_then(Resident::of);
    client.close().await;
    Ok((took, memory))
}
