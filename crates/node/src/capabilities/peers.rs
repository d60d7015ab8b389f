//! The board: `peers.announce`, `peers.withdraw`, `peers.list`.

use std::{sync::Arc, time::Duration};

use earshot_capability::{Call, Capability, CliVerb, Code, Draft, Failure};
use earshot_proto::{
    board::{AnnounceError, Changes, Client, Meeting, Row, Said},
    claims::{Claims, Pairs},
    limits::CLAIMS_MAX,
    text::Line,
};
use earshot_trust::Origin;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    cli::with_causes,
    clock,
    core::{
        Announcing, Listing, Met, NodeHandle, Place, Repetition, Scope, SiblingMeeting, SiblingRow,
        Side, hex,
    },
};

/// How long `fresh` waits for siblings: they are on this machine, or one link away.
const FRESH_WAIT: Duration = Duration::from_secs(2);

/// Paths of one announcement, pairs of one collision, and collisions, that an answer shows: an
/// agent's context is dear, and these few say whom to talk to.
const PATHS_SHOWN: usize = 8;
const PAIRS_SHOWN: usize = 4;
const COLLISIONS_SHOWN: usize = 8;

/// Returns the capabilities of the board.
pub(super) fn capabilities(node: &NodeHandle) -> [Capability; 3] {
    [
        announce(node.clone()),
        withdraw(node.clone()),
        list(node.clone()),
    ]
}

