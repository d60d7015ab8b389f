//! Everything that is kept in the corpora holds.

use earshot_fuzz::{TARGETS, corpus};

#[test]
fn every_kept_input_holds() {
    for target in TARGETS {
        for (path, input) in corpus(target.name).unwrap() {
            let held = std::panic::catch_unwind(|| (target.run)(&input));
            assert!(held.is_ok(), "{}", path.display());
        }
    }
}
