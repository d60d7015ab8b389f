"""Holds the HTTP routes to their own OpenAPI document.

usage: http_api.py BINARY

The document itself is validated; then schemathesis makes requests from it, good and bad ones, and
compares the answers with what it promises. The run is bounded in time, and its seed is fixed.
"""

import json
import pathlib
import subprocess
import sys
import urllib.error
import urllib.request

from openapi_spec_validator import validate

from world import Count, World

SEED = "17400"
CASES_PER_OPERATION = "40"
SECONDS_MAX = "60"

# Left out: acceptance of whatever fits the schema (some rules, as that of a path inside the
# checkout, are beyond what a schema can say); what belongs to accounts, which there are none of;
# and undeclared methods, which are asked for below: schemathesis sends them with headers that name
# no caller, and those are refused before a method is looked at.
CHECKS = ",".join(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
        "missing_required_header",
    ]
)


METHODS = {"get", "post", "put", "patch", "delete"}


def undeclared_methods_answered(url, document):
    """Returns answers to undeclared methods that are not 405 with what is allowed."""
    wrong = []
    for path, operations in document["paths"].items():
        if "{" in path:
            continue
        for method in sorted(METHODS - operations.keys()):
            request = urllib.request.Request(url + path, method=method.upper())
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    wrong.append(f"{method} {path}: {answer.status}")
            except urllib.error.HTTPError as refusal:
                if refusal.code != 405 or not refusal.headers.get("Allow"):
                    wrong.append(f"{method} {path}: {refusal.code} {dict(refusal.headers)}")
    return wrong


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def main(binary):
    count = Count()
    with World(binary) as world:
        url = world.ensure()["url"]
        document = get(url + "/openapi.json")
        try:
            validate(document)
            count.check("the OpenAPI document is valid", True)
        except Exception as error:  # whatever the validator finds is the finding
            count.check("the OpenAPI document is valid", False, error)
        count.check(
            "it is OpenAPI 3.1",
            document.get("openapi", "").startswith("3.1."),
            document.get("openapi"),
        )
        wanted = {"/api/v1/peers/announce", "/api/v1/peers/list"}
        count.check(
            "the board's routes are in it",
            wanted <= document["paths"].keys(),
            sorted(document["paths"]),
        )
        wrong = undeclared_methods_answered(url, document)
        count.check("undeclared methods are answered with 405 and Allow", not wrong, wrong)
        done = subprocess.run(
            [
                str(pathlib.Path(sys.executable).parent / "schemathesis"),
                "run",
                url + "/openapi.json",
                "--phases=examples,coverage,fuzzing",
                f"--checks={CHECKS}",
                f"--max-examples={CASES_PER_OPERATION}",
                f"--max-time={SECONDS_MAX}",
                f"--seed={SEED}",
                "--generation-database=none",
                "--warnings=off",
                "--no-color",
            ],
            cwd=world.folder,
            env=world.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        print(done.stdout)
        count.check(
            "schemathesis finds nothing", done.returncode == 0, f"exit status {done.returncode}"
        )
        count.check("the node is alive afterwards", world.run("serve", "status").returncode == 0)
    return count.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
