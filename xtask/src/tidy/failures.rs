//! The book of failures: what it says is shown by tests that exist.

use std::collections::BTreeMap;

use super::Subject;
use crate::tree::{SourceFile, Tree};

/// Where the book is.
const BOOK: &str = "docs/failures.md";

/// What stands before the tests of a class of failures.
const SHOWN_BY: &str = "Shown by";

/// Finds classes of failures without a test, and tests that are named and do not exist.
pub(super) fn unproven(subject: &Subject<'_>) -> Vec<String> {
    let Some(book) = subject.tree.file(BOOK) else {
        return vec![format!("{BOOK} is missing")];
    };
    let packages = packages(subject.tree);
    let mut findings = Vec::new();
    for (class, text) in classes(&book.text) {
        let tests = named_tests(text);
        if tests.is_empty() {
            findings.push(format!("{BOOK}: `{class}` names no test"));
        }
        for test in tests {
            if !exists(subject.tree, &packages, test) {
                findings.push(format!("{BOOK}: `{class}` names {test}, which is no test"));
            }
        }
    }
    findings
}

/// Returns the sections of the third level with their text.
fn classes(book: &str) -> Vec<(&str, &str)> {
    let sections = book.split("\n### ").skip(1);
    sections
        .map(|section| {
            let section = section.split("\n## ").next().unwrap_or(section);
            section.split_once('\n').unwrap_or((section, ""))
        })
        .collect()
}

/// Returns what stands in backticks behind the words that announce tests, to the end of the section.
fn named_tests(section: &str) -> Vec<&str> {
    let announced = section.split_once(SHOWN_BY).map_or("", |(_, rest)| rest);
    announced.split('`').skip(1).step_by(2).collect()
}

/// Returns the folder of each package by its name.
fn packages(tree: &Tree) -> BTreeMap<&str, &str> {
    let manifests = tree.files.iter().filter_map(|file| {
        let folder = file.path.strip_suffix("/Cargo.toml")?;
        let name = file
            .text
            .lines()
            .find_map(|line| line.strip_prefix("name = \""))?;
        Some((name.trim_end_matches('"'), folder))
    });
    manifests.collect()
}

/// Says whether there is a test of this name, as nextest lists it: `package path::of::test`, or
/// `package::binary path::of::test` for one of an integration binary.
fn exists(tree: &Tree, packages: &BTreeMap<&str, &str>, test: &str) -> bool {
    let Some((binary, path)) = test.split_once(' ') else {
        return false;
    };
    let (package, binary) = match binary.split_once("::") {
        Some((package, binary)) => (package, Some(binary)),
        None => (binary, None),
    };
    let Some(folder) = packages.get(package) else {
        return false;
    };
    let modules: Vec<&str> = path.split("::").collect();
    let Some((function, modules)) = modules.split_last() else {
        return false;
    };
    (0..=modules.len()).any(|at| {
        let (outer, inner) = modules.split_at(at);
        let files = places(folder, binary, outer);
        let mut files = files.iter().filter_map(|path| tree.file(path));
        files.any(|file| has_test(file, inner, function))
    })
}

/// Returns where the file of a module may be.
fn places(folder: &str, binary: Option<&str>, modules: &[&str]) -> Vec<String> {
    let inside = modules.join("/");
    match (binary, modules.is_empty()) {
        (None, true) => vec![
            format!("{folder}/src/lib.rs"),
            format!("{folder}/src/main.rs"),
        ],
        (None, false) => vec![
            format!("{folder}/src/{inside}.rs"),
            format!("{folder}/src/{inside}/mod.rs"),
        ],
        (Some(binary), true) => vec![
            format!("{folder}/tests/{binary}.rs"),
            format!("{folder}/tests/{binary}/main.rs"),
        ],
        (Some(binary), false) => vec![
            format!("{folder}/tests/{inside}.rs"),
            format!("{folder}/tests/{inside}/mod.rs"),
            format!("{folder}/tests/{binary}/{inside}.rs"),
            format!("{folder}/tests/{binary}/{inside}/mod.rs"),
        ],
    }
}

/// Says whether a file has a test of this name, and the modules that it is to be in.
fn has_test(file: &SourceFile, modules: &[&str], function: &str) -> bool {
    let inside = modules
        .iter()
        .all(|module| file.text.contains(&format!("mod {module} {{")));
    let declared = format!("fn {function}(");
    let mut lines = file.text.lines().rev();
    let found = lines.any(|line| line.contains(&declared));
    // Its attributes stand right above it.
    inside
        && found
        && lines
            .map(str::trim_start)
            .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
            .any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
}

#[cfg(test)]
mod tests {
    use super::{super::findings_in, *};

    const SOURCES: [(&str, &str); 5] = [
        ("crates/a/Cargo.toml", "[package]\nname = \"pack\"\n"),
        (
            "crates/a/src/deep/one.rs",
            "mod tests {\n    #[test]\n    #[cfg(unix)]\n    fn kept() {}\n\n    fn helper() {}\n}\n",
        ),
        (
            "crates/a/src/deep/two/tests.rs",
            "#[tokio::test(start_paused = true)]\nasync fn slow() {}\n",
        ),
        ("crates/a/tests/bin.rs", "#[test]\nfn whole() {}\n"),
        ("crates/a/tests/other/part.rs", "#[test]\nfn piece() {}\n"),
    ];

    fn findings(book: &str) -> Vec<String> {
        let mut files = SOURCES.to_vec();
        files.push((BOOK, book));
        findings_in(&files, unproven)
    }

    #[test]
    fn tests_that_exist_are_found_wherever_they_are() {
        let book = "# Book\n\n### One\n\nText with `code`.\n\nShown by `pack deep::one::tests::kept`,\n\
                    `pack deep::two::tests::slow`.\n\n## Part\n\n### Two\n\nShown by\n\
                    `pack::bin whole` and `pack::other part::piece`.\n";
        assert_eq!(findings(book), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_test_is_named_with_its_class() {
        for test in [
            "pack deep::one::tests::gone",
            "pack deep::one::tests::helper",
            "pack deep::one::kept_elsewhere",
            "pack deep::two::slow",
            "pack whole",
            "pack::bin piece",
            "nobody deep::one::tests::kept",
            "kept",
        ] {
            let found = findings(&format!("# Book\n\n### One\n\nShown by `{test}`.\n"));
            assert_eq!(found.len(), 1, "{test}: {found:?}");
            assert!(
                found[0].contains("`One`") && found[0].contains(test),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_class_without_a_test_and_a_missing_book_are_named() {
        let found = findings("# Book\n\n### One\n\nIt happens, says `nobody`.\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(findings_in(&SOURCES, unproven).len(), 1);
    }
}
