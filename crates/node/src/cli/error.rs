//! How a command fails: one sentence, one remedy, and the exit code of its kind.

use std::process::ExitCode;

use earshot_capability::{Code, Failure};
use earshot_checkout::RootIndexError;

use crate::{
    config::{ConfigError, PlaceError},
    lease::LockError,
    station::{EnsureError, StationError},
    words::sentence,
};

/// The exit codes of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It failed.
    Failed = 1,
    /// It was called wrongly.
    Usage = 2,
    /// The node was not ready in time.
    NotReady = 10,
    /// It could not be found out.
    Unknown = 11,
    /// It was refused.
    Refused = 12,
}

impl Exit {
    /// Returns what the exit code of another earshot process means.
    fn of(code: Option<i32>) -> Self {
        [Self::Usage, Self::NotReady, Self::Unknown, Self::Refused]
            .into_iter()
            .find(|exit| code == Some(*exit as i32))
            .unwrap_or(Self::Failed)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Failed => Self::from(1),
            Exit::Usage => Self::from(2),
            Exit::NotReady => Self::from(10),
            Exit::Unknown => Self::from(11),
            Exit::Refused => Self::from(12),
        }
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct CliError {
    /// The exit code.
    pub(crate) exit: Exit,
    /// The error, in the form of every surface.
    pub(crate) failure: Failure,
    /// The id of the request that failed, when a node answered.
    pub(crate) request_id: Option<String>,
}

impl CliError {
    /// Makes an error of this command's own.
    pub(crate) fn new(exit: Exit, code: Code, message: String, remedy: String) -> Self {
        Self {
            exit,
            failure: Failure::new(code, message, sentence(remedy)),
            request_id: None,
        }
    }

    /// Makes the error of a call that a node refused.
    pub(crate) fn answered(failure: Failure, request_id: Option<String>) -> Self {
        let exit = match failure.code {
            Code::InvalidInput => Exit::Usage,
            Code::Unauthenticated | Code::Forbidden | Code::Refused => Exit::Refused,
            Code::NotFound
            | Code::Conflict
            | Code::Gone
            | Code::TooLarge
            | Code::Busy
            | Code::Unavailable
            | Code::Internal => Exit::Failed,
        };
        Self {
            exit,
            failure,
            request_id,
        }
    }
}

/// Writes an error with all its causes, each once.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

impl From<Failure> for CliError {
    fn from(failure: Failure) -> Self {
        Self::answered(failure, None)
    }
}

impl From<PlaceError> for CliError {
    fn from(error: PlaceError) -> Self {
        let (exit, code) = match &error {
            PlaceError::HomeNotAbsolute(_) => (Exit::Usage, Code::InvalidInput),
            PlaceError::NoHome
            | PlaceError::Io { .. }
            | PlaceError::ForeignOwner { .. }
            | PlaceError::OthersWrite { .. }
            | PlaceError::NoLocks { .. } => (Exit::Refused, Code::Unavailable),
        };
        Self::new(exit, code, with_causes(&error), error.remedy())
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        let (message, remedy) = (with_causes(&error), error.remedy());
        Self::new(Exit::Usage, Code::InvalidInput, message, remedy)
    }
}

impl From<StationError> for CliError {
    fn from(error: StationError) -> Self {
        match error {
            StationError::Place(error) => error.into(),
            StationError::Resolve(error) => {
                let remedy = error
                    .hint()
                    .unwrap_or_else(|| "Name a folder that exists.".to_owned());
                Self::new(Exit::Refused, Code::Refused, with_causes(&error), remedy)
            }
            StationError::Index(error) => {
                let (exit, remedy) = match &error {
                    RootIndexError::Io(_) => (
                        Exit::Refused,
                        "Make the state folder writable, or set EARSHOT_HOME to a folder on a \
                         local disk with file locks.",
                    ),
                    RootIndexError::Busy(_) => (
                        Exit::NotReady,
                        "End that process, or continue it if it is stopped.",
                    ),
                };
                let remedy = remedy.to_owned();
                Self::new(exit, Code::Unavailable, with_causes(&error), remedy)
            }
        }
    }
}

impl From<EnsureError> for CliError {
    fn from(error: EnsureError) -> Self {
        let message = with_causes(&error);
        let (exit, remedy) = match &error {
            EnsureError::Place(place) => (Exit::Refused, place.remedy()),
            EnsureError::Lock(LockError::Held { .. }) => (
                Exit::NotReady,
                "End that process, or continue it if it is stopped.".to_owned(),
            ),
            EnsureError::Lock(LockError::Open { .. }) => (
                Exit::Refused,
                "Make the state folder yours and writable, or set EARSHOT_HOME to another."
                    .to_owned(),
            ),
            EnsureError::Lock(LockError::NoLocks { .. }) => (
                Exit::Refused,
                "Set EARSHOT_HOME to a folder on a local disk of this machine.".to_owned(),
            ),
            EnsureError::Lease(_) => (Exit::Unknown, "Make the state folder readable.".to_owned()),
            EnsureError::Spawn(_) => (
                Exit::Failed,
                "Run `earshot serve` here to see why.".to_owned(),
            ),
            EnsureError::Ended { last_words, code } => (
                Exit::of(*code),
                last_words
                    .remedy
                    .clone()
                    .unwrap_or_else(|| "Run `earshot serve` here to see why.".to_owned()),
            ),
            EnsureError::Elsewhere => (
                Exit::Refused,
                "Stop it there, with `earshot serve stop`.".to_owned(),
            ),
            EnsureError::NotReady { .. } => (
                Exit::NotReady,
                "Look at `earshot serve status`, or wait longer.".to_owned(),
            ),
            EnsureError::Absent => (Exit::Failed, "Start one with `earshot up`.".to_owned()),
        };
        Self::new(exit, Code::Unavailable, message, remedy)
    }
}
