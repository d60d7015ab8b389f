// Shows the OpenAPI document of this node, and sends a request where a person asks for one.
// Elements are built one by one: no text ever becomes markup.
"use strict";

const byId = (id) => document.getElementById(id);

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function resolve(document_, node) {
  let found = node;
  while (found && found.$ref) {
    found = found.$ref.slice(2).split("/").reduce((at, key) => at[key], document_);
  }
  return found ?? {};
}

// An example of a schema: what a person would fill in.
function example(document_, schema, depth = 0) {
  const plain = resolve(document_, schema);
  const any = plain.oneOf ?? plain.anyOf;
  if (plain.default !== undefined) return plain.default;
  if (plain.const !== undefined) return plain.const;
  if (plain.enum) return plain.enum[0];
  if (any) return example(document_, any[0], depth);
  const kind = Array.isArray(plain.type) ? plain.type[0] : plain.type;
  if (kind === "array") return depth > 3 ? [] : [example(document_, plain.items ?? {}, depth + 1)];
  if (kind === "integer" || kind === "number") return plain.minimum ?? 0;
  if (kind === "boolean") return false;
  if (kind === "string") return "";
  const made = {};
  for (const name of plain.required ?? []) {
    made[name] = example(document_, plain.properties?.[name] ?? {}, depth + 1);
  }
  return made;
}

function schemaLinks(text) {
  const shown = element("pre");
  const reference = /#\/components\/schemas\/([A-Za-z0-9._-]+)/g;
  let from = 0;
  for (const match of text.matchAll(reference)) {
    shown.append(text.slice(from, match.index));
    shown.append(element("a", { href: `#schema-${match[1]}`, textContent: match[1] }));
    from = match.index + match[0].length;
  }
  shown.append(text.slice(from));
  return shown;
}

function pretty(value) {
  return JSON.stringify(value, null, 2);
}

function inputs(document_, operation) {
  const fields = (operation.parameters ?? []).map((parameter) => resolve(document_, parameter));
  return fields.map((parameter) => {
    const schema = resolve(document_, parameter.schema ?? {});
    const hint = [parameter.required ? "required" : "", schema.type ?? "", parameter.in].filter(Boolean).join(", ");
    const control = element("input", { autocomplete: "off", placeholder: hint, required: Boolean(parameter.required) });
    const label = element("label", {}, `${parameter.name} — ${parameter.description ?? ""}`, control);
    return { parameter, schema, control, label };
  });
}

function request(method, path, fields, body) {
  const headers = {};
  const query = new URLSearchParams();
  for (const { parameter, schema, control } of fields) {
    if (control.value === "") continue;
    if (parameter.in === "header") headers[parameter.name] = control.value;
    else if (schema.type === "array") control.value.split(",").forEach((item) => query.append(parameter.name, item.trim()));
    else query.append(parameter.name, control.value);
  }
  if (byId("key").value !== "") headers["earshot-key"] = byId("key").value;
  if (body) headers["content-type"] = "application/json";
  const target = query.size > 0 ? `${path}?${query}` : path;
  return fetch(target, { method: method.toUpperCase(), headers, body: body?.value, credentials: "omit" });
}

async function show(answer, into) {
  const text = await answer.text();
  let shown = text;
  try {
    shown = pretty(JSON.parse(text));
  } catch {
    // Not JSON: shown as it came.
  }
  const id = answer.headers.get("earshot-request-id") ?? "";
  const line = element("p", { className: answer.ok ? "good" : "bad", textContent: `${answer.status} ${answer.statusText} ${id}` });
  into.replaceChildren(line, element("pre", { textContent: shown }));
}

function tryIt(document_, method, path, operation) {
  const fields = inputs(document_, operation);
  const content = resolve(document_, operation.requestBody)?.content?.["application/json"];
  const body = content && element("textarea", { spellcheck: false, value: pretty(example(document_, content.schema)) });
  const answer = element("div", { ariaLive: "polite" });
  const form = element("form", {}, ...fields.map((field) => field.label));
  if (body) form.append(element("label", {}, "Body", body), schemaLinks(pretty(content.schema)));
  form.append(element("p", {}, element("button", { textContent: "Send" })), answer);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    answer.replaceChildren(element("p", { textContent: "Waiting…" }));
    try {
      await show(await request(method, path, fields, body), answer);
    } catch (error) {
      answer.replaceChildren(element("p", { className: "bad", textContent: `No answer: ${error.message}` }));
    }
  });
  return form;
}

function answers(document_, operation) {
  const list = element("dl");
  for (const [status, response] of Object.entries(operation.responses ?? {})) {
    const { description, content } = resolve(document_, response);
    const said = element("dd", {}, description ?? "");
    for (const { schema } of Object.values(content ?? {})) {
      const name = schema?.$ref?.split("/").pop();
      if (name) said.append(" ", element("a", { href: `#schema-${name}`, textContent: name }));
    }
    list.append(element("div", {}, element("dt", { textContent: status }), said));
  }
  return list;
}

function operationOf(document_, method, path, operation) {
  const summary = element(
    "summary",
    {},
    element("span", { className: "method", textContent: method.toUpperCase() }),
    element("span", { className: "path", textContent: path }),
    " ",
    element("span", { className: "title", textContent: operation.summary ?? "" }),
  );
  const effect = operation["x-earshot-effect"];
  const made = element("details", {}, summary);
  made.dataset.words = `${method} ${path} ${operation.summary ?? ""} ${operation.description ?? ""}`.toLowerCase();
  // The inside is built when it is first opened: a long document stays quick.
  made.addEventListener("toggle", () => {
    if (made.childElementCount > 1) return;
    made.append(
      element("p", { textContent: operation.description ?? "" }),
      element("p", { className: "title", textContent: effect ? `Effect: ${effect}` : "" }),
      tryIt(document_, method, path, operation),
      element("h3", { textContent: "Answers" }),
      answers(document_, operation),
    );
  });
  return made;
}

function render(document_) {
  const sections = new Map((document_.tags ?? []).map((tag) => [tag.name, element("section", {}, element("h2", { textContent: tag.name }))]));
  for (const [path, item] of Object.entries(document_.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      sections.get(operation.tags?.[0])?.append(operationOf(document_, method, path, operation));
    }
  }
  byId("operations").append(...sections.values());
  for (const [name, schema] of Object.entries(document_.components.schemas)) {
    const made = element("details", { id: `schema-${name}` }, element("summary", { textContent: name }), schemaLinks(pretty(schema)));
    byId("schemas").append(made);
  }
  byId("state").textContent = `Release ${document_.info.version}, ${Object.keys(document_.paths).length} paths.`;
}

function filter() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const section of byId("operations").children) {
    let shown = 0;
    for (const operation of section.querySelectorAll("details")) {
      operation.hidden = !words.every((word) => operation.dataset.words.includes(word));
      shown += operation.hidden ? 0 : 1;
    }
    section.hidden = shown === 0;
  }
}

function openTarget() {
  const target = location.hash && byId(decodeURIComponent(location.hash.slice(1)));
  if (target) target.open = true;
}

async function start() {
  byId("settings").addEventListener("submit", (event) => event.preventDefault());
  byId("filter").addEventListener("input", filter);
  window.addEventListener("hashchange", openTarget);
  try {
    render(await (await fetch("/openapi.json", { credentials: "omit" })).json());
    openTarget();
  } catch (error) {
    byId("state").textContent = `The document could not be read: ${error.message}`;
  }
}

start();
