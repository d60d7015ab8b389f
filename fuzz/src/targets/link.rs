//! What another end of a link sends.

use std::sync::OnceLock;

use earshot_proto::mesh::frame::{FRAME_BYTES_MAX, Frames, framed};
use earshot_proto::mesh::link::{Effect, End, Input, Link, Me};
use earshot_proto::mesh::message::{Delta, Message};
use earshot_proto::mesh::replica::Replicas;
use earshot_proto::text::Line;
use earshot_proto::{Now, Timestamp};
use earshot_trust::{NodeCertificate, PublicKey, SecretKey, open};

/// This end, whose keys are dear to make.
static ME: OnceLock<Me> = OnceLock::new();

fn me() -> Me {
    let machine = SecretKey::from_seed([1; 32]);
    let node = SecretKey::from_seed([4; 32]);
    Me {
        certificate: NodeCertificate::issue(&machine, node.public(), [3; 16], 9),
        machine,
        node,
        release: Line::name("0.1.0"),
    }
}

/// Kind of the message whose payload [`sync_delta`] takes.
const DELTA: u8 = 3;

/// Cuts a stream into frames: none is too long, and together they are what came.
///
/// # Panics
/// When a promise is broken.
pub fn frame(bytes: &[u8]) {
    let (cut, stream) = match bytes.split_first() {
        Some((first, rest)) => (usize::from(*first).max(1), rest),
        None => return,
    };
    let mut frames = Frames::default();
    let mut again = Vec::new();
    for piece in stream.chunks(cut) {
        frames.push(piece);
        loop {
            match frames.pull() {
                Ok(Some(frame)) => {
                    assert!(!frame.is_empty() && frame.len() <= FRAME_BYTES_MAX);
                    again.extend(framed(&frame));
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    assert!(stream.starts_with(&again), "frames are what came, in order");
}

/// Opens an envelope, and reads bytes as the other end of a link: a stranger's end never comes up.
///
/// # Panics
/// When a promise is broken.
pub fn envelope(bytes: &[u8]) {
    if let Ok(opened) = open(bytes) {
        let mut bent = bytes.to_vec();
        if let Some(byte) = bent.get_mut(2) {
            *byte ^= 1;
        }
        assert!(open(&bent).is_err(), "the kind is signed");
        Message::decode(opened.header.kind, opened.payload).ok(); // refused or read, it returns
    }
    let me = ME.get_or_init(me);
    let (mut link, _) = Link::begin(Now::START, me, End::Acceptor, 1, [6; 32]);
    let wall = Timestamp::UNIX_EPOCH;
    for effect in link.handle(Now::START, me, wall, &Input::Received(bytes)) {
        match effect {
            Effect::Write(_) | Effect::Close(_) => {}
            // The one seed that is a whole conversation of the machine's own node.
            Effect::Up(sibling) => assert_eq!(sibling.machine, me.machine.public()),
            Effect::Got(message) => panic!("{message:?} before any was said"),
        }
    }
}

/// Reads a delta and applies it: whole, to the state that it names, or not at all.
///
/// # Panics
/// When a promise is broken.
pub fn sync_delta(bytes: &[u8]) {
    let Ok(Message::Delta(delta)) = Message::decode(DELTA, bytes) else {
        return;
    };
    let (kind, payload) = Message::Delta(delta.clone()).encode();
    let again = Message::decode(kind, &payload);
    assert_eq!(
        again,
        Ok(Message::Delta(delta.clone())),
        "it is said as it was read"
    );
    let node = PublicKey::new([7; 32]);
    let mut replicas = Replicas::new(PublicKey::new([8; 32]));
    let everything = Delta {
        base: None,
        ..delta.clone()
    };
    for delta in [&delta, &everything] {
        let before = replicas.held(&node);
        match replicas.apply(Now::START, node, [3; 16], delta) {
            Ok(_) => assert_eq!(replicas.held(&node), Some(delta.now)),
            Err(_) => assert_eq!(replicas.held(&node), before),
        }
    }
}
