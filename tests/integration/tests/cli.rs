//! The command line as a person meets it: what it prints, what it refuses, and how it ends.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
};

use earshot_testkit::process::{Ran, StdioClient, World};
use serde_json::{Value, json};

/// Runs the binary in a folder, and expects exactly this on standard output.
fn prints(world: &World, folder: &Path, arguments: &[&str], expected: &str) {
    let ran = world.run(folder, arguments);
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
        (Some(0), expected, ""),
        "{arguments:?}"
    );
}

/// Runs the binary in a folder, and expects it to fail with exactly this.
fn fails(world: &World, folder: &Path, arguments: &[&str], code: i32, error: &str, hint: &str) {
    let ran = world.run(folder, arguments);
    let expected = format!("error: {error}\nhint: {hint}\n");
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr),
        (Some(code), "", expected),
        "{arguments:?}"
    );
}

/// Runs a line in a shell of its own, with the binary as `$E`.
fn in_a_shell(world: &World, folder: &Path, line: &str) -> Ran {
    let output = world
        .command("sh", folder)
        .args(["-c", line])
        .env("E", World::binary())
        .output()
        .expect("a shell runs");
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn subfolder(repo: &Path) -> PathBuf {
    let folder = repo.join("src/deep");
    fs_err::create_dir_all(&folder).expect("the folder is made");
    folder
}

#[test]
fn announced_paths_are_those_of_the_working_directory() {
    let world = World::new();
    let repo = world.repo("repo");
    let deep = subfolder(&repo);
    let absolute = repo.join("docs").to_string_lossy().into_owned();
    let root = repo.to_string_lossy().into_owned();
    for (folder, arguments, paths) in [
        (
            &deep,
            &["x", ".", "../main.rs", "new/**"][..],
            "src/deep, src/main.rs, src/deep/new",
        ),
        (&deep, &["x", &absolute, "./a b"], "docs, src/deep/a b"),
        (&repo, &["x", "src", "./docs/"], "src, docs"),
        (&repo, &["x", "."], "."),
    ] {
        let expected = format!("p1 announced: \"x\" on {paths}\nNobody's claims meet yours.\n");
        prints(
            &world,
            folder,
            &[&["announce"], arguments].concat(),
            &expected,
        );
    }
    // Where the shell stands elsewhere, a path is the checkout's.
    prints(
        &world,
        world.path(),
        &["announce", "x", "src", "--root", &root],
        "p1 announced: \"x\" on src\nNobody's claims meet yours.\n",
    );
    fails(
        &world,
        &deep,
        &["announce", "x", "../../../other"],
        2,
        "`paths`: \"src/deep/../../../other\" cannot be claimed: the path is outside the checkout: \
         name it relative to the checkout's root",
        "Name files and folders relative to the checkout's root.",
    );
    // What is called by its id is no shell's.
    let input = json!({ "intent": "x", "paths": ["main.rs"] }).to_string();
    let said = world.json(&deep, &["call", "peers.announce", &input]);
    assert_eq!(said["announcement"]["paths"], json!(["main.rs"]));
}

#[test]
fn an_announcement_tells_whom_it_meets_and_the_board_the_same() {
    let world = World::new();
    let repo = world.repo("repo");
    let mut agent = StdioClient::start(&world, &repo, "agent");
    agent.data(
        "peers_announce",
        json!({ "intent": "rewrite", "paths": ["src"] }),
    );
    prints(
        &world,
        &repo,
        &["announce", "fix main", "src/main.rs"],
        "p2 announced: \"fix main\" on src/main.rs\n\
         p2 and p1 collide: src/main.rs and src (p1: \"rewrite\")\n",
    );
    // How long ago is a matter of the machine's speed, and left out.
    let board = world.run(&repo, &["peers"]).stdout;
    let lines: Vec<&str> = board.lines().collect();
    for (line, begin, end) in [
        (
            lines[0],
            "PEER      CLIENT   BRANCH  SEEN",
            "INTENT    PATHS",
        ),
        (lines[1], "p1        agent    main    ", "rewrite   src"),
        (
            lines[2],
            "p2 (you)  earshot  main    ",
            "fix main  src/main.rs",
        ),
    ] {
        assert!(line.starts_with(begin) && line.ends_with(end), "{board}");
    }
    assert_eq!(lines[3..], ["p1 and p2 collide: src and src/main.rs"]);
    let detailed = world.run(&repo, &["peers", "--detail"]).stdout;
    let columns: Vec<&str> = detailed
        .lines()
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(
        columns,
        [
            "PEER", "CLIENT", "BRANCH", "SEEN", "MACHINE", "PID", "SESSION", "INTENT", "PATHS"
        ]
    );
    let own = std::process::id().to_string();
    for row in detailed.lines().skip(1).take(2) {
        assert!(row.split_whitespace().any(|cell| cell == own), "{detailed}");
    }
}

#[test]
fn withdrawing_starts_no_node_and_takes_back_ones_own() {
    let world = World::new();
    let repo = world.repo("repo");
    let nowhere = "No node runs here: there was nothing to withdraw from.\n";
    prints(&world, &repo, &["withdraw"], nowhere);
    assert_eq!(
        world.json(&repo, &["withdraw"]),
        json!({ "withdrawn": false })
    );
    assert!(world.nodes().is_empty());
    assert_eq!(world.run(&repo, &["announce", "x"]).code, Some(0));
    let other = in_a_shell(&world, &repo, "\"$E\" withdraw; true");
    assert_eq!(
        other.stdout,
        "Nothing of yours is announced.\n\
         hint: What another shell announced is that shell's; shells with the same \
         EARSHOT_SESSION_ID are one.\n"
    );
    prints(&world, &repo, &["withdraw"], "Withdrawn.\n");
    prints(
        &world,
        &repo,
        &["withdraw"],
        "Nothing of yours is announced.\n",
    );
}

#[test]
fn shells_with_one_session_id_speak_as_one() {
    let world = World::new();
    let repo = world.repo("repo");
    // The first shell is still there when the second one withdraws.
    let line =
        "export EARSHOT_SESSION_ID=s; \"$E\" announce x src >&2; sh -c '\"$E\" withdraw; true'";
    assert_eq!(in_a_shell(&world, &repo, line).stdout, "Withdrawn.\n");
}

#[test]
fn a_node_that_ends_at_once_leaves_its_reason_and_its_remedy() {
    let world = World::new();
    let repo = world.repo("repo");
    // An address for documentation: no machine has it.
    let up = ["up", "--host", "192.0.2.7", "--port", "17399"];
    fails(
        &world,
        &repo,
        &up,
        1,
        "the node ended at once: 192.0.2.7:17399 cannot be bound: Cannot assign requested address \
         (os error 99)",
        "Name an address of this machine and a free port, or none.",
    );
}

#[test]
fn a_running_node_stays_as_it_is_and_says_so() {
    let world = World::new();
    let repo = world.repo("repo");
    let url = world.up(&repo);
    for command in [&["up"][..], &["serve", "ensure"]] {
        let asked = ["--host", "127.0.0.2", "--port", "1", "--idle", "7"];
        let ran = world.run(&repo, &[command, &asked].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(
            ran.stderr,
            format!(
                "note: the node runs already at {url}, without --host 127.0.0.2 and --port 1 and \
                 --idle 7\nhint: Run `earshot serve stop` first, then this again.\n"
            )
        );
        assert!(ran.stdout.contains(&url), "{ran:?}");
    }
    let same = world.run(
        &repo,
        &["serve", "ensure", "--host", "127.0.0.1", "--idle", "900"],
    );
    assert_eq!((same.code, same.stderr.as_str()), (Some(0), ""));
    let word = world.run(&repo, &["up", "--host", "nowhere"]);
    assert_eq!(word.code, Some(2), "{word:?}");
    assert!(
        word.stderr.contains("'nowhere' for '--host <ADDRESS>'"),
        "{word:?}"
    );
}

#[test]
fn a_root_that_is_not_there_is_a_slip_for_every_command() {
    let world = World::new();
    let repo = world.repo("repo");
    for command in ["peers", "up", "mcp", "withdraw"] {
        let arguments = [command, "--root", "/nowhere/at/all"];
        let error = "--root: /nowhere/at/all does not exist";
        fails(
            &world,
            &repo,
            &arguments,
            2,
            error,
            "Name a folder or file that exists.",
        );
    }
}

#[test]
fn a_client_served_alone_is_told_why() {
    let world = World::new();
    let repo = world.repo("repo");
    let client = StdioClient::start_with(&world, &repo, "agent", &[("EARSHOT", "off")]);
    let told = client.welcome["result"]["instructions"].as_str().unwrap();
    let why = "EARSHOT is off. Unset it to be within earshot of the others.";
    assert!(
        told.contains("served alone") && told.contains(why),
        "{told}"
    );
}

#[test]
fn a_wrong_id_is_answered_with_the_right_one() {
    let world = World::new();
    let repo = world.repo("repo");
    let hint = "Did you mean `peers.list`? See `earshot capabilities list` for all.";
    for command in [&["call"][..], &["capabilities", "describe"]] {
        for (id, hint) in [
            ("peers_list", hint),
            ("peers.lst", hint),
            ("make.coffee", "See `earshot capabilities list` for all."),
        ] {
            let error = format!("there is no capability {id}");
            fails(&world, &repo, &[command, &[id]].concat(), 2, &error, hint);
        }
    }
    world.json(&repo, &["up"]);
    fails(
        &world,
        &repo,
        &["call", "peers.list", r#"{"x":1}"#],
        2,
        "`x`: unknown field `x`, expected one of `checkouts`, `fresh`, `detail`, `cursor`",
        "Correct that argument; `earshot capabilities describe peers.list` shows the whole schema.",
    );
}

#[test]
fn usage_errors_are_objects_too() {
    let world = World::new();
    let repo = world.repo("repo");
    let into = "the following required arguments were not provided: --into <FOLDER>";
    for (arguments, message) in [
        (
            &["--format", "json", "bogus"][..],
            "unrecognized subcommand 'bogus'",
        ),
        (&["--format=json"], "a command is missing"),
        (&["capabilities", "generate", "--format", "json"], into),
        (
            &["peers", "--root", "/nowhere", "--format", "json"],
            "--root: /nowhere does not exist",
        ),
    ] {
        let ran = world.run(&repo, arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        let error: Value = serde_json::from_str(ran.stderr.trim()).unwrap();
        let error = error["error"].as_object().unwrap();
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!("invalid_input"), &json!(message))
        );
        assert!(
            error["remedy"].as_str().unwrap().ends_with('.'),
            "{error:?}"
        );
        // Nothing was asked of a node.
        assert!(!error.contains_key("request_id"), "{error:?}");
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure_and_a_reader_that_left_is_none() {
    let world = World::new();
    let repo = world.repo("repo");
    for arguments in [&["capabilities", "list"][..], &["--help"], &["--version"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = world
            .earshot(&repo)
            .args(arguments)
            .stdout(Stdio::from(full))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "error: the answer could not be written: No space left on device (os error 28)\n\
             hint: Make room where standard output leads.\n"
        );
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = world
            .earshot(&repo)
            .args(arguments)
            .stdout(Stdio::from(writer))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

#[test]
fn a_wrong_configuration_is_named_by_file_line_and_key() {
    let world = World::new();
    let repo = world.repo("repo");
    let file = world.home().join("config/config.toml");
    fs_err::create_dir_all(file.parent().unwrap()).unwrap();
    for (text, why) in [
        (
            "[http]\nhosst = \"::1\"\n",
            "line 2: there is no key `http.hosst`; did you mean `http.host`?",
        ),
        (
            "[idle]\nseconds = \"long\"\n",
            "line 2: `idle.seconds` is not a whole number of seconds, 0 or more",
        ),
    ] {
        fs_err::write(&file, text).unwrap();
        let error = format!("{}, {why}", file.display());
        let hint = "Correct that line; an absent key has its default.";
        fails(&world, &repo, &["peers"], 2, &error, hint);
    }
}

#[test]
fn a_home_that_is_no_folder_is_named() {
    let world = World::new();
    let repo = world.repo("repo");
    let output = world
        .earshot(&repo)
        .arg("peers")
        .env("EARSHOT_HOME", "/dev/null")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error: EARSHOT_HOME is not a folder: /dev/null\n\
         hint: Set EARSHOT_HOME to the path of a folder, or unset it.\n"
    );
}

#[test]
fn the_printed_commands_can_be_pasted() {
    let world = World::new();
    let repo = world.repo("repo");
    let folder = world.path().join("my tools");
    fs_err::create_dir(&folder).unwrap();
    let copy = folder.join("earshot");
    // Copied by another process: what this one wrote, a child of another test could hold open.
    let mut copying = world.command("cp", world.path());
    assert!(
        copying
            .args([&World::binary(), &copy])
            .status()
            .unwrap()
            .success()
    );
    let quoted = format!("claude mcp add earshot -- '{}' mcp\n", copy.display());
    for (path, expected) in [
        (Path::new("/usr/bin:/bin"), quoted.as_str()),
        (&folder, "claude mcp add earshot -- earshot mcp\n"),
    ] {
        let output = world
            .command(&copy, &repo)
            .arg("up")
            .env("PATH", path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(expected), "{text}{output:?}");
    }
}

#[test]
fn what_is_no_commands_business_is_not_in_the_help() {
    let world = World::new();
    let repo = world.repo("repo");
    let help = |arguments: &[&str]| world.run(&repo, &[arguments, &["--help"]].concat()).stdout;
    assert!(!help(&["capabilities"]).contains("generate"));
    let announce = help(&["announce"]);
    assert!(announce.contains("EARSHOT_SESSION_ID"), "{announce}");
    assert!(!announce.contains("ticket"), "{announce}");
    let peers = help(&["peers"]);
    assert!(peers.contains("--cursor <CURSOR>"), "{peers}");
    assert!(peers.contains("[possible values: this, "), "{peers}");
}
