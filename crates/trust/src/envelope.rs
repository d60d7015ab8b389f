//! Signed messages between nodes: each names its sender, its receiver, the link and its place there.
//!
//! ```text
//! version 2 | kind 1 | sender 32 | receiver 32 | link 32 | epoch 8 | sequence 8 | payload | signature 64
//! ```
//!
//! Numbers are big-endian; the signature is over everything before it, in a domain of its own. A
//! message that was made for one link, one receiver or one place in the order is refused in every
//! other, so that nothing can be relayed, reflected or played again, and no window of remembered
//! messages has to outlive a process.

use crate::bytes::Reader;
use crate::keys::{Domain, KEY_BYTES, PublicKey, SIGNATURE_BYTES, SecretKey, Signature};

/// The version of the envelope that this release seals and opens.
pub const ENVELOPE_VERSION: u16 = 1;

/// Bytes of an envelope besides its payload.
pub const ENVELOPE_OVERHEAD: usize = 2 + 1 + 3 * KEY_BYTES + 8 + 8 + SIGNATURE_BYTES;

/// What a link is known by at both of its ends, and nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkId([u8; KEY_BYTES]);

impl LinkId {
    /// Returns the id of a link over a Unix socket: made of what both sides said first.
    pub fn of_greetings(dialler: &[u8], acceptor: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("earshot 2026 link over a socket");
        for greeting in [dialler, acceptor] {
            hasher.update(
                &u64::try_from(greeting.len())
                    .unwrap_or(u64::MAX)
                    .to_be_bytes(),
            );
            hasher.update(greeting);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// Returns the bytes.
    pub const fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

/// What stands before the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnvelopeHeader {
    /// What the payload is; its meaning is the messages' own.
    pub kind: u8,
    /// Who sends.
    pub sender: PublicKey,
    /// Whom it is for.
    pub receiver: PublicKey,
    /// The link that it was made for.
    pub link: LinkId,
    /// Epoch of the sender's lease.
    pub epoch: u64,
    /// Its place among the sender's messages on the link, from 0.
    pub sequence: u64,
}

/// An envelope whose signature holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened<'a> {
    /// What it says of itself.
    pub header: EnvelopeHeader,
    /// What it carries.
    pub payload: &'a [u8],
}

/// An envelope that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// It is shorter than an envelope.
    #[error("the message is shorter than an envelope")]
    Short,
    /// Another version of the envelope.
    #[error("the envelope is of version {0}, and this release reads version {ENVELOPE_VERSION}")]
    Version(u16),
    /// The sender that it names did not sign it.
    #[error("the sender's signature does not hold")]
    Signature,
    /// It comes from somebody else than the other end of the link.
    #[error("the message is of another sender")]
    Sender,
    /// It is for somebody else.
    #[error("the message is for another receiver")]
    Receiver,
    /// It was made for another link.
    #[error("the message was made for another link")]
    Link,
    /// The sender's epoch changed within a link.
    #[error("the message is of another epoch")]
    Epoch,
    /// It is not the next one: played again, or one is missing.
    #[error("the message has number {got} and {wanted} was next")]
    Sequence {
        /// The number that was next.
        wanted: u64,
        /// The number that it has.
        got: u64,
    },
}

/// Signs a message.
pub fn seal(key: &SecretKey, header: &EnvelopeHeader, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ENVELOPE_OVERHEAD + payload.len());
    bytes.extend(ENVELOPE_VERSION.to_be_bytes());
    bytes.push(header.kind);
    bytes.extend(header.sender.as_bytes());
    bytes.extend(header.receiver.as_bytes());
    bytes.extend(header.link.as_bytes());
    bytes.extend(header.epoch.to_be_bytes());
    bytes.extend(header.sequence.to_be_bytes());
    bytes.extend(payload);
    let signature = key.sign(Domain::Envelope, &bytes);
    bytes.extend(signature.as_bytes());
    bytes
}

/// Reads an envelope and checks that the sender which it names signed it.
///
/// Whether that sender may say so here, now, is [`Expected::check`]'s to tell.
///
/// # Errors
/// [`EnvelopeError::Short`], [`EnvelopeError::Version`], [`EnvelopeError::Signature`].
pub fn open(bytes: &[u8]) -> Result<Opened<'_>, EnvelopeError> {
    let (signed, signature) = bytes
        .split_last_chunk::<SIGNATURE_BYTES>()
        .ok_or(EnvelopeError::Short)?;
    let mut reader = Reader::new(signed);
    let version = reader.array().ok_or(EnvelopeError::Short)?;
    let version = u16::from_be_bytes(version);
    if version != ENVELOPE_VERSION {
        return Err(EnvelopeError::Version(version));
    }
    let mut read = || {
        let [kind] = reader.array()?;
        Some(EnvelopeHeader {
            kind,
            sender: PublicKey::new(reader.array()?),
            receiver: PublicKey::new(reader.array()?),
            link: LinkId(reader.array()?),
            epoch: u64::from_be_bytes(reader.array()?),
            sequence: u64::from_be_bytes(reader.array()?),
        })
    };
    let header = read().ok_or(EnvelopeError::Short)?;
    let payload = reader.rest();
    let signature = Signature::new(*signature);
    if header.sender.verify(Domain::Envelope, signed, &signature) {
        Ok(Opened { header, payload })
    } else {
        Err(EnvelopeError::Signature)
    }
}

