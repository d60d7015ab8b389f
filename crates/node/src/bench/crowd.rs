//! Honest clients at a moderate rate: what others must not be able to disturb.

use std::{path::Path, time::Duration};

use tokio_util::task::TaskTracker;

use super::{
    BenchError, ScratchNode,
    client::{Client, ClientError, HttpClient, StdioClient, Target},
    samples::Samples,
    scratch::Scratch,
};
use crate::clock;

/// Every so many calls of a client is an announcement; the others read the board.
const CALLS_PER_ANNOUNCEMENT: u64 = 4;

/// How often somebody new comes, calls once and leaves.
const ARRIVAL_EVERY: Duration = Duration::from_millis(100);

/// A way to be a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Over a bridge.
    Bridge,
    /// Over HTTP with a wire session.
    Session,
    /// Over HTTP without one.
    Stateless,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Bridge, Self::Session, Self::Stateless];
}

/// Where clients come to.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) scratch: &'a Scratch,
    pub(super) repository: &'a Path,
    pub(super) node: &'a ScratchNode,
    pub(super) tasks: &'a TaskTracker,
}

impl Place<'_> {
    /// Lets a client arrive.
    pub(super) async fn arrive(&self, kind: Kind, name: String) -> Result<Client, BenchError> {
        let target = Target::tcp(&self.node.url)?;
        let failed = |source| BenchError::Client {
            what: "the scratch node".to_owned(),
            source,
        };
        let tasks = self.tasks.clone();
        Ok(match kind {
            Kind::Bridge => {
                let started = StdioClient::start(self.scratch, self.repository, &name).await;
                Client::Stdio(Box::new(started.map_err(failed)?))
            }
            Kind::Session => {
                let opened = HttpClient::open(target, name, tasks).await;
                Client::Http(Box::new(opened.map_err(failed)?))
            }
            Kind::Stateless => Client::Http(Box::new(HttpClient::stateless(target, name, tasks))),
        })
    }
}

/// What a crowd saw in some time.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// How long each answered call took.
    pub(super) calls: Samples,
    /// How long newcomers took from their connection to their first answer from the board.
    pub(super) arrivals: Samples,
    /// Calls and arrivals without a good answer.
    pub(super) failed: u64,
    pub(super) first_failure: Option<String>,
    pub(super) took: Duration,
}

impl Seen {
    /// Returns the answered calls per second.
    pub(super) fn per_second(&self) -> f64 {
        let calls = u32::try_from(self.calls.count()).unwrap_or(u32::MAX);
        f64::from(calls) / self.took.as_secs_f64().max(f64::EPSILON)
    }

    fn fail(&mut self, error: &dyn std::fmt::Display) {
        self.failed += 1;
        self.first_failure.get_or_insert_with(|| error.to_string());
    }
}

/// Clients that stay.
#[derive(Debug)]
pub(super) struct Crowd(Vec<Client>);

impl Crowd {
    /// Lets so many of each kind arrive.
    pub(super) async fn gather(place: &Place<'_>, each: usize) -> Result<Self, BenchError> {
        let mut clients = Vec::new();
        for at in 0..each {
            for kind in Kind::ALL {
                let name = format!("crowd-{kind:?}-{at}");
                clients.push(place.arrive(kind, name).await?);
            }
        }
        Ok(Self(clients))
    }

    /// Returns the processes of its bridges.
    pub(super) fn bridges(&self) -> Vec<u32> {
        self.0.iter().filter_map(Client::bridge_pid).collect()
    }

    /// Calls for `time`, each client once in `every`, while newcomers come and go.
    ///
    /// The calls are spread evenly, and a client that is late leaves out what it missed: the rate
    /// tells of it.
    pub(super) async fn call(
        &mut self,
        place: &Place<'_>,
        every: Duration,
        time: Duration,
    ) -> Result<Seen, BenchError> {
        let began = clock::now();
        let count = u32::try_from(self.0.len()).unwrap_or(u32::MAX).max(1);
        let driven: Vec<_> = std::mem::take(&mut self.0)
            .into_iter()
            .zip(0..)
            .map(|(client, at)| {
                let first = every * at / count;
                place.tasks.spawn(drive(client, at, first, every, time))
            })
            .collect();
        let target = Target::tcp(&place.node.url)?;
        let mut seen = newcomers(&target, place.tasks, time).await;
        let mut calls = Vec::new();
        for task in driven {
            let (client, times, failures) = task.await?;
            self.0.push(client);
            calls.extend(times);
            for failure in failures {
                seen.fail(&failure);
            }
        }
        seen.calls = Samples::new(calls);
        seen.took = clock::now().since(began);
        Ok(seen)
    }

    /// Leaves.
    pub(super) async fn leave(self) {
        for client in self.0 {
            client.close().await;
        }
    }
}

async fn drive(
    mut client: Client,
    at: u32,
    first: Duration,
    every: Duration,
    time: Duration,
) -> (Client, Vec<Duration>, Vec<ClientError>) {
    let began = clock::now();
    let (mut times, mut failures) = (Vec::new(), Vec::new());
    let mut due = first;
    for turn in 1_u64.. {
        let early = due.saturating_sub(clock::now().since(began));
        tokio::time::sleep(early).await;
        let before = clock::now();
        if before.since(began) >= time {
            break;
        }
        let called = if turn.is_multiple_of(CALLS_PER_ANNOUNCEMENT) {
            let arguments = format!("{{\"intent\":\"turn {turn}\",\"paths\":[\"folder{at}\"]}}");
            client.call("peers_announce", &arguments).await
        } else {
            client.call("peers_list", "{}").await
        };
        let took = clock::now().since(before);
        match called {
            Ok(_) => times.push(took),
            Err(error) => {
                if let (Client::Http(http), ClientError::SessionGone) = (&mut client, &error) {
                    http.initialize().await.ok(); // the next call fails in its turn where this does
                }
                failures.push(error);
            }
        }
        due = (due + every).max(clock::now().since(began));
    }
    (client, times, failures)
}

async fn newcomers(target: &Target, tasks: &TaskTracker, time: Duration) -> Seen {
    let began = clock::now();
    let (mut seen, mut arrivals) = (Seen::default(), Vec::new());
    loop {
        tokio::time::sleep(ARRIVAL_EVERY).await;
        let before = clock::now();
        if before.since(began) >= time {
            seen.arrivals = Samples::new(arrivals);
            return seen;
        }
        match newcomer(target.clone(), tasks.clone()).await {
            Ok(client) => {
                arrivals.push(clock::now().since(before));
                client.close().await;
            }
            Err(error) => seen.fail(&error),
        }
    }
}

async fn newcomer(target: Target, tasks: TaskTracker) -> Result<Client, ClientError> {
    let opened = HttpClient::open(target, "newcomer".to_owned(), tasks).await?;
    let mut client = Client::Http(Box::new(opened));
    client.call("peers_list", "{}").await?;
    Ok(client)
}
