//! The command line, as clap sees it: fixed commands, and the verbs that capabilities declare.

use std::{ffi::OsStr, time::Duration};

use clap::{Arg, ArgAction, ArgMatches, Command, builder::PossibleValuesParser, value_parser};
use earshot_capability::{CliVerb, Declaration, Registry};
use serde_json::{Map, Value, json};

use super::manual;
use crate::bench::{CallsSettings, HostileKind, LoadSettings, SoakSettings, TakeoverSettings};

/// First arguments that are read without the verbs of capabilities, which take schemas to make:
/// bridges and nodes start far more often than anything else, and stay.
const FIXED: [&str; 7] = [
    "mcp",
    "serve",
    "bench",
    "init",
    "context",
    "--version",
    "-V",
];

/// Where a help shows the options of every command: after the command's own.
const EVERYWHERE: usize = 500;

/// Says whether the first argument is one of the fixed commands that need no verbs beside them.
pub(crate) fn is_fixed(first: Option<&OsStr>) -> bool {
    first.is_some_and(|first| FIXED.iter().any(|fixed| first == *fixed))
}

/// Builds the command line of the fixed commands.
pub(crate) fn fixed() -> Command {
    Command::new("earshot")
        .about("Puts every AI coding agent within earshot of the others.")
        .version(crate::build::VERSION)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(root_arg())
        .arg(
            Arg::new("format")
                .long("format")
                .global(true)
                .value_name("FORMAT")
                .value_parser(PossibleValuesParser::new(["text", "json"]))
                .default_value("text")
                .display_order(EVERYWHERE)
                .help("How to answer: for a person, or as JSON"),
        )
        .subcommand(
            Command::new("up")
                .about("See to it that this checkout's node runs, and show how to join it")
                .args(ensure_args()),
        )
        .subcommand(init())
        .subcommand(serve())
        .subcommand(mcp())
        .subcommand(context())
        .subcommand(
            Command::new("call")
                .about("Call a capability by its id")
                .arg(
                    Arg::new("id")
                        .required(true)
                        .value_name("ID")
                        .help("Id, as peers.list"),
                )
                .arg(
                    Arg::new("input")
                        .value_name("JSON")
                        .help("Input as a JSON object; `-` reads it from standard input"),
                ),
        )
        .subcommand(capabilities())
        .subcommand(bench())
}

/// Builds the whole command line.
pub(crate) fn whole(registry: &Registry) -> Command {
    let mut command = fixed()
        .subcommand(manual::completions_command())
        .subcommand(manual::man_command());
    let mut verbs: Vec<(&Declaration, CliVerb)> = registry
        .declarations()
        .filter_map(|it| it.cli.map(|verb| (it, verb)))
        .collect();
    verbs.sort_by_key(|(_, verb)| verb.verb);
    for (declaration, verb) in verbs {
        command = command.subcommand(verb_command(declaration, verb));
    }
    command
}

fn root_arg() -> Arg {
    Arg::new("root")
        .long("root")
        .global(true)
        .value_name("PATH")
        .value_parser(value_parser!(std::path::PathBuf))
        .display_order(EVERYWHERE)
        .help("Work in the checkout around this path instead of the working directory")
}

fn ensure_args() -> [Arg; 4] {
    [
        seconds(
            "idle",
            "End the node after this many seconds without use [default: 900]",
        ),
        seconds("wait", "Wait this many seconds for it [default: 5]"),
        port_arg(),
        host_arg(),
    ]
}

fn seconds(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("SECONDS")
        .value_parser(value_parser!(u32))
        .help(help)
}

fn port_arg() -> Arg {
    Arg::new("port")
        .long("port")
        .value_name("PORT")
        .value_parser(value_parser!(u16).range(1..))
        .help("Serve HTTP at this port")
}

fn host_arg() -> Arg {
    Arg::new("host")
        .long("host")
        .value_name("ADDRESS")
        .value_parser(value_parser!(std::net::IpAddr))
        .help("Serve HTTP at this address of the machine instead of loopback")
}

