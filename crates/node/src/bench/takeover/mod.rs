//! `earshot bench takeover`: the node is killed again and again while its clients call.

mod tally;
mod worker;

use std::time::Duration;

use earshot_proto::Now;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use self::{
    tally::{Kind, Tally, back_after},
    worker::Worker,
};
use super::{
    BenchError, ScratchNode, TakeoverSettings,
    client::{Client, HttpClient, StdioClient, Target},
    facts::{Machine, build_json, build_line},
    report,
    samples::{ms, rounded},
    scratch::Scratch,
};
use crate::{
    cli::{printer::Printer, render},
    clock,
};

/// How often the node is killed in a run.
const KILLS: u32 = 3;

/// Pause between two looks for a node that can be killed.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// What `earshot bench takeover` measured.
#[derive(Debug)]
pub(super) struct Measured {
    settings: TakeoverSettings,
    machine: Machine,
    kinds: [(Kind, Tally); 2],
    /// For each kill, how long after it all clients of a kind had been answered again.
    back: Vec<[Option<Duration>; 2]>,
}

/// Measures.
pub(super) async fn measure(settings: TakeoverSettings) -> Result<Measured, BenchError> {
    let machine = Machine::here();
    let scratch = Scratch::new()?;
    let repository = scratch.repository("takeover")?;
    let node = scratch.ensure(&repository).await?;
    let tasks = TaskTracker::new();
    let mut workers = Vec::new();
    for at in 0..settings.clients {
        // Half of them, and never none: a bridge is what starts the next node.
        let kind = if at < settings.clients.div_ceil(2) {
            Kind::Bridge
        } else {
            Kind::Http
        };
        let name = format!("bench-{at}");
        let failed = |source| BenchError::Client {
            what: name.clone(),
            source,
        };
        let client = match kind {
            Kind::Bridge => Client::Stdio(Box::new(
                StdioClient::start(&scratch, &repository, &name)
                    .await
                    .map_err(failed)?,
            )),
            Kind::Http => {
                let target = Target::tcp(&node.url)?;
                let opened = HttpClient::open(target, name.clone(), tasks.clone()).await;
                Client::Http(Box::new(opened.map_err(failed)?))
            }
        };
        workers.push(Worker::new(kind, name, at, client));
    }
    let began = clock::now();
    let driven: Vec<_> = workers
        .into_iter()
        .map(|worker| tasks.spawn(worker.run(began, settings.time)))
        .collect();
    let mut kills = Vec::new();
    for at in 1..=KILLS {
        let due = settings.time / (KILLS + 1) * at;
        tokio::time::sleep(due.saturating_sub(clock::now().since(began))).await;
        kills.push(kill(&scratch, &repository).await?);
    }
    let mut tallies = Vec::new();
    for task in driven {
        tallies.push(task.await?);
    }
    let of = |kind| -> Vec<&Tally> { tallies.iter().filter(|tally| tally.kind == kind).collect() };
    let back = kills
        .iter()
        .map(|kill| Kind::BOTH.map(|kind| back_after(*kill, &of(kind))))
        .collect();
    let kinds = Kind::BOTH.map(|kind| (kind, Tally::sum(kind, &of(kind))));
    Ok(Measured {
        settings,
        machine,
        kinds,
        back,
    })
}

/// Kills the node that serves, waiting for one that does, and returns when it was killed.
async fn kill(scratch: &Scratch, repository: &std::path::Path) -> Result<Now, BenchError> {
    let began = clock::now();
    while clock::now().since(began) < super::client::PATIENCE {
        let node: Option<ScratchNode> = scratch.node(repository).await?;
        if node.is_some_and(|node| node.kill()) {
            return Ok(clock::now());
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
    Err(BenchError::NoNode)
}

/// Writes what was measured as JSON.
pub(super) fn to_json(measured: &Measured) -> Value {
    let kinds: Vec<Value> = measured
        .kinds
        .iter()
        .map(|(kind, tally)| {
            json!({
                "kind": kind.as_str(), "clients": tally.clients, "calls": tally.calls(),
                "failed": tally.failed, "doubled": tally.doubled, "lost": tally.lost,
                "slowest_ms": rounded(ms(tally.slowest())), "errors_seen": tally.errors_seen,
                "first_failure": tally.first_failure,
            })
        })
        .collect();
    let kills: Vec<Value> = measured
        .back
        .iter()
        .map(|back| {
            let [bridges, http] = back.map(|back| back.map(|back| rounded(ms(back))));
            json!({ "bridges_back_ms": bridges, "http_back_ms": http })
        })
        .collect();
    json!({
        "machine": measured.machine.json(), "build": build_json(),
        "settings": {
            "seconds": measured.settings.time.as_secs(), "clients": measured.settings.clients,
            "kills": KILLS,
        },
        "clients": kinds, "kills": kills,
    })
}

/// Writes what was measured for a person.
pub(super) fn to_text(printer: Printer, measured: &Measured) -> String {
    let rows: Vec<Vec<String>> = measured
        .kinds
        .iter()
        .map(|(kind, tally)| {
            let numbers = [tally.calls(), tally.failed, tally.doubled, tally.lost];
            let mut row = vec![kind.as_str().to_owned(), tally.clients.to_string()];
            row.extend(numbers.map(|number| number.to_string()));
            row.extend([report::time(tally.slowest()), tally.errors_seen.to_string()]);
            row
        })
        .collect();
    let headings = [
        "CLIENTS",
        "COUNT",
        "CALLS",
        "FAILED",
        "DOUBLED",
        "LOST",
        "SLOWEST",
        "ERRORS SEEN",
    ];
    let kills: Vec<Vec<String>> = measured
        .back
        .iter()
        .zip(1..)
        .map(|(back, at): (_, u32)| {
            let mut row = vec![at.to_string()];
            row.extend(back.map(|back| back.map_or_else(|| "never".to_owned(), report::time)));
            row
        })
        .collect();
    let failures: String = measured
        .kinds
        .iter()
        .filter_map(|(kind, tally)| {
            Some(format!(
                "first failure, {}: {}\n",
                kind.as_str(),
                tally.first_failure.as_ref()?
            ))
        })
        .collect();
    let seconds = measured.settings.time.as_secs();
    [
        render::fields(&[
            ("machine", measured.machine.line()),
            ("build", build_line()),
            (
                "measured",
                format!("{seconds} s, the node killed {KILLS} times with SIGKILL"),
            ),
        ]),
        render::table(printer, &headings, &rows),
        render::table(
            printer,
            &["KILL", "ALL BRIDGES BACK", "ALL HTTP BACK"],
            &kills,
        ) + &failures,
    ]
    .join("\n")
}
