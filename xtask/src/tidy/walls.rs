//! Which crate may know which other crate, and which technology.

use super::Subject;

/// The crates of this workspace that each of its crates may use; tests may use the testkit as well.
const MAY_USE: [(&str, &[&str]); 12] = [
    ("earshot-trust", &[]),
    ("earshot-proto", &["earshot-trust"]),
    ("earshot-capability", &["earshot-trust"]),
    ("earshot-checkout", &["earshot-proto", "earshot-trust"]),
    ("earshot-store", &["earshot-proto", "earshot-trust"]),
    ("earshot-mcp", &["earshot-capability", "earshot-trust"]),
    ("earshot-mesh", &["earshot-proto", "earshot-trust"]),
    (
        "earshot",
        &[
            "earshot-capability",
            "earshot-checkout",
            "earshot-mcp",
            "earshot-mesh",
            "earshot-proto",
            "earshot-store",
            "earshot-trust",
        ],
    ),
    ("earshot-testkit", &["earshot-proto", "earshot-trust"]),
    (
        "earshot-fuzz",
        &[
            "earshot-capability",
            "earshot-checkout",
            "earshot-mcp",
            "earshot-proto",
            "earshot-trust",
        ],
    ),
    ("earshot-integration", &["earshot-testkit"]),
    ("xtask", &[]),
];

const TESTKIT: &str = "earshot-testkit";

struct Ownership {
    technology: &'static str,
    owner: &'static str,
    /// Crates whose tests and examples may use it.
    in_tests: &'static [&'static str],
    because: &'static str,
}

const OWNERS: [Ownership; 9] = [
    Ownership {
        technology: "ed25519-dalek",
        owner: "earshot-trust",
        in_tests: &[],
        because: "signatures are made and checked in one crate",
    },
    Ownership {
        technology: "postcard",
        owner: "earshot-proto",
        in_tests: &[],
        because: "what nodes tell each other has one form",
    },
    Ownership {
        technology: "rmcp",
        owner: "earshot-mcp",
        in_tests: &[],
        because: "MCP is spoken in one crate",
    },
    Ownership {
        technology: "axum",
        owner: "earshot",
        in_tests: &["earshot-mcp"],
        because: "HTTP is routed in the node",
    },
    Ownership {
        technology: "clap",
        owner: "earshot",
        in_tests: &[],
        because: "flags are parsed in the binary",
    },
    Ownership {
        technology: "rusqlite",
        owner: "earshot-store",
        in_tests: &[],
        because: "SQL is spoken in one crate",
    },
    Ownership {
        technology: "quinn",
        owner: "earshot-mesh",
        in_tests: &[],
        because: "QUIC is spoken in one crate",
    },
    Ownership {
        technology: "mdns-sd",
        owner: "earshot-mesh",
        in_tests: &[],
        because: "the mesh alone discovers siblings",
    },
    Ownership {
        technology: "gix",
        owner: "earshot-checkout",
        in_tests: &[],
        because: "git is read in one crate",
    },
];

/// Crates that decide and do nothing, with the reason why they must stay so.
const PURE: [(&str, &str); 3] = [
    (
        "earshot-trust",
        "who may do what is decided without a socket",
    ),
    ("earshot-proto", "it must run in the simulator"),
    (
        "earshot-capability",
        "it serves every surface and knows none",
    ),
];

/// What a pure crate may not link, directly or through another.
const IMPURE: [&str; 12] = [
    "axum", "gix", "http", "hyper", "mio", "quinn", "rmcp", "rusqlite", "rustls", "socket2",
    "tokio", "tower",
];

/// Finds dependencies between crates of the workspace that point the wrong way.
pub(super) fn directions(subject: &Subject<'_>) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, edges) in &subject.graph.members {
        let Some((_, allowed)) = MAY_USE.iter().find(|(package, _)| package == name) else {
            findings.push(format!(
                "{name} has no row in the table of walls: say what it may use"
            ));
            continue;
        };
        for edge in edges
            .iter()
            .filter(|edge| subject.graph.members.contains_key(&edge.name))
        {
            let testkit_in_tests = edge.name == TESTKIT && edge.dev;
            if !testkit_in_tests && !allowed.contains(&edge.name.as_str()) {
                let used = &edge.name;
                findings.push(format!(
                    "{name} must not depend on {used}: see docs/ARCHITECTURE.md"
                ));
            }
        }
    }
    findings
}

