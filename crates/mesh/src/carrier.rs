//! Links as tasks.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use earshot_proto::mesh::link::{Effect, End, Input, Link, LinkError, Me, Sibling};
use earshot_proto::mesh::message::Message;
use earshot_proto::mesh::siblings::{Candidate, LinkNumber};
use earshot_proto::text::Line;
use earshot_proto::{Now, Timestamp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Messages that wait for a link; who does not read for so long is let go.
const SAID_MAX: usize = 256;

/// Links at once, those whose hello is still to come among them: one to each sibling, and as many
/// that are being dialled.
const LINKS_MAX: usize = 2_048;

/// How long a dial may take: a node that lives accepts within milliseconds.
const DIAL_WAIT: Duration = Duration::from_secs(3);

/// How long the other end may take to read a frame.
const WRITE_WAIT: Duration = Duration::from_secs(10);

/// Bytes read at once.
const READ_BYTES: usize = 16 * 1024;

/// The clocks that links go by.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    /// Reads the monotonic clock.
    pub now: fn() -> Now,
    /// Reads the wall clock.
    pub wall: fn() -> Timestamp,
}

/// What came of a link.
#[derive(Debug)]
pub enum Report {
    /// It is up.
    Up(LinkNumber, Box<Sibling>, End),
    /// The other end said this.
    Got(LinkNumber, Box<Message>),
    /// It was up and is closed.
    Down(LinkNumber),
    /// The node of this checkout could not be linked.
    DialFailed([u8; 16], Line),
}

/// What is asked of a link.
#[derive(Debug)]
enum Order {
    Say(Box<Message>),
    Close,
}

/// Starts links and speaks over them. Dropped, it cuts them all.
#[derive(Debug)]
pub struct Carrier {
    me: Arc<Me>,
    clocks: Clocks,
    own_uid: u32,
    reports: mpsc::Sender<Report>,
    links: BTreeMap<LinkNumber, mpsc::Sender<Order>>,
    next: u64,
    tasks: JoinSet<()>,
}

/// What one link's task works with.
struct Task {
    me: Arc<Me>,
    clocks: Clocks,
    number: LinkNumber,
    end: End,
    orders: mpsc::Receiver<Order>,
    reports: mpsc::Sender<Report>,
}

/// How a link came to its end.
enum Ended {
    /// Before it was up.
    Early(String),
    /// After.
    Down,
}

impl Carrier {
    /// Returns a carrier without links. Only processes of the user `own_uid` are linked.
    pub fn new(me: Me, clocks: Clocks, own_uid: u32, reports: mpsc::Sender<Report>) -> Self {
        Self {
            me: Arc::new(me),
            clocks,
            own_uid,
            reports,
            links: BTreeMap::new(),
            next: 0,
            tasks: JoinSet::new(),
        }
    }

    /// Takes a stream whose other end has dialled; closes it where there are too many.
    pub fn accept(&mut self, stream: UnixStream) {
        self.sweep();
        if self.tasks.len() >= LINKS_MAX {
            tracing::warn!("too many links: one that dialled is turned away");
            return;
        }
        let own_uid = self.own_uid;
        let task = self.task(End::Acceptor);
        self.tasks.spawn(async move {
            if is_own(&stream, own_uid) {
                task.run(stream).await;
            }
        });
    }

    /// Dials a node of this machine.
    pub fn dial(&mut self, candidate: Candidate) {
        let own_uid = self.own_uid;
        let task = self.task(End::Dialler);
        self.tasks.spawn(async move {
            let reports = task.reports.clone();
            let dialled = tokio::time::timeout(DIAL_WAIT, UnixStream::connect(&candidate.address));
            let ended = match dialled.await {
                Ok(Ok(stream)) if is_own(&stream, own_uid) => task.run(stream).await,
                Ok(Ok(_)) => Ended::Early("its socket is another user's".to_owned()),
                Ok(Err(error)) => Ended::Early(format!("its socket cannot be reached: {error}")),
                Err(_) => Ended::Early("its socket does not accept".to_owned()),
            };
            if let Ended::Early(why) = ended {
                let failed = Report::DialFailed(candidate.checkout, Line::name(&why));
                reports.send(failed).await.ok(); // whoever asked has ended
            }
        });
    }

