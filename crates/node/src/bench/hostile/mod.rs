//! `earshot bench load`: what honest clients feel while others do what they should not.
//!
//! Three measurements stand beside each other for every kind of load: quiet; the same hostile
//! process at a listener that does nothing (*control*), which takes the same part of the machine;
//! and that process at the node. What the last is to the second is the node's own doing.

mod generator;
mod sink;

use std::{process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout},
};
use tokio_util::task::TaskTracker;

pub(super) use self::{generator::run as generate, sink::run as sink};
use super::{
    BenchError, LoadSettings,
    client::Target,
    crowd::{Crowd, Place, Seen},
    facts::{Holding, Machine, build_json, build_line, mib},
    report,
    samples::{Samples, median_of, ms, rounded},
    scratch::Scratch,
};
use crate::cli::{printer::Printer, render};

/// Honest clients of each kind.
const HONEST_EACH: usize = 4;

/// How often each of them calls: more often than an agent does.
const CALL_EVERY: Duration = Duration::from_millis(50);

/// How long a hostile process may take until it stands: it opens ten thousand sessions.
const STAND_PATIENCE: Duration = Duration::from_mins(2);

/// How long one may take to say what it met.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// What the hostile process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Sends headers and bodies a byte at a time.
    Trickle,
    /// Connects and says nothing.
    Silent,
    /// Opens streams, asks for answers, and reads none.
    Unread,
    /// Calls as fast as it is answered, and connects anew for each call.
    Flood,
    /// Sends the largest bodies.
    Bodies,
    /// Opens more wire sessions than the node keeps, and holds them.
    Sessions,
}

impl Kind {
    /// All, in the order in which they are measured: the one that leaves most behind comes last.
    pub(super) const ALL: [Self; 6] = [
        Self::Trickle,
        Self::Silent,
        Self::Unread,
        Self::Flood,
        Self::Bodies,
        Self::Sessions,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Trickle => "trickle",
            Self::Silent => "silent",
            Self::Unread => "unread",
            Self::Flood => "flood",
            Self::Bodies => "bodies",
            Self::Sessions => "sessions",
        }
    }

    /// Finds a kind by its name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// What was seen under one load, beside the measurements that it is read against.
#[derive(Debug)]
struct Row {
    name: String,
    quiet: Seen,
    control: Option<Seen>,
    hostile: Seen,
    node: Option<Holding>,
    peak_is_own: bool,
    same_node: bool,
    /// What the hostile clients met, process by process.
    met: Vec<Value>,
}

impl Row {
    /// Returns what the p99 is to that of the quiet measurement.
    fn to_quiet(&self) -> f64 {
        over(self.hostile.calls.p99(), self.quiet.calls.p99())
    }

    /// Returns what the p99 is to that of the control.
    fn to_control(&self) -> Option<f64> {
        let control = self.control.as_ref()?;
        Some(over(self.hostile.calls.p99(), control.calls.p99()))
    }
}

fn over(of: Duration, to: Duration) -> f64 {
    of.as_secs_f64() / to.as_secs_f64().max(f64::EPSILON)
}

/// What `earshot bench load` measured.
#[derive(Debug)]
pub(super) struct Measured {
    settings: LoadSettings,
    machine: Machine,
    rows: Vec<Row>,
    node_at_start: Option<Holding>,
}

/// The honest side and where it is.
struct Field<'a> {
    place: Place<'a>,
    crowd: Crowd,
    time: Duration,
}

/// Measures.
pub(super) async fn measure(settings: LoadSettings) -> Result<Measured, BenchError> {
    let machine = Machine::here();
    let scratch = Scratch::new()?;
    let repository = scratch.repository("load")?;
    let node = scratch.ensure(&repository).await?;
    let tasks = TaskTracker::new();
    let place = Place {
        scratch: &scratch,
        repository: &repository,
        node: &node,
        tasks: &tasks,
    };
    let crowd = Crowd::gather(&place, HONEST_EACH).await?;
    let node_at_start = Holding::of(node.pid);
    let time = settings.time;
    let mut field = Field { place, crowd, time };
    // The first calls of a process are not those it is judged by.
    field.call().await?;
    let mut rows = Vec::new();
    for kind in settings.kinds() {
        rows.extend(field.one(kind).await?);
    }
    if settings.only.is_none() {
        rows.push(field.together().await?);
    }
    field.crowd.leave().await;
    Ok(Measured {
        settings,
        machine,
        rows,
        node_at_start,
    })
}

