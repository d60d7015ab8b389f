use super::super::message::Leave;
use super::*;

const WALL: Timestamp = Timestamp::from_unix_ms(1_700_000_000_000);

fn me(machine: u8, node: u8) -> Me {
    let machine = SecretKey::from_seed([machine; 32]);
    let key = SecretKey::from_seed([node; 32]);
    Me {
        certificate: NodeCertificate::issue(&machine, key.public(), [node; 16], 7),
        machine,
        node: key,
        release: Line::name("0.1.0"),
    }
}

/// One end with what it has to send.
struct Side {
    me: Me,
    link: Link,
    out: Vec<u8>,
}

impl Side {
    fn begin(me: Me, end: End) -> Self {
        let nonce = [me.certificate.checkout()[0]; 32];
        let (link, out) = Link::begin(Now::START, &me, end, 1, nonce);
        Self { me, link, out }
    }

    fn hear(&mut self, bytes: &[u8]) -> Vec<Effect> {
        let effects = self
            .link
            .handle(Now::START, &self.me, WALL, &Input::Received(bytes));
        let mut rest = Vec::new();
        for effect in effects {
            match effect {
                Effect::Write(bytes) => self.out.extend(bytes),
                effect @ (Effect::Up(_) | Effect::Got(_) | Effect::Close(_)) => rest.push(effect),
            }
        }
        rest
    }

    fn sent(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }
}

/// Lets both sides speak until neither has anything to say.
fn shake_hands(a: &mut Side, b: &mut Side) -> (Vec<Effect>, Vec<Effect>) {
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    while !a.out.is_empty() || !b.out.is_empty() {
        of_b.extend(b.hear(&a.sent()));
        of_a.extend(a.hear(&b.sent()));
    }
    (of_a, of_b)
}

fn pair() -> (Side, Side) {
    let a = Side::begin(me(1, 2), End::Dialler);
    let b = Side::begin(me(1, 3), End::Acceptor);
    (a, b)
}

