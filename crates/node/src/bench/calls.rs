//! `earshot bench calls`: calls per second and how long a call takes, each way into the node.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use super::{
    BenchError, CallsSettings, ScratchNode,
    client::{Client, HttpClient, Target},
    facts::{Machine, Resident, build_json, build_line, executable_bytes},
    load::{Field, Load, Round, Tool, Way},
    report,
    samples::{Samples, median_of, ms, rounded},
    scratch::Scratch,
    starts::{self, Starts},
};
use crate::cli::{printer::Printer, render};

/// Rounds of each load: odd, so that the median of their ratios is one that was measured.
const ROUNDS: u32 = 5;

const HTTP_LIST: &str = "HTTP peers_list";
const BESIDE: &str = "beside echo";
const HTTP_ANNOUNCE: &str = "HTTP peers_announce";
const BRIDGES_LIST: &str = "bridges peers_list";
const BRIDGES_ANNOUNCE: &str = "bridges peers_announce";
const ONE_SOCKET: &str = "one client, Unix socket";
const ONE_BRIDGE: &str = "one client, bridge";

/// The loads whose rounds are put in relation, each pair measured side by side.
const PAIRS: [(&str, &str); 6] = [
    (HTTP_LIST, BESIDE),
    (HTTP_ANNOUNCE, BESIDE),
    (HTTP_ANNOUNCE, HTTP_LIST),
    (BRIDGES_LIST, HTTP_LIST),
    (BRIDGES_ANNOUNCE, HTTP_ANNOUNCE),
    (ONE_BRIDGE, ONE_SOCKET),
];

/// What `earshot bench calls` measured.
#[derive(Debug)]
pub(super) struct Measured {
    settings: CallsSettings,
    machine: Machine,
    loads: Vec<(Load, Vec<Round>)>,
    starts: Starts,
    node_at_start: Option<Resident>,
    node_at_end: Option<Resident>,
}

/// Measures.
pub(super) async fn measure(settings: CallsSettings) -> Result<Measured, BenchError> {
    let beside = settings.beside.as_deref().map(Target::tcp).transpose()?;
    let machine = Machine::here();
    let scratch = Scratch::new()?;
    let repository = scratch.repository("calls")?;
    let node = scratch.ensure(&repository).await?;
    let node_at_start = Resident::of(node.pid);
    let tasks = TaskTracker::new();
    populate(&node, settings.rows, &tasks).await?;
    let field = Field {
        scratch: &scratch,
        repository: &repository,
        node: &node,
        tasks: &tasks,
    };
    let mut loads: Vec<(Load, Vec<Round>)> = loads(&settings, beside, &node)?
        .into_iter()
        .map(|load| (load, Vec::new()))
        .collect();
    for _ in 0..ROUNDS {
        for (load, rounds) in &mut loads {
            rounds.push(field.round(load, settings.time / ROUNDS).await?);
        }
    }
    let node_at_end = Resident::of(node.pid);
    node.kill();
    let starts = starts::measure(&scratch).await?;
    Ok(Measured {
        settings,
        machine,
        loads,
        starts,
        node_at_start,
        node_at_end,
    })
}

/// Puts so many more rows on the board: clients that announced and are silent. They stay there for
/// longer than a run takes.
async fn populate(node: &ScratchNode, rows: u16, tasks: &TaskTracker) -> Result<(), BenchError> {
    let target = Target::tcp(&node.url)?;
    for row in 0..rows {
        let client = HttpClient::stateless(target.clone(), format!("row-{row}"), tasks.clone());
        let mut client = Client::Http(Box::new(client));
        let announcement = format!("{{\"intent\":\"row {row}\",\"paths\":[\"row{row}\"]}}");
        let called = client.call("peers_announce", &announcement).await;
        called.map_err(|source| BenchError::Client {
            what: "the scratch node".to_owned(),
            source,
        })?;
        client.close().await;
    }
    Ok(())
}

