//! How long a source file may be.

use super::Subject;
use crate::tree::SourceFile;

/// Lines of a file, tests included, past which nobody holds it in mind.
const LINES_MAX: usize = 800;

/// Lines without tests past which a file is worth a look for a seam.
const LINES_NOTED: usize = 500;

const _: () = assert!(LINES_NOTED < LINES_MAX);

/// Finds files past the hard limit.
pub(super) fn too_long(subject: &Subject<'_>) -> Vec<String> {
    sources(subject)
        .filter_map(|file| {
            let lines = file.text.lines().count();
            let path = &file.path;
            (lines > LINES_MAX).then(|| {
                format!("{path} has {lines} lines, {LINES_MAX} at most: where is the seam?")
            })
        })
        .collect()
}

/// Names files that are getting long.
pub(super) fn notes(subject: &Subject<'_>) -> Vec<String> {
    sources(subject)
        .filter(|file| !file.path.ends_with("/tests.rs"))
        .filter_map(|file| {
            let lines = lines_without_tests(&file.text);
            let path = &file.path;
            (lines > LINES_NOTED).then(|| format!("{path} has {lines} lines without its tests"))
        })
        .collect()
}

fn sources<'a>(subject: &'a Subject<'_>) -> impl Iterator<Item = &'a SourceFile> {
    subject
        .tree
        .files
        .iter()
        .filter(|file| file.has_extension(&["rs", "py", "mjs", "js"]))
}

fn lines_without_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod "))
        .unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::{super::findings_in, *};

    #[test]
    fn a_file_is_too_long_after_its_limit() {
        let (at, past) = ("x\n".repeat(LINES_MAX), "x\n".repeat(LINES_MAX + 1));
        assert!(findings_in(&[("a.rs", &at), ("b.md", &past)], too_long).is_empty());
        assert_eq!(findings_in(&[("a.rs", &past)], too_long).len(), 1);
    }

    #[test]
    fn tests_do_not_count_towards_a_note() {
        let code = "x\n".repeat(LINES_NOTED);
        let tested = format!("{code}#[cfg(test)]\nmod tests {{\n{code}}}\n");
        assert!(findings_in(&[("a.rs", &tested)], notes).is_empty());
        assert_eq!(
            findings_in(&[("a.rs", &format!("{code}y\n"))], notes).len(),
            1
        );
    }
}
