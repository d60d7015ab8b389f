//! The one place that writes to standard output and standard error.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::OnceLock,
};

use serde_json::Value;

use super::error::CliError;

/// How a person, or a program, wants to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Tables and sentences.
    Text,
    /// JSON.
    Json,
}

/// Colours that carry meaning; on a terminal only, and never with `NO_COLOR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// A heading.
    Strong,
    /// Something that is off.
    Alarm,
    /// A side remark.
    Faint,
}

/// Writes for one command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    format: Format,
    colour: bool,
}

impl Printer {
    /// Makes the printer of a command.
    pub(crate) fn new(format: Format, no_colour: bool) -> Self {
        let colour = format == Format::Text && !no_colour && io::stdout().is_terminal();
        Self { format, colour }
    }

    /// Returns the format that was asked for.
    pub(crate) const fn format(self) -> Format {
        self.format
    }

    /// Colours a piece of text, where colours are shown.
    pub(crate) fn tone(self, tone: Tone, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Strong => "1",
            Tone::Alarm => "31",
            Tone::Faint => "2",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// Reports an error: a sentence and a remedy, or the object of every surface.
    pub(crate) fn fail(self, error: &CliError) {
        match self.format {
            Format::Json => {
                let id = error.request_id.as_deref();
                say(&error.failure.to_json(id).to_string());
            }
            Format::Text => {
                let failure = &error.failure;
                say(&format!(
                    "error: {}\nhint: {}",
                    failure.message, failure.remedy
                ));
            }
        }
    }
}

/// Why an answer did not reach standard output. The first failure is the one that counts.
static UNWRITTEN: OnceLock<io::Error> = OnceLock::new();

/// Prints to standard output. A reader that went away has read enough: that is no error. Any other
/// failure is kept for [`unwritten`], which the program asks at its end.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    note(written);
}

/// Keeps the failure of writing to standard output.
pub(super) fn note(written: io::Result<()>) {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            UNWRITTEN.set(error).ok(); // the first one counts
        }
        Ok(()) | Err(_) => {}
    }
}

/// Returns why standard output could not be written, if it could not.
pub(super) fn unwritten() -> Option<&'static io::Error> {
    UNWRITTEN.get()
}

/// Says something on standard error.
pub(crate) fn say(text: &str) {
    let mut err = io::stderr().lock();
    err.write_all(format!("{text}\n").as_bytes()).ok(); // there is nowhere else to say it
}

/// Prints a value as JSON, on one line.
pub(crate) fn print_json(value: &Value) {
    print(&format!("{value}\n"));
}
