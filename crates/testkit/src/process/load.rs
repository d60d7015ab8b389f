//! Many clients at once, each announcing something new again and again.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use serde_json::json;

use super::{StdioClient, World, eventually};

/// How long one call may take: what common clients wait for.
const CALL: Duration = Duration::from_mins(1);

/// Clients that come and go side by side.
const AT_A_TIME: usize = 4;

/// Clients in loops; two and two of them claim the same folder.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    calls: Arc<AtomicU64>,
    thread: JoinHandle<Worked>,
}

/// What a client of a load did.
#[derive(Debug)]
pub struct Worked {
    /// The client, still attached.
    pub client: StdioClient,
    /// What it announced last and was told to be announced.
    pub last: String,
    /// The calls that were answered.
    pub calls: u64,
    /// What was answered instead of success.
    pub failures: Vec<String>,
}

impl Load {
    /// Attaches so many clients at once, and sets them to work.
    ///
    /// # Panics
    /// When one cannot be attached.
    pub fn start(world: &World, folder: &Path, count: usize) -> Self {
        let clients = attach(world, folder, count);
        let stop = Arc::new(AtomicBool::new(false));
        let workers = clients
            .into_iter()
            .enumerate()
            .map(|(number, client)| {
                let (calls, stop) = (Arc::new(AtomicU64::new(0)), Arc::clone(&stop));
                let counted = Arc::clone(&calls);
                let thread = std::thread::spawn(move || work(client, number, &counted, &stop));
                Worker { calls, thread }
            })
            .collect();
        Self { stop, workers }
    }

    /// Waits until every client was answered so many times more.
    ///
    /// # Panics
    /// When one was not within this time.
    #[track_caller]
    pub fn each_goes_on(&self, more: u64, within: Duration) {
        let calls = || {
            self.workers
                .iter()
                .map(|worker| worker.calls.load(Ordering::Acquire))
        };
        let wanted: Vec<u64> = calls().map(|calls| calls + more).collect();
        eventually("every client is answered again", within, || {
            calls()
                .zip(&wanted)
                .all(|(calls, wanted)| calls >= *wanted)
                .then_some(())
        });
    }

    /// Stops the clients after the call that each is at, and returns what they did.
    ///
    /// # Panics
    /// When a client's thread did.
    pub fn finish(self) -> Vec<Worked> {
        self.stop.store(true, Ordering::Release);
        self.workers
            .into_iter()
            .map(|worker| worker.thread.join().expect("a worker ends"))
            .collect()
    }
}

/// Has clients come and go, so many in all and a few at a time, every other one announcing something.
///
/// # Panics
/// When one is not served, or its bridge does not end in order.
pub fn come_and_go(world: &World, folder: &Path, count: usize) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::AcqRel);
                    if number >= count {
                        return;
                    }
                    let mut client = StdioClient::start(world, folder, &format!("c{number}"));
                    if number.is_multiple_of(2) {
                        let arguments = json!({ "intent": "passing", "paths": ["src"] });
                        client.data("peers_announce", arguments);
                    }
                    let (status, rest) = client.close();
                    assert!(status.success() && rest.is_empty(), "{status} {rest:?}");
                }
            });
        }
    });
}

/// Attaches so many clients at once.
fn attach(world: &World, folder: &Path, count: usize) -> Vec<StdioClient> {
    std::thread::scope(|scope| {
        let starts: Vec<_> = (0..count)
            .map(|n| scope.spawn(move || StdioClient::start(world, folder, &format!("c{n}"))))
            .collect();
        starts
            .into_iter()
            .map(|start| start.join().expect("a client attaches"))
            .collect()
    })
}

fn work(mut client: StdioClient, number: usize, calls: &AtomicU64, stop: &AtomicBool) -> Worked {
    let (mut last, mut failures) = (String::new(), Vec::new());
    let path = format!("dir{}", number / 2);
    for turn in 1.. {
        let intent = format!("{number}-{turn}");
        let arguments = json!({ "intent": intent, "paths": [path] });
        match client.try_call("peers_announce", &arguments, CALL) {
            Ok(_) => last = intent,
            Err(why) => failures.push(why),
        }
        calls.fetch_add(1, Ordering::AcqRel);
        if stop.load(Ordering::Acquire) || failures.len() > 3 {
            break;
        }
    }
    Worked {
        client,
        last,
        calls: calls.load(Ordering::Acquire),
        failures,
    }
}
