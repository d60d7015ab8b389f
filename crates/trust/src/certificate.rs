//! A machine vouches for a node: this key serves this checkout, in this epoch.

use crate::bytes::Reader;
use crate::keys::{Domain, KEY_BYTES, PublicKey, SIGNATURE_BYTES, SecretKey, Signature};

/// Bytes of a checkout's id.
pub const CHECKOUT_ID_BYTES: usize = 16;

/// Bytes of a certificate.
pub const CERTIFICATE_BYTES: usize = 2 * KEY_BYTES + CHECKOUT_ID_BYTES + 8 + SIGNATURE_BYTES;

/// Says, with the machine's signature, which node serves a checkout in an epoch.
///
/// ```text
/// machine 32 | node 32 | checkout 16 | epoch 8 | signature 64     (numbers big-endian)
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeCertificate {
    machine: PublicKey,
    node: PublicKey,
    checkout: [u8; CHECKOUT_ID_BYTES],
    epoch: u64,
    signature: Signature,
}

/// A certificate that proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// It has another length.
    #[error("a node certificate has {CERTIFICATE_BYTES} bytes")]
    Length,
    /// The machine that it names did not sign it.
    #[error("the machine's signature on the node certificate does not hold")]
    Signature,
}

impl NodeCertificate {
    /// Has a machine vouch for a node.
    pub fn issue(
        machine: &SecretKey,
        node: PublicKey,
        checkout: [u8; CHECKOUT_ID_BYTES],
        epoch: u64,
    ) -> Self {
        let signed = signed_part(machine.public(), node, checkout, epoch);
        Self {
            machine: machine.public(),
            node,
            checkout,
            epoch,
            signature: machine.sign(Domain::Certificate, &signed),
        }
    }

    /// Reads a certificate and checks its signature.
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn open(bytes: &[u8]) -> Result<Self, CertificateError> {
        let mut reader = Reader::new(bytes);
        let mut read = || {
            Some(Self {
                machine: PublicKey::new(reader.array()?),
                node: PublicKey::new(reader.array()?),
                checkout: reader.array()?,
                epoch: u64::from_be_bytes(reader.array()?),
                signature: Signature::new(reader.array()?),
            })
        };
        let read = read().filter(|_| reader.rest().is_empty());
        let certificate = read.ok_or(CertificateError::Length)?;
        let signed = signed_part(
            certificate.machine,
            certificate.node,
            certificate.checkout,
            certificate.epoch,
        );
        if certificate
            .machine
            .verify(Domain::Certificate, &signed, &certificate.signature)
        {
            Ok(certificate)
        } else {
            Err(CertificateError::Signature)
        }
    }

    /// Returns the bytes that travel.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = signed_part(self.machine, self.node, self.checkout, self.epoch);
        bytes.extend(self.signature.as_bytes());
        bytes
    }

    /// Returns the machine that vouches.
    pub const fn machine(&self) -> PublicKey {
        self.machine
    }

    /// Returns the node that it vouches for.
    pub const fn node(&self) -> PublicKey {
        self.node
    }

    /// Returns the checkout that the node serves.
    pub const fn checkout(&self) -> [u8; CHECKOUT_ID_BYTES] {
        self.checkout
    }

    /// Returns the epoch of the node's lease.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }
}

fn signed_part(
    machine: PublicKey,
    node: PublicKey,
    checkout: [u8; CHECKOUT_ID_BYTES],
    epoch: u64,
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(CERTIFICATE_BYTES);
    bytes.extend(machine.as_bytes());
    bytes.extend(node.as_bytes());
    bytes.extend(checkout);
    bytes.extend(epoch.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issued() -> NodeCertificate {
        let machine = SecretKey::from_seed([1; KEY_BYTES]);
        let node = SecretKey::from_seed([2; KEY_BYTES]).public();
        NodeCertificate::issue(&machine, node, [3; CHECKOUT_ID_BYTES], 1_700_000_000_000)
    }

    #[test]
    fn what_was_issued_is_read_again() {
        let bytes = issued().to_bytes();
        assert_eq!(bytes.len(), CERTIFICATE_BYTES);
        assert_eq!(NodeCertificate::open(&bytes), Ok(issued()));
    }

    #[test]
    fn no_byte_of_it_can_be_changed() {
        let bytes = issued().to_bytes();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let opened = NodeCertificate::open(&changed);
            assert_eq!(opened, Err(CertificateError::Signature), "byte {at}");
        }
        for length in [0, 1, bytes.len() - 1] {
            let opened = NodeCertificate::open(&bytes[..length]);
            assert_eq!(opened, Err(CertificateError::Length), "{length} bytes");
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert_eq!(
            NodeCertificate::open(&longer),
            Err(CertificateError::Length)
        );
    }
}
