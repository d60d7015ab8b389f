"""A model endpoint on loopback that plays a script instead of thinking.

It speaks what the three client programs speak to their providers: Anthropic's Messages, OpenAI's
Responses, Google's generateContent. What it is asked says how far the script is: one step for each
tool result that the conversation holds.
"""

import http.server
import json
import threading

# A tool that loads the others, which some programs announce by name alone.
LOADER = "ToolSearch"


class Call:
    """A step: the model wants this tool of the board called."""

    def __init__(self, tool, arguments, before=None):
        self.tool = tool
        self.arguments = arguments
        self.before = before
        """What is done before the program is told to call: kill the node, look at the board."""


class Model:
    """One endpoint for one run of one program."""

    def __init__(self, steps):
        self.steps = steps
        self.results = {}
        """What each step's call came back with, as the program told the model."""
        self.prompt = ""
        """All that the program said before its first tool result."""
        self.faults = []
        self.requests = 0
        self._done = set()
        self._lock = threading.Lock()
        handler = type("Bound", (Handler,), {"model": self})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def next(self, results, tools, said):
        """Returns what comes next as (tool, namespace, arguments, n), or None at the end."""
        with self._lock:
            self.requests += 1
            if not tools:
                return None
            loaded = [result for name, result in results if name != LOADER]
            self.results.update(enumerate(loaded))
            if not results:
                self.prompt = said
            n = len(loaded)
            if n >= len(self.steps):
                return None
            step = self.steps[n]
            found = find(tools, step.tool)
            if found is None:
                if find(tools, LOADER) and len(results) == n:
                    wanted = {each.tool for each in self.steps}
                    query = "select:" + ",".join(f"mcp__earshot__{tool}" for tool in wanted)
                    return LOADER, None, {"query": query}, "load"
                self.faults.append(f"the program declares no tool {step.tool}")
                return None
            # A program that asks twice for one answer must not kill two nodes.
            if step.before and n not in self._done:
                self._done.add(n)
                try:
                    step.before()
                except Exception as error:  # told where the checks are counted
                    self.faults.append(f"before step {n}: {error!r}")
            return *found, step.arguments, n


def find(tools, wanted):
    """Returns name and namespace of a declared tool: each program prefixes it in its own way."""
    for tool in tools:
        name = tool.get("name", "")
        if name == wanted or name.endswith("_" + wanted):
            return name, None
        for part in tool.get("tools") or []:
            if part.get("name", "") == wanted or part.get("name", "").endswith("_" + wanted):
                return part["name"], name
        for part in tool.get("functionDeclarations") or []:
            if part["name"] == wanted or part["name"].endswith("_" + wanted):
                return part["name"], None
    return None


def plain(content):
    """Returns the text of a tool result: a string, or blocks of text."""
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text", "") for block in content or [] if isinstance(block, dict))


class Handler(http.server.BaseHTTPRequestHandler):
    """Reads a request of any of the three dialects, and answers in it."""

    protocol_version = "HTTP/1.1"
    model = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send({"object": "list", "data": [], "models": []})

    def do_HEAD(self):
        self.send(b"")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        if "ount" in self.path:  # count_tokens, countTokens
            self.send({"input_tokens": 1, "totalTokens": 1})
        elif "/messages" in self.path:
            self.anthropic(body)
        elif "/responses" in self.path:
            self.openai(body)
        elif "enerateContent" in self.path:
            self.google(body)
        else:
            self.send({"error": {"message": "not found"}}, status=404)

    def send(self, body, kind="application/json", status=200):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, events):
        text = "".join(
            f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n"
            for name, data in events
        )
        self.send(text.encode(), "text/event-stream")

    def anthropic(self, body):
        names, results = {}, []
        for message in body["messages"]:
            for block in message["content"] if isinstance(message["content"], list) else []:
                if block.get("type") == "tool_use":
                    names[block["id"]] = block["name"]
                elif block.get("type") == "tool_result":
                    result = plain(block.get("content"))
                    results.append((names.get(block["tool_use_id"], ""), result))
        said = json.dumps(body["messages"]) + json.dumps(body.get("system"))
        step = self.model.next(results, body.get("tools") or [], said)
        block, delta, why = (
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "done"},
            "end_turn",
        )
        if step:
            name, _, arguments, n = step
            block = {"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
            why = "tool_use"
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        if not body.get("stream"):
            filled = [{"type": "text", "text": "done"}]
            self.send({**message, "content": filled, "stop_reason": "end_turn"})
            return
        ending = {"stop_reason": why, "stop_sequence": None}
        self.stream(
            [
                ("message_start", {"message": message}),
                ("content_block_start", {"index": 0, "content_block": block}),
                ("content_block_delta", {"index": 0, "delta": delta}),
                ("content_block_stop", {"index": 0}),
                ("message_delta", {"delta": ending, "usage": {"output_tokens": 1}}),
                ("message_stop", {}),
            ]
        )

    def openai(self, body):
        results = [
            ("", plain(item.get("output")))
            for item in body["input"]
            if item.get("type", "").endswith("_call_output")
        ]
        said = json.dumps(body["input"]) + json.dumps(body.get("instructions"))
        step = self.model.next(results, body.get("tools") or [], said)
        item = {
            "type": "message",
            "id": "message_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "done", "annotations": []}],
        }
        if step:
            name, namespace, arguments, n = step
            item = {
                "type": "function_call",
                "id": f"function_{n}",
                "call_id": f"call_{n}",
                "name": name,
                "arguments": json.dumps(arguments),
                "status": "completed",
            }
            if namespace:
                item["namespace"] = namespace
        answer = {"id": f"response_{len(results)}", "object": "response", "output": []}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        usage.update(input_tokens_details=None, output_tokens_details=None)
        whole = {**answer, "status": "completed", "output": [item], "usage": usage}
        self.stream(
            [
                ("response.created", {"response": {**answer, "status": "in_progress"}}),
                ("response.output_item.done", {"output_index": 0, "item": item}),
                ("response.completed", {"response": whole}),
            ]
        )

    def google(self, body):
        results = []
        for content in body["contents"]:
            for part in content.get("parts", []):
                if "functionResponse" in part:
                    answer = part["functionResponse"]
                    response = answer.get("response", {})
                    text = response.get("output", response)
                    text = text if isinstance(text, str) else json.dumps(text)
                    results.append((answer.get("name", ""), text))
        said = json.dumps(body["contents"]) + json.dumps(body.get("systemInstruction"))
        step = self.model.next(results, body.get("tools") or [], said)
        part = {"text": "done"}
        if step:
            name, _, arguments, _ = step
            part = {"functionCall": {"name": name, "args": arguments}}
        content = {"role": "model", "parts": [part]}
        answer = {
            "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {
                "promptTokenCount": 1,
                "candidatesTokenCount": 1,
                "totalTokenCount": 2,
            },
        }
        if "stream" in self.path:
            self.send(f"data: {json.dumps(answer)}\r\n\r\n".encode(), "text/event-stream")
        else:
            self.send(answer)