/// What a peer is about to do.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AnnounceInput {
    /// One line, 280 bytes.
    intent: String,
    /// Files and folders, relative to the checkout's root; at most 64.
    #[serde(default)]
    paths: Vec<String>,
    /// From `peers_list`, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ticket: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct AnnounceOutput {
    /// Your own position on the board.
    peer: String,
    /// What is announced for you now; absent when you have withdrawn since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    announcement: Option<AnnouncementOut>,
    /// Whose claims meet yours.
    collisions: Vec<MeetingOut>,
    /// How many more there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    collisions_more: usize,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WithdrawInput {
    /// The ticket from `peers_list`, if you announced with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ticket: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct WithdrawOutput {
    /// Whether there was an announcement, which is gone now.
    withdrawn: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListInput {
    /// Boards.
    #[serde(default)]
    checkouts: Checkouts,
    /// Ask each node first.
    #[serde(default)]
    fresh: bool,
    /// Tell how to reach workers.
    #[serde(default)]
    detail: bool,
    /// `more` of the last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Checkouts {
    /// This checkout.
    This,
    /// All worktrees of the repository.
    #[default]
    Repository,
    /// All checkouts of this machine.
    Machine,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ListOutput {
    /// How many peers are attached.
    count: usize,
    /// Your own position on the board, if you have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    me: Option<String>,
    /// The peers, with what each announced; departed ones who announced, too.
    peers: Vec<PeerOut>,
    /// Claims that meet, once per pair.
    collisions: Vec<CollisionOut>,
    /// How many more collisions there are.
    #[serde(skip_serializing_if = "is_zero")]
    collisions_more: usize,
    /// Nodes not read, and why.
    unread: Vec<UnreadOut>,
    /// The cursor of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<String>,
    /// What you may announce with, if you have no session of your own.
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct UnreadOut {
    /// The node.
    node: String,
    /// Why it was not read.
    reason: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct AnnouncementOut {
    /// What the peer is about to do, in its own words.
    intent: String,
    /// The paths it expects to touch; the first ones, unless detail was asked for.
    paths: Vec<String>,
    /// How many more there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    paths_more: usize,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct PeerRefOut {
    /// The node.
    node: String,
    /// The position on its board.
    id: String,
    /// What stays the same when the position changes.
    seat_id: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct MeetingOut {
    /// Whose claims they are.
    peer: PeerRefOut,
    /// Whether that peer is attached.
    attached: bool,
    /// Its checkout.
    checkout_id: String,
    /// What it is about to do, in its own words.
    intent: String,
    /// The paths that meet: yours, theirs.
    pairs: Vec<[String; 2]>,
    /// How many more pairs there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pairs_more: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct CollisionOut {
    /// The one peer.
    a: PeerRefOut,
    /// The other.
    b: PeerRefOut,
    /// The paths that meet: of a, of b.
    pairs: Vec<[String; 2]>,
    /// How many more pairs there are.
    #[serde(skip_serializing_if = "is_zero")]
    pairs_more: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ClientOut {
    /// What the client calls itself.
    name: String,
    /// Its version.
    #[serde(skip_serializing_if = "String::is_empty")]
    version: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct PeerOut {
    /// The position on the board.
    id: String,
    /// What stays the same when the position changes.
    seat_id: String,
    /// The client.
    client: ClientOut,
    /// `stdio`, `http` or `cli`.
    transport: &'static str,
    /// Its checkout.
    checkout_id: String,
    /// The branch it works on.
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<String>,
    /// Whether it is attached.
    attached: bool,
    /// When it attached.
    attached_at: String,
    /// When it was heard of last.
    last_seen: String,
    /// What it announced.
    #[serde(skip_serializing_if = "Option::is_none")]
    announcement: Option<AnnouncementOut>,
    /// Where this row comes from.
    origin: OriginOut,
    /// Where the worker can be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<AddressOut>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct OriginOut {
    /// `here`, or `sibling`.
    kind: &'static str,
    /// The node.
    node: String,
    /// How old the row is, in milliseconds.
    age_ms: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct AddressOut {
    /// The machine.
    machine: String,
    /// The worker's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// When that process started, in clock ticks since boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid_started_at: Option<u64>,
    /// The provider's session id.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    /// The socket through which other sessions message it.
    #[serde(skip_serializing_if = "Option::is_none")]
    socket: Option<String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde asks for"
)]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn announce(node: NodeHandle) -> Capability {
    Draft::command(
        "peers.announce",
        "Announce what you are about to do",
        "Say what you are about to do and which paths you will touch, before you begin and when it \
         changes. Answers whose claims meet yours: agree with them, or choose other work.",
    )
    .listed()
    .cli(CliVerb {
        verb: "announce",
        first: Some("intent"),
        rest: Some("paths"),
    })
    .handler(move |call: Call, input: AnnounceInput| {
        let node = node.clone();
        async move {
            let intent = Line::intent(&input.intent)
                .map_err(|error| invalid("intent", &error, "Say it in one short line."))?;
            let claims = read_claims(&node, &input.paths)?;
            let n = call.caller.request.map(|request| request.n);
            let said = Said { n, intent, claims };
            let (caller, about) = (Arc::clone(&call.caller), node.clone());
            node.settled().await;
            // An announcement that is said again carries its own order, so it may always run.
            node.command(&call, Repetition::Ordered, move |state| {
                let mut changes = Changes::default();
                let (ticket, machine) = (input.ticket.as_deref(), about.about().machine.as_str());
                let answer = state.announce(&caller, machine, said, ticket, &mut changes);
                (answer.map(|answer| announced(&about, &answer)), changes)
            })
            .await
        }
    })
}

fn withdraw(node: NodeHandle) -> Capability {
    Draft::command(
        "peers.withdraw",
        "Withdraw your announcement",
        "Takes back what you announced: when you are done, or will not do it.",
    )
    .cli(CliVerb {
        verb: "withdraw",
        first: None,
        rest: None,
    })
    .handler(move |call: Call, input: WithdrawInput| {
        let node = node.clone();
        async move {
            let n = call.caller.request.map(|request| request.n);
            let caller = Arc::clone(&call.caller);
            node.command(&call, Repetition::Gone, move |state| {
                let mut changes = Changes::default();
                let withdrawn = state.withdraw(&caller, n, input.ticket.as_deref(), &mut changes);
                (
                    withdrawn.map(|withdrawn| WithdrawOutput { withdrawn }),
                    changes,
                )
            })
            .await
        }
    })
}

fn list(node: NodeHandle) -> Capability {
    Draft::query(
        "peers.list",
        "Read the board",
        "Who else works here, on which paths, and which claims collide.",
    )
    .listed()
    .cli(CliVerb {
        verb: "peers",
        first: None,
        rest: None,
    })
    .handler(move |call: Call, input: ListInput| {
        let node = node.clone();
        async move {
            if input.detail && call.caller.origin == Origin::Remote {
                return Err(Failure::new(
                    Code::Forbidden,
                    "where workers can be reached is told on this machine only",
                    "Leave `detail` out.",
                ));
            }
            let cursor = match input.cursor.as_deref().map(str::parse::<Place>).transpose() {
                Ok(cursor) => cursor,
                Err(error) => return Err(invalid("cursor", &error, "Begin without a cursor.")),
            };
            if input.fresh && call.caller.origin == Origin::Remote {
                return Err(Failure::new(
                    Code::Forbidden,
                    "only callers of this machine may have every node asked",
                    "Leave `fresh` out.",
                ));
            }
            let scope = match input.checkouts {
                Checkouts::This => Scope::This,
                Checkouts::Repository => Scope::Repository,
                Checkouts::Machine => Scope::Machine,
            };
            let silent = if input.fresh && scope != Scope::This {
                Some(node.ask_siblings(clock::now() + FRESH_WAIT).await?)
            } else {
                None
            };
            let mut listing = node.list(&call.caller, scope, cursor).await?;
            listing.unread = silent.unwrap_or(listing.unread);
            let own = node.name().await?;
            Ok(listed(&node, &own, listing, input.detail))
        }
    })
}

fn read_claims(node: &NodeHandle, paths: &[String]) -> Result<Claims, Failure> {
    let remedy = "Name files and folders relative to the checkout's root.";
    if paths.len() > CLAIMS_MAX {
        let message = format!(
            "`paths`: {} paths; at most {CLAIMS_MAX} can be claimed",
            paths.len()
        );
        return Err(Failure::new(
            Code::TooLarge,
            message,
            "Claim the folders that hold them.",
        ));
    }
    let checkout = &node.about().checkout;
    let mut relative = Vec::with_capacity(paths.len());
    for (at, path) in paths.iter().enumerate() {
        let path = earshot_checkout::claim_path(checkout, path)
            .map_err(|error| invalid(&format!("paths[{at}]"), &error, remedy))?;
        relative.push(path);
    }
    Claims::parse(&relative).map_err(|error| invalid("paths", &error, remedy))
}

fn invalid(argument: &str, why: &dyn std::error::Error, remedy: &str) -> Failure {
    Failure::new(
        Code::InvalidInput,
        format!("`{argument}`: {}", with_causes(why)),
        remedy,
    )
}

/// Turns the board's refusal of an announcement into an error.
pub(crate) fn announce_failure(error: &AnnounceError) -> Failure {
    match error {
        AnnounceError::NotAttached(_) => Failure::new(
            Code::Unavailable,
            "your place on the board was just given up",
            "Call again.",
        ),
        AnnounceError::Conflict { .. } => Failure::new(
            Code::Conflict,
            error.to_string(),
            "Announce with a request number of its own.",
        ),
    }
}

fn announced(node: &NodeHandle, answer: &Announcing) -> AnnounceOutput {
    let here = answer
        .meetings
        .met
        .iter()
        .map(|met| meeting(node, &answer.node, met));
    let there = answer.siblings.met.iter().map(sibling_meeting);
    let all = answer.meetings.met.len() + answer.siblings.met.len();
    let shown = COLLISIONS_SHOWN.min(all);
    AnnounceOutput {
        peer: answer.peer.to_string(),
        announcement: answer
            .announcement
            .as_ref()
            .map(|said| announcement(&said.intent, &said.claims, false)),
        collisions: here.chain(there).take(shown).collect(),
        collisions_more: answer.meetings.more + answer.siblings.more + all - shown,
    }
}

fn sibling_meeting(met: &SiblingMeeting) -> MeetingOut {
    let (pairs, pairs_more) = pairs_of(&met.pairs);
    let said = met.row.row.word.as_ref();
    MeetingOut {
        peer: side(met.row.side()),
        attached: met.row.attached,
        checkout_id: hex(&met.row.checkout),
        intent: said.map_or_else(String::new, |said| said.intent.as_str().to_owned()),
        pairs,
        pairs_more,
    }
}

fn side(side: Side) -> PeerRefOut {
    PeerRefOut {
        node: side.node,
        id: side.id.to_string(),
        seat_id: side.seat_id,
    }
}

fn meeting(node: &NodeHandle, own: &str, met: &Meeting) -> MeetingOut {
    let (pairs, pairs_more) = pairs_of(&met.pairs);
    MeetingOut {
        peer: PeerRefOut {
            node: own.to_owned(),
            id: met.peer.to_string(),
            seat_id: met.seat_id.to_string(),
        },
        attached: met.attached,
        checkout_id: node.about().checkout_id.clone(),
        intent: met.intent.as_str().to_owned(),
        pairs,
        pairs_more,
    }
}

fn listed(node: &NodeHandle, own: &str, listing: Listing, detail: bool) -> ListOutput {
    let shown = COLLISIONS_SHOWN.min(listing.collisions.len());
    let collisions_more = listing.collisions_more + listing.collisions.len() - shown;
    let here = listing.rows.iter().map(|row| peer(node, own, row, detail));
    let there = listing.siblings.iter().map(|row| sibling(row, detail));
    ListOutput {
        count: listing.count,
        me: listing.me.map(|me| me.to_string()),
        peers: here.chain(there).collect(),
        collisions: listing
            .collisions
            .into_iter()
            .take(shown)
            .map(collided)
            .collect(),
        collisions_more,
        unread: listing
            .unread
            .into_iter()
            .map(|(node, reason)| UnreadOut { node, reason })
            .collect(),
        more: listing.more.map(|place| place.to_string()),
        ticket: listing.ticket,
    }
}

fn collided(met: Met) -> CollisionOut {
    let (pairs, pairs_more) = pairs_of(&met.pairs);
    CollisionOut {
        a: side(met.a),
        b: side(met.b),
        pairs,
        pairs_more,
    }
}

fn sibling(row: &SiblingRow, detail: bool) -> PeerOut {
    let told = &row.row;
    PeerOut {
        id: told.id.to_string(),
        seat_id: told.seat_id.to_string(),
        client: client(&told.client),
        transport: told.transport.as_str(),
        checkout_id: hex(&row.checkout),
        branch: told.branch.as_ref().map(|it| it.as_str().to_owned()),
        attached: row.attached,
        attached_at: told.attached_at.to_string(),
        last_seen: row.last_seen.to_string(),
        announcement: told
            .word
            .as_ref()
            .map(|said| announcement(&said.intent, &said.claims, detail)),
        origin: OriginOut {
            kind: "sibling",
            node: row.of.node.to_string(),
            age_ms: row.age_ms,
        },
        address: None,
    }
}

fn client(client: &Client) -> ClientOut {
    ClientOut {
        name: client.name.as_str().to_owned(),
        version: client.version.as_str().to_owned(),
    }
}

fn peer(node: &NodeHandle, own: &str, row: &Row, detail: bool) -> PeerOut {
    PeerOut {
        id: row.id.to_string(),
        seat_id: row.seat_id.to_string(),
        client: client(&row.client),
        transport: row.transport.as_str(),
        checkout_id: node.about().checkout_id.clone(),
        branch: row.branch.as_ref().map(|branch| branch.as_str().to_owned()),
        attached: row.attached(),
        attached_at: row.attached_at.to_string(),
        last_seen: row.last_seen.to_string(),
        announcement: row
            .announcement()
            .map(|said| announcement(&said.intent, &said.claims, detail)),
        origin: OriginOut {
            kind: "here",
            node: own.to_owned(),
            age_ms: 0,
        },
        address: row
            .address
            .as_ref()
            .filter(|_| detail)
            .map(|address| AddressOut {
                machine: address.machine.as_str().to_owned(),
                pid: address.pid,
                pid_started_at: address.pid_started_at,
                session: address
                    .session
                    .as_ref()
                    .map(|line| line.as_str().to_owned()),
                socket: address.socket.as_ref().map(|line| line.as_str().to_owned()),
            }),
    }
}

fn announcement(intent: &Line, claims: &Claims, detail: bool) -> AnnouncementOut {
    let claims = claims.as_slice();
    let shown = if detail {
        claims.len()
    } else {
        PATHS_SHOWN.min(claims.len())
    };
    AnnouncementOut {
        intent: intent.as_str().to_owned(),
        paths: claims
            .iter()
            .take(shown)
            .map(|claim| claim.as_str().to_owned())
            .collect(),
        paths_more: claims.len() - shown,
    }
}

fn pairs_of(pairs: &Pairs) -> (Vec<[String; 2]>, usize) {
    let shown = PAIRS_SHOWN.min(pairs.pairs.len());
    let text = pairs
        .pairs
        .iter()
        .take(shown)
        .map(|(mine, theirs)| [mine.as_str().to_owned(), theirs.as_str().to_owned()])
        .collect();
    (text, pairs.more + pairs.pairs.len() - shown)
}
