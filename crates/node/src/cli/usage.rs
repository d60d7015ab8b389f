//! Usage errors that clap finds, in the form of every other error.

use std::ffi::OsString;

use clap::error::ErrorKind;
use earshot_capability::Code;

use super::{
    error::{CliError, Exit},
    printer::Format,
};

/// Finds the format that was asked for on a command line that clap could not read.
pub(super) fn format_of(arguments: impl IntoIterator<Item = OsString>) -> Format {
    let mut arguments = arguments.into_iter().take_while(|it| it != "--");
    let named = std::iter::from_fn(|| {
        let argument = arguments.next()?;
        Some(match argument.to_str() {
            Some("--format") => arguments.next().is_some_and(|value| value == "json"),
            Some(text) => text == "--format=json",
            None => false,
        })
    });
    if named.into_iter().any(|json| json) {
        Format::Json
    } else {
        Format::Text
    }
}

/// Words a usage error of clap as an error of earshot.
pub(super) fn usage_error(error: &clap::Error) -> CliError {
    let text = error.to_string();
    let message = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            "a command is missing".to_owned()
        }
        _ => {
            // Its first paragraph, which may name several arguments below each other.
            let first = text.split("\n\n").next().unwrap_or_default();
            let lines: Vec<&str> = first.lines().map(str::trim).collect();
            let line = lines.join(" ");
            line.strip_prefix("error: ").unwrap_or(&line).to_owned()
        }
    };
    let tip = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("tip: "));
    let remedy = tip.unwrap_or("Add --help to see what it takes.").to_owned();
    CliError::new(Exit::Usage, Code::InvalidInput, message, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{capabilities::alone, cli::command};

    #[test]
    fn the_format_is_found_wherever_it_stands() {
        for (line, expected) in [
            (&["call", "--format", "json"][..], Format::Json),
            (&["--format=json", "bogus"], Format::Json),
            (&["--format", "text", "x"], Format::Text),
            (&["call", "--", "--format", "json"], Format::Text),
            (&["peers", "--format"], Format::Text),
            (&[], Format::Text),
        ] {
            let line = line.iter().map(OsString::from);
            assert_eq!(format_of(line), expected);
        }
    }

    #[test]
    fn a_usage_error_has_one_message_and_one_remedy() {
        for (line, message, remedy) in [
            (
                &["earshot"][..],
                "a command is missing",
                "Add --help to see what it takes.",
            ),
            (
                &["earshot", "--format", "json"],
                "a command is missing",
                "Add --help to see what it takes.",
            ),
            (
                &["earshot", "call"],
                "the following required arguments were not provided: <ID>",
                "Add --help to see what it takes.",
            ),
            (
                &["earshot", "peerss"],
                "unrecognized subcommand 'peerss'",
                "A similar subcommand exists: 'peers'.",
            ),
        ] {
            let declared = alone();
            let command = command::whole(declared.registry());
            let error = command.try_get_matches_from(line).unwrap_err();
            let failure = usage_error(&error).failure;
            assert_eq!(failure.message, message);
            assert_eq!(failure.remedy, remedy, "{line:?}");
        }
    }
}
