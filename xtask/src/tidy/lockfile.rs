//! How many packages the workspace builds from.

use super::Subject;

/// Packages in `Cargo.lock`. Raised on purpose, together with the decision that needs more.
const PACKAGES_MAX: usize = 300;

/// Finds a lock file that grew past the ceiling.
pub(super) fn ceiling(subject: &Subject<'_>) -> Vec<String> {
    let Some(lock) = subject.tree.file("Cargo.lock") else {
        return vec!["Cargo.lock is missing".to_owned()];
    };
    let packages = lock
        .text
        .lines()
        .filter(|line| *line == "[[package]]")
        .count();
    if packages > PACKAGES_MAX {
        return vec![format!(
            "Cargo.lock names {packages} packages, {PACKAGES_MAX} at most: is each worth it?"
        )];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::{super::findings_in, *};

    #[test]
    fn one_package_too_many_is_found() {
        let lock = |packages| "[[package]]\nname = \"x\"\n".repeat(packages);
        assert!(findings_in(&[("Cargo.lock", &lock(PACKAGES_MAX))], ceiling).is_empty());
        assert_eq!(
            findings_in(&[("Cargo.lock", &lock(PACKAGES_MAX + 1))], ceiling).len(),
            1
        );
        assert_eq!(findings_in(&[], ceiling).len(), 1);
    }
}