fn serve() -> Command {
    Command::new("serve")
        .about("Serve this checkout in the foreground, or see to its node")
        .args_conflicts_with_subcommands(true)
        .args([
            seconds(
                "idle",
                "End after this many seconds without use [default: never]",
            ),
            port_arg(),
            host_arg(),
            Arg::new("background")
                .long("background")
                .action(ArgAction::SetTrue)
                .hide(true),
        ])
        .subcommand(
            Command::new("status")
                .about("Show where this checkout's node stands, or those of others too")
                .arg(
                    Arg::new("checkouts")
                        .long("checkouts")
                        .value_name("WHICH")
                        .value_parser(PossibleValuesParser::new(["this", "repository", "machine"]))
                        .default_value("this")
                        .help("List this checkout's node, or those of all checkouts of the repository or machine"),
                ),
        )
        .subcommand(
            Command::new("ensure")
                .about("See to it that this checkout's node runs")
                .args(ensure_args()),
        )
        .subcommand(
            Command::new("stop")
                .about("End this checkout's node in order")
                .arg(seconds(
                    "wait",
                    "Wait this many seconds for its end [default: 10]",
                ))
                .arg(
                    Arg::new("force")
                        .long("force")
                        .action(ArgAction::SetTrue)
                        .help("Kill a node that does not answer, if it is provably the one"),
                ),
        )
}

fn init() -> Command {
    Command::new("init")
        .about("Connect Claude Code, Codex and Gemini CLI, in their files of this checkout")
        .args([
            Arg::new("client")
                .long("client")
                .value_name("CLIENT")
                .value_parser(PossibleValuesParser::new(super::init::client_words()))
                .action(ArgAction::Append)
                .help("Connect this client alone; may be given several times"),
            Arg::new("yes")
                .long("yes")
                .action(ArgAction::SetTrue)
                .help("Write without asking"),
            Arg::new("undo")
                .long("undo")
                .action(ArgAction::SetTrue)
                .help("Take out what init put in"),
        ])
}

fn context() -> Command {
    Command::new("context")
        .about("Print what an arriving agent should know, if a node runs and answers at once")
        .arg(
            Arg::new("hook")
                .long("hook")
                .action(ArgAction::SetTrue)
                .help("Answer as the session-start hooks of clients do, as JSON"),
        )
}

fn mcp() -> Command {
    Command::new("mcp")
        .about("Speak MCP on standard input and output, for a client that starts this command")
        .arg(
            Arg::new("inspect")
                .long("inspect")
                .action(ArgAction::SetTrue)
                .help("Show what would be served, and end"),
        )
        .arg(
            Arg::new("standalone")
                .long("standalone")
                .action(ArgAction::SetTrue)
                .conflicts_with("inspect")
                .help("Serve this client alone, without a node"),
        )
}

fn capabilities() -> Command {
    Command::new("capabilities")
        .about("Show what a node can do")
        .subcommand_required(true)
        .subcommand(Command::new("list").about("List all capabilities"))
        .subcommand(
            Command::new("describe")
                .about("Show one capability with its schemas")
                .arg(
                    Arg::new("id")
                        .required(true)
                        .value_name("ID")
                        .help("Id, as peers.list"),
                ),
        )
        .subcommand(
            Command::new("generate")
                .about("Write the reference of all capabilities, as developers of earshot do")
                .hide(true)
                .arg(
                    Arg::new("into")
                        .long("into")
                        .value_name("FOLDER")
                        .value_parser(value_parser!(std::path::PathBuf))
                        .required(true)
                        .help("Folder to write into"),
                )
                .arg(
                    Arg::new("check")
                        .long("check")
                        .action(ArgAction::SetTrue)
                        .help("Write nothing; fail when a file is stale"),
                ),
        )
}

