//! `earshot bench soak`: clients at a moderate rate, some for ever and some coming and going, for
//! a long time: what grows shows.

use std::time::Duration;

use earshot_proto::Now;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use super::{
    BenchError, SoakSettings,
    crowd::{Crowd, Kind, Place},
    facts::{Holding, Machine, build_json, build_line, mib},
    report,
    samples::{ms, rounded},
    scratch::Scratch,
};
use crate::{
    cli::{printer::Printer, render},
    clock,
};

/// How often a client that stays calls.
const CALL_EVERY: Duration = Duration::from_millis(500);

/// How often a client comes that leaves again.
const COMER_EVERY: Duration = Duration::from_millis(500);

/// How often is counted what processes hold.
const SAMPLE_EVERY: Duration = Duration::from_mins(1);

/// The part of the samples at the beginning that the slopes leave out: a fifth. Caches fill, and
/// the allocator takes what it will keep.
const WARM_UP_PART: usize = 5;

/// What is held at one time.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Duration,
    node: Holding,
    bridge: Holding,
}

/// What `earshot bench soak` measured.
#[derive(Debug)]
pub(super) struct Measured {
    settings: SoakSettings,
    machine: Machine,
    samples: Vec<Sample>,
    calls: usize,
    comers: u64,
    failed: u64,
    first_failure: Option<String>,
    p99: Duration,
    same_node: bool,
}

/// Measures.
pub(super) async fn measure(settings: SoakSettings) -> Result<Measured, BenchError> {
    let machine = Machine::here();
    let scratch = Scratch::new()?;
    let repository = scratch.repository("soak")?;
    let node = scratch.ensure(&repository).await?;
    let tasks = TaskTracker::new();
    let place = Place {
        scratch: &scratch,
        repository: &repository,
        node: &node,
        tasks: &tasks,
    };
    let mut crowd = Crowd::gather(&place, 2).await?;
    let bridges = crowd.bridges();
    let bridge = bridges.first().copied().ok_or(BenchError::NoNode)?;
    let began = clock::now();
    let mut samples = vec![sample(began, node.pid, bridge)?];
    let (seen, comers, sampled) = tokio::join!(
        crowd.call(&place, CALL_EVERY, settings.time),
        come_and_go(&place, began, settings.time),
        async {
            let mut later = Vec::new();
            let mut due = SAMPLE_EVERY;
            while due <= settings.time {
                tokio::time::sleep(due.saturating_sub(clock::now().since(began))).await;
                later.push(sample(began, node.pid, bridge)?);
                due += SAMPLE_EVERY;
            }
            Ok::<_, BenchError>(later)
        },
    );
    let (seen, comers) = (seen?, comers?);
    samples.extend(sampled?);
    let after = scratch.node(&repository).await?;
    crowd.leave().await;
    Ok(Measured {
        settings,
        machine,
        samples,
        calls: seen.calls.count(),
        comers,
        failed: seen.failed,
        first_failure: seen.first_failure,
        p99: seen.calls.p99(),
        same_node: after.is_some_and(|after| after.pid == node.pid),
    })
}

fn sample(began: Now, node: u32, bridge: u32) -> Result<Sample, BenchError> {
    Ok(Sample {
        at: clock::now().since(began),
        node: Holding::of(node).ok_or(BenchError::NoNode)?,
        bridge: Holding::of(bridge).ok_or(BenchError::NoNode)?,
    })
}

/// Lets clients of every kind come, announce, read and leave, and counts them.
async fn come_and_go(place: &Place<'_>, began: Now, time: Duration) -> Result<u64, BenchError> {
    let mut comers = 0_u64;
    for kind in Kind::ALL.into_iter().cycle() {
        tokio::time::sleep(COMER_EVERY).await;
        if clock::now().since(began) >= time {
            break;
        }
        let failed = |source| BenchError::Client {
            what: format!("a client that comes ({kind:?})"),
            source,
        };
        let mut client = place.arrive(kind, format!("comer-{comers}")).await?;
        let calls = [
            ("peers_announce", r#"{"intent":"passing","paths":["src"]}"#),
            ("peers_list", "{}"),
            ("peers_withdraw", "{}"),
        ];
        for (tool, arguments) in calls {
            client.call(tool, arguments).await.map_err(failed)?;
        }
        client.close().await;
        comers += 1;
    }
    Ok(comers)
}

/// What is watched for growth: name, unit, and where a sample has it.
type Watched = (&'static str, &'static str, fn(&Sample) -> f64);

const WATCHED: [Watched; 8] = [
    ("node memory", "KiB", |it| it.node.memory.all.into()),
    ("node memory in no file", "KiB", |it| {
        it.node.memory.anonymous.into()
    }),
    ("node descriptors", "", |it| count(it.node.descriptors)),
    ("node threads", "", |it| it.node.threads.into()),
    ("bridge memory", "KiB", |it| it.bridge.memory.all.into()),
    ("bridge memory in no file", "KiB", |it| {
        it.bridge.memory.anonymous.into()
    }),
    ("bridge descriptors", "", |it| count(it.bridge.descriptors)),
    ("bridge threads", "", |it| it.bridge.threads.into()),
];

fn count(number: usize) -> f64 {
    u32::try_from(number).unwrap_or(u32::MAX).into()
}

impl Measured {
    /// Returns how much something grows in a minute: the slope of the line that fits best what
    /// came after the warm-up.
    fn slope(&self, of: fn(&Sample) -> f64) -> f64 {
        let warm = self.samples.len() / WARM_UP_PART;
        let points: Vec<(f64, f64)> = self
            .samples
            .iter()
            .skip(warm.max(1))
            .map(|sample| (sample.at.as_secs_f64() / 60.0, of(sample)))
            .collect();
        slope(&points)
    }
}

/// Returns the slope of the line that fits these points best; zero for less than two.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = count(points.len());
    if count < 2.0 {
        return 0.0;
    }
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let shared: f64 = points
        .iter()
        .map(|point| (point.0 - x) * (point.1 - y))
        .sum();
    shared / spread
}

