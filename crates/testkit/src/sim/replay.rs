//! Stepping through the log of a run, beside the run itself.

use serde_json::{Value, json};

use super::world::Happened;
use super::{Progress, Run, Sabotage, Violation};

/// Format of a log; one of another format is refused.
const LOG_FORMAT: u64 = 1;

/// Why a log cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The first line is no header of this format.
    #[error("the first line is not the header of a simulator log of this format")]
    NoHeader,
    /// A line differs from what happens now: the log was written by other code.
    #[error("line {line} is not what happens now: {now}")]
    Diverged {
        /// Number of the line, counted from 1.
        line: usize,
        /// The line as it would be written now.
        now: String,
    },
    /// The run ends before the log does.
    #[error("the run ends before line {line}")]
    Ended {
        /// Number of the line, counted from 1.
        line: usize,
    },
}

/// One step of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayedStep {
    /// Number of its line in the log, counted from 1.
    pub line: usize,
    /// Virtual time, in microseconds.
    pub at_us: u64,
    /// What happened.
    pub event: String,
    /// What it led to: inputs, effects, faults.
    pub notes: Vec<String>,
    /// Where every living process and every client stands afterwards.
    pub state: String,
}

/// A log and the run that it came from, side by side.
#[derive(Debug)]
pub struct Replay {
    run: Run,
    lines: std::vec::IntoIter<String>,
    line: usize,
}

impl Replay {
    /// Reads a log.
    ///
    /// # Errors
    ///
    /// When the text is no log of this simulator.
    pub fn new(log: &str) -> Result<Self, ReplayError> {
        let mut lines = log
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
            .into_iter();
        let header = lines
            .next()
            .and_then(|line| serde_json::from_str::<Value>(&line).ok());
        let header = header.ok_or(ReplayError::NoHeader)?;
        let sabotage = match header.get("sabotage") {
            Some(Value::String(name)) => Some(Sabotage::named(name).ok_or(ReplayError::NoHeader)?),
            Some(_) | None => None,
        };
        let seed = header
            .get("seed")
            .and_then(Value::as_u64)
            .ok_or(ReplayError::NoHeader)?;
        if header.get("sim").and_then(Value::as_u64) != Some(LOG_FORMAT) {
            return Err(ReplayError::NoHeader);
        }
        Ok(Self {
            run: Run::new(seed, sabotage, true),
            lines,
            line: 1,
        })
    }

    /// Takes the next step; `None` at the end of the log.
    ///
    /// # Errors
    ///
    /// When the run and the log part.
    pub fn step(&mut self) -> Result<Option<ReplayedStep>, ReplayError> {
        let Some(logged) = self.lines.next() else {
            return Ok(None);
        };
        self.line += 1;
        let Progress::Happened(happened) = self.run.step() else {
            return Err(ReplayError::Ended { line: self.line });
        };
        let now = line(&happened);
        if now.trim_end() != logged {
            return Err(ReplayError::Diverged {
                line: self.line,
                now,
            });
        }
        Ok(Some(ReplayedStep {
            line: self.line,
            at_us: happened.at,
            event: happened.event,
            notes: happened.notes,
            state: self.run.world.describe(),
        }))
    }
}

pub(super) fn header(seed: u64, sabotage: Option<Sabotage>, violation: &Violation) -> String {
    let header = json!({
        "sim": LOG_FORMAT,
        "seed": seed,
        "sabotage": sabotage.map(Sabotage::name),
        "violation": violation.to_string(),
    });
    format!("{header}\n")
}

pub(super) fn line(happened: &Happened) -> String {
    let line = json!({
        "at_us": happened.at,
        "sequence": happened.sequence,
        "event": happened.event,
        "notes": happened.notes,
    });
    format!("{line}\n")
}
