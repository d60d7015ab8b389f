//! What every command prints, kept in files beside this one: a change of it is seen, and meant.
//!
//! `EARSHOT_SNAPSHOTS=write cargo test -p earshot-integration --test snapshots` writes the files
//! anew; git shows what changed.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use earshot_testkit::process::{Ran, StdioClient, World, eventually, is_running, kill};
use serde_json::json;

/// How the files are written anew.
const WRITE: &str = "EARSHOT_SNAPSHOTS=write cargo test -p earshot-integration --test snapshots";

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("snapshots")
        .join(name)
}

/// The snapshots of one folder, compared or written one after the other.
struct Snapshots<'a> {
    world: &'a World,
    folder: PathBuf,
    writes: bool,
    seen: BTreeSet<String>,
    differ: Vec<String>,
}

impl<'a> Snapshots<'a> {
    fn of(world: &'a World, name: &str) -> Self {
        Self {
            world,
            folder: folder(name),
            writes: std::env::var_os("EARSHOT_SNAPSHOTS").is_some_and(|it| it == "write"),
            seen: BTreeSet::new(),
            differ: Vec::new(),
        }
    }

    /// Runs a command, and holds what it says against its file.
    fn run(&mut self, name: &str, repo: &Path, arguments: &[&str]) -> Ran {
        self.run_with(name, repo, arguments, &[])
    }

    fn run_with(
        &mut self,
        name: &str,
        repo: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Ran {
        let output = self
            .world
            .earshot(repo)
            .args(arguments)
            .envs(variables.iter().copied())
            .env_remove("COLUMNS")
            .output()
            .expect("the binary runs");
        let ran = Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        let set: String = variables
            .iter()
            .map(|(name, value)| format!("{name}={value} "))
            .collect();
        let command = arguments.join(" ");
        let whole = format!(
            "$ {set}earshot {command}\n--- standard output\n{}--- standard error\n{}--- exit code\n{}\n",
            ran.stdout,
            ran.stderr,
            ran.code
                .map_or_else(|| "none".to_owned(), |code| code.to_string()),
        );
        self.compare(name, &normalised(self.world, &whole));
        ran
    }

    fn compare(&mut self, name: &str, text: &str) {
        let file = format!("{name}.txt");
        let path = self.folder.join(&file);
        assert!(self.seen.insert(file), "{name} is compared twice");
        let known = fs_err::read_to_string(&path).unwrap_or_default();
        if known == text {
            return;
        }
        if self.writes {
            fs_err::create_dir_all(&self.folder).expect("a folder for the snapshots");
            fs_err::write(&path, text).expect("the snapshot is written");
        } else {
            let path = path.display();
            self.differ
                .push(format!("{path}\n=== kept\n{known}=== now\n{text}"));
        }
    }

    /// Fails when a snapshot differs, and when a file belongs to nothing any more.
    fn finish(self) {
        let kept = fs_err::read_dir(&self.folder).expect("the snapshots are there");
        for entry in kept {
            let path = entry.expect("a snapshot").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            if self.seen.contains(&*name) {
                continue;
            }
            assert!(self.writes, "nothing is compared with {}", path.display());
            fs_err::remove_file(&path).expect("it is removed");
        }
        assert!(
            self.differ.is_empty(),
            "changed; if it is meant: {WRITE}\n{}",
            self.differ.join("\n")
        );
    }
}

/// Replaces what differs from run to run: paths, ids, ports, processes, times, the version.
fn normalised(world: &World, text: &str) -> String {
    let binary = World::binary().to_string_lossy().into_owned();
    let scratch = world.path().to_string_lossy().into_owned();
    let text = text.replace(&binary, "earshot").replace(&scratch, "/WORLD");
    let version = env!("CARGO_PKG_VERSION");
    // A build outside a repository knows no commit.
    let lines = text.lines().filter(|line| !line.starts_with("commit:"));
    let lines = lines.map(|line| {
        let line = line.replace(&format!(" {version}"), " VERSION");
        let line = words(&line, "", 32, |c| c.is_ascii_hexdigit(), "ID");
        let line = words(&line, "127.0.0.1:", 1, |c| c.is_ascii_digit(), "PORT");
        let line = words(&line, "/hosts/", 12, |c| c.is_ascii_hexdigit(), "HOST");
        let named = ["process ", "pid:", "lease_epoch:"];
        if named.iter().any(|name| line.trim_start().starts_with(name)) {
            return words(&line, " ", 1, |c| c.is_ascii_digit(), "NUMBER");
        }
        line
    });
    let lines: Vec<String> = ages(lines.collect());
    lines.join("\n") + "\n"
}

/// Replaces each run of characters that follows this and is at least so long.
fn words(line: &str, after: &str, at_least: usize, is_part: fn(char) -> bool, by: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(character) = rest.chars().next() {
        let run = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        if run >= at_least && out.ends_with(after) {
            out.push_str(by);
            rest = &rest[run..];
        } else {
            let taken = run.max(character.len_utf8());
            out.push_str(&rest[..taken]);
            rest = &rest[taken..];
        }
    }
    out
}

/// Replaces the column that says how long ago a peer was seen: up to 4 characters wide here.
fn ages(lines: Vec<String>) -> Vec<String> {
    let mut column = None;
    let replaced = lines.into_iter().map(|mut line| {
        if let Some(at) = line.find("SEEN  ") {
            column = Some(at);
        } else if let Some(at) = column {
            let cell = line.get(at..at + 4).map(str::trim_end);
            if cell.is_some_and(|cell| cell == "now" || cell.ends_with(['s', 'm'])) {
                line.replace_range(at..at + 4, "AGE ");
            } else {
                column = None;
            }
        }
        line
    });
    replaced.collect()
}

/// Lists the commands that a help names.
fn commands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    lines
        .take_while(|line| line.starts_with("  "))
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_help_of_every_command() {
    let world = World::new();
    let mut snapshots = Snapshots::of(&world, "help");
    let mut waiting: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(command) = waiting.pop() {
        let mut arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        arguments.push("--help");
        let name = [&["earshot"], &arguments[..command.len()]]
            .concat()
            .join("-");
        let ran = snapshots.run(&name, world.path(), &arguments);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        for below in commands(&ran.stdout) {
            waiting.push([&command[..], &[below]].concat());
        }
    }
    snapshots.finish();
}

#[test]
fn what_is_said_without_a_node() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut snapshots = Snapshots::of(&world, "without-a-node");
    let off = [("EARSHOT", "off")];
    for (name, arguments) in [
        ("nothing", &[][..]),
        ("version", &["--version"]),
        ("peers", &["peers"]),
        ("peers-json", &["peers", "--format", "json"]),
        ("withdraw", &["withdraw"]),
        ("serve-status", &["serve", "status"]),
        ("serve-stop", &["serve", "stop"]),
        ("capabilities-list", &["capabilities", "list"]),
        (
            "capabilities-describe",
            &["capabilities", "describe", "peers.announce"],
        ),
        ("mistyped-command", &["pers"]),
        ("mistyped-flag", &["peers", "--details"]),
        ("mistyped-value", &["peers", "--format", "jsn"]),
        ("mistyped-id", &["call", "peers.lst"]),
        ("no-command", &["capabilities"]),
        ("no-such-command", &["serve", "bogus"]),
        ("no-argument", &["announce"]),
        ("no-number", &["serve", "stop", "--wait", "soon"]),
        ("no-number-json", &["up", "--port", "0", "--format", "json"]),
        ("no-object", &["call", "peers.announce", "[]"]),
        ("no-json", &["call", "peers.announce", "{"]),
        ("no-root", &["up", "--root", "/nowhere"]),
    ] {
        snapshots.run(name, &repo, arguments);
    }
    for (name, arguments) in [
        ("off-up", &["up"][..]),
        ("off-up-json", &["up", "--format", "json"]),
        ("off-serve", &["serve"]),
        ("off-ensure", &["serve", "ensure"]),
        ("off-stop", &["serve", "stop"]),
        ("off-order", &["call", "server.stop"]),
        ("off-peers", &["peers"]),
        ("off-announce", &["announce", "fix it", "src"]),
        ("off-withdraw", &["withdraw"]),
        ("off-refused", &["announce", ""]),
    ] {
        snapshots.run_with(name, &repo, arguments, &off);
    }
    assert!(world.nodes().is_empty());
    snapshots.finish();
}