impl Field<'_> {
    async fn call(&mut self) -> Result<Seen, BenchError> {
        self.crowd.call(&self.place, CALL_EVERY, self.time).await
    }

    /// Measures one kind of load: quiet, at the sink, at the node.
    async fn one(&mut self, kind: Kind) -> Result<Vec<Row>, BenchError> {
        let quiet = self.call().await?;
        let mut control = None;
        if kind != Kind::Sessions {
            let sink = Sink::start(self.place.scratch, self.place.repository).await?;
            let mut hostile = self.hostile(kind, &sink.url)?;
            hostile.stands().await?;
            control = Some(self.call().await?);
            hostile.end().await;
        }
        let pid = self.place.node.pid;
        let peak_is_own = Holding::reset_peak(pid);
        let mut hostile = self.hostile(kind, &self.place.node.url)?;
        let mut rows = Vec::new();
        if kind == Kind::Sessions {
            // While they are being opened, and once they are there.
            let seen = self.call().await?;
            let mut row = self.row("sessions, opening", quiet.clone(), seen).await?;
            row.peak_is_own = peak_is_own;
            rows.push(row);
        }
        hostile.stands().await?;
        let seen = self.call().await?;
        let mut row = self.row(kind.as_str(), quiet, seen).await?;
        row.control = control;
        row.peak_is_own = peak_is_own;
        row.met.extend(hostile.end().await);
        rows.push(row);
        Ok(rows)
    }

    /// Measures all kinds at once.
    async fn together(&mut self) -> Result<Row, BenchError> {
        let quiet = self.call().await?;
        let peak_is_own = Holding::reset_peak(self.place.node.pid);
        let mut all = Vec::new();
        for kind in Kind::ALL {
            all.push(self.hostile(kind, &self.place.node.url)?);
        }
        let seen = self.call().await?;
        let mut row = self.row("all together", quiet, seen).await?;
        row.peak_is_own = peak_is_own;
        for hostile in all {
            row.met.extend(hostile.end().await);
        }
        Ok(row)
    }

    async fn row(&self, name: &str, quiet: Seen, hostile: Seen) -> Result<Row, BenchError> {
        let place = &self.place;
        let node = Holding::of(place.node.pid);
        let after = place.scratch.node(place.repository).await?;
        Ok(Row {
            name: name.to_owned(),
            quiet,
            control: None,
            hostile,
            node,
            peak_is_own: false,
            same_node: after.is_some_and(|after| after.pid == place.node.pid),
            met: Vec::new(),
        })
    }

    fn hostile(&self, kind: Kind, url: &str) -> Result<Hostile, BenchError> {
        let arguments = ["bench", "hostile", kind.as_str(), "--url", url];
        let place = &self.place;
        let mut command = place.scratch.earshot(place.repository, &arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are piped");
        };
        Ok(Hostile {
            child,
            stdin,
            stdout: BufReader::new(stdout),
        })
    }
}

/// A hostile process. Dropping it kills it.
struct Hostile {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Hostile {
    /// Waits until it stands.
    async fn stands(&mut self) -> Result<(), BenchError> {
        let mut line = String::new();
        let read = tokio::time::timeout(STAND_PATIENCE, self.stdout.read_line(&mut line)).await;
        match read.map_err(|_| BenchError::Hostile)?? {
            0 => Err(BenchError::Hostile),
            _ => Ok(()),
        }
    }

