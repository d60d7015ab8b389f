//! `earshot init` in real repositories: what it writes, leaves alone, and takes out again.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use earshot_testkit::process::{Ran, World, skip_without};
use serde_json::{Value, json};

mod left_alone;

const FILES: [&str; 4] = [
    ".mcp.json",
    ".claude/settings.json",
    ".codex/config.toml",
    ".gemini/settings.json",
];

/// Everything in a work tree but git's own: bytes and mode of files, and folders.
fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, Option<Vec<u8>>)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs_err::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.ends_with(".git") {
                continue;
            }
            let metadata = fs_err::symlink_metadata(&path).expect("it is there");
            if metadata.is_dir() {
                waiting.push(path.clone());
            }
            let bytes = metadata
                .is_file()
                .then(|| fs_err::read(&path).expect("bytes"));
            found.insert(path, (metadata.permissions().mode(), bytes));
        }
    }
    found
}

fn write(root: &Path, path: &str, text: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs_err::create_dir_all(path.parent().expect("a folder")).expect("it is made");
    fs_err::write(path, text).expect("it is written");
}

fn read(root: &Path, path: &str) -> String {
    fs_err::read_to_string(root.join(path)).expect("it is there")
}

/// Runs the binary, which must succeed.
fn done(world: &World, folder: &Path, arguments: &[&str]) -> Ran {
    let ran = world.run(folder, arguments);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    ran
}

fn program() -> String {
    World::binary().to_string_lossy().into_owned()
}

#[test]
fn it_shows_first_writes_when_told_and_takes_all_of_it_back() {
    let world = World::new();
    let repo = world.repo("repo");
    let before = tree(&repo);
    let shown = world.run(&repo, &["init"]);
    assert_eq!(shown.code, Some(12), "{shown:?}");
    assert_eq!(
        shown.stderr,
        "error: nothing was written: nobody is here to agree to it\n\
         hint: Add --yes to write without being asked.\n"
    );
    for file in FILES {
        assert!(shown.stdout.contains(&format!("{file} (")), "{shown:?}");
    }
    assert_eq!(tree(&repo), before);
    let written = done(&world, &repo, &["init", "--yes"]);
    assert!(written.stdout.starts_with(&shown.stdout), "{written:?}");
    let mcp: Value = serde_json::from_str(&read(&repo, ".mcp.json")).expect("JSON");
    assert_eq!(
        mcp,
        json!({"mcpServers": {"earshot": {
            "type": "stdio", "command": program(), "args": ["mcp"],
        }}})
    );
    // A second time there is nothing to do, and nobody need agree to it.
    let after = tree(&repo);
    let again = done(&world, &repo, &["init"]);
    assert!(
        again
            .stdout
            .ends_with("All is in place already: nothing was written.\n"),
        "{again:?}"
    );
    assert_eq!(tree(&repo), after);
    assert_eq!(world.run(&repo, &["init", "--undo"]).code, Some(12));
    assert_eq!(tree(&repo), after);
    done(&world, &repo, &["init", "--undo", "--yes"]);
    assert_eq!(tree(&repo), before);
    let nothing = done(&world, &repo, &["init", "--undo"]);
    assert!(
        nothing
            .stdout
            .contains("There is nothing of init's here.\n"),
        "{nothing:?}"
    );
    assert!(world.nodes().is_empty(), "init starts no node");
}

#[test]
fn what_it_says_can_be_read() {
    let world = World::new();
    let repo = world.repo("repo");
    let path = program();
    write(
        &repo,
        ".mcp.json",
        "{\n  \"mcpServers\": {\n    \"other\": { \"command\": \"x\" }\n  }\n}\n",
    );
    world.git(&repo, &["add", "."]);
    let ran = done(&world, &repo, &["init", "--yes", "--client", "claude-code"]);
    let expected = format!(
        "\
.mcp.json (Claude Code): changed
    {{
      \"mcpServers\": {{
  -     \"other\": {{ \"command\": \"x\" }}
  +     \"other\": {{ \"command\": \"x\" }},
  +     \"earshot\": {{
  +       \"type\": \"stdio\",
  +       \"command\": \"{path}\",
  +       \"args\": [\"mcp\"]
  +     }}
      }}
    }}
