//! `earshot completions` and `earshot man`: the command line, written down from the very
//! declarations that it is read by.

use std::{io, path::Path, process::ExitCode};

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use clap_mangen::Man;
use earshot_capability::{Code, Registry};
use serde_json::json;

use super::{
    command,
    context::Context,
    error::{CliError, Exit, with_causes},
    printer::{Format, print, print_json},
};

/// Declares `completions`.
pub(super) fn completions_command() -> Command {
    Command::new("completions")
        .about("Print what lets a shell complete this command line")
        .arg(
            Arg::new("shell")
                .required(true)
                .value_name("SHELL")
                .value_parser(value_parser!(Shell))
                .help("Shell to write it for"),
        )
}

/// Declares `man`.
pub(super) fn man_command() -> Command {
    Command::new("man")
        .about("Print the manual page of earshot, or write the pages of all commands")
        .arg(
            Arg::new("into")
                .long("into")
                .value_name("FOLDER")
                .value_parser(value_parser!(std::path::PathBuf))
                .help("Write the pages of all commands into this folder"),
        )
}

/// Runs `earshot completions`.
pub(super) fn completions(context: &Context, registry: &Registry, matches: &ArgMatches) {
    let shell = *matches.get_one::<Shell>("shell").expect("clap asks for it");
    let script = script(&command::whole(registry), shell);
    match context.printer.format() {
        Format::Json => print_json(&json!({ "shell": shell.to_string(), "script": script })),
        Format::Text => print(&script),
    }
}

