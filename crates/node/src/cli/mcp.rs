//! `earshot mcp`: the bridge, the client served alone, and `--inspect`.

use std::{process::ExitCode, sync::Arc};

use clap::ArgMatches;
use earshot_capability::{Address, Caller, Code};
use earshot_mcp::{
    McpHost,
    bridge::{self, BridgeEnd, BridgeOptions, FindError, Finder, Found, Want, parent_watch},
    serve_stdio,
};
use earshot_proto::lease::LeaseDocument;
use earshot_trust::{Origin, Seat, SessionId, Surface};
use rustix::io::Errno;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite},
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use super::{
    alone::Alone,
    capabilities::inspect,
    context::{Context, blocking},
    error::{CliError, Exit, with_causes},
    printer::say,
};
use crate::{
    host::Host,
    lease::LockError,
    station::{Ensure, EnsureError, Station},
    system,
};

/// Runs `earshot mcp`.
///
/// # Errors
/// When not even a client alone can be served.
pub(super) async fn mcp(context: &Context, matches: &ArgMatches) -> Result<ExitCode, CliError> {
    if matches.get_flag("inspect") {
        return inspect(context).await;
    }
    let seat = random()?;
    context.start()?; // a root that was named and is not there is a slip, not a reason
    let alone = if matches.get_flag("standalone") {
        Some("--standalone was given. Leave it out to be within earshot of the others.")
    } else if context.environment.off {
        Some("EARSHOT is off. Unset it to be within earshot of the others.")
    } else {
        None
    };
    let (stdin, stdout) = (tokio::io::stdin(), tokio::io::stdout());
    if let Some(reason) = alone {
        return serve_alone(context, seat, reason, stdin, stdout).await;
    }
    let station = match context.station() {
        Ok(station) => station,
        Err(error) => {
            return serve_alone(context, seat, &sentences(&error), stdin, stdout).await;
        }
    };
    let fault = |error: std::io::Error| {
        let remedy = "Free some file descriptors.".to_owned();
        CliError::new(Exit::Failed, Code::Unavailable, with_causes(&error), remedy)
    };
    let watch = parent_watch().map_err(fault)?;
    let mut signals = EndSignals::listen().map_err(fault)?;
    let client_gone = CancellationToken::new();
    let options = options(context, &station, seat, client_gone.clone());
    let finder = NodeFinder {
        context: context.clone(),
    };
    let bridge = bridge::run(stdin, stdout, options, finder);
    let watched = async {
        tokio::select! {
            () = watch.gone() => {}
            () = signals.received() => {}
        }
        client_gone.cancel();
        std::future::pending::<()>().await;
    };
    let end = tokio::select! {
        end = bridge => end,
        () = watched => unreachable!("it waits for ever once the client is gone"),
    };
    match end {
        BridgeEnd::Alone {
            reason,
            pending,
            stdin,
            stdout,
        } => {
            let stdin = std::io::Cursor::new(pending).chain(stdin);
            tokio::select! {
                ended = serve_alone(context, seat, &reason, stdin, stdout) => ended,
                () = signals.received() => Ok(ExitCode::SUCCESS),
            }
        }
        BridgeEnd::ClientGone | BridgeEnd::OutputClosed => Ok(ExitCode::SUCCESS),
    }
}

/// The signals by which a client ends its server: a bridge says goodbye before it obeys, or its row
/// would stand on the board as if the client were still there.
struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl EndSignals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

fn random() -> Result<[u8; 16], CliError> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| {
        let remedy = "Check the system's random source.".to_owned();
        CliError::new(Exit::Failed, Code::Internal, error.to_string(), remedy)
    })?;
    Ok(random)
}

