//! What init leaves alone, and what it says of it.

use std::{
    ffi::OsStr,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{PermissionsExt as _, symlink},
    },
    path::Path,
};

use earshot_testkit::process::{Mount, World, skip_unless_root};
use serde_json::{Value, json};

use super::{done, read, tree, write};

/// Returns what became of each file, by the words of the JSON answer.
fn actions(answer: &Value) -> Vec<(&str, &str)> {
    let files = answer["files"].as_array().expect("files");
    files
        .iter()
        .map(|file| {
            let word = |name: &str| file[name].as_str().unwrap_or_default();
            (word("path"), word("action"))
        })
        .collect()
}

/// Puts something in the place of a client's file that init must not touch.
fn stand_in_the_way(world: &World, repo: &Path, name: &str, elsewhere: &Path) {
    let file = repo.join(".gemini/settings.json");
    fs_err::create_dir_all(elsewhere).expect("a folder");
    if !["outside", "file"].contains(&name) {
        fs_err::create_dir(repo.join(".gemini")).expect("a folder");
    }
    match name {
        "broken" => fs_err::write(&file, "{\n  \"a\": 1,\n  b\n}\n").expect("written"),
        "foreign" => {
            let text = "{\"mcpServers\":\n{\"earshot\": {\"url\": \"http://x\"}}}";
            fs_err::write(&file, text).expect("written");
        }
        "outside" => symlink(elsewhere, repo.join(".gemini")).expect("linked"),
        "dangling" => symlink("nowhere", &file).expect("linked"),
        "git" => symlink("../.git/config", &file).expect("linked"),
        "folder" => fs_err::create_dir(&file).expect("a folder"),
        "file" => fs_err::write(repo.join(".gemini"), "").expect("written"),
        "pipe" => drop(
            world
                .command("mkfifo", repo)
                .arg(&file)
                .status()
                .expect("it runs"),
        ),
        "readonly" => {
            fs_err::write(&file, "{}").expect("written");
            let mode = std::fs::Permissions::from_mode(0o444);
            fs_err::set_permissions(&file, mode).expect("a mode");
        }
        "latin1" => fs_err::write(&file, b"{\n\"a\": \"\xe4\"}").expect("written"),
        _ => fs_err::write(&file, " ".repeat(1_048_577)).expect("written"),
    }
}

#[test]
fn a_file_that_must_be_left_alone_does_not_keep_the_others() {
    let world = World::new();
    for (name, line, message) in [
        ("broken", Some(3), "it is no JSON: "),
        (
            "foreign",
            Some(2),
            "`mcpServers.earshot` is there already and does not start earshot",
        ),
        ("outside", None, ".gemini is a link to "),
        (
            "dangling",
            None,
            ".gemini/settings.json is a link that leads nowhere",
        ),
        ("git", None, ".gemini/settings.json is a link to "),
        ("folder", None, "it is not a regular file"),
        ("file", None, ".gemini is not a folder"),
        ("pipe", None, "it is not a regular file"),
        ("readonly", None, "it is read-only"),
        ("latin1", Some(2), "it is not UTF-8"),
        ("huge", None, "it is longer than 1048576 bytes"),
    ] {
        let repo = world.repo(name);
        let elsewhere = world.path().join("elsewhere");
        stand_in_the_way(&world, &repo, name, &elsewhere);
        let config = || read(&repo, ".git/config");
        let untouched = || {
            let all = tree(&repo).into_iter();
            let there: Vec<_> = all
                .filter(|(path, _)| path.starts_with(repo.join(".gemini")))
                .collect();
            (there, config())
        };
        let before = untouched();
        let ran = world.run(&repo, &["init", "--yes", "--format", "json"]);
        assert_eq!(ran.code, Some(12), "{name}: {ran:?}");
        let answer = ran.json();
        let expected = [
            (".mcp.json", "create"),
            (".claude/settings.json", "create"),
            (".codex/config.toml", "create"),
            (".gemini/settings.json", "refused"),
        ];
        assert_eq!(actions(&answer), expected, "{name}");
        assert_eq!(answer["written"], json!(true));
        let error = &answer["files"][3]["error"];
        assert_eq!(error["line"].as_u64(), line, "{name}: {error}");
        let said = error["message"].as_str().expect("a message");
        assert!(said.starts_with(message), "{name}: {said}");
        let failure: Value = serde_json::from_str(&ran.stderr).expect("an error object");
        let line = line.map_or_else(String::new, |line| format!("line {line}: "));
        assert_eq!(
            failure["error"]["message"],
            json!(format!(
                ".gemini/settings.json was left alone: {line}{said}"
            ))
        );
        assert_eq!(failure["error"]["remedy"], error["remedy"], "{name}");
        assert!(untouched() == before, "{name}");
        assert_eq!(fs_err::read_dir(&elsewhere).expect("a folder").count(), 0);
    }
}

