//! The gates of the project, fastest first.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::{Result, bail};

use crate::{
    bench::Bench,
    command::{self, Outcome},
    leftovers,
    tally::{self, Tally},
    tidy, tools,
};

/// How long a gate that compiles may take, from nothing, on a small machine.
const BUILD_LIMIT: Duration = Duration::from_mins(40);

/// How long a gate that drives the built binary may take.
const DRIVE_LIMIT: Duration = Duration::from_mins(10);

struct Gate {
    name: &'static str,
    run: fn(&Bench) -> Result<Tally>,
}

const GATES: [Gate; 20] = [
    Gate {
        name: "fmt",
        run: fmt,
    },
    Gate {
        name: "tidy",
        run: tidy::run,
    },
    Gate {
        name: "clippy",
        run: clippy,
    },
    Gate {
        name: "build",
        run: build,
    },
    Gate {
        name: "generated",
        run: generated_of_build,
    },
    Gate {
        name: "nextest",
        run: nextest,
    },
    Gate {
        name: "fuzz",
        run: fuzz,
    },
    Gate {
        name: "doctests",
        run: doctests,
    },
    Gate {
        name: "rustdoc",
        run: rustdoc,
    },
    Gate {
        name: "python",
        run: python_client,
    },
    Gate {
        name: "typescript",
        run: typescript_client,
    },
    Gate {
        name: "programs",
        run: client_programs,
    },
    Gate {
        name: "conformance-2025-11-25",
        run: conformance_2025,
    },
    Gate {
        name: "conformance-2026-07-28",
        run: conformance_2026,
    },
    Gate {
        name: "conformance-product",
        run: conformance_product,
    },
    Gate {
        name: "http-api",
        run: http_api,
    },
    Gate {
        name: "deny",
        run: deny,
    },
    Gate {
        name: "machete",
        run: machete,
    },
    Gate {
        name: "typos",
        run: typos,
    },
    Gate {
        name: "leftovers",
        run: leftovers::gate,
    },
];

/// Runs the named gates, or all of them, and returns what they counted.
pub(crate) fn run(names: &[String]) -> Result<Tally> {
    if let Some(unknown) = names
        .iter()
        .find(|name| GATES.iter().all(|gate| gate.name != **name))
    {
        let known: Vec<&str> = GATES.iter().map(|gate| gate.name).collect();
        bail!(
            "no gate is called {unknown}; there are {}",
            known.join(", ")
        );
    }
    let bench = Bench::open()?;
    let mut total = Tally::default();
    let mut summary = Vec::new();
    for gate in GATES
        .iter()
        .filter(|gate| names.is_empty() || names.iter().any(|it| it == gate.name))
    {
        println!("\n== {}", gate.name);
        let tally = (gate.run)(&bench).unwrap_or_else(|error| {
            println!("{}: {error:#}", gate.name);
            Tally::one(false)
        });
        total += tally;
        summary.push(format!("{:<24} {tally}", gate.name));
    }
    println!("\n== summary");
    for line in summary {
        println!("{line}");
    }
    Ok(total)
}

/// Checks that the generated files are what the binary would write, after building it.
pub(crate) fn generated(bench: &Bench) -> Result<Tally> {
    if !compile(bench, &["build", "--quiet", "--package", "earshot"])?.success {
        bail!("earshot does not build");
    }
    generated_of_build(bench)
}

fn fmt(bench: &Bench) -> Result<Tally> {
    Ok(passed(&compile(bench, &["fmt", "--all", "--", "--check"])?))
}

fn clippy(bench: &Bench) -> Result<Tally> {
    let arguments = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--",
        "-D",
        "warnings",
    ];
    let outcome = compile(bench, &arguments)?;
    // A banned path that names nothing bans nothing, and clippy only warns of it.
    let mistyped = outcome
        .lines
        .iter()
        .any(|line| line.contains("does not refer"));
    Ok(Tally::one(outcome.success && !mistyped))
}

fn build(bench: &Bench) -> Result<Tally> {
    let binary = compile(bench, &["build", "--package", "earshot"])?;
    let mut total = passed(&binary);
    let arguments = [
        "build",
        "--package",
        "earshot-mcp",
        "--example",
        "conformance",
        "--features",
        "conformance",
    ];
    total += passed(&compile(bench, &arguments)?);
    Ok(total)
}

fn generated_of_build(bench: &Bench) -> Result<Tally> {
    let mut command = bench.command(bench.binary()?);
    command.args(["capabilities", "generate", "--check"]);
    command.args(["--into", "docs/generated"]);
    command.env("EARSHOT_HOME", bench.scratch().join("generated"));
    Ok(passed(&command::run(&mut command, DRIVE_LIMIT)?))
}

fn nextest(bench: &Bench) -> Result<Tally> {
    let mut command = tools::nextest(bench)?;
    command.args(["nextest", "run", "--workspace", "--profile", "ci"]);
    command.env("EARSHOT_BIN", bench.binary()?);
    let outcome = command::run(&mut command, BUILD_LIMIT)?;
    Ok(tally::of_nextest(&outcome.lines)
        .unwrap_or_default()
        .agreeing_with(outcome.success))
}

/// Replays the corpora, and mutates them for ten seconds each.
fn fuzz(bench: &Bench) -> Result<Tally> {
    let arguments = [
        "run",
        "--quiet",
        "--package",
        "earshot-fuzz",
        "--",
        "--seconds",
        "10",
    ];
    Ok(counted(&compile(bench, &arguments)?))
}