/// What the next message of the other end of a link must say of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// The other end.
    pub sender: PublicKey,
    /// This end.
    pub receiver: PublicKey,
    /// The link.
    pub link: LinkId,
    /// The other end's epoch, once it has said it.
    pub epoch: Option<u64>,
    /// The number that is next.
    pub sequence: u64,
}

impl Expected {
    /// Takes a message if it is the next one, and expects the one after it.
    ///
    /// # Errors
    /// What is wrong with it; nothing is expected then that was not before.
    pub fn check(&mut self, header: &EnvelopeHeader) -> Result<(), EnvelopeError> {
        if header.sender != self.sender {
            return Err(EnvelopeError::Sender);
        }
        if header.receiver != self.receiver {
            return Err(EnvelopeError::Receiver);
        }
        if header.link != self.link {
            return Err(EnvelopeError::Link);
        }
        if self.epoch.is_some_and(|epoch| epoch != header.epoch) {
            return Err(EnvelopeError::Epoch);
        }
        if header.sequence != self.sequence {
            return Err(EnvelopeError::Sequence {
                wanted: self.sequence,
                got: header.sequence,
            });
        }
        self.epoch = Some(header.epoch);
        self.sequence += 1;
        Ok(())
    }
}

/// Has a machine say that it is there, on this very link, as the one that vouches for this node.
pub fn sign_presence(machine: &SecretKey, link: &LinkId, node: PublicKey) -> Signature {
    machine.sign(Domain::Presence, &presence(link, node))
}

/// Returns whether a machine said so.
pub fn verify_presence(
    machine: PublicKey,
    link: &LinkId,
    node: PublicKey,
    signature: &Signature,
) -> bool {
    machine.verify(Domain::Presence, &presence(link, node), signature)
}

fn presence(link: &LinkId, node: PublicKey) -> Vec<u8> {
    [link.as_bytes().as_slice(), node.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> SecretKey {
        SecretKey::from_seed([n; KEY_BYTES])
    }

    fn header() -> EnvelopeHeader {
        EnvelopeHeader {
            kind: 3,
            sender: key(1).public(),
            receiver: key(2).public(),
            link: LinkId::of_greetings(b"a", b"b"),
            epoch: 1_700_000_000_000,
            sequence: 0,
        }
    }

    fn expected() -> Expected {
        Expected {
            sender: key(1).public(),
            receiver: key(2).public(),
            link: LinkId::of_greetings(b"a", b"b"),
            epoch: None,
            sequence: 0,
        }
    }

    #[test]
    fn what_was_sealed_is_opened() {
        let bytes = seal(&key(1), &header(), b"payload");
        assert_eq!(bytes.len(), ENVELOPE_OVERHEAD + 7);
        let opened = open(&bytes).unwrap();
        assert_eq!(opened.header, header());
        assert_eq!(opened.payload, b"payload");
    }

    #[test]
    fn no_byte_of_it_can_be_changed() {
        let bytes = seal(&key(1), &header(), b"payload");
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x80;
            assert!(open(&changed).is_err(), "byte {at}");
        }
        for length in 0..bytes.len() {
            assert!(open(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn another_key_cannot_sign_for_the_sender() {
        let bytes = seal(&key(9), &header(), b"payload");
        assert_eq!(open(&bytes), Err(EnvelopeError::Signature));
    }

    #[test]
    fn a_message_holds_in_one_place_only() {
        type Change = fn(&mut EnvelopeHeader);
        let cases: [(EnvelopeError, Change); 4] = [
            (EnvelopeError::Sender, |it| it.sender = key(3).public()),
            // Reflected: what I said comes back to me.
            (EnvelopeError::Sender, |it| {
                (it.sender, it.receiver) = (it.receiver, it.sender);
            }),
            (EnvelopeError::Receiver, |it| it.receiver = key(3).public()),
            (EnvelopeError::Link, |it| {
                it.link = LinkId::of_greetings(b"b", b"a");
            }),
        ];
        for (error, change) in cases {
            let mut header = header();
            change(&mut header);
            assert_eq!(expected().check(&header), Err(error));
        }
    }

    #[test]
    fn a_message_played_again_or_left_out_is_refused_and_the_next_one_is_taken() {
        let mut expected = expected();
        assert_eq!(expected.check(&header()), Ok(()));
        let at = |sequence| EnvelopeHeader {
            sequence,
            ..header()
        };
        for got in [0, 2] {
            let error = EnvelopeError::Sequence { wanted: 1, got };
            assert_eq!(expected.check(&at(got)), Err(error));
        }
        let other_epoch = EnvelopeHeader { epoch: 1, ..at(1) };
        assert_eq!(expected.check(&other_epoch), Err(EnvelopeError::Epoch));
        assert_eq!(expected.check(&at(1)), Ok(()));
    }

    #[test]
    fn presence_is_of_one_machine_one_link_and_one_node() {
        let link = LinkId::of_greetings(b"a", b"b");
        let signature = sign_presence(&key(1), &link, key(2).public());
        let holds = |machine: u8, link: &LinkId, node: u8| {
            verify_presence(key(machine).public(), link, key(node).public(), &signature)
        };
        assert!(holds(1, &link, 2));
        assert!(!holds(3, &link, 2));
        assert!(!holds(1, &link, 3));
        assert!(!holds(1, &LinkId::of_greetings(b"a", b"c"), 2));
        assert!(
            !holds(1, &LinkId::of_greetings(b"ab", b""), 2),
            "lengths count"
        );
    }
}
