//! `clippy.toml`: a mistyped path in it only warns, and a second one in a crate replaces the first.

use super::Subject;

/// Finds a second configuration, and banned paths whose first word is no crate that is used.
///
/// Whether the rest of a path exists is seen by clippy alone: the clippy gate fails on its warning.
pub(super) fn mistakes(subject: &Subject<'_>) -> Vec<String> {
    let mut findings = Vec::new();
    for path in &subject.tree.paths {
        if path != "clippy.toml"
            && (path.ends_with("/clippy.toml") || path.ends_with(".clippy.toml"))
        {
            findings.push(format!(
                "{path} would replace the lists of the clippy.toml at the root"
            ));
        }
    }
    let Some(file) = subject.tree.file("clippy.toml") else {
        findings.push("clippy.toml is missing at the root".to_owned());
        return findings;
    };
    for path in file.text.lines().filter_map(banned_path) {
        let krate = path.split("::").next().unwrap_or(path);
        let known = ["std", "core", "alloc"].contains(&krate)
            || subject
                .graph
                .links
                .keys()
                .any(|name| name.replace('-', "_") == krate);
        if !known {
            findings.push(format!(
                "clippy.toml bans {path}, but nothing here uses {krate}"
            ));
        }
    }
    findings
}

fn banned_path(line: &str) -> Option<&str> {
    let (_, after) = line.split_once("path = \"")?;
    after.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::{super::findings_in, *};

    #[test]
    fn a_second_configuration_is_found() {
        let findings = findings_in(
            &[("clippy.toml", ""), ("crates/a/clippy.toml", "")],
            mistakes,
        );
        assert_eq!(findings.len(), 1);
        assert_eq!(findings_in(&[], mistakes).len(), 1);
    }

    #[test]
    fn a_ban_on_an_unknown_crate_is_found() {
        let text = r#"disallowed-methods = [
            { path = "std::thread::sleep", reason = "x" },
            { path = "tokyo::spawn", reason = "x" },
        ]"#;
        let findings = findings_in(&[("clippy.toml", text)], mistakes);
        assert_eq!(
            findings,
            ["clippy.toml bans tokyo::spawn, but nothing here uses tokyo"]
        );
    }
}
