//! Who is served first: a connection that asks for more than its allowance waits with its like,
//! and holds up nobody else.
//!
//! What a caller says of itself costs nothing to invent, so it is the connection that is counted.
//! New connections have an allowance only as long as not too many of them come.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use earshot_proto::Now;
use tokio::sync::Semaphore;

use crate::clock;

/// Requests of one connection a second that are served at once: twice what a busy agent asks.
const REQUESTS_PER_SECOND: f64 = 50.0;
/// Requests that a quiet connection may ask at once.
const REQUESTS_BURST: f64 = 100.0;
/// Connections a second that come with an allowance: every agent of a large machine anew.
const ARRIVALS_PER_SECOND: f64 = 100.0;
/// Connections that may come at once with one.
const ARRIVALS_BURST: f64 = 256.0;
/// Requests beyond an allowance that are served at the same time: enough to use two cores.
const CROWDED_MAX: usize = 2;
/// How long one of them keeps others of its kind waiting: what takes longer is waiting itself, and
/// uses no core.
const CROWDED_TIME_MAX: Duration = Duration::from_millis(100);

/// A store that fills at an even pace and is taken from.
#[derive(Debug)]
struct Bucket {
    left: f64,
    seen: Now,
}

impl Bucket {
    const fn new(left: f64, now: Now) -> Self {
        Self { left, seen: now }
    }

    fn take(&mut self, now: Now, per_second: f64, most: f64) -> bool {
        let filled = now.since(self.seen).as_secs_f64() * per_second;
        self.left = (self.left + filled).min(most);
        self.seen = now;
        let enough = self.left >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }
}

/// What one connection may ask at once.
#[derive(Debug)]
pub(super) struct Allowance(Mutex<Bucket>);

impl Allowance {
    fn take(&self, now: Now) -> bool {
        // Nothing under the lock panics; a poisoned one is as good.
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.take(now, REQUESTS_PER_SECOND, REQUESTS_BURST)
    }
}

/// The lanes of one node, shared by its listeners.
#[derive(Debug)]
pub(super) struct Lanes {
    crowded: Semaphore,
    arrivals: Mutex<Bucket>,
}

impl Lanes {
    pub(super) fn new() -> Self {
        Self {
            crowded: Semaphore::new(CROWDED_MAX),
            arrivals: Mutex::new(Bucket::new(ARRIVALS_BURST, clock::now())),
        }
    }

    /// Gives a new connection its allowance.
    pub(super) fn arrive(&self) -> Allowance {
        self.arrive_at(clock::now())
    }

    fn arrive_at(&self, now: Now) -> Allowance {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let welcome = arrivals.take(now, ARRIVALS_PER_SECOND, ARRIVALS_BURST);
        let left = if welcome { REQUESTS_BURST } else { 0.0 };
        Allowance(Mutex::new(Bucket::new(left, now)))
    }

    /// Serves a request: at once within the allowance, else when it is its turn.
    ///
    /// # Cancel safety
    /// As cancel safe as the work is.
    pub(super) async fn serve<T>(&self, allowance: &Allowance, work: impl Future<Output = T>) -> T {
        if allowance.take(clock::now()) {
            return work.await;
        }
        let turn = self.crowded.acquire().await.ok(); // it is never closed
        let mut work = std::pin::pin!(work);
        if let Ok(done) = tokio::time::timeout(CROWDED_TIME_MAX, work.as_mut()).await {
            return done;
        }
        drop(turn);
        work.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now::from_start(Duration::from_millis(ms))
    }

    fn taken(allowance: &Allowance, now: Now) -> usize {
        (0..1_000).filter(|_| allowance.take(now)).count()
    }

    #[test]
    fn an_allowance_is_used_up_and_fills_again() {
        let lanes = Lanes::new();
        let allowance = lanes.arrive_at(at(0));
        for (ms, expected) in [(0, 100), (0, 0), (1_000, 50), (1_100, 5), (60_000, 100)] {
            assert_eq!(taken(&allowance, at(ms)), expected, "at {ms} ms");
        }
    }

    #[test]
    fn connections_that_come_too_fast_begin_with_nothing() {
        let lanes = Lanes::new();
        *lanes.arrivals.lock().unwrap() = Bucket::new(ARRIVALS_BURST, at(0));
        let welcome = (0..1_000).filter(|_| taken(&lanes.arrive_at(at(0)), at(0)) > 0);
        assert_eq!(welcome.count(), 256);
        let late = lanes.arrive_at(at(0));
        assert_eq!((taken(&late, at(0)), taken(&late, at(1_000))), (0, 50));
        assert_eq!(taken(&lanes.arrive_at(at(1_000)), at(1_000)), 100);
    }

    #[tokio::test]
    async fn the_crowded_wait_for_each_other_and_nobody_waits_for_them() {
        let lanes = Lanes::new();
        let (crowded, quiet) = (lanes.arrive(), lanes.arrive());
        while crowded.take(clock::now()) {}
        let begun = Semaphore::new(0);
        let never = || async {
            begun.add_permits(1);
            std::future::pending::<()>().await;
        };
        let all = async {
            tokio::join!(
                lanes.serve(&crowded, never()),
                lanes.serve(&crowded, never()),
                lanes.serve(&crowded, never())
            )
        };
        let looked = async {
            begun.acquire_many(2).await.unwrap().forget();
            assert_eq!(begun.available_permits(), 0, "the third waits");
            assert_eq!(lanes.serve(&quiet, async { 7 }).await, 7);
            // A turn that takes too long is given on.
            begun.acquire().await.unwrap().forget();
        };
        tokio::select! {
            biased;
            _ = all => unreachable!("it never ends"),
            () = looked => {}
        }
    }
}