.claude/settings.json (Claude Code): new
  + {{
  +   \"hooks\": {{
  +     \"SessionStart\": [
  +       {{
  +         \"hooks\": [
  +           {{
  +             \"type\": \"command\",
  +             \"command\": \"{path} context --hook\",
  +             \"timeout\": 5
  +           }}
  +         ]
  +       }}
  +     ]
  +   }}
  + }}

The clients will start {path}: `earshot` is not on your PATH. Other machines do not have that path: put \
the executable on the PATH before you share these files.

Wrote .mcp.json, .claude/settings.json.
Tracked by git, so this is a change to commit: .mcp.json.
Not in git: commit them for every clone, or name them in info/exclude of the repository's git folder: .claude/settings.json.
Claude Code asks at its next start whether to use the server.
"
    );
    assert_eq!(ran.stdout, expected);
}

#[test]
fn the_files_of_others_keep_every_byte_and_their_mode() {
    let world = World::new();
    let repo = world.repo("repo");
    write(
        &repo,
        ".mcp.json",
        "{\"mcpServers\":{\"b\":{\"command\":\"b\"}}}",
    );
    write(
        &repo,
        ".claude/settings.json",
        "\u{feff}// mine\r\n{\r\n\t\"permissions\": { \"allow\": [] },\r\n\t\"hooks\": {\r\n\t\t\
         \"SessionStart\": [\r\n\t\t\t{ \"hooks\": [] }, // one\r\n\t\t],\r\n\t},\r\n}",
    );
    write(
        &repo,
        ".codex/config.toml",
        "model = \"m\"   # c\r\n\r\n[mcp_servers.b]\r\ncommand = 'b'\r\n\r\n\r\n# the end",
    );
    write(&repo, ".gemini/settings.json", "{}\n\n");
    let secret = std::fs::Permissions::from_mode(0o600);
    fs_err::set_permissions(repo.join(".mcp.json"), secret).expect("a mode");
    let before = tree(&repo);
    done(&world, &repo, &["init", "--yes"]);
    let after = tree(&repo);
    assert_eq!(after.len(), before.len());
    for file in FILES {
        let (was, is) = (&before[&repo.join(file)], &after[&repo.join(file)]);
        assert_eq!(was.0, is.0, "the mode of {file}");
        assert_ne!(was.1, is.1, "{file}");
    }
    assert!(read(&repo, ".claude/settings.json").starts_with("\u{feff}// mine\r\n{"));
    done(&world, &repo, &["init", "--undo", "--yes"]);
    assert_eq!(tree(&repo), before);
}

#[test]
fn it_works_in_the_checkout_around_and_in_no_other() {
    let world = World::new();
    let repo = world.repo("repo");
    world.git(&repo, &["worktree", "add", "-q", "../linked"]);
    let linked = world.path().join("linked");
    let before = tree(&repo);
    let ran = done(&world, &linked.join("src"), &["init", "--yes"]);
    assert!(
        ran.stdout.contains("This is one worktree of several"),
        "{ran:?}"
    );
    for file in FILES {
        assert!(linked.join(file).is_file(), "{file}");
    }
    assert_eq!(tree(&repo), before);
    let plain = world.path().join("plain");
    fs_err::create_dir(&plain).expect("a folder");
    let ran = world.run(&plain, &["init", "--yes"]);
    assert_eq!(ran.code, Some(12), "{ran:?}");
    let plain = plain.display();
    assert_eq!(
        ran.stderr,
        format!(
            "error: {plain} is in no git checkout\n\
             hint: Run this in a checkout, or name one with --root.\n"
        )
    );
    // What git makes of the files is told where they are.
    fs_err::write(repo.join(".gitignore"), ".gemini/\n").expect("it is written");
    let shown = world.run(&repo, &["init", "--format", "json", "--client", "gemini"]);
    assert_eq!(
        shown.json()["files"][0]["git"],
        json!("ignored"),
        "{shown:?}"
    );
}

