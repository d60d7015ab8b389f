//! The capabilities of the registry itself: finding, describing and calling the others.

use earshot_trust::Effect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    declare::{Capability, Declaration, Draft, Kind},
    dispatch::{Answer, Call},
    failure::{Code, Failure},
};

/// Most hits of one search.
const FOUND_MAX: usize = 20;

/// Returns the capabilities of the registry itself.
pub fn builtin() -> Vec<Capability> {
    vec![list(), find(), describe(), call()]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(
    clippy::empty_structs_with_brackets,
    reason = "its JSON is an object, not null"
)]
struct Nothing {}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FindInput {
    /// Words to look for.
    query: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DescribeInput {
    /// The capability's id, as `peers.list`.
    id: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CallInput {
    /// As `peers.list`.
    id: String,
    /// Its input.
    #[serde(default)]
    input: Map<String, Value>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Summary {
    /// The id.
    id: &'static str,
    /// What it is called.
    title: &'static str,
    /// What it is for.
    description: &'static str,
    /// `query` or `command`.
    kind: &'static str,
    /// What it changes: `read`, `node_state`, `machine_state`, `repository_mutation`, `operator`.
    effect: &'static str,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Summaries {
    /// The capabilities, by id or by how well they fit.
    capabilities: Vec<Summary>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Description {
    #[serde(flatten)]
    summary: Summary,
    /// The name as an MCP tool.
    tool: String,
    /// The HTTP route.
    route: String,
    /// The schema of its input.
    input: Value,
    /// The schema of its output.
    output: Value,
}

#[derive(Debug, Serialize, JsonSchema)]
struct CallOutput {
    /// The capability that was called.
    id: String,
    /// Its answer.
    output: Map<String, Value>,
}

fn list() -> Capability {
    Draft::query(
        "capabilities.list",
        "List capabilities",
        "Lists everything this node can do.",
    )
    .handler(|call: Call, _: Nothing| async move {
        let capabilities = call
            .dispatcher
            .registry()
            .projected()
            .map(summary)
            .collect();
        Ok(Summaries { capabilities })
    })
}

fn find() -> Capability {
    Draft::query(
        "capabilities.find",
        "Find a capability",
        "Finds what else this node can do, by words; capabilities_call calls it.",
    )
    .listed()
    .handler(|call: Call, input: FindInput| async move {
        let words: Vec<String> = input
            .query
            .split_whitespace()
            .map(str::to_lowercase)
            .collect();
        let mut hits: Vec<(usize, &Declaration)> = call
            .dispatcher
            .registry()
            .projected()
            .map(|declaration| (score(declaration, &words), declaration))
            .filter(|(score, _)| *score > 0)
            .collect();
        hits.sort_by_key(|(score, declaration)| (usize::MAX - score, declaration.id));
        hits.truncate(FOUND_MAX);
        Ok(Summaries {
            capabilities: hits.into_iter().map(|(_, hit)| summary(hit)).collect(),
        })
    })
}

fn describe() -> Capability {
    Draft::query(
        "capabilities.describe",
        "Describe a capability",
        "Answers one capability's whole input and output schema.",
    )
    .handler(|call: Call, input: DescribeInput| async move {
        let registry = call.dispatcher.registry();
        let declaration = registry
            .projected()
            .find(|it| it.id == input.id)
            .ok_or_else(unknown)?;
        Ok(Description {
            summary: summary(declaration),
            tool: declaration.tool_name(),
            route: declaration.route(),
            input: declaration.schemas.input.clone(),
            output: declaration.schemas.output.clone(),
        })
    })
}

fn call() -> Capability {
    Draft::command(
        "capabilities.call",
        "Call a capability",
        "Calls any capability that capabilities_find names.",
    )
    .listed()
    .handler(|call: Call, input: CallInput| async move {
        let registry = call.dispatcher.registry();
        if input.id == "capabilities.call" || registry.get(&input.id).is_none() {
            return Err(unknown());
        }
        let dispatcher = std::sync::Arc::clone(&call.dispatcher);
        let answer = dispatcher
            .run(&input.id, call, Value::Object(input.input))
            .await?;
        match answer {
            Answer::Structured(output) => Ok(CallOutput {
                id: input.id,
                output,
            }),
            #[cfg(feature = "conformance")]
            Answer::Native(_) => Err(unknown()),
        }
    })
}

fn unknown() -> Failure {
    Failure::new(
        Code::NotFound,
        "there is no capability of that id",
        "Look it up by words with capabilities.find; capabilities.list names all.",
    )
}

fn summary(declaration: &Declaration) -> Summary {
    Summary {
        id: declaration.id,
        title: declaration.title,
        description: declaration.description,
        kind: match declaration.kind {
            Kind::Query => "query",
            Kind::Command => "command",
        },
        effect: effect_word(declaration.effect),
    }
}

/// Returns the word by which an effect is shown.
pub const fn effect_word(effect: Effect) -> &'static str {
    match effect {
        Effect::Read => "read",
        Effect::NodeState => "node_state",
        Effect::MachineState => "machine_state",
        Effect::RepositoryMutation => "repository_mutation",
        Effect::Operator => "operator",
    }
}

/// Counts how many of the words occur, those in the id for more.
fn score(declaration: &Declaration, words: &[String]) -> usize {
    let text = format!("{} {}", declaration.title, declaration.description).to_lowercase();
    words
        .iter()
        .map(|word| {
            3 * usize::from(declaration.id.contains(word.as_str()))
                + usize::from(text.contains(word.as_str()))
        })
        .sum()
}
