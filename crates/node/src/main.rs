//! The `earshot` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    earshot::main()
}
