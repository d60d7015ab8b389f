//! The one place that writes to standard output and standard error.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::OnceLock,
};

use serde_json::Value;

use super::{
    error::CliError,
    shown::{shown, shown_json, shown_lines},
};

/// How a person, or a program, wants to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Tables and sentences.
    Text,
    /// JSON.
    Json,
}

/// Colours that carry meaning; on a terminal only, and never where the environment refuses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// A heading.
    Strong,
    /// Something that is off.
    Alarm,
    /// A side remark.
    Faint,
}

impl Tone {
    const fn code(self) -> &'static str {
        match self {
            Self::Strong => "\u{1b}[1m",
            Self::Alarm => "\u{1b}[31m",
            Self::Faint => "\u{1b}[2m",
        }
    }
}

/// Ends a tone.
const PLAIN: &str = "\u{1b}[0m";

/// All that earshot ever tells a terminal.
const COLOURS: [&str; 4] = [
    Tone::Strong.code(),
    Tone::Alarm.code(),
    Tone::Faint.code(),
    PLAIN,
];

/// Writes for one command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    format: Format,
    colour: bool,
    /// Columns of the terminal; `None` where the answer goes elsewhere, and nothing is cut.
    columns: Option<usize>,
}

impl Printer {
    /// Makes the printer of a command.
    pub(crate) fn new(format: Format, no_colour: bool) -> Self {
        let terminal = io::stdout().is_terminal();
        Self {
            format,
            colour: format == Format::Text && !no_colour && terminal,
            columns: terminal.then(columns_of_terminal).flatten(),
        }
    }

    /// Makes a printer for a terminal of this width, or for none, without colours.
    #[cfg(test)]
    pub(super) const fn plain(columns: Option<usize>) -> Self {
        Self {
            format: Format::Text,
            colour: false,
            columns,
        }
    }

    /// Returns the format that was asked for.
    pub(crate) const fn format(self) -> Format {
        self.format
    }

    /// Says whether colours are shown.
    pub(super) const fn colour(self) -> bool {
        self.colour
    }

    /// Returns the columns that a line may have, where there is a terminal.
    pub(super) const fn columns(self) -> Option<usize> {
        self.columns
    }

    /// Colours a piece of text, where colours are shown.
    pub(crate) fn tone(self, tone: Tone, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        format!("{}{text}{PLAIN}", tone.code())
    }

    /// Reports an error: a sentence and a remedy, or the object of every surface.
    pub(crate) fn fail(self, error: &CliError) {
        match self.format {
            Format::Json => {
                let id = error.request_id.as_deref();
                say(&shown_json(&error.failure.to_json(id).to_string()));
            }
            Format::Text => {
                let failure = &error.failure;
                say(&format!(
                    "error: {}\nhint: {}",
                    shown(&failure.message),
                    shown(&failure.remedy)
                ));
            }
        }
    }
}

fn columns_of_terminal() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    // A terminal that does not know its size says 0.
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Why an answer did not reach standard output. The first failure is the one that counts.
static UNWRITTEN: OnceLock<io::Error> = OnceLock::new();

/// Prints to standard output what a person reads.
pub(crate) fn print(text: &str) {
    write_out(&shown_lines(text, &COLOURS));
}

/// Prints a value as JSON, on one line.
pub(crate) fn print_json(value: &Value) {
    write_out(&format!("{}\n", shown_json(&value.to_string())));
}

/// Writes to standard output. A reader that went away has read enough: that is no error. Any other
/// failure is kept for [`unwritten`], which the program asks at its end.
fn write_out(text: &str) {
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
    let text = shown_lines(text, &[]);
    err.write_all(format!("{text}\n").as_bytes()).ok(); // there is nowhere else to say it
}