#[test]
fn a_link_within_the_checkout_is_followed() {
    let world = World::new();
    let repo = world.repo("repo");
    write(&repo, "config/mcp.json", "{}\n");
    symlink("config/mcp.json", repo.join(".mcp.json")).expect("linked");
    done(&world, &repo, &["init", "--yes", "--client", "claude-code"]);
    assert!(
        fs_err::symlink_metadata(repo.join(".mcp.json"))
            .expect("it is there")
            .is_symlink()
    );
    assert!(read(&repo, "config/mcp.json").contains("earshot"));
    done(&world, &repo, &["init", "--undo", "--yes"]);
    assert_eq!(read(&repo, "config/mcp.json"), "{}\n");
}

#[test]
fn a_folder_that_cannot_be_written_leaves_its_file_as_it_was() {
    if skip_unless_root("a_folder_that_cannot_be_written_leaves_its_file_as_it_was") {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    write(&repo, ".gemini/settings.json", "{}\n");
    let before = tree(&repo);
    let mount = Mount::read_only(repo.join(".gemini"));
    let ran = world.run(&repo, &["init", "--yes"]);
    assert_eq!(ran.code, Some(12), "{ran:?}");
    assert!(
        ran.stderr
            .starts_with("error: .gemini/settings.json was left alone: it cannot be written: "),
        "{ran:?}"
    );
    assert!(
        ran.stdout
            .contains("Wrote .mcp.json, .claude/settings.json, .codex/config.toml.\n"),
        "{ran:?}"
    );
    drop(mount);
    // What was not written is not remembered either.
    done(&world, &repo, &["init", "--undo", "--yes"]);
    assert_eq!(tree(&repo), before);
}

#[test]
fn what_cannot_be_remembered_is_not_written() {
    if skip_unless_root("what_cannot_be_remembered_is_not_written") {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    let before = tree(&repo);
    let data = world.home().join("data");
    let _mount = Mount::small_disk(data.clone(), 65_536);
    for closed in [world.home(), data.clone()] {
        let mode = std::fs::Permissions::from_mode(0o700);
        fs_err::set_permissions(closed, mode).expect("a mode");
    }
    fs_err::write(data.join("full"), vec![0; 1_000_000]).expect_err("the disk is full");
    let ran = world.run(&repo, &["init", "--yes"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stderr
            .contains("error: what init wrote cannot be remembered: "),
        "{ran:?}"
    );
    assert_eq!(tree(&repo), before);
}

#[test]
fn a_path_that_is_no_text_is_named_to_nobody() {
    let world = World::new();
    let repo = world.repo("repo");
    let folder = world.path().join(OsStr::from_bytes(b"b\xe4d"));
    fs_err::create_dir(&folder).expect("a folder");
    let moved = folder.join("earshot");
    fs_err::copy(World::binary(), &moved).expect("a copy");
    let output = world.command(&moved, &repo).arg("init").output();
    let output = output.expect("it runs");
    assert_eq!(output.status.code(), Some(12), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.starts_with("error: the path of this executable is not UTF-8: "),
        "{said}"
    );
}
