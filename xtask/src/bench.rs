//! Where a run works: the workspace, its target folder and a scratch folder of its own.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::{command, graph::Graph};

/// The places and programs of one run.
#[derive(Debug)]
pub(crate) struct Bench {
    /// The root of the workspace.
    pub(crate) root: PathBuf,
    /// Packages and who uses whom.
    pub(crate) graph: Graph,
    target: PathBuf,
    scratch: tempfile::TempDir,
}

impl Bench {
    /// Finds the workspace around the working directory and makes a scratch folder.
    pub(crate) fn open() -> Result<Self> {
        let graph = Graph::read(&std::env::current_dir().context("no working directory")?)?;
        let scratch = tempfile::Builder::new().prefix("earshot-").tempdir()?;
        Ok(Self {
            root: graph.root.clone(),
            target: graph.target.clone(),
            graph,
            scratch,
        })
    }

    /// Returns a command that runs in the root, with a scrubbed environment, and keeps its temporary
    /// files in the scratch folder.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = command::scrubbed(program);
        command
            .current_dir(&self.root)
            .env("TMPDIR", self.scratch.path());
        command
    }

    /// Returns a cargo command.
    pub(crate) fn cargo(&self) -> Command {
        self.command(command::cargo())
    }

    /// Returns the folder that goes with the run, and holds every `EARSHOT_HOME` of it.
    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns a path below the target folder.
    pub(crate) fn target(&self, path: &str) -> PathBuf {
        self.target.join(path)
    }

    /// Returns the built binary.
    pub(crate) fn binary(&self) -> Result<PathBuf> {
        built(self.target("debug/earshot"))
    }

    /// Returns the built server of the conformance suite.
    pub(crate) fn conformance_server(&self) -> Result<PathBuf> {
        built(self.target("debug/examples/conformance"))
    }
}

fn built(path: PathBuf) -> Result<PathBuf> {
    ensure!(path.is_file(), "{} is not built", path.display());
    Ok(path)
}
