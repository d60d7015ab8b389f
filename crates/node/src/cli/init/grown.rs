//! A text that grows by what is put in, which is known to the byte and can be taken out again.

use std::ops::Range;

/// A text and which of its bytes were put in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grown {
    text: String,
    /// In order, none empty, none overlapping.
    own: Vec<Range<usize>>,
}

impl Grown {
    /// Begins with a text of others.
    pub(super) fn new(text: String) -> Self {
        Self {
            text,
            own: Vec::new(),
        }
    }

    /// Returns the whole text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns which of its bytes were put in.
    pub(super) fn own(&self) -> &[Range<usize>] {
        &self.own
    }

    /// Puts something in at a place of the text as it is now.
    pub(super) fn insert(&mut self, at: usize, put: &str) {
        if put.is_empty() {
            return;
        }
        self.text.insert_str(at, put);
        let mut within = false;
        for range in &mut self.own {
            if range.start >= at {
                *range = range.start + put.len()..range.end + put.len();
            } else if at < range.end {
                range.end += put.len();
                within = true;
            }
        }
        if !within {
            let behind = self.own.partition_point(|range| range.start < at);
            self.own.insert(behind, at..at + put.len());
        }
    }
}

/// Returns a text without these ranges of it, which are in order.
///
/// `None` when they are none of its ranges: what names them is about another text.
pub(super) fn without(text: &str, ranges: &[Range<usize>]) -> Option<String> {
    let mut rest = String::with_capacity(text.len());
    let mut from = 0;
    for range in ranges {
        rest.push_str(text.get(from..range.start)?);
        text.get(range.clone())?;
        from = range.end;
    }
    rest.push_str(text.get(from..)?);
    Some(rest)
}

/// Returns the number of the line, from 1, in which a byte of a text lies.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    text.char_indices()
        .take_while(|(place, _)| *place < at)
        .filter(|(_, character)| *character == '\n')
        .count()
        + 1
}

/// Returns how a text ends its lines: as it ends the first.
pub(super) fn newline_of(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        Some(_) | None => "\n",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_put_in_can_be_taken_out(
            text in "[a-zä\n]{0,12}",
            puts in proptest::collection::vec((0_usize..40, "[A-ZÖ]{0,3}"), 0..6),
        ) {
            let mut grown = Grown::new(text.clone());
            for (at, put) in puts {
                let mut at = at.min(grown.text().len());
                while !grown.text().is_char_boundary(at) {
                    at -= 1;
                }
                grown.insert(at, &put);
            }
            prop_assert_eq!(without(grown.text(), grown.own()), Some(text));
        }
    }

    #[test]
    fn ranges_of_another_text_are_none() {
        for range in [0..9, 1..2, 2..4] {
            assert_eq!(
                without("äb", std::slice::from_ref(&range)),
                None,
                "{range:?}"
            );
        }
        assert_eq!(without("abc", &[1..2, 0..1]), None);
    }

    #[test]
    fn lines_are_counted_and_ended_as_in_the_text() {
        for (text, at, line) in [("", 0, 1), ("a\nb", 1, 1), ("a\nb", 2, 2), ("a\r\nb", 9, 2)] {
            assert_eq!(line_at(text, at), line);
        }
        for (text, newline) in [("", "\n"), ("a\nb\r\n", "\n"), ("a\r\nb\n", "\r\n")] {
            assert_eq!(newline_of(text), newline);
        }
    }
}
