//! Cleaning of text that others wrote, at the boundary where it enters.
//!
//! Intents, names and branches end up in terminals, on pages and before models, so a [`Line`]
//! holds none of what acts there instead of being read:
//!
//! 1. It is one line: every run of blanks and line breaks is one space, none at either end.
//! 2. Terminal escape sequences are gone, whole; so is every other control character.
//! 3. Characters that show nothing are gone: direction marks and isolates, zero-width and other
//!    format characters, tags, fillers, variation selectors. Joiners are no exception, so a joined
//!    emoji falls apart into its members: plainness goes before looks.
//! 4. What is left is in NFC, and its bound counts bytes of that.

use std::fmt;

use unicode_normalization::UnicodeNormalization as _;

use crate::limits::{INTENT_BYTES_MAX, NAME_BYTES_MAX};

/// One clean line of text that somebody else wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line(String);

/// A text that cannot become a [`Line`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Nothing is left of it once it is clean.
    #[error("the intent is empty: say in one line what you are about to do")]
    Empty,
    /// It is longer than its bound.
    #[error("the intent has {bytes} bytes and may have {bytes_max}: say it in fewer words")]
    TooLong {
        /// Bytes of the cleaned text.
        bytes: usize,
        /// Bytes it may have.
        bytes_max: usize,
    },
}

impl Line {
    /// Returns a line of intent, refused when it is too long: its author can say it shorter.
    pub fn intent(raw: &str) -> Result<Self, TextError> {
        let text = clean(raw);
        if text.is_empty() {
            return Err(TextError::Empty);
        }
        if text.len() > INTENT_BYTES_MAX {
            return Err(TextError::TooLong {
                bytes: text.len(),
                bytes_max: INTENT_BYTES_MAX,
            });
        }
        Ok(Self(text))
    }

    /// Returns a name, cut with an ellipsis when it is too long: who bears it did not choose it.
    ///
    /// It may be empty.
    pub fn name(raw: &str) -> Self {
        Self::cut(raw, NAME_BYTES_MAX)
    }

    /// Returns the cleaned text, cut with an ellipsis to `bytes_max` bytes.
    pub(crate) fn cut(raw: &str, bytes_max: usize) -> Self {
        const ELLIPSIS: &str = "…";
        let mut text = clean(raw);
        if text.len() > bytes_max {
            let end = text.floor_char_boundary(bytes_max.saturating_sub(ELLIPSIS.len()));
            text.truncate(end);
            text.truncate(text.trim_end().len());
            text.push_str(ELLIPSIS);
        }
        Self(text)
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether nothing was left of the text.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.0)
    }
}

