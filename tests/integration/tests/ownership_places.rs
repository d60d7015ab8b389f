//! Who else there may be: another user, another home, a container, a file system without locks.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use earshot_testkit::process::{
    Mount, Ran, SOMEBODY_ELSE, StdioClient, World, eventually, http, is_running, kill,
    serving_processes, skip_unless_root, skip_without,
};
use serde_json::{Value, json};

/// Longest time until something that was started is there.
const AGAIN: Duration = Duration::from_secs(10);

/// Has a program run as somebody else, who can reach the world's folders but not look into them.
fn as_somebody_else(world: &World, program: &Path, folder: &Path) -> Command {
    let user = SOMEBODY_ELSE.to_string();
    let mut command = world.command("setpriv", folder);
    command
        .args(["--reuid", &user, "--regid", &user, "--clear-groups"])
        .arg(program);
    command
}

fn open_up(path: &Path, mode: u32) {
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is mine");
}

/// Gives a folder with everything in it to somebody else.
fn give_away(path: &Path) {
    let to = format!("{SOMEBODY_ELSE}:{SOMEBODY_ELSE}");
    let status = Command::new("chown").args(["-R", &to]).arg(path).status();
    assert!(status.expect("chown runs").success());
}

fn run(mut command: Command) -> Ran {
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn told(client: &StdioClient) -> String {
    let told = &client.welcome["result"]["instructions"];
    told.as_str().expect("a text").to_owned()
}

/// A second user with a home and a repository of its own, in the world of the first.
struct SecondUser {
    home: PathBuf,
    repo: PathBuf,
}

impl SecondUser {
    fn arrive(world: &World) -> Self {
        open_up(world.path(), 0o755);
        let home = world.path().join("second");
        fs_err::create_dir(&home).expect("a folder");
        let repo = world.repo("theirs");
        give_away(&home);
        give_away(&repo);
        Self { home, repo }
    }

    /// Runs the binary as this user, without an `EARSHOT_HOME`.
    fn earshot(&self, world: &World, folder: &Path, arguments: &[&str]) -> Command {
        let mut command = as_somebody_else(world, &World::binary(), folder);
        command
            .env_remove("EARSHOT_HOME")
            .env("HOME", &self.home)
            .env("XDG_RUNTIME_DIR", self.home.join("run"))
            .args(arguments);
        for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
            command.env_remove(name);
        }
        command
    }
}

impl Drop for SecondUser {
    fn drop(&mut self) {
        for pid in serving_processes(&format!("HOME={}", self.home.display())) {
            kill(pid);
        }
    }
}

