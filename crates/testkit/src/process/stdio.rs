//! An MCP client over the standard streams of `earshot mcp`.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use serde_json::{Value, json};

use super::{World, http::PATIENCE, wait::now};

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
        let mut command = world.earshot(folder);
        command.arg("mcp").envs(env.iter().copied());
        Self::start_command(command, name)
    }

    /// Runs a command whose standard streams speak MCP, and initializes.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn start_command(command: Command, name: &str) -> Self {
        let mut client = Self::open(command);
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
        let mut command = world.earshot(folder);
        command.arg("mcp").envs(env.iter().copied());
        Self::open(command)
    }

    /// Runs a command whose standard streams speak MCP, and says nothing.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn open(mut command: Command) -> Self {
        let mut child = command
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
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a literal is handed in, and nobody needs it afterwards"
    )]
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.try_ask(method, &params, PATIENCE)
            .unwrap_or_else(|why| panic!("{method}: {why}"))
    }

    /// Sends a request and waits so long for its answer, passing over everything else.
    ///
    /// # Errors
    /// That none came, or what came instead of one.
    pub fn try_ask(
        &mut self,
        method: &str,
        params: &Value,
        patience: Duration,
    ) -> Result<Value, String> {
        self.next += 1;
        let id = self.next;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let stdin = self.stdin.as_mut().ok_or("its input is closed")?;
        let written = stdin.write_all(format!("{request}\n").as_bytes());
        written.map_err(|error| error.to_string())?;
        let until = now() + patience;
        loop {
            let left = until.saturating_duration_since(now());
            let line = self.lines.recv_timeout(left);
            let line = line.map_err(|error| format!("no answer within {patience:?}: {error}"))?;
            let answer: Value =
                serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))?;
            if answer["id"] == json!(id) {
                return Ok(answer);
            }
        }
    }

    /// Calls a tool, and returns its structured content.
    ///
    /// # Errors
    /// That no answer came within the time, and whatever was answered but success.
    pub fn try_call(
        &mut self,
        tool: &str,
        arguments: &Value,
        patience: Duration,
    ) -> Result<Value, String> {
        let params = json!({ "name": tool, "arguments": arguments });
        let answer = self.try_ask("tools/call", &params, patience)?;
        let result = &answer["result"];
        if result.is_null() || result["isError"] == json!(true) {
            return Err(answer.to_string());
        }
        Ok(result["structuredContent"].clone())
    }

    /// Calls a tool, and returns its result whole.
    ///
    /// # Panics
    /// When the call is a protocol error.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a literal is handed in, and nobody needs it afterwards"
    )]
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
