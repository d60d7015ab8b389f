//! `server.status` and `server.stop`: where this node stands, and ending it.

use std::sync::Arc;

use earshot_capability::{Call, Capability, Draft};
use earshot_proto::lease::{Epoch, Standing};
use earshot_trust::Effect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::{core::NodeHandle, lease::Gate};

/// What a node knows of its own tenure. A client that is served alone has none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Serving {
    /// The path of the lease document.
    pub(crate) lease_path: Option<String>,
    /// The key of the repository.
    pub(crate) repository_key: Option<String>,
    /// What tells the epoch that is served.
    pub(crate) gate: Option<Arc<Gate>>,
    /// The address that a node started now would bind.
    pub(crate) desired_host: String,
    /// Cancelled to end the node in order.
    pub(crate) stop: CancellationToken,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(
    clippy::empty_structs_with_brackets,
    reason = "its JSON is an object, not null"
)]
struct Nothing {}

#[derive(Debug, Serialize, JsonSchema)]
struct StopOutput {
    /// The process that ends.
    pid: u32,
}

/// Where the node of a checkout stands: the contract for scripts. Absent fields are unknown, or do
/// not apply to the standing.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct StatusOutput {
    /// `absent`, `starting`, `ready`, `stale`, `outdated`, `elsewhere` or `retiring`.
    pub(crate) standing: String,
    /// The url of the node, without a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// The url that MCP clients are configured with: it names the checkout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mcp_url: Option<String>,
    /// The node's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pid: Option<i64>,
    /// The version of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// The commit that the node was built from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<String>,
    /// The checkout.
    pub(crate) checkout_id: String,
    /// The repository on this machine.
    pub(crate) repository_id: String,
    /// The repository's key on this machine: random, and kept through moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) repository_key: Option<String>,
    /// The branch that the checkout has out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) branch: Option<String>,
    /// The lease document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lease_path: Option<String>,
    /// The epoch of the tenure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lease_epoch: Option<u64>,
    /// How many peers are attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peers: Option<usize>,
    /// The address that a node started now would bind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) desired_host: Option<String>,
    /// Seconds without use after which the node ends; absent when it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idle_seconds: Option<u64>,
}

/// Returns the capabilities.
pub(super) fn capabilities(node: &NodeHandle, serving: Serving) -> [Capability; 2] {
    let stop = stop(serving.stop.clone());
    [status(node.clone(), serving), stop]
}

fn status(node: NodeHandle, serving: Serving) -> Capability {
    Draft::query(
        "server.status",
        "Where this node stands",
        "The node's url, process, version, checkout, lease and how many peers are attached.",
    )
    .local_only()
    .handler(move |_: Call, _: Nothing| {
        let (node, serving) = (node.clone(), serving.clone());
        async move {
            let peers = node.attached().await?;
            let branch = node.branch().await?;
            let about = node.about();
            Ok(StatusOutput {
                standing: Standing::Ready.as_str().to_owned(),
                mcp_url: about
                    .url
                    .get()
                    .map(|url| format!("{url}/c/{}/mcp", about.checkout_id)),
                url: about.url.get().cloned(),
                pid: Some(std::process::id().into()),
                version: Some(crate::build::VERSION.to_owned()),
                commit: crate::build::commit(),
                checkout_id: about.checkout_id.clone(),
                repository_id: about.checkout.repository_id().to_string(),
                repository_key: serving.repository_key,
                branch,
                lease_path: serving.lease_path,
                lease_epoch: serving
                    .gate
                    .as_ref()
                    .and_then(|gate| gate.serving())
                    .map(Epoch::number),
                peers: Some(peers),
                desired_host: Some(serving.desired_host),
                idle_seconds: about.idle.map(|idle| idle.as_secs()),
            })
        }
    })
}

fn stop(stop: CancellationToken) -> Capability {
    Draft::command(
        "server.stop",
        "End this node",
        "Ends this node in order: answers in flight finish, then its lease says that it ended.",
    )
    .effect(Effect::Operator)
    .local_only()
    .handler(move |_: Call, _: Nothing| {
        let stop = stop.clone();
        async move {
            stop.cancel();
            Ok(StopOutput {
                pid: std::process::id(),
            })
        }
    })
}