#[test]
fn two_users_do_not_see_each_other_and_neither_may_write_to_the_other() {
    let test = "two_users_do_not_see_each_other_and_neither_may_write_to_the_other";
    if skip_unless_root(test) || skip_without("setpriv", test) {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    let mut mine = StdioClient::start(&world, &repo, "mine");
    mine.data(
        "peers_announce",
        json!({ "intent": "secret", "paths": ["src"] }),
    );
    let status = world.json(&repo, &["serve", "status"]);
    let url = status["url"].as_str().unwrap();
    let second = SecondUser::arrive(&world);

    let ran = run(second.earshot(&world, &second.repo, &["up", "--format", "json"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_ne!(ran.json()["pid"], status["pid"]);
    let theirs: u32 = ran.json()["pid"].as_u64().unwrap().try_into().unwrap();
    let ran = run(second.earshot(&world, &second.repo, &["peers", "--format", "json"]));
    assert_eq!(ran.json()["count"], 0, "{ran:?}");
    assert!(!ran.stdout.contains("secret"), "{ran:?}");

    // Not through the socket, be it opened wide: the node asks the kernel who connects.
    let socket = world.socket(&repo);
    for folder in socket
        .ancestors()
        .skip(1)
        .take_while(|it| *it != world.path() && *it != std::env::temp_dir())
    {
        open_up(folder, 0o755);
    }
    open_up(&socket, 0o777);
    let mut curl = as_somebody_else(&world, Path::new("curl"), world.path());
    let body = r#"{"intent":"forged","paths":["src"]}"#;
    let json = "content-type: application/json";
    curl.args(["-sS", "-m", "5", "-H", json, "-d", body, "--unix-socket"])
        .arg(&socket)
        .arg("http://localhost/api/v1/peers/announce");
    let by_socket = run(curl);
    assert!(!by_socket.stdout.contains("forged"), "{by_socket:?}");

    // Nor over loopback.
    let mut curl = as_somebody_else(&world, Path::new("curl"), world.path());
    curl.args([
        "-sS",
        "-m",
        "5",
        "-H",
        json,
        "-d",
        body,
        "-w",
        "\n%{http_code}",
    ])
    .arg(format!("{url}/api/v1/peers/announce"));
    let by_tcp = run(curl);
    assert!(by_tcp.stdout.ends_with("\n403"), "{by_tcp:?}");

    // Nor may a signal of the second user's `stop` reach the first one's node.
    let ran = run(second.earshot(&world, &second.repo, &["serve", "stop"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    eventually("their node ends", AGAIN, || {
        (!is_running(theirs)).then_some(())
    });
    let board = mine.data("peers_list", json!({ "checkouts": "this" }));
    assert_eq!(board["count"], 1, "{board}");
    assert_eq!(
        board["peers"][0]["announcement"]["intent"], "secret",
        "{board}"
    );
    assert_eq!(
        world.json(&repo, &["serve", "status"])["pid"],
        status["pid"]
    );
}

#[test]
fn a_repository_of_somebody_else_is_refused_as_git_does() {
    let test = "a_repository_of_somebody_else_is_refused_as_git_does";
    if skip_unless_root(test) || skip_without("setpriv", test) {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    let second = SecondUser::arrive(&world);
    let config = fs_err::read(world.path().join("gitconfig")).unwrap();
    let ran = run(second.earshot(&world, &repo, &["up"]));
    assert_eq!(ran.code, Some(12), "{ran:?}");
    assert!(
        ran.stderr.contains("own") && ran.stderr.contains("hint: "),
        "{ran:?}"
    );
    assert!(!ran.stderr.contains("not a git repository"), "{ran:?}");
    // The client's initialize is answered all the same, and says why it is alone.
    let client = StdioClient::start_command(second.earshot(&world, &repo, &["mcp"]), "theirs");
    assert!(told(&client).contains("alone"), "{}", told(&client));
    assert!(client.close().0.success());
    assert_eq!(
        fs_err::read(world.path().join("gitconfig")).unwrap(),
        config
    );
}

#[test]
fn a_checkout_that_is_read_only_is_served_as_any_other() {
    if skip_unless_root("a_checkout_that_is_read_only_is_served_as_any_other") {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    let _mount = Mount::read_only(repo.clone());
    let mut first = StdioClient::start(&world, &repo, "first");
    let mut second = StdioClient::start(&world, &repo, "second");
    first.data("peers_announce", json!({ "intent": "x", "paths": ["src"] }));
    let said = second.data("peers_announce", json!({ "intent": "y", "paths": ["src"] }));
    assert_eq!(said["collisions"].as_array().unwrap().len(), 1, "{said}");
    assert_eq!(world.nodes().len(), 1);
}

#[test]
fn one_tree_by_a_bind_mount_has_one_node() {
    if skip_unless_root("one_tree_by_a_bind_mount_has_one_node") {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    let pid = world.json(&repo, &["up"])["pid"].clone();
    let elsewhere = world.path().join("elsewhere");
    let _mount = Mount::bind(&repo, elsewhere.clone());
    assert_eq!(world.json(&elsewhere, &["up"])["pid"], pid);
    assert_eq!(world.nodes().len(), 1);
}

#[test]
fn two_homes_on_one_tree_have_a_node_each_and_lose_nothing() {
    let (world, other) = (World::new(), World::new());
    let repo = world.repo("repo");
    let before = world.git(&repo, &["status", "--porcelain", "--ignored"]);
    let mut mine = StdioClient::start(&world, &repo, "mine");
    let mut theirs = StdioClient::start(&other, &repo, "theirs");
    mine.data(
        "peers_announce",
        json!({ "intent": "mine", "paths": ["src"] }),
    );
    theirs.data(
        "peers_announce",
        json!({ "intent": "theirs", "paths": ["src"] }),
    );
    assert_eq!((world.nodes().len(), other.nodes().len()), (1, 1));
    assert_ne!(world.nodes(), other.nodes());
    assert_ne!(
        world.json(&repo, &["serve", "status"])["url"],
        other.json(&repo, &["serve", "status"])["url"]
    );
    world.json(&repo, &["serve", "stop"]);
    assert_eq!(other.nodes().len(), 1, "the other home's node goes on");
    for (client, intent) in [(&mut mine, "mine"), (&mut theirs, "theirs")] {
        let board = client.data("peers_list", json!({ "checkouts": "this" }));
        assert_eq!(board["count"], 1, "{board}");
        assert_eq!(
            board["peers"][0]["announcement"]["intent"], intent,
            "{board}"
        );
    }
    assert_eq!(
        world.git(&repo, &["status", "--porcelain", "--ignored"]),
        before
    );
}

#[test]
fn a_container_that_shares_the_state_folder_attaches_over_the_socket() {
    let test = "a_container_that_shares_the_state_folder_attaches_over_the_socket";
    if skip_unless_root(test) {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    let mut outside = StdioClient::start(&world, &repo, "outside");
    outside.data("peers_announce", json!({ "intent": "x", "paths": ["src"] }));
    let pid = world.serving(&repo).unwrap();
    let status = inside(&world, &repo, r#""$0" serve status --format json"#);
    assert_eq!(status.json()["standing"], "ready", "{status:?}");
    let mut command = world.command("unshare", &repo);
    command
        .args(["-pmf", "--mount-proc", "--kill-child"])
        .arg(World::binary())
        .arg("mcp");
    let mut inside = StdioClient::start_command(command, "inside");
    let said = inside.data("peers_announce", json!({ "intent": "y", "paths": ["src"] }));
    assert_eq!(said["collisions"][0]["intent"], "x", "{said}");
    assert_eq!(world.nodes(), [pid], "one node, and the same");
    assert_eq!(outside.data("peers_list", json!({}))["count"], 2);
}

#[test]
fn a_node_outside_that_a_container_cannot_reach_is_left_alone() {
    let test = "a_node_outside_that_a_container_cannot_reach_is_left_alone";
    if skip_unless_root(test) {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    let mut outside = StdioClient::start(&world, &repo, "outside");
    let pid = world.serving(&repo).unwrap();
    let lease = world.node_folder(&repo).join("lease.json");
    let before = fs_err::read(&lease).unwrap();
    // Its socket is hidden: the node lives, beats, and answers nothing in there.
    let hide = format!(
        "mount --bind /dev/null '{}'; ",
        world.socket(&repo).display()
    );
    let script = |command: &str| format!(r#"{hide} exec "$0" {command}"#);
    let status = inside(&world, &repo, &script("serve status --format json"));
    assert_eq!(status.json()["standing"], "elsewhere", "{status:?}");
    for command in ["serve ensure --wait 3", "serve", "serve stop"] {
        let ran = inside(&world, &repo, &script(command));
        assert_eq!(ran.code, Some(12), "{command}: {ran:?}");
        assert!(ran.stderr.contains("hint: "), "{command}: {ran:?}");
    }
    let said = world.path().join("said");
    let mut command = world.command("unshare", &repo);
    command
        .args([
            "-pmf",
            "--mount-proc",
            "--kill-child",
            "bash",
            "-c",
            &script("mcp"),
        ])
        .arg(World::binary())
        .stderr(std::fs::File::create(&said).unwrap());
    let mut alone = StdioClient::start_command(command, "inside");
    assert!(told(&alone).contains("served alone"), "{}", told(&alone));
    assert_eq!(alone.data("peers_list", json!({}))["count"], 1);
    drop(alone);
    let said = fs_err::read_to_string(said).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("another container or namespace"), "{said}");
    assert_eq!(
        fs_err::read(&lease).unwrap(),
        before,
        "the lease was touched"
    );
    assert_eq!(world.nodes(), [pid]);
    assert_eq!(outside.data("peers_list", json!({}))["count"], 1);
}

/// Runs a script in a pid and mount namespace of its own; `$0` is the binary.
fn inside(world: &World, repo: &Path, script: &str) -> Ran {
    let mut command = world.command("unshare", repo);
    command
        .args(["-pmf", "--mount-proc", "--kill-child", "bash", "-c", script])
        .arg(World::binary());
    run(command)
}

/// Prepares the binary to run where every flock fails like this.
fn without_locks(world: &World, repo: &Path, inject: &str) -> Command {
    let mut command = world.command("strace", repo);
    command
        .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=flock", "-e"])
        .arg(format!("inject=flock:{inject}"))
        .arg(World::binary());
    command
}

#[test]
fn a_file_system_without_locks_is_refused_and_the_client_served_alone() {
    let test = "a_file_system_without_locks_is_refused_and_the_client_served_alone";
    if skip_without("strace", test) {
        return;
    }
    for error in ["ENOLCK", "EOPNOTSUPP"] {
        let world = World::new();
        let repo = world.repo("repo");
        let inject = format!("error={error}");
        let mut command = without_locks(&world, &repo, &inject);
        command.args(["serve", "ensure", "--wait", "3"]);
        let ran = run(command);
        assert_eq!(ran.code, Some(12), "{error}: {ran:?}");
        assert!(
            ran.stderr.contains("lock") && ran.stderr.contains("hint: "),
            "{error}: {ran:?}"
        );
        assert!(
            ran.stderr.contains("EARSHOT_HOME"),
            "the remedy: {error}: {ran:?}"
        );
        let mut command = without_locks(&world, &repo, &inject);
        command.arg("mcp");
        let mut alone = StdioClient::start_command(command, "alone");
        assert!(
            told(&alone).contains("served alone"),
            "{error}: {}",
            told(&alone)
        );
        assert_eq!(alone.data("peers_list", json!({}))["count"], 1);
        assert!(alone.close().0.success());
        assert_eq!(world.nodes(), [0_u32; 0], "{error}");
    }
}

#[test]
fn an_interrupted_lock_is_tried_again() {
    if skip_without("strace", "an_interrupted_lock_is_tried_again") {
        return;
    }
    let world = World::new();
    let repo = world.repo("repo");
    let mut command = without_locks(&world, &repo, "error=EINTR:when=1+2");
    // It follows the node that it starts, and so ends with it.
    let mut traced = command
        .args(["serve", "ensure"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let status = eventually("a node serves", AGAIN, || {
        let status = world.json(&repo, &["serve", "status"]);
        (status["standing"] == "ready").then_some(status)
    });
    assert_eq!(world.json(&repo, &["up"])["pid"], status["pid"]);
    assert_eq!(
        world.json(&repo, &["serve", "stop"])["stopped"],
        Value::Bool(true)
    );
    traced.wait().unwrap();
}

#[test]
fn a_stranger_on_the_port_of_a_checkout_is_not_taken_for_its_node() {
    let world = World::new();
    let repo = world.repo("repo");
    let url = world.up(&repo);
    world.json(&repo, &["serve", "stop"]);
    let stranger = std::net::TcpListener::bind(url.strip_prefix("http://").unwrap()).unwrap();
    let again = world.json(&repo, &["up"]);
    assert_ne!(again["url"], url.as_str());
    let live = http(
        again["url"].as_str().unwrap(),
        "GET",
        "/api/v1/live",
        &[],
        b"",
    );
    assert_eq!(live.unwrap().status, 200);
    drop(stranger);
}