/// Writes what was measured as JSON.
pub(super) fn to_json(measured: &Measured) -> Value {
    let holding = |holding: &Holding| {
        json!({
            "memory": holding.memory.json(), "peak_mib": rounded(mib(holding.peak)),
            "threads": holding.threads, "descriptors": holding.descriptors,
        })
    };
    let samples: Vec<Value> = measured
        .samples
        .iter()
        .map(|sample| {
            json!({
                "seconds": sample.at.as_secs(), "node": holding(&sample.node),
                "bridge": holding(&sample.bridge),
            })
        })
        .collect();
    let slopes: serde_json::Map<String, Value> = WATCHED
        .iter()
        .map(|(name, _, of)| (name.replace(' ', "_"), json!(rounded(measured.slope(*of)))))
        .collect();
    json!({
        "machine": measured.machine.json(), "build": build_json(),
        "settings": { "seconds": measured.settings.time.as_secs() },
        "samples": samples, "slopes_per_minute": slopes, "calls": measured.calls,
        "comers": measured.comers, "failed": measured.failed,
        "first_failure": measured.first_failure, "p99_ms": rounded(ms(measured.p99)),
        "same_node": measured.same_node,
    })
}

/// Writes what was measured for a person.
pub(super) fn to_text(printer: Printer, measured: &Measured) -> String {
    let rows: Vec<Vec<String>> = measured
        .samples
        .iter()
        .map(|sample| {
            let mut row = vec![format!("{} s", sample.at.as_secs())];
            for held in [&sample.node, &sample.bridge] {
                row.extend([
                    format!("{:.2}", mib(held.memory.all)),
                    format!("{:.2}", mib(held.memory.anonymous)),
                    held.descriptors.to_string(),
                    held.threads.to_string(),
                ]);
            }
            row
        })
        .collect();
    let headings = [
        "AT",
        "NODE MIB",
        "OWN",
        "FDS",
        "THREADS",
        "BRIDGE MIB",
        "OWN",
        "FDS",
        "THREADS",
    ];
    [
        render::fields(&figures(measured)),
        render::table(printer, &headings, &rows),
        render::table(
            printer,
            &["SLOPE AFTER WARM-UP", "A MINUTE"],
            &slopes(measured),
        ),
    ]
    .join("\n")
}

fn slopes(measured: &Measured) -> Vec<Vec<String>> {
    WATCHED
        .iter()
        .map(|(name, unit, of)| {
            let slope = format!("{:+.3} {unit}", measured.slope(*of));
            vec![(*name).to_owned(), slope.trim_end().to_owned()]
        })
        .collect()
}

fn figures(measured: &Measured) -> Vec<(&'static str, String)> {
    let mut figures = vec![
        ("machine", measured.machine.line()),
        ("build", build_line()),
        (
            "measured",
            format!("{} s", measured.settings.time.as_secs()),
        ),
        (
            "calls",
            format!(
                "{} by those who stay, p99 {}, {} failed",
                measured.calls,
                report::time(measured.p99),
                measured.failed
            ),
        ),
        ("came and went", format!("{} clients", measured.comers)),
        (
            "node",
            if measured.same_node {
                "the same process at the end".to_owned()
            } else {
                "another process at the end".to_owned()
            },
        ),
    ];
    figures.extend(
        measured
            .first_failure
            .clone()
            .map(|failure| ("first failure", failure)),
    );
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_is_that_of_the_line_through_the_points() {
        for (points, wanted) in [
            (vec![(1.0, 5.0), (2.0, 7.0), (3.0, 9.0)], 2.0),
            (vec![(1.0, 4.0), (2.0, 4.0)], 0.0),
            (vec![(1.0, 1.0), (2.0, 3.0), (3.0, 1.0)], 0.0),
            (vec![(1.0, 9.0)], 0.0),
            (vec![], 0.0),
        ] {
            assert!((slope(&points) - wanted).abs() < 1e-9, "{points:?}");
        }
    }
}