/// Lists the loads in the order of a round: what is compared stands side by side.
fn loads(
    settings: &CallsSettings,
    beside: Option<Target>,
    node: &ScratchNode,
) -> Result<Vec<Load>, BenchError> {
    let clients = settings.clients;
    let http = || Target::tcp(&node.url).map(Way::Http);
    let load = |name, way, tool, clients| Load {
        name,
        way,
        tool,
        clients,
    };
    let mut loads = vec![load(HTTP_LIST, http()?, Tool::List, clients)];
    if let Some(target) = beside {
        loads.push(load(BESIDE, Way::Http(target), Tool::Echo, clients));
    }
    let socket = Target::unix(node.socket.clone(), &node.url)?;
    loads.extend([
        load(HTTP_ANNOUNCE, http()?, Tool::Announce, clients),
        load(BRIDGES_ANNOUNCE, Way::Bridge, Tool::Announce, clients),
        load(BRIDGES_LIST, Way::Bridge, Tool::List, clients),
        load(ONE_SOCKET, Way::Http(socket), Tool::List, 1),
        load(ONE_BRIDGE, Way::Bridge, Tool::List, 1),
    ]);
    Ok(loads)
}

impl Measured {
    fn rounds(&self, name: &str) -> Option<&[Round]> {
        let found = self.loads.iter().find(|(load, _)| load.name == name)?;
        Some(&found.1)
    }

    /// Returns the medians of what the rounds of one load were to those of another.
    fn ratio(&self, of: &str, to: &str) -> Option<Ratio> {
        let pairs = || Some(self.rounds(of)?.iter().zip(self.rounds(to)?));
        let ratios = |number: fn(&Round) -> f64| {
            Some(median_of(
                pairs()?.map(|(of, to)| number(of) / number(to)).collect(),
            ))
        };
        Some(Ratio {
            per_second: ratios(Round::per_second)?,
            median: ratios(|round| round.times.median().as_secs_f64())?,
        })
    }

    /// Returns what a bridge adds to a call, in milliseconds: the median over the rounds of the
    /// difference of their medians.
    fn bridge_cost_ms(&self) -> Option<f64> {
        let (bridge, socket) = (self.rounds(ONE_BRIDGE)?, self.rounds(ONE_SOCKET)?);
        let differences = bridge
            .iter()
            .zip(socket)
            .map(|(bridge, socket)| ms(bridge.times.median()) - ms(socket.times.median()));
        Some(median_of(differences.collect()))
    }

    fn largest(&self, memory: fn(&Round) -> Option<Resident>) -> Option<Resident> {
        self.loads
            .iter()
            .flat_map(|(_, rounds)| rounds.iter().filter_map(memory))
            .max()
    }

    /// Lists the memory of processes: the name as JSON, for a person, and what was read.
    fn memory(&self) -> [(&'static str, &'static str, Option<Resident>); 6] {
        [
            ("node_started", "node, just started", self.node_at_start),
            ("node_idle", "node, after ten clients", self.starts.node),
            (
                "node_largest",
                "node, clients attached",
                self.largest(|round| round.node),
            ),
            ("node_after", "node, after all rounds", self.node_at_end),
            (
                "bridge_initialized",
                "bridge, initialized",
                self.starts.bridge,
            ),
            (
                "bridge_largest",
                "bridge, after calls",
                self.largest(|round| round.bridge),
            ),
        ]
    }
}

struct Ratio {
    per_second: f64,
    median: f64,
}

/// All rounds of one load together.
struct Sum {
    times: Samples,
    failed: u64,
    /// The median over the rounds.
    per_second: f64,
}

impl Sum {
    fn of(rounds: &[Round]) -> Self {
        let times: Vec<&Samples> = rounds.iter().map(|round| &round.times).collect();
        Self {
            times: Samples::merged(&times),
            failed: rounds.iter().map(|round| round.failed).sum(),
            per_second: median_of(rounds.iter().map(Round::per_second).collect()),
        }
    }
}

