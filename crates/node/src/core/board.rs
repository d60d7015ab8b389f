//! What callers do on the board: announce, withdraw, list.

use earshot_capability::{Caller, Code, Failure};
use earshot_proto::{
    PeerId,
    board::{Announcement, Changes, Collision, Cursor, Meetings, PeerKey, Row, Said, Withdrawn},
};

use super::{NodeHandle, State, WhoCalls, journal::merge, moment};
use crate::capabilities::announce_failure;

/// The answer to an announcement.
#[derive(Debug)]
pub(crate) struct Announcing {
    /// The announcer's position.
    pub(crate) peer: PeerId,
    /// What is in force now.
    pub(crate) announcement: Option<Announcement>,
    /// Whose claims meet it.
    pub(crate) meetings: Meetings,
}

/// One page of the board.
#[derive(Debug)]
pub(crate) struct Listing {
    /// How many peers are attached.
    pub(crate) count: usize,
    /// The caller's position, if it has one.
    pub(crate) me: Option<PeerId>,
    /// The rows.
    pub(crate) rows: Vec<Row>,
    /// Where the list goes on.
    pub(crate) more: Option<Cursor>,
    /// The collisions of the whole board, with the seat ids of both sides.
    pub(crate) collisions: Vec<(Collision, [String; 2])>,
    /// How many more there are.
    pub(crate) collisions_more: usize,
    /// A ticket, for an anonymous caller.
    pub(crate) ticket: Option<String>,
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
        Ok(Announcing {
            peer: announced.answer.peer,
            announcement: announced.answer.announcement,
            meetings: announced.answer.meetings,
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

impl NodeHandle {
    /// Reads one page of the board.
    pub(crate) async fn list(
        &self,
        caller: &Caller,
        cursor: Option<Cursor>,
    ) -> Result<Listing, Failure> {
        let caller = caller.clone();
        self.ask(move |state| {
            let (me, ticket) = match state.who(&caller) {
                WhoCalls::Peer(key) => (state.board.row_of(&key).map(|row| row.id), None),
                WhoCalls::Anonymous => (None, state.tickets.mint().ok()),
            };
            let page = state.board.list(cursor);
            let collisions = state.board.collisions();
            let seat = |peer| {
                state
                    .board
                    .row(peer)
                    .map(|row| row.seat_id.to_string())
                    .unwrap_or_default()
            };
            Listing {
                count: state.board.count(),
                me,
                rows: page.rows.into_iter().cloned().collect(),
                more: page.next,
                collisions: collisions
                    .collisions
                    .into_iter()
                    .map(|met| {
                        let seats = [seat(met.a), seat(met.b)];
                        (met, seats)
                    })
                    .collect(),
                collisions_more: collisions.more,
                ticket,
            }
        })
        .await
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
