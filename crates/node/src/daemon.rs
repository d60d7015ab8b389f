//! The node as a process: from taking the lease to its ordered end.

use std::{path::Path, process::ExitCode, sync::Arc, time::Duration};

use axum::body::Body;
use earshot_capability::{Code, Dispatcher};
use earshot_checkout::{CheckoutKind, Head, head, ignore_case};
use earshot_mcp::{HttpSettings, http_service};
use earshot_proto::{
    claims::Case,
    lease::{LeaseToken, Standing, standing},
};
use earshot_trust::LoopbackPolicy;
use http::{Request, Response};
use tokio::{
    net::{TcpListener, UnixListener},
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::{ServiceExt, util::BoxCloneSyncService};

use crate::{
    build,
    capabilities::{self, Serving},
    cli::{CliError, Exit, blocking, with_causes},
    config::{Loopback, MachineConfig, Places},
    core::{About, NodeHandle},
    executable::Executable,
    host::Host,
    http::{AccessSettings, Identity, Limits, MachineKey, Site, Surfaces, serve_tcp, serve_unix},
    lease::{Acquired, Plan, Tenure, remove_dead_sockets},
    net::{bind_tcp, bind_unix, desired_host},
    station::Station,
    system,
};

/// Longest ordered stop: afterwards the process ends as it is.
const STOP_MAX: Duration = Duration::from_secs(8);

/// How to serve.
#[derive(Debug, Clone)]
pub(crate) struct Serve {
    /// The checkout.
    pub(crate) station: Station,
    /// Where configuration and state live.
    pub(crate) places: Places,
    /// The machine's configuration.
    pub(crate) config: MachineConfig,
    /// The address that a person named.
    pub(crate) host: Option<String>,
    /// The port that a person named.
    pub(crate) port: Option<u16>,
    /// How long to go on without use; `None` for ever.
    pub(crate) idle: Option<Duration>,
}

/// Serves a checkout until told to stop.
///
/// # Errors
/// Why it cannot be served. No lease is left behind then.
pub(crate) async fn serve(serve: Serve) -> Result<ExitCode, CliError> {
    let checkout_id = serve.station.checkout.id();
    let desired = desired_host(serve.host.as_deref(), &serve.config);
    let host = desired.as_ref().map(|(host, _)| host.as_str());
    let tcp = bind_tcp(host, serve.port, &checkout_id)
        .await
        .map_err(|error| {
            let remedy = "Name an address of this machine and a free port, or none.".to_owned();
            CliError::new(Exit::Failed, Code::Unavailable, error.to_string(), remedy)
        })?;
    if let Some((host, by)) = &desired
        && !host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
    {
        tracing::warn!(%host, chosen_by = by, "every host that reaches this address can read the board");
    }
    let Some(tenure) = take_lease(&serve).await? else {
        return Ok(ExitCode::SUCCESS);
    };
    let ended = Box::pin(run(&serve, tenure, tcp)).await;
    if let Err(error) = &ended {
        tracing::error!(error = %error.failure, "the node ends");
    }
    ended.map(|()| ExitCode::SUCCESS)
}

/// Takes the lease, or says who holds it and leaves them alone.
async fn take_lease(serve: &Serve) -> Result<Option<Tenure>, CliError> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| {
        let remedy = "Check the system's random source.".to_owned();
        CliError::new(Exit::Failed, Code::Internal, error.to_string(), remedy)
    })?;
    let plan = Plan {
        folder: serve.station.folder.clone(),
        here: serve.station.here.clone(),
        exe: system::executable()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        build: build::commit().unwrap_or_default(),
        token: LeaseToken::from_random(random),
    };
    match blocking(move || Tenure::acquire(&plan)).await?? {
        Acquired::Mine(tenure) => Ok(Some(*tenure)),
        Acquired::Theirs(verdict, seen) => {
            let standing: Standing = standing(verdict, &seen);
            let pid = seen
                .lease
                .as_ref()
                .and_then(earshot_proto::lease::Parsed::document)
                .map(|lease| lease.process.pid);
            tracing::info!(
                standing = standing.as_str(),
                ?pid,
                "another node holds this checkout"
            );
            Ok(None)
        }
    }
}

/// Runs the node of a lease that this process holds, and ends the tenure.
async fn run(serve: &Serve, tenure: Tenure, tcp: TcpListener) -> Result<(), CliError> {
    let started = start(serve, &tenure, &tcp);
    let (node, unix) = match started {
        Ok(started) => started,
        Err(error) => {
            end(tenure).await;
            return Err(error);
        }
    };
    let mut tenure = tenure;
    let url = node.about.url.clone();
    let published = blocking(move || (tenure.publish(url), tenure)).await?;
    let tenure = match published {
        (Ok(true), tenure) => tenure,
        (Ok(false), tenure) => {
            tracing::info!("another node took this checkout over before this one served");
            end(tenure).await;
            return Ok(());
        }
        (Err(error), tenure) => {
            end(tenure).await;
            return Err(error.into());
        }
    };
    tracing::info!(url = node.about.url.as_deref(), epoch = %tenure.lease().epoch, "serving");
    node.until_stopped(serve, tenure, tcp, unix).await
}

