//! The board beyond this checkout: what siblings told, and what they are told.

use std::collections::{BTreeMap, BTreeSet};

use earshot_capability::Failure;
use earshot_proto::{
    Now, PeerId, Timestamp,
    board::{Changes, Meetings, PeerKey, Row},
    claims::{Case, Claims, Pairs},
    limits::{NOTICES_MAX, PAIRS_MAX},
    mesh::{
        message::{Facts, SharedRow},
        replica::{Replica, RowRef, RowsMet},
        siblings::{Effect, Input, Siblings, Unread},
    },
    text::Line,
};
use earshot_trust::PublicKey;
use tokio::sync::{mpsc, oneshot};

use super::{NodeHandle, State};
use crate::clock;

/// What the links are to do, and when the node wants to be woken for them.
#[derive(Debug)]
pub(crate) struct Out {
    /// In this order.
    pub(crate) effects: Vec<Effect>,
    /// When `Input::Woke` is due.
    pub(crate) wake: Option<Now>,
}

/// Nodes that were not read, by checkout, with the reason.
type UnreadNodes = Vec<([u8; 16], Unread)>;

/// The siblings of one tenure.
#[derive(Debug)]
pub(super) struct Neighbours {
    me: PublicKey,
    machine: Siblings,
    out: mpsc::Sender<Out>,
    /// When it was said last that the node wants to be woken.
    wake: Option<Now>,
    /// Whether it was looked who is there.
    looked: bool,
    /// Rows of siblings that own peers were told of when they announced.
    told: BTreeMap<PeerId, BTreeSet<RowRef>>,
    /// When the tenure began.
    began: Timestamp,
    /// What this node is called on other boards.
    name: String,
    repository: Option<[u8; 16]>,
    /// Lines that wait for own peers: a sibling's announcement met their claims.
    notices: BTreeMap<PeerId, Vec<String>>,
    questions: BTreeMap<u64, oneshot::Sender<UnreadNodes>>,
    next_question: u64,
}

/// Which boards are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// This checkout's alone.
    This,
    /// Those of all checkouts of the repository on this machine.
    Repository,
    /// Those of all checkouts on this machine.
    Machine,
}

/// A row of a sibling, as a list shows it.
#[derive(Debug, Clone)]
pub(crate) struct SiblingRow {
    /// The node.
    pub(crate) of: RowRef,
    /// Its checkout.
    pub(crate) checkout: [u8; 16],
    /// The row.
    pub(crate) row: SharedRow,
    /// Whether the peer is attached, as far as is known.
    pub(crate) attached: bool,
    /// When it was heard of last.
    pub(crate) last_seen: Timestamp,
    /// How old what is known of it is, in milliseconds.
    pub(crate) age_ms: u64,
}

/// A row of a sibling whose claims meet one's own.
#[derive(Debug, Clone)]
pub(crate) struct SiblingMeeting {
    /// The row.
    pub(crate) row: SiblingRow,
    /// The claims that meet, one's own first.
    pub(crate) pairs: Pairs,
}

/// Those of siblings whose claims meet one's own.
#[derive(Debug, Clone, Default)]
pub(crate) struct SiblingMeetings {
    /// The first of them.
    pub(crate) met: Vec<SiblingMeeting>,
    /// How many more there are.
    pub(crate) more: usize,
}

/// What the links need to know to begin a tenure.
#[derive(Debug, Clone)]
pub(crate) struct Beginning {
    /// The node's key.
    pub(crate) me: PublicKey,
    /// The epoch of its lease.
    pub(crate) epoch: u64,
    /// The repository, `None` for a folder without one.
    pub(crate) repository: Option<[u8; 16]>,
    /// Where effects go.
    pub(crate) out: mpsc::Sender<Out>,
}

impl Neighbours {
    fn is_of_repository(&self, replica: &Replica) -> bool {
        self.repository.is_some() && replica.facts.repository == self.repository
    }

    fn is_within(&self, replica: &Replica, scope: Scope) -> bool {
        match scope {
            Scope::This => false,
            Scope::Repository => self.is_of_repository(replica),
            Scope::Machine => true,
        }
    }

