//! What a node holds, owned by one thread; everything else asks it through a [`NodeHandle`].

mod board;
mod journal;
mod peers;
mod seats;
mod siblings;
mod tickets;
mod wire;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock, Weak, atomic::AtomicU64},
    thread,
    time::Duration,
};

use earshot_capability::{Caller, Code, Failure};
use earshot_checkout::Checkout;
use earshot_proto::{
    Now, Timestamp,
    board::{Board, Changes, PeerKey, StreamId},
    claims::Case,
    text::Line,
};
use earshot_store::{SeatHash, WireSessionRecord};
use earshot_trust::SessionId;
use tokio::sync::{mpsc, oneshot, watch};

pub(crate) use board::{Announcing, Listing, Met, Place, Side};
pub(crate) use journal::{Fenced, Locked, Repetition};
use journal::{Keeping, Lost};
pub(crate) use peers::{Greeting, WhoCalls};
use siblings::Neighbours;
pub(crate) use siblings::{
    Beginning, Out, Scope, SiblingMeeting, SiblingMeetings, SiblingRow, hex,
};
use tickets::Tickets;

use crate::{
    clock,
    lease::{Gate, moved},
};

/// Most steps that wait for the node's thread. Each takes microseconds, and what is told rather than
/// asked must find room even when every peer of a full board opens a stream at once.
const QUEUE: usize = 65_536;

/// How long the first answers of a node wait for its siblings: one that lives says hello within
/// milliseconds, and a client waits for its first answer.
const SETTLE_MAX: Duration = Duration::from_millis(300);

type Job = Box<dyn FnOnce(&mut State) + Send>;

/// The way to a node: cheap to clone, answers `unavailable` once the node ended.
#[derive(Clone)]
pub(crate) struct NodeHandle {
    jobs: mpsc::Sender<Job>,
    about: Arc<About>,
    streams: Arc<AtomicU64>,
    /// Whether what was executed may be answered; none for a client that is served alone.
    gate: Arc<OnceLock<Arc<Gate>>>,
    /// Whether the boards of siblings are known as far as they can be.
    settled: watch::Sender<bool>,
}

impl fmt::Debug for NodeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeHandle")
            .field("about", &self.about)
            .finish_non_exhaustive()
    }
}

/// What is fixed for a node's life.
#[derive(Debug, Clone)]
pub(crate) struct About {
    /// The checkout that it serves.
    pub(crate) checkout: Checkout,
    /// Its url, once it is served over TCP.
    pub(crate) url: Arc<OnceLock<String>>,
    /// The name of this machine, as its own peers see it.
    pub(crate) machine: String,
    /// How long it goes on without use; `None` for ever.
    pub(crate) idle: Option<Duration>,
    /// The id of the checkout, as it is shown.
    pub(crate) checkout_id: String,
    /// Why a client is served alone, with what to do about it; `None` for a node.
    pub(crate) alone: Option<String>,
}

/// What a node holds. Only its thread touches it.
pub(crate) struct State {
    board: Board,
    case: Case,
    checkout_id: String,
    keeping: Keeping,
    /// The wire sessions of clients that speak HTTP, by id.
    wire: BTreeMap<String, WireSessionRecord>,
    /// Those that the journal held and no client has used since, with when they were found there.
    unclaimed: BTreeMap<String, Now>,
    /// The highest number that each seat was heard with.
    seats: BTreeMap<SeatHash, u64>,
    /// The peer that each execution session speaks through, the latest where there are several.
    sessions: BTreeMap<SessionId, PeerKey>,
    /// The session of each peer that named one: the first is final.
    bound: BTreeMap<PeerKey, SessionId>,
    tickets: Tickets,
    /// Open streams, with what goes when their guard does.
    streams: BTreeMap<StreamId, (PeerKey, Weak<()>)>,
    branch: Option<Line>,
    last_use: Now,
    /// What changed by itself and could not be written yet.
    unwritten: Changes,
    /// Siblings, while this node holds the lease of its checkout and has keys.
    neighbours: Option<Neighbours>,
    settled: watch::Sender<bool>,
}

impl NodeHandle {
    /// Starts the thread of a node, which writes nothing until its journal is open. It ends when the
    /// last handle is dropped.
    ///
    /// # Errors
    /// When the system refuses a thread or random bytes.
    pub(crate) fn start(about: About, case: Case, branch: Option<&str>) -> std::io::Result<Self> {
        Self::spawn(about, case, branch, Keeping::Stopped)
    }

    /// Starts the thread of a node that keeps nothing: for a client that is served alone.
    ///
    /// # Errors
    /// When the system refuses a thread or random bytes.
    pub(crate) fn start_alone(about: About, branch: Option<&str>) -> std::io::Result<Self> {
        Self::spawn(about, Case::Kept, branch, Keeping::Nowhere)
    }