/// Writes what was measured as JSON.
pub(super) fn to_json(measured: &Measured) -> Value {
    let Measured {
        settings,
        machine,
        loads,
        starts,
        ..
    } = measured;
    let loads: Vec<Value> = loads
        .iter()
        .map(|(load, rounds)| {
            let sum = Sum::of(rounds);
            json!({
                "name": load.name, "clients": load.clients, "calls": sum.times.count(),
                "failed": sum.failed, "per_second": rounded(sum.per_second),
                "p50_ms": json_ms(sum.times.median()), "p99_ms": json_ms(sum.times.p99()),
            })
        })
        .collect();
    let ratios: Vec<Value> = PAIRS
        .iter()
        .filter_map(|(of, to)| {
            let ratio = measured.ratio(of, to)?;
            Some(json!({
                "of": of, "to": to, "per_second": rounded(ratio.per_second),
                "p50": rounded(ratio.median),
            }))
        })
        .collect();
    let memory: serde_json::Map<String, Value> = measured
        .memory()
        .into_iter()
        .map(|(name, _, memory)| (name.to_owned(), json!(memory.map(Resident::json))))
        .collect();
    json!({
        "machine": machine.json(), "build": build_json(),
        "settings": {
            "seconds": settings.time.as_secs(), "clients": settings.clients, "rounds": ROUNDS,
            "rows": settings.rows,
            "beside": settings.beside,
        },
        "calls": loads, "ratios": ratios,
        "bridge_cost_ms": measured.bridge_cost_ms().map(rounded),
        "initialize": {
            "node_running": start_json(&starts.running), "node_absent": start_json(&starts.absent),
        },
        "version": start_json(&starts.version),
        "idle_cpu_percent": {
            "bridge": starts.idle.bridge.map(rounded), "node": starts.idle.node.map(rounded),
        },
        "memory": memory, "executable_bytes": executable_bytes(),
    })
}

fn json_ms(time: Duration) -> f64 {
    rounded(ms(time))
}

fn start_json(starts: &Samples) -> Value {
    json!({
        "runs": starts.count(), "p50_ms": json_ms(starts.median()),
        "longest_ms": json_ms(starts.longest()),
    })
}

/// Writes what was measured for a person.
pub(super) fn to_text(printer: Printer, measured: &Measured) -> String {
    let Measured {
        settings,
        machine,
        loads,
        ..
    } = measured;
    let rows: Vec<Vec<String>> = loads
        .iter()
        .map(|(load, rounds)| {
            let sum = Sum::of(rounds);
            vec![
                load.name.to_owned(),
                load.clients.to_string(),
                sum.times.count().to_string(),
                sum.failed.to_string(),
                report::rate(sum.per_second),
                report::time(sum.times.median()),
                report::time(sum.times.p99()),
            ]
        })
        .collect();
    let headings = ["LOAD", "CLIENTS", "CALLS", "FAILED", "RATE", "P50", "P99"];
    let ratios: Vec<Vec<String>> = PAIRS
        .iter()
        .filter_map(|(of, to)| {
            let found = measured.ratio(of, to)?;
            let (rate, median) = (report::ratio(found.per_second), report::ratio(found.median));
            Some(vec![format!("{of} : {to}"), rate, median])
        })
        .collect();
    format!(
        "{}\n{}\n{}",
        head(settings, machine),
        [
            render::table(printer, &headings, &rows),
            render::table(printer, &["PAIR BY PAIR", "RATE", "P50"], &ratios)
        ]
        .join("\n"),
        render::fields(&figures(measured)),
    )
}

/// Lists what is one number each.
fn figures(measured: &Measured) -> Vec<(&'static str, String)> {
    let starts = &measured.starts;
    let mut figures = vec![(
        "bridge's own cost",
        measured
            .bridge_cost_ms()
            .map_or_else(String::new, |cost| format!("{cost:.3} ms a call")),
    )];
    figures.extend(
        [
            ("initialize, node running", &starts.running),
            ("initialize, node absent", &starts.absent),
            ("earshot --version", &starts.version),
        ]
        .map(|(name, starts)| (name, start_text(starts))),
    );
    let idle = [
        ("bridge, idle", starts.idle.bridge),
        ("node, idle", starts.idle.node),
    ];
    figures.extend(
        idle.into_iter()
            .filter_map(|(name, percent)| Some((name, format!("{:.3} % of a core", percent?)))),
    );
    figures.extend(
        measured
            .memory()
            .into_iter()
            .filter_map(|(_, name, memory)| Some((name, memory?.text()))),
    );
    if let Some(bytes) = executable_bytes() {
        figures.push(("executable", format!("{bytes} bytes")));
    }
    figures
}

fn head(settings: &CallsSettings, machine: &Machine) -> String {
    let beside = settings.beside.as_deref().unwrap_or("nothing");
    let seconds = settings.time.as_secs();
    render::fields(&[
        ("machine", machine.line()),
        ("build", build_line()),
        (
            "measured",
            format!(
                "{seconds} s each in {ROUNDS} rounds, beside {beside}, {} more rows on the board",
                settings.rows
            ),
        ),
    ])
}

fn start_text(starts: &Samples) -> String {
    format!(
        "{} at the median of {}, {} at most",
        report::time(starts.median()),
        starts.count(),
        report::time(starts.longest())
    )
}
