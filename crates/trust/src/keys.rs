//! Ed25519 keys of machines and nodes, and what they sign.

use std::fmt;

use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};

/// Bytes of a public key, and of the seed of a secret one.
pub const KEY_BYTES: usize = 32;

/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// What a signature is about: a signature made for one thing proves nothing about another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Domain {
    /// A machine vouches for a node's key.
    Certificate,
    /// A machine is there now, on this very link.
    Presence,
    /// A node sends a message.
    Envelope,
}

impl Domain {
    /// The words before the signed bytes; none is a beginning of another.
    const fn as_bytes(self) -> &'static [u8] {
        match self {
            Self::Certificate => b"earshot/1 node certificate\0",
            Self::Presence => b"earshot/1 machine presence\0",
            Self::Envelope => b"earshot/1 envelope\0",
        }
    }

    fn message(self, bytes: &[u8]) -> Vec<u8> {
        [self.as_bytes(), bytes].concat()
    }
}

/// The secret half of a key. It is never printed.
#[derive(Clone)]
pub struct SecretKey(SigningKey);

/// The public half of a key: who somebody is to other machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

/// A signature over bytes in a domain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature([u8; SIGNATURE_BYTES]);

impl SecretKey {
    /// Makes the key of 256 random bits.
    pub fn from_seed(seed: [u8; KEY_BYTES]) -> Self {
        Self(SigningKey::from_bytes(&seed))
    }

    /// Returns the bits that it is made of, to be kept in a file of mode 0600. Never print them.
    pub fn expose_seed(&self) -> [u8; KEY_BYTES] {
        self.0.to_bytes()
    }

    /// Returns the public half.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    pub(crate) fn sign(&self, domain: Domain, bytes: &[u8]) -> Signature {
        Signature(self.0.sign(&domain.message(bytes)).to_bytes())
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SecretKey").field(&self.public()).finish()
    }
}

impl PublicKey {
    /// Takes the bytes of a key as they came; whether they are a key shows when they verify.
    pub const fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    pub const fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Returns whether this key signed these bytes in this domain.
    ///
    /// Strict: a key of small order, and a signature that others could have bent, are refused.
    pub(crate) fn verify(&self, domain: Domain, bytes: &[u8], signature: &Signature) -> bool {
        VerifyingKey::from_bytes(&self.0).is_ok_and(|key| {
            let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
            key.verify_strict(&domain.message(bytes), &signature)
                .is_ok()
        })
    }
}

/// The first 16 hexadecimal digits of the key's hash, in groups of four: short enough to be read
/// out, and not the key itself.
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = blake3::derive_key("earshot 2026 fingerprint", &self.0);
        for (at, pair) in hash.chunks(2).take(4).enumerate() {
            if at > 0 {
                f.write_str("-")?;
            }
            for byte in pair {
                write!(f, "{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl Signature {
    /// Takes the bytes of a signature as they came.
    pub const fn new(bytes: [u8; SIGNATURE_BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    pub const fn as_bytes(&self) -> &[u8; SIGNATURE_BYTES] {
        &self.0
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signature(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> SecretKey {
        SecretKey::from_seed([n; KEY_BYTES])
    }

    #[test]
    fn a_signature_holds_for_its_key_its_bytes_and_its_domain() {
        let signature = key(1).sign(Domain::Envelope, b"hello");
        let verifies =
            |key: SecretKey, domain, bytes: &[u8]| key.public().verify(domain, bytes, &signature);
        assert!(verifies(key(1), Domain::Envelope, b"hello"));
        assert!(!verifies(key(2), Domain::Envelope, b"hello"));
        assert!(!verifies(key(1), Domain::Envelope, b"hellp"));
        assert!(!verifies(key(1), Domain::Presence, b"hello"));
        assert!(!verifies(key(1), Domain::Certificate, b"hello"));
    }

    #[test]
    fn a_key_of_small_order_verifies_nothing() {
        // The neutral element signs everything where verification is lax.
        let mut neutral = [0; KEY_BYTES];
        neutral[0] = 1;
        let mut signature = [0; SIGNATURE_BYTES];
        signature[0] = 1;
        let forged = Signature::new(signature);
        assert!(!PublicKey::new(neutral).verify(Domain::Envelope, b"hello", &forged));
        assert!(!PublicKey::new([0xff; 32]).verify(Domain::Envelope, b"hello", &forged));
    }

    #[test]
    fn a_secret_key_is_not_printed() {
        let secret = format!("{:?}", key(7));
        assert!(
            !secret.contains("7, 7, 7") && !secret.contains("0707"),
            "{secret}"
        );
    }

    #[test]
    fn a_fingerprint_is_four_groups_of_four() {
        let shown = key(1).public().to_string();
        assert_eq!(shown.split('-').map(str::len).collect::<Vec<_>>(), [4; 4]);
        assert_ne!(shown, key(2).public().to_string());
    }
}
