//! `earshot bench`: whole processes measured over their real sockets.
//!
//! Each benchmark works in a scratch home and a scratch repository of its own, starts this very
//! executable there, and leaves neither process nor file behind. Rounds alternate within one run,
//! so that what is compared was measured beside each other.

mod calls;
mod client;
mod crowd;
mod facts;
mod hostile;
mod load;
mod report;
mod samples;
mod scratch;
mod siblings;
mod soak;
mod starts;
mod takeover;

use std::{io, path::PathBuf, time::Duration};

use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    cli::{
        CliError,
        printer::{Format, Printer, print, print_json},
    },
    station::StationError,
};
use client::ClientError;
pub(crate) use hostile::Kind as HostileKind;

/// What `earshot bench calls` is asked for.
#[derive(Debug, Clone)]
pub(crate) struct CallsSettings {
    /// How long each kind of call is measured, in all its rounds together.
    pub(crate) time: Duration,
    /// Clients that call at the same time.
    pub(crate) clients: usize,
    /// Rows on the board besides those of the clients.
    pub(crate) rows: u16,
    /// The url of another MCP server with a tool `echo`, measured by the same client.
    pub(crate) beside: Option<String>,
}

/// What `earshot bench takeover` is asked for.
#[derive(Debug, Clone)]
pub(crate) struct TakeoverSettings {
    /// How long the clients call.
    pub(crate) time: Duration,
    /// Clients that call at the same time: the first half over bridges, the rest over HTTP.
    pub(crate) clients: usize,
}

/// What `earshot bench load` is asked for.
#[derive(Debug, Clone)]
pub(crate) struct LoadSettings {
    /// How long each measurement lasts.
    pub(crate) time: Duration,
    /// The one kind of load to measure; `None` for each in turn and all together.
    pub(crate) only: Option<HostileKind>,
}

impl LoadSettings {
    fn kinds(&self) -> Vec<HostileKind> {
        self.only
            .map_or_else(|| HostileKind::ALL.to_vec(), |kind| vec![kind])
    }
}

