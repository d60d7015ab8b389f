//! Tests that drive the built `earshot` binary as its clients do; see `tests/`.
//!
//! The binary is `EARSHOT_BIN`, else the one that stands beside the tests in the target folder.
