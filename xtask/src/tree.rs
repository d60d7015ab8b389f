//! The repository as tidy sees it: the text of every file that git tracks or would track.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::command;

/// One text file.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    /// Its path from the root, with slashes.
    pub(crate) path: String,
    /// What it holds.
    pub(crate) text: String,
}

impl SourceFile {
    /// Returns whether the path ends in one of the extensions.
    pub(crate) fn has_extension(&self, extensions: &[&str]) -> bool {
        Path::new(&self.path)
            .extension()
            .and_then(|extension| extension.to_str())
            .is_some_and(|extension| extensions.contains(&extension))
    }
}

/// All text files of the repository.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Sorted by path.
    pub(crate) files: Vec<SourceFile>,
    /// Every path that git lists, those of binary files included; sorted.
    pub(crate) paths: Vec<String>,
}

impl Tree {
    /// Reads what git tracks, has staged, or does not ignore.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let output = command::scrubbed("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(root)
            .output()
            .context("cannot run git")?;
        ensure!(
            output.status.success(),
            "git ls-files failed in {}",
            root.display()
        );
        let listing = String::from_utf8(output.stdout).context("a path is not UTF-8")?;
        let mut paths: Vec<String> = listing
            .split('\0')
            .filter(|path| !path.is_empty() && root.join(path).is_file())
            .map(str::to_owned)
            .collect();
        paths.sort();
        paths.dedup();
        let mut files = Vec::new();
        for path in &paths {
            if let Ok(text) = String::from_utf8(fs_err::read(root.join(path))?) {
                files.push(SourceFile {
                    path: path.clone(),
                    text,
                });
            }
        }
        Ok(Self { files, paths })
    }

    /// Returns the file at a path.
    pub(crate) fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Returns whether a path names a file, or a folder that holds one.
    pub(crate) fn has_path(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self
                .paths
                .iter()
                .any(|known| known == path || known.starts_with(&folder))
    }
}

#[cfg(test)]
pub(crate) fn tree_of(files: &[(&str, &str)]) -> Tree {
    let mut files: Vec<SourceFile> = files
        .iter()
        .map(|(path, text)| SourceFile {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        })
        .collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let paths = files.iter().map(|file| file.path.clone()).collect();
    Tree { files, paths }
}
