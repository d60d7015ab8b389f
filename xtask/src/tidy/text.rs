//! Words that may not be in the repository.

use super::Subject;

// The words are put together here, so that this file does not hold them itself.
const UNFINISHED: [&str; 6] = [
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("#[ig", "nore"),
    concat!("allow(dead", "_code"),
];

/// Folders that belong to a machine and not to a project.
const MACHINE_FOLDERS: [&str; 2] = [concat!("/ro", "ot/"), concat!("/wo", "rk/")];

const REGISTRY_HOSTS: [&str; 6] = [
    concat!("crates", ".io"),
    concat!("registry.npm", "js.org"),
    concat!("npm", "js.com"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("deb.debian", ".org"),
];

/// Finds stubs, notes to oneself, and tests and warnings that were switched off.
pub(super) fn unfinished(subject: &Subject<'_>) -> Vec<String> {
    let mut findings = Vec::new();
    for file in &subject.tree.files {
        if !file.has_extension(&["rs", "py", "mjs", "js", "sh"]) {
            continue;
        }
        for (number, line) in numbered(&file.text) {
            for word in UNFINISHED.iter().filter(|word| line.contains(**word)) {
                findings.push(format!("{}:{number} {word}", file.path));
            }
        }
    }
    findings
}

/// Finds paths of the machine that a file was written on, and hosts of package registries.
///
/// `Cargo.lock` is left out: cargo itself writes the name of its registry there.
pub(super) fn places(subject: &Subject<'_>) -> Vec<String> {
    let mut findings = Vec::new();
    for file in subject
        .tree
        .files
        .iter()
        .filter(|file| file.path != "Cargo.lock")
    {
        for (number, line) in numbered(&file.text) {
            for folder in MACHINE_FOLDERS
                .iter()
                .filter(|folder| starts_a_path(line, folder))
            {
                findings.push(format!(
                    "{}:{number} a path of one machine: {folder}",
                    file.path
                ));
            }
            for host in REGISTRY_HOSTS.iter().filter(|host| line.contains(**host)) {
                findings.push(format!("{}:{number} a registry's host: {host}", file.path));
            }
        }
    }
    findings
}

/// Returns whether `folder` stands in `line` where a path begins, not in the middle of one.
fn starts_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        line[..at].chars().next_back().is_none_or(|before| {
            !before.is_alphanumeric() && !['.', '-', '_', '/', '~', '}', ')', '*'].contains(&before)
        })
    })
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
}

#[cfg(test)]
mod tests {
    use super::{super::findings_in, *};

    #[test]
    fn every_unfinished_word_is_found_in_code_and_nowhere_else() {
        for word in UNFINISHED {
            assert_eq!(
                findings_in(&[("a.rs", word)], unfinished).len(),
                1,
                "{word}"
            );
            assert!(
                findings_in(&[("a.md", word)], unfinished).is_empty(),
                "{word}"
            );
        }
    }

    #[test]
    fn a_machine_path_is_found_where_a_path_begins() {
        for folder in MACHINE_FOLDERS {
            for (line, wanted) in [
                (format!("see {folder}x"), 1),
                (format!("\"{folder}x\""), 1),
                (format!("target{folder}x"), 0),
                (format!("docs/a{folder}x"), 0),
            ] {
                assert_eq!(
                    findings_in(&[("a.md", &line)], places).len(),
                    wanted,
                    "{line}"
                );
            }
        }
    }

    #[test]
    fn a_registry_is_named_by_the_lock_file_alone() {
        for host in REGISTRY_HOSTS {
            let line = format!("https://{host}/x");
            assert_eq!(
                findings_in(&[("package-lock.json", &line)], places).len(),
                1,
                "{host}"
            );
            assert!(
                findings_in(&[("Cargo.lock", &line)], places).is_empty(),
                "{host}"
            );
        }
    }
}
