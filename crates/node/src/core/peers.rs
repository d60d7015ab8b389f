//! Callers and peers: which row a caller speaks for, and what becomes of it.

use std::sync::{Arc, atomic::Ordering};

use earshot_capability::{Address, Caller, ClientName, Code, Failure};
use earshot_proto::{
    Now, PeerId, Timestamp,
    board::{self, Arrival, Changes, Client, PeerKey, Row, StreamId, Transport},
    claims::Claim,
    text::Line,
};
use earshot_store::SeatHash;
use earshot_trust::{Origin, Surface};

use super::{NodeHandle, Scope, SiblingRow, State, hex, journal::merge, moment};
use crate::system;

/// What an arriving client is told before its first call.
#[derive(Debug)]
pub(crate) struct Greeting {
    /// Its own position, when it has one.
    pub(crate) me: Option<PeerId>,
    /// Everybody else, one line each, cleaned.
    pub(crate) others: Vec<String>,
    /// How many more there are.
    pub(crate) more: usize,
    /// Whether it is a bridge's client for which nothing is announced here.
    pub(crate) row_absent: bool,
}

/// Most others that the instructions of a client name: an agent's context is dear.
const OTHERS_NAMED: usize = 16;

/// Whom a caller speaks as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WhoCalls {
    /// A peer, attached or to be attached by this key.
    Peer(PeerKey),
    /// Nobody in particular: reads only, or announces with a ticket.
    Anonymous,
}

impl State {
    /// Finds the peer that a caller speaks as.
    pub(super) fn who(&self, caller: &Caller) -> WhoCalls {
        // A reader from elsewhere leaves no row, whatever it says of itself.
        if caller.origin == Origin::Remote {
            return WhoCalls::Anonymous;
        }
        if let Some(seat) = &caller.seat {
            return WhoCalls::Peer(PeerKey::Seat(*seat.bits()));
        }
        if let Some(id) = &caller.wire_session {
            return WhoCalls::Peer(PeerKey::WireSession(id.clone()));
        }
        if let Some(session) = &caller.session {
            // The CLI, and a client without wire sessions, speak as the attached peer of their
            // session; a client that is not attached by it is a peer of its own.
            let attached = self
                .sessions
                .get(session)
                .filter(|key| self.is_attached(key));
            let key = match (attached, caller.cli) {
                (Some(key), _) => key.clone(),
                (None, Some(cli)) => PeerKey::Cli {
                    pid: cli.pid,
                    started_at: cli.started_at,
                },
                (None, None) => PeerKey::Session(session.as_str().to_owned()),
            };
            return WhoCalls::Peer(key);
        }
        match caller.cli {
            Some(cli) => WhoCalls::Peer(PeerKey::Cli {
                pid: cli.pid,
                started_at: cli.started_at,
            }),
            None => WhoCalls::Anonymous,
        }
    }

    fn is_attached(&self, key: &PeerKey) -> bool {
        self.board.row_of(key).is_some_and(Row::attached)
    }

    /// Attaches the peer of this key, or keeps it attached, and adds what changed.
    pub(super) fn attach(
        &mut self,
        key: &PeerKey,
        caller: &Caller,
        machine: &str,
        changes: &mut Changes,
    ) -> Result<PeerId, Failure> {
        self.bind_session(key, caller)?;
        let (now, wall) = moment();
        if caller.client.is_none()
            && let Some(peer) = self.board.touch(key, now, wall)
        {
            return Ok(peer);
        }
        let arrival = Arrival {
            key: key.clone(),
            client: client_of(caller),
            transport: transport_of(key, caller),
            branch: self.branch.clone(),
            address: caller
                .address
                .as_ref()
                .map(|address| address_of(address, machine)),
        };
        let attached = self.board.attach(arrival, now, wall).map_err(|_| {
            Failure::new(
                Code::Busy,
                "this node has as many peers as it can hold",
                "Close clients that are no longer needed, then try again.",
            )
        })?;
        merge(changes, attached.changes);
        Ok(attached.answer.peer())
    }

    /// Binds a session to a seat: the first id of a seat is final.
    ///
    /// One that a call names is another session of the same seat: it neither replaces the first nor
    /// is it refused. A client with several threads has one bridge for all of them.
    fn bind_session(&mut self, key: &PeerKey, caller: &Caller) -> Result<(), Failure> {
        let Some(session) = &caller.session else {
            return Ok(());
        };
        match self.bound.get(key) {
            Some(id) if id != session && !caller.session_of_call => Err(Failure::new(
                Code::Conflict,
                "this client is bound to another session",
                "Start a new client for another session.",
            )),
            Some(_) => Ok(()),
            None => {
                self.bound.insert(key.clone(), session.clone());
                self.sessions.insert(session.clone(), key.clone());
                Ok(())
            }
        }
    }