fn doctests(bench: &Bench) -> Result<Tally> {
    let outcome = compile(bench, &["test", "--workspace", "--doc"])?;
    Ok(tally::of_harness(&outcome.lines).agreeing_with(outcome.success))
}

fn rustdoc(bench: &Bench) -> Result<Tally> {
    let mut command = bench.cargo();
    command
        .args([
            "doc",
            "--workspace",
            "--no-deps",
            "--document-private-items",
            "--all-features",
        ])
        .env("RUSTDOCFLAGS", "-D warnings");
    Ok(passed(&command::run(&mut command, BUILD_LIMIT)?))
}

fn python_client(bench: &Bench) -> Result<Tally> {
    with_python(bench, "tests/clients/drive.py", |command| {
        command.arg(bench.binary()?);
        Ok(())
    })
}

fn typescript_client(bench: &Bench) -> Result<Tally> {
    let home = match tools::node(bench)? {
        Ok(home) => home,
        Err(why) => return Ok(skip("typescript", &why)),
    };
    let mut command = bench.command(home.join("node_modules/.bin/node"));
    command
        .arg(bench.root.join("tests/clients/drive.mjs"))
        .arg(bench.binary()?)
        .arg(home.join("node_modules"));
    Ok(counted(&command::run(&mut command, DRIVE_LIMIT)?))
}

fn client_programs(bench: &Bench) -> Result<Tally> {
    let Some(node) = node_for(bench, "programs")? else {
        return Ok(Tally::skipped());
    };
    let programs = tools::programs(bench)?;
    with_python(bench, "tests/clients/programs.py", |command| {
        command
            .arg(bench.binary()?)
            .arg(node.join(".bin/node"))
            .arg(programs);
        Ok(())
    })
}

fn conformance_2025(bench: &Bench) -> Result<Tally> {
    conformance(bench, "2025-11-25", "30")
}

fn conformance_2026(bench: &Bench) -> Result<Tally> {
    conformance(bench, "2026-07-28", "37")
}

fn conformance(bench: &Bench, revision: &str, bar: &str) -> Result<Tally> {
    let Some(node) = node_for(bench, "conformance")? else {
        return Ok(Tally::skipped());
    };
    with_python(bench, "tests/clients/conformance.py", |command| {
        command
            .arg("--suite")
            .arg(&node)
            .args(["--revision", revision, "--bar", bar, "--"]);
        command.arg(bench.conformance_server()?);
        Ok(())
    })
}

fn conformance_product(bench: &Bench) -> Result<Tally> {
    let Some(node) = node_for(bench, "conformance-product")? else {
        return Ok(Tally::skipped());
    };
    with_python(bench, "tests/clients/conformance.py", |command| {
        command
            .arg("--suite")
            .arg(&node)
            .arg("--product")
            .arg(bench.binary()?);
        Ok(())
    })
}

fn http_api(bench: &Bench) -> Result<Tally> {
    with_python(bench, "tests/clients/http_api.py", |command| {
        command.arg(bench.binary()?);
        Ok(())
    })
}

fn deny(bench: &Bench) -> Result<Tally> {
    // Advisories are fetched from elsewhere, so they are left to whoever has the network for it.
    cargo_extension(bench, "deny", &["check", "bans", "licenses", "sources"])
}

fn machete(bench: &Bench) -> Result<Tally> {
    cargo_extension(bench, "machete", &[])
}

fn typos(bench: &Bench) -> Result<Tally> {
    let python = match tools::python(bench)? {
        Ok(python) => python,
        Err(why) => return Ok(skip("typos", &why)),
    };
    Ok(passed(&command::run(
        &mut bench.command(python.with_file_name("typos")),
        DRIVE_LIMIT,
    )?))
}

fn cargo_extension(bench: &Bench, name: &str, arguments: &[&str]) -> Result<Tally> {
    if !command::is_present(&format!("cargo-{name}"), &[name, "--version"]) {
        return Ok(skip(name, &format!("cargo-{name} is not on this machine")));
    }
    let mut command = bench.cargo();
    command.arg(name).args(arguments);
    Ok(passed(&command::run(&mut command, DRIVE_LIMIT)?))
}

fn with_python(
    bench: &Bench,
    script: &str,
    arguments: impl FnOnce(&mut Command) -> Result<()>,
) -> Result<Tally> {
    let python = match tools::python(bench)? {
        Ok(python) => python,
        Err(why) => return Ok(skip(script, &why)),
    };
    let mut command = bench.command(python);
    command.arg("-u").arg(bench.root.join(script));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    arguments(&mut command)?;
    Ok(counted(&command::run(&mut command, DRIVE_LIMIT)?))
}

fn node_for(bench: &Bench, gate: &str) -> Result<Option<PathBuf>> {
    match tools::node(bench)? {
        Ok(home) => Ok(Some(home.join("node_modules"))),
        Err(why) => {
            skip(gate, &why);
            Ok(None)
        }
    }
}

fn compile(bench: &Bench, arguments: &[&str]) -> Result<Outcome> {
    command::run(bench.cargo().args(arguments), BUILD_LIMIT)
}

fn passed(outcome: &Outcome) -> Tally {
    Tally::one(outcome.success)
}

fn counted(outcome: &Outcome) -> Tally {
    tally::of_closing_line(&outcome.lines)
        .unwrap_or_default()
        .agreeing_with(outcome.success)
}

fn skip(gate: &str, why: &str) -> Tally {
    println!("SKIPPED {gate}: {why}");
    Tally::skipped()
}
