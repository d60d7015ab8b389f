//! Random sequences of operations against a board that compares everything with everything.

use proptest::prelude::*;

use super::*;

/// Enough that more depart than are kept.
const KEYS: u8 = 60;

#[derive(Clone, Debug)]
enum Operation {
    Attach(u8),
    Touch(u8),
    StreamOpened(u8, u64),
    StreamClosed(u8, u64),
    Detach(u8),
    Announce(u8, Option<u64>, Vec<&'static str>),
    Withdraw(u8, Option<u64>),
    TakeNotices(u8),
    Wait(u64),
    Restart,
}

fn operation() -> impl Strategy<Value = Operation> {
    let paths = vec!["a", "a/b", "a/b/c", "ab", "b", "b/a", ".", "c", "d", "e"];
    let paths = prop::collection::vec(prop::sample::select(paths), 0..4);
    let n = || prop::option::of(1_u64..9);
    prop_oneof![
        6 => (0..KEYS).prop_map(Operation::Attach),
        2 => (0..KEYS).prop_map(Operation::Touch),
        1 => (0..KEYS, 0_u64..3).prop_map(|(key, id)| Operation::StreamOpened(key, id)),
        1 => (0..KEYS, 0_u64..3).prop_map(|(key, id)| Operation::StreamClosed(key, id)),
        3 => (0..KEYS).prop_map(Operation::Detach),
        6 => (0..KEYS, n(), paths).prop_map(|(key, n, paths)| Operation::Announce(key, n, paths)),
        1 => (0..KEYS, n()).prop_map(|(key, n)| Operation::Withdraw(key, n)),
        2 => (0..KEYS).prop_map(Operation::TakeNotices),
        1 => (1_u64..120).prop_map(Operation::Wait),
        1 => Just(Operation::Restart),
    ]
}

/// Some keys are processes, which are never silent.
fn key(number: u8) -> PeerKey {
    if number.is_multiple_of(11) {
        PeerKey::Cli {
            pid: number.into(),
            started_at: 1,
        }
    } else {
        seat(number)
    }
}

#[derive(Clone, Debug)]
struct ModelRow {
    id: u64,
    key: PeerKey,
    /// `None` once departed.
    heard: Option<u64>,
    streams: BTreeSet<u64>,
    departure: u64,
    n: u64,
    claims: Option<Claims>,
    notices: Vec<u64>,
    dropped: usize,
}

#[derive(Debug, Default)]
struct Model {
    rows: Vec<ModelRow>,
    ids: u64,
    departures: u64,
    now: u64,
}

fn meet(a: &ModelRow, b: &ModelRow) -> bool {
    let (Some(a), Some(b)) = (&a.claims, &b.claims) else {
        return false;
    };
    !pairs(a, b, Case::Kept).pairs.is_empty()
}

impl Model {
    fn row(&mut self, key: &PeerKey) -> Option<&mut ModelRow> {
        self.rows.iter_mut().find(|row| row.key == *key)
    }

    fn attached(&mut self, key: &PeerKey) -> Option<&mut ModelRow> {
        self.row(key).filter(|row| row.heard.is_some())
    }

    fn attach(&mut self, key: &PeerKey) -> u64 {
        let now = self.now;
        if let Some(row) = self.row(key) {
            row.heard = Some(now);
            return row.id;
        }
        self.ids += 1;
        self.rows.push(ModelRow {
            id: self.ids,
            key: key.clone(),
            heard: Some(now),
            streams: BTreeSet::new(),
            departure: 0,
            n: 0,
            claims: None,
            notices: Vec::new(),
            dropped: 0,
        });
        self.ids
    }

    fn detach(&mut self, key: &PeerKey) -> bool {
        self.departures += 1;
        let departure = self.departures;
        let Some(row) = self.attached(key) else {
            return false;
        };
        row.heard = None;
        row.streams.clear();
        row.departure = departure;
        self.rows
            .retain(|row| row.heard.is_some() || row.claims.is_some());
        let mut departures: Vec<u64> = self
            .rows
            .iter()
            .filter(|row| row.heard.is_none())
            .map(|row| row.departure)
            .collect();
        departures.sort_unstable();
        let forgotten = departures.len().saturating_sub(DEPARTED_MAX);
        for oldest in departures.into_iter().take(forgotten) {
            self.rows
                .retain(|row| row.heard.is_some() || row.departure != oldest);
        }
        self.settle();
        true
    }

    /// Takes notices back whose claims no longer meet.
    fn settle(&mut self) {
        let before = self.rows.clone();
        for row in &mut self.rows {
            let now_meets = |id: &u64| before.iter().any(|it| it.id == *id && meet(it, row));
            row.notices = row
                .notices
                .iter()
                .filter(|id| now_meets(id))
                .copied()
                .collect();
        }
    }