    /// Says something over a link that is up; one that is not there any more hears nothing.
    ///
    /// A link whose other end has not read for long is cut, and reported as down.
    pub fn say(&mut self, link: LinkNumber, message: Box<Message>) {
        let full = self
            .links
            .get(&link)
            .is_some_and(|orders| orders.try_send(Order::Say(message)).is_err());
        if full {
            self.links.remove(&link);
        }
        self.sweep();
    }

    /// Closes a link after what was said over it.
    pub fn close(&mut self, link: LinkNumber) {
        if let Some(orders) = self.links.remove(&link) {
            orders.try_send(Order::Close).ok(); // full: the link is cut instead
        }
    }

    /// Waits until all links have said what they had to say, and cuts them after this time.
    pub async fn finish(mut self, patience: Duration) {
        self.links.clear();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        tokio::time::timeout(patience, ended).await.ok(); // the rest is cut
    }

    fn task(&mut self, end: End) -> Task {
        self.sweep();
        self.next += 1;
        let number = LinkNumber(self.next);
        let (sender, orders) = mpsc::channel(SAID_MAX);
        self.links.insert(number, sender);
        Task {
            me: Arc::clone(&self.me),
            clocks: self.clocks,
            number,
            end,
            orders,
            reports: self.reports.clone(),
        }
    }

    /// Forgets the links that have ended.
    fn sweep(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.links.retain(|_, orders| !orders.is_closed());
    }
}

/// Returns whether the process at the other end is the own user's.
fn is_own(stream: &UnixStream, own_uid: u32) -> bool {
    stream.peer_cred().is_ok_and(|other| other.uid() == own_uid)
}

impl Task {
    async fn run(mut self, mut stream: UnixStream) -> Ended {
        let mut up = false;
        let ended = self.speak(&mut stream, &mut up).await;
        let why = match ended {
            Ok(()) => "it closed the link".to_owned(),
            Err(error) => error.to_string(),
        };
        tracing::debug!(link = self.number.0, why, "a link ended");
        if up {
            let down = Report::Down(self.number);
            self.reports.send(down).await.ok(); // whoever asked has ended
            Ended::Down
        } else {
            Ended::Early(why)
        }
    }

    async fn speak(&mut self, stream: &mut UnixStream, up: &mut bool) -> io::Result<()> {
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        let (mut link, greeting) = Link::begin(
            (self.clocks.now)(),
            &self.me,
            self.end,
            self.number.0,
            nonce,
        );
        write(stream, &greeting).await?;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let deadline = link.deadline().map(|at| at.since((self.clocks.now)()));
            let effects = tokio::select! {

                read = stream.read(&mut buffer) => match read? {
                    0 => return Ok(()),
                    count => {
                        let bytes = buffer.get(..count).unwrap_or_default();
                        self.hear(&mut link, &Input::Received(bytes))
                    }
                },
                order = self.orders.recv() => match order {
                    Some(Order::Say(message)) => {
                        if let Some(bytes) = link.say(&self.me, &message) {
                            write(stream, &bytes).await?;
                        }
                        Vec::new()
                    }
                    // Cut off, or closed in order: what was said before has been written.
                    Some(Order::Close) | None => {
                        stream.shutdown().await?;
                        return Ok(());
                    }
                },
                () = late(deadline) => self.hear(&mut link, &Input::Woke),
            };
            for effect in effects {
                let report = match effect {
                    Effect::Write(bytes) => {
                        write(stream, &bytes).await?;
                        continue;
                    }
                    Effect::Up(sibling) => {
                        *up = true;
                        Report::Up(self.number, sibling, self.end)
                    }
                    Effect::Got(message) => Report::Got(self.number, message),
                    Effect::Close(error) => return Err(refused(error)),
                };
                if self.reports.send(report).await.is_err() {
                    return Ok(());
                }
            }
        }
    }

    fn hear(&self, link: &mut Link, input: &Input<'_>) -> Vec<Effect> {
        link.handle((self.clocks.now)(), &self.me, (self.clocks.wall)(), input)
    }
}

fn refused(error: LinkError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

async fn write(stream: &mut UnixStream, bytes: &[u8]) -> io::Result<()> {
    match tokio::time::timeout(WRITE_WAIT, stream.write_all(bytes)).await {
        Ok(written) => written,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the other end does not read",
        )),
    }
}

/// Waits for so long; for ever without a time.
async fn late(after: Option<Duration>) {
    match after {
        Some(after) => tokio::time::sleep(after).await,
        None => std::future::pending().await,
    }
}
