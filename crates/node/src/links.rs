//! The links of a node to its siblings on this machine: who is there, who is dialled, and what goes
//! from the board to the links and back.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use earshot_mesh::{Carrier, Clocks, Report};
use earshot_proto::{
    Now,
    lease::{AliveLock, LeaseState},
    mesh::{
        link::Me,
        siblings::{Candidate, Effect, Input},
    },
    text::Line,
};
use earshot_trust::{NodeCertificate, SecretKey};
use tokio::{net::UnixStream, sync::mpsc};
use tokio_util::sync::CancellationToken;

use crate::{
    cli::blocking,
    clock,
    config::{NodeFolder, Places, read_or_make_seed},
    core::{Beginning, NodeHandle, Out},
    lease::{probe, read_lease},
};

/// Reports that wait for the node.
const REPORTS: usize = 256;

/// What waits to be done for the links: the node begins them anew when they do not keep up.
const OUT: usize = 4_096;

/// How long links may take to say goodbye when the node ends.
const GOODBYE: Duration = Duration::from_millis(500);

/// Dialled in: streams whose other end began with the name of the protocol.
pub(crate) type Dialled = mpsc::Receiver<UnixStream>;

/// What the links of a node are made of.
#[derive(Debug)]
pub(crate) struct Links {
    node: NodeHandle,
    folder: NodeFolder,
    nodes: PathBuf,
    machine_key: PathBuf,
    checkout: [u8; 16],
    repository: Option<[u8; 16]>,
    own_uid: u32,
}

/// One tenure's links.
struct Tenure {
    carrier: Carrier,
    reports: mpsc::Receiver<Report>,
    out: mpsc::Receiver<Out>,
    wake: Option<Now>,
}

impl Links {
    /// Returns what will link a node once it serves.
    pub(crate) fn new(node: NodeHandle, folder: NodeFolder, places: &Places) -> Self {
        let checkout = &node.about().checkout;
        let common = checkout.common_dir.as_ref();
        Self {
            nodes: places.host_folder().join("nodes"),
            machine_key: places.machine_key_file(),
            checkout: *checkout.id().as_bytes(),
            repository: common.map(|_| *checkout.repository_id().as_bytes()),
            own_uid: rustix::process::getuid().as_raw(),
            node,
            folder,
        }
    }

    /// Links this node to its siblings from each epoch on that is handed in, until told to close.
    pub(crate) async fn run(
        self,
        mut epochs: mpsc::Receiver<u64>,
        mut dialled: Dialled,
        closing: CancellationToken,
    ) {
        let mut tenure: Option<Tenure> = None;
        let mut current = 0;
        loop {
            tokio::select! {
                () = closing.cancelled() => break,
                epoch = epochs.recv() => match epoch {
                    Some(epoch) => {
                        current = epoch;
                        tenure = self.begin(epoch).await;
                    }
                    None => break,
                },
                Some(stream) = dialled.recv() => {
                    if let Some(tenure) = &mut tenure {
                        tenure.carrier.accept(stream);
                    }
                }
                happened = next_of(&mut tenure) => match happened {
                    Happened::Reported(report) => self.hand_in(input_of(report)).await,
                    Happened::Woke => self.hand_in(Input::Woke).await,
                    Happened::Out(out) => self.obey(&mut tenure, out).await,
                    Happened::Dropped => tenure = self.begin(current).await,
                },
            }
        }
        if let Some(mut tenure) = tenure {
            self.hand_in(Input::Leave).await;
            while let Ok(out) = tenure.out.try_recv() {
                out.effects
                    .into_iter()
                    .for_each(|it| speak(&mut tenure.carrier, it));
            }
            tenure.carrier.finish(GOODBYE).await;
        }
    }

    async fn hand_in(&self, input: Input) {
        self.node.links_input(input).await.ok(); // the node has ended, and this ends with it
    }

