//! The command line.

mod call;
mod capabilities;
mod command;
mod context;
mod error;
mod mcp;
pub(crate) mod printer;
pub(crate) mod render;
mod serve;

use std::{cell::LazyCell, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use clap::ArgMatches;
use earshot_capability::{Code, Dispatcher, Registry};
use serde_json::Value;
use tracing_subscriber::EnvFilter;

use context::Context;
pub(crate) use context::blocking;
pub(crate) use error::{CliError, Exit, with_causes};
use printer::{Format, Printer, print, print_json};

use crate::{bench, capabilities::alone, config::Environment};

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
    let matches = match command.try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            // Help and version are answers; the rest is a usage error. Clap words both itself.
            error.print().ok();
            return if error.use_stderr() {
                Exit::Usage.into()
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let format = match matches.get_one::<String>("format").map(String::as_str) {
        Some("json") => Format::Json,
        Some(_) | None => Format::Text,
    };
    let printer = Printer::new(format, environment.no_color);
    start_log(&environment, matches.subcommand_name() == Some("serve"));
    let root = matches.get_one::<PathBuf>("root").cloned();
    let context = Context {
        environment,
        printer,
        root,
    };
    match run(&context, &declared, &matches) {
        Ok(code) => code,
        Err(error) => {
            printer.fail(&error);
            error.exit.into()
        }
    }
}

/// Sends the log to standard error: a node's own is what it does, a command's what went wrong.
fn start_log(environment: &Environment, serves: bool) {
    // The SDK logs wire session ids at the level of information: they stay out of the log.
    let default = if serves { "info,rmcp=warn" } else { "warn" };
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
        Some(("mcp", matches)) => mcp::mcp(context, matches).await,
        Some(("call", matches)) => call_by_id(context, declared.registry(), matches).await,
        Some(("capabilities", matches)) => {
            capabilities::capabilities(context, declared.registry(), matches)
        }
        Some(("bench", matches)) => bench(context, matches).await,
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
    print_answer(context, id, answer);
    Ok(ExitCode::SUCCESS)
}

fn read_standard_input() -> Result<String, CliError> {
    std::io::read_to_string(std::io::stdin()).map_err(|error| {
        let remedy = "Send a JSON object on standard input.".to_owned();
        CliError::new(Exit::Usage, Code::InvalidInput, error.to_string(), remedy)
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
    let input = command::verb_input(declaration, matches);
    let answer = call::call(context, registry, declaration.id, input).await?;
    print_answer(context, declaration.id, answer);
    Ok(ExitCode::SUCCESS)
}

fn print_answer(context: &Context, id: &str, answer: serde_json::Map<String, Value>) {
    let printer = context.printer;
    match (printer.format(), id) {
        (Format::Json, _) => print_json(&Value::Object(answer)),
        (Format::Text, "peers.list") => print(&render::board(printer, &answer)),
        (Format::Text, _) => print(&render::object(&answer)),
    }
}
