use proptest::prelude::*;

use super::*;

fn decode<C: AsRef<[u8]>>(chunks: impl IntoIterator<Item = C>) -> Vec<String> {
    let mut decoder = SseDecoder::new(1024);
    let mut events = Vec::new();
    for chunk in chunks {
        decoder
            .feed(chunk.as_ref(), &mut events)
            .expect("within the limit");
    }
    events
        .iter()
        .map(|event| String::from_utf8_lossy(event).into_owned())
        .collect()
}

/// A stream with everything that a stream may hold, and the data in it.
const STREAM: &str = "\u{feff}: a comment\r\nevent: message\ndata: {\"ü\":1}\n\nid: 4\nretry: 3000\r\
data:first\rdata: second\r\rdata:\n\n: ping\n\ndata: :colon\r\n\r\nunknown: x\ndata\ndata:  two\n\n\
data: never ended";
const DATA: [&str; 4] = ["{\"ü\":1}", "first\nsecond", ":colon", "\n two"];

#[test]
fn only_data_is_reported() {
    assert_eq!(decode([STREAM.as_bytes()]), DATA);
}

#[test]
fn chunks_may_end_anywhere() {
    let bytes = STREAM.as_bytes();
    for at in 0..=bytes.len() {
        let (left, right) = bytes.split_at(at);
        assert_eq!(decode([left, right]), DATA, "split at {at}");
    }
    assert_eq!(decode(bytes.chunks(1)), DATA);
}

#[test]
fn an_event_beyond_the_limit_is_refused() {
    let mut decoder = SseDecoder::new(16);
    let mut events = Vec::new();

    assert_eq!(decoder.feed(b"data: 12345\n\n", &mut events), Ok(()));
    assert_eq!(decoder.feed(b"data: 12345\ndata: 67", &mut events), Ok(()));
    assert_eq!(
        decoder.feed(b"890123", &mut events),
        Err(EventTooLarge { limit: 16 })
    );
}

proptest! {
    #[test]
    fn the_split_never_matters(
        stream in "(data:|event:|: |id|[a-z ü]|\r|\n|\u{feff}){0,60}",
        cuts in prop::collection::vec(0..200_usize, 0..6),
    ) {
        let bytes = stream.as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let chunks = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]);

        prop_assert_eq!(decode(chunks), decode([bytes]));
    }
}
