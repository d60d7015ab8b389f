// Drives the binary with both official TypeScript SDKs: both transports, both generations.
//
// usage: node drive.mjs BINARY NODE_MODULES

import { createRequire } from "node:module";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

import { Count, World } from "./world.mjs";

const LEGACY = "2025-11-25";
const MODERN = "2026-07-28";
const LEAVING_LOOKS = 100;

const [binary, modules] = process.argv.slice(2);
if (!modules) {
  console.error("usage: node drive.mjs BINARY NODE_MODULES");
  process.exit(2);
}
const load = createRequire(join(modules, "earshot.cjs"));

/** The SDK of the first generation. */
function sdk1() {
  const { Client } = load("@modelcontextprotocol/sdk/client/index.js");
  const { StdioClientTransport } = load("@modelcontextprotocol/sdk/client/stdio.js");
  const { StreamableHTTPClientTransport } = load(
    "@modelcontextprotocol/sdk/client/streamableHttp.js",
  );
  return {
    label: "sdk 1",
    generation: LEGACY,
    client: (name) => new Client({ name, version: "1" }),
    // Over stdio this SDK keeps the version to itself.
    version: (_client, transport) => transport.protocolVersion,
    StdioClientTransport,
    StreamableHTTPClientTransport,
  };
}

/** The SDK of the second generation, which finds out what a server speaks. */
function sdk2(generation) {
  const { Client, StreamableHTTPClientTransport } = load("@modelcontextprotocol/client");
  const { StdioClientTransport } = load("@modelcontextprotocol/client/stdio");
  const mode = generation === MODERN ? "auto" : "legacy";
  return {
    label: "sdk 2",
    generation,
    client: (name) => new Client({ name, version: "1" }, { versionNegotiation: { mode } }),
    version: (client) => client.getNegotiatedProtocolVersion(),
    StdioClientTransport,
    StreamableHTTPClientTransport,
  };
}

/** Two clients of one kind in one checkout. */
class Driver {
  constructor(count, world, sdk, transport) {
    this.count = count;
    this.world = world;
    this.sdk = sdk;
    this.transport = transport;
    this.statelessHttp = transport === "http" && sdk.generation === MODERN;
    this.status = world.ensure();
  }

  check(name, holds, why) {
    this.count.check(
      `typescript ${this.sdk.label} ${this.transport} ${this.sdk.generation}: ${name}`,
      holds,
      why,
    );
  }

  async connect(name, headers = {}) {
    const client = this.sdk.client(name);
    const transport =
      this.transport === "stdio"
        ? new this.sdk.StdioClientTransport({
            command: this.world.binary,
            args: ["mcp"],
            env: this.world.environment,
            cwd: this.world.repository,
            stderr: "ignore",
          })
        : new this.sdk.StreamableHTTPClientTransport(new URL(this.status.mcp_url), {
            requestInit: { headers },
          });
    await client.connect(transport);
    return { client, transport };
  }

  async leave({ client, transport }) {
    if (this.transport === "http" && this.sdk.generation === LEGACY)
      await transport.terminateSession();
    await client.close();
  }

  async drive() {
    const alpha = await this.connect("alpha");
    try {
      this.opening(alpha);
      const tools = await this.tools(alpha.client);
      const ticket = await this.ticket(alpha.client);
      const announced = await this.call(alpha.client, "peers_announce", {
        intent: "rewrite the start",
        paths: ["src"],
        ...ticket,
      });
      this.check("a lone announcement meets nobody", announced.collisions?.length === 0, announced);
      const beta = await this.connect(
        "beta",
        this.statelessHttp ? { "Earshot-Session": "beta-session" } : {},
      );
      try {
        await this.twoClients(beta.client);
        await this.invalidInput(beta.client);
        await this.unknownTool(beta.client);
      } finally {
        await this.leave(beta);
      }
      if (!this.statelessHttp) await this.betaLeft(alpha.client);
      return tools;
    } finally {
      await this.leave(alpha);
    }
  }

  opening({ client, transport }) {
    const version = this.sdk.version(client, transport);
    if (version !== undefined || this.sdk.label === "sdk 2") {
      this.check("the generation is the one asked for", version === this.sdk.generation, version);
    }
    this.check(
      "the server says who it is",
      client.getServerVersion()?.name === "earshot",
      client.getServerVersion(),
    );
    const instructions = client.getInstructions() ?? "";
    this.check(
      "instructions tell an arriving agent what to do",
      instructions.includes("peers_announce"),
      instructions,
    );
  }

  async tools(client) {
    const { tools } = await client.listTools();
    const names = tools.map((tool) => tool.name);
    const odd = oddTools(tools);
    this.check("no tool makes a client drop the list", odd.length === 0, odd);
    const board = ["peers_announce", "peers_list"].every((name) => names.includes(name));
    this.check("the board's tools are listed", board, names);
    const lacking = tools
      .filter((tool) => !tool.annotations || !tool.outputSchema)
      .map((tool) => tool.name);
    this.check("each tool has annotations and an output schema", lacking.length === 0, lacking);
    return names;
  }

