//! Startup work, counted: no call may redo what start-up did.
//!
//! Each step that belongs to start-up counts itself here; a test calls a running node hundreds of
//! times and requires the counters unchanged.

use std::sync::atomic::{AtomicU64, Ordering};

/// A piece of work that is done at start-up and never on the way to an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The schemas of a capability were generated.
    SchemaGenerated,
    /// The registry was built.
    RegistryBuilt,
    /// A path was resolved to its checkout.
    CheckoutResolved,
    /// The machine's configuration was read.
    ConfigRead,
    /// The list of tools was rendered.
    ToolListRendered,
    /// The OpenAPI document was rendered.
    OpenApiRendered,
}

impl Step {
    /// Every step, in the order of their counters.
    pub const ALL: [Self; 6] = [
        Self::SchemaGenerated,
        Self::RegistryBuilt,
        Self::CheckoutResolved,
        Self::ConfigRead,
        Self::ToolListRendered,
        Self::OpenApiRendered,
    ];

    /// Returns the name under which the counter is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SchemaGenerated => "schema_generated",
            Self::RegistryBuilt => "registry_built",
            Self::CheckoutResolved => "checkout_resolved",
            Self::ConfigRead => "config_read",
            Self::ToolListRendered => "tool_list_rendered",
            Self::OpenApiRendered => "openapi_rendered",
        }
    }
}

static COUNTS: [AtomicU64; Step::ALL.len()] = [const { AtomicU64::new(0) }; Step::ALL.len()];

/// Counts one execution of a step.
pub fn count(step: Step) {
    for (known, counter) in Step::ALL.iter().zip(&COUNTS) {
        if *known == step {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns each step's name with how often it ran in this process.
pub fn counts() -> Vec<(&'static str, u64)> {
    Step::ALL
        .iter()
        .zip(&COUNTS)
        .map(|(step, counter)| (step.as_str(), counter.load(Ordering::Relaxed)))
        .collect()
}
