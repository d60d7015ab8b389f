"""A scratch checkout with its own EARSHOT_HOME, and the count of what held in it."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

SCRUBBED = ("EARSHOT", "CLAUDE", "CODEX", "GEMINI", "GIT_")


class Count:
    """Counts checks, and prints each."""

    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.skipped = 0

    def check(self, name, holds, why=""):
        """Counts one check; `why` is shown when it does not hold."""
        if holds:
            self.passed += 1
            print(f"ok   {name}")
        else:
            self.failed += 1
            print(f"FAIL {name}: {str(why)[:2000]}")
        return bool(holds)

    def skip(self, name, why):
        """Counts what could not be run, and says so."""
        self.skipped += 1
        print(f"SKIPPED {name}: {why}")

    def close(self):
        """Prints the closing line and returns the exit status."""
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        print(f"{self.passed} passed, {self.failed} failed{skipped}")
        return 1 if self.failed else 0


class World:
    """One git checkout, and the node that serves it until the world is left."""

    def __init__(self, binary):
        self.binary = str(pathlib.Path(binary).resolve())
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="c"))
        self.home = self.folder / "home"
        self.repository = self.folder / "repo"
        user = self.folder / "user"
        user.mkdir()
        settings = self.folder / "gitconfig"
        settings.write_text("[user]\nname = t\nemail = t@t.invalid\n[init]\ndefaultBranch = main\n")
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(SCRUBBED)
        }
        self.environment.update(
            EARSHOT_HOME=str(self.home),
            EARSHOT_MESH="off",
            GIT_CONFIG_GLOBAL=str(settings),
            HOME=str(user),
        )
        (self.repository / "src").mkdir(parents=True)
        (self.repository / "src/main.rs").write_text("fn main() {}\n")
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
            subprocess.run(["git", *words], cwd=self.repository, env=self.environment, check=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.run("serve", "stop")
        except (OSError, subprocess.TimeoutExpired):
            pass
        for lease in self.home.rglob("lease.json"):
            self._end_holder(lease)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end_holder(self, lease):
        """Ends a node that an ordered stop did not end."""
        try:
            document = json.loads(lease.read_text())
            pid = document["pid"]
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
            if document.get("state") != "ended" and str(self.home).encode() in environment:
                os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError, KeyError):
            pass

    def run(self, *words, timeout=60):
        """Runs the binary in the checkout."""
        return subprocess.run(
            [self.binary, *words],
            cwd=self.repository,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def json(self, *words):
        """Runs the binary for a JSON answer."""
        done = self.run(*words, "--format", "json")
        if done.returncode != 0:
            raise RuntimeError(
                f"earshot {' '.join(words)}: {done.returncode} {done.stderr.strip()}"
            )
        return json.loads(done.stdout)

    def ensure(self):
        """Starts or finds the node and returns its status."""
        return self.json("serve", "ensure")
