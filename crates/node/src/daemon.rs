//! The node as a process: from standing for election to its ordered end.

use std::{
    os::unix::fs::MetadataExt as _,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use earshot_capability::{Code, Dispatcher};
use earshot_checkout::{Checkout, CheckoutKind, Head, head, ignore_case};
use earshot_mcp::{HttpSettings, http_service};
use earshot_proto::{
    claims::Case,
    lease::{End, Epoch, Timings, Verdict},
    text::Line,
};
use earshot_store::Journal;
use earshot_trust::LoopbackPolicy;
use http::{Request, Response};
use tokio::{
    net::{TcpListener, UnixListener, UnixStream},
    signal::unix::{SignalKind, signal},
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::{ServiceExt, util::BoxCloneSyncService};

use crate::{
    build,
    capabilities::{self, Serving},
    cli::{CliError, Exit, blocking, with_causes},
    config::{Loopback, MachineConfig, NodeFolder, Places},
    core::{About, NodeHandle},
    executable::Executable,
    host::Host,
    http::{AccessSettings, Identity, Limits, MachineKey, Site, Surfaces, serve_tcp, serve_unix},
    lease::{Gate, Keeper, KeeperError, Kept, Order, writer_of},
    links::Links,
    net::{Doorway, desired_host},
    station::Station,
    system,
};

/// Siblings' connections that wait to be greeted.
const LINKS_WAITING: usize = 64;

/// Heartbeats in a row without the checkout after which its node ends: a folder may be swapped, or
/// its disk be away for a moment.
const MISSED_MAX: u32 = 3;

/// Longest ordered stop: afterwards the process ends as it is.
const STOP_MAX: Duration = Duration::from_secs(8);

/// Of which running calls may take this long: the rest is for the journal and the lease.
const DRAIN_MAX: Duration = Duration::from_secs(7);

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
/// Why it cannot be served.
pub(crate) async fn serve(serve: Serve) -> Result<ExitCode, CliError> {
    let checkout_id = serve.station.checkout.id();
    let desired = desired_host(serve.host.as_deref(), &serve.config);
    let host = desired.as_ref().map(|(host, _)| host.as_str());
    // Before anything else: an address that cannot be bound leaves no lease.
    let doorway = Doorway::prepare(host, serve.port, &checkout_id).map_err(|error| {
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
    let mut node = Node::start(&serve, doorway)?;
    let end = node.run(&serve).await?;
    ended(&end, &serve.station.folder)
}

/// Says how the tenure ended; only what a person must see to is an error.
fn ended(end: &End, folder: &NodeFolder) -> Result<ExitCode, CliError> {
    let fail = |exit, why: String, remedy: &str| {
        Err(CliError::new(
            exit,
            Code::Unavailable,
            why,
            remedy.to_owned(),
        ))
    };
    match end {
        End::Stopped => tracing::info!("ended"),
        End::Superseded => tracing::info!("another node has taken this checkout over; ended"),
        End::Attach(Verdict::Elsewhere) => {
            let why = "the node of this checkout runs in another container or namespace".to_owned();
            return fail(
                Exit::Refused,
                why,
                "Stop it there, with `earshot serve stop`.",
            );
        }
        End::Attach(_) => tracing::info!("another node holds this checkout"),
        End::LockHeld { holder } => {
            let who = holder.map_or_else(
                || "another process".to_owned(),
                |pid| format!("process {pid}"),
            );
            let why = format!("lease.lock is held by {who}, which does not let go");
            return fail(
                Exit::NotReady,
                why,
                "End that process, or continue it if it is stopped.",
            );
        }
        End::DatabaseBusy => {
            let journal = Journal::current(&folder.journal_file()).ok();
            let who = journal.as_deref().and_then(writer_of).map_or_else(
                || "another process".to_owned(),
                |pid| format!("process {pid}"),
            );
            let journal = journal.unwrap_or_else(|| folder.journal_file());
            let why = format!(
                "{} is locked by {who}, which does not let go",
                journal.display()
            );
            return fail(
                Exit::NotReady,
                why,
                "End that process, or continue it if it is stopped.",
            );
        }
        End::Exhausted(error) => {
            return fail(
                Exit::Failed,
                error.to_string(),
                "Move the state folder away.",
            );
        }
        End::Failed { why } => {
            return fail(
                Exit::Failed,
                why.clone(),
                "Remove the cause, then try again.",
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A running node, and what it is made of.
struct Node {
    handle: NodeHandle,
    gate: Arc<Gate>,
    orders: mpsc::Receiver<Order>,
    end: oneshot::Receiver<End>,
    identity: watch::Sender<Identity>,
    executable: Executable,
    /// Cancelled to end the node in order.
    stop: CancellationToken,
    /// Cancelled when nothing more is accepted.
    closing: CancellationToken,
    tracker: TaskTracker,
    site: Arc<Site>,
    /// The TCP port that is served, for the access rules.
    port: Arc<AtomicU16>,
    loops: Vec<JoinHandle<()>>,
    /// Heartbeats in a row at which the checkout was not there.
    missed: u32,
    /// Tells the links of each epoch from which this node serves.
    epochs: mpsc::Sender<u64>,
}

impl Node {
    fn start(serve: &Serve, doorway: Doorway) -> Result<Self, CliError> {
        let fault = |error: std::io::Error| {
            let remedy = "Look at the cause and try again.".to_owned();
            CliError::new(Exit::Failed, Code::Unavailable, with_causes(&error), remedy)
        };
        let checkout = &serve.station.checkout;
        let about = About {
            checkout: checkout.clone(),
            url: Arc::default(),
            machine: system::host_name(),
            idle: serve.idle,
            checkout_id: checkout.id().to_string(),
            alone: None,
        };
        let head = clean_head(checkout);
        let case = if ignore_case(checkout) {
            Case::Folded
        } else {
            Case::Kept
        };
        let handle =
            NodeHandle::start(about.clone(), case, head.branch.as_deref()).map_err(fault)?;
        let station = &serve.station;
        let (folder, here) = (station.folder.clone(), station.here.clone());
        let Kept { gate, orders, end } = Keeper::start(folder, here, handle.clone(), doorway)?;
        let stop = CancellationToken::new();
        let serving = Serving {
            repository_key: station.repository_key.clone(),
            lease_path: Some(station.folder.lease_file().to_string_lossy().into_owned()),
            gate: Some(Arc::clone(&gate)),
            desired_host: desired_host(serve.host.as_deref(), &serve.config)
                .map_or_else(|| "127.0.0.1".to_owned(), |(host, _)| host),
            stop: stop.clone(),
        };
        let boot = format!("{:x}", crate::clock::wall().unix_ms());
        let dispatcher = capabilities::dispatcher(&handle, serving, boot);
        let (tracker, closing) = (TaskTracker::new(), CancellationToken::new());
        let port = Arc::new(AtomicU16::new(0));
        let (identity, watched) = watch::channel(identity(&about, head));
        let host = Host::new(
            handle.clone(),
            Some(Arc::clone(&gate)),
            Arc::clone(&dispatcher),
        );
        handle.settle_first();
        let (epochs, links) = begin_links(serve, &handle, &tracker, &closing);
        let made = (host, dispatcher, links);
        let site = site(
            serve,
            made,
            watched,
            Arc::clone(&port),
            (&tracker, &closing),
        )?;
        Ok(Self {
            handle,
            gate,
            orders,
            end,
            identity,
            executable: Executable::of_this_process(),
            stop,
            closing,
            tracker,
            site,
            port,
            loops: Vec::new(),
            missed: 0,
            epochs,
        })
    }

    /// Serves until the tenure has ended, in order or not.
    async fn run(&mut self, serve: &Serve) -> Result<End, CliError> {
        let fault = |error: std::io::Error| {
            let remedy = "Try again.".to_owned();
            CliError::new(Exit::Failed, Code::Internal, error.to_string(), remedy)
        };
        let mut terminate = signal(SignalKind::terminate()).map_err(fault)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(fault)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(fault)?;
        let mut heartbeat = tokio::time::interval(Timings::default().heartbeat());
        heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last_call = None;
        loop {
            tokio::select! {
                biased;
                end = &mut self.end => return self.close(end),
                () = expired(last_call) => {
                    tracing::warn!("the stop took too long");
                    return Ok(End::Stopped);
                }
                Some(order) = self.orders.recv() => self.obey(order)?,
                () = self.stop.cancelled(), if last_call.is_none() => last_call = Some(self.stop_once()),
                _ = terminate.recv() => match last_call {
                    None => last_call = Some(self.stop_once()),
                    // Whoever sends a second one does not want to wait.
                    Some(_) => return Ok(End::Stopped),
                },
                _ = interrupt.recv() => match last_call {
                    None => last_call = Some(self.stop_once()),
                    Some(_) => return Ok(End::Stopped),
                },
                _ = hangup.recv(), if last_call.is_none() => last_call = Some(self.stop_once()),
                _ = heartbeat.tick() => {
                    if self.look_around(serve).await? && last_call.is_none() {
                        last_call = Some(self.stop_once());
                    }
                }
            }
        }
    }

    /// Begins the ordered stop, and returns when it has to be over.
    fn stop_once(&self) -> Instant {
        self.gate.stop();
        #[expect(
            clippy::disallowed_methods,
            reason = "a deadline of this process's own runtime"
        )]
        let now = Instant::now();
        now + STOP_MAX
    }

    fn obey(&mut self, order: Order) -> Result<(), CliError> {
        match order {
            Order::Listen(listener) => {
                let listener = UnixListener::from_std(listener).map_err(no_descriptors)?;
                let (site, tracker) = (Arc::clone(&self.site), self.tracker.clone());
                let serving = serve_unix(listener, site, self.closing.clone(), tracker);
                self.loops.push(self.tracker.spawn(serving));
            }
            Order::ListenTcp(listener) => {
                let listener = TcpListener::from_std(listener).map_err(no_descriptors)?;
                let address = listener.local_addr().map_err(no_descriptors)?;
                self.port.store(address.port(), Ordering::Relaxed);
                self.handle
                    .about()
                    .url
                    .get_or_init(|| format!("http://{address}"));
                let (site, tracker) = (Arc::clone(&self.site), self.tracker.clone());
                let serving = serve_tcp(listener, site, self.closing.clone(), tracker);
                self.loops.push(self.tracker.spawn(serving));
            }
            Order::Serve => {
                self.identity
                    .send_modify(|identity| identity.leaseholder = true);
                if let Some(epoch) = self.gate.serving() {
                    // One waits at most: a tenure that is over is of no interest.
                    self.epochs.try_send(epoch.number()).ok();
                }
            }
            Order::Drain(epoch, patience) => self.drain(epoch, patience),
        }
        Ok(())
    }

    /// Lets what runs finish, ends the journal in order, and says so.
    fn drain(&self, epoch: Epoch, patience: Duration) {
        self.identity
            .send_modify(|identity| identity.leaseholder = false);
        self.closing.cancel();
        let (tracker, gate, handle) = (
            self.tracker.clone(),
            Arc::clone(&self.gate),
            self.handle.clone(),
        );
        tracker.close();
        let patience = patience.min(DRAIN_MAX);
        let draining = async move {
            tokio::time::timeout(patience, tracker.wait()).await.ok(); // the rest is cut off
            handle.drain().await.ok(); // a node that ended has nothing open
            gate.drained(epoch);
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "it waits for the tracker, so is not in it"
        )]
        tokio::spawn(draining);
    }

    /// Ends what serves, now that the tenure is over.
    fn close(&self, end: Result<End, oneshot::error::RecvError>) -> Result<End, CliError> {
        self.identity
            .send_modify(|identity| identity.leaseholder = false);
        self.closing.cancel();
        end.map_err(|_| {
            let remedy = "Report this as a fault of earshot, with the log.".to_owned();
            let why = "the thread that keeps the lease ended".to_owned();
            CliError::new(Exit::Failed, Code::Internal, why, remedy)
        })
    }

    /// Does what is due at every heartbeat; says whether the node is to end.
    async fn look_around(&mut self, serve: &Serve) -> Result<bool, CliError> {
        if let Some(ended) = self.loops.iter().position(JoinHandle::is_finished)
            && !self.closing.is_cancelled()
        {
            let panicked = self.loops.swap_remove(ended).await.is_err();
            tracing::error!(panicked, "a listener ended; so does the node");
            return Ok(true);
        }
        if self.gate.serving().is_none() {
            return Ok(false);
        }
        let checkout = serve.station.checkout.clone();
        let executable = self.executable.clone();
        let (there, head, stale) = blocking(move || {
            let there = is_there(&checkout);
            (there, clean_head(&checkout), executable.stale())
        })
        .await?;
        self.missed = if there { 0 } else { self.missed + 1 };
        if self.missed >= MISSED_MAX {
            tracing::info!("the checkout is gone; so is its node");
            return Ok(true);
        }
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

/// Reads branch and head. A branch's name reaches terminals and pages, so it is cleaned here.
fn clean_head(checkout: &Checkout) -> Head {
    let mut head = head(checkout);
    head.branch = head
        .branch
        .map(|branch| Line::name(&branch).as_str().to_owned());
    head
}

/// Says whether the checkout's folder is still the one that this node was started for.
fn is_there(checkout: &Checkout) -> bool {
    fs_err::metadata(&checkout.root)
        .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == (checkout.device, checkout.inode))
}

#[expect(clippy::needless_pass_by_value, reason = "the form that map_err takes")]
fn no_descriptors(error: std::io::Error) -> CliError {
    let remedy = "Free some file descriptors.".to_owned();
    CliError::new(Exit::Failed, Code::Unavailable, error.to_string(), remedy)
}

/// Waits for a deadline; for ever where there is none.
async fn expired(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Starts what links this node to its siblings; returns how it is told of each epoch, and where the
/// connections of siblings go.
fn begin_links(
    serve: &Serve,
    handle: &NodeHandle,
    tracker: &TaskTracker,
    closing: &CancellationToken,
) -> (mpsc::Sender<u64>, mpsc::Sender<UnixStream>) {
    let (links, dialled) = mpsc::channel(LINKS_WAITING);
    let (epochs, begun) = mpsc::channel(1);
    let linking = Links::new(handle.clone(), serve.station.folder.clone(), &serve.places);
    tracker.spawn(linking.run(begun, dialled, closing.clone()));
    (epochs, links)
}

fn site(
    serve: &Serve,
    (host, dispatcher, links): (Arc<Host>, Arc<Dispatcher>, mpsc::Sender<UnixStream>),
    identity: watch::Receiver<Identity>,
    port: Arc<AtomicU16>,
    (tracker, closing): (&TaskTracker, &CancellationToken),
) -> Result<Arc<Site>, CliError> {
    let mcp_host: Arc<dyn earshot_mcp::McpHost> = Arc::<Host>::clone(&host);
    let mcp = http_service(
        mcp_host,
        HttpSettings::new(tracker.clone(), closing.clone()),
    );
    Ok(Site::new(Surfaces {
        dispatcher,
        mcp: boxed(mcp),
        identity,
        access: access(serve, port)?,
        limits: Limits::default(),
        owner: host,
        links,
    }))
}

/// Fits the `/mcp` endpoint into the surface.
fn boxed(mcp: earshot_mcp::McpService) -> crate::http::McpService {
    let answered =
        ServiceExt::<Request<Body>>::map_response(mcp, |answer: Response<_>| answer.map(Body::new));
    BoxCloneSyncService::new(answered)
}

fn identity(about: &About, head: Head) -> Identity {
    Identity {
        version: build::VERSION,
        commit: env!("EARSHOT_BUILD_COMMIT"),
        dirty: build::dirty(),
        stale: None,
        checkout_id: about.checkout_id.clone(),
        repository_id: about
            .checkout
            .common_dir
            .as_ref()
            .map(|_| about.checkout.repository_id().to_string()),
        branch: head.branch,
        head: head.commit,
        linked_worktree: about.checkout.kind == CheckoutKind::LinkedWorktree,
        leaseholder: false,
    }
}

fn access(serve: &Serve, port: Arc<AtomicU16>) -> Result<AccessSettings, CliError> {
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

impl From<KeeperError> for CliError {
    fn from(error: KeeperError) -> Self {
        match error {
            KeeperError::Place(error) => error.into(),
            KeeperError::Thread(_) => Self::new(
                Exit::Failed,
                Code::Unavailable,
                with_causes(&error),
                "Free some threads, then try again.".to_owned(),
            ),
        }
    }
}
