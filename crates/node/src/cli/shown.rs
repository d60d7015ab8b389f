//! Text that others chose, made harmless before it is written.
//!
//! A path, a branch, a variable or an argument may hold what acts on a terminal instead of being
//! read there: escape sequences, line breaks, marks that turn the direction of writing, characters
//! that show nothing. What agents say is cleaned at the board already, where it loses them; a path
//! that lost a character would name another file, so here they are written out, as `\u{202e}`.

use std::{borrow::Cow, fmt::Write as _};

use earshot_proto::text::shows_nothing;

/// Writes out every character of a piece of text that would act, or not be seen.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    written_out(text, write_out)
}

/// Does the same for whole lines of earshot's own making, which may be broken and coloured: the
/// last look at what goes to a person, should a piece of it have been overlooked.
pub(super) fn shown_lines<'a>(text: &'a str, colours: &[&str]) -> Cow<'a, str> {
    let acts = |character: char| acts(character) && !matches!(character, '\n' | '\t');
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(acts) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let colour = colours.iter().find(|colour| from.starts_with(**colour));
        rest = if let Some(colour) = colour {
            out.push_str(colour);
            &from[colour.len()..]
        } else {
            let mut characters = from.chars();
            if let Some(character) = characters.next() {
                write_out(&mut out, character);
            }
            characters.as_str()
        };
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Writes out the same characters of a JSON text, in JSON's own way: it is the same value.
pub(super) fn shown_json(json: &str) -> Cow<'_, str> {
    written_out(json, |out, character| {
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(out, "\\u{unit:04x}").expect("writing to a String cannot fail");
        }
    })
}

fn acts(character: char) -> bool {
    // Line and paragraph separators are neither controls nor invisible, and break lines.
    character.is_control()
        || shows_nothing(character)
        || matches!(character, '\u{2028}' | '\u{2029}')
}

fn write_out(out: &mut String, character: char) {
    match character {
        '\n' | '\r' | '\t' => out.extend(character.escape_default()),
        _ => out.extend(character.escape_unicode()),
    }
}

fn written_out(text: &str, write_out: impl Fn(&mut String, char)) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if acts(character) {
            write_out(&mut out, character);
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_act_is_written_out() {
        for (raw, text) in [
            ("/home/me/it's a ü—日本.rs", "/home/me/it's a ü—日本.rs"),
            ("a\u{1b}[31mb", "a\\u{1b}[31mb"),
            ("a\u{9b}31mb", "a\\u{9b}31mb"),
            ("two\nlines\rand\ttabs\0", "two\\nlines\\rand\\ttabs\\u{0}"),
            ("a\u{202e}gpj.exe", "a\\u{202e}gpj.exe"),
            (
                "a\u{2028}b\u{200b}c\u{feff}\u{e0041}",
                "a\\u{2028}b\\u{200b}c\\u{feff}\\u{e0041}",
            ),
        ] {
            assert_eq!(shown(raw), text);
        }
    }

    #[test]
    fn no_character_passes_that_acts() {
        for character in '\0'..=char::MAX {
            let raw = String::from(character);
            assert!(!shown(&raw).contains(acts), "{raw:?}");
            assert!(!shown_json(&raw).contains(acts), "{raw:?}");
            let lines = shown_lines(&raw, &[]);
            assert!(
                matches!(character, '\n' | '\t') || !lines.contains(acts),
                "{raw:?}"
            );
        }
    }

    #[test]
    fn of_lines_only_breaks_and_the_own_colours_stay() {
        let raw = "\u{1b}[1mhead\u{1b}[0m\n\ttext \u{1b}[2J\u{7}\n";
        let (strong, plain) = ("\u{1b}[1m", "\u{1b}[0m");
        assert_eq!(
            shown_lines(raw, &[strong, plain]),
            "\u{1b}[1mhead\u{1b}[0m\n\ttext \\u{1b}[2J\\u{7}\n"
        );
        assert_eq!(
            shown_lines(raw, &[]),
            "\\u{1b}[1mhead\\u{1b}[0m\n\ttext \\u{1b}[2J\\u{7}\n"
        );
    }

    #[test]
    fn json_is_the_same_value() {
        let value = serde_json::json!({
            "a\u{9b}": "x\u{1b}[31m\u{202e}\u{7f}\u{2028}\u{e0041}\n\\u0041 \u{1f469}",
        });
        let text = value.to_string();
        let safe = shown_json(&text);
        assert!(!safe.contains(acts), "{safe}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&safe).unwrap(),
            value
        );
    }
}