    fn shown(of: RowRef, replica: &Replica, row: &SharedRow) -> SiblingRow {
        let (now, wall) = (clock::now(), clock::wall());
        let age = replica.age(now);
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let heard = Timestamp::from_unix_ms(wall.unix_ms().saturating_sub(age_ms));
        SiblingRow {
            of,
            checkout: replica.checkout,
            row: row.clone(),
            attached: replica.is_attached(row),
            last_seen: row.left_at.unwrap_or(heard),
            age_ms,
        }
    }

    /// Lists the rows of siblings in the order of their nodes and positions.
    fn within(&self, scope: Scope) -> impl Iterator<Item = (RowRef, &Replica, &SharedRow)> {
        let nodes = self.machine.replicas().nodes();
        let within = nodes.filter(move |(_, replica)| self.is_within(replica, scope));
        within.flat_map(|(node, replica)| {
            replica.rows().map(move |row| {
                let (node, peer) = (*node, row.id);
                (RowRef { node, peer }, replica, row)
            })
        })
    }

    /// Returns so many rows of siblings from this one on.
    pub(super) fn rows(&self, scope: Scope, from: usize, most: usize) -> Vec<SiblingRow> {
        let rows = self.within(scope).skip(from).take(most);
        rows.map(|(of, replica, row)| Self::shown(of, replica, row))
            .collect()
    }

    /// Returns how many rows of siblings there are, and how many of their peers are attached.
    pub(super) fn count(&self, scope: Scope) -> (usize, usize) {
        self.within(scope)
            .fold((0, 0), |(rows, attached), (_, replica, row)| {
                (rows + 1, attached + usize::from(replica.is_attached(row)))
            })
    }

    /// Returns whose claims, in this repository, meet these.
    fn meetings(&self, claims: &Claims) -> SiblingMeetings {
        let replicas = self.machine.replicas();
        let met = replicas.meeting(claims, self.machine.facts());
        let more = met.len().saturating_sub(PAIRS_MAX);
        let shown = met.into_iter().take(PAIRS_MAX).filter_map(|(of, pairs)| {
            let replica = replicas.node(&of.node)?;
            let row = Self::shown(of, replica, replica.row(of.peer)?);
            Some(SiblingMeeting { row, pairs })
        });
        SiblingMeetings {
            met: shown.collect(),
            more,
        }
    }

    /// Returns the first collisions in which a row of a sibling takes part, and how many more there
    /// are.
    pub(super) fn collisions(&self, scope: Scope, most: usize) -> (Vec<RowsMet>, usize) {
        let replicas = self.machine.replicas();
        match (scope, self.repository) {
            (Scope::This, _) | (Scope::Repository, None) => (Vec::new(), 0),
            (Scope::Repository, repository) => replicas.collisions(repository, most),
            (Scope::Machine, _) => replicas.collisions(None, most),
        }
    }

    /// Returns the row of a sibling.
    pub(super) fn row(&self, of: RowRef) -> Option<&SharedRow> {
        self.machine.replicas().row(of)
    }

    /// Returns whether a row is an own one.
    pub(super) fn is_own(&self, of: RowRef) -> bool {
        of.node == self.me
    }

    /// Says which nodes could not be read, with the reason.
    pub(super) fn unread(&self) -> Vec<(String, String)> {
        named(self.machine.unread())
    }