#[test]
fn undoing_after_edits_takes_init_s_own_and_nothing_else() {
    let world = World::new();
    let repo = world.repo("repo");
    write(&repo, ".codex/config.toml", "model = \"m\"\n");
    done(&world, &repo, &["init", "--yes"]);
    let edit = |path: &str, from: &str, to: &str| {
        let text = read(&repo, path);
        assert!(text.contains(from), "{text}");
        fs_err::write(repo.join(path), text.replacen(from, to, 1)).expect("written");
    };
    // Somebody adds a server of their own beside it, a table behind it, and an argument to it.
    edit(
        ".mcp.json",
        "\"mcpServers\": {",
        "\"mcpServers\": {\n    \"b\": { \"command\": \"b\" },",
    );
    edit(
        ".codex/config.toml",
        "model = \"m\"",
        "model = \"n\" # changed",
    );
    write(
        &repo,
        ".codex/config.toml",
        read(&repo, ".codex/config.toml") + "\n[mcp_servers.b]\ncommand = 'b'\n",
    );
    edit(
        ".gemini/settings.json",
        "\"args\": [\"mcp\"]",
        "\"args\": [\"mcp\", \"--standalone\"]",
    );
    let ran = done(&world, &repo, &["init", "--undo", "--yes"]);
    assert_eq!(
        read(&repo, ".mcp.json"),
        "{\n  \"mcpServers\": {\n    \"b\": { \"command\": \"b\" }\n  }\n}\n"
    );
    assert!(!repo.join(".claude").exists());
    assert_eq!(
        read(&repo, ".codex/config.toml"),
        "model = \"n\" # changed\n\n[mcp_servers.b]\ncommand = 'b'\n"
    );
    let gemini: Value = serde_json::from_str(&read(&repo, ".gemini/settings.json")).expect("JSON");
    assert_eq!(
        gemini["mcpServers"]["earshot"]["args"],
        json!(["mcp", "--standalone"])
    );
    assert_eq!(gemini.get("hooks"), None);
    assert_eq!(
        ran.stdout
            .matches("it was edited since; only what init put in goes")
            .count(),
        3
    );
    assert!(
        ran.stdout
            .contains("`mcpServers.earshot` in line 3 was edited itself, and stays"),
        "{ran:?}"
    );
    // What stays is its editor's from now on.
    let again = done(&world, &repo, &["init", "--undo"]);
    assert!(
        again.stdout.contains("`mcpServers.earshot`") || again.stdout.contains("nothing"),
        "{again:?}"
    );
}

#[test]
fn undoing_works_without_the_record_and_says_so() {
    let world = World::new();
    let repo = world.repo("repo");
    write(&repo, ".codex/config.toml", "model = \"m\"\n");
    write(&repo, ".mcp.json", "{}\n");
    world.git(&repo, &["add", "."]);
    let before = tree(&repo);
    done(&world, &repo, &["init", "--yes"]);
    fs_err::remove_dir_all(world.home().join("data")).expect("the record goes");
    let ran = done(&world, &repo, &["init", "--undo", "--yes"]);
    assert!(
        ran.stdout
            .contains("There is no record of what init wrote here"),
        "{ran:?}"
    );
    assert_eq!(tree(&repo), before);
}

#[test]
fn what_somebody_removed_by_hand_is_forgotten() {
    let world = World::new();
    let repo = world.repo("repo");
    done(&world, &repo, &["init", "--yes", "--client", "gemini"]);
    fs_err::remove_dir_all(repo.join(".gemini")).expect("it goes");
    let gone = "it is gone already";
    let first = done(&world, &repo, &["init", "--undo"]);
    assert!(first.stdout.contains(gone), "{first:?}");
    let second = done(&world, &repo, &["init", "--undo"]);
    assert!(!second.stdout.contains(gone), "{second:?}");
}

