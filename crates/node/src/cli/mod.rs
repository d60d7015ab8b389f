//! The command line.

mod alone;
mod board;
mod brief;
mod call;
mod capabilities;
mod checkouts;
mod command;
mod context;
mod error;
mod init;
mod manual;
mod mcp;
pub(crate) mod printer;
mod program;
pub(crate) mod render;
mod serve;
mod shown;
mod usage;

use std::{
    cell::LazyCell,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::{ArgMatches, ColorChoice, error::ErrorKind};
use earshot_capability::{Code, Dispatcher, Registry};
use earshot_checkout::{Checkout, claim_path};
use serde_json::{Value, json};
use tracing_subscriber::EnvFilter;

use context::Context;
pub(crate) use context::blocking;
pub(crate) use error::{CliError, Exit, with_causes};
use printer::{Format, Printer, print, print_json};
use shown::shown;

use crate::{bench, capabilities::alone, clock, config::Environment};

/// What capabilities there are, made when it is first asked for: a bridge never does.
type Declared = LazyCell<Arc<Dispatcher>>;

/// Runs the program.
pub fn main() -> ExitCode {
    let environment = Environment::capture();
    let declared = Declared::new(alone);
    let command = if command::is_fixed(std::env::args_os().nth(1).as_deref()) {
        command::fixed()
    } else {
        command::whole(declared.registry())
    };
    let colour = Printer::new(Format::Text, environment.no_color).colour();
    let mut command = command.color(if colour {
        ColorChoice::Always
    } else {
        ColorChoice::Never
    });
    let matches = match command.try_get_matches_from_mut(std::env::args_os()) {
        Ok(matches) => matches,
        Err(error) => return not_run(&error, &command),
    };
    let format = match matches.get_one::<String>("format").map(String::as_str) {
        Some("json") => Format::Json,
        Some(_) | None => Format::Text,
    };
    let printer = Printer::new(format, environment.no_color);
    start_log(&environment, matches.subcommand_name());
    let root = matches.get_one::<PathBuf>("root").cloned();
    let context = Context {
        environment,
        printer,
        root,
    };
    let code = match run(&context, &declared, &matches) {
        Ok(code) => code,
        Err(error) => {
            printer.fail(&error);
            error.exit.into()
        }
    };
    after_printing(printer, code)
}

/// Ends without running anything. Help and version are answers; the rest is a usage error, and to
/// whoever typed nothing at all the help is the remedy.
fn not_run(error: &clap::Error, command: &clap::Command) -> ExitCode {
    let arguments = || std::env::args_os().skip(1);
    let printer = Printer::new(usage::format_of(arguments()), true);
    let said_nothing = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    let code = if !error.use_stderr() {
        printer::note(error.print());
        ExitCode::SUCCESS
    } else if said_nothing && printer.format() == Format::Text {
        error.print().ok(); // there is nowhere else to say it
        Exit::Usage.into()
    } else {
        printer.fail(&usage::usage_error(error, command, arguments()));
        Exit::Usage.into()
    };
    after_printing(printer, code)
}

/// Replaces success by a failure when the answer could not be written.
fn after_printing(printer: Printer, code: ExitCode) -> ExitCode {
    let Some(error) = printer::unwritten().filter(|_| code == ExitCode::SUCCESS) else {
        return code;
    };
    let message = format!("the answer could not be written: {error}");
    let remedy = "Make room where standard output leads.".to_owned();
    let error = CliError::new(Exit::Failed, Code::Unavailable, message, remedy);
    printer.fail(&error);
    error.exit.into()
}

/// Sends the log to standard error: a node's own is what it does, a command's what went wrong.
fn start_log(environment: &Environment, command: Option<&str>) {
    // The SDK logs wire session ids at the level of information: they stay out of the log.
    let default = match command {
        Some("serve") => "info,rmcp=warn",
        // What it cannot tell is nobody's concern, and clients show what a hook says here.
        Some("context") => "off",
        Some(_) | None => "warn",
    };
    let filter = environment
        .log
        .as_deref()
        .and_then(|filter| EnvFilter::try_new(filter).ok())
        .unwrap_or_else(|| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .init();
}

fn run(context: &Context, declared: &Declared, matches: &ArgMatches) -> Result<ExitCode, CliError> {
    let runtime = runtime(matches.subcommand_name() == Some("serve")).map_err(|error| {
        let remedy = "Free some processes, threads or file descriptors.".to_owned();
        CliError::new(Exit::Failed, Code::Unavailable, error.to_string(), remedy)
    })?;
    let done = runtime.block_on(Box::pin(dispatch(context, declared, matches)));
    // What still runs is a blocking look at a file or at standard input: nobody waits for it.
    runtime.shutdown_timeout(Duration::ZERO);
    done
}

/// A node serves many at once; everything else does one thing, on one thread.
fn runtime(serves: bool) -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = if serves {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    builder.enable_all().build()
}

async fn dispatch(
    context: &Context,
    declared: &Declared,
    matches: &ArgMatches,
) -> Result<ExitCode, CliError> {
    match matches.subcommand() {
        Some(("up", matches)) => serve::up(context, declared.registry(), matches).await,
        Some(("serve", matches)) => serve::serve(context, matches).await,
        Some(("init", matches)) => init::init(context, matches).await,
        Some(("mcp", matches)) => mcp::mcp(context, matches).await,
        Some(("context", matches)) => Ok(brief::brief(context, matches).await),
        Some(("call", matches)) => call_by_id(context, declared.registry(), matches).await,
        Some(("capabilities", matches)) => {
            capabilities::capabilities(context, declared.registry(), matches)
        }
        Some(("bench", matches)) => bench(context, matches).await,
        Some(("completions", matches)) => {
            manual::completions(context, declared.registry(), matches);
            Ok(ExitCode::SUCCESS)
        }
        Some(("man", matches)) => manual::man(context, declared.registry(), matches),
        Some((verb, matches)) => call_by_verb(context, declared.registry(), verb, matches).await,
        None => Ok(ExitCode::from(2)),
    }
}

async fn bench(context: &Context, matches: &ArgMatches) -> Result<ExitCode, CliError> {
    let printer = context.printer;
    match matches.subcommand() {
        Some(("takeover", matches)) => {
            bench::takeover(printer, command::takeover_settings(matches)).await?;
        }
        Some(("load", matches)) => {
            bench::load(printer, command::load_settings(matches)).await?;
        }
        Some(("hostile", matches)) => {
            if let Some((kind, url)) = command::hostile(matches) {
                bench::be_hostile(kind, url).await?;
            }
        }
        Some(("sink", _)) => bench::be_sink().await?,
        Some(("siblings", _)) => bench::siblings(printer).await?,
        Some(("soak", matches)) => {
            bench::soak(printer, command::soak_settings(matches)).await?;
        }
        Some((_, matches)) => bench::calls(printer, command::calls_settings(matches)).await?,
        None => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn call_by_id(
    context: &Context,
    registry: &Registry,
    matches: &ArgMatches,
) -> Result<ExitCode, CliError> {
    let id = matches.get_one::<String>("id").map_or("", String::as_str);
    let input = match matches.get_one::<String>("input").map(String::as_str) {
        None => "{}".to_owned(),
        Some("-") => read_standard_input()?,
        Some(text) => text.to_owned(),
    };
    let input: Value = serde_json::from_str(&input).map_err(|error| {
        let remedy = "Give one JSON object, as '{\"paths\": [\"src\"]}'.".to_owned();
        CliError::new(
            Exit::Usage,
            Code::InvalidInput,
            format!("the input: {error}"),
            remedy,
        )
    })?;
    let answer = call::call(context, registry, id, input).await?;
    print_answer(context, registry, id, answer).await;
    Ok(ExitCode::SUCCESS)
}

fn read_standard_input() -> Result<String, CliError> {
    std::io::read_to_string(std::io::stdin()).map_err(|error| {
        let remedy = "Send a JSON object on standard input.".to_owned();
        let message = format!("standard input: {error}");
        CliError::new(Exit::Usage, Code::InvalidInput, message, remedy)
    })
}

async fn call_by_verb(
    context: &Context,
    registry: &Registry,
    verb: &str,
    matches: &ArgMatches,
) -> Result<ExitCode, CliError> {
    let declaration = registry
        .declarations()
        .find(|it| it.cli.is_some_and(|cli| cli.verb == verb))
        .expect("clap admits only the verbs that the registry declares");
    let mut input = command::verb_input(declaration, matches);
    if declaration.id == command::ANNOUNCE {
        let checkout = if context.environment.off {
            alone::checkout(context)?
        } else {
            context.station()?.checkout
        };
        from_here(&checkout, &mut input)?;
    }
    let answer = call::call(context, registry, declaration.id, input).await?;
    print_answer(context, registry, declaration.id, answer).await;
    Ok(ExitCode::SUCCESS)
}

/// Takes relative paths as those of the working directory, where that lies in the checkout.
fn from_here(checkout: &Checkout, input: &mut Value) -> Result<(), CliError> {
    let Some(Value::Array(paths)) = input.get_mut("paths") else {
        return Ok(());
    };
    let Ok(here) = std::env::current_dir() else {
        return Ok(()); // without a working directory they can only be the checkout's
    };
    let Some(folder) = folder_within(checkout, &here)? else {
        return Ok(());
    };
    for path in paths {
        if let Value::String(text) = path
            && !text.is_empty()
            // A home folder that no shell has replaced: the node says so.
            && !text.starts_with(['/', '~'])
        {
            *text = format!("{folder}/{text}");
        }
    }
    Ok(())
}

/// Returns where a folder lies in a checkout, relative to its root; `None` where it does not.
fn folder_within(checkout: &Checkout, folder: &Path) -> Result<Option<String>, CliError> {
    let not_text = || {
        let message = format!("the name of {} is not UTF-8", folder.display());
        let remedy = "Announce from the root of the checkout.".to_owned();
        CliError::new(Exit::Usage, Code::InvalidInput, message, remedy)
    };
    if let Ok(within) = folder.strip_prefix(&checkout.root) {
        let within = within.to_str().ok_or_else(not_text)?;
        return Ok(Some(within.to_owned()).filter(|it| !it.is_empty()));
    }
    // It may be spelled in another way: through a bind mount, or in another case.
    let spelled = folder.to_str().ok_or_else(not_text)?;
    Ok(claim_path(checkout, spelled)
        .ok()
        .filter(|within| within != "."))
}

/// Tells which files were written.
fn wrote(paths: &[String]) -> String {
    let lines = paths.iter().map(|path| format!("wrote {}\n", shown(path)));
    lines.collect()
}

async fn print_answer(
    context: &Context,
    registry: &Registry,
    id: &str,
    answer: serde_json::Map<String, Value>,
) {
    alone::say_if_off(context);
    let printer = context.printer;
    let text = match (printer.format(), id) {
        (Format::Json, _) => return print_json(&Value::Object(answer)),
        (Format::Text, "peers.list") => board::board(printer, &answer, clock::wall()),
        (Format::Text, command::ANNOUNCE) => {
            let own = context.station().map(|it| it.checkout.id().to_string());
            board::announced(printer, &answer, &own.unwrap_or_default())
        }
        (Format::Text, call::WITHDRAW) => {
            let peers = call::call(context, registry, "peers.list", json!({})).await;
            board::withdrawn(printer, &answer, peers.ok().as_ref())
        }
        (Format::Text, _) => render::object(&answer),
    };
    print(&text);
}
