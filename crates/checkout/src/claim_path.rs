//! From a path as an agent writes it to one relative to the checkout's root.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::checkout::Checkout;

/// The path is not one of the checkout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimPathError {
    /// An absolute path that leads elsewhere.
    #[error("{0} is outside the checkout")]
    Outside(String),
    /// The way into the checkout leads through a folder whose name is not UTF-8.
    #[error("{0} leads through a name that is not UTF-8")]
    NotUtf8(String),
}

/// Returns a path relative to the checkout's root; what is relative already stays as it is.
///
/// An absolute path may spell the root in any way that leads there: a symlink to it or to a folder
/// in it, a bind mount, another case where the file system folds case. From the point where the
/// path is in the checkout, the rest is text: neither has it to exist, nor is a symlink below the
/// root followed, so that a claim is the same before and after the file is made. Nothing else is
/// decided here: `.` and `..`, separators and globs are the claims' own rules.
///
/// # Errors
///
/// [`ClaimPathError`] for an absolute path that does not lead into the checkout.
pub fn claim_path(checkout: &Checkout, raw: &str) -> Result<String, ClaimPathError> {
    if !raw.starts_with('/') {
        return Ok(raw.to_owned());
    }
    // The shortest beginning that is in the checkout, so that symlinks below it are not followed.
    for end in beginnings(raw) {
        let Some(inside) = inside_checkout(checkout, Path::new(&raw[..end])) else {
            break;
        };
        let Inside::At(folder) = inside else { continue };
        let rest = raw[end..].trim_start_matches('/');
        if climbs_out(&folder, rest) {
            continue;
        }
        let folder = folder
            .to_str()
            .ok_or_else(|| ClaimPathError::NotUtf8(raw.to_owned()))?;
        return Ok(joined(folder, rest));
    }
    Err(ClaimPathError::Outside(raw.to_owned()))
}

/// Where a beginning of a path leads.
enum Inside {
    /// To this folder of the checkout, relative to its root.
    At(std::path::PathBuf),
    /// To somewhere else.
    No,
}

/// The ends of the beginnings of an absolute path that are whole names, shortest first.
fn beginnings(raw: &str) -> impl Iterator<Item = usize> {
    let bytes = raw.as_bytes();
    (1..=bytes.len()).filter(move |end| {
        let ends_name = *end == bytes.len() || bytes[*end] == b'/';
        *end == 1 || (ends_name && bytes[*end - 1] != b'/')
    })
}

/// Returns where a beginning leads, `None` where it leads nowhere, and so does all beyond it.
fn inside_checkout(checkout: &Checkout, beginning: &Path) -> Option<Inside> {
    let canonical = std::fs::canonicalize(beginning).ok()?;
    if let Ok(folder) = canonical.strip_prefix(&checkout.root) {
        return Some(Inside::At(folder.to_path_buf()));
    }
    let metadata = std::fs::metadata(&canonical).ok()?;
    let is_root = (metadata.dev(), metadata.ino()) == (checkout.device, checkout.inode);
    Some(if is_root {
        Inside::At(std::path::PathBuf::new())
    } else {
        Inside::No
    })
}

/// Whether the names of `rest` lead above the root when started in `folder`.
fn climbs_out(folder: &Path, rest: &str) -> bool {
    let mut depth = folder.components().count();
    for name in rest.split('/') {
        match name {
            "" | "." => {}
            ".." if depth == 0 => return true,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    false
}

fn joined(folder: &str, rest: &str) -> String {
    match (folder, rest) {
        ("", "") => ".".to_owned(),
        // A glob needs a folder before it.
        ("", "**") => "./**".to_owned(),
        ("", rest) => rest.to_owned(),
        (folder, "") => folder.to_owned(),
        (folder, rest) => format!("{folder}/{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_are_whole_names() {
        let found: Vec<_> = beginnings("//ab/c/").map(|end| &"//ab/c/"[..end]).collect();
        assert_eq!(found, ["/", "//ab", "//ab/c"]);
        assert_eq!(beginnings("/").collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_rest_that_leads_above_the_root_climbs_out() {
        for (folder, rest, expected) in [
            ("", "src/../a", false),
            ("", "..", true),
            ("", "src/../../x", true),
            ("src", "../a", false),
            ("src", "../../a", true),
            ("", "./../a", true),
        ] {
            assert_eq!(
                climbs_out(Path::new(folder), rest),
                expected,
                "{folder} {rest}"
            );
        }
    }
}
