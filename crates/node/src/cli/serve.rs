//! `up` and `serve`: seeing to the node of a checkout.

use std::{
    net::{IpAddr, SocketAddr},
    process::ExitCode,
    time::Duration,
};

use clap::ArgMatches;
use earshot_capability::{Code, Registry};
use earshot_proto::lease::{LeaseDocument, Parsed, Standing};
use serde_json::{Value, json};

use super::{
    alone::refuse_if_off,
    board,
    call::{call, send},
    checkouts::{self, Checkouts},
    context::{Context, blocking},
    error::{CliError, Exit},
    printer::{Format, Tone, print, print_json, say},
    program::Program,
    render,
};
use crate::{
    capabilities::StatusOutput,
    clock,
    daemon::{self, Serve},
    lease::pause,
    station::{Ensure, Look, Station},
    system,
    words::{shell_quoted, within},
};

/// How long `stop` waits unless told otherwise: the longest ordered stop, and a little.
const STOP_WAIT_DEFAULT: Duration = Duration::from_secs(10);

/// What a client must do that has neither a bridge nor a protocol session to be known by.
const OVER_HTTP: &str = "  There, a client of protocol 2026-07-28 says who it is with the header \
                         Earshot-Session,\n  or announces with the ticket that peers_list gives it.";

/// Runs `earshot serve` and what is below it.
///
/// # Errors
/// Those of the command.
pub(super) async fn serve(context: &Context, matches: &ArgMatches) -> Result<ExitCode, CliError> {
    match matches.subcommand() {
        Some(("status", matches)) => status(context, checkouts::asked(matches)).await,
        Some(("ensure", matches)) => ensure(context, matches).await,
        Some(("stop", matches)) => stop(context, matches).await,
        Some(_) | None => foreground(context, matches).await,
    }
}

/// Runs `earshot up`: sees to the node, then tells how to join it and who is there.
///
/// # Errors
/// Why there is no node.
pub(super) async fn up(
    context: &Context,
    registry: &Registry,
    matches: &ArgMatches,
) -> Result<ExitCode, CliError> {
    let (station, status) = ensured(context, matches).await?;
    say_what_differs(matches, &status);
    let printer = context.printer;
    if printer.format() == Format::Json {
        print_json(&json!(status));
        return Ok(ExitCode::SUCCESS);
    }
    let peers = call(context, registry, "peers.list", json!({})).await?;
    let program = Program::own(context.environment.search_path.as_deref());
    let program = shell_quoted(&program.word());
    let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let title = |text: &str| printer.tone(Tone::Strong, text);
    print(&format!(
        "{}\n{}\n{}\n{}{}\n\n{}\n{}",
        title(&format!(
            "The node of this checkout is {}.",
            status.standing
        )),
        render::fields(&[
            ("url", text(status.url)),
            ("checkout", station.checkout.root.display().to_string()),
            ("branch", text(status.branch)),
            (
                "process",
                status
                    .pid
                    .map_or_else(|| "-".to_owned(), |pid| pid.to_string())
            ),
        ]),
        title("Connect a client"),
        render::fields(&[
            ("all of them", format!("{program} init")),
            (
                "Claude Code",
                format!("claude mcp add earshot -- {program} mcp")
            ),
            ("Codex", format!("codex mcp add earshot -- {program} mcp")),
            (
                "Gemini CLI",
                format!("gemini mcp add earshot {program} mcp")
            ),
            ("over HTTP", text(status.mcp_url)),
        ]),
        printer.tone(Tone::Faint, OVER_HTTP),
        title("The board"),
        board::board(printer, &peers, clock::wall()),
    ));
    Ok(ExitCode::SUCCESS)
}

async fn foreground(context: &Context, matches: &ArgMatches) -> Result<ExitCode, CliError> {
    refuse_if_off(context)?;
    if matches.get_flag("background") {
        // A session of its own: no signal to its starter's group or terminal reaches it. Refused
        // only to the leader of a group, which then has a group of its own already.
        rustix::process::setsid().ok();
    }
    let station = context.station()?;
    let places = context.places()?;
    let config = context.machine_config()?;
    let host = named_host(context, matches)?;
    let idle = matches
        .get_one::<u32>("idle")
        .map(|seconds| Duration::from_secs((*seconds).into()));
    let port = matches.get_one::<u16>("port").copied();
    daemon::serve(Serve {
        station,
        places,
        config,
        host,
        port,
        idle,
    })
    .await
}

async fn ensure(context: &Context, matches: &ArgMatches) -> Result<ExitCode, CliError> {
    let (_, status) = ensured(context, matches).await?;
    say_what_differs(matches, &status);
    print_status(context, &status);
    Ok(ExitCode::SUCCESS)
}

