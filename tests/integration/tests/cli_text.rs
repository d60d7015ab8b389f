//! What the command line writes: nothing that acts on a terminal, colours and cuts on a terminal
//! alone, and completions and manual pages that their readers can read.

use std::{path::Path, process::Command};

use earshot_testkit::process::{Ran, StdioClient, World, kill, skip_without};
use serde_json::{Value, json};

/// Acts on a terminal, breaks a line, turns the direction of writing, shows nothing.
const HOSTILE: &str = "ev\u{1b}[31mil\n\u{202e}x\u{9b}2J\u{200b}\u{e0041}y";

fn is_harmless(text: &str) -> bool {
    !text.chars().any(|c| {
        c.is_control() && c != '\n'
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            || matches!(c, '\u{e0000}'..='\u{e0fff}')
    })
}

fn ran(mut command: Command) -> Ran {
    let output = command.output().expect("it runs");
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

#[test]
fn a_hostile_repository_is_written_out() {
    let world = World::new();
    let repo = world.repo(HOSTILE);
    // Git refuses controls in the name of a branch, but not what shows nothing or turns around.
    world.git(
        &repo,
        &["checkout", "-q", "-b", "a\u{202e}b\u{9b}c\u{200b}d"],
    );
    let up = world.run(&repo, &["up"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    assert!(is_harmless(&up.stdout), "{up:?}");
    let shown = r"/ev\u{1b}[31mil\n\u{202e}x\u{9b}2J\u{200b}\u{e0041}y";
    assert!(
        up.stdout.lines().any(|line| line.ends_with(shown)),
        "{up:?}"
    );
    let mut agent = StdioClient::start(&world, &repo, HOSTILE);
    agent.data(
        "peers_announce",
        json!({ "intent": HOSTILE, "paths": ["src"] }),
    );
    for arguments in [
        &["peers"][..],
        &["peers", "--detail"],
        &["announce", HOSTILE, "src/main.rs"],
        &["call", "peers.list"],
        &["serve", "status"],
    ] {
        let ran = world.run(&repo, arguments);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(
            is_harmless(&ran.stdout) && is_harmless(&ran.stderr),
            "{ran:?}"
        );
    }
}

#[test]
fn json_is_harmless_and_the_same_value() {
    let world = World::new();
    // What a lease names stands in the answer as it is, and in the folder of a hostile home.
    let home = world.path().join(HOSTILE);
    let repo = world.repo("repo");
    let mut command = world.earshot(&repo);
    command.args(["serve", "status", "--format", "json"]);
    let ran = ran({
        command.env("EARSHOT_HOME", &home);
        command
    });
    assert_eq!(
        (ran.code, ran.stdout.lines().count()),
        (Some(0), 1),
        "{ran:?}"
    );
    assert!(is_harmless(&ran.stdout), "{ran:?}");
    let path = ran.json()["lease_path"].as_str().unwrap().to_owned();
    assert!(path.starts_with(&*home.to_string_lossy()), "{path:?}");
}

#[test]
fn an_error_writes_out_what_was_typed_and_what_the_environment_says() {
    let world = World::new();
    let repo = world.repo("repo");
    let nowhere = format!("/nowhere/{HOSTILE}");
    for (variable, arguments) in [
        (None, &["peers", "--root", &nowhere][..]),
        (None, &[HOSTILE]),
        (None, &["peers", "--format", HOSTILE]),
        (None, &["peers", "--cursor", HOSTILE]),
        (None, &["call", HOSTILE]),
        (None, &["call", "peers.announce", HOSTILE]),
        (None, &["up", "--host", HOSTILE]),
        (None, &["man", "--into", "/dev/null/\u{1b}[31m"]),
        (Some(("EARSHOT_HTTP_HOST", HOSTILE)), &["up"]),
        (Some(("EARSHOT_HOME", HOSTILE)), &["peers"]),
        (Some(("EARSHOT_ROOT", &nowhere)), &["peers"]),
        (Some(("EARSHOT_SESSION_ID", HOSTILE)), &["announce", "x"]),
    ] {
        for format in ["text", "json"] {
            let mut command = world.earshot(&repo);
            command.args(["--format", format]).args(arguments);
            command.envs(variable);
            let ran = ran(command);
            assert!(!matches!(ran.code, Some(0) | None), "{arguments:?} {ran:?}");
            assert_eq!(ran.stdout, "", "{arguments:?}");
            assert!(is_harmless(&ran.stderr), "{arguments:?} {ran:?}");
            if format == "json" {
                let error: Value = serde_json::from_str(&ran.stderr).expect("one object");
                assert!(error["error"]["remedy"].is_string(), "{error}");
            } else {
                let hints = ran.stderr.lines().filter(|line| line.starts_with("hint: "));
                assert_eq!(
                    (hints.count(), ran.stderr.lines().count()),
                    (1, 2),
                    "{ran:?}"
                );
            }
        }
    }
}

#[test]
fn where_earshot_is_off_a_running_node_is_neither_read_nor_written() {
    let world = World::new();
    let repo = world.repo("repo");
    world.up(&repo);
    let mut agent = StdioClient::start(&world, &repo, "agent");
    agent.data("peers_announce", json!({ "intent": "x", "paths": ["src"] }));
    let note = "earshot is off, so this is seen by nobody. Unset EARSHOT to be within earshot of \
                the others.\n";
    for (arguments, said) in [
        (&["peers"][..], "Nobody is on the board yet.\n"),
        (
            &["announce", "y", "src"],
            "p1 announced: \"y\" on src\nNobody's claims meet yours.\n",
        ),
        (&["withdraw"], "Nothing of yours is announced.\n"),
    ] {
        let mut command = world.earshot(&repo);
        command.args(arguments).env("EARSHOT", "off");
        let ran = ran(command);
        let all = (ran.code, ran.stdout.as_str(), ran.stderr.as_str());
        assert_eq!(all, (Some(0), said, note));
    }
    let board = world.json(&repo, &["peers"]);
    assert_eq!(board["peers"].as_array().unwrap().len(), 1, "{board}");
    // It can still be ended: whoever turned earshot off wants that, too.
    let mut stop = world.earshot(&repo);
    stop.args(["serve", "stop"]).env("EARSHOT", "off");
    assert_eq!(ran(stop).stdout, "The node has ended.\n");
}

/// Runs a line on a terminal of 50 columns, and returns what it showed there.
fn on_a_terminal(world: &World, folder: &Path, line: &str) -> String {
    let line = format!("stty cols 50 rows 30; {line}");
    let mut command = world.command("script", folder);
    command.args(["-qec", &line, "/dev/null"]);
    command.env("TERM", "xterm").env("E", World::binary());
    for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS"] {
        command.env_remove(variable);
    }
    let ran = ran(command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.stdout.replace('\r', "")
}

#[test]
fn colours_and_cuts_are_for_a_terminal() {
    if skip_without("script", "colours_and_cuts_are_for_a_terminal") {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    let list = "\"$E\" capabilities list";
    let bold = "\u{1b}[1m";
    let shown = on_a_terminal(&world, &repo, list);
    assert!(shown.starts_with(bold), "{shown:?}");
    let plain = shown.replace(bold, "").replace("\u{1b}[0m", "");
    assert!(
        plain.lines().all(|line| line.chars().count() <= 50),
        "{plain}"
    );
    assert!(plain.contains('…'), "{plain}");
    for refusal in ["NO_COLOR=1", "CLICOLOR=0", "TERM=dumb"] {
        for command in [list, "\"$E\" --help"] {
            let shown = on_a_terminal(&world, &repo, &format!("{refusal} {command}"));
            assert!(!shown.contains('\u{1b}'), "{refusal} {command}: {shown:?}");
        }
    }
    let piped = on_a_terminal(&world, &repo, &format!("{list} | cat"));
    assert!(!piped.contains(['\u{1b}', '…']), "{piped:?}");
    assert!(
        piped.contains("Announce what you are about to do"),
        "{piped}"
    );
    let json = on_a_terminal(&world, &repo, &format!("{list} --format json"));
    assert!(!json.contains('\u{1b}'), "{json:?}");
}

/// Runs a program on a text in a file, and expects that it has nothing to say of it.
fn is_read_by(world: &World, program: &str, arguments: &[&str], name: &str, text: &str) {
    let file = world.path().join(name);
    fs_err::write(&file, text).expect("a file");
    let mut command = world.command(program, world.path());
    command.args(arguments).arg(&file);
    let ran = ran(command);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{name}");
}

#[test]
fn shells_can_read_their_completions() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = world.run(world.path(), &["completions", shell]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{shell}");
        let told = world.json(world.path(), &["completions", shell]);
        assert_eq!(told, json!({ "shell": shell, "script": ran.stdout }));
        let test = "shells_can_read_their_completions";
        if ["bash", "zsh", "fish"].contains(&shell) && !skip_without(shell, test) {
            is_read_by(
                &world,
                shell,
                &["-n"],
                &format!("earshot.{shell}"),
                &ran.stdout,
            );
        }
    }
}

#[test]
fn bash_completes_commands_flags_and_values() {
    if skip_without("bash", "bash_completes_commands_flags_and_values") {
        return;
    }
    let world = World::new();
    let script = world.run(world.path(), &["completions", "bash"]).stdout;
    let file = world.path().join("earshot.bash");
    fs_err::write(&file, script).unwrap();
    for (words, expected) in [
        (&["earshot", "wi"][..], "withdraw"),
        (&["earshot", "serve", "st"], "status stop"),
        (&["earshot", "peers", "--de"], "--detail"),
        (&["earshot", "serve", "stop", "--f"], "--format --force"),
        (&["earshot", "peers", "--format", "j"], "json"),
        (&["earshot", "completions", "f"], "fish"),
    ] {
        let (last, before) = (words.len() - 1, words[words.len() - 2]);
        let line = format!(
            "source '{}'; COMP_WORDS=({}); COMP_CWORD={last}; _earshot earshot '{}' '{before}'; \
             echo \"${{COMPREPLY[*]}}\"",
            file.display(),
            words.join(" "),
            words[last],
        );
        let mut command = world.command("bash", world.path());
        command.args(["--norc", "-c", &line]);
        let ran = ran(command);
        let mut said: Vec<&str> = ran.stdout.split_whitespace().collect();
        let mut expected: Vec<&str> = expected.split_whitespace().collect();
        said.sort_unstable();
        expected.sort_unstable();
        assert_eq!(said, expected, "{words:?} {}", ran.stderr);
    }
}

#[test]
fn manual_pages_are_written_and_can_be_read() {
    let world = World::new();
    let folder = world.path().join("man/man1");
    let into = folder.to_string_lossy().into_owned();
    let written = world.json(world.path(), &["man", "--into", &into]);
    let written: Vec<&str> = written["written"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!(written.contains(&&*folder.join("earshot-serve-stop.1").to_string_lossy()));
    let main = world.run(world.path(), &["man"]);
    let kept = fs_err::read_to_string(folder.join("earshot.1")).unwrap();
    assert_eq!((main.code, main.stdout), (Some(0), kept));
    let test = "manual_pages_are_written_and_can_be_read";
    for page in written {
        let text = fs_err::read_to_string(page).unwrap();
        if !skip_without("groff", test) {
            let arguments = ["-man", "-Tutf8", "-ww", "-z"];
            is_read_by(&world, "groff", &arguments, "page.1", &text);
        }
    }
    if !skip_without("man", test) {
        let mut command = world.command("man", world.path());
        command.args(["-l", &*folder.join("earshot-announce.1").to_string_lossy()]);
        command.env("MANPAGER", "cat").env("PAGER", "cat");
        let ran = ran(command);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
}

#[test]
fn a_killed_node_is_told_with_what_to_do() {
    let world = World::new();
    let repo = world.repo("repo");
    world.up(&repo);
    kill(world.serving(&repo).expect("the node runs"));
    let said = "error: no node runs here\nhint: Start one with `earshot up`.\n";
    let peers = world.run(&repo, &["peers"]);
    assert_eq!((peers.code, peers.stderr.as_str()), (Some(1), said));
}

#[test]
fn a_stop_that_does_not_wait_says_one_thing() {
    let world = World::new();
    let repo = world.repo("repo");
    world.up(&repo);
    // Whether the node has ended by then is the machine's affair; what is said must fit.
    let ran = world.run(&repo, &["serve", "stop", "--wait", "0", "--format", "json"]);
    match ran.code {
        Some(0) => assert_eq!(ran.json()["stopped"], true, "{ran:?}"),
        Some(10) => assert_eq!(ran.stdout, "", "{ran:?}"),
        _ => panic!("{ran:?}"),
    }
}