/// Finds technologies used outside the one crate that owns them.
pub(super) fn owners(subject: &Subject<'_>) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, edges) in &subject.graph.members {
        for edge in edges {
            let Some(rule) = OWNERS
                .iter()
                .find(|rule| is_of(&edge.name, rule.technology))
            else {
                continue;
            };
            let in_tests = edge.dev && rule.in_tests.contains(&name.as_str());
            if name != rule.owner && !in_tests {
                findings.push(format!(
                    "{name} must not depend on {}: {} ({})",
                    edge.name, rule.because, rule.owner
                ));
            }
        }
    }
    findings
}

/// Finds runtimes, sockets and databases below the crates that only decide.
pub(super) fn purity(subject: &Subject<'_>) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, because) in PURE {
        let linked = subject.graph.closure(name);
        for used in linked {
            if IMPURE.iter().any(|impure| is_of(used, impure)) {
                findings.push(format!("{name} must not depend on {used}: {because}"));
            }
        }
    }
    findings
}

/// Returns whether a package is a technology or one of its parts, as `gix-ref` is of `gix`.
fn is_of(package: &str, technology: &str) -> bool {
    package
        .strip_prefix(technology)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        graph::{Edge, Graph},
        tree::Tree,
    };

    fn check(
        rule: fn(&Subject<'_>) -> Vec<String>,
        members: &[(&str, &[(&str, bool)])],
        links: &[(&str, &[&str])],
    ) -> Vec<String> {
        let mut graph = Graph::default();
        for (name, edges) in members {
            let edges = edges.iter().map(|(name, dev)| Edge {
                name: (*name).to_owned(),
                dev: *dev,
            });
            graph.members.insert((*name).to_owned(), edges.collect());
        }
        for (name, linked) in links {
            let linked: BTreeSet<String> = linked.iter().map(|it| (*it).to_owned()).collect();
            graph.links.insert((*name).to_owned(), linked);
        }
        rule(&Subject {
            tree: &Tree::default(),
            graph: &graph,
        })
    }

    #[test]
    fn a_crate_that_looks_up_is_found() {
        let findings = check(
            directions,
            &[
                ("earshot-proto", &[("earshot-mcp", false)]),
                ("earshot-mcp", &[]),
            ],
            &[],
        );
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("earshot-proto must not depend on earshot-mcp"));
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        assert_eq!(check(directions, &[("earshot-new", &[])], &[]).len(), 1);
    }

    #[test]
    fn the_testkit_is_for_tests() {
        let with = |dev| {
            check(
                directions,
                &[("earshot-proto", &[(TESTKIT, dev)]), (TESTKIT, &[])],
                &[],
            )
        };
        assert_eq!(with(true), Vec::<String>::new());
        assert_eq!(with(false).len(), 1);
    }

    #[test]
    fn a_technology_has_one_owner() {
        let found = |package, technology, dev| {
            !check(owners, &[(package, &[(technology, dev)])], &[]).is_empty()
        };
        for (package, technology, dev, wanted) in [
            ("earshot-mcp", "rmcp", false, false),
            ("earshot", "rmcp", false, true),
            ("earshot", "rmcp", true, true),
            ("earshot-mcp", "axum", true, false),
            ("earshot-mcp", "axum", false, true),
            ("earshot", "axum", false, false),
            ("xtask", "clap", false, true),
            ("earshot-checkout", "gix-ref", false, false),
            ("earshot", "gix-ref", false, true),
            ("earshot", "gixen", false, false),
            ("earshot", "rusqlite", false, true),
        ] {
            assert_eq!(
                found(package, technology, dev),
                wanted,
                "{package} {technology} {dev}"
            );
        }
    }

    #[test]
    fn impurity_is_found_however_deep() {
        let links: &[(&str, &[&str])] = &[
            ("earshot-proto", &["serde", "x"]),
            ("x", &["y"]),
            ("y", &["tokio"]),
        ];
        assert_eq!(
            check(purity, &[], links),
            ["earshot-proto must not depend on tokio: it must run in the simulator"]
        );
        assert!(check(purity, &[], &[("earshot-proto", &["serde"])]).is_empty());
    }
}
