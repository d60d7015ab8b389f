//! The invariants, whatever happens in whatever order.

use proptest::prelude::*;

use super::*;

/// One thing that may happen to the machine.
#[derive(Debug, Clone)]
enum Happening {
    Request,
    Cancel(u32),
    /// The exchange with this number, counted from the newest, goes on like that.
    Goes(u64, u8),
    Search(u8),
    Time(u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => Just(Happening::Request),
        1 => (0..30_u32).prop_map(Happening::Cancel),
        8 => (0..6_u64, 0..8_u8).prop_map(|(back, what)| Happening::Goes(back, what)),
        3 => (0..3_u8).prop_map(Happening::Search),
        2 => (0..40_000_u64).prop_map(Happening::Time),
    ]
}

fn apply(world: &mut World, happening: &Happening, next_id: &mut u32) {
    match *happening {
        Happening::Request => {
            *next_id += 1;
            world.request(&next_id.to_string(), "a");
        }
        Happening::Cancel(id) => world.line(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        )),
        Happening::Goes(back, what) => {
            let Some(attempt) = world.session.next_attempt.checked_sub(back + 1) else { return };
            let answer = Bytes::from_static(br#"{"id":0,"result":{"protocolVersion":"v"}}"#);
            world.event(
                attempt,
                match what {
                    0 | 1 => head(what == 0, Some("s")),
                    2 | 3 => Event::Message(answer),
                    4 => Event::End(End::Done),
                    5 => Event::End(refused(404)),
                    6 => Event::End(refused(503)),
                    _ => Event::End(lost()),
                },
            );
        }
        Happening::Search(how) => world.found(match how {
            0 => Err(FindError::Transient("later".to_owned())),
            _ => Ok(how.into()),
        }),
        Happening::Time(ms) => world.run_for(Duration::from_millis(ms)),
    }
}

proptest! {
    /// Invariants 1 and 2, whatever happens.
    #[test]
    fn every_request_is_answered_at_most_once_and_keeps_its_number(
        happenings in prop::collection::vec(happening(), 0..120),
    ) {
        let mut world = World::attached();
        let mut next_id = 1;
        for happening in &happenings {
            apply(&mut world, happening, &mut next_id);
        }
        world.input(Input::Line(Line::End));
        world.run_for(DRAIN);

        let mut answered = ids(&world.written());
        for id in &mut answered {
            id.truncate(id.find(':').unwrap_or(id.len()));
        }
        answered.sort();
        let all = answered.len();
        answered.dedup();
        prop_assert_eq!(all, answered.len(), "no id is answered twice");
        prop_assert_eq!(world.effects().last().map(|last| last.starts_with("end")), Some(true));

        let mut numbers: BTreeMap<String, Bytes> = BTreeMap::new();
        for call in world.calls.iter().filter(|call| call.headers.contains_key(EARSHOT_REQUEST)) {
            let frame = numbers.entry(number(call).to_owned()).or_insert_with(|| call.body.clone());
            prop_assert_eq!(&*frame, &call.body, "a number stands for one frame");
        }
    }
}
