//! Inputs that are kept.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// Returns the folder of a target's corpus.
pub fn corpus_folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target)
}

/// Reads a target's corpus, in the order of its names.
///
/// # Errors
/// It cannot be read, or is empty.
pub fn corpus(target: &str) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let folder = corpus_folder(target);
    let mut inputs = Vec::new();
    for entry in fs_err::read_dir(&folder)? {
        let path = entry?.path();
        let bytes = fs_err::read(&path).context("an input")?;
        inputs.push((path, bytes));
    }
    ensure!(!inputs.is_empty(), "{} is empty", folder.display());
    inputs.sort();
    Ok(inputs)
}
