//! Reading fixed layouts.

/// Reads fields of fixed length from the front.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Takes as many bytes as the field has, `None` when there are fewer.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0
    }
}
