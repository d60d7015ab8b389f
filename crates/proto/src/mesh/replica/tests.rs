use earshot_trust::SecretKey;
use proptest::prelude::*;

use super::super::message::tests::row;
use super::super::origin::Origin;
use super::*;

const REPOSITORY: Facts = Facts {
    repository: Some([1; 16]),
    ignores_case: false,
    attached: 0,
    left_out: 0,
};

fn key(n: u8) -> PublicKey {
    SecretKey::from_seed([n; 32]).public()
}

fn of(n: u8, peer: u64) -> RowRef {
    RowRef {
        node: key(n),
        peer: PeerId::new(peer).unwrap(),
    }
}

fn claims(paths: &[&str]) -> Claims {
    Claims::parse(paths).unwrap()
}

/// Tells a node everything of another.
fn tell(replicas: &mut Replicas, n: u8, origin: &mut Origin) {
    let held = replicas.held(&key(n));
    if let Some(delta) = origin.since(held) {
        replicas.apply(Now::START, key(n), [n; 16], &delta).unwrap();
    }
}

fn met(replicas: &Replicas) -> Vec<(RowRef, RowRef)> {
    let (found, more) = replicas.collisions(None, usize::MAX);
    assert_eq!(more, 0, "what is counted is found");
    found.into_iter().map(|met| (met.a, met.b)).collect()
}

fn ordered(a: RowRef, b: RowRef) -> (RowRef, RowRef) {
    if a < b { (a, b) } else { (b, a) }
}

#[test]
fn rows_meet_across_nodes_and_within_another_one_and_own_ones_not_among_themselves() {
    let mut replicas = Replicas::new(key(1));
    replicas.say_own(PeerId::FIRST, Some(&claims(&["src"])), REPOSITORY);
    let second = PeerId::new(2).unwrap();
    replicas.say_own(second, Some(&claims(&["src"])), REPOSITORY);
    assert_eq!(met(&replicas), []);
    let mut other = Origin::new(5, REPOSITORY);
    other.put(row(1, &["src/a"]));
    other.put(row(2, &["src/a/b", "docs"]));
    tell(&mut replicas, 2, &mut other);
    let mut wanted = vec![
        ordered(of(1, 1), of(2, 1)),
        ordered(of(1, 1), of(2, 2)),
        ordered(of(1, 2), of(2, 1)),
        ordered(of(1, 2), of(2, 2)),
        ordered(of(2, 1), of(2, 2)),
    ];
    wanted.sort_unstable();
    assert_eq!(met(&replicas), wanted);
    let (found, more) = replicas.collisions(Some([1; 16]), 2);
    assert_eq!((found.len(), more), (2, 3));
    assert_eq!(replicas.collisions(Some([9; 16]), 9), (Vec::new(), 0));
    let meeting = replicas.meeting(&claims(&["docs/x"]), REPOSITORY);
    assert_eq!(meeting.len(), 1, "own rows are not among them");
    assert_eq!(meeting[0].0, of(2, 2));
    replicas.forget(&key(2));
    assert_eq!(met(&replicas), []);
}

#[test]
fn rows_of_other_repositories_and_of_folders_without_one_meet_nobody() {
    for repository in [None, Some([2; 16])] {
        let mut replicas = Replicas::new(key(1));
        replicas.say_own(PeerId::FIRST, Some(&claims(&["src"])), REPOSITORY);
        let mut other = Origin::new(
            5,
            Facts {
                repository,
                ..REPOSITORY
            },
        );
        other.put(row(1, &["src"]));
        tell(&mut replicas, 2, &mut other);
        assert_eq!(met(&replicas), []);
    }
}

#[test]
fn names_fold_case_where_either_side_does_also_when_that_changes() {
    let mut replicas = Replicas::new(key(1));
    replicas.say_own(PeerId::FIRST, Some(&claims(&["SRC"])), REPOSITORY);
    let mut other = Origin::new(5, REPOSITORY);
    other.put(row(1, &["src/a"]));
    tell(&mut replicas, 2, &mut other);
    assert_eq!(met(&replicas), []);
    other.set_facts(Facts {
        ignores_case: true,
        ..REPOSITORY
    });
    tell(&mut replicas, 2, &mut other);
    assert_eq!(met(&replicas), [ordered(of(1, 1), of(2, 1))]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn what_is_counted_is_what_a_comparison_of_all_with_all_finds(
        steps in prop::collection::vec((1..4_u8, 1..4_u64, 0..8_usize), 1..40)
    ) {
        const PATHS: [&str; 7] = [".", "a", "a/b", "a/b/c", "a/x", "ab", "c"];
        let mut replicas = Replicas::new(key(1));
        let mut origins: BTreeMap<u8, Origin> =
            [2, 3].into_iter().map(|n| (n, Origin::new(5, REPOSITORY))).collect();
        let mut all: BTreeMap<RowRef, Claims> = BTreeMap::new();
        for (n, peer, path) in steps {
            let row_ref = of(n, peer);
            let path = PATHS.get(path).copied();
            match path {
                Some(path) => all.insert(row_ref, claims(&[path])),
                None => all.remove(&row_ref),
            };
            if n == 1 {
                let said = path.map(|path| claims(&[path]));
                replicas.say_own(row_ref.peer, said.as_ref(), REPOSITORY);
            } else if let Some(origin) = origins.get_mut(&n) {
                match path {
                    Some(path) => origin.put(row(peer, &[path])),
                    None => origin.remove(row_ref.peer),
                }
                tell(&mut replicas, n, origin);
            }
            let mut wanted = Vec::new();
            for (a, one) in &all {
                for (b, other) in all.range(*a..).skip(1) {
                    let both_own = a.node == key(1) && b.node == key(1);
                    let found = pairs(one, other, Case::Kept);
                    if !both_own && !found.pairs.is_empty() {
                        wanted.push((*a, *b));
                    }
                }
            }
            prop_assert_eq!(met(&replicas), wanted);
        }
    }
}
