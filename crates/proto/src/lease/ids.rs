//! What a lease names its holder by: token, alive file, process.

use std::fmt;

/// Longest token that is read; ours have 32 characters, a later release may want more.
const TOKEN_BYTES_MAX: usize = 128;
/// Longest file name that common file systems take.
const ALIVE_NAME_BYTES_MAX: usize = 255;
/// Linux never gives a process this number or a greater one (`PID_MAX_LIMIT`); macOS stops earlier.
const PID_LIMIT: i64 = 4_194_304;

/// The secret name of one tenure: never used twice, and known to those who may read the lease.
///
/// Lowercase letters, digits and `-`, so that it can stand in a file name. `Debug` shows the first
/// characters only: whoever knows a token can answer a probe in its holder's place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseToken(String);

impl LeaseToken {
    /// Returns the token made of 128 random bits.
    pub fn from_random(random: [u8; 16]) -> Self {
        Self(format!("{:032x}", u128::from_be_bytes(random)))
    }

    /// Returns the token that `text` is, if it is one.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fits = (1..=TOKEN_BYTES_MAX).contains(&text.len());
        (fits && text.bytes().all(plain)).then(|| Self(text.to_owned()))
    }

    /// Returns the whole token.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of the alive file that belongs to this token.
    pub fn alive_name(&self) -> AliveName {
        AliveName(format!("alive-{}.lock", self.0))
    }
}

impl fmt::Debug for LeaseToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "LeaseToken({}…)", self.0.get(..8).unwrap_or(&self.0))
    }
}

/// The file name of an alive file, in the folder of its lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AliveName(String);

impl AliveName {
    /// Returns the name that `text` is, if it is a plain file name.
    ///
    /// A name that leads elsewhere is refused: what a lease names is opened and locked.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = (1..=ALIVE_NAME_BYTES_MAX).contains(&text.len());
        let plain = !text.contains(['/', '\\', '\0']) && text != "." && text != "..";
        (fits && plain).then(|| Self(text.to_owned()))
    }

    /// Returns the file name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The process number that a lease names, however absurd.
///
/// A lease is a file, and a file can say anything: 0, 1, negative and huge numbers are read and
/// written back, but none of them ever reaches a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(i64);

impl Pid {
    /// Returns the process number as written.
    pub const fn new(number: i64) -> Self {
        Self(number)
    }

    /// Returns the number as written.
    pub const fn number(self) -> i64 {
        self.0
    }

    /// Returns the number if a signal to it can only reach one ordinary process.
    ///
    /// 0 is the caller's own group, negative numbers are groups or everybody, 1 is init, and
    /// numbers past the limit do not exist. That the process is the one meant is yet to be proven,
    /// by its start time or by the kernel's lock table.
    pub fn signalable(self) -> Option<i32> {
        if (2..PID_LIMIT).contains(&self.0) {
            i32::try_from(self.0).ok()
        } else {
            None
        }
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_ordinary_process_can_be_signalled() {
        for (number, want) in [
            (i64::MIN, None),
            (-1, None),
            (0, None),
            (1, None),
            (2, Some(2)),
            (4_194_303, Some(4_194_303)),
            (4_194_304, None),
            (99_999_999_999, None),
            (i64::MAX, None),
        ] {
            assert_eq!(Pid::new(number).signalable(), want, "{number}");
        }
    }

    #[test]
    fn a_token_can_stand_in_a_file_name() {
        let token = LeaseToken::from_random([0xab; 16]);
        assert_eq!(LeaseToken::parse(token.as_str()), Some(token.clone()));
        assert_eq!(
            AliveName::parse(token.alive_name().as_str()),
            Some(token.alive_name())
        );
        for text in [
            "",
            "a/b",
            "A",
            "a b",
            "..",
            "\u{e9}",
            &"a".repeat(TOKEN_BYTES_MAX + 1),
        ] {
            assert_eq!(LeaseToken::parse(text), None, "{text}");
        }
    }

    #[test]
    fn debug_does_not_show_a_whole_token() {
        let token = LeaseToken::from_random([7; 16]);
        assert!(!format!("{token:?}").contains(token.as_str()));
    }

    #[test]
    fn an_alive_name_cannot_lead_elsewhere() {
        for text in [
            "",
            ".",
            "..",
            "../lease.json",
            "/etc/passwd",
            "a\0b",
            &"a".repeat(256),
        ] {
            assert_eq!(AliveName::parse(text), None, "{text:?}");
        }
    }
}