    fn announce(&mut self, key: &PeerKey, n: Option<u64>, claims: &Claims) -> Option<Verdict> {
        let row = self.attached(key)?;
        let n_new = n.unwrap_or(row.n + 1);
        if n_new < row.n || (n_new == row.n && row.claims.is_none()) {
            self.told(key);
            return Some(Verdict::Older);
        }
        if n_new == row.n {
            let same = row.claims.as_ref() == Some(claims);
            if same {
                self.told(key);
            }
            return same.then_some(Verdict::Repeated);
        }
        let old = row.claims.replace(claims.clone()).unwrap_or_default();
        row.n = n_new;
        let mine = row.clone();
        let mut news = mine.clone();
        news.claims = Some(claims.added_to(&old));
        self.settle();
        for other in self.rows.iter_mut().filter(|other| other.id != mine.id) {
            if meet(&news, other) {
                other.notices.retain(|id| *id != mine.id);
                other.notices.push(mine.id);
                if other.notices.len() == NOTICES_MAX {
                    other.notices.remove(0);
                    other.dropped += 1;
                }
            }
        }
        self.told(key);
        Some(Verdict::Taken)
    }

    /// The answer to an announcement tells of the first others that it meets.
    fn told(&mut self, key: &PeerKey) {
        let Some(mine) = self.row(key).cloned() else {
            return;
        };
        let mut others: Vec<u64> = self.met(&mine);
        others.truncate(PAIRS_MAX);
        if let Some(row) = self.row(key) {
            row.notices.retain(|id| !others.contains(id));
        }
    }

    fn met(&self, mine: &ModelRow) -> Vec<u64> {
        let mut others: Vec<u64> = self
            .rows
            .iter()
            .filter(|it| it.id != mine.id && meet(it, mine))
            .map(|it| it.id)
            .collect();
        others.sort_unstable();
        others
    }

    fn collisions(&self) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        for a in &self.rows {
            found.extend(
                self.met(a)
                    .into_iter()
                    .filter(|b| *b > a.id)
                    .map(|b| (a.id, b)),
            );
        }
        found.sort_unstable();
        found
    }

    fn deadline(row: &ModelRow) -> Option<u64> {
        let silent = row.streams.is_empty() && matches!(row.key, PeerKey::Seat(_));
        row.heard
            .filter(|_| silent)
            .map(|heard| heard + SILENCE_MAX.as_secs())
    }
}

fn apply(bench: &mut Bench, model: &mut Model, operation: Operation) {
    let now = at(model.now);
    match operation {
        Operation::Attach(number) => {
            let peer = bench.attach(&key(number), now).peer();
            assert_eq!(peer.number(), model.attach(&key(number)));
        }
        Operation::Touch(number) => {
            let (clock, touched) = (model.now, bench.board.touch(&key(number), now, WALL));
            let row = model.attached(&key(number));
            assert_eq!(touched.map(PeerId::number), row.as_ref().map(|row| row.id));
            if let Some(row) = row {
                row.heard = Some(clock);
            }
        }
        Operation::StreamOpened(number, id) => {
            let opened = bench.board.stream_opened(&key(number), StreamId(id), WALL);
            let row = model.attached(&key(number));
            assert_eq!(opened.is_ok(), row.is_some());
            if let Some(row) = row {
                row.streams.insert(id);
            }
        }
        Operation::StreamClosed(number, id) => {
            bench
                .board
                .stream_closed(&key(number), StreamId(id), now, WALL);
            let clock = model.now;
            if let Some(row) = model
                .attached(&key(number))
                .filter(|row| row.streams.contains(&id))
            {
                row.streams.remove(&id);
                row.heard = Some(clock);
            }
        }
        Operation::Detach(number) => {
            assert_eq!(
                bench.detach(&key(number)).is_some(),
                model.detach(&key(number))
            );
        }
        Operation::Announce(number, n, paths) => announce(bench, model, &key(number), n, &paths),
        Operation::Withdraw(number, n) => withdraw(bench, model, &key(number), n),
        Operation::TakeNotices(number) => take_notices(bench, model, &key(number)),
        Operation::Wait(seconds) => wait(bench, model, seconds),
        Operation::Restart => {
            bench.restart(now);
            model.ids = model
                .rows
                .iter()
                .map(|row| row.id)
                .max()
                .unwrap_or_default();
            for row in model.rows.iter_mut().filter(|row| row.heard.is_some()) {
                row.heard = Some(model.now);
                row.streams.clear();
            }
        }
    }
}

