//! Tickets: what an anonymous caller announces with, minted without keeping anything.

use std::{fmt::Write as _, io};

/// Bytes of a ticket: half random, half proof that this node minted it.
const HALF: usize = 8;

/// The mint of one node. Its tickets end with it.
pub(super) struct Tickets {
    key: [u8; 32],
}

impl Tickets {
    /// Makes a mint with a random key.
    pub(super) fn new() -> io::Result<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self { key })
    }

    /// Mints a ticket, in its text form.
    pub(super) fn mint(&self) -> io::Result<String> {
        let mut random = [0; HALF];
        getrandom::fill(&mut random)?;
        let mut text = String::with_capacity(HALF * 4);
        for byte in random.iter().chain(&self.proof(random)) {
            write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        }
        Ok(text)
    }

    /// Reads a ticket that this node minted.
    pub(super) fn read(&self, text: &str) -> Option<[u8; HALF * 2]> {
        let seat = earshot_trust::Seat::parse(text).ok()?;
        let bits = *seat.bits();
        let (random, proof) = bits.split_first_chunk::<HALF>()?;
        // Compared as hashes, so that the time it takes tells nothing.
        let same = blake3::hash(proof) == blake3::hash(&self.proof(*random));
        same.then_some(bits)
    }

    fn proof(&self, random: [u8; HALF]) -> [u8; HALF] {
        let mut proof = [0; HALF];
        blake3::Hasher::new_keyed(&self.key)
            .update(&random)
            .finalize_xof()
            .fill(&mut proof);
        proof
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_tickets_are_read() {
        let (mine, other) = (Tickets::new().unwrap(), Tickets::new().unwrap());
        let ticket = mine.mint().unwrap();
        assert!(mine.read(&ticket).is_some());
        assert!(other.read(&ticket).is_none());
        for bad in ["", "00", &"0".repeat(32), &ticket[1..]] {
            assert!(mine.read(bad).is_none(), "{bad}");
        }
    }
}
