//! Programs that gates need and that a machine may lack: installed below the target folder, from
//! pinned lists, once.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::{Result, ensure};

use crate::{bench::Bench, command};

/// The release of nextest that the configuration was tried with.
const NEXTEST: &str = "0.9.143";

/// How long an installation may take; building nextest on two cores is the longest.
const INSTALL_LIMIT: Duration = Duration::from_mins(25);

/// How long the download of one client program may take: some 400 MB unpacked, a few seconds where
/// the registry is near.
const PROGRAM_LIMIT: Duration = Duration::from_mins(4);

/// The client programs, as their folders below `tests/clients/programs` are called.
const PROGRAMS: [&str; 3] = ["claude-code", "codex", "gemini-cli"];

/// Returns nextest, built below the target folder where the machine has none.
pub(crate) fn nextest(bench: &Bench) -> Result<Command> {
    if command::is_present("cargo-nextest", &["nextest", "--version"]) {
        return Ok(bench.command("cargo-nextest"));
    }
    let home = bench.target("tools");
    let program = home.join("bin/cargo-nextest");
    if !program.is_file() {
        println!("installing cargo-nextest {NEXTEST}");
        let mut install = bench.cargo();
        install
            .args([
                "install",
                "cargo-nextest",
                "--locked",
                "--version",
                NEXTEST,
                "--root",
            ])
            .arg(home);
        ensure!(
            command::run(&mut install, INSTALL_LIMIT)?.success,
            "cannot install cargo-nextest"
        );
    }
    Ok(bench.command(program))
}

/// Returns a Python that has the client SDK, schemathesis, the `OpenAPI` validator and the spelling
/// checker, or the reason why there is none.
pub(crate) fn python(bench: &Bench) -> Result<Result<PathBuf, String>> {
    let home = bench.target("clients/venv");
    let python = home.join("bin/python");
    let pins = fs_err::read_to_string(bench.root.join("tests/clients/requirements.txt"))?;
    if is_stamped(&home.join("installed"), &pins) && python.is_file() {
        return Ok(Ok(python));
    }
    if !command::is_present("python3", &["-m", "venv", "--help"]) {
        return Ok(Err("python3 with venv is not on this machine".to_owned()));
    }
    let mut make = bench.command("python3");
    make.args(["-m", "venv", "--clear"]).arg(&home);
    let mut fill = bench.command(&python);
    fill.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--requirement",
    ])
    .arg(bench.root.join("tests/clients/requirements.txt"));
    for install in [&mut make, &mut fill] {
        if !command::run(install, INSTALL_LIMIT)?.success {
            return Ok(Err(
                "the Python packages of tests/clients cannot be installed".to_owned(),
            ));
        }
    }
    fs_err::write(home.join("installed"), pins)?;
    Ok(Ok(python))
}

/// Returns the folder whose `node_modules` has the client SDKs, the conformance suite and a Node.js
/// that can run it, or the reason why there is none.
pub(crate) fn node(bench: &Bench) -> Result<Result<PathBuf, String>> {
    npm(bench, "tests/clients", "clients/node", &[], INSTALL_LIMIT)
}

/// Installs the client programs that can be had, each into a folder of its own, and returns the
/// folder that has those.
///
/// What cannot be installed is said here, and skipped by whoever looks for it there. No script of a
/// package runs: the programs start without.
pub(crate) fn programs(bench: &Bench) -> Result<PathBuf> {
    for program in PROGRAMS {
        let source = format!("tests/clients/programs/{program}");
        let home = format!("clients/programs/{program}");
        let installed = npm(bench, &source, &home, &["--ignore-scripts"], PROGRAM_LIMIT)?;
        if let Err(why) = installed {
            println!("{program}: {why}");
            let modules = bench.target(&home).join("node_modules");
            // Half a program would be taken for one.
            if modules.exists() {
                fs_err::remove_dir_all(modules)?;
            }
        }
    }
    Ok(bench.target("clients/programs"))
}

/// Installs what a lock file pins, unless it is installed already.
fn npm(
    bench: &Bench,
    source: &str,
    home: &str,
    options: &[&str],
    limit: Duration,
) -> Result<Result<PathBuf, String>> {
    let pinned = bench.root.join(source);
    let home = bench.target(home);
    let pins = fs_err::read_to_string(pinned.join("package-lock.json"))?;
    if is_stamped(&home.join("installed"), &pins) {
        return Ok(Ok(home));
    }
    if !command::is_present("npm", &["--version"]) {
        return Ok(Err("npm is not on this machine".to_owned()));
    }
    fs_err::create_dir_all(&home)?;
    for name in ["package.json", "package-lock.json"] {
        fs_err::copy(pinned.join(name), home.join(name))?;
    }
    let mut install = bench.command("npm");
    install
        .args(["ci", "--no-audit", "--no-fund", "--loglevel", "error"])
        .args(options)
        .current_dir(&home);
    if !command::run(&mut install, limit)?.success {
        return Ok(Err(format!(
            "the npm packages of {source} cannot be installed"
        )));
    }
    fs_err::write(home.join("installed"), pins)?;
    Ok(Ok(home))
}

fn is_stamped(stamp: &std::path::Path, pins: &str) -> bool {
    fs_err::read_to_string(stamp).is_ok_and(|installed| installed == pins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_is_current_while_its_pins_are() {
        let folder = tempfile::tempdir().unwrap();
        let stamp = folder.path().join("installed");
        assert!(!is_stamped(&stamp, "a==1"));
        fs_err::write(&stamp, "a==1").unwrap();
        assert!(is_stamped(&stamp, "a==1"));
        assert!(!is_stamped(&stamp, "a==2"));
    }
}