fn up(effects: &[Effect]) -> &Sibling {
    match effects {
        [Effect::Up(sibling)] => sibling,
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_nodes_of_one_machine_come_to_know_each_other() {
    let (mut a, mut b) = pair();
    let (of_a, of_b) = shake_hands(&mut a, &mut b);
    assert_eq!(up(&of_a).node, b.me.node.public());
    assert_eq!(up(&of_b).node, a.me.node.public());
    assert_eq!(up(&of_b).checkout, [2; 16]);
    assert_eq!(up(&of_b).epoch, 7);
    assert_eq!((a.link.deadline(), b.link.deadline()), (None, None));
    let said = a.link.say(&a.me, &Message::Ask(5)).unwrap();
    assert_eq!(b.hear(&said), [Effect::Got(Box::new(Message::Ask(5)))]);
}

#[test]
fn it_does_not_matter_how_the_bytes_are_cut() {
    let (mut a, mut b) = pair();
    let mut heard = Vec::new();
    while !a.out.is_empty() || !b.out.is_empty() {
        for byte in a.sent() {
            heard.extend(b.hear(&[byte]));
        }
        for byte in b.sent() {
            a.hear(&[byte]);
        }
    }
    assert_eq!(up(&heard).node, a.me.node.public());
}

#[test]
fn a_node_of_another_machine_is_a_stranger() {
    let mut a = Side::begin(me(9, 2), End::Dialler);
    let mut b = Side::begin(me(1, 3), End::Acceptor);
    let (of_a, of_b) = shake_hands(&mut a, &mut b);
    assert_eq!(of_a, [Effect::Close(LinkError::Stranger)]);
    assert_eq!(of_b, [Effect::Close(LinkError::Stranger)]);
}

#[test]
fn a_certificate_of_another_node_proves_nothing() {
    // It knows the machine's certificate for node 4 and its own key, and not the machine's key.
    let mut thief = me(9, 2);
    thief.certificate = me(1, 4).certificate;
    let mut a = Side::begin(thief, End::Dialler);
    let mut b = Side::begin(me(1, 3), End::Acceptor);
    let (_, of_b) = shake_hands(&mut a, &mut b);
    assert_eq!(of_b, [Effect::Close(LinkError::Stranger)]);
}

#[test]
fn a_certificate_without_the_machine_present_proves_nothing() {
    let mut thief = me(9, 2);
    thief.certificate = me(1, 2).certificate;
    let mut a = Side::begin(thief, End::Dialler);
    let mut b = Side::begin(me(1, 3), End::Acceptor);
    let (_, of_b) = shake_hands(&mut a, &mut b);
    assert_eq!(of_b, [Effect::Close(LinkError::Stranger)]);
}

#[test]
fn a_hello_of_another_link_is_refused() {
    let (mut a, mut b) = pair();
    let (greeting, theirs) = (a.sent(), b.sent());
    b.hear(&greeting);
    a.hear(&theirs);
    let hello = a.sent();
    // Relayed: the same greeting and hello, to somebody whose own nonce is another.
    let mut c = Side::begin(me(1, 5), End::Acceptor);
    c.hear(&greeting);
    let refused = c.hear(&hello);
    let error = LinkError::Envelope(EnvelopeError::Receiver);
    assert_eq!(refused, [Effect::Close(error)]);
    // Played again, to the same node on another link.
    let nonce = [77; 32];
    let (link, _) = Link::begin(Now::START, &b.me, End::Acceptor, 1, nonce);
    let mut again = Side {
        me: b.me.clone(),
        link,
        out: Vec::new(),
    };
    again.hear(&greeting);
    let error = LinkError::Envelope(EnvelopeError::Link);
    assert_eq!(again.hear(&hello), [Effect::Close(error)]);
}

#[test]
fn what_i_said_myself_is_refused() {
    let (mut a, _) = pair();
    let greeting = a.sent();
    assert_eq!(a.hear(&greeting), [Effect::Close(LinkError::Myself)]);
}

#[test]
fn a_message_played_again_closes_the_link() {
    let (mut a, mut b) = pair();
    shake_hands(&mut a, &mut b);
    let said = a.link.say(&a.me, &Message::Ask(5)).unwrap();
    b.hear(&said);
    let error = EnvelopeError::Sequence { wanted: 2, got: 1 };
    assert_eq!(b.hear(&said), [Effect::Close(LinkError::Envelope(error))]);
    assert_eq!(b.hear(&said), [], "nothing comes of it any more");
    assert_eq!(b.link.say(&b.me, &Message::Ask(6)), None);
}

#[test]
fn other_protocols_and_late_hellos_are_closed() {
    let (_, mut b) = pair();
    let other = [b"GET / HTTP/1.1\r\n".as_slice(), &[b' '; 64]].concat();
    assert_eq!(b.hear(&other), [Effect::Close(LinkError::NoLink)]);
    let (_, mut b) = pair();
    let at = b.link.deadline().unwrap();
    let early = Now::from_start(HELLO_WAIT.saturating_sub(Duration::from_millis(1)));
    assert_eq!(b.link.handle(early, &b.me, WALL, &Input::Woke), []);
    let late = b.link.handle(at, &b.me, WALL, &Input::Woke);
    assert_eq!(late, [Effect::Close(LinkError::Late)]);
}

#[test]
fn a_message_before_the_hello_and_a_second_hello_are_out_of_place() {
    let (mut a, mut b) = pair();
    shake_hands(&mut a, &mut b);
    let hello = Message::Hello(Hello {
        certificate: a.me.certificate,
        presence: sign_presence(
            &a.me.machine,
            &LinkId::of_greetings(b"", b""),
            a.me.node.public(),
        ),
        speaks_from: 1,
        speaks_to: 1,
        release: Line::name("0.1.0"),
        wall: WALL,
        number: 1,
    });
    let said = a.link.say(&a.me, &hello).unwrap();
    assert_eq!(b.hear(&said), [Effect::Close(LinkError::OutOfPlace)]);

    let (mut a, mut b) = pair();
    let (greeting, theirs) = (a.sent(), b.sent());
    b.hear(&greeting);
    a.hear(&theirs);
    // Its first envelope is a goodbye.
    let Stage::Hello(ends) = &mut a.link.stage else {
        panic!("it waits for a hello");
    };
    ends.next = 0;
    let said = ends.seal(&a.me, &Message::Goodbye(Leave::Ending));
    assert_eq!(b.hear(&said), [Effect::Close(LinkError::OutOfPlace)]);
}

#[test]
fn versions_without_a_common_one_say_who_is_behind() {
    let (mut a, mut b) = pair();
    let (greeting, theirs) = (a.sent(), b.sent());
    b.hear(&greeting);
    a.hear(&theirs);
    let Stage::Hello(ends) = &mut a.link.stage else {
        panic!("it waits for a hello");
    };
    ends.next = 0;
    let hello = Hello {
        certificate: a.me.certificate,
        presence: sign_presence(&a.me.machine, &ends.expected.link, a.me.node.public()),
        speaks_from: 2,
        speaks_to: 3,
        release: Line::name("9.0.0"),
        wall: WALL,
        number: 1,
    };
    let said = ends.seal(&a.me, &Message::Hello(hello));
    let error = LinkError::Versions { from: 2, to: 3 };
    assert_eq!(b.hear(&said), [Effect::Close(error)]);
}

proptest::proptest! {
    // Signatures are slow without optimisation.
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 48, ..Default::default() })]
    #[test]
    fn no_bytes_make_it_panic(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400),
        greeted in proptest::prelude::any::<bool>(),
    ) {
        let (mut a, mut b) = pair();
        if greeted {
            shake_hands(&mut a, &mut b);
        }
        b.hear(&bytes);
    }
}
