//! What callers do on the board: announce, withdraw, list.

use std::{fmt, str::FromStr};

use earshot_capability::{Caller, Code, Failure};
use earshot_proto::{
    PeerId,
    board::{Announcement, Changes, Cursor, Meetings, PeerKey, Row, Said, Withdrawn},
    claims::Pairs,
    limits::{PAGE_ROWS, PAIRS_MAX},
    mesh::replica::RowRef,
};

use super::{
    Neighbours, NodeHandle, Scope, SiblingMeetings, SiblingRow, State, WhoCalls, journal::merge,
    moment,
};
use crate::capabilities::announce_failure;

/// The answer to an announcement.
#[derive(Debug)]
pub(crate) struct Announcing {
    /// How this node is called.
    pub(crate) node: String,
    /// The announcer's position.
    pub(crate) peer: PeerId,
    /// What is in force now.
    pub(crate) announcement: Option<Announcement>,
    /// Whose claims meet it.
    pub(crate) meetings: Meetings,
    /// Whose claims on siblings' boards meet it.
    pub(crate) siblings: SiblingMeetings,
}

/// One page of the board.
#[derive(Debug)]
pub(crate) struct Listing {
    /// How many peers are attached.
    pub(crate) count: usize,
    /// The caller's position, if it has one.
    pub(crate) me: Option<PeerId>,
    /// The own rows.
    pub(crate) rows: Vec<Row>,
    /// The rows of siblings.
    pub(crate) siblings: Vec<SiblingRow>,
    /// Where the list goes on.
    pub(crate) more: Option<Place>,
    /// The collisions of all boards that are read, each once.
    pub(crate) collisions: Vec<Met>,
    /// How many more there are.
    pub(crate) collisions_more: usize,
    /// Nodes that could not be read, with the reason.
    pub(crate) unread: Vec<(String, String)>,
    /// A ticket, for an anonymous caller.
    pub(crate) ticket: Option<String>,
}

/// One side of a collision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Side {
    /// How its node is called.
    pub(crate) node: String,
    /// The position on that node's board.
    pub(crate) id: PeerId,
    /// What stays the same when the position changes.
    pub(crate) seat_id: String,
}

/// Two peers whose claims meet, on whichever boards.
#[derive(Debug, Clone)]
pub(crate) struct Met {
    /// The one.
    pub(crate) a: Side,
    /// The other.
    pub(crate) b: Side,
    /// The claims that meet, those of `a` first.
    pub(crate) pairs: Pairs,
}

/// A place from which a list goes on: among the own rows, then among those of siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// After this own row.
    Own(Cursor),
    /// After this many rows of siblings.
    Sibling(usize),
}

/// The text is no cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is none that a board gave: list without one")]
pub(crate) struct PlaceError;

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(cursor) => cursor.fmt(f),
            Self::Sibling(after) => write!(f, "s{after:x}"),
        }
    }
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        if let Some(digits) = text.strip_prefix('s') {
            let after = usize::from_str_radix(digits, 16).map_err(|_| PlaceError)?;
            return Ok(Self::Sibling(after));
        }
        text.parse().map(Self::Own).map_err(|_| PlaceError)
    }
}

impl State {
    /// Finds whom a command speaks for: the caller's own row, or that of its ticket.
    fn speaker(&self, caller: &Caller, ticket: Option<&str>) -> Result<PeerKey, Failure> {
        match (self.who(caller), ticket) {
            (WhoCalls::Peer(key), None) => Ok(key),
            (WhoCalls::Peer(_), Some(_)) => Err(Failure::new(
                Code::InvalidInput,
                "`ticket`: you have a place on the board of your own",
                "Leave the ticket out.",
            )),
            (WhoCalls::Anonymous, Some(ticket)) => self
                .tickets
                .read(ticket)
                .map(PeerKey::Ticket)
                .ok_or_else(|| {
                    Failure::new(
                        Code::Gone,
                        "`ticket`: this node did not give that ticket out",
                        "Take a new one from peers_list.",
                    )
                }),
            (WhoCalls::Anonymous, None) => Err(Failure::new(
                Code::Refused,
                "the node cannot tell who you are",
                "Connect through `earshot mcp`, send your session id as the Earshot-Session header, \
                 or pass the `ticket` that peers_list answers.",
            )),
        }
    }
}

impl State {
    /// Announces for a caller, who is attached by it, and adds what changed.
    pub(crate) fn announce(
        &mut self,
        caller: &Caller,
        machine: &str,
        said: Said,
        ticket: Option<&str>,
        changes: &mut Changes,
    ) -> Result<Announcing, Failure> {
        let key = self.speaker(caller, ticket)?;
        self.attach(&key, caller, machine, changes)?;
        let (_, wall) = moment();
        let announced = self
            .board
            .announce(&key, said, wall)
            .map_err(|error| announce_failure(&error))?;
        merge(changes, announced.changes);
        let (peer, meetings) = (announced.answer.peer, announced.answer.meetings);
        Ok(Announcing {
            node: self.node_name(),
            peer,
            announcement: announced.answer.announcement,
            siblings: self.sibling_meetings(&meetings, peer),
            meetings,
        })
    }

