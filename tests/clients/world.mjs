// A scratch checkout with its own EARSHOT_HOME, and the count of what held in it.

import { execFileSync, spawnSync } from "node:child_process";
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const SCRUBBED = ["EARSHOT", "CLAUDE", "CODEX", "GEMINI", "GIT_"];

/** Counts checks, and prints each. */
export class Count {
  passed = 0;
  failed = 0;

  /** Counts one check; `why` is shown when it does not hold. */
  check(name, holds, why = "") {
    if (holds) {
      this.passed += 1;
      console.log(`ok   ${name}`);
    } else {
      this.failed += 1;
      console.log(
        `FAIL ${name}: ${(typeof why === "string" ? why : JSON.stringify(why)).slice(0, 2000)}`,
      );
    }
  }

  /** Prints the closing line and returns the exit status. */
  close() {
    console.log(`${this.passed} passed, ${this.failed} failed`);
    return this.failed === 0 ? 0 : 1;
  }
}

/** One git checkout, and the node that serves it until the world is closed. */
export class World {
  constructor(binary) {
    this.binary = resolve(binary);
    this.folder = mkdtempSync(join(tmpdir(), "c"));
    this.home = join(this.folder, "home");
    this.repository = join(this.folder, "repo");
    const settings = join(this.folder, "gitconfig");
    writeFileSync(
      settings,
      "[user]\nname = t\nemail = t@t.invalid\n[init]\ndefaultBranch = main\n",
    );
    mkdirSync(join(this.folder, "user"));
    mkdirSync(join(this.repository, "src"), { recursive: true });
    writeFileSync(join(this.repository, "src/main.rs"), "fn main() {}\n");
    this.environment = Object.fromEntries(
      Object.entries(process.env).filter(
        ([name]) => !SCRUBBED.some((prefix) => name.startsWith(prefix)),
      ),
    );
    Object.assign(this.environment, {
      EARSHOT_HOME: this.home,
      EARSHOT_MESH: "off",
      GIT_CONFIG_GLOBAL: settings,
      HOME: join(this.folder, "user"),
    });
    for (const words of [
      ["init", "-q"],
      ["add", "."],
      ["commit", "-qm", "first"],
    ]) {
      execFileSync("git", words, { cwd: this.repository, env: this.environment });
    }
  }

  run(...words) {
    return spawnSync(this.binary, words, {
      cwd: this.repository,
      env: this.environment,
      stdio: ["ignore", "pipe", "pipe"],
      encoding: "utf8",
      timeout: 60_000,
    });
  }

  /** Starts or finds the node and returns its status. */
  ensure() {
    const done = this.run("serve", "ensure", "--format", "json");
    if (done.status !== 0) throw new Error(`serve ensure: ${done.status} ${done.stderr}`);
    return JSON.parse(done.stdout);
  }

  close() {
    this.run("serve", "stop");
    for (const lease of globSync(join(this.home, "**/lease.json"))) {
      this.#endHolder(lease);
    }
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** Ends a node that an ordered stop did not end. */
  #endHolder(lease) {
    try {
      const { pid, state } = JSON.parse(readFileSync(lease, "utf8"));
      const environment = readFileSync(`/proc/${pid}/environ`, "utf8");
      if (state !== "ended" && environment.includes(this.home)) process.kill(pid, "SIGKILL");
    } catch {
      // No such process: it ended by itself.
    }
  }
}