    /// Ends it and returns what it met.
    async fn end(self) -> Option<Value> {
        let Self {
            mut child,
            stdin,
            mut stdout,
        } = self;
        drop(stdin);
        let last = async {
            let mut text = String::new();
            while stdout.read_line(&mut text).await.ok()? > 0 {}
            serde_json::from_str(text.lines().last()?).ok()
        };
        let met = tokio::time::timeout(LAST_PATIENCE, last).await.ok()?;
        child.kill().await.ok(); // it has ended, or has had its time
        met
    }
}

/// The listener of the control. Dropping it kills it.
struct Sink {
    _child: Child,
    url: String,
}

impl Sink {
    async fn start(scratch: &Scratch, folder: &std::path::Path) -> Result<Self, BenchError> {
        let mut command = scratch.earshot(folder, &["bench", "sink"]);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let Some(stdout) = child.stdout.take() else {
            unreachable!("it is piped");
        };
        let mut url = String::new();
        BufReader::new(stdout).read_line(&mut url).await?;
        let url = url.trim().to_owned();
        Target::tcp(&url)?;
        Ok(Self { _child: child, url })
    }
}

impl Measured {
    /// Returns the p99 of all quiet measurements, and how much they differ among themselves.
    fn quiet(&self) -> (Samples, f64) {
        let all: Vec<&Samples> = self.rows.iter().map(|row| &row.quiet.calls).collect();
        let p99: Vec<f64> = all.iter().map(|calls| ms(calls.p99())).collect();
        let median = median_of(p99.clone());
        let most = p99.into_iter().fold(0.0, f64::max);
        (Samples::merged(&all), most / median.max(f64::EPSILON))
    }
}

/// Writes what was measured as JSON.
pub(super) fn to_json(measured: &Measured) -> Value {
    let seen = |seen: &Seen| {
        json!({
            "calls": seen.calls.count(), "per_second": rounded(seen.per_second()),
            "p50_ms": rounded(ms(seen.calls.median())), "p99_ms": rounded(ms(seen.calls.p99())),
            "longest_ms": rounded(ms(seen.calls.longest())),
            "arrivals": seen.arrivals.count(),
            "arrival_p99_ms": rounded(ms(seen.arrivals.p99())),
            "failed": seen.failed, "first_failure": seen.first_failure,
        })
    };
    let node = |node: &Holding| {
        json!({
            "memory": node.memory.json(), "peak_mib": rounded(mib(node.peak)),
            "descriptors": node.descriptors, "threads": node.threads,
        })
    };
    let rows: Vec<Value> = measured
        .rows
        .iter()
        .map(|row| {
            json!({
                "name": row.name, "quiet": seen(&row.quiet),
                "control": row.control.as_ref().map(seen), "hostile": seen(&row.hostile),
                "p99_to_quiet": rounded(row.to_quiet()),
                "p99_to_control": row.to_control().map(rounded),
                "node": row.node.as_ref().map(node), "peak_is_of_this_row": row.peak_is_own,
                "same_node": row.same_node, "met": row.met,
            })
        })
        .collect();
    json!({
        "machine": measured.machine.json(), "build": build_json(),
        "settings": { "seconds": measured.settings.time.as_secs() },
        "node_at_start": measured.node_at_start.as_ref().map(node), "loads": rows,
    })
}

/// Writes what was measured for a person.
pub(super) fn to_text(printer: Printer, measured: &Measured) -> String {
    let (quiet, spread) = measured.quiet();
    let figures = [
        ("machine", measured.machine.line()),
        ("build", build_line()),
        (
            "measured",
            format!(
                "{} s each, {} honest clients, one call in {} ms each",
                measured.settings.time.as_secs(),
                3 * HONEST_EACH,
                CALL_EVERY.as_millis()
            ),
        ),
        (
            "quiet",
            format!(
                "p50 {}, p99 {}; the slowest quiet p99 is {} of their median",
                report::time(quiet.median()),
                report::time(quiet.p99()),
                report::ratio(spread)
            ),
        ),
    ];
    let rows: Vec<Vec<String>> = measured.rows.iter().map(text_row).collect();
    let headings = [
        "LOAD",
        "RATE",
        "P50",
        "P99",
        "TO QUIET",
        "TO CONTROL",
        "ARRIVAL P99",
        "FAILED",
        "PEAK MIB",
        "FDS",
        "NODE",
    ];
    let mut text = [
        render::fields(&figures),
        render::table(printer, &headings, &rows),
    ]
    .join("\n");
    for row in &measured.rows {
        for met in &row.met {
            text.push_str(&format!("met, {}: {met}\n", row.name));
        }
        if let Some(failure) = &row.hostile.first_failure {
            text.push_str(&format!("first failure, {}: {failure}\n", row.name));
        }
    }
    text
}

fn text_row(row: &Row) -> Vec<String> {
    let seen = &row.hostile;
    let control = row.to_control().map_or_else(String::new, report::ratio);
    vec![
        row.name.clone(),
        report::rate(seen.per_second()),
        report::time(seen.calls.median()),
        report::time(seen.calls.p99()),
        report::ratio(row.to_quiet()),
        control,
        report::time(seen.arrivals.p99()),
        seen.failed.to_string(),
        row.node
            .map_or_else(String::new, |node| format!("{:.1}", mib(node.peak))),
        row.node
            .map_or_else(String::new, |node| node.descriptors.to_string()),
        if row.same_node { "same" } else { "another" }.to_owned(),
    ]
}