/// Sees to the node until it is one that answers: somebody else may stop it just then.
async fn ensured(
    context: &Context,
    matches: &ArgMatches,
) -> Result<(Station, StatusOutput), CliError> {
    refuse_if_off(context)?;
    let asked = ensure_of(context, matches)?;
    let began = clock::now();
    loop {
        let spent = clock::now().since(began);
        let wait = asked.wait.saturating_sub(spent);
        context
            .ensure(Ensure {
                wait,
                ..asked.clone()
            })
            .await?;
        let (station, status) = full_status(context).await?;
        if ["ready", "outdated"].contains(&status.standing.as_str()) {
            return Ok((station, status));
        }
    }
}

async fn status(context: &Context, others: Option<Checkouts>) -> Result<ExitCode, CliError> {
    let (_, status) = full_status(context).await?;
    let Some(others) = others else {
        print_status(context, &status);
        return Ok(ExitCode::SUCCESS);
    };
    let listed = checkouts::list(context, others).await?;
    let printer = context.printer;
    match printer.format() {
        Format::Json => print_json(&checkouts::as_json(&status, &listed)),
        Format::Text => print(&checkouts::as_table(printer, &listed)),
    }
    Ok(ExitCode::SUCCESS)
}

fn print_status(context: &Context, status: &StatusOutput) {
    let value = json!(status);
    match (context.printer.format(), value) {
        (Format::Text, Value::Object(fields)) => print(&render::object(&fields)),
        (_, value) => print_json(&value),
    }
}

fn ensure_of(context: &Context, matches: &ArgMatches) -> Result<Ensure, CliError> {
    let seconds = |name: &str| {
        matches
            .get_one::<u32>(name)
            .map(|seconds| Duration::from_secs((*seconds).into()))
    };
    let defaults = context.ensure_defaults()?;
    Ok(Ensure {
        idle: seconds("idle").unwrap_or(defaults.idle),
        wait: seconds("wait").unwrap_or(defaults.wait),
        port: matches.get_one::<u16>("port").copied(),
        host: named_host(context, matches)?,
        ..defaults
    })
}

/// Returns the address that the command line names, else the environment.
fn named_host(context: &Context, matches: &ArgMatches) -> Result<Option<String>, CliError> {
    let host = match matches.get_one::<IpAddr>("host") {
        Some(host) => Some(*host),
        None => context.named_host()?,
    };
    Ok(host.map(|host| host.to_string()))
}

/// Tells whoever asked for a node of another kind that one runs already, and stays as it is.
fn say_what_differs(matches: &ArgMatches, status: &StatusOutput) {
    let Some(url) = &status.url else { return };
    let address: Option<SocketAddr> = url
        .strip_prefix("http://")
        .and_then(|address| address.parse().ok());
    let mut asked = Vec::new();
    if let Some(address) = address {
        let host = matches.get_one::<IpAddr>("host");
        let port = matches.get_one::<u16>("port");
        let host = host.filter(|host| **host != address.ip());
        let port = port.filter(|port| **port != address.port());
        asked.extend(host.map(|host| format!("--host {host}")));
        asked.extend(port.map(|port| format!("--port {port}")));
    }
    // A node that could not be asked has not said how many peers it has, nor its bound.
    if status.peers.is_some()
        && let Some(idle) = matches.get_one::<u32>("idle")
        && status.idle_seconds != Some((*idle).into())
    {
        asked.push(format!("--idle {idle}"));
    }
    if !asked.is_empty() {
        say(&format!(
            "note: the node runs already at {url}, without {}\n\
             hint: Run `earshot serve stop` first, then this again.",
            asked.join(" and ")
        ));
    }
}

/// Looks at the lease, and asks a node that serves for what only it knows.
async fn full_status(context: &Context) -> Result<(Station, StatusOutput), CliError> {
    let station = context.station()?;
    let desired_host = context.desired_host()?;
    let (station, look) = blocking(move || {
        let look = station.look();
        (station, look)
    })
    .await?;
    let look = look.map_err(|error| {
        let message = format!("the lease cannot be read: {error}");
        let remedy = "Make the state folder readable to you.".to_owned();
        CliError::new(Exit::Unknown, Code::Unavailable, message, remedy)
    })?;
    let mut status = station.status(&look, desired_host);
    tell_more(context, &look, &mut status).await;
    Ok((station, status))
}

/// Asks a node that serves for what only it knows.
pub(super) async fn tell_more(context: &Context, look: &Look, status: &mut StatusOutput) {
    if let Some(lease) = look.serving(None) {
        let asked = send(context, lease, "/api/v1/server/status", &json!({})).await;
        // A node that ends between the two looks leaves the status as the lease tells it.
        if let Some(told) = asked
            .ok()
            .and_then(|told| serde_json::from_value::<StatusOutput>(Value::Object(told)).ok())
        {
            status.peers = told.peers;
            status.idle_seconds = told.idle_seconds;
            status.desired_host = told.desired_host;
        }
    }
}

