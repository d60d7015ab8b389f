//! The dependency graph of the workspace, as `cargo metadata` resolves it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::command;

/// Which packages there are and who depends on whom.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// Direct dependencies of the packages of this workspace, by package name.
    pub(crate) members: BTreeMap<String, BTreeSet<Edge>>,
    /// Names of the packages that a package links, by name, for the whole graph; without
    /// dev-dependencies and build dependencies.
    pub(crate) links: BTreeMap<String, BTreeSet<String>>,
    /// Where the workspace is.
    pub(crate) root: PathBuf,
    /// Where its artefacts go.
    pub(crate) target: PathBuf,
}

/// One direct dependency.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    /// Name of the package depended upon.
    pub(crate) name: String,
    /// Whether only tests, examples and benches use it.
    pub(crate) dev: bool,
}

impl Graph {
    /// Asks cargo.
    pub(crate) fn read(directory: &Path) -> Result<Self> {
        let output = command::scrubbed(command::cargo())
            .args(["metadata", "--format-version", "1", "--all-features"])
            .current_dir(directory)
            .output()
            .context("cannot run cargo metadata")?;
        ensure!(
            output.status.success(),
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let metadata =
            serde_json::from_slice(&output.stdout).context("cannot read cargo's metadata")?;
        Ok(Self::from_metadata(metadata))
    }

    /// Returns every package that `package` links, directly or not.
    pub(crate) fn closure(&self, package: &str) -> BTreeSet<&str> {
        let mut seen = BTreeSet::new();
        let mut waiting = vec![package];
        while let Some(name) = waiting.pop() {
            for linked in self.links.get(name).into_iter().flatten() {
                if seen.insert(linked.as_str()) {
                    waiting.push(linked);
                }
            }
        }
        seen
    }

    fn from_metadata(metadata: Metadata) -> Self {
        let names: BTreeMap<String, String> = metadata
            .packages
            .iter()
            .map(|it| (it.id.clone(), it.name.clone()))
            .collect();
        let own: BTreeSet<&String> = metadata.workspace_members.iter().collect();
        let mut members = BTreeMap::new();
        for package in metadata
            .packages
            .iter()
            .filter(|package| own.contains(&package.id))
        {
            let edges = package.dependencies.iter().map(|dependency| Edge {
                name: dependency.name.clone(),
                dev: dependency.kind.as_deref() == Some("dev"),
            });
            members.insert(package.name.clone(), edges.collect());
        }
        let mut links: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in metadata.resolve.nodes {
            let Some(name) = names.get(&node.id) else {
                continue;
            };
            let linked = node
                .deps
                .iter()
                .filter(|dep| dep.dep_kinds.iter().any(|it| it.kind.is_none()))
                .filter_map(|dep| names.get(&dep.pkg).cloned());
            links.entry(name.clone()).or_default().extend(linked);
        }
        Self {
            members,
            links,
            root: metadata.workspace_root,
            target: metadata.target_directory,
        }
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<NodeDependency>,
}

#[derive(Deserialize)]
struct NodeDependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dev_dependencies_are_edges_but_are_not_linked() {
        let metadata = serde_json::from_str(
            r#"{
                "workspace_root": "/w", "target_directory": "/w/target",
                "workspace_members": ["a 1"],
                "packages": [
                    {"id": "a 1", "name": "a", "dependencies": [
                        {"name": "b", "kind": null}, {"name": "t", "kind": "dev"}]},
                    {"id": "b 1", "name": "b", "dependencies": []},
                    {"id": "c 1", "name": "c", "dependencies": []},
                    {"id": "t 1", "name": "t", "dependencies": []}],
                "resolve": {"nodes": [
                    {"id": "a 1", "deps": [
                        {"pkg": "b 1", "dep_kinds": [{"kind": null}]},
                        {"pkg": "t 1", "dep_kinds": [{"kind": "dev"}]}]},
                    {"id": "b 1", "deps": [{"pkg": "c 1", "dep_kinds": [{"kind": null}]}]},
                    {"id": "c 1", "deps": []},
                    {"id": "t 1", "deps": []}]}
            }"#,
        )
        .unwrap();
        let graph = Graph::from_metadata(metadata);
        assert_eq!(graph.members.keys().collect::<Vec<_>>(), ["a"]);
        assert!(graph.members["a"].contains(&Edge {
            name: "t".to_owned(),
            dev: true
        }));
        assert_eq!(graph.closure("a"), BTreeSet::from(["b", "c"]));
    }
}
