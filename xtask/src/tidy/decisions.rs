//! `docs/decisions/`: what was decided, and that the index knows it.

use super::Subject;
use crate::tree::Tree;

const FOLDER: &str = "docs/decisions/";
const INDEX: &str = "docs/decisions/README.md";

/// Finds decisions that the index does not link, and numbers given twice or left out.
pub(super) fn unlisted(subject: &Subject<'_>) -> Vec<String> {
    let Some(index) = subject.tree.file(INDEX) else {
        return vec![format!("{INDEX} is missing")];
    };
    let mut findings = Vec::new();
    let mut expected = 0;
    for name in decisions(subject.tree) {
        if !index.text.contains(&format!("({name})")) {
            findings.push(format!("{INDEX} does not link {name}"));
        }
        let number = name.get(..4).and_then(|digits| digits.parse::<u32>().ok());
        if number == Some(expected) {
            expected += 1;
        } else {
            findings.push(format!("{name}: the next number is {expected:04}"));
        }
    }
    findings
}

/// Finds dependencies of the workspace that no decision names.
pub(super) fn undecided(subject: &Subject<'_>) -> Vec<String> {
    let Some(manifest) = subject.tree.file("Cargo.toml") else {
        return vec!["Cargo.toml is missing at the root".to_owned()];
    };
    dependencies(&manifest.text)
        .filter(|name| {
            let quoted = format!("`{name}`");
            !subject
                .tree
                .files
                .iter()
                .any(|file| file.path.starts_with(FOLDER) && file.text.contains(&quoted))
        })
        .map(|name| format!("no decision in {FOLDER} names `{name}`"))
        .collect()
}

fn decisions(tree: &Tree) -> impl Iterator<Item = &str> {
    tree.paths
        .iter()
        .filter_map(|path| path.strip_prefix(FOLDER))
        .filter(|name| {
            name.starts_with(|first: char| first.is_ascii_digit()) && !name.contains('/')
        })
}

/// Returns the names under `[workspace.dependencies]` that are not crates of this workspace.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    manifest
        .lines()
        .skip_while(|line| *line != "[workspace.dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.contains("path = "))
        .filter_map(|line| line.split_once('=').map(|(name, _)| name.trim()))
        .filter(|name| !name.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::{super::findings_in, *};

    #[test]
    fn a_decision_outside_the_index_is_found() {
        let files = [
            (INDEX, "[a](0000-a.md)"),
            ("docs/decisions/0000-a.md", ""),
            ("docs/decisions/0001-b.md", ""),
        ];
        assert_eq!(
            findings_in(&files, unlisted),
            [format!("{INDEX} does not link 0001-b.md")]
        );
    }

    #[test]
    fn a_number_left_out_or_given_twice_is_found() {
        let index = "(0000-a.md) (0000-b.md) (0002-c.md)";
        for second in ["docs/decisions/0000-b.md", "docs/decisions/0002-c.md"] {
            let files = [
                (INDEX, index),
                ("docs/decisions/0000-a.md", ""),
                (second, ""),
            ];
            assert_eq!(findings_in(&files, unlisted).len(), 1, "{second}");
        }
    }

    #[test]
    fn a_dependency_without_a_decision_is_found() {
        let manifest = "[workspace]\n[workspace.dependencies]\nown = { path = \"x\" }\n\
                        toml = \"1\"\nserde = { version = \"1\" }\n[profile.dev]\nx = 1\n";
        let files = [
            ("Cargo.toml", manifest),
            ("docs/decisions/0000-a.md", "`serde` it is"),
        ];
        assert_eq!(
            findings_in(&files, undecided),
            [format!("no decision in {FOLDER} names `toml`")]
        );
    }
}