impl AsRef<str> for Line {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Returns what is left of `raw` under the rules of this module.
fn clean(raw: &str) -> String {
    let mut kept = String::with_capacity(raw.len());
    let mut blank = false;
    let mut rest = raw.chars();
    while let Some(character) = rest.next() {
        if let Some(after) = after_escape(character, rest.as_str()) {
            rest = after.chars();
        } else if character.is_whitespace() {
            blank = true;
        } else if !character.is_control() && !shows_nothing(character) {
            if blank && !kept.is_empty() {
                kept.push(' ');
            }
            blank = false;
            kept.push(character);
        }
    }
    kept.nfc().collect()
}

/// Returns whether a character is of Unicode's format class or ignorable by default: it may change
/// how others look, and is not seen itself.
pub fn shows_nothing(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
        | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// The introducers of terminal sequences, which come as ESC and a letter or as one character.
enum Introducer {
    /// Parameters and one final character follow.
    Control,
    /// Text up to a terminator follows.
    Text,
}

/// Returns what comes after the terminal sequence that `first` begins, `None` when it begins none.
///
/// Of a sequence that never ends only the introducer is taken, so that it cannot swallow a text.
fn after_escape(first: char, rest: &str) -> Option<&str> {
    const ESC: char = '\u{1b}';
    let (introducer, body) = match first {
        ESC => {
            let mut tail = rest.trim_start_matches(is_intermediate).chars();
            match tail.next() {
                Some('[') => (Introducer::Control, tail.as_str()),
                Some(']' | 'P' | 'X' | '^' | '_') => (Introducer::Text, tail.as_str()),
                Some('0'..='~') => return Some(tail.as_str()),
                Some(_) | None => return Some(rest),
            }
        }
        '\u{9b}' => (Introducer::Control, rest),
        '\u{9d}' | '\u{90}' | '\u{98}' | '\u{9e}' | '\u{9f}' => (Introducer::Text, rest),
        _ => return None,
    };
    match introducer {
        Introducer::Control => {
            let is_parameter = |character| matches!(character, '0'..='?');
            let tail = body
                .trim_start_matches(is_parameter)
                .trim_start_matches(is_intermediate);
            Some(
                tail.strip_prefix(|last| matches!(last, '@'..='~'))
                    .unwrap_or(body),
            )
        }
        Introducer::Text => {
            let end = body.find(char::is_control).unwrap_or(body.len());
            let tail = body.get(end..).unwrap_or_default();
            let terminators = ["\u{7}", "\u{9c}", "\u{1b}\\"];
            let ended = terminators
                .iter()
                .find_map(|terminator| tail.strip_prefix(terminator));
            Some(ended.unwrap_or(body))
        }
    }
}

/// Returns whether a character may stand between a sequence's introducer and its last character.
const fn is_intermediate(character: char) -> bool {
    matches!(character, ' '..='/')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn output_hygiene() {
        for (raw, text) in [
            ("fix the parser", "fix the parser"),
            ("  two\r\nlines\tand\u{2028}more \n", "two lines and more"),
            ("\u{1b}[1;31mred\u{1b}[0m", "red"),
            ("\u{9b}31mred", "red"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}]0;never ends", "0;never ends"),
            ("\u{1b}(Bplain\u{1b}cafter\u{1b}", "plainafter"),
            ("\u{1b}[12", "12"),
            ("bell\u{7}back\u{8}nul\u{0}del\u{7f}", "bellbacknuldel"),
            ("a\u{202e}gpj.exe\u{202c}", "agpj.exe"),
            ("a\u{2066}b\u{2069}c\u{200b}d\u{feff}e\u{ad}f", "abcdef"),
            ("hi\u{e0001}\u{e0041}\u{e007f}\u{e0100}", "hi"),
            ("\u{1f469}\u{200d}\u{1f4bb}", "\u{1f469}\u{1f4bb}"),
            ("e\u{301}", "\u{e9}"),
            ("e\u{34f}\u{301}", "\u{e9}"),
            ("x \u{200b} y", "x y"),
        ] {
            assert_eq!(Line::intent(raw).unwrap().as_str(), text, "{raw:?}");
        }
    }

    #[test]
    fn no_character_makes_a_hidden_one() {
        for character in '\0'..=char::MAX {
            assert_clean(&clean(&String::from(character)));
        }
    }

    #[test]
    fn a_long_intent_is_refused_and_a_long_name_is_cut() {
        assert_eq!(Line::intent(" \u{200b}\n"), Err(TextError::Empty));
        assert!(Line::intent(&"é".repeat(INTENT_BYTES_MAX / 2)).is_ok());
        let refused = Line::intent(&"é".repeat(INTENT_BYTES_MAX / 2 + 1));
        assert_eq!(
            refused,
            Err(TextError::TooLong {
                bytes: 282,
                bytes_max: INTENT_BYTES_MAX
            })
        );
        let name = Line::name(&"€".repeat(NAME_BYTES_MAX));
        assert_eq!(name.as_str(), format!("{}…", "€".repeat(65)));
        assert!(Line::name("\u{200b}").is_empty());
    }

    fn assert_clean(text: &str) {
        assert!(
            !text.chars().any(|it| it.is_control() || shows_nothing(it)),
            "{text:?}"
        );
        assert!(
            !text.chars().any(|it| it.is_whitespace() && it != ' '),
            "{text:?}"
        );
        assert_eq!(text.trim(), text);
        assert!(!text.contains("  "), "{text:?}");
        assert_eq!(text.nfc().collect::<String>(), text);
    }

    fn hostile_text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            any::<char>(),
            prop::sample::select(vec![
                '\u{1b}', '[', ']', '\u{7}', '\\', '\u{9b}', ';', 'm', ' ', '\n', '\u{200d}',
                '\u{301}', '\u{202e}', '\u{1100}', '\u{1161}', '\u{11a8}', 'e', '0',
            ]),
        ];
        prop::collection::vec(piece, 0..400).prop_map(String::from_iter)
    }

    proptest! {
        #[test]
        fn a_line_is_clean_bounded_and_stays_as_it_is(raw in hostile_text()) {
            let name = Line::name(&raw);
            assert_clean(name.as_str());
            prop_assert!(name.as_str().len() <= NAME_BYTES_MAX);
            prop_assert_eq!(&Line::name(name.as_str()), &name);
            if let Ok(intent) = Line::intent(&raw) {
                assert_clean(intent.as_str());
                prop_assert!(!intent.is_empty() && intent.as_str().len() <= INTENT_BYTES_MAX);
                prop_assert_eq!(&Line::intent(intent.as_str()), &Ok(intent));
            }
        }
    }
}