/// A node that is about to serve, or serves.
struct Running {
    handle: NodeHandle,
    about: About,
    dispatcher: Arc<Dispatcher>,
    identity: watch::Sender<Identity>,
    stop: CancellationToken,
    executable: Executable,
}

fn start(
    serve: &Serve,
    tenure: &Tenure,
    tcp: &TcpListener,
) -> Result<(Running, UnixListener), CliError> {
    let fault = |error: std::io::Error| {
        let remedy = "Look at the cause and try again.".to_owned();
        CliError::new(Exit::Failed, Code::Unavailable, with_causes(&error), remedy)
    };
    let lease = tenure.lease();
    remove_dead_sockets(serve.station.folder.path(), lease);
    let unix = bind_unix(Path::new(&lease.socket)).map_err(fault)?;
    let url = format!("http://{}", tcp.local_addr().map_err(fault)?);
    let checkout = &serve.station.checkout;
    let about = About {
        checkout: checkout.clone(),
        url: Some(url),
        machine: system::host_name(),
        idle: serve.idle,
        checkout_id: checkout.id().to_string(),
    };
    let head = head(checkout);
    let case = if ignore_case(checkout) {
        Case::Folded
    } else {
        Case::Kept
    };
    let handle = NodeHandle::start(about.clone(), case, head.branch.as_deref()).map_err(fault)?;
    let stop = CancellationToken::new();
    let serving = Serving {
        lease_path: Some(
            serve
                .station
                .folder
                .lease_file()
                .to_string_lossy()
                .into_owned(),
        ),
        lease_epoch: Some(lease.epoch.number()),
        desired_host: desired_host(serve.host.as_deref(), &serve.config)
            .map_or_else(|| "127.0.0.1".to_owned(), |(host, _)| host),
        stop: stop.clone(),
    };
    let boot = format!("{:x}", lease.epoch.number());
    let dispatcher = capabilities::dispatcher(&handle, serving, boot);
    let executable = Executable::of_this_process();
    let (identity, _) = watch::channel(identity(&about, head, None, true));
    Ok((
        Running {
            handle,
            about,
            dispatcher,
            identity,
            stop,
            executable,
        },
        unix,
    ))
}

impl Running {
    /// Serves until a signal, `serve stop`, a lost lease or an idle time says to stop.
    async fn until_stopped(
        self,
        serve: &Serve,
        tenure: Tenure,
        tcp: TcpListener,
        unix: UnixListener,
    ) -> Result<(), CliError> {
        let (tracker, stop) = (TaskTracker::new(), self.stop.clone());
        let host = Host::new(self.handle.clone(), Arc::clone(&self.dispatcher));
        let mcp_host: Arc<dyn earshot_mcp::McpHost> = Arc::<Host>::clone(&host);
        let mcp = http_service(mcp_host, HttpSettings::new(tracker.clone(), stop.clone()));
        let port = tcp.local_addr().map_or(0, |address| address.port());
        let site = Site::new(Surfaces {
            dispatcher: Arc::clone(&self.dispatcher),
            mcp: boxed(mcp),
            identity: self.identity.subscribe(),
            access: access(serve, port)?,
            limits: Limits::default(),
            owner: host,
        });
        tracker.spawn(serve_tcp(
            tcp,
            Arc::clone(&site),
            stop.clone(),
            tracker.clone(),
        ));
        tracker.spawn(serve_unix(unix, site, stop.clone(), tracker.clone()));
        let tenure = self.watch_over(serve, tenure).await?;
        stop.cancel();
        tracker.close();
        let hurried = second_signal();
        tokio::select! {
            () = tracker.wait() => {}
            () = tokio::time::sleep(STOP_MAX) => tracing::warn!("the stop took too long"),
            () = hurried => tracing::warn!("a second signal ended the stop"),
        }
        end(tenure).await;
        tracing::info!("ended");
        Ok(())
    }