/// What `earshot bench soak` is asked for.
#[derive(Debug, Clone)]
pub(crate) struct SoakSettings {
    /// How long the clients call.
    pub(crate) time: Duration,
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// The scratch folder could not be made or read.
    #[error("the scratch folder cannot be used")]
    Scratch(#[from] io::Error),
    /// The scratch repository has no station.
    #[error("the scratch repository cannot be served")]
    Station(#[from] StationError),
    /// A command of earshot could not be run.
    #[error("`earshot {command}` failed: {said}")]
    Command {
        /// Its arguments.
        command: String,
        /// What it said, or its exit status.
        said: String,
    },
    /// The node that was just started does not serve.
    #[error("the scratch node does not serve")]
    NoNode,
    /// `--beside` names no HTTP url.
    #[error("{0} is no http:// url with a path")]
    Url(String),
    /// A client could not connect, or nothing at all was answered.
    #[error("{what} does not answer")]
    Client {
        /// What was called.
        what: String,
        /// Why.
        source: ClientError,
    },
    /// A process that was to be hostile did not stand.
    #[error("the process that carries the hostile load did not start")]
    Hostile,
    /// A thread of this process panicked.
    #[error(transparent)]
    Thread(#[from] tokio::task::JoinError),
    /// A signal asked for the end.
    #[error("the benchmark was interrupted")]
    Interrupted,
}

impl BenchError {
    /// Returns the one thing to do about it.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Self::Scratch(_) | Self::Station(_) => "Set TMPDIR to a folder on a local disk.",
            Self::Hostile => "Free some memory and descriptors, then run it again.",
            Self::Command { .. } | Self::NoNode => {
                "Run `earshot serve` in a repository to see why."
            }
            Self::Url(_) => "Name it as http://127.0.0.1:8000/mcp.",
            Self::Client { .. } => "See that the server runs and has the tool that is called.",
            Self::Thread(_) => "Report this as a fault of earshot.",
            Self::Interrupted => "Run it again to its end.",
        }
    }
}

/// Runs `earshot bench calls` and prints what was measured.
///
/// # Errors
/// [`BenchError`].
pub(crate) async fn calls(printer: Printer, settings: CallsSettings) -> Result<(), BenchError> {
    let measured = until_signalled(calls::measure(settings)).await?;
    show(
        printer,
        || calls::to_json(&measured),
        || calls::to_text(printer, &measured),
    );
    Ok(())
}

/// Runs `earshot bench takeover` and prints what was measured.
///
/// # Errors
/// [`BenchError`].
pub(crate) async fn takeover(
    printer: Printer,
    settings: TakeoverSettings,
) -> Result<(), BenchError> {
    let measured = until_signalled(takeover::measure(settings)).await?;
    show(
        printer,
        || takeover::to_json(&measured),
        || takeover::to_text(printer, &measured),
    );
    Ok(())
}

/// Runs `earshot bench siblings` and prints what was measured.
///
/// # Errors
/// [`BenchError`].
pub(crate) async fn siblings(printer: Printer) -> Result<(), BenchError> {
    let measured = until_signalled(siblings::measure()).await?;
    show(
        printer,
        || siblings::to_json(&measured),
        || siblings::to_text(printer, &measured),
    );
    Ok(())
}

/// Runs `earshot bench soak` and prints what was measured.
///
/// # Errors
/// [`BenchError`].
pub(crate) async fn soak(printer: Printer, settings: SoakSettings) -> Result<(), BenchError> {
    let measured = until_signalled(soak::measure(settings)).await?;
    show(
        printer,
        || soak::to_json(&measured),
        || soak::to_text(printer, &measured),
    );
    Ok(())
}

/// Runs `earshot bench load` and prints what was measured.
///
/// # Errors
/// [`BenchError`].
pub(crate) async fn load(printer: Printer, settings: LoadSettings) -> Result<(), BenchError> {
    let measured = until_signalled(hostile::measure(settings)).await?;
    show(
        printer,
        || hostile::to_json(&measured),
        || hostile::to_text(printer, &measured),
    );
    Ok(())
}

/// Is the hostile side of `earshot bench load`.
///
/// # Errors
/// [`BenchError`].
pub(crate) async fn be_hostile(kind: HostileKind, url: &str) -> Result<(), BenchError> {
    until_signalled(hostile::generate(kind, url)).await
}

/// Is the listener of the control of `earshot bench load`.
///
/// # Errors
/// [`BenchError`].
pub(crate) async fn be_sink() -> Result<(), BenchError> {
    until_signalled(hostile::sink()).await
}

/// Stops measuring at a signal, so that what was started is ended all the same.
async fn until_signalled<T>(
    work: impl Future<Output = Result<T, BenchError>>,
) -> Result<T, BenchError> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        biased;
        _ = interrupt.recv() => Err(BenchError::Interrupted),
        _ = terminate.recv() => Err(BenchError::Interrupted),
        done = Box::pin(work) => done,
    }
}

fn show(printer: Printer, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) {
    match printer.format() {
        Format::Json => print_json(&json()),
        Format::Text => print(&text()),
    }
}

/// A node of a scratch repository.
#[derive(Debug, Clone)]
struct ScratchNode {
    pid: u32,
    /// When its process started, in clock ticks since boot: with the pid, proof of who it is.
    started: u64,
    url: String,
    socket: PathBuf,
}

impl From<BenchError> for CliError {
    fn from(error: BenchError) -> Self {
        use earshot_capability::Code;

        use crate::cli::{Exit, with_causes};
        let (exit, code) = match &error {
            BenchError::Url(_) => (Exit::Usage, Code::InvalidInput),
            BenchError::Thread(_) => (Exit::Failed, Code::Internal),
            BenchError::Scratch(_)
            | BenchError::Station(_)
            | BenchError::Command { .. }
            | BenchError::NoNode
            | BenchError::Hostile
            | BenchError::Client { .. }
            | BenchError::Interrupted => (Exit::Failed, Code::Unavailable),
        };
        Self::new(exit, code, with_causes(&error), error.remedy().to_owned())
    }
}
