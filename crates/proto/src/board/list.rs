//! Reading a board page by page.

use std::fmt;
use std::str::FromStr;

use super::{Board, Row};
use crate::id::PeerId;
use crate::limits::PAGE_ROWS;

/// A place between two rows from which a list goes on; opaque to whoever carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(PeerId);

impl Cursor {
    /// Returns the place after this row.
    pub const fn after(peer: PeerId) -> Self {
        Self(peer)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "b{:x}", self.0.number())
    }
}

/// The text is no cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is none that this board gave: list without one")]
pub struct CursorError;

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let digits = text.strip_prefix('b').ok_or(CursorError)?;
        let number = u64::from_str_radix(digits, 16).map_err(|_| CursorError)?;
        PeerId::new(number).map(Self).ok_or(CursorError)
    }
}

/// Some rows of a board in the order of their positions.
#[derive(Clone, Debug)]
pub struct Page<'a> {
    /// The rows.
    pub rows: Vec<&'a Row>,
    /// Where the list goes on, `None` at its end.
    pub next: Option<Cursor>,
}

impl Board {
    /// Returns one page of rows, the first one without a cursor.
    pub fn list(&self, cursor: Option<Cursor>) -> Page<'_> {
        let from = cursor.map_or(PeerId::FIRST, |Cursor(peer)| peer.next());
        let mut rows: Vec<&Row> = self
            .rows
            .range(from..)
            .map(|(_, row)| row)
            .take(PAGE_ROWS + 1)
            .collect();
        let more = rows.len() > PAGE_ROWS;
        rows.truncate(PAGE_ROWS);
        let next = rows
            .last()
            .filter(|_| more)
            .map(|row| Cursor::after(row.id));
        Page { rows, next }
    }
}
