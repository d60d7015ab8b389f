//! Rules that no compiler holds. Each is one function from what is there to what is wrong.

mod clippy_config;
mod decisions;
mod failures;
mod links;
mod lockfile;
mod sizes;
mod text;
mod walls;

use anyhow::Result;

use crate::{bench::Bench, graph::Graph, tally::Tally, tree::Tree};

/// What rules look at.
pub(crate) struct Subject<'a> {
    /// Text and paths.
    tree: &'a Tree,
    /// Packages and who uses whom.
    graph: &'a Graph,
}

struct Rule {
    name: &'static str,
    check: fn(&Subject<'_>) -> Vec<String>,
}

const RULES: [Rule; 12] = [
    Rule {
        name: "crates look only where they may",
        check: walls::directions,
    },
    Rule {
        name: "one owner for each technology",
        check: walls::owners,
    },
    Rule {
        name: "pure crates link nothing that does I/O",
        check: walls::purity,
    },
    Rule {
        name: "no file beyond its length",
        check: sizes::too_long,
    },
    Rule {
        name: "packages under the ceiling",
        check: lockfile::ceiling,
    },
    Rule {
        name: "links of the documentation resolve",
        check: links::broken,
    },
    Rule {
        name: "decisions are indexed",
        check: decisions::unlisted,
    },
    Rule {
        name: "dependencies are decided",
        check: decisions::undecided,
    },
    Rule {
        name: "every class of failures is shown by a test",
        check: failures::unproven,
    },
    Rule {
        name: "nothing unfinished or silenced",
        check: text::unfinished,
    },
    Rule {
        name: "no machine path, no registry host",
        check: text::places,
    },
    Rule {
        name: "one clippy.toml, paths that can exist",
        check: clippy_config::mistakes,
    },
];

/// Checks every rule and prints what breaks it.
pub(crate) fn run(bench: &Bench) -> Result<Tally> {
    let tree = Tree::read(&bench.root)?;
    let subject = Subject {
        tree: &tree,
        graph: &bench.graph,
    };
    let mut total = Tally::default();
    for rule in &RULES {
        let findings = (rule.check)(&subject);
        println!(
            "{} {}",
            if findings.is_empty() { "ok  " } else { "FAIL" },
            rule.name
        );
        for finding in &findings {
            println!("     {finding}");
        }
        total += Tally::one(findings.is_empty());
    }
    for note in sizes::notes(&subject) {
        println!("note {note}");
    }
    Ok(total)
}

#[cfg(test)]
fn findings_in(files: &[(&str, &str)], check: fn(&Subject<'_>) -> Vec<String>) -> Vec<String> {
    let tree = crate::tree::tree_of(files);
    check(&Subject {
        tree: &tree,
        graph: &Graph::default(),
    })
}