fn bench() -> Command {
    let clients = |default: &'static str, help: &'static str| {
        Arg::new("clients")
            .long("clients")
            .value_name("NUMBER")
            .value_parser(value_parser!(u16).range(1..=256))
            .default_value(default)
            .help(help)
    };
    let time = |help: &'static str| {
        Arg::new("seconds")
            .long("seconds")
            .value_name("SECONDS")
            .value_parser(value_parser!(u32).range(1..=60))
            .default_value("5")
            .help(help)
    };
    Command::new("bench")
        .about("Measure this executable, in a scratch repository of its own")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("calls")
                .about("Measure calls, starts and memory")
                .args([
                    time("Measure each kind of call this many seconds, in all rounds together"),
                    clients("4", "Call with this many clients at once"),
                    Arg::new("rows")
                        .long("rows")
                        .value_name("NUMBER")
                        .value_parser(value_parser!(u16).range(0..=10_000))
                        .default_value("0")
                        .help("Put this many more rows on the board"),
                    Arg::new("beside")
                        .long("beside")
                        .value_name("URL")
                        .help("Measure the tool `echo` of the MCP server at this url beside it"),
                ]),
        )
        .subcommand(
            Command::new("takeover")
                .about("Kill the node while clients call, and count what they see")
                .args([
                    time("Let the clients call this many seconds"),
                    clients(
                        "32",
                        "Call with this many clients: half over bridges, half over HTTP",
                    ),
                ]),
        )
        .subcommand(
            Command::new("siblings").about(
                "Measure what many worktrees of one repository cost, and how soon they know",
            ),
        )
        .subcommands(bench_of_abuse(time("Measure each load this many seconds")))
}

fn bench_of_abuse(time: Arg) -> [Command; 4] {
    let load = Command::new("load")
        .about("Measure what honest clients feel while hostile ones do their worst")
        .args([
            time,
            hostile_kind("only")
                .long("only")
                .help("Measure this kind of load alone"),
        ]);
    let soak = Command::new("soak")
        .about("Let clients come, call and go for a long time, and see what grows")
        .arg(
            Arg::new("minutes")
                .long("minutes")
                .value_name("MINUTES")
                .value_parser(value_parser!(u16).range(1..=1_440))
                .default_value("30")
                .help("Let it run this many minutes"),
        );
    // The two other processes of `load`, which starts them.
    let hostile = Command::new("hostile").hide(true).args([
        hostile_kind("kind").required(true),
        Arg::new("url").long("url").required(true),
    ]);
    let sink = Command::new("sink").hide(true);
    [load, soak, hostile, sink]
}

fn hostile_kind(name: &'static str) -> Arg {
    Arg::new(name)
        .value_name("KIND")
        .value_parser(["trickle", "silent", "unread", "flood", "bodies", "sessions"])
}

/// Reads what `earshot bench calls` was asked for.
pub(super) fn calls_settings(matches: &ArgMatches) -> CallsSettings {
    CallsSettings {
        time: bench_time(matches),
        clients: bench_clients(matches),
        rows: *matches.get_one::<u16>("rows").expect("it has a default"),
        beside: matches.get_one::<String>("beside").cloned(),
    }
}

/// Reads what `earshot bench takeover` was asked for.
pub(super) fn takeover_settings(matches: &ArgMatches) -> TakeoverSettings {
    TakeoverSettings {
        time: bench_time(matches),
        clients: bench_clients(matches),
    }
}

/// Reads what `earshot bench load` was asked for.
pub(super) fn load_settings(matches: &ArgMatches) -> LoadSettings {
    LoadSettings {
        time: bench_time(matches),
        only: matches
            .get_one::<String>("only")
            .and_then(|name| HostileKind::named(name)),
    }
}

/// Reads what the hostile side is to do, and where.
pub(super) fn hostile(matches: &ArgMatches) -> Option<(HostileKind, &str)> {
    let kind = HostileKind::named(matches.get_one::<String>("kind")?)?;
    Some((kind, matches.get_one::<String>("url")?))
}

/// Reads what `earshot bench soak` was asked for.
pub(super) fn soak_settings(matches: &ArgMatches) -> SoakSettings {
    let minutes = matches.get_one::<u16>("minutes").expect("it has a default");
    SoakSettings {
        time: Duration::from_mins((*minutes).into()),
    }
}

fn bench_time(matches: &ArgMatches) -> Duration {
    let seconds = matches.get_one::<u32>("seconds").expect("it has a default");
    Duration::from_secs((*seconds).into())
}

fn bench_clients(matches: &ArgMatches) -> usize {
    let clients = matches.get_one::<u16>("clients").expect("it has a default");
    (*clients).into()
}

/// Builds a verb from the input schema of its capability.
fn verb_command(declaration: &Declaration, verb: CliVerb) -> Command {
    let mut command = Command::new(verb.verb)
        .about(declaration.title)
        .long_about(declaration.description);
    for (name, schema, required) in fields(declaration) {
        command = command.arg(field_arg(name, schema, required, verb));
    }
    if declaration.id == ANNOUNCE {
        command = command
            .mut_arg("paths", |paths| paths.help(PATHS_HELP))
            .after_long_help(ANNOUNCE_HELP);
    }
    command
}