    /// Begins a tenure; without keys the node serves on, alone.
    async fn begin(&self, epoch: u64) -> Option<Tenure> {
        let (machine_key, node_key) = (self.machine_key.clone(), self.folder.node_key_file());
        let seeds = blocking(move || {
            let machine = read_or_make_seed(&machine_key)?;
            Ok::<_, std::io::Error>((machine, read_or_make_seed(&node_key)?))
        });
        let (machine, node) = match seeds.await {
            Ok(Ok(seeds)) => seeds,
            Ok(Err(error)) => return self.stay_alone(&error.to_string()),
            Err(error) => return self.stay_alone(&error.failure.message),
        };
        let (machine, node) = (SecretKey::from_seed(machine), SecretKey::from_seed(node));
        let key = node.public();
        let me = Me {
            certificate: NodeCertificate::issue(&machine, key, self.checkout, epoch),
            machine,
            node,
            release: Line::name(crate::build::VERSION),
        };
        let clocks = Clocks {
            now: clock::now,
            wall: clock::wall,
        };
        let (reported, reports) = mpsc::channel(REPORTS);
        let (sender, out) = mpsc::channel(OUT);
        let beginning = Beginning {
            me: key,
            epoch,
            repository: self.repository,
            out: sender,
        };
        self.node.begin_links(beginning).await.ok()?;
        let tenure = Tenure {
            carrier: Carrier::new(me, clocks, self.own_uid, reported),
            reports,
            out,
            wake: None,
        };
        self.look().await;
        Some(tenure)
    }

    fn stay_alone(&self, why: &str) -> Option<Tenure> {
        tracing::error!(why, "this node is not linked to its siblings");
        self.node.settle_alone();
        None
    }

    async fn obey(&self, tenure: &mut Option<Tenure>, out: Out) {
        let Some(tenure) = tenure else { return };
        tenure.wake = out.wake;
        for effect in out.effects {
            if effect == Effect::Look {
                self.look().await;
            } else {
                speak(&mut tenure.carrier, effect);
            }
        }
    }

    /// Looks which nodes serve on this machine.
    async fn look(&self) {
        let (nodes, own) = (self.nodes.clone(), self.folder.path().to_owned());
        let found = blocking(move || candidates(&nodes, &own)).await;
        self.hand_in(Input::Candidates(found.unwrap_or_default()))
            .await;
    }
}

fn speak(carrier: &mut Carrier, effect: Effect) {
    match effect {
        Effect::Dial(candidate) => carrier.dial(candidate),
        Effect::Send(link, message) => carrier.say(link, message),
        Effect::Close(link) => carrier.close(link),
        // Looked at where there is a node to tell, or done by the node itself.
        Effect::Look | Effect::News(_) | Effect::Asked { .. } => {}
    }
}

fn input_of(report: Report) -> Input {
    match report {
        Report::Up(link, sibling, end) => Input::Up { link, sibling, end },
        Report::Got(link, message) => Input::Got { link, message },
        Report::Down(link) => Input::Down { link },
        Report::DialFailed(checkout, why) => Input::DialFailed { checkout, why },
    }
}

enum Happened {
    Reported(Report),
    Woke,
    Out(Out),
    /// The node let go of these links.
    Dropped,
}

/// Waits for what happens next in a tenure; for ever without one.
async fn next_of(tenure: &mut Option<Tenure>) -> Happened {
    let Some(tenure) = tenure else {
        return std::future::pending().await;
    };
    let wake = wait_until(tenure.wake);
    tokio::select! {
        Some(report) = tenure.reports.recv() => Happened::Reported(report),
        out = tenure.out.recv() => out.map_or(Happened::Dropped, Happened::Out),
        () = wake => {
            tenure.wake = None;
            Happened::Woke
        }
    }
}

fn wait_until(at: Option<Now>) -> impl Future<Output = ()> {
    let after = at.map(|at| at.since(clock::now()));
    async move {
        match after {
            Some(after) => tokio::time::sleep(after).await,
            None => std::future::pending().await,
        }
    }
}

/// Lists the nodes that serve: those whose lease says so and whose alive file is held.
fn candidates(nodes: &Path, own: &Path) -> Vec<Candidate> {
    let folders = fs_err::read_dir(nodes).into_iter().flatten().flatten();
    let serving = folders.filter_map(|folder| {
        let path = folder.path();
        if path == own {
            return None;
        }
        let checkout = parse_hex(folder.file_name().to_str()?)?;
        let lease = read_lease(&path.join("lease.json")).ok()??;
        let document = lease.document()?;
        let (alive, _) = probe(&path, &document.alive);
        let serves = document.state == LeaseState::Serving && alive == AliveLock::Held;
        serves.then(|| Candidate {
            checkout,
            epoch: document.epoch.number(),
            address: document.socket.clone(),
        })
    });
    serving.collect()
}

fn parse_hex(text: &str) -> Option<[u8; 16]> {
    let number = u128::from_str_radix(text, 16).ok()?;
    (text.len() == 32).then(|| number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_id_of_a_checkout_is_a_node_folder() {
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(
            parse_hex(id).map(|id| crate::core::hex(&id)).as_deref(),
            Some(id)
        );
        for other in ["", "node", "0123", "0123456789abcdef0123456789abcdex"] {
            assert_eq!(parse_hex(other), None, "{other}");
        }
    }
}