/// Runs `earshot man`.
///
/// # Errors
/// When a page cannot be written.
pub(super) fn man(
    context: &Context,
    registry: &Registry,
    matches: &ArgMatches,
) -> Result<ExitCode, CliError> {
    let format = context.printer.format();
    let pages = pages(&command::whole(registry));
    let Some(folder) = matches.get_one::<std::path::PathBuf>("into") else {
        let page = pages.first().expect("earshot has a page itself");
        match format {
            Format::Json => print_json(&json!({ "name": page.name, "text": page.text })),
            Format::Text => print(&page.text),
        }
        return Ok(ExitCode::SUCCESS);
    };
    let written = write_all(folder, &pages).map_err(|error| {
        let remedy = "Make the folder writable, or name another with --into.".to_owned();
        CliError::new(Exit::Failed, Code::Unavailable, with_causes(&error), remedy)
    })?;
    match format {
        Format::Json => print_json(&json!({ "written": written })),
        Format::Text => print(&super::wrote(&written)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes all pages, and returns their paths.
fn write_all(folder: &Path, pages: &[Page]) -> io::Result<Vec<String>> {
    fs_err::create_dir_all(folder)?;
    let write = |page: &Page| {
        let path = folder.join(&page.name);
        fs_err::write(&path, &page.text)?;
        Ok(path.to_string_lossy().into_owned())
    };
    pages.iter().map(write).collect()
}

/// A manual page.
struct Page {
    /// The name of its file.
    name: String,
    /// It, for `man`.
    text: String,
}

/// Writes the completions of a command line.
fn script(command: &Command, shell: Shell) -> String {
    let mut script = Vec::new();
    let mut command = as_seen(command);
    clap_complete::generate(shell, &mut command, "earshot", &mut script);
    String::from_utf8(script).expect("commands are declared in text")
}

/// Writes the page of a command and of all below it, its own first.
fn pages(command: &Command) -> Vec<Page> {
    let mut command = as_seen(command);
    command.build();
    let mut pages = Vec::new();
    add_pages(&mut pages, &command);
    pages
}

fn add_pages(pages: &mut Vec<Page>, command: &Command) {
    let source = format!("earshot {}", crate::build::VERSION);
    let man = Man::new(command.clone()).source(source);
    let mut text = Vec::new();
    man.render(&mut text)
        .expect("writing to memory cannot fail");
    pages.push(Page {
        name: man.get_filename(),
        text: String::from_utf8(text).expect("commands are declared in text"),
    });
    for below in command.get_subcommands() {
        add_pages(pages, below);
    }
}

/// Returns a command without what its help leaves out, too.
fn as_seen(command: &Command) -> Command {
    let mut seen = Command::new(command.get_name().to_owned())
        .disable_help_subcommand(true)
        .subcommand_required(command.is_subcommand_required_set())
        .args_conflicts_with_subcommands(command.is_args_conflicts_with_subcommands_set())
        .args(command.get_arguments().filter(|it| !it.is_hide_set()))
        .subcommands(
            command
                .get_subcommands()
                .filter(|it| !it.is_hide_set())
                .map(as_seen),
        );
    if let Some(about) = command.get_about() {
        seen = seen.about(about.clone());
    }
    if let Some(about) = command.get_long_about() {
        seen = seen.long_about(about.clone());
    }
    if let Some(text) = command.get_after_long_help() {
        seen = seen.after_long_help(text.clone());
    }
    if let Some(version) = command.get_version() {
        seen = seen.version(version.to_owned());
    }
    seen
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;
    use crate::capabilities::alone;

    /// Calls with every command that its help shows: its words, and it.
    fn each(command: &Command, words: &mut Vec<String>, with: &mut dyn FnMut(&[String], &Command)) {
        words.push(command.get_name().to_owned());
        with(words, command);
        for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            each(below, words, with);
        }
        words.pop();
    }

    fn flags(command: &Command) -> Vec<String> {
        let seen = command.get_arguments().filter(|it| !it.is_hide_set());
        let flags = seen.filter_map(|it| Some(format!("--{}", it.get_long()?)));
        flags.collect()
    }

    #[test]
    fn every_shell_completes_every_command_and_flag_and_nothing_hidden() {
        let whole = command::whole(alone().registry());
        for shell in Shell::value_variants() {
            let script = script(&whole, *shell);
            let mut commands = 0;
            each(&whole, &mut Vec::new(), &mut |words, command| {
                commands += 1;
                assert!(script.contains(command.get_name()), "{shell}: {words:?}");
                for flag in flags(command) {
                    // Fish spells a long flag without its dashes.
                    let fish = format!("-l {}", &flag[2..]);
                    assert!(
                        script.contains(&flag) || script.contains(&fish),
                        "{shell}: {words:?} {flag}"
                    );
                }
            });
            assert!(commands > 15, "{commands}");
            assert!(!script.contains("background"), "{shell}");
            assert!(!script.contains("generate"), "{shell}");
        }
    }

    #[test]
    fn every_command_has_a_page_that_names_its_arguments_and_what_is_below() {
        let whole = command::whole(alone().registry());
        let pages = pages(&whole);
        assert_eq!(pages[0].name, "earshot.1");
        let mut commands = 0;
        each(&whole, &mut Vec::new(), &mut |words, command| {
            commands += 1;
            let name = format!("{}.1", words.join("-"));
            let page = pages.iter().find(|page| page.name == name).expect(&name);
            let text = page.text.replace("\\-", "-");
            for flag in flags(command) {
                assert!(text.contains(&flag), "{name}: {flag}");
            }
            for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
                let below = format!("{}-{}(1)", words.join("-"), below.get_name());
                assert!(text.contains(&below), "{name}: {below}");
            }
        });
        assert_eq!(pages.len(), commands);
    }

    #[test]
    fn the_reference_has_a_row_for_every_command_with_its_options() {
        let usage = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/usage.md");
        let usage = fs_err::read_to_string(usage).unwrap();
        let whole = command::whole(alone().registry());
        let everywhere = ["--root", "--format"];
        each(&whole, &mut Vec::new(), &mut |words, command| {
            if command.is_subcommand_required_set() {
                return;
            }
            let begin = format!("| `{}", words.join(" "));
            let row = usage.lines().find(|line| {
                // Its own arguments may follow, which are not written small as commands are.
                let rest = line.strip_prefix(&begin);
                let rest = rest.map(|rest| rest.strip_prefix(' ').unwrap_or(rest));
                rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_lowercase()))
            });
            let row = row.unwrap_or_else(|| panic!("docs/usage.md has no row for {words:?}"));
            let named: Vec<&str> = row
                .split('|')
                .nth(2)
                .unwrap()
                .split('`')
                .skip(1)
                .step_by(2)
                .collect();
            let own: Vec<String> = flags(command)
                .into_iter()
                .filter(|flag| !everywhere.contains(&flag.as_str()))
                .collect();
            let (mut named, mut own) = (named, own);
            named.sort_unstable();
            own.sort_unstable();
            assert_eq!(named, own, "the options of {words:?} in docs/usage.md");
        });
    }
}
