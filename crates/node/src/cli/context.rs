//! What every command needs: the environment, the places, and the checkout's station.

use std::{path::PathBuf, time::Duration};

use earshot_capability::Code;
use earshot_proto::lease::LeaseDocument;

use super::{
    error::{CliError, Exit},
    printer::Printer,
};
use crate::{
    config::{Environment, MachineConfig, Places, read_machine_config},
    net::desired_host,
    station::{Ensure, IDLE_DEFAULT, Station, start_of},
    system,
};

/// How long a command waits for a node unless told otherwise: `bind_grace`.
const WAIT_DEFAULT: Duration = Duration::from_secs(5);

/// What every command needs.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// The environment, read once.
    pub(crate) environment: Environment,
    /// Where to write.
    pub(crate) printer: Printer,
    /// The value of `--root`.
    pub(crate) root: Option<PathBuf>,
}

impl Context {
    /// Finds the places of configuration and state.
    ///
    /// # Errors
    /// When no home folder is known.
    pub(crate) fn places(&self) -> Result<Places, CliError> {
        Ok(Places::new(&self.environment, system::host_id())?)
    }

    /// Reads the machine's configuration.
    ///
    /// # Errors
    /// When it does not fit, with the line.
    pub(crate) fn machine_config(&self) -> Result<MachineConfig, CliError> {
        Ok(read_machine_config(&self.places()?.config_file())?)
    }

    /// Finds where the checkout is looked for from.
    ///
    /// # Errors
    /// When the working directory is gone.
    pub(crate) fn start(&self) -> Result<PathBuf, CliError> {
        start_of(self.root.as_deref(), &self.environment).map_err(|error| {
            let message = format!("the working directory cannot be found: {error}");
            let remedy = "Change into a folder that exists, or name one with --root.".to_owned();
            CliError::new(Exit::Failed, Code::NotFound, message, remedy)
        })
    }

    /// Finds the checkout and its node's folder.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn station(&self) -> Result<Station, CliError> {
        Ok(Station::find(
            &self.start()?,
            &self.places()?,
            &system::host_id(),
        )?)
    }

    /// Returns what `ensure` does when nothing else is asked.
    ///
    /// # Errors
    /// When the machine's configuration cannot be read.
    pub(crate) fn ensure_defaults(&self) -> Result<Ensure, CliError> {
        let idle = self.machine_config()?.idle.seconds;
        Ok(Ensure {
            idle: idle.map_or(IDLE_DEFAULT, |seconds| Duration::from_secs(seconds.into())),
            wait: WAIT_DEFAULT,
            port: None,
            host: None,
            not_before: None,
            may_start: true,
        })
    }

    /// Sees to it that the node runs, on a thread that may block.
    ///
    /// # Errors
    /// Why it does not, with the remedy.
    pub(crate) async fn ensure(&self, ensure: Ensure) -> Result<LeaseDocument, CliError> {
        let station = self.station()?;
        Ok(blocking(move || station.ensure(&ensure)).await??)
    }

    /// Returns the address that a node started from this environment would bind.
    ///
    /// # Errors
    /// When the configuration cannot be read.
    pub(crate) fn desired_host(&self, host: Option<&str>) -> Result<String, CliError> {
        let config = self.machine_config()?;
        let named = host.or(self.environment.http_host.as_deref());
        Ok(desired_host(named, &config).map_or_else(|| "127.0.0.1".to_owned(), |(host, _)| host))
    }
}

/// Runs what blocks on a thread of its own.
///
/// # Errors
/// When it panicked: a fault of earshot.
pub(crate) async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, CliError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        let remedy = "Report this as a fault of earshot.".to_owned();
        CliError::new(Exit::Failed, Code::Internal, error.to_string(), remedy)
    })
}