/// Announcing, whose paths are those of the shell.
pub(super) const ANNOUNCE: &str = "peers.announce";

const PATHS_HELP: &str = "Files and folders you will touch, at most 64; relative to the working \
                          directory when that lies in the checkout, else to its root";

const ANNOUNCE_HELP: &str = "\
An announcement belongs to the shell that it was made from: that shell changes it by announcing
again, and takes it back with `earshot withdraw`. Shells in which EARSHOT_SESSION_ID has the same
value speak as one.";

/// Iterates over the input fields: name, schema, whether it must be there.
fn fields(declaration: &Declaration) -> impl Iterator<Item = (&str, &Value, bool)> {
    let input = &declaration.schemas.input_listed;
    let properties = input.get("properties").and_then(Value::as_object);
    let required = input.get("required").and_then(Value::as_array);
    let properties = properties.into_iter().flatten();
    // Whoever types a command has a place on the board, so no ticket is needed or taken.
    let typed = properties.filter(|(name, _)| *name != "ticket");
    typed.map(move |(name, schema)| {
        let must = required.is_some_and(|names| names.iter().any(|known| known == name));
        (name.as_str(), schema, must)
    })
}

fn field_arg(name: &str, schema: &Value, required: bool, verb: CliVerb) -> Arg {
    let help = schema
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or("")
        .trim_end_matches('.')
        .replace('\n', " ");
    let mut arg = Arg::new(name.to_owned())
        .help(help)
        .value_name(name.to_uppercase());
    let positional = verb.first == Some(name) || verb.rest == Some(name);
    if positional {
        arg = arg.required(required);
    } else {
        arg = arg.long(name.replace('_', "-")).required(required);
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("boolean") => arg.action(ArgAction::SetTrue),
        Some("integer") => arg.value_parser(value_parser!(i64)),
        Some("array") => arg.action(ArgAction::Append).num_args(0..),
        Some(_) | None => match choices(schema) {
            choices if choices.is_empty() => arg,
            choices => arg.value_parser(PossibleValuesParser::new(choices)),
        },
    }
}

/// Lists the values that a field may have, where its schema names them all.
fn choices(schema: &Value) -> Vec<String> {
    let list = |name: &str| schema.get(name).and_then(Value::as_array);
    let one_of = list("oneOf").into_iter().flatten();
    let constants = one_of.filter_map(|choice| choice.get("const"));
    let named = list("enum").into_iter().flatten();
    named
        .chain(constants)
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// Reads the input of a verb back from what was typed.
pub(crate) fn verb_input(declaration: &Declaration, matches: &ArgMatches) -> Value {
    let mut input = Map::new();
    for (name, schema, _) in fields(declaration) {
        let value = match schema.get("type").and_then(Value::as_str) {
            Some("boolean") => matches.get_flag(name).then_some(Value::Bool(true)),
            Some("integer") => matches.get_one::<i64>(name).map(|number| json!(number)),
            Some("array") => matches
                .get_many::<String>(name)
                .map(|values| json!(values.collect::<Vec<_>>())),
            Some(_) | None => matches.get_one::<String>(name).map(|text| json!(text)),
        };
        if let Some(value) = value {
            input.insert(name.to_owned(), value);
        }
    }
    Value::Object(input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capabilities::alone;

    #[test]
    fn a_fixed_command_is_read_the_same_with_and_without_the_verbs() {
        let declared = alone();
        for first in FIXED {
            assert!(is_fixed(Some(OsStr::new(first))));
            let line = ["earshot", first];
            let read = |command: Command| {
                let matches = command.try_get_matches_from(line);
                matches
                    .map(|it| format!("{:?}", it.subcommand()))
                    .map_err(|error| error.to_string())
            };
            assert_eq!(read(fixed()), read(whole(declared.registry())), "{first}");
        }
        assert!(!is_fixed(Some(OsStr::new("peers"))) && !is_fixed(None));
    }

    #[test]
    fn the_whole_command_line_is_sound() {
        whole(alone().registry()).debug_assert();
    }
}