#[test]
fn what_is_said_with_a_node() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut snapshots = Snapshots::of(&world, "with-a-node");
    snapshots.run("up", &repo, &["up"]);
    snapshots.run("up-again", &repo, &["up", "--idle", "7"]);
    snapshots.run("ensure", &repo, &["serve", "ensure"]);
    snapshots.run("status", &repo, &["serve", "status"]);
    snapshots.run("nothing-withdrawn", &repo, &["withdraw"]);
    let mut agent = StdioClient::start(&world, &repo, "agent");
    let rewrite = json!({ "intent": "rewrite", "paths": ["src", "docs"] });
    agent.data("peers_announce", rewrite);
    snapshots.run("announce", &repo, &["announce", "fix main", "src/main.rs"]);
    snapshots.run("peers", &repo, &["peers"]);
    snapshots.run("withdraw", &repo, &["withdraw"]);
    snapshots.run("refused", &repo, &["announce", "x", "/etc"]);
    snapshots.run(
        "unknown-field",
        &repo,
        &["call", "peers.list", r#"{"x":1}"#],
    );
    snapshots.run(
        "call",
        &repo,
        &["call", "peers.announce", r#"{"intent":"x"}"#],
    );
    drop(agent);
    snapshots.run("stop", &repo, &["serve", "stop"]);
    world.up(&repo);
    let pid = world.serving(&repo).expect("the node runs");
    kill(pid);
    let gone = || (!is_running(pid)).then_some(());
    eventually("the node is gone", std::time::Duration::from_secs(30), gone);
    snapshots.run("killed-peers", &repo, &["peers"]);
    snapshots.run("killed-stop", &repo, &["serve", "stop"]);
    snapshots.finish();
}
