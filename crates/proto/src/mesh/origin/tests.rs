use earshot_trust::SecretKey;
use proptest::prelude::*;

use super::super::message::Message;
use super::super::message::tests::row;
use super::super::replica::{DeltaError, Replicas};
use super::*;
use crate::time::Now;

fn peer(n: u64) -> PeerId {
    PeerId::new(n).unwrap()
}

fn node() -> earshot_trust::PublicKey {
    SecretKey::from_seed([1; 32]).public()
}

fn apply(replicas: &mut Replicas, delta: &Delta) -> Result<(), DeltaError> {
    replicas.apply(Now::START, node(), [2; 16], delta).map(drop)
}

fn rows_of(replicas: &Replicas) -> Vec<SharedRow> {
    let replica = replicas.node(&node()).unwrap();
    replica.rows().cloned().collect()
}

fn rows_in(origin: &Origin) -> Vec<SharedRow> {
    origin.rows.values().map(|told| told.row.clone()).collect()
}

#[test]
fn nothing_is_told_of_what_did_not_change() {
    let mut origin = Origin::new(5, Facts::default());
    origin.put(row(1, &["src"]));
    let state = origin.id();
    origin.put(row(1, &["src"]));
    origin.remove(peer(9));
    origin.set_facts(Facts::default());
    assert_eq!(origin.id(), state);
    assert_eq!(origin.since(Some(state)), None);
}

#[test]
fn a_state_of_another_epoch_or_of_the_future_is_answered_with_everything() {
    let mut origin = Origin::new(5, Facts::default());
    origin.put(row(1, &["src"]));
    let state = origin.id();
    origin.put(row(2, &["src"]));
    assert_eq!(origin.since(Some(state)).unwrap().base, Some(state));
    let strange = [
        StateId { epoch: 4, ..state },
        StateId { epoch: 6, ..state },
        StateId {
            version: 99,
            ..state
        },
    ];
    for base in strange {
        let delta = origin.since(Some(base)).unwrap();
        assert_eq!(delta.base, None, "{base:?}");
        assert_eq!(delta.put.len(), 2);
    }
}

#[test]
fn who_is_further_behind_than_is_remembered_is_told_everything() {
    let mut origin = Origin::new(5, Facts::default());
    let first = origin.id();
    for n in 0..=u64::try_from(GONE_MAX).unwrap() {
        origin.put(row(n + 1, &[]));
        origin.remove(peer(n + 1));
    }
    assert_eq!(origin.since(Some(first)).unwrap().base, None);
}

#[test]
fn rows_beyond_the_bound_are_counted_and_come_when_there_is_room() {
    let mut origin = Origin::new(5, Facts::default());
    let most = u64::try_from(SHARED_ROWS_MAX).unwrap();
    for n in 1..=most + 2 {
        origin.put(row(n, &["src"]));
    }
    assert_eq!(rows_in(&origin).len(), SHARED_ROWS_MAX);
    assert_eq!(origin.facts.left_out, 2);
    let (kind, payload) = Message::Delta(origin.since(None).unwrap()).encode();
    assert!(Message::decode(kind, &payload).is_ok());
    origin.remove(peer(1));
    assert_eq!(origin.facts.left_out, 1);
    assert!(origin.rows.contains_key(&peer(most + 1)));
    origin.remove(peer(most + 2));
    assert_eq!(origin.facts.left_out, 0);
}

#[test]
fn the_largest_state_fits_into_one_message() {
    let mut origin = Origin::new(5, Facts::default());
    let long = "x".repeat(1_000);
    let paths = [
        format!("a/{long}"),
        format!("b/{long}"),
        format!("c/{long}"),
    ];
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    for n in 1..=u64::try_from(SHARED_ROWS_MAX).unwrap() {
        origin.put(row(n, &paths));
    }
    assert!(origin.facts.left_out > 0);
    let (_, payload) = Message::Delta(origin.since(None).unwrap()).encode();
    assert!(
        payload.len() <= super::super::frame::PAYLOAD_BYTES_MAX,
        "{}",
        payload.len()
    );
}

#[test]
fn an_epoch_that_a_sibling_remembers_is_outbid() {
    let mut origin = Origin::new(5, Facts::default());
    origin.put(row(1, &["src"]));
    let mut replicas = Replicas::new(SecretKey::from_seed([99; 32]).public());
    apply(&mut replicas, &origin.since(None).unwrap()).unwrap();
    // The node comes again with an earlier epoch: everything was lost, the clock too.
    let mut again = Origin::new(3, Facts::default());
    let refused = apply(&mut replicas, &again.since(None).unwrap());
    assert_eq!(refused, Err(DeltaError::Epoch));
    assert!(again.outbid(replicas.highest_epoch(&node())));
    assert!(!again.outbid(5));
    assert!(!again.outbid(u64::MAX));
    apply(&mut replicas, &again.since(None).unwrap()).unwrap();
    assert_eq!(rows_of(&replicas), []);
}

#[test]
fn a_delta_that_does_not_fit_changes_nothing() {
    let mut origin = Origin::new(5, Facts::default());
    origin.put(row(1, &["src"]));
    let mut replicas = Replicas::new(SecretKey::from_seed([99; 32]).public());
    apply(&mut replicas, &origin.since(None).unwrap()).unwrap();
    let before = rows_of(&replicas);
    let held = replicas.held(&node());
    origin.put(row(2, &["docs"]));
    let skipped = origin.id();
    origin.put(row(3, &["docs"]));
    let bent = Delta {
        put: Vec::new(),
        ..origin.since(held).unwrap()
    };
    assert_eq!(apply(&mut replicas, &bent), Err(DeltaError::Hash));
    let late = origin.since(Some(skipped)).unwrap();
    assert_eq!(apply(&mut replicas, &late), Err(DeltaError::Base));
    assert_eq!((rows_of(&replicas), replicas.held(&node())), (before, held));
}

#[derive(Clone, Debug)]
enum Step {
    Put(u64, u8),
    Remove(u64),
    Facts(u32),
    Tell,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..12_u64, 0..4_u8).prop_map(|(id, path)| Step::Put(id, path)),
        2 => (1..12_u64).prop_map(Step::Remove),
        1 => (0..3_u32).prop_map(Step::Facts),
        3 => Just(Step::Tell),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn a_replica_is_always_a_state_that_its_origin_had(steps in steps()) {
        let mut origin = Origin::new(5, Facts::default());
        let mut replicas = Replicas::new(SecretKey::from_seed([99; 32]).public());
        for step in steps {
            match step {
                Step::Put(id, path) => origin.put(row(id, &[&format!("src/{path}")])),
                Step::Remove(id) => origin.remove(peer(id)),
                Step::Facts(attached) => origin.set_facts(Facts { attached, ..Facts::default() }),
                Step::Tell => {
                    if let Some(delta) = origin.since(replicas.held(&node())) {
                        // As it travels.
                        let (kind, payload) = Message::Delta(delta).encode();
                        let Message::Delta(delta) = Message::decode(kind, &payload).unwrap() else {
                            panic!("a delta");
                        };
                        apply(&mut replicas, &delta).unwrap();
                    }
                    prop_assert_eq!(replicas.held(&node()), Some(origin.id()));
                    prop_assert_eq!(rows_of(&replicas), rows_in(&origin));
                }
            }
        }
    }
}
