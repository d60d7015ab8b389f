//! Which build this is.

/// The version of this release.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the commit that this executable was built from, where the build knew it.
pub(crate) fn commit() -> Option<String> {
    Some(env!("EARSHOT_BUILD_COMMIT"))
        .filter(|commit| *commit != "unknown")
        .map(str::to_owned)
}

/// Says whether its tree carried uncommitted changes, where the build knew it.
pub(crate) fn dirty() -> Option<bool> {
    env!("EARSHOT_BUILD_DIRTY").parse().ok()
}
