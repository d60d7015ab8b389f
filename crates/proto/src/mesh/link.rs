//! One link from its first byte: greetings, hellos, then messages.
//!
//! ```text
//! Greeting ──> Hello ──> Up ──> Closed
//!    └───────────┴────────┴──────^        malformed, stranger, late, the other end left
//! ```
//!
//! Both sides send a greeting at once: the protocol's name, 32 random bytes, the node's key. The
//! two greetings make the link's id, which every envelope names. Then both send their hello, the
//! first envelope, signed live by machine and node. Over a Unix socket the machine must be one's
//! own: others of the host are strangers.

use std::time::Duration;

use earshot_trust::{
    EnvelopeError, EnvelopeHeader, Expected, LinkId, NodeCertificate, PublicKey, SecretKey, open,
    seal, sign_presence, verify_presence,
};

use super::frame::{FrameError, Frames, framed};
use super::message::{Hello, Message, MessageError, PROTOCOL_VERSION};
use crate::text::Line;
use crate::time::{Now, Timestamp};

/// The first bytes of every link.
pub const PROTOCOL_NAME: &[u8; 16] = b"earshot-link/1\r\n";

const NONCE_BYTES: usize = 32;
const GREETING_BYTES: usize = PROTOCOL_NAME.len() + NONCE_BYTES + 32;

/// How long both hellos may take: an honest sibling answers within milliseconds.
pub const HELLO_WAIT: Duration = Duration::from_secs(3);

/// Which end of a link this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The one that dialled.
    Dialler,
    /// The other.
    Acceptor,
}

/// Who this node is on its links.
#[derive(Clone, Debug)]
pub struct Me {
    /// The machine's key.
    pub machine: SecretKey,
    /// The node's key.
    pub node: SecretKey,
    /// The machine vouches for the node.
    pub certificate: NodeCertificate,
    /// Release of the executable.
    pub release: Line,
}

/// Who is at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sibling {
    /// The node's key.
    pub node: PublicKey,
    /// The machine that vouches for it.
    pub machine: PublicKey,
    /// The checkout that it serves.
    pub checkout: [u8; 16],
    /// The epoch of its lease.
    pub epoch: u64,
    /// Release of its executable.
    pub release: Line,
    /// Its wall clock, when it said hello.
    pub wall: Timestamp,
    /// The number that this end gave the link.
    pub own_number: u64,
    /// The number that the other end gave it.
    pub their_number: u64,
}

/// Why a link was closed from here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// It does not speak this protocol.
    #[error("the other end does not speak the protocol of links")]
    NoLink,
    /// It speaks other versions of it.
    #[error(
        "the other end speaks versions {from} to {to} of the protocol, and this release version \
         {PROTOCOL_VERSION}: bring the older one of the two up to date"
    )]
    Versions {
        /// The oldest that it speaks.
        from: u16,
        /// The newest.
        to: u16,
    },
    /// It is this very node.
    #[error("the other end is this node itself")]
    Myself,
    /// It is of another machine, or does not prove that it is of this one.
    #[error("the other end is not a node of this machine and user")]
    Stranger,
    /// A frame has a length that none has.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// An envelope is refused.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// A message cannot be read.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A message came where it does not belong.
    #[error("a message came out of place")]
    OutOfPlace,
    /// The hellos took too long.
    #[error("no hello within {HELLO_WAIT:?}")]
    Late,
}

/// What a link is told.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// Bytes came.
    Received(&'a [u8]),
    /// The time of [`Link::deadline`] has come.
    Woke,
}

/// What is to be done for a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send these bytes.
    Write(Vec<u8>),
    /// The other end is known; messages may go both ways.
    Up(Box<Sibling>),
    /// The other end said this.
    Got(Box<Message>),
    /// Close the connection; nothing more comes of this link.
    Close(LinkError),
}

/// One end of a link.
#[derive(Debug)]
pub struct Link {
    end: End,
    number: u64,
    nonce: [u8; NONCE_BYTES],
    deadline: Now,
    frames: Frames,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Greeting,
    Hello(Ends),
    Up(Ends),
    Closed,
}

/// What envelopes of a link say, both ways.
#[derive(Debug)]
struct Ends {
    expected: Expected,
    /// The number of the next message that goes out.
    next: u64,
}

impl Link {
    /// Begins a link with a number that rises from one link to the next, and with 32 random bytes
    /// of its own; returns it with the bytes to send first.
    pub fn begin(
        now: Now,
        me: &Me,
        end: End,
        number: u64,
        nonce: [u8; NONCE_BYTES],
    ) -> (Self, Vec<u8>) {
        let link = Self {
            end,
            number,
            nonce,
            deadline: now + HELLO_WAIT,
            frames: Frames::default(),
            stage: Stage::Greeting,
        };
        let greeting = greeting(&link.nonce, me.node.public());
        (link, greeting)
    }

    /// Returns when [`Input::Woke`] is due, while it is.
    pub const fn deadline(&self) -> Option<Now> {
        match self.stage {
            Stage::Greeting | Stage::Hello(_) => Some(self.deadline),
            Stage::Up(_) | Stage::Closed => None,
        }
    }

    /// Takes an input and returns what is to be done, in order.
    pub fn handle(&mut self, now: Now, me: &Me, wall: Timestamp, input: &Input<'_>) -> Vec<Effect> {
        let mut effects = Vec::new();
        let done = match input {
            Input::Received(bytes) => {
                self.frames.push(bytes);
                self.read(me, wall, &mut effects)
            }
            Input::Woke if self.deadline().is_some_and(|at| now >= at) => Err(LinkError::Late),
            Input::Woke => Ok(()),
        };
        if let Err(error) = done {
            self.stage = Stage::Closed;
            effects.push(Effect::Close(error));
        }
        effects
    }

