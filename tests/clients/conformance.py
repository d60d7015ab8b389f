"""Runs the official MCP conformance suite against a server.

usage: conformance.py --suite NODE_MODULES --revision REVISION --bar N -- SERVER [ARGUMENT…]
       conformance.py --suite NODE_MODULES --product BINARY

The first form starts a server that prints its url and has the fixtures of the suite; it fails
below N scored scenarios. The second starts the product's own node and runs every scenario that
asks for no fixture, in both generations.
"""

import argparse
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading

from world import SCRUBBED, Count, World

URL = re.compile(r"http://[^\s\"'<>]+")
SUMMARY_LINE = re.compile(r"^[✓✗] (\S+): (\d+) passed, (\d+) failed$")
START_SECONDS = 60
SUITE_SECONDS = 540

# Scenarios of each revision that touch only what the product has. Those of resources and prompts,
# and caching, which asks for both, come with the first resource and the first prompt.
WITHOUT_FIXTURES = {
    "2025-11-25": [
        "server-initialize",
        "ping",
        "tools-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    ],
    "2026-07-28": [
        "tools-list",
        "server-sse-multiple-streams",
        "sep-2164-resource-not-found",
        "dns-rebinding-protection",
        "input-required-result-unsupported-methods",
    ],
}


def scored(suite, revision):
    """Returns the names of the server scenarios that a revision requires."""
    text = (suite / f"requirements/{revision}.yaml").read_text()
    section = text[text.index("\nserver:") :]
    section = section[: section.index("\nclient:")]
    return re.findall(r"^  - (\S+)", section, re.MULTILINE)


def suite_command(modules, *words):
    """Returns the suite as npm would run it."""
    node = modules / ".bin/node"
    return [
        str(node),
        str(modules / "@modelcontextprotocol/conformance/dist/index.js"),
        "server",
        *words,
    ]


@contextlib.contextmanager
def server(command):
    """Starts a server and yields the url that it prints."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(SCRUBBED)
    }
    environment["EARSHOT_MESH"] = "off"
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    printed, known = [], threading.Event()

    def read():
        for line in process.stdout:
            printed.append(line.rstrip())
            if URL.search(line):
                known.set()
        known.set()

    threading.Thread(target=read, daemon=True).start()
    try:
        known.wait(START_SECONDS)
        found = [match.group() for match in map(URL.search, printed) if match]
        if not found:
            raise RuntimeError("the server printed no url: " + " | ".join(printed[-20:]))
        url = found[0].rstrip(".,;")
        yield url if url.count("/") > 2 and not url.endswith("/") else url.rstrip("/") + "/mcp"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def with_fixtures(count, modules, revision, bar, command):
    """Runs all that a revision requires, and counts the scored scenarios."""
    wanted = scored(modules / "@modelcontextprotocol/conformance", revision)
    with server(command) as url:
        done = subprocess.run(
            suite_command(modules, "--url", url, "--requirements", revision),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SUITE_SECONDS,
            check=False,
        )
    summary = done.stdout[done.stdout.rfind("=== SUMMARY ===") :]
    failures = {}
    for line in summary.splitlines():
        match = SUMMARY_LINE.match(line.strip())
        if match:
            failures[match[1]] = int(match[3])
    passed = [name for name in wanted if failures.get(name) == 0]
    if len(passed) < len(wanted):
        print(done.stdout)
    for name in wanted:
        count.check(
            f"conformance {revision}: {name}", name in passed, failures.get(name, "did not run")
        )
    print(f"{revision}: {len(passed)}/{len(wanted)} scored scenarios, the bar is {bar}")
    count.check(f"conformance {revision}: the bar is reached", len(passed) >= bar, len(passed))


def product(count, modules, binary):
    """Runs against the product what it can be asked without fixtures."""
    with World(binary) as world:
        url = world.ensure()["mcp_url"]
        for revision, names in WITHOUT_FIXTURES.items():
            for name in names:
                done = subprocess.run(
                    suite_command(
                        modules, "--url", url, "--scenario", name, "--spec-version", revision
                    ),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=SUITE_SECONDS,
                    check=False,
                )
                count.check(
                    f"conformance of the product {revision}: {name}",
                    done.returncode == 0,
                    done.stdout[-2000:],
                )


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition("usage: ")[2])
    parser.add_argument("--suite", type=pathlib.Path, required=True)
    parser.add_argument("--revision", choices=sorted(WITHOUT_FIXTURES))
    parser.add_argument("--bar", type=int)
    parser.add_argument("--product")
    parser.add_argument("command", nargs="*")
    chosen = parser.parse_args()
    count = Count()
    if chosen.product:
        product(count, chosen.suite, chosen.product)
    elif chosen.revision and chosen.bar and chosen.command:
        with_fixtures(count, chosen.suite, chosen.revision, chosen.bar, chosen.command)
    else:
        parser.error("nothing to run")
    return count.close()


if __name__ == "__main__":
    sys.exit(main())
