//! `earshot capabilities` and `earshot mcp --inspect`: what a node can do, without one.

use std::{fmt::Write as _, path::Path, process::ExitCode, sync::Arc};

use clap::ArgMatches;
use earshot_capability::{Caller, Code, Declaration, Kind, Listing, Registry, effect_word};
use earshot_trust::{Origin, Surface};
use serde_json::{Value, json};

use super::{
    call::unknown,
    context::Context,
    error::{CliError, Exit, with_causes},
    printer::{Format, Printer, Tone, print, print_json},
    render,
};
use crate::{capabilities::alone, http::openapi_document, words::shell_quoted};

/// Runs `earshot capabilities`.
///
/// # Errors
/// Those of the command.
pub(super) fn capabilities(
    context: &Context,
    registry: &Registry,
    matches: &ArgMatches,
) -> Result<ExitCode, CliError> {
    let printer = context.printer;
    match matches.subcommand() {
        Some(("describe", matches)) => {
            let id = matches.get_one::<String>("id").map_or("", String::as_str);
            describe(printer, registry, id)
        }
        Some(("generate", matches)) => {
            let into = matches
                .get_one::<std::path::PathBuf>("into")
                .expect("clap asks for it");
            generate(printer, registry, into, matches.get_flag("check"))
        }
        Some(_) | None => {
            list(printer, registry);
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Runs `earshot mcp --inspect`: what an MCP client would be served, with or without a node.
///
/// # Errors
/// A fault of earshot.
pub(super) async fn inspect(context: &Context) -> Result<ExitCode, CliError> {
    let dispatcher = alone();
    let caller = Arc::new(Caller::anonymous(Origin::Socket, Surface::Cli));
    let call = dispatcher.context(caller, dispatcher.request_id());
    let answer = dispatcher.call("mcp.projection", call, json!({})).await?;
    let Some(fields) = answer.structured() else {
        unreachable!("only fixtures answer otherwise");
    };
    let printer = context.printer;
    match printer.format() {
        Format::Text => print(&render::object(&fields)),
        Format::Json => print_json(&Value::Object(fields)),
    }
    Ok(ExitCode::SUCCESS)
}

fn kind_word(declaration: &Declaration) -> &'static str {
    match declaration.kind {
        Kind::Query => "query",
        Kind::Command => "command",
    }
}

fn list(printer: Printer, registry: &Registry) {
    if printer.format() == Format::Json {
        let all: Vec<Value> = registry.declarations().map(summary).collect();
        print_json(&json!({ "capabilities": all }));
        return;
    }
    let rows: Vec<Vec<String>> = registry
        .declarations()
        .map(|it| {
            [it.id, kind_word(it), effect_word(it.effect), it.title]
                .map(str::to_owned)
                .to_vec()
        })
        .collect();
    print(&render::table(
        printer,
        &["ID", "KIND", "EFFECT", "TITLE"],
        &rows,
    ));
}

fn summary(declaration: &Declaration) -> Value {
    json!({
        "id": declaration.id,
        "title": declaration.title,
        "kind": kind_word(declaration),
        "effect": effect_word(declaration.effect),
        "listed": declaration.listing == Listing::Listed,
    })
}

fn describe(printer: Printer, registry: &Registry, id: &str) -> Result<ExitCode, CliError> {
    let declaration = registry
        .declarations()
        .find(|it| it.id == id)
        .ok_or_else(|| unknown(registry, id))?;
    let mut whole = summary(declaration);
    whole["description"] = json!(declaration.description);
    whole["input"] = declaration.schemas.input.clone();
    whole["output"] = declaration.schemas.output.clone();
    if printer.format() == Format::Json {
        print_json(&whole);
    } else {
        print(&description(printer, declaration));
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a capability for a person: what it is for, how to reach it, what it takes and answers.
fn description(printer: Printer, declaration: &Declaration) -> String {
    let title = |text: &str| printer.tone(Tone::Strong, text);
    let mut ways = vec![("kind", kind_word(declaration).to_owned())];
    ways.push(("effect", effect_word(declaration.effect).to_owned()));
    if declaration.is_projected() {
        ways.push(("MCP tool", declaration.tool_name()));
        ways.push(("HTTP", declaration.route()));
    }
    let verb = declaration.cli.map(|cli| format!("earshot {}, ", cli.verb));
    let by_id = format!(
        "{}earshot call {}",
        verb.unwrap_or_default(),
        declaration.id
    );
    ways.push(("command", by_id));
    let schemas = &declaration.schemas;
    format!(
        "{}\n{}\n\n{}\n{}\n{}\n{}\n{}\n{}\n",
        title(&format!("{}: {}", declaration.id, declaration.title)),
        declaration.description,
        render::fields(&ways),
        title("It takes"),
        properties(&schemas.input),
        title("It answers"),
        properties(&schemas.output),
        printer.tone(
            Tone::Faint,
            "The whole schemas: the same with --format json."
        ),
    )
}

/// Lists the fields of an object's schema, those that must be there marked.
fn properties(schema: &Value) -> String {
    let fields = schema.get("properties").and_then(Value::as_object);
    let Some(fields) = fields.filter(|fields| !fields.is_empty()) else {
        return "  nothing\n".to_owned();
    };
    let required = schema.get("required").and_then(Value::as_array);
    let lines: Vec<(String, String)> = fields
        .iter()
        .map(|(name, field)| {
            let must = required.is_some_and(|names| names.iter().any(|known| known == name));
            let mark = if must { "" } else { "?" };
            let text = field.get("description").and_then(Value::as_str);
            (
                format!("{name}{mark}"),
                text.unwrap_or("").replace('\n', " "),
            )
        })
        .collect();
    let lines: Vec<(&str, String)> = lines
        .iter()
        .map(|(name, text)| (name.as_str(), text.clone()))
        .collect();
    render::fields(&lines)
}

fn generate(
    printer: Printer,
    registry: &Registry,
    into: &Path,
    check: bool,
) -> Result<ExitCode, CliError> {
    let files = [
        ("capabilities.md", reference(registry)),
        (
            "openapi.json",
            format!("{:#}\n", openapi_document(registry)),
        ),
    ];
    let (mut written, mut stale) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let path = into.join(name);
        let current = fs_err::read_to_string(&path).is_ok_and(|known| known == content);
        if current {
            continue;
        }
        if check {
            stale.push(path.display().to_string());
            continue;
        }
        fs_err::create_dir_all(into)
            .and_then(|()| fs_err::write(&path, content))
            .map_err(|error| {
                let remedy = "Make the folder writable, or name another with --into.".to_owned();
                CliError::new(Exit::Failed, Code::Unavailable, with_causes(&error), remedy)
            })?;
        written.push(path.display().to_string());
    }
    if stale.is_empty() {
        match printer.format() {
            Format::Json => print_json(&json!({ "written": written })),
            Format::Text => print(&super::wrote(&written)),
        }
        return Ok(ExitCode::SUCCESS);
    }
    Err(CliError::new(
        Exit::Failed,
        Code::Conflict,
        format!("stale: {}", stale.join(", ")),
        format!(
            "Run `earshot capabilities generate --into {}` and commit what it writes.",
            shell_quoted(&into.to_string_lossy())
        ),
    ))
}

/// Writes the reference of all capabilities, as it stands in `docs/generated/capabilities.md`.
fn reference(registry: &Registry) -> String {
    let mut text = String::from(
        "<!-- Generated by `earshot capabilities generate`: change the declarations instead. -->\n\
         # Capabilities\n\n\
         Each is an MCP tool (listed by default, or called by name), an HTTP route, and \
         `earshot call ID`; those that only a person may use are on the command line alone.\n",
    );
    for declaration in registry.declarations() {
        write_entry(&mut text, declaration).expect("writing to a String cannot fail");
    }
    text
}

fn write_entry(text: &mut String, declaration: &Declaration) -> std::fmt::Result {
    let Declaration {
        id,
        title,
        description,
        effect,
        local_only,
        listing,
        cli,
        schemas,
        ..
    } = declaration;
    writeln!(text, "\n## {id}\n\n**{title}.** {description}\n")?;
    writeln!(
        text,
        "- {}, effect `{}`",
        kind_word(declaration),
        effect_word(*effect)
    )?;
    if *local_only {
        writeln!(text, "- answered on this machine only")?;
    }
    if declaration.is_projected() {
        let listed = if *listing == Listing::Listed {
            "listed"
        } else {
            "not listed"
        };
        writeln!(text, "- MCP tool `{}` ({listed})", declaration.tool_name())?;
        let methods = if declaration.kind == Kind::Query {
            "GET, POST"
        } else {
            "POST"
        };
        writeln!(text, "- HTTP {methods} `{}`", declaration.route())?;
    }
    match cli {
        Some(cli) => writeln!(text, "- CLI `earshot {}`, `earshot call {id}`", cli.verb)?,
        None => writeln!(text, "- CLI `earshot call {id}`")?,
    }
    writeln!(text, "\nInput:\n\n```json\n{:#}\n```", schemas.input)?;
    writeln!(text, "\nOutput:\n\n```json\n{:#}\n```", schemas.output)
}
