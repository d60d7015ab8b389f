//! Identities that a caller carries: its seat and its execution session.

use std::fmt;

/// Bytes of a seat: 128 random bits, enough that guessing one is hopeless.
pub(crate) const SEAT_BYTES: usize = 16;

/// Longest execution session id, in bytes.
pub(crate) const SESSION_ID_BYTES_MAX: usize = 128;

/// A seat: the secret that one client process holds for its life.
///
/// Whoever knows it speaks as that client, so it never appears in an answer, a log line or an
/// argument list; what is shown in its place is its [`SeatId`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seat([u8; SEAT_BYTES]);

/// The public name of a peer: a truncated hash of the secret behind it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SeatId(String);

/// An execution session id: 1–128 of `[A-Za-z0-9._:-]`, supplied by the calling runtime.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SessionId(String);

/// Why an identity was not accepted. The rejected value is never repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// A seat is 32 hexadecimal digits.
    #[error("a seat is 32 hexadecimal digits")]
    Seat,
    /// A session id is 1–128 of letters, digits and `._:-`.
    #[error("a session id is 1 to 128 letters, digits or the characters . _ : -")]
    Session,
}

impl Seat {
    /// Makes a seat of 128 random bits.
    pub const fn new(bits: [u8; SEAT_BYTES]) -> Self {
        Self(bits)
    }

    /// Reads a seat from the 32 hexadecimal digits that travel in a header.
    ///
    /// # Errors
    /// [`IdError::Seat`] when the text is anything else.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let digits = text.as_bytes();
        let mut bits = [0_u8; SEAT_BYTES];
        if digits.len() != SEAT_BYTES * 2 {
            return Err(IdError::Seat);
        }
        for (bit, pair) in bits.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| IdError::Seat)?;
            if pair.starts_with('+') {
                return Err(IdError::Seat);
            }
            *bit = u8::from_str_radix(pair, 16).map_err(|_| IdError::Seat)?;
        }
        Ok(Self(bits))
    }

    /// Returns the 128 bits, for keying a row. Never print them.
    pub const fn bits(&self) -> &[u8; SEAT_BYTES] {
        &self.0
    }

    /// Returns the digits that travel in the `Earshot-Seat` header. Never print them.
    pub fn expose(&self) -> String {
        hex(&self.0)
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seat(..)")
    }
}

impl SeatId {
    /// Derives the public name of a secret of the given kind.
    ///
    /// The kind separates the domains: a seat and a wire session of equal bytes differ.
    pub fn of(kind: &str, secret: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("earshot 2026 seat id");
        hasher.update(kind.as_bytes());
        hasher.update(&[0]);
        hasher.update(secret);
        let hash = hasher.finalize();
        let mut text = hash.to_hex().to_string();
        text.truncate(16);
        Self(text)
    }

    /// Returns the 16 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SeatId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl SessionId {
    /// Checks and takes a session id.
    ///
    /// # Errors
    /// [`IdError::Session`] when it is empty, too long or holds any other character.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let fits = !text.is_empty()
            && text.len() <= SESSION_ID_BYTES_MAX
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b));
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::Session)
        }
    }

    /// Returns the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            write!(text, "{byte:02x}").expect("writing to a String cannot fail");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_survives_its_header_form_and_hides_in_debug() {
        let seat = Seat::new([0xab; SEAT_BYTES]);
        assert_eq!(Seat::parse(&seat.expose()), Ok(seat.clone()));
        assert_eq!(format!("{seat:?}"), "Seat(..)");
    }

    #[test]
    fn a_seat_is_exactly_32_hex_digits() {
        for bad in [
            "",
            "ab",
            &"g".repeat(32),
            &"a".repeat(33),
            &"+1".repeat(16),
            &"ü".repeat(16),
        ] {
            assert_eq!(Seat::parse(bad), Err(IdError::Seat), "{bad}");
        }
    }

    #[test]
    fn seat_ids_differ_by_kind_and_show_nothing_of_the_secret() {
        let secret = [7_u8; 16];
        let id = SeatId::of("seat", &secret);
        assert_ne!(id, SeatId::of("wire-session", &secret));
        assert_eq!(id.as_str().len(), 16);
        assert!(!hex(&secret).contains(id.as_str()));
    }

    #[test]
    fn session_ids_follow_the_seed() {
        for good in ["a", "A-b_c.d:9", &"x".repeat(128)] {
            assert!(SessionId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", " ", "a b", "ü", "a/b", "a\n", &"x".repeat(129)] {
            assert_eq!(SessionId::parse(bad), Err(IdError::Session), "{bad}");
        }
    }
}
