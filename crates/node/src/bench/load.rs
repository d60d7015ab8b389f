//! One kind of load: so many clients calling one tool as fast as they are answered.

use std::{path::Path, time::Duration};

use earshot_proto::Now;
use tokio_util::task::TaskTracker;

use super::{
    BenchError, ScratchNode,
    client::{Client, ClientError, HttpClient, StdioClient, Target},
    facts::Resident,
    samples::Samples,
    scratch::Scratch,
};
use crate::clock;

/// Calls of each client before measuring: connections are made and code is warm.
const WARM_UP_CALLS: u64 = 20;

/// Failures in a row after which a client stops calling: the figures would be of failures.
const FAILURES_MAX: u64 = 20;

/// Which way a client calls.
#[derive(Debug, Clone)]
pub(super) enum Way {
    /// Over HTTP.
    Http(Target),
    /// Over a bridge of its own.
    Bridge,
}

/// What a client calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    /// Reads the board.
    List,
    /// Announces something new each time.
    Announce,
    /// The echo of a server measured beside.
    Echo,
}

impl Tool {
    const fn name(self) -> &'static str {
        match self {
            Self::List => "peers_list",
            Self::Announce => "peers_announce",
            Self::Echo => "echo",
        }
    }

    /// Writes the arguments of a client's call: an announcement claims what nobody else does.
    fn arguments(self, client: usize, call: u64) -> String {
        match self {
            Self::List => "{}".to_owned(),
            Self::Announce => {
                format!("{{\"intent\":\"call {call}\",\"paths\":[\"folder{client}\"]}}")
            }
            Self::Echo => format!("{{\"text\":\"call {call}\"}}"),
        }
    }
}

/// A kind of load.
#[derive(Debug, Clone)]
pub(super) struct Load {
    /// What it is called in the output.
    pub(super) name: &'static str,
    pub(super) way: Way,
    pub(super) tool: Tool,
    pub(super) clients: usize,
}

/// What one round of a load measured.
#[derive(Debug, Clone, Default)]
pub(super) struct Round {
    /// How long each answered call took.
    pub(super) times: Samples,
    /// Calls without a good answer.
    pub(super) failed: u64,
    /// How long the round took.
    pub(super) took: Duration,
    /// The memory of the largest bridge.
    pub(super) bridge: Option<Resident>,
    /// The memory of the node, while its clients were attached.
    pub(super) node: Option<Resident>,
}

impl Round {
    /// Returns the answered calls per second.
    pub(super) fn per_second(&self) -> f64 {
        let calls = u32::try_from(self.times.count()).unwrap_or(u32::MAX);
        let seconds = self.took.as_secs_f64();
        if seconds > 0.0 {
            f64::from(calls) / seconds
        } else {
            0.0
        }
    }
}

/// Where the loads of a run are carried.
#[derive(Debug)]
pub(super) struct Field<'a> {
    pub(super) scratch: &'a Scratch,
    pub(super) repository: &'a Path,
    pub(super) node: &'a ScratchNode,
    pub(super) tasks: &'a TaskTracker,
}

impl Field<'_> {
    /// Runs one round: clients arrive, warm up, call for `time`, and leave.
    ///
    /// Only this load's clients are attached meanwhile, so the board has as many rows as it has
    /// clients.
    pub(super) async fn round(&self, load: &Load, time: Duration) -> Result<Round, BenchError> {
        let failed = |source| BenchError::Client {
            what: load.name.to_owned(),
            source,
        };
        let mut clients = Vec::new();
        for at in 0..load.clients {
            let mut client = self.arrive(load, at).await.map_err(failed)?;
            for call in 0..WARM_UP_CALLS {
                let arguments = load.tool.arguments(at, call);
                client
                    .call(load.tool.name(), &arguments)
                    .await
                    .map_err(failed)?;
            }
            clients.push(client);
        }
        let began = clock::now();
        let driven: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(at, client)| self.tasks.spawn(drive(client, load.tool, at, began, time)))
            .collect();
        let mut round = Round::default();
        let (mut times, mut clients) = (Vec::new(), Vec::new());
        for task in driven {
            let driven = task.await?;
            times.extend(driven.times);
            round.failed += driven.failed;
            clients.push(driven.client);
        }
        round.took = clock::now().since(began);
        round.times = Samples::new(times);
        round.bridge = clients
            .iter()
            .filter_map(Client::bridge_pid)
            .filter_map(Resident::of)
            .max();
        round.node = Resident::of(self.node.pid);
        for client in clients {
            leave(client, load.tool).await;
        }
        Ok(round)
    }

    async fn arrive(&self, load: &Load, at: usize) -> Result<Client, ClientError> {
        let name = format!("bench-{at}");
        Ok(match &load.way {
            Way::Http(target) => Client::Http(Box::new(
                HttpClient::open(target.clone(), name, self.tasks.clone()).await?,
            )),
            Way::Bridge => Client::Stdio(Box::new(
                StdioClient::start(self.scratch, self.repository, &name).await?,
            )),
        })
    }
}

/// Leaves nothing on the board: a departed peer stays there while its announcement does.
async fn leave(mut client: Client, tool: Tool) {
    if tool == Tool::Announce {
        client.call("peers_withdraw", "{}").await.ok(); // the round is over, nothing is lost by it
    }
    client.close().await;
}

struct Driven {
    client: Client,
    times: Vec<Duration>,
    failed: u64,
}

/// Calls again and again until the time is over.
async fn drive(mut client: Client, tool: Tool, at: usize, began: Now, time: Duration) -> Driven {
    let (mut times, mut failed, mut in_a_row) = (Vec::new(), 0, 0);
    let mut call = WARM_UP_CALLS;
    loop {
        let before = clock::now();
        if before.since(began) >= time || in_a_row >= FAILURES_MAX {
            return Driven {
                client,
                times,
                failed,
            };
        }
        call += 1;
        let answered = client.call(tool.name(), &tool.arguments(at, call)).await;
        if answered.is_ok() {
            times.push(clock::now().since(before));
            in_a_row = 0;
        } else {
            failed += 1;
            in_a_row += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_a_round_counts_answered_calls_only() {
        let round = Round {
            times: Samples::new(vec![Duration::from_millis(1); 30]),
            failed: 70,
            took: Duration::from_millis(500),
            ..Round::default()
        };
        assert!((round.per_second() - 60.0).abs() < 1e-9);
        assert!(Round::default().per_second().abs() < 1e-9);
    }

    #[test]
    fn arguments_are_json_and_announcements_differ() {
        for tool in [Tool::List, Tool::Announce, Tool::Echo] {
            let parsed: serde_json::Value = serde_json::from_str(&tool.arguments(3, 4)).unwrap();
            assert!(parsed.is_object(), "{tool:?}");
        }
        assert_ne!(
            Tool::Announce.arguments(0, 1),
            Tool::Announce.arguments(0, 2)
        );
    }
}