fn options(
    context: &Context,
    station: &Station,
    seat: [u8; 16],
    client_gone: CancellationToken,
) -> BridgeOptions {
    let environment = &context.environment;
    let pid = system::parent_pid();
    BridgeOptions {
        seat: Seat::new(seat),
        caller_root: station.checkout.root.clone(),
        session: session_id("EARSHOT_SESSION_ID", environment.session.as_deref()),
        parent_session: session_id(
            "EARSHOT_PARENT_SESSION_ID",
            environment.parent_session.as_deref(),
        ),
        address: Address {
            machine: Some(system::host_name()),
            pid,
            pid_started_at: pid.and_then(system::process_start),
            session: environment.session.clone(),
            socket: environment.message_socket.clone(),
        },
        request_deadline: BridgeOptions::REQUEST_DEADLINE,
        client_gone,
    }
}

/// Takes a session id from the environment; one that is none is named, and the client has none.
fn session_id(variable: &str, value: Option<&str>) -> Option<SessionId> {
    let parsed = value.map(SessionId::parse)?;
    if let Err(error) = &parsed {
        say(&format!("earshot: {variable} is passed over: {error}"));
    }
    parsed.ok()
}

/// Finds the node for a bridge, starting one when the bridge's client asks for something.
struct NodeFinder {
    context: Context,
}

impl Finder for NodeFinder {
    async fn find(&self, want: Want) -> Result<Found, FindError> {
        // Looked up anew each time: the folder may have become another checkout, or none.
        let station = self
            .context
            .station()
            .map_err(|error| FindError::Transient(sentences(&error)))?;
        let defaults = self.context.ensure_defaults();
        let ensure = Ensure {
            not_before: want.not_before,
            may_start: want.may_start,
            ..defaults.map_err(|error| FindError::Alone(sentences(&error)))?
        };
        let ensured = blocking(move || station.ensure(&ensure)).await;
        match ensured {
            Ok(Ok(lease)) => Ok(found(lease)),
            Ok(Err(error)) => Err(find_error(error)),
            Err(error) => Err(FindError::Transient(error.failure.message)),
        }
    }
}

fn found(lease: LeaseDocument) -> Found {
    Found {
        socket: lease.socket.into(),
        epoch: lease.epoch.number(),
        url: lease.url.unwrap_or_default(),
    }
}

fn find_error(error: EnsureError) -> FindError {
    match error {
        EnsureError::Lease(ref cause) if is_lasting(cause) => {
            FindError::Alone(sentences(&error.into()))
        }
        // Nothing that passes while the client lives.
        EnsureError::Place(_)
        | EnsureError::Spawn(_)
        | EnsureError::Elsewhere
        | EnsureError::Ended { .. }
        | EnsureError::Lock(LockError::NoLocks { .. } | LockError::Open { .. }) => {
            FindError::Alone(sentences(&error.into()))
        }
        EnsureError::Lock(LockError::Held { .. })
        | EnsureError::Lease(_)
        | EnsureError::NotReady { .. }
        | EnsureError::Absent => FindError::Transient(with_causes(&error)),
    }
}

/// Says whether a lease that cannot be read stays so: a want of descriptors or memory passes.
fn is_lasting(error: &std::io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(number, Some(Errno::ACCESS | Errno::PERM | Errno::LOOP))
}

/// Writes what went wrong, and what to do about it.
fn sentences(error: &CliError) -> String {
    format!("{}. {}", error.failure.message, error.failure.remedy)
}

/// Serves this client in this process, for this process's life.
async fn serve_alone(
    context: &Context,
    seat: [u8; 16],
    reason: &str,
    stdin: impl AsyncRead + Send + Unpin + 'static,
    stdout: impl AsyncWrite + Send + Unpin,
) -> Result<ExitCode, CliError> {
    say(&format!("earshot serves this client alone: {reason}"));
    let Alone {
        node,
        dispatcher,
        stop,
    } = Alone::start(context, reason)?;
    let mut caller = Caller::anonymous(Origin::Socket, Surface::Mcp);
    caller.seat = Some(Seat::new(seat));
    let host: Arc<dyn McpHost> = Host::new(node, None, dispatcher);
    serve_stdio(host, Arc::new(caller), stdin, stdout, stop)
        .await
        .ok(); // the client is gone
    Ok(ExitCode::SUCCESS)
}