    /// Notes that a peer was heard of, and that the node was used.
    fn heard(&mut self, caller: &Caller, now: Now, wall: Timestamp) {
        if caller.probe {
            return;
        }
        self.last_use = self.last_use.max(now);
        if let (Some(seat), Some(request)) = (&caller.seat, caller.request) {
            self.saw(SeatHash::of(&PeerKey::Seat(*seat.bits())), request.n);
        }
        if let WhoCalls::Peer(key) = self.who(caller) {
            self.board.touch(&key, now, wall);
        }
    }

    pub(super) fn tick(&mut self, branch: Option<&str>) {
        let (now, wall) = moment();
        let closed: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, (_, guard))| guard.strong_count() == 0)
            .map(|(stream, _)| *stream)
            .collect();
        for stream in closed {
            self.close(stream, now, wall);
        }
        self.expire_sessions(now);
        let mut changes = self.board.expire(now).changes;
        let gone: Vec<PeerKey> = self
            .board
            .rows()
            .filter(|row| row.attached())
            .map(Row::key)
            .filter(|key| match key {
                PeerKey::Cli { pid, started_at } => {
                    system::process_start(*pid).is_none_or(|start| start != *started_at)
                }
                PeerKey::Seat(_)
                | PeerKey::WireSession(_)
                | PeerKey::Session(_)
                | PeerKey::Ticket(_) => false,
            })
            .cloned()
            .collect();
        for key in gone {
            merge(&mut changes, self.board.detach(&key).changes);
        }
        let branch = branch.map(Line::name);
        if branch != self.branch {
            merge(&mut changes, self.board.set_branch(branch.as_ref()));
            self.branch = branch;
        }
        self.write_or_later(changes);
        self.bound.retain(|key, _| self.board.row_of(key).is_some());
        self.sessions
            .retain(|_, key| self.board.row_of(key).is_some());
    }

    fn close(&mut self, stream: StreamId, now: Now, wall: Timestamp) {
        if let Some((key, _)) = self.streams.remove(&stream) {
            self.board.stream_closed(&key, stream, now, wall);
        }
    }

    fn greeting(&self, me: Option<PeerId>) -> Greeting {
        let others: Vec<&Row> = self
            .board
            .rows()
            .filter(|row| Some(row.id) != me && (row.attached() || row.announcement().is_some()))
            .collect();
        let neighbours = self.neighbours.as_ref();
        let (all, _) = neighbours.map_or((0, 0), |it| it.count(Scope::Repository));
        let room = OTHERS_NAMED.saturating_sub(others.len());
        let elsewhere = neighbours.map_or_else(Vec::new, |it| it.rows(Scope::Repository, 0, room));
        let more = (others.len() + all).saturating_sub(OTHERS_NAMED);
        let here = others.into_iter().map(line_of);
        let others = here
            .chain(elsewhere.iter().map(line_of_sibling))
            .take(OTHERS_NAMED)
            .collect();
        let mine = me.and_then(|me| self.board.row(me));
        let row_absent = mine.is_some_and(|row| {
            matches!(row.key(), PeerKey::Seat(_)) && row.announcement().is_none()
        });
        Greeting {
            me,
            others,
            more,
            row_absent,
        }
    }
}

impl NodeHandle {
    /// Attaches an arriving client, and tells it who else is there. An anonymous caller is told the
    /// same and leaves no row.
    ///
    /// # Errors
    /// When the client is turned away, or its row cannot be kept.
    pub(crate) async fn greet(
        &self,
        caller: &Caller,
        client: Option<ClientName>,
    ) -> Result<Greeting, Failure> {
        let mut caller = caller.clone();
        caller.client = client.or(caller.client);
        let machine = self.about.machine.clone();
        self.settled().await;
        self.ask_or_abandon(&caller.clone(), move |state| {
            if let (Some(seat), Some(request)) = (&caller.seat, caller.request) {
                state.introduce(SeatHash::of(&PeerKey::Seat(*seat.bits())), request.n);
            }
            state.kept(|state| {
                let mut changes = Changes::default();
                let me = match state.who(&caller) {
                    WhoCalls::Peer(key) => state
                        .attach(&key, &caller, &machine, &mut changes)
                        .map(Some),
                    WhoCalls::Anonymous => Ok(None),
                };
                (me.map(|me| state.greeting(me)), changes)
            })
        })
        .await?
    }

    /// Notes that a caller was heard of. Probes are not use.
    pub(crate) fn touch(&self, caller: &Caller) {
        let caller = caller.clone();
        self.tell(move |state| {
            let (now, wall) = moment();
            state.heard(&caller, now, wall);
        });
    }

