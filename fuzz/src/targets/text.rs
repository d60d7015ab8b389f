//! Text that others will see, and paths that they claim.

use std::path::PathBuf;

use earshot_checkout::{Checkout, CheckoutKind};
use earshot_proto::{
    claims::Claim,
    limits::{CLAIM_BYTES_MAX, INTENT_BYTES_MAX, NAME_BYTES_MAX},
    text::{Line, shows_nothing},
};

/// What another agent reads is one plain line within its bound, and cleaning it again changes
/// nothing.
///
/// # Panics
/// When that is not so.
pub fn display_text(data: &[u8]) {
    let raw = String::from_utf8_lossy(data);
    let name = Line::name(&raw);
    assert!(name.as_str().len() <= NAME_BYTES_MAX, "{name:?}");
    plain(name.as_str());
    assert_eq!(Line::name(name.as_str()), name);
    if let Ok(intent) = Line::intent(&raw) {
        assert!(
            intent.as_str().len() <= INTENT_BYTES_MAX && !intent.is_empty(),
            "{intent:?}"
        );
        plain(intent.as_str());
        assert_eq!(Line::intent(intent.as_str()), Ok(intent));
    }
}

fn plain(text: &str) {
    let odd = text
        .chars()
        .find(|it| it.is_control() || shows_nothing(*it) || (it.is_whitespace() && *it != ' '));
    assert_eq!(odd, None, "{text:?}");
    assert_eq!(text.trim(), text);
    assert!(!text.contains("  "), "{text:?}");
}

/// A claim is a plain path within the checkout, in one spelling, and meets exactly what lies
/// within it.
///
/// # Panics
/// When that is not so.
pub fn claim_path(data: &[u8]) {
    let raw = String::from_utf8_lossy(data);
    let (one, other) = raw.split_once('\n').unwrap_or((&raw, ""));
    for path in [one, other] {
        match earshot_checkout::claim_path(&nowhere(), path) {
            Ok(relative) => assert_eq!(relative, path, "only a path that is relative stays"),
            Err(_) => assert!(path.starts_with('/'), "{path:?}"),
        }
    }
    let (Ok(one), Ok(other)) = (Claim::parse(one), Claim::parse(other)) else {
        return;
    };
    for claim in [&one, &other] {
        let text = claim.as_str();
        assert!(
            !text.is_empty() && text.len() <= CLAIM_BYTES_MAX,
            "{text:?}"
        );
        assert!(!text.starts_with('/') && !text.ends_with('/'), "{text:?}");
        let mut before = '/';
        for it in text.chars() {
            // What joins is let through where it may join something.
            let joins = matches!(it, '\u{200d}' | '\u{fe0f}') && !before.is_ascii_alphabetic();
            assert!(
                !it.is_control() && (joins || !shows_nothing(it)),
                "{text:?}"
            );
            before = it;
        }
        assert!(
            claim.components().all(|it| !["", ".", ".."].contains(&it)),
            "{text:?}"
        );
        assert_eq!(Claim::parse(text).as_ref(), Ok(claim), "{text:?}");
    }
}

/// A checkout that is not on this machine: no absolute path leads into it.
fn nowhere() -> Checkout {
    Checkout {
        root: PathBuf::from("/nowhere/earshot"),
        kind: CheckoutKind::Folder,
        git_dir: None,
        common_dir: None,
        device: u64::MAX,
        inode: u64::MAX,
    }
}
