//! Whether a request may be executed now, asked for every request before it is looked at.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use earshot_capability::{Code, Failure};
use earshot_proto::{
    Now,
    lease::{Effect, Epoch, Input, LeaseToken, Lifecycle, Permit, Phase},
};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use crate::clock;

/// Requests that wait for the node to serve: those of every client of a full board are too many,
/// and an agent that finds no room tries again.
const WAITING_MAX: usize = 1024;

/// The machine that decides, shared by the thread that drives it and the requests that ask it.
#[derive(Debug)]
pub(crate) struct Gate {
    machine: Mutex<Lifecycle>,
    changes: watch::Sender<()>,
    inputs: mpsc::SyncSender<Input>,
    waiting: Semaphore,
}

impl Gate {
    /// Makes the gate of a node. Inputs that requests cause go to the keeper.
    pub(super) fn new(machine: Lifecycle, inputs: mpsc::SyncSender<Input>) -> Arc<Self> {
        Arc::new(Self {
            machine: Mutex::new(machine),
            changes: watch::Sender::new(()),
            inputs,
            waiting: Semaphore::new(WAITING_MAX),
        })
    }

    fn machine(&self) -> MutexGuard<'_, Lifecycle> {
        // A panic while deciding ends the node; a request in that moment still reads a whole value.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands an input to the machine and tells everybody who waits.
    pub(super) fn handle(&self, input: Input) -> Vec<Effect> {
        let effects = self.machine().handle(clock::now(), input);
        self.changes.send_replace(());
        effects
    }

    /// Returns the epoch that is served now.
    pub(crate) fn serving(&self) -> Option<Epoch> {
        let phase = self.machine().phase();
        match phase {
            Phase::Serving(epoch) => Some(epoch),
            Phase::Idle
            | Phase::Electing
            | Phase::Starting(_)
            | Phase::Draining(_)
            | Phase::Ended => None,
        }
    }

    /// Returns the token that answers probes.
    pub(crate) fn token(&self) -> Option<LeaseToken> {
        self.machine().token().cloned()
    }

    /// Tells the keeper to end the tenure in order.
    pub(crate) fn stop(&self) {
        self.inputs.try_send(Input::Stop).ok(); // full: the keeper is stuck, and the stop has a bound
    }

    /// Says that what was running has finished.
    pub(crate) fn drained(&self, epoch: Epoch) {
        self.inputs.try_send(Input::Drained { epoch }).ok(); // as above
    }

    /// Waits until a request may be executed.
    ///
    /// # Errors
    /// `unavailable` when it will never be executed here: the caller finds the next node and sends
    /// it again. `busy` when too many wait.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn pass(&self) -> Result<(), Failure> {
        self.wait(Lifecycle::permit, |waiting| {
            waiting.try_acquire().map(Some).map_err(|_| too_many())
        })
        .await
    }

    /// Waits until what was executed may be answered.
    ///
    /// # Errors
    /// `unavailable` when the node lost its lease: nobody is to hear of it, and the caller sends the
    /// request again.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn answer(&self) -> Result<(), Failure> {
        // Those that are here passed before, and are bounded by that.
        self.wait(Lifecycle::may_answer, |_| Ok(None)).await
    }

    async fn wait<'a>(
        &'a self,
        permit: impl Fn(&Lifecycle, Now) -> Permit,
        find_place: impl Fn(&'a Semaphore) -> Result<Option<SemaphorePermit<'a>>, Failure>,
    ) -> Result<(), Failure> {
        let mut changes = self.changes.subscribe();
        let mut place = None;
        loop {
            changes.mark_unchanged();
            let permit = permit(&self.machine(), clock::now());
            match permit {
                Permit::Run(_) => return Ok(()),
                Permit::Moved => return Err(moved()),
                Permit::Wait => {}
                Permit::LookFirst => {
                    self.inputs.try_send(Input::LookWanted).ok(); // full: one is under way
                }
            }
            if place.is_none() {
                place = find_place(&self.waiting)?;
            }
            if changes.changed().await.is_err() {
                return Err(moved());
            }
        }
    }
}

/// The answer to a request that this node will not execute.
pub(crate) fn moved() -> Failure {
    Failure::new(
        Code::Unavailable,
        "this node is no longer, or not yet, the one of its checkout; the request was not executed",
        "Send it again to the node that the lease names; `earshot mcp` does so by itself.",
    )
}

fn too_many() -> Failure {
    Failure::new(
        Code::Busy,
        "too many requests wait for this node to serve",
        "Try again in a second.",
    )
}
