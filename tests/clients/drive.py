"""Drives the binary with the official Python SDK: both transports, both generations.

usage: drive.py BINARY
"""

import asyncio
import contextlib
import json
import os
import re
import sys
import traceback

from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import Implementation

from world import Count, World

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_-]{0,45}$")
LEAVING_LOOKS = 100


def odd_tools(tools):
    """Returns what would make a client drop the list, over plain tool objects."""
    odd = []
    for tool in tools:
        name, schema = tool["name"], tool["inputSchema"]
        if schema.get("type") != "object" or {"anyOf", "oneOf", "allOf", "$ref"} & schema.keys():
            odd.append(f"TOP {name}")
        if not NAME.match(name):
            odd.append(f"NAME {name}")
        odd += [
            f"ITEMS {name}"
            for part in objects(schema)
            if part.get("type") == "array" and "items" not in part
        ]
        for field, value in schema.get("properties", {}).items():
            if not {"type", "enum", "anyOf"} & value.keys():
                odd.append(f"NOTYPE {name}.{field}")
    return odd


def objects(value):
    """Yields every object inside a JSON value."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from objects(part)


class Driver:
    """Two clients of one kind in one checkout."""

    def __init__(self, count, world, transport, generation):
        self.count = count
        self.world = world
        self.transport = transport
        self.generation = generation
        self.stateless_http = transport == "http" and generation == MODERN
        self.status = world.ensure()

    def check(self, name, holds, why=""):
        return self.count.check(f"python {self.transport} {self.generation}: {name}", holds, why)

    @contextlib.asynccontextmanager
    async def client(self, name, headers=None):
        """Connects as an agent's client would, letting the SDK find out the generation."""
        mode = "legacy" if self.generation == LEGACY else "auto"
        info = Implementation(name=name, version="1")
        async with contextlib.AsyncExitStack() as stack:
            if self.transport == "stdio":
                silent = stack.enter_context(open(os.devnull, "w"))
                parameters = StdioServerParameters(
                    command=self.world.binary,
                    args=["mcp"],
                    env=self.world.environment,
                    cwd=self.world.repository,
                )
                transport = stdio_client(parameters, errlog=silent)
            else:
                http = await stack.enter_async_context(create_mcp_http_client(headers=headers))
                transport = streamable_http_client(self.status["mcp_url"], http_client=http)
            yield await stack.enter_async_context(
                Client(transport, mode=mode, client_info=info, read_timeout_seconds=30)
            )

    async def drive(self):
        beta_headers = {"Earshot-Session": "beta-session"} if self.stateless_http else None
        async with self.client("alpha") as alpha:
            self.opening(alpha)
            tools = await self.tools(alpha)
            ticket = await self.ticket(alpha)
            announced = await self.call(
                alpha, "peers_announce", {"intent": "rewrite the start", "paths": ["src"], **ticket}
            )
            self.check(
                "a lone announcement meets nobody", announced.get("collisions") == [], announced
            )
            async with self.client("beta", beta_headers) as beta:
                await self.two_clients(beta)
                await self.invalid_input(beta)
                await self.unknown_tool(beta)
            if not self.stateless_http:
                await self.beta_left(alpha)
        return tools

    def opening(self, client):
        self.check(
            "the generation is the one asked for",
            client.protocol_version == self.generation,
            client.protocol_version,
        )
        if client.server_info is not None:
            self.check(
                "the server says who it is",
                client.server_info.name == "earshot",
                client.server_info,
            )
        self.check(
            "instructions tell an arriving agent what to do",
            "peers_announce" in (client.instructions or ""),
            client.instructions,
        )

    async def tools(self, client):
        listed = (await client.list_tools()).tools
        tools = [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in listed]
        names = [tool["name"] for tool in tools]
        self.check("no tool makes a client drop the list", not odd_tools(tools), odd_tools(tools))
        self.check(
            "the board's tools are listed", {"peers_announce", "peers_list"} <= set(names), names
        )
        self.check("the list is short", len(names) <= 12, names)
        self.check(
            "no fixture is listed", not any(name.startswith("test_") for name in names), names
        )
        lacking = [
            tool["name"]
            for tool in tools
            if "annotations" not in tool or "outputSchema" not in tool
        ]
        self.check("each tool has annotations and an output schema", not lacking, lacking)
        return tools

    async def ticket(self, client):
        """Returns what an anonymous client adds to announce, after seeing that it is needed."""
        if not self.stateless_http:
            return {}
        refused = await client.call_tool("peers_announce", {"intent": "nameless", "paths": []})
        text = refused.content[0].text
        self.check(
            "an anonymous client without a ticket is refused",
            refused.is_error and text.startswith("refused: "),
            text,
        )
        board = await self.call(client, "peers_list", {})
        self.check("the board hands an anonymous client a ticket", bool(board.get("ticket")), board)
        return {"ticket": board.get("ticket", "")}

    async def two_clients(self, beta):
        board = await self.call(beta, "peers_list", {"checkouts": "this"})
        rows = [
            row
            for row in board["peers"]
            if (row.get("announcement") or {}).get("intent") == "rewrite the start"
        ]
        self.check(
            "the second client sees the first",
            len(rows) == 1 and rows[0]["announcement"]["paths"] == ["src"],
            board,
        )
        met = await self.call(
            beta, "peers_announce", {"intent": "fix main", "paths": ["./src/main.rs"]}
        )
        pairs = [collision["pairs"] for collision in met["collisions"]]
        self.check(
            "claims that meet are answered at once", pairs == [[["src/main.rs", "src"]]], met
        )
        board = await self.call(beta, "peers_list", {"checkouts": "this"})
        self.check("the board names the collision once", len(board["collisions"]) == 1, board)

    async def invalid_input(self, client):
        for what, arguments, named in (
            ("a missing argument", {"paths": []}, "intent"),
            ("an unknown argument", {"intent": "x", "paths": [], "colour": "red"}, "colour"),
            ("an argument of the wrong type", {"intent": "x", "paths": "src"}, "paths"),
            ("a path outside the checkout", {"intent": "x", "paths": ["../outside"]}, "paths"),
        ):
            result = await client.call_tool("peers_announce", arguments)
            text = result.content[0].text
            holds = (
                result.is_error
                and text.startswith("invalid_input: ")
                and named in text
                and result.structured_content is None
            )
            self.check(f"{what} is invalid_input and named", holds, result)

    async def unknown_tool(self, client):
        try:
            result = await client.call_tool("no_such_tool", {})
            self.check("an unknown tool is a protocol error", False, result)
        except MCPError as error:
            self.check(
                "an unknown tool is a protocol error", error.error.code == -32602, error.error
            )

    async def beta_left(self, alpha):
        board = None
        for _ in range(LEAVING_LOOKS):
            board = await self.call(alpha, "peers_list", {"checkouts": "this"}, counted=False)
            attached = [row for row in board["peers"] if row["attached"]]
            if len(attached) == 1:
                break
            await asyncio.sleep(0.05)
        gone = [
            row["announcement"]["intent"]
            for row in board["peers"]
            if not row["attached"] and "announcement" in row
        ]
        holds = board["count"] == 1 and gone == ["fix main"]
        self.check("a client that left is shown as gone, with what it announced", holds, board)

    async def call(self, client, tool, arguments, counted=True):
        result = await client.call_tool(tool, arguments)
        if result.is_error:
            raise RuntimeError(f"{tool}: {result.content[0].text}")
        if counted:
            same = json.loads(result.content[0].text) == result.structured_content
            self.check(f"{tool} says the same as text and as structure", same, result)
        return result.structured_content


async def main(binary):
    count = Count()
    lists = {}
    for transport in ("stdio", "http"):
        for generation in (LEGACY, MODERN):
            with World(binary) as world:
                try:
                    lists[transport, generation] = await Driver(
                        count, world, transport, generation
                    ).drive()
                except Exception as error:  # one combination that breaks must not hide the others
                    traceback.print_exception(error)
                    count.check(
                        f"python {transport} {generation}: runs to its end", False, repr(error)
                    )
    same = len({json.dumps(tools, sort_keys=True) for tools in lists.values()}) <= 1
    count.check(
        "python: every way in lists the same tools", same and len(lists) == 4, sorted(lists)
    )
    return count.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(asyncio.run(main(sys.argv[1])))
