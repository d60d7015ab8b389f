//! The capability `mcp.projection`: what is served over MCP, read from the registry.

use earshot_capability::{Call, Capability, Draft, Listing, effect_word};
use earshot_trust::Effect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoint::supported_versions;

/// Returns the capabilities of this crate.
pub fn capabilities() -> Vec<Capability> {
    vec![projection()]
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum EffectFilter {
    /// Reads only.
    Read,
    /// Changes what this node holds.
    NodeState,
    /// Changes what this machine keeps.
    MachineState,
    /// Changes files of the repository.
    RepositoryMutation,
}

impl EffectFilter {
    const fn effect(self) -> Effect {
        match self {
            Self::Read => Effect::Read,
            Self::NodeState => Effect::NodeState,
            Self::MachineState => Effect::MachineState,
            Self::RepositoryMutation => Effect::RepositoryMutation,
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Show only tools of this effect.
    #[serde(default)]
    effect: Option<EffectFilter>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Served {
    /// The name of the tool.
    name: String,
    /// The capability behind it.
    id: &'static str,
    /// What it changes.
    effect: &'static str,
    /// Whether it stands in the default tool list; any other can be called by its name too.
    listed: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Output {
    /// The protocol versions that are spoken, oldest first.
    protocol_versions: Vec<&'static str>,
    /// How many tools are shown.
    count: usize,
    /// The tools, by id.
    tools: Vec<Served>,
}

fn projection() -> Capability {
    Draft::query(
        "mcp.projection",
        "Show what is served over MCP",
        "Shows every tool with the capability behind it and what it changes, and the protocol \
         versions that are spoken.",
    )
    .handler(|call: Call, input: Input| async move {
        let wanted = input.effect.map(EffectFilter::effect);
        let tools: Vec<Served> = call
            .dispatcher
            .registry()
            .projected()
            .filter(|declaration| wanted.is_none_or(|wanted| declaration.effect == wanted))
            .map(|declaration| Served {
                name: declaration.tool_name(),
                id: declaration.id,
                effect: effect_word(declaration.effect),
                listed: declaration.listing == Listing::Listed,
            })
            .collect();
        Ok(Output {
            protocol_versions: supported_versions(),
            count: tools.len(),
            tools,
        })
    })
}
