"""The client programs: how each is configured and started, and what is written down of it.

What `docs/clients.md` says of them is here too, and held to what they do.
"""

import json
import subprocess

START_LIMIT_SECONDS = 60
PROMPT = "Say who is here."


class Program:
    """One client program: how it is configured, started, and what is known of it."""

    name = ""
    client = ""
    protocol = ""
    """The protocol version that it speaks."""
    opening = ()
    """What it sends before the first call, in order; what repeats is named once."""
    session_variable = None
    """The variable in which it tells its servers its session."""
    meta = ()
    """What it puts into the `_meta` of a call, beside what the protocol asks for."""
    opens_again = True
    """Whether, over HTTP, it opens a new wire session when a node no longer knows its own."""
    entry = ""
    """Its start file, below node_modules."""
    init = ""
    """Its name at `earshot init --client`."""

    def __init__(self, node, folder):
        self.node = node
        self.modules = folder / self.name / "node_modules"
        self.version = None

    def missing(self, world):
        """Returns why it cannot be run, or None."""
        if not (self.modules / self.entry).exists():
            return f"it is not installed in {self.modules}"
        try:
            done = subprocess.run(
                [self.node, self.modules / self.entry, "--version"],
                env=environment_of(world),
                cwd=world.repository,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=START_LIMIT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"it does not start: {error}"
        if done.returncode != 0:
            return f"it does not start: {done.returncode} {done.stderr.strip()[-300:]}"
        self.version = done.stdout.strip()
        return None

    def start(self, world, model, shell=None):
        """Starts it with the prompt, in a shell with these variables."""
        log = open(world.record / f"{self.name}.log", "ab")
        with log:
            return subprocess.Popen(
                [self.node, self.modules / self.entry, *self.words()],
                env={**environment_of(world), **self.variables(model), **(shell or {})},
                cwd=world.repository,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def over_http(self, world, url):
        """Writes the entry of a server at a url into the checkout."""
        raise NotImplementedError

    def prepare(self, world, model):
        """Writes what the user's own home has to say."""

    def words(self):
        raise NotImplementedError

    def variables(self, model):
        raise NotImplementedError


class ClaudeCode(Program):
    name = "claude-code"
    init = "claude-code"
    client = "claude-code"
    protocol = "2026-07-28"
    opening = ("server/discover", "subscriptions/listen", "tools/list")
    session_variable = "CLAUDE_CODE_SESSION_ID"
    meta = ("claudecode/toolUseId",)
    entry = "@anthropic-ai/claude-code/cli-wrapper.cjs"

    def over_http(self, world, url):
        # It has no protocol session: the header is who it is, with any node.
        headers = {"Earshot-Session": "${EARSHOT_SESSION_ID}"}
        entry = {"mcpServers": {"earshot": {"type": "http", "url": url, "headers": headers}}}
        (world.repository / ".mcp.json").write_text(json.dumps(entry))

    def words(self):
        allowed = ["--allowedTools", "mcp__earshot__*"]
        servers = ["--strict-mcp-config", "--mcp-config", ".mcp.json"]
        return ["-p", PROMPT, "--output-format", "stream-json", "--verbose", *servers, *allowed]

    def variables(self, model):
        return {
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_BASE_URL": model.url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
        }


class Codex(Program):
    name = "codex"
    init = "codex"
    client = "codex-mcp-client"
    protocol = "2025-06-18"
    opening = ("initialize", "notifications/initialized", "tools/list")
    meta = ("threadId", "sessionId")
    entry = "@openai/codex/bin/codex.js"

    def over_http(self, world, url):
        folder = world.repository / ".codex"
        folder.mkdir(exist_ok=True)
        (folder / "config.toml").write_text(f'[mcp_servers.earshot]\nurl = "{url}"\n')

    def prepare(self, world, model):
        folder = world.user / ".codex"
        folder.mkdir(exist_ok=True)
        (folder / "config.toml").write_text(
            f"""model = "gpt-5"
model_provider = "script"
check_for_update_on_startup = false
[analytics]
enabled = false
[features]
plugins = false
[model_providers.script]
name = "script"
base_url = "{model.url}/v1"
env_key = "SCRIPT_KEY"
wire_api = "responses"
request_max_retries = 0
[projects."{world.repository}"]
trust_level = "trusted"
"""
        )

    def words(self):
        return [
            "exec",
            "--json",
            "--dangerously-bypass-approvals-and-sandbox",
            "--dangerously-bypass-hook-trust",
            PROMPT,
        ]

    def variables(self, model):
        return {"SCRIPT_KEY": "none"}


class GeminiCli(Program):
    name = "gemini-cli"
    init = "gemini"
    client = "gemini-cli-mcp-client"
    protocol = "2025-06-18"
    opening = ("initialize", "notifications/initialized", "tools/list")
    opens_again = False
    entry = "@google/gemini-cli/bundle/gemini.js"

    def over_http(self, world, url):
        folder = world.repository / ".gemini"
        folder.mkdir(exist_ok=True)
        entry = {"mcpServers": {"earshot": {"httpUrl": url}}}
        (folder / "settings.json").write_text(json.dumps(entry))

    def prepare(self, world, model):
        folder = world.user / ".gemini"
        folder.mkdir(exist_ok=True)
        settings = {
            "general": {"enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
        }
        (folder / "settings.json").write_text(json.dumps(settings))

    def words(self):
        # A named model, or another one is asked first which to take.
        return ["-m", "gemini-2.5-flash", "--yolo", "--output-format", "json", "-p", PROMPT]

    def variables(self, model):
        return {
            "GEMINI_API_KEY": "none",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "GEMINI_TELEMETRY_ENABLED": "false",
            "GOOGLE_GEMINI_BASE_URL": model.url,
        }


def environment_of(world):
    """Returns what a program gets to see: nothing of whoever runs this."""
    kept = {name: world.environment[name] for name in ("EARSHOT_HOME", "EARSHOT_MESH", "HOME")}
    kept.update(
        GIT_CONFIG_GLOBAL=world.environment["GIT_CONFIG_GLOBAL"],
        LANG="C.UTF-8",
        PATH=world.path,
        TERM="dumb",
        TMPDIR=str(world.folder),
    )
    return kept