fn announce(bench: &mut Bench, model: &mut Model, key: &PeerKey, n: Option<u64>, paths: &[&str]) {
    let wanted = model.announce(key, n, &Claims::parse(paths).unwrap());
    match bench.board.announce(key, said(n, "work", paths), WALL) {
        Ok(applied) => {
            let answer = bench.write(applied);
            assert_eq!(Some(answer.verdict), wanted);
            let mine = model.row(key).cloned().unwrap();
            let met: Vec<u64> = answer
                .meetings
                .met
                .iter()
                .map(|it| it.peer.number())
                .collect();
            let others = model.met(&mine);
            assert_eq!(met, others[..others.len().min(PAIRS_MAX)]);
            assert_eq!(answer.meetings.more, others.len() - met.len());
        }
        Err(_) => assert_eq!(wanted, None),
    }
}

fn withdraw(bench: &mut Bench, model: &mut Model, key: &PeerKey, n: Option<u64>) {
    let answer = bench
        .board
        .withdraw(key, n)
        .map(|applied| bench.write(applied));
    let Some(row) = model.attached(key) else {
        assert_eq!(answer, Err(NotAttached));
        return;
    };
    let n = n.unwrap_or(row.n + 1);
    let wanted = match row.claims {
        Some(_) if n <= row.n => Withdrawn::Older,
        Some(_) => Withdrawn::Taken,
        None => Withdrawn::Nothing,
    };
    assert_eq!(answer, Ok(wanted));
    if n > row.n {
        (row.n, row.claims) = (n, None);
        model.settle();
    }
}

fn take_notices(bench: &mut Bench, model: &mut Model, key: &PeerKey) {
    let lines = bench.notices(key);
    assert!(lines.len() <= NOTICES_MAX);
    let Some(row) = model.row(key) else {
        assert!(lines.is_empty());
        return;
    };
    let about = lines
        .iter()
        .filter_map(|line| line.split(' ').next()?.parse().ok());
    assert_eq!(about.map(PeerId::number).collect::<Vec<_>>(), row.notices);
    assert_eq!(
        lines.len(),
        row.notices.len() + usize::from(row.dropped > 0)
    );
    (row.notices, row.dropped) = (Vec::new(), 0);
}

fn wait(bench: &mut Bench, model: &mut Model, seconds: u64) {
    model.now += seconds;
    let departed = bench.expire(at(model.now));
    // Those that fall silent together depart in the order in which the board names them.
    for peer in &departed {
        let row = model
            .rows
            .iter()
            .find(|row| row.id == peer.number())
            .unwrap();
        assert!(Model::deadline(row).unwrap() <= model.now);
        let key = row.key.clone();
        model.detach(&key);
    }
}

fn compare(bench: &Bench, model: &Model) {
    let board = &bench.board;
    let mut rows: Vec<&ModelRow> = model.rows.iter().collect();
    rows.sort_unstable_by_key(|row| row.id);
    assert_eq!(board.rows().count(), rows.len());
    for (row, wanted) in board.rows().zip(rows) {
        assert_eq!(
            (row.id.number(), row.attached()),
            (wanted.id, wanted.heard.is_some())
        );
        assert_eq!(row.key(), &wanted.key);
        assert_eq!(row.word.n().unwrap_or_default(), wanted.n);
        assert_eq!(
            row.announcement().map(|it| &it.claims),
            wanted.claims.as_ref()
        );
        let about = row.notices.about.iter().map(|peer| peer.number());
        assert_eq!(about.collect::<Vec<_>>(), wanted.notices);
        if let Some(deadline) = Model::deadline(wanted) {
            assert!(deadline > model.now && board.next_deadline() <= Some(at(deadline)));
            assert!(board.next_deadline().is_some());
        }
    }
    assert_eq!(
        board.count(),
        model.rows.iter().filter(|row| row.heard.is_some()).count()
    );
    let found = board.collisions();
    let wanted = model.collisions();
    let told: Vec<_> = found
        .collisions
        .iter()
        .map(|it| (it.a.number(), it.b.number()))
        .collect();
    assert_eq!(told, wanted[..wanted.len().min(PAIRS_MAX)]);
    assert_eq!(found.more, wanted.len() - told.len());
    // The journal holds the board, but for when a peer was heard of last.
    let records: BTreeMap<u64, PeerRecord> = board
        .rows()
        .map(|row| (row.id.number(), board.record(row.id).unwrap()))
        .collect();
    assert_eq!(bench.journal, records);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // Invariants 1 to 5.
    #[test]
    fn a_board_does_what_a_naive_one_does(
        operations in prop::collection::vec(operation(), 0..400),
    ) {
        let (mut bench, mut model) = (Bench::new(), Model::default());
        for operation in operations {
            apply(&mut bench, &mut model, operation);
            compare(&bench, &model);
        }
    }
}