    fn spawn(
        about: About,
        case: Case,
        branch: Option<&str>,
        keeping: Keeping,
    ) -> std::io::Result<Self> {
        let (jobs, mut inbox) = mpsc::channel::<Job>(QUEUE);
        let settled = watch::Sender::new(true);
        let mut state = State {
            settled: settled.clone(),
            board: Board::new(case),
            case,
            checkout_id: about.checkout_id.clone(),
            keeping,
            wire: BTreeMap::new(),
            unclaimed: BTreeMap::new(),
            seats: BTreeMap::new(),
            sessions: BTreeMap::new(),
            bound: BTreeMap::new(),
            streams: BTreeMap::new(),
            tickets: Tickets::new()?,
            branch: branch.map(Line::name),
            last_use: clock::now(),
            unwritten: Changes::default(),
            neighbours: None,
        };
        thread::Builder::new()
            .name("node".to_owned())
            .spawn(move || {
                while let Some(job) = inbox.blocking_recv() {
                    job(&mut state);
                }
            })?;
        Ok(Self {
            jobs,
            about: Arc::new(about),
            streams: Arc::default(),
            gate: Arc::default(),
            settled,
        })
    }

    /// Returns a handle to a node that has ended: for reading what its capabilities declare.
    pub(crate) fn ended(about: About) -> Self {
        let (jobs, _) = mpsc::channel(1);
        Self {
            jobs,
            about: Arc::new(about),
            streams: Arc::default(),
            gate: Arc::default(),
            settled: watch::Sender::new(true),
        }
    }

    /// Returns what is fixed for the node's life.
    pub(crate) fn about(&self) -> &About {
        &self.about
    }

    /// Runs a step on the node's thread and returns its answer.
    ///
    /// # Errors
    /// `unavailable` when the node ended.
    ///
    /// # Cancel safety
    /// A step that was queued is run even when nobody waits for its answer any more.
    pub(crate) async fn ask<R: Send + 'static>(
        &self,
        step: impl FnOnce(&mut State) -> R + Send + 'static,
    ) -> Result<R, Failure> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |state| {
            answer.send(step(state)).ok(); // nobody waits any more: the step itself was done
        });
        self.jobs.send(job).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())
    }

    /// Runs a step that may find that this node can execute nothing any more; the call is then
    /// given up, and its surface says so.
    ///
    /// # Errors
    /// `unavailable` when the node ended or gave the call up.
    async fn ask_or_abandon<R: Send + 'static>(
        &self,
        caller: &Caller,
        step: impl FnOnce(&mut State) -> Result<R, Lost> + Send + 'static,
    ) -> Result<R, Failure> {
        if let Ok(Ok(answer)) = self.ask(step).await
            && self.may_answer().await
        {
            return Ok(answer);
        }
        caller.abandoned.set();
        Err(moved())
    }

    /// Has the first answers wait for the boards of siblings.
    pub(crate) fn settle_first(&self) {
        self.settled.send_replace(false);
    }

    /// Has no answer wait any more: there will be no siblings.
    pub(crate) fn settle_alone(&self) {
        self.settled.send_replace(true);
    }

    /// Waits until the boards of siblings are known as far as they can be: whoever announces right
    /// after a start must not be told that nobody is there. It takes milliseconds, and is bounded for
    /// siblings that do not answer.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn settled(&self) {
        let mut settled = self.settled.subscribe();
        let known = settled.wait_for(|settled| *settled);
        let in_time = tokio::time::timeout(SETTLE_MAX, known).await.is_ok();
        if !in_time {
            self.settled.send_replace(true);
        }
    }

    /// Says whether what was executed may be answered, once that is known.
    async fn may_answer(&self) -> bool {
        match self.gate.get() {
            Some(gate) => gate.answer().await.is_ok(),
            None => true,
        }
    }

    /// Answers only what this gate lets out, from now on.
    pub(crate) fn answer_through(&self, gate: &Arc<Gate>) {
        self.gate.set(Arc::clone(gate)).ok(); // a node has one for life
    }

    /// Runs a step on the node's thread, blocking this one; `None` when the node ended.
    fn ask_blocking<R: Send + 'static>(
        &self,
        step: impl FnOnce(&mut State) -> R + Send + 'static,
    ) -> Option<R> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |state| {
            answer.send(step(state)).ok(); // whoever asked has ended
        });
        self.jobs.blocking_send(job).ok()?;
        answered.blocking_recv().ok()
    }

    /// Queues a step without waiting, when there is room.
    fn tell(&self, step: impl FnOnce(&mut State) + Send + 'static) {
        self.jobs.try_send(Box::new(step)).ok(); // full or ended: the next tick finds the same
    }

    /// Does what is due: lets silent peers and ended processes depart. Called every heartbeat.
    pub(crate) async fn tick(&self, branch: Option<String>) -> Result<(), Failure> {
        self.ask(move |state| state.tick(branch.as_deref())).await
    }

    /// Says how long nothing has used the node; `None` while a peer is attached.
    pub(crate) async fn idle_for(&self) -> Result<Option<Duration>, Failure> {
        self.ask(|state| {
            let busy = state.board.count() > 0;
            (!busy).then(|| clock::now().since(state.last_use))
        })
        .await
    }

    /// Returns how many peers are attached.
    pub(crate) async fn attached(&self) -> Result<usize, Failure> {
        self.ask(|state| state.board.count()).await
    }
}

fn ended() -> Failure {
    Failure::new(
        Code::Unavailable,
        "this node has ended",
        "Call again: the next node of this checkout answers.",
    )
}

/// Reads both clocks.
fn moment() -> (Now, Timestamp) {
    (clock::now(), clock::wall())
}
