//! Links between the Markdown files of the repository.

use super::Subject;
use crate::tree::{SourceFile, Tree};

/// Finds relative links whose file or heading does not exist.
pub(super) fn broken(subject: &Subject<'_>) -> Vec<String> {
    let mut findings = Vec::new();
    for file in subject
        .tree
        .files
        .iter()
        .filter(|file| file.has_extension(&["md"]))
    {
        for target in targets(&file.text) {
            if let Some(why) = problem(subject.tree, file, &target) {
                findings.push(format!("{} links to {target}: {why}", file.path));
            }
        }
    }
    findings
}

fn problem(tree: &Tree, from: &SourceFile, target: &str) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() {
        from.path.clone()
    } else {
        match resolve(&from.path, path) {
            Some(path) => path,
            None => return Some("outside the repository"),
        }
    };
    if !tree.has_path(&path) {
        return Some("no such file");
    }
    if anchor.is_empty() {
        return None;
    }
    let known = tree
        .file(&path)
        .is_some_and(|file| anchors(&file.text).any(|it| it == anchor));
    (!known).then_some("no such heading")
}

/// Returns the path that a relative link in `from` means, or `None` where it leaves the repository.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Returns what inline links and reference definitions point at, outside code.
fn targets(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for line in prose(text) {
        let line = without_code(line);
        for (at, _) in line.match_indices("](") {
            let rest = &line[at + 2..];
            if let Some(end) = rest.find([')', ' ']) {
                targets.push(rest[..end].to_owned());
            }
        }
        if let Some((_, target)) = line
            .strip_prefix('[')
            .and_then(|definition| definition.split_once("]: "))
        {
            targets.extend(target.split_whitespace().next().map(str::to_owned));
        }
    }
    targets
}

/// Returns the anchors that a forge gives to the headings of a file.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    prose(text)
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter_map(|character| match character {
                    ' ' => Some('-'),
                    '-' | '_' => Some(character),
                    _ => character.is_alphanumeric().then_some(character),
                })
                .collect()
        })
}

/// Returns the lines outside fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        if fence {
            fenced = !fenced;
        }
        !fenced && !fence
    })
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::findings_in, *};

    fn broken_in(text: &str) -> Vec<String> {
        findings_in(
            &[
                ("README.md", "# The top\n## A `b`, c\n"),
                ("docs/a.md", text),
                ("docs/d/x.md", ""),
            ],
            broken,
        )
    }

    #[test]
    fn links_that_resolve_are_quiet() {
        for text in [
            "[a](../README.md) [b](../README.md#the-top) [c](../README.md#a-b-c) [d](d/x.md) [e](d)",
            "[web](https://example.org/x) `[code](nowhere.md)`",
            "```\n[fenced](nowhere.md)\n```",
            "# Here\n[self](#here)",
            "[reference]: d/x.md",
        ] {
            assert_eq!(broken_in(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn links_that_do_not_resolve_are_found() {
        for text in [
            "[a](b.md)",
            "[a](../README.md#nowhere)",
            "[a](../../outside.md)",
            "[self](#nowhere)",
            "[reference]: nowhere.md",
            "![picture](nowhere.png)",
        ] {
            assert_eq!(broken_in(text).len(), 1, "{text}");
        }
    }
}
