//! An MCP client over the standard streams of `earshot mcp`.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use serde_json::{Value, json};

use super::World;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// One MCP client (2025-06-18) over `earshot mcp`.
#[derive(Debug)]
pub struct StdioClient {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    next: u64,
    /// The answer to `initialize`.
    pub welcome: Value,
}

impl StdioClient {
    /// Starts a bridge and initializes.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn start(world: &World, folder: &Path, name: &str) -> Self {
        Self::start_with(world, folder, name, &[])
    }

    /// Starts a bridge with further variables and initializes.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn start_with(world: &World, folder: &Path, name: &str, env: &[(&str, &str)]) -> Self {
        let mut client = Self::spawn(world, folder, env);
        client.welcome = client.ask(
            "initialize",
            json!({
                "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": { "name": name, "version": "1" },
            }),
        );
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    /// Starts a bridge and says nothing.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn(world: &World, folder: &Path, env: &[(&str, &str)]) -> Self {
        let mut child = world
            .earshot(folder)
            .arg("mcp")
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the bridge starts");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            stdin,
            lines,
            next: 0,
            welcome: Value::Null,
        }
    }

    /// Returns the bridge's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends one message.
    ///
    /// # Panics
    /// When the bridge is gone.
    pub fn send(&mut self, message: &Value) {
        self.send_raw(format!("{message}\n").as_bytes());
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    /// When the bridge is gone.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stdin
            .as_mut()
            .expect("still open")
            .write_all(bytes)
            .expect("the bridge reads");
    }

    /// Waits for the next line.
    ///
    /// # Panics
    /// When none comes.
    pub fn line(&mut self) -> String {
        self.lines
            .recv_timeout(PATIENCE)
            .expect("a line from the bridge")
    }

    /// Sends a request and waits for its answer, passing over everything else.
    ///
    /// # Panics
    /// When none comes.
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let answer: Value = serde_json::from_str(&self.line()).expect("a line is JSON");
            if answer["id"] == json!(id) {
                return answer;
            }
        }
    }

    /// Calls a tool, and returns its result whole.
    ///
    /// # Panics
    /// When the call is a protocol error.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        );
        assert!(answer.get("error").is_none(), "{tool}: {answer}");
        answer["result"].clone()
    }

    /// Calls a tool, and returns its structured content.
    ///
    /// # Panics
    /// When the tool fails.
    pub fn data(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_ne!(result["isError"], json!(true), "{tool}: {result}");
        result["structuredContent"].clone()
    }

    /// Closes standard input and waits for the bridge's end; returns what it still said.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn close(mut self) -> (ExitStatus, Vec<String>) {
        drop(self.stdin.take());
        let status = self.child.wait().expect("the bridge ends");
        (status, self.lines.iter().collect())
    }
}

impl Drop for StdioClient {
    fn drop(&mut self) {
        self.child.kill().ok(); // it has ended already
        self.child.wait().ok(); // so that no zombie stays
    }
}