    /// Returns how this node is called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// Names nodes that are not known by their key: by their checkout.
fn named(unread: UnreadNodes) -> Vec<(String, String)> {
    unread
        .into_iter()
        .map(|(checkout, why)| (hex(&checkout), why.to_string()))
        .collect()
}

/// Writes an id as it is shown.
pub(crate) fn hex(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl State {
    /// Tells siblings what changed on the own board, now that it is kept.
    pub(super) fn share(&mut self, changes: &Changes) {
        if self.neighbours.is_none() || changes.is_empty() {
            return;
        }
        let rows: Vec<SharedRow> = changes
            .put
            .iter()
            .filter_map(|peer| self.board.row(*peer))
            .map(SharedRow::of)
            .collect();
        let facts = self.facts();
        let now = clock::now();
        let Some(neighbours) = &mut self.neighbours else {
            return;
        };
        let mut effects = Vec::new();
        for row in rows {
            effects.extend(neighbours.machine.put(now, row));
        }
        for peer in &changes.deleted {
            effects.extend(neighbours.machine.remove(now, *peer));
            neighbours.notices.remove(peer);
            neighbours.told.remove(peer);
        }
        effects.extend(neighbours.machine.set_facts(now, facts));
        self.emit(effects);
    }

    /// Tells siblings of the whole board: it was read anew.
    pub(super) fn share_all(&mut self) {
        let mut all = Changes::default();
        all.put.extend(self.board.rows().map(|row| row.id));
        let told = self.neighbours.as_ref().map(|it| it.machine.told_peers());
        let told = told.into_iter().flatten();
        all.deleted
            .extend(told.filter(|peer| self.board.row(*peer).is_none()));
        self.share(&all);
    }

    fn facts(&self) -> Facts {
        Facts {
            repository: self.neighbours.as_ref().and_then(|it| it.repository),
            ignores_case: self.case == Case::Folded,
            attached: u32::try_from(self.board.count()).unwrap_or(u32::MAX),
            left_out: 0,
        }
    }

    fn begin_neighbours(&mut self, beginning: Beginning) {
        let Beginning {
            me,
            epoch,
            repository,
            out,
        } = beginning;
        let facts = Facts {
            repository,
            ignores_case: self.case == Case::Folded,
            ..Facts::default()
        };
        self.neighbours = Some(Neighbours {
            me,
            machine: Siblings::new(me, epoch, facts),
            out,
            wake: None,
            looked: false,
            told: BTreeMap::new(),
            began: clock::wall(),
            name: me.to_string(),
            repository,
            notices: BTreeMap::new(),
            questions: BTreeMap::new(),
            next_question: 0,
        });
        self.share_all();
    }

    fn neighbours_input(&mut self, input: Input) {
        let now = clock::now();
        if let Some(neighbours) = &mut self.neighbours {
            if matches!(input, Input::Woke) {
                neighbours.wake = None;
            }
            neighbours.looked |= matches!(input, Input::Candidates(_));
            let effects = neighbours.machine.handle(now, input);
            self.emit(effects);
        }
    }

    /// Does what is to be done here, and hands the rest to the links.
    fn emit(&mut self, effects: Vec<Effect>) {
        let mut rest = Vec::new();
        for effect in effects {
            match effect {
                Effect::News(news) => self.note_news(&news),
                Effect::Asked { number, unread } => {
                    if let Some(neighbours) = &mut self.neighbours
                        && let Some(asked) = neighbours.questions.remove(&number)
                    {
                        asked.send(unread).ok(); // whoever asked has gone
                    }
                }
                effect @ (Effect::Look | Effect::Dial(_) | Effect::Send(..) | Effect::Close(_)) => {
                    rest.push(effect);
                }
            }
        }
        let Some(neighbours) = &mut self.neighbours else {
            return;
        };
        // Those that are to be dialled are known only after the first look.
        if neighbours.looked && !neighbours.machine.is_settling() {
            self.settled.send_replace(true);
        }
        let wake = neighbours.machine.next_wake();
        if rest.is_empty() && wake == neighbours.wake {
            return;
        }
        neighbours.wake = wake;
        let out = Out {
            effects: rest,
            wake,
        };
        if neighbours.out.try_send(out).is_err() {
            // The links do not keep up, or have ended: they begin anew, from the boards as they are.
            tracing::warn!("the links to siblings are begun anew");
            self.neighbours = None;
        }
    }

    /// Notes for own peers that a sibling announced what meets their claims.
    fn note_news(&mut self, news: &[RowRef]) {
        let Some(neighbours) = &mut self.neighbours else {
            return;
        };
        for of in news {
            let Some(replica) = neighbours.machine.replicas().node(&of.node) else {
                continue;
            };
            if neighbours.repository.is_none() || replica.facts.repository != neighbours.repository
            {
                continue;
            }
            let Some(theirs) = replica.row(of.peer) else {
                continue;
            };
            let Some(word) = &theirs.word else { continue };
            let case = self.case.and(replica.facts.case());
            let mine = self.board.peers_meeting(&word.claims, case);
            let attached = replica.is_attached(theirs);
            for (peer, pairs) in mine {
                // Whoever announced later was told in the answer, unless the other's row came only
                // afterwards; what is older than this tenure was told by the node before.
                let mine = self.board.row(peer).and_then(Row::announcement);
                let is_news = mine.is_some_and(|mine| {
                    let told = neighbours
                        .told
                        .get(&peer)
                        .is_some_and(|told| told.contains(of));
                    mine.at <= word.at || (mine.at >= neighbours.began && !told)
                });
                if !is_news {
                    continue;
                }
                let checkout = hex(&replica.checkout);
                let line = notice(&checkout, theirs, attached, &pairs);
                let waiting = neighbours.notices.entry(peer).or_default();
                if waiting.len() < NOTICES_MAX && !waiting.contains(&line) {
                    waiting.push(line);
                }
            }
        }
    }

    /// Takes the lines about siblings that wait for a peer.
    pub(super) fn take_sibling_notices(&mut self, key: &PeerKey) -> Vec<String> {
        let peer = self.board.row_of(key).map(|row| row.id);
        let taken = peer.and_then(|peer| self.neighbours.as_mut()?.notices.remove(&peer));
        taken.unwrap_or_default()
    }

    /// Returns whose claims on siblings' boards meet those of an own peer.
    pub(super) fn sibling_meetings(&mut self, met: &Meetings, peer: PeerId) -> SiblingMeetings {
        let room = PAIRS_MAX.saturating_sub(met.met.len());
        let claims = self.board.row(peer).and_then(Row::announcement);
        let found = claims.and_then(|mine| {
            let neighbours = self.neighbours.as_ref()?;
            Some(neighbours.meetings(&mine.claims))
        });
        let mut found = found.unwrap_or_default();
        if let Some(neighbours) = &mut self.neighbours {
            let told = found.met.iter().map(|met| met.row.of).collect();
            neighbours.told.insert(peer, told);
        }
        if found.met.len() > room {
            found.more += found.met.len() - room;
            found.met.truncate(room);
        }
        found
    }
}

/// The line that tells of a sibling's announcement: names and paths, quoted, and nothing that
/// another agent wrote freely.
fn notice(checkout: &str, theirs: &SharedRow, attached: bool, pairs: &Pairs) -> String {
    let quoted = |text: &str| format!("{:?}", Line::name(text).as_str());
    let departed = if attached { "" } else { ", departed" };
    let (mine, their) = pairs
        .pairs
        .first()
        .map_or(("", ""), |(mine, their)| (mine.as_str(), their.as_str()));
    let mut line = format!(
        "{}@{} ({}{departed}) claims {}, which meets your claim {}",
        theirs.id,
        checkout.get(..6).unwrap_or(checkout),
        quoted(theirs.client.name.as_str()),
        quoted(their),
        quoted(mine),
    );
    let more = pairs.pairs.len().saturating_sub(1) + pairs.more;
    if more > 0 {
        line = format!("{line}; {more} more pairs: see the board");
    }
    line
}

impl NodeHandle {
    /// Begins a tenure's links: the own board is told from now on.
    pub(crate) async fn begin_links(&self, beginning: Beginning) -> Result<(), Failure> {
        self.ask(move |state| state.begin_neighbours(beginning))
            .await
    }

    /// Hands in what came of the links.
    pub(crate) async fn links_input(&self, input: Input) -> Result<(), Failure> {
        self.ask(move |state| state.neighbours_input(input)).await
    }

    /// Asks all linked siblings whether what is held of them is current, until the deadline; says
    /// of whom nothing is known for certain.
    pub(crate) async fn ask_siblings(
        &self,
        deadline: Now,
    ) -> Result<Vec<(String, String)>, Failure> {
        let asked = self
            .ask(move |state| {
                let neighbours = state.neighbours.as_mut()?;
                let number = neighbours.next_question;
                neighbours.next_question += 1;
                let (answer, asked) = oneshot::channel();
                neighbours.questions.insert(number, answer);
                state.neighbours_input(Input::Ask { number, deadline });
                Some(asked)
            })
            .await?;
        let Some(asked) = asked else {
            return Ok(Vec::new());
        };
        Ok(named(asked.await.unwrap_or_default()))
    }
}
