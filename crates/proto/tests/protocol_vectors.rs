//! The bytes in `docs/protocol.md` are the bytes that nodes send.
//!
//! A vector is a block of the document that begins with ```` ```vector NAME ````. When one changes,
//! an older node can no longer read a newer one: raise the version of the protocol.

use std::collections::BTreeMap;

use earshot_proto::board::{Client, Transport};
use earshot_proto::claims::Claims;
use earshot_proto::mesh::frame::framed;
use earshot_proto::mesh::link::{End, Link, Me};
use earshot_proto::mesh::message::{
    Delta, Facts, Hello, Holds, Leave, Message, SharedRow, SharedWord, StateId,
};
use earshot_proto::text::Line;
use earshot_proto::{Now, PeerId, Timestamp};
use earshot_trust::{EnvelopeHeader, LinkId, NodeCertificate, SecretKey, seal, sign_presence};

const DOCUMENT: &str = include_str!("../../../docs/protocol.md");

fn documented() -> BTreeMap<String, String> {
    let mut vectors = BTreeMap::new();
    let mut blocks = DOCUMENT.split("```vector ");
    blocks.next();
    for block in blocks {
        let (name, rest) = block.split_once('\n').expect("a name on its line");
        let (hex, _) = rest.split_once("```").expect("an end of the block");
        let hex: String = hex.split_whitespace().collect();
        vectors.insert(name.trim().to_owned(), hex);
    }
    vectors
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The dialler of the document: its machine's seed is 32 times 01, its own 32 times 02.
fn dialler() -> Me {
    let machine = SecretKey::from_seed([1; 32]);
    let node = SecretKey::from_seed([2; 32]);
    Me {
        certificate: NodeCertificate::issue(&machine, node.public(), [3; 16], 1_700_000_000_000),
        machine,
        node,
        release: Line::name("0.1.0"),
    }
}

fn greeting(node: &SecretKey, nonce: [u8; 32]) -> Vec<u8> {
    let me = Me {
        node: node.clone(),
        ..dialler()
    };
    Link::begin(Now::START, &me, End::Dialler, 1, nonce).1
}

fn state() -> StateId {
    StateId {
        epoch: 1_700_000_000_000,
        version: 2,
        hash: [0xaa; 16],
    }
}

fn row() -> SharedRow {
    SharedRow {
        id: PeerId::FIRST,
        seat_id: "0011223344556677".parse().expect("a seat id"),
        client: Client::new("claude-code", "2.1"),
        transport: Transport::Stdio,
        branch: Some(Line::name("main")),
        attached_at: Timestamp::from_unix_ms(1_700_000_000_001),
        left_at: None,
        word: Some(SharedWord {
            n: 1,
            intent: Line::intent("moves the parser").expect("one line"),
            claims: Claims::parse(&["src/parser"]).expect("a path"),
            at: Timestamp::from_unix_ms(1_700_000_000_002),
        }),
    }
}

fn vectors() -> Vec<(&'static str, Vec<u8>)> {
    let me = dialler();
    let other = SecretKey::from_seed([4; 32]);
    let (mine, theirs) = (greeting(&me.node, [5; 32]), greeting(&other, [6; 32]));
    let link = LinkId::of_greetings(&mine, &theirs);
    let hello = Message::Hello(Hello {
        certificate: me.certificate,
        presence: sign_presence(&me.machine, &link, me.node.public()),
        speaks_from: 1,
        speaks_to: 1,
        release: me.release.clone(),
        wall: Timestamp::from_unix_ms(1_700_000_000_003),
        number: 1,
    });
    let (kind, payload) = hello.encode();
    let header = EnvelopeHeader {
        kind,
        sender: me.node.public(),
        receiver: other.public(),
        link,
        epoch: me.certificate.epoch(),
        sequence: 0,
    };
    let message = |message: Message| {
        let (kind, payload) = message.encode();
        [[kind].as_slice(), &payload].concat()
    };
    let delta = Delta {
        base: None,
        now: state(),
        facts: Some(Facts {
            repository: Some([0xbb; 16]),
            ignores_case: false,
            attached: 1,
            left_out: 0,
        }),
        put: vec![row()],
        gone: vec![PeerId::new(7).expect("not zero")],
    };
    vec![
        ("greeting", mine),
        ("link", link.as_bytes().to_vec()),
        ("certificate", me.certificate.to_bytes()),
        ("hello", message(hello)),
        ("hello-frame", framed(&seal(&me.node, &header, &payload))),
        (
            "holds",
            message(Message::Holds(Holds {
                state: Some(state()),
                epoch: 1_700_000_000_000,
            })),
        ),
        ("holds-nothing", message(Message::Holds(Holds::default()))),
        ("delta", message(Message::Delta(delta))),
        ("ask", message(Message::Ask(5))),
        ("told", message(Message::Told(5, state()))),
        ("goodbye", message(Message::Goodbye(Leave::Ending))),
        (
            "goodbye-duplicate",
            message(Message::Goodbye(Leave::Duplicate)),
        ),
    ]
}

#[test]
fn the_document_holds_the_bytes_that_are_sent() {
    let documented = documented();
    let vectors = vectors();
    for (name, bytes) in &vectors {
        let wanted = hex(bytes);
        let found = documented.get(*name);
        assert_eq!(
            found,
            Some(&wanted),
            "the vector `{name}` of docs/protocol.md"
        );
    }
    assert_eq!(documented.len(), vectors.len(), "{:?}", documented.keys());
}

#[test]
fn every_documented_message_is_read() {
    for (name, bytes) in vectors() {
        if ["greeting", "link", "certificate", "hello-frame"].contains(&name) {
            continue;
        }
        let (kind, payload) = bytes.split_first().expect("a kind");
        Message::decode(*kind, payload).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