  /** Returns what an anonymous client adds to announce, after seeing that it is needed. */
  async ticket(client) {
    if (!this.statelessHttp) return {};
    const refused = await client.callTool({
      name: "peers_announce",
      arguments: { intent: "nameless", paths: [] },
    });
    const text = refused.content[0].text;
    this.check(
      "an anonymous client without a ticket is refused",
      refused.isError && text.startsWith("refused: "),
      text,
    );
    const board = await this.call(client, "peers_list", {});
    this.check("the board hands an anonymous client a ticket", Boolean(board.ticket), board);
    return { ticket: board.ticket };
  }

  async twoClients(beta) {
    let board = await this.call(beta, "peers_list", { checkouts: "this" });
    const rows = board.peers.filter((row) => row.announcement?.intent === "rewrite the start");
    this.check(
      "the second client sees the first",
      rows.length === 1 && rows[0].announcement.paths[0] === "src",
      board,
    );
    const met = await this.call(beta, "peers_announce", {
      intent: "fix main",
      paths: ["./src/main.rs"],
    });
    const pairs = JSON.stringify(met.collisions.map((collision) => collision.pairs));
    this.check("claims that meet are answered at once", pairs === '[[["src/main.rs","src"]]]', met);
    board = await this.call(beta, "peers_list", { checkouts: "this" });
    this.check("the board names the collision once", board.collisions.length === 1, board);
  }

  async invalidInput(client) {
    for (const [what, input, named] of [
      ["a missing argument", { paths: [] }, "intent"],
      ["an unknown argument", { intent: "x", paths: [], colour: "red" }, "colour"],
      ["an argument of the wrong type", { intent: "x", paths: "src" }, "paths"],
      ["a path outside the checkout", { intent: "x", paths: ["../outside"] }, "paths"],
    ]) {
      const result = await client.callTool({ name: "peers_announce", arguments: input });
      const text = result.content[0].text;
      const holds =
        result.isError &&
        text.startsWith("invalid_input: ") &&
        text.includes(named) &&
        result.structuredContent === undefined;
      this.check(`${what} is invalid_input and named`, holds, result);
    }
  }

  async unknownTool(client) {
    try {
      const result = await client.callTool({ name: "no_such_tool", arguments: {} });
      this.check("an unknown tool is a protocol error", false, result);
    } catch (error) {
      this.check("an unknown tool is a protocol error", error.code === -32602, String(error));
    }
  }

  async betaLeft(alpha) {
    let board;
    for (let look = 0; look < LEAVING_LOOKS; look += 1) {
      board = await this.call(alpha, "peers_list", { checkouts: "this" }, false);
      if (board.peers.filter((row) => row.attached).length === 1) break;
      await pause(50);
    }
    const gone = board.peers
      .filter((row) => !row.attached && row.announcement)
      .map((row) => row.announcement.intent);
    const holds = board.count === 1 && gone.length === 1 && gone[0] === "fix main";
    this.check("a client that left is shown as gone, with what it announced", holds, board);
  }

  async call(client, name, input, counted = true) {
    const result = await client.callTool({ name, arguments: input });
    if (result.isError) throw new Error(`${name}: ${result.content[0].text}`);
    if (counted) {
      const same =
        JSON.stringify(JSON.parse(result.content[0].text)) ===
        JSON.stringify(result.structuredContent);
      this.check(`${name} says the same as text and as structure`, same, result);
    }
    return result.structuredContent;
  }
}

/** Returns what would make a client drop the list. */
function oddTools(tools) {
  const odd = [];
  for (const { name, inputSchema: schema } of tools) {
    const union = ["anyOf", "oneOf", "allOf", "$ref"].some((word) => word in schema);
    if (schema.type !== "object" || union) odd.push(`TOP ${name}`);
    if (!/^[A-Za-z_][A-Za-z0-9_-]{0,45}$/.test(name)) odd.push(`NAME ${name}`);
    for (const part of objects(schema)) {
      if (part.type === "array" && !("items" in part)) odd.push(`ITEMS ${name}`);
    }
    for (const [field, value] of Object.entries(schema.properties ?? {})) {
      if (!["type", "enum", "anyOf"].some((word) => word in value))
        odd.push(`NOTYPE ${name}.${field}`);
    }
  }
  return odd;
}

/** Yields every object inside a JSON value. */
function* objects(value) {
  if (value === null || typeof value !== "object") return;
  if (!Array.isArray(value)) yield value;
  for (const part of Object.values(value)) yield* objects(part);
}

const count = new Count();
const lists = [];
for (const sdk of [sdk1(), sdk2(LEGACY), sdk2(MODERN)]) {
  for (const transport of ["stdio", "http"]) {
    const world = new World(binary);
    try {
      lists.push(JSON.stringify(await new Driver(count, world, sdk, transport).drive()));
    } catch (error) {
      console.log(error);
      count.check(
        `typescript ${sdk.label} ${transport} ${sdk.generation}: runs to its end`,
        false,
        String(error),
      );
    } finally {
      world.close();
    }
  }
}
count.check(
  "typescript: every way in lists the same tools",
  new Set(lists).size === 1 && lists.length === 6,
  lists,
);
process.exitCode = count.close();