    /// Returns the bytes that say this to the other end; none before the link is up, or after its
    /// end.
    pub fn say(&mut self, me: &Me, message: &Message) -> Option<Vec<u8>> {
        match &mut self.stage {
            Stage::Up(ends) => Some(ends.seal(me, message)),
            Stage::Greeting | Stage::Hello(_) | Stage::Closed => None,
        }
    }

    fn read(
        &mut self,
        me: &Me,
        wall: Timestamp,
        effects: &mut Vec<Effect>,
    ) -> Result<(), LinkError> {
        loop {
            match &mut self.stage {
                Stage::Greeting => {
                    let Some(theirs) = self.frames.take::<GREETING_BYTES>() else {
                        return Ok(());
                    };
                    let mut ends = self.meet(me, &theirs)?;
                    effects.push(Effect::Write(ends.hello(me, self.number, wall)));
                    self.stage = Stage::Hello(ends);
                }
                Stage::Hello(ends) => {
                    let Some(frame) = self.frames.pull()? else {
                        return Ok(());
                    };
                    let sibling = ends.read_hello(me, self.number, &frame)?;
                    if let Stage::Hello(ends) = std::mem::replace(&mut self.stage, Stage::Closed) {
                        self.stage = Stage::Up(ends);
                    }
                    effects.push(Effect::Up(Box::new(sibling)));
                }
                Stage::Up(ends) => {
                    let Some(frame) = self.frames.pull()? else {
                        return Ok(());
                    };
                    let message = ends.read(&frame)?;
                    if matches!(message, Message::Hello(_)) {
                        return Err(LinkError::OutOfPlace);
                    }
                    effects.push(Effect::Got(Box::new(message)));
                }
                Stage::Closed => return Ok(()),
            }
        }
    }

    /// Reads the other end's greeting: from then on the link has an id.
    fn meet(&self, me: &Me, theirs: &[u8; GREETING_BYTES]) -> Result<Ends, LinkError> {
        let (name, rest) = theirs.split_first_chunk::<16>().ok_or(LinkError::NoLink)?;
        if name != PROTOCOL_NAME {
            return Err(LinkError::NoLink);
        }
        let sender = rest.last_chunk::<32>().ok_or(LinkError::NoLink)?;
        let sender = PublicKey::new(*sender);
        if sender == me.node.public() {
            return Err(LinkError::Myself);
        }
        let mine = greeting(&self.nonce, me.node.public());
        let link = match self.end {
            End::Dialler => LinkId::of_greetings(&mine, theirs),
            End::Acceptor => LinkId::of_greetings(theirs, &mine),
        };
        Ok(Ends {
            expected: Expected {
                sender,
                receiver: me.node.public(),
                link,
                epoch: None,
                sequence: 0,
            },
            next: 0,
        })
    }
}

impl Ends {
    fn seal(&mut self, me: &Me, message: &Message) -> Vec<u8> {
        let (kind, payload) = message.encode();
        let header = EnvelopeHeader {
            kind,
            sender: self.expected.receiver,
            receiver: self.expected.sender,
            link: self.expected.link,
            epoch: me.certificate.epoch(),
            sequence: self.next,
        };
        self.next += 1;
        framed(&seal(&me.node, &header, &payload))
    }

    fn hello(&mut self, me: &Me, number: u64, wall: Timestamp) -> Vec<u8> {
        let hello = Hello {
            certificate: me.certificate,
            presence: sign_presence(&me.machine, &self.expected.link, me.node.public()),
            speaks_from: PROTOCOL_VERSION,
            speaks_to: PROTOCOL_VERSION,
            release: me.release.clone(),
            wall,
            number,
        };
        self.seal(me, &Message::Hello(hello))
    }

    fn read(&mut self, frame: &[u8]) -> Result<Message, LinkError> {
        let opened = open(frame)?;
        self.expected.check(&opened.header)?;
        Ok(Message::decode(opened.header.kind, opened.payload)?)
    }

    fn read_hello(&mut self, me: &Me, number: u64, frame: &[u8]) -> Result<Sibling, LinkError> {
        let Message::Hello(hello) = self.read(frame)? else {
            return Err(LinkError::OutOfPlace);
        };
        let (from, to) = (hello.speaks_from, hello.speaks_to);
        if from > PROTOCOL_VERSION || to < PROTOCOL_VERSION {
            return Err(LinkError::Versions { from, to });
        }
        let certificate = &hello.certificate;
        let machine = certificate.machine();
        let proven = machine == me.machine.public()
            && certificate.node() == self.expected.sender
            && Some(certificate.epoch()) == self.expected.epoch
            && verify_presence(
                machine,
                &self.expected.link,
                certificate.node(),
                &hello.presence,
            );
        if !proven {
            return Err(LinkError::Stranger);
        }
        Ok(Sibling {
            node: certificate.node(),
            machine,
            checkout: certificate.checkout(),
            epoch: certificate.epoch(),
            release: hello.release,
            wall: hello.wall,
            own_number: number,
            their_number: hello.number,
        })
    }
}

fn greeting(nonce: &[u8; NONCE_BYTES], node: PublicKey) -> Vec<u8> {
    [PROTOCOL_NAME.as_slice(), nonce, node.as_bytes()].concat()
}

#[cfg(test)]
mod tests;