#[test]
fn a_record_that_cannot_be_read_is_none() {
    let world = World::new();
    let repo = world.repo("repo");
    let before = tree(&repo);
    done(&world, &repo, &["init", "--yes"]);
    let records: Vec<PathBuf> = tree(&world.home().join("data"))
        .into_keys()
        .filter(|path| path.extension().is_some_and(|it| it == "json"))
        .filter(|path| path.parent().is_some_and(|it| it.ends_with("clients")))
        .collect();
    assert_eq!(records.len(), 1, "{records:?}");
    fs_err::write(&records[0], "{\"schema\": 9").expect("written");
    done(&world, &repo, &["init", "--undo", "--yes"]);
    assert_eq!(tree(&repo), before);
}

#[test]
fn another_path_of_the_executable_changes_its_own_entries_alone() {
    let world = World::new();
    let repo = world.repo("repo");
    write(
        &repo,
        ".mcp.json",
        "{\"mcpServers\": {\"b\": {\"command\": \"b\"}}}\n",
    );
    let before = tree(&repo);
    done(&world, &repo, &["init", "--yes"]);
    let first = tree(&repo);
    let folder = world.path().join("another one");
    fs_err::create_dir(&folder).expect("a folder");
    let moved = folder.join("earshot");
    fs_err::copy(World::binary(), &moved).expect("a copy");
    let run = |arguments: &[&str], path: Option<&Path>| {
        let mut command = world.command(&moved, &repo);
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let output = command
            .arg("init")
            .args(arguments)
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    run(&["--yes"], None);
    for (path, (_, bytes)) in tree(&repo) {
        let (Some(now), Some(then)) = (bytes, &first[&path].1) else {
            continue;
        };
        let then = String::from_utf8_lossy(then);
        let moved = moved.to_string_lossy();
        let expected = then
            .replace(
                &format!("{} context", program()),
                &format!("'{moved}' context"),
            )
            .replace(&program(), &moved);
        assert_eq!(
            String::from_utf8_lossy(&now),
            expected,
            "{}",
            path.display()
        );
    }
    // On the search path, its name is enough.
    let git = std::env::var_os("PATH").expect("a search path");
    let folders = std::iter::once(folder).chain(std::env::split_paths(&git));
    let folders = std::env::join_paths(folders).expect("a search path");
    let said = run(&["--yes"], Some(Path::new(&folders)));
    assert!(said.contains("The clients will start `earshot`"), "{said}");
    assert!(read(&repo, ".codex/config.toml").contains("\ncommand = \"earshot context --hook\"\n"));
    run(&["--undo", "--yes"], None);
    assert_eq!(tree(&repo), before);
}

#[test]
fn inits_at_once_leave_what_one_would() {
    let world = World::new();
    let repo = world.repo("repo");
    write(&repo, ".codex/config.toml", "model = \"m\"\n");
    let before = tree(&repo);
    let spawn = || {
        let mut command = world.earshot(&repo);
        command
            .args(["init", "--yes"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command.spawn().expect("it starts")
    };
    let running: Vec<_> = (0..6).map(|_| spawn()).collect();
    for child in running {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
    }
    assert_eq!(
        read(&repo, ".codex/config.toml")
            .matches("[mcp_servers.earshot]")
            .count(),
        1
    );
    done(&world, &repo, &["init", "--undo", "--yes"]);
    assert_eq!(tree(&repo), before);
}

#[test]
fn an_init_that_is_killed_leaves_whole_files() {
    let world = World::new();
    let repo = world.repo("repo");
    let others = format!("// {}\n{{}}\n", "x".repeat(100_000));
    write(&repo, ".mcp.json", &others);
    let before = tree(&repo);
    let whole = done(&world, &repo, &["init", "--yes"]);
    assert!(whole.stdout.contains("Wrote"), "{whole:?}");
    let after = tree(&repo);
    done(&world, &repo, &["init", "--undo", "--yes"]);
    for round in 0..40_u32 {
        let mut command = world.earshot(&repo);
        command
            .args(["init", "--yes"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        // Killed at some point of its work, another one in each round.
        let begun = |file: &str| repo.join(file).exists();
        let wanted = FILES[1 + round as usize % 3];
        while !begun(wanted) && child.try_wait().expect("it is ours").is_none() {
            std::hint::spin_loop();
        }
        child.kill().ok(); // it may have come to its end
        child.wait().expect("it ends");
        for (path, (_, bytes)) in tree(&repo) {
            if bytes.is_none() || path.extension().is_some_and(|it| it == "tmp") {
                continue;
            }
            let was = before.get(&path).map(|it| &it.1);
            let is = after.get(&path).map(|it| &it.1);
            assert!(
                [was, is].contains(&Some(&bytes)),
                "{} is not whole",
                path.display()
            );
        }
        done(&world, &repo, &["init", "--yes"]);
        assert_eq!(tree(&repo), after, "nothing is left behind");
        done(&world, &repo, &["init", "--undo", "--yes"]);
        assert_eq!(tree(&repo), before);
    }
}

#[test]
fn what_a_killed_init_left_behind_goes_with_the_next() {
    let world = World::new();
    let repo = world.repo("repo");
    write(&repo, ".earshot-init-0123456789abcdef.tmp", "half");
    done(&world, &repo, &["init", "--yes", "--client", "claude-code"]);
    assert!(!repo.join(".earshot-init-0123456789abcdef.tmp").exists());
}

#[test]
fn an_entry_of_ones_own_that_starts_earshot_stays_as_it_is() {
    let world = World::new();
    let repo = world.repo("repo");
    let own = "{\n  \"mcpServers\": {\n    \"earshot\": { \"command\": \"earshot\", \"args\": [\"mcp\"], \
               \"env\": { \"EARSHOT_LOG\": \"debug\" } }\n  }\n}\n";
    write(&repo, ".mcp.json", own);
    let ran = done(&world, &repo, &["init", "--yes", "--client", "claude-code"]);
    assert!(
        ran.stdout.contains(
            "`mcpServers.earshot` in line 3 starts earshot in its own way, and is left as it is"
        ),
        "{ran:?}"
    );
    done(&world, &repo, &["init", "--undo", "--yes"]);
    assert_eq!(read(&repo, ".mcp.json"), own);
    assert!(!repo.join(".claude").exists());
}

#[test]
fn on_a_terminal_it_asks() {
    if skip_without("script", "on_a_terminal_it_asks") {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    for (answer, code) in [("n\n", 12), ("\n", 12), ("y\n", 0)] {
        let line = format!("'{}' init --client gemini", program());
        let mut command = world.command("script", &repo);
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(answer.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        drop(stdin);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("Write this? [y/N]"), "{said}");
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert_eq!(repo.join(".gemini").exists(), code == 0, "{said}");
    }
}

#[test]
fn a_path_that_would_act_on_a_terminal_is_written_out() {
    let world = World::new();
    let repo = world.repo("repo");
    write(&repo, ".mcp.json", "{\n  // \u{1b}[2J\u{202e}\n}\n");
    let ran = world.run(&repo, &["init", "--client", "claude-code"]);
    assert!(!ran.stdout.contains(['\u{1b}', '\u{202e}']), "{ran:?}");
}

#[test]
fn an_answer_to_what_is_no_longer_so_writes_nothing() {
    if skip_without("script", "an_answer_to_what_is_no_longer_so_writes_nothing") {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    let line = format!("'{}' init --client gemini", program());
    let mut command = world.command("script", &repo);
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut said = Vec::new();
    while !said.ends_with(b"[y/N] ") {
        let mut byte = [0];
        stdout.read_exact(&mut byte).expect("it asks");
        said.extend(byte);
    }
    write(&repo, ".gemini/settings.json", "{}\n");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(b"y\n").expect("it reads");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("it ends");
    assert_eq!(child.wait().expect("it ends").code(), Some(12), "{rest}");
    assert!(
        rest.contains("nothing was written: a file was changed meanwhile"),
        "{rest}"
    );
    assert_eq!(read(&repo, ".gemini/settings.json"), "{}\n");
}