    /// Beats, and watches for reasons to stop. Returns when there is one.
    async fn watch_over(&self, serve: &Serve, tenure: Tenure) -> Result<Tenure, CliError> {
        let fault = |error: std::io::Error| {
            let remedy = "Try again.".to_owned();
            CliError::new(Exit::Failed, Code::Internal, error.to_string(), remedy)
        };
        let mut terminate = signal(SignalKind::terminate()).map_err(fault)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(fault)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(fault)?;
        let mut heartbeat = tokio::time::interval(tenure.lease().timings.heartbeat());
        heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut tenure = tenure;
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(tenure),
                _ = terminate.recv() => return Ok(tenure),
                _ = interrupt.recv() => return Ok(tenure),
                _ = hangup.recv() => return Ok(tenure),
                _ = heartbeat.tick() => {
                    let (beaten, back) = blocking(move || (tenure.beat(), tenure)).await?;
                    tenure = back;
                    if let Err(why) = beaten {
                        tracing::warn!(why, "this node is no longer the one of its checkout");
                        self.identity.send_modify(|identity| identity.leaseholder = false);
                        return Ok(tenure);
                    }
                    if self.look_around(serve).await? {
                        return Ok(tenure);
                    }
                }
            }
        }
    }

    /// Does what is due at every heartbeat; says whether the node has been idle for too long.
    async fn look_around(&self, serve: &Serve) -> Result<bool, CliError> {
        let checkout = serve.station.checkout.clone();
        let executable = self.executable.clone();
        let (head, stale) = blocking(move || (head(&checkout), executable.stale())).await?;
        self.handle.tick(head.branch.clone()).await?;
        self.identity.send_if_modified(|identity| {
            let changed = identity.branch != head.branch
                || identity.head != head.commit
                || identity.stale != stale;
            if changed {
                identity.branch = head.branch;
                identity.head = head.commit;
                identity.stale = stale;
            }
            changed
        });
        let (Some(bound), Some(idle)) = (serve.idle, self.handle.idle_for().await?) else {
            return Ok(false);
        };
        if idle < bound {
            return Ok(false);
        }
        let (idle, bound) = (idle.as_secs(), bound.as_secs());
        tracing::info!(
            "idle for {idle} s (bound {bound} s): no peer attached, no request; stopping"
        );
        Ok(true)
    }
}

/// Fits the `/mcp` endpoint into the surface.
fn boxed(mcp: earshot_mcp::McpService) -> crate::http::McpService {
    let answered =
        ServiceExt::<Request<Body>>::map_response(mcp, |answer: Response<_>| answer.map(Body::new));
    BoxCloneSyncService::new(answered)
}

fn identity(about: &About, head: Head, stale: Option<String>, leaseholder: bool) -> Identity {
    Identity {
        version: build::VERSION,
        commit: env!("EARSHOT_BUILD_COMMIT"),
        dirty: build::dirty(),
        stale,
        checkout_id: about.checkout_id.clone(),
        repository_id: about
            .checkout
            .common_dir
            .as_ref()
            .map(|_| about.checkout.repository_id().to_string()),
        branch: head.branch,
        head: head.commit,
        linked_worktree: about.checkout.kind == CheckoutKind::LinkedWorktree,
        leaseholder,
    }
}

fn access(serve: &Serve, port: u16) -> Result<AccessSettings, CliError> {
    let http = &serve.config.http;
    let default = if cfg!(target_os = "linux") {
        Loopback::SameUser
    } else {
        Loopback::Open
    };
    let policy = match http.loopback.unwrap_or(default) {
        Loopback::SameUser => LoopbackPolicy::SameUser,
        Loopback::Open => LoopbackPolicy::Open,
        Loopback::Key => LoopbackPolicy::Key,
    };
    let key = match policy {
        LoopbackPolicy::Key => Some(MachineKey::new(&read_or_make_key(&serve.places)?)),
        LoopbackPolicy::SameUser | LoopbackPolicy::Open => None,
    };
    let mut foreign_hosts: Vec<String> = http
        .names
        .iter()
        .map(|name| name.to_ascii_lowercase())
        .collect();
    foreign_hosts.extend(desired_host(serve.host.as_deref(), &serve.config).map(|(host, _)| host));
    Ok(AccessSettings {
        own_uid: rustix::process::getuid().as_raw(),
        own_port: port,
        foreign_hosts,
        policy,
        key,
    })
}

/// Reads the key that writes must show; makes one, 0600, where there is none.
fn read_or_make_key(places: &Places) -> Result<String, CliError> {
    crate::config::read_or_make_key(&places.http_key_file()).map_err(|error| {
        let remedy = "Make http.key in the configuration folder yours, with mode 0600.".to_owned();
        CliError::new(
            Exit::Refused,
            Code::Unavailable,
            with_causes(&error),
            remedy,
        )
    })
}

async fn end(tenure: Tenure) {
    if blocking(move || tenure.end()).await.is_err() {
        tracing::error!("the lease could not be given up; its free lock says it");
    }
}

/// Waits for a further SIGTERM or SIGINT: whoever sends one does not want to wait.
async fn second_signal() {
    let (Ok(mut terminate), Ok(mut interrupt)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