async fn stop(context: &Context, matches: &ArgMatches) -> Result<ExitCode, CliError> {
    let wait = matches
        .get_one::<u32>("wait")
        .map_or(STOP_WAIT_DEFAULT, |seconds| {
            Duration::from_secs((*seconds).into())
        });
    let station = context.station()?;
    let looking = station.clone();
    let look = blocking(move || looking.look()).await?.map_err(|error| {
        let message = format!("the lease cannot be read: {error}");
        let remedy = "Make the state folder readable to you.".to_owned();
        CliError::new(Exit::Unknown, Code::Unavailable, message, remedy)
    })?;
    let force = matches.get_flag("force");
    let Some(lease) = look.holder().cloned() else {
        if look.is_held() {
            let message = "the node's lease cannot be read by this release".to_owned();
            let remedy = "Stop it with the release that started it.".to_owned();
            return Err(CliError::new(
                Exit::Refused,
                Code::Unavailable,
                message,
                remedy,
            ));
        }
        nothing_to_stop(context, look.standing);
        return Ok(ExitCode::SUCCESS);
    };
    if look.serving(None).is_some() {
        send(context, &lease, "/api/v1/server/stop", &json!({})).await?;
    } else if force {
        let (killing, holder) = (station.clone(), lease.as_predecessor());
        blocking(move || killing.kill(&holder))
            .await?
            .map_err(|why| {
                let message = format!("process {} was not ended: {why}", lease.process.pid);
                let remedy = "End it yourself, if you know it to be the node.".to_owned();
                CliError::new(Exit::Refused, Code::Refused, message, remedy)
            })?;
    } else {
        return Err(takes_no_order(&look, &lease));
    }
    let gone = blocking(move || wait_for_end(&station, &lease, wait)).await?;
    if !gone {
        return Err(CliError::new(
            Exit::NotReady,
            Code::Unavailable,
            format!("the node has not ended {}", within(wait)),
            "Wait longer with --wait, or look at its log.".to_owned(),
        ));
    }
    match context.printer.format() {
        Format::Json => print_json(&json!({ "stopped": true, "standing": "ended" })),
        Format::Text => print("The node has ended.\n"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Without a node there is nothing to stop; one that does not answer is left alone, and said so.
fn nothing_to_stop(context: &Context, standing: Standing) {
    match standing {
        Standing::Stale => say("The lease names a node that is gone; nothing was signalled."),
        Standing::Absent
        | Standing::Starting
        | Standing::Ready
        | Standing::Outdated
        | Standing::Elsewhere
        | Standing::Retiring => {}
    }
    match context.printer.format() {
        Format::Json => {
            print_json(&json!({ "stopped": false, "standing": standing.as_str() }));
        }
        Format::Text => print("No node runs here.\n"),
    }
}

/// Says why a node that holds its lease cannot be told to stop.
fn takes_no_order(look: &Look, lease: &LeaseDocument) -> CliError {
    let pid = lease.process.pid;
    let (message, remedy) = match look.standing {
        Standing::Stale => (
            format!("the node (process {pid}) holds its lease and does not answer"),
            "Wait until the next client replaces it, or end it with `earshot serve stop --force`.",
        ),
        Standing::Elsewhere => (
            "the node runs in another container or namespace".to_owned(),
            "Stop it there, with `earshot serve stop`.",
        ),
        Standing::Absent
        | Standing::Starting
        | Standing::Ready
        | Standing::Outdated
        | Standing::Retiring => (
            format!(
                "the node (process {pid}) is {} and takes no order",
                look.standing.as_str()
            ),
            "Try again in a moment.",
        ),
    };
    CliError::new(Exit::Refused, Code::Unavailable, message, remedy.to_owned())
}

/// Waits until this very lease has ended: its holder gone, or another's in its place.
fn wait_for_end(station: &Station, lease: &LeaseDocument, wait: Duration) -> bool {
    let began = clock::now();
    loop {
        let ended = station.look().is_ok_and(|look| {
            look.verdict.may_take()
                || look.seen.lease.as_ref().and_then(Parsed::token) != Some(&lease.token)
        });
        let pid = u32::try_from(lease.process.pid.number()).ok();
        let running = pid.and_then(system::process_start) == Some(lease.process.pid_start);
        if ended && !running {
            return true;
        }
        if clock::now().since(began) >= wait {
            return false;
        }
        pause(Duration::from_millis(5));
    }
}
