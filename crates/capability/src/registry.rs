//! The registry: every capability of a node, each once.

use std::collections::BTreeMap;

use crate::{
    declare::{Capability, Declaration, Listing},
    startup::{Step, count},
};

/// Most capabilities that a tool list shows by default: an agent's context is dear.
const LISTED_MAX: usize = 12;

/// Every capability of a node, by id.
#[derive(Debug)]
pub struct Registry {
    capabilities: BTreeMap<&'static str, Capability>,
    tools: BTreeMap<String, &'static str>,
}

impl Registry {
    /// Collects capabilities.
    ///
    /// # Panics
    /// When an id, a tool name or a verb occurs twice, an id is not dotted lower-case words, an
    /// input or output is not an object, or more than twelve are listed: each is a mistake in
    /// this program, found by the first test that builds a registry.
    pub fn new(capabilities: impl IntoIterator<Item = Capability>) -> Self {
        count(Step::RegistryBuilt);
        let mut registry = Self {
            capabilities: BTreeMap::new(),
            tools: BTreeMap::new(),
        };
        let mut verbs = BTreeMap::new();
        for capability in capabilities {
            let declaration = &capability.declaration;
            let id = declaration.id;
            assert_well_formed(declaration);
            if let Some(cli) = declaration.cli {
                assert_eq!(
                    verbs.insert(cli.verb, id),
                    None,
                    "verb {} occurs twice",
                    cli.verb
                );
            }
            assert_eq!(
                registry.tools.insert(declaration.tool_name(), id),
                None,
                "{id} twice"
            );
            assert!(
                registry.capabilities.insert(id, capability).is_none(),
                "{id} twice"
            );
        }
        let listed = registry.listed().count();
        assert!(
            listed <= LISTED_MAX,
            "{listed} capabilities are listed, {LISTED_MAX} may be"
        );
        registry
    }

    /// Returns a capability by its id.
    pub fn get(&self, id: &str) -> Option<&Capability> {
        self.capabilities.get(id)
    }

    /// Returns the declaration behind a tool name, unless no agent may see it.
    pub fn tool(&self, name: &str) -> Option<&Declaration> {
        let id = self.tools.get(name)?;
        self.get(id)
            .map(|capability| &capability.declaration)
            .filter(|it| it.is_projected())
    }

    /// Iterates over all declarations, by id.
    pub fn declarations(&self) -> impl Iterator<Item = &Declaration> {
        self.capabilities
            .values()
            .map(|capability| &capability.declaration)
    }

    /// Iterates over what every surface may show: all but what only a person may do.
    pub fn projected(&self) -> impl Iterator<Item = &Declaration> {
        self.declarations()
            .filter(|declaration| declaration.is_projected())
    }

    /// Iterates over the default tool list, by id.
    pub fn listed(&self) -> impl Iterator<Item = &Declaration> {
        self.projected()
            .filter(|declaration| declaration.listing == Listing::Listed)
    }
}

fn assert_well_formed(declaration: &Declaration) {
    let id = declaration.id;
    let word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    assert!(
        id.split('.').all(word),
        "{id} is not dotted lower-case words"
    );
    // Clients put `mcp__earshot__` before it and allow 64 characters in all.
    assert!(id.len() <= 46, "{id} is too long for a tool name");
    for schema in [
        &declaration.schemas.input_listed,
        &declaration.schemas.output_listed,
    ] {
        let kind = schema.get("type");
        assert!(
            kind.is_some_and(|kind| kind == "object"),
            "{id}: an input or output is no object"
        );
    }
}
