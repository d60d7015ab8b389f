//! Usage errors that clap finds, in the form of every other error.

use std::ffi::OsString;

use clap::{Command, error::ErrorKind};
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

/// Most characters of what was typed that a usage error says again.
const ECHO_MAX: usize = 400;

/// Words a usage error of clap as an error of earshot.
pub(super) fn usage_error(
    error: &clap::Error,
    command: &Command,
    arguments: impl IntoIterator<Item = OsString>,
) -> CliError {
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
            let line = line.strip_prefix("error: ").unwrap_or(&line);
            // How Rust says that somebody typed a word for a number.
            let line = line.replace("invalid digit found in string", "not a whole number");
            match line.char_indices().nth(ECHO_MAX) {
                Some((end, _)) => format!("{}…", &line[..end]),
                None => line,
            }
        }
    };
    let tip = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("tip: "));
    let called = called(command, arguments);
    let remedy = match (tip, error.kind()) {
        (Some(tip), _) => tip.to_owned(),
        (None, ErrorKind::MissingSubcommand | ErrorKind::InvalidSubcommand)
            if called.words.len() > 1 =>
        {
            called.which()
        }
        (None, _) => format!("See `{} --help`.", called.words.join(" ")),
    };
    CliError::new(Exit::Usage, Code::InvalidInput, message, remedy)
}

/// A command that was called wrongly.
struct Called<'a> {
    words: Vec<String>,
    command: &'a Command,
}

impl Called<'_> {
    /// Names the commands that could have followed.
    fn which(&self) -> String {
        let seen = self
            .command
            .get_subcommands()
            .filter(|it| !it.is_hide_set());
        let names = seen.map(Command::get_name).filter(|name| *name != "help");
        let names: Vec<&str> = names.collect();
        format!("Name one of {}.", names.join(", "))
    }
}

/// Finds the command that the words of a command line lead to.
fn called(command: &Command, arguments: impl IntoIterator<Item = OsString>) -> Called<'_> {
    let mut called = Called {
        words: vec![command.get_name().to_owned()],
        command,
    };
    for argument in arguments {
        if let Some(below) = called.command.find_subcommand(&argument) {
            called.words.push(below.get_name().to_owned());
            called.command = below;
        }
    }
    called
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
                "See `earshot --help`.",
            ),
            (
                &["earshot", "capabilities"],
                "a command is missing",
                "Name one of list, describe.",
            ),
            (
                &["earshot", "serve", "bogus"],
                "unrecognized subcommand 'bogus'",
                "Name one of status, ensure, stop.",
            ),
            (
                &["earshot", "call"],
                "the following required arguments were not provided: <ID>",
                "See `earshot call --help`.",
            ),
            (
                &["earshot", "serve", "stop", "--wait", "soon"],
                "invalid value 'soon' for '--wait <SECONDS>': not a whole number",
                "See `earshot serve stop --help`.",
            ),
            (
                &["earshot", "peerss"],
                "unrecognized subcommand 'peerss'",
                "A similar subcommand exists: 'peers'.",
            ),
            (
                &["earshot", "peers", "--details"],
                "unexpected argument '--details' found",
                "A similar argument exists: '--detail'.",
            ),
            (
                &["earshot", "peers", "--format", "jsn"],
                "invalid value 'jsn' for '--format <FORMAT>' [possible values: text, json]",
                "A similar value exists: 'json'.",
            ),
        ] {
            let declared = alone();
            let mut command = command::whole(declared.registry());
            let error = command.try_get_matches_from_mut(line).unwrap_err();
            let arguments = line.iter().skip(1).map(OsString::from);
            let failure = usage_error(&error, &command, arguments).failure;
            assert_eq!(failure.message, message);
            assert_eq!(failure.remedy, remedy, "{line:?}");
        }
    }
}