    /// Notes that a caller holds a stream open, until the guard is dropped.
    pub(crate) fn stream_opened(&self, caller: &Caller) -> StreamGuard {
        let caller = caller.clone();
        let stream = StreamId(self.streams.fetch_add(1, Ordering::Relaxed));
        let guard = Arc::new(());
        let held = Arc::downgrade(&guard);
        self.tell(move |state| {
            let WhoCalls::Peer(key) = state.who(&caller) else {
                return;
            };
            let (_, wall) = moment();
            // Not attached, or more streams than one client needs: the row lives by its messages.
            if state.board.stream_opened(&key, stream, wall).is_ok() {
                state.streams.insert(stream, (key, held));
            }
        });
        StreamGuard {
            node: self.clone(),
            stream,
            _held: guard,
        }
    }

    /// Lets a peer depart that says it leaves.
    ///
    /// # Errors
    /// When the node ended.
    pub(crate) async fn left(&self, caller: &Caller) -> Result<(), Failure> {
        let caller = caller.clone();
        self.ask(move |state| {
            if let WhoCalls::Peer(key) = state.who(&caller) {
                let changes = state.board.detach(&key).changes;
                state.write_or_later(changes);
            }
        })
        .await
    }

    /// Takes the notices that wait for a caller.
    pub(crate) async fn notices(&self, caller: &Caller) -> Vec<String> {
        let caller = caller.clone();
        let taken = self.ask(move |state| match state.who(&caller) {
            WhoCalls::Peer(key) => {
                let taken = state.board.take_notices(&key);
                state.write_or_later(taken.changes);
                let mut lines = taken.answer;
                lines.extend(state.take_sibling_notices(&key));
                lines
            }
            WhoCalls::Anonymous => Vec::new(),
        });
        taken.await.unwrap_or_default()
    }
}

/// An open stream of a peer: while it lives, the peer is not silent.
#[derive(Debug)]
pub(crate) struct StreamGuard {
    node: NodeHandle,
    stream: StreamId,
    _held: Arc<()>,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let stream = self.stream;
        self.node.tell(move |state| {
            let (now, wall) = moment();
            state.close(stream, now, wall);
        });
    }
}

fn client_of(caller: &Caller) -> Client {
    match (&caller.client, caller.surface) {
        (Some(client), _) => Client::new(&client.name, &client.version),
        (None, Surface::Cli) => Client::new("earshot", env!("CARGO_PKG_VERSION")),
        (None, Surface::Http) => Client::new("http", ""),
        (None, Surface::Mcp) => Client::new("", ""),
    }
}

const fn transport_of(key: &PeerKey, caller: &Caller) -> Transport {
    match (key, caller.surface) {
        (PeerKey::Seat(_), _) => Transport::Stdio,
        (PeerKey::Cli { .. }, _) | (_, Surface::Cli) => Transport::Cli,
        (_, Surface::Mcp | Surface::Http) => Transport::Http,
    }
}

fn address_of(address: &Address, machine: &str) -> board::Address {
    board::Address {
        machine: Line::name(address.machine.as_deref().unwrap_or(machine)),
        pid: address.pid,
        pid_started_at: address.pid_started_at,
        session: address.session.as_deref().map(Line::name),
        socket: address.socket.as_deref().map(Line::name),
    }
}

/// Says who a row is and what it is about to do, in one line. What agents wrote stands in quotes.
fn line_of(row: &Row) -> String {
    let said = row
        .announcement()
        .map(|said| (said.intent.as_str(), said.claims.as_slice()));
    line(
        &row.id.to_string(),
        row.client.name.as_str(),
        row.attached(),
        said,
    )
}

/// Says the same of a row on the board of another checkout.
fn line_of_sibling(row: &SiblingRow) -> String {
    let checkout = hex(&row.checkout);
    let place = row.row.branch.as_ref().map_or_else(String::new, |branch| {
        format!(", branch {}", quoted(branch.as_str()))
    });
    let checkout = checkout.get(..6).unwrap_or(&checkout);
    let said = row.row.word.as_ref();
    let said = said.map(|said| (said.intent.as_str(), said.claims.as_slice()));
    let who = format!("{}@{checkout}, in another worktree{place}", row.row.id);
    line(&who, row.row.client.name.as_str(), row.attached, said)
}

fn line(who: &str, client: &str, attached: bool, said: Option<(&str, &[Claim])>) -> String {
    let who = format!("{who} ({})", quoted(client));
    let away = if attached { "" } else { ", gone" };
    let Some((intent, claims)) = said else {
        return format!("{who}{away}: nothing announced");
    };
    let paths: Vec<String> = claims.iter().map(|claim| quoted(claim.as_str())).collect();
    let claims = if paths.is_empty() {
        "no paths".to_owned()
    } else {
        paths.join(", ")
    };
    format!("{who}{away}: {} on {claims}", quoted(intent))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
