//! What every command needs: the environment, the places, and the checkout's station.

use std::{io::ErrorKind, net::IpAddr, path::PathBuf, time::Duration};

use earshot_capability::Code;
use earshot_proto::lease::LeaseDocument;

use super::{
    error::{CliError, Exit},
    printer::Printer,
};
use crate::{
    config::{
        Environment, MachineConfig, OriginError, Places, judge_home, judge_root,
        read_machine_config,
    },
    net::desired_host,
    station::{Ensure, EnsureError, IDLE_DEFAULT, Station, start_of},
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
    /// When no home folder is known, or `EARSHOT_HOME` is none.
    pub(crate) fn places(&self) -> Result<Places, CliError> {
        if let Some(home) = &self.environment.home
            && fs_err::metadata(home).is_ok_and(|metadata| !metadata.is_dir())
        {
            let message = format!("EARSHOT_HOME is not a folder: {}", home.display());
            let remedy = "Set EARSHOT_HOME to the path of a folder, or unset it.".to_owned();
            return Err(CliError::new(
                Exit::Usage,
                Code::InvalidInput,
                message,
                remedy,
            ));
        }
        if let Some(home) = &self.environment.home {
            judge_home(home)?;
        }
        Ok(Places::new(&self.environment, system::host_id())?)
    }

    /// Reads the machine's configuration.
    ///
    /// # Errors
    /// When it does not fit, with the line.
    pub(crate) fn machine_config(&self) -> Result<MachineConfig, CliError> {
        let places = self.places()?;
        places.refuse_shared_config()?;
        Ok(read_machine_config(&places.config_file())?)
    }

    /// Finds where the checkout is looked for from.
    ///
    /// # Errors
    /// When `--root` names nothing, or the working directory is gone.
    pub(crate) fn start(&self) -> Result<PathBuf, CliError> {
        if let Some(root) = &self.root
            && let Err(error) = fs_err::metadata(root)
            && [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind())
        {
            let message = format!("--root: {} does not exist", root.display());
            let remedy = "Name a folder or file that exists.".to_owned();
            return Err(CliError::new(
                Exit::Usage,
                Code::InvalidInput,
                message,
                remedy,
            ));
        }
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
        let station = Station::find(&self.start()?, &self.places()?, &system::host_id())?;
        let variable = match (&self.root, &self.environment.root) {
            (Some(_), _) => None,
            (None, Some(_)) => Some("EARSHOT_ROOT"),
            (None, None) => self
                .environment
                .claude_project_dir
                .as_ref()
                .map(|_| "CLAUDE_PROJECT_DIR"),
        };
        if let Some(variable) = variable {
            let here = std::env::current_dir().ok();
            let listed = self.machine_config()?.roots;
            judge_root(variable, &station.checkout, here.as_deref(), &listed)?;
        }
        Ok(station)
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
        Ok(self.try_ensure(ensure).await??)
    }

    /// Does the same for a caller that tells the reasons apart why none runs.
    ///
    /// # Errors
    /// When there is no checkout, or no place for its node's state.
    pub(crate) async fn try_ensure(
        &self,
        ensure: Ensure,
    ) -> Result<Result<LeaseDocument, EnsureError>, CliError> {
        let station = self.station()?;
        blocking(move || station.ensure(&ensure)).await
    }

    /// Returns the address that `EARSHOT_HTTP_HOST` names.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn named_host(&self) -> Result<Option<IpAddr>, CliError> {
        let Some(host) = &self.environment.http_host else {
            return Ok(None);
        };
        host.parse().map(Some).map_err(|_| {
            let message = format!("EARSHOT_HTTP_HOST is not an address: {host}");
            let remedy = "Set it to an address of this machine, or unset it.".to_owned();
            CliError::new(Exit::Usage, Code::InvalidInput, message, remedy)
        })
    }

    /// Returns the address that a node started from this environment would bind.
    ///
    /// # Errors
    /// When the configuration cannot be read.
    pub(crate) fn desired_host(&self) -> Result<String, CliError> {
        let config = self.machine_config()?;
        let named = self.environment.http_host.as_deref();
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

impl From<OriginError> for CliError {
    fn from(error: OriginError) -> Self {
        let remedy = error.remedy();
        Self::new(Exit::Refused, Code::Refused, error.to_string(), remedy)
    }
}