    /// Withdraws a caller's announcement, adds what changed, and says whether there was one.
    pub(crate) fn withdraw(
        &mut self,
        caller: &Caller,
        n: Option<u64>,
        ticket: Option<&str>,
        changes: &mut Changes,
    ) -> Result<bool, Failure> {
        let key = self.speaker(caller, ticket)?;
        let Ok(withdrawn) = self.board.withdraw(&key, n) else {
            return Ok(false);
        };
        merge(changes, withdrawn.changes);
        Ok(withdrawn.answer == Withdrawn::Taken)
    }
}

impl State {
    fn list(&self, caller: &Caller, scope: Scope, place: Option<Place>) -> Listing {
        let (me, ticket) = match self.who(caller) {
            WhoCalls::Peer(key) => (self.board.row_of(&key).map(|row| row.id), None),
            WhoCalls::Anonymous => (None, self.tickets.mint().ok()),
        };
        let neighbours = self.neighbours.as_ref();
        let (elsewhere, attached) = neighbours.map_or((0, 0), |it| it.count(scope));
        let (rows, next, from) = match place {
            Some(Place::Sibling(after)) => (Vec::new(), None, after),
            Some(Place::Own(cursor)) => self.own_page(Some(cursor)),
            None => self.own_page(None),
        };
        let room = PAGE_ROWS.saturating_sub(rows.len());
        // Siblings come after the last own row.
        let siblings = match neighbours.filter(|_| next.is_none()) {
            Some(neighbours) => neighbours.rows(scope, from, room),
            None => Vec::new(),
        };
        let shown = from + siblings.len();
        let more = next.or_else(|| (shown < elsewhere).then_some(Place::Sibling(shown)));
        let (collisions, collisions_more) = self.all_collisions(scope);
        let unread = match (scope, neighbours) {
            (Scope::This, _) | (_, None) => Vec::new(),
            (Scope::Repository | Scope::Machine, Some(neighbours)) => neighbours.unread(),
        };
        Listing {
            count: self.board.count() + attached,
            me,
            rows,
            siblings,
            more,
            collisions,
            collisions_more,
            unread,
            ticket,
        }
    }

    /// Returns a page of own rows, where it goes on among them, and from which row of siblings on.
    fn own_page(&self, cursor: Option<Cursor>) -> (Vec<Row>, Option<Place>, usize) {
        let page = self.board.list(cursor);
        let rows: Vec<Row> = page.rows.into_iter().cloned().collect();
        (rows, page.next.map(Place::Own), 0)
    }

    /// Returns the first collisions of the boards that are read, and how many more there are.
    fn all_collisions(&self, scope: Scope) -> (Vec<Met>, usize) {
        let own = self.board.collisions();
        let mut more = own.more;
        let mut met: Vec<Met> = own
            .collisions
            .into_iter()
            .map(|it| Met {
                a: self.own_side(it.a),
                b: self.own_side(it.b),
                pairs: it.pairs,
            })
            .collect();
        if let Some(neighbours) = &self.neighbours {
            let room = PAIRS_MAX.saturating_sub(met.len());
            let (found, rest) = neighbours.collisions(scope, room);
            more += rest;
            met.extend(found.into_iter().map(|it| Met {
                a: self.side(neighbours, it.a),
                b: self.side(neighbours, it.b),
                pairs: it.pairs,
            }));
        }
        (met, more)
    }

    fn own_side(&self, peer: PeerId) -> Side {
        let row = self.board.row(peer);
        Side {
            node: self.node_name(),
            id: peer,
            seat_id: row.map(|row| row.seat_id.to_string()).unwrap_or_default(),
        }
    }

    fn side(&self, neighbours: &Neighbours, of: RowRef) -> Side {
        if neighbours.is_own(of) {
            return self.own_side(of.peer);
        }
        let row = neighbours.row(of);
        Side {
            node: of.node.to_string(),
            id: of.peer,
            seat_id: row.map(|row| row.seat_id.to_string()).unwrap_or_default(),
        }
    }

    /// Returns how this node is called: by its key, or by its checkout while it has none.
    pub(super) fn node_name(&self) -> String {
        let neighbours = self.neighbours.as_ref();
        neighbours.map_or_else(|| self.checkout_id.clone(), |it| it.name().to_owned())
    }
}

impl SiblingRow {
    /// Returns this row as one side of a collision.
    pub(crate) fn side(&self) -> Side {
        Side {
            node: self.of.node.to_string(),
            id: self.row.id,
            seat_id: self.row.seat_id.to_string(),
        }
    }
}

impl NodeHandle {
    /// Reads one page of the boards within this scope.
    pub(crate) async fn list(
        &self,
        caller: &Caller,
        scope: Scope,
        place: Option<Place>,
    ) -> Result<Listing, Failure> {
        let caller = caller.clone();
        if scope != Scope::This {
            self.settled().await;
        }
        self.ask(move |state| state.list(&caller, scope, place))
            .await
    }

    /// Returns how this node is called on boards.
    pub(crate) async fn name(&self) -> Result<String, Failure> {
        self.ask(|state| state.node_name()).await
    }

    /// Returns the branch that the checkout has out.
    pub(crate) async fn branch(&self) -> Result<Option<String>, Failure> {
        self.ask(|state| {
            state
                .branch
                .as_ref()
                .map(|branch| branch.as_str().to_owned())
        })
        .await
    }
}
