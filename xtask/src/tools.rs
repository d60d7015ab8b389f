//! Programs that gates need and that a machine may lack: installed below the target folder, from
//! pinned lists, once.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::{Result, ensure};

use crate::{bench::Bench, command};

/// The release of nextest that the configuration was tried with.
const NEXTEST: &str = "0.9.143";

/// How long an installation may take; building nextest on two cores is the longest.
const INSTALL_LIMIT: Duration = Duration::from_mins(25);

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
    let home = bench.target("clients/node");
    let source = bench.root.join("tests/clients");
    let pins = fs_err::read_to_string(source.join("package-lock.json"))?;
    if is_stamped(&home.join("installed"), &pins) {
        return Ok(Ok(home));
    }
    if !command::is_present("npm", &["--version"]) {
        return Ok(Err("npm is not on this machine".to_owned()));
    }
    fs_err::create_dir_all(&home)?;
    for name in ["package.json", "package-lock.json"] {
        fs_err::copy(source.join(name), home.join(name))?;
    }
    let mut install = bench.command("npm");
    install
        .args(["ci", "--no-audit", "--no-fund", "--loglevel", "error"])
        .current_dir(&home);
    if !command::run(&mut install, INSTALL_LIMIT)?.success {
        return Ok(Err(
            "the npm packages of tests/clients cannot be installed".to_owned()
        ));
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
