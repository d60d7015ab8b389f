//! `serve status --checkouts`: where the nodes of a repository's, or of all checkouts stand.
//!
//! Nothing is asked of this checkout's own node: the list is right also where none runs. A lease is
//! read for each checkout, and only those whose lease is held are asked.

use std::path::{Path, PathBuf};

use earshot_checkout::{
    Checkout, CheckoutId, CheckoutKind, RootIndex, Worktree, resolve, worktrees,
};
use earshot_proto::{lease::Standing, text::Line};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    context::{Context, blocking},
    error::CliError,
    printer::Printer,
    render,
    serve::tell_more,
};
use crate::{
    capabilities::StatusOutput,
    config::Places,
    station::{Look, Station},
};

/// Which checkouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checkouts {
    /// Those that git registers for this repository.
    Repository,
    /// Those of this user on this machine that ever had a node.
    Machine,
}

/// One checkout in the list.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    #[serde(flatten)]
    status: StatusOutput,
    /// The folder.
    root: String,
    /// Whether it is a linked worktree.
    linked_worktree: bool,
    /// Whether its folder is not there.
    missing: bool,
}

/// A checkout that was found, and what a look at its node showed.
struct Found {
    root: PathBuf,
    linked_worktree: bool,
    branch: Option<String>,
    /// `None` where there is no folder.
    station: Option<(Station, Look)>,
    repository_id: String,
}

/// Lists checkouts with the standing of their nodes.
///
/// # Errors
/// When this checkout cannot be resolved.
pub(super) async fn list(context: &Context, which: Checkouts) -> Result<Vec<Listed>, CliError> {
    let own = context.station()?;
    let places = context.places()?;
    let desired_host = context.desired_host()?;
    let found = blocking(move || find(&own, &places, which)).await?;
    let mut listed = Vec::with_capacity(found.len());
    for found in found {
        let status = match &found.station {
            Some((station, look)) => {
                let mut status = station.status(look, desired_host.clone());
                tell_more(context, look, &mut status).await;
                status
            }
            None => StatusOutput {
                standing: Standing::Absent.as_str().to_owned(),
                checkout_id: CheckoutId::of(&found.root).to_string(),
                repository_id: found.repository_id,
                branch: found.branch,
                ..StatusOutput::default()
            },
        };
        listed.push(Listed {
            status,
            missing: found.station.is_none(),
            root: found.root.to_string_lossy().into_owned(),
            linked_worktree: found.linked_worktree,
        });
    }
    Ok(listed)
}

/// Finds the checkouts and looks at their nodes. One that cannot be looked at is left out.
fn find(own: &Station, places: &Places, which: Checkouts) -> Vec<Found> {
    let repository_id = own.checkout.repository_id().to_string();
    let registered = worktrees(&own.checkout).into_iter();
    let mut found: Vec<Found> = registered
        .map(|worktree| of_worktree(own, places, worktree, &repository_id))
        .collect();
    if which == Checkouts::Machine {
        let roots = RootIndex::new(&places.host_folder()).roots();
        for root in roots.unwrap_or_default() {
            if found.iter().all(|known| known.root != root) {
                found.extend(of_root(own, places, &root));
            }
        }
    }
    found
}

fn of_worktree(own: &Station, places: &Places, worktree: Worktree, repository_id: &str) -> Found {
    let present = worktree.state.is_present();
    let station = (present && worktree.root == own.checkout.root)
        .then(|| own.clone())
        .or_else(|| {
            present
                .then(|| station_at(own, places, &worktree.root))
                .flatten()
        });
    Found {
        station: station.and_then(|station| {
            let look = station.look().ok()?;
            Some((station, look))
        }),
        root: worktree.root,
        linked_worktree: !worktree.primary,
        branch: worktree
            .branch
            .map(|branch| Line::name(&branch).as_str().to_owned()),
        repository_id: repository_id.to_owned(),
    }
}

/// A checkout that once had a node, wherever its repository is; one that is gone with its state is
/// nobody's concern.
fn of_root(own: &Station, places: &Places, root: &Path) -> Option<Found> {
    let id = CheckoutId::of(root);
    if !places.node_folder(&id).lease_file().exists() {
        return None;
    }
    let station = station_at(own, places, root);
    let checkout: Option<&Checkout> = station.as_ref().map(|station| &station.checkout);
    Some(Found {
        linked_worktree: checkout.is_some_and(|it| it.kind == CheckoutKind::LinkedWorktree),
        repository_id: checkout.map_or_else(String::new, |it| it.repository_id().to_string()),
        root: root.to_owned(),
        branch: None,
        station: station.and_then(|station| {
            let look = station.look().ok()?;
            Some((station, look))
        }),
    })
}

fn station_at(own: &Station, places: &Places, root: &Path) -> Option<Station> {
    let checkout = resolve(root).ok()?;
    let same = checkout.repository_id() == own.checkout.repository_id();
    Some(Station {
        folder: places.node_folder(&checkout.id()),
        here: own.here.clone(),
        repository_key: own.repository_key.clone().filter(|_| same),
        checkout,
    })
}

/// Returns the list as scripts read it: the own status, and the array beside it.
pub(super) fn as_json(own: &StatusOutput, listed: &[Listed]) -> Value {
    let mut object = match json!(own) {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    object.insert("checkouts".to_owned(), json!(listed));
    Value::Object(object)
}

/// Returns the list as a person reads it.
pub(super) fn as_table(printer: Printer, listed: &[Listed]) -> String {
    let headings = ["STANDING", "PEERS", "BRANCH", "URL", "CHECKOUT"];
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let rows: Vec<Vec<String>> = listed
        .iter()
        .map(|it| {
            let peers = it.status.peers.map(|peers| peers.to_string());
            let standing = if it.missing {
                "missing".to_owned()
            } else {
                it.status.standing.clone()
            };
            vec![
                standing,
                text(&peers),
                text(&it.status.branch),
                text(&it.status.url),
                it.root.clone(),
            ]
        })
        .collect();
    render::table(printer, &headings, &rows)
}

/// Reads which checkouts are asked for; `None` for this one alone.
pub(super) fn asked(matches: &clap::ArgMatches) -> Option<Checkouts> {
    match matches.get_one::<String>("checkouts").map(String::as_str) {
        Some("repository") => Some(Checkouts::Repository),
        Some("machine") => Some(Checkouts::Machine),
        Some(_) | None => None,
    }
}
