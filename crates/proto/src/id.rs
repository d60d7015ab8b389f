//! Ids that several machines share: a peer's position on its board, and what stands for its seat.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// A peer's position on one board, in attachment order: `p1`, `p2`, …
///
/// It is never an identity: another board has its own `p1`, and a forgotten peer that returns gets
/// a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(NonZeroU64);

impl PeerId {
    /// The first position of a board.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// Returns the position with this number, `None` for zero.
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Returns the number of the position, from one.
    pub const fn number(self) -> u64 {
        self.0.get()
    }

    /// Returns the position after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "p{}", self.0)
    }
}

/// The text is not `p` and a decimal number from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a peer id is p and a number, such as p3")]
pub struct PeerIdError;

impl FromStr for PeerId {
    type Err = PeerIdError;

    fn from_str(text: &str) -> Result<Self, PeerIdError> {
        let digits = text.strip_prefix('p').ok_or(PeerIdError)?;
        let number = digits.parse().ok().and_then(Self::new).ok_or(PeerIdError)?;
        // One spelling only: no sign, no leading zero.
        if number.0.to_string() == digits {
            Ok(number)
        } else {
            Err(PeerIdError)
        }
    }
}

/// What is shown in place of a peer's secret key: 64 bits of a hash of it, 16 hex characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeatId(u64);

impl SeatId {
    /// Returns the id made of these bits of a key's hash.
    pub(crate) const fn from_hash_bits(bits: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bits))
    }

    /// Returns the id as a sibling told it.
    pub(crate) const fn from_bits(bits: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bits))
    }

    /// Returns the 64 bits, as a sibling is told them.
    pub(crate) const fn to_bits(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for SeatId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

/// The text is not 16 lower-case hex characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a seat id is 16 hex characters")]
pub struct SeatIdError;

impl FromStr for SeatId {
    type Err = SeatIdError;

    fn from_str(text: &str) -> Result<Self, SeatIdError> {
        let id = u64::from_str_radix(text, 16)
            .map(Self)
            .map_err(|_| SeatIdError)?;
        if id.to_string() == text {
            Ok(id)
        } else {
            Err(SeatIdError)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_id_has_one_spelling() {
        assert_eq!("p12".parse::<PeerId>().unwrap().number(), 12);
        for text in [
            "",
            "p",
            "12",
            "p0",
            "p01",
            "p+1",
            "p-1",
            "P1",
            "p1 ",
            "p99999999999999999999",
        ] {
            assert_eq!(text.parse::<PeerId>(), Err(PeerIdError), "{text:?}");
        }
    }

    #[test]
    fn a_seat_id_has_one_spelling() {
        let id: SeatId = "00ff00ff00ff00ff".parse().unwrap();
        assert_eq!(id.to_string(), "00ff00ff00ff00ff");
        for text in [
            "",
            "ff",
            "00FF00ff00ff00ff",
            "+0ff00ff00ff00ff",
            "00ff00ff00ff00ff0",
        ] {
            assert_eq!(text.parse::<SeatId>(), Err(SeatIdError), "{text:?}");
        }
    }
}
