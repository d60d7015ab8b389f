//! What strangers send, made at random.
//!
//! A target takes any bytes and panics when a promise is broken. Each has a corpus, a folder of
//! inputs that once mattered: `corpus/NAME`. The corpora are replayed by an ordinary test, and the
//! binary of this crate mutates them for as long as it is told to, with the stable toolchain.

mod corpus;
mod mutate;
mod targets;

pub use corpus::{corpus, corpus_folder};
pub use mutate::Mutator;
pub use targets::{
    claim_path, display_text, envelope, frame, headers_identity, http_json, mcp_line, sync_delta,
};

/// A target, by its name.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// Takes one input.
    ///
    /// # Panics
    /// When a promise is broken: that is what it is for.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: [Target; 8] = [
    Target {
        name: "mcp_line",
        run: mcp_line,
    },
    Target {
        name: "http_json",
        run: http_json,
    },
    Target {
        name: "headers_identity",
        run: headers_identity,
    },
    Target {
        name: "claim_path",
        run: claim_path,
    },
    Target {
        name: "display_text",
        run: display_text,
    },
    Target {
        name: "frame",
        run: frame,
    },
    Target {
        name: "envelope",
        run: envelope,
    },
    Target {
        name: "sync_delta",
        run: sync_delta,
    },
];
