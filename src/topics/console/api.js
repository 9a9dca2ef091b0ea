// The API behind the console: /v0, as documented. The key is kept here and nowhere else: a reload asks for it again.

let key = null;
export const may = { required: false, scopes: [], prefixes: [] };

export class ApiError extends Error {
  constructor(status, code, message, detail) {
    super(message);
    this.status = status;
    this.code = code;
    this.detail = detail ?? {};
  }
}

export function allowed(...scopes) {
  return scopes.every((scope) => may.scopes.includes(scope));
}

export function hasKey() {
  return key !== null;
}

// Tries a key (null: none) and remembers what it may do.
export async function useKey(candidate) {
  const before = key;
  key = candidate;
  try {
    Object.assign(may, await get("/v0/key"));
  } catch (error) {
    key = before;
    throw error;
  }
}

export function forgetKey() {
  key = null;
  Object.assign(may, { required: true, scopes: [], prefixes: [] });
}

function headers(more) {
  return key === null ? more : { ...more, Authorization: `Bearer ${key}` };
}

async function send(method, path, body, signal, accept = "application/json") {
  let reply;
  try {
    reply = await fetch(path, {
      method, signal, cache: "no-store", credentials: "omit",
      headers: headers(body === undefined ? { Accept: accept } : { Accept: accept, "Content-Type": "application/json" }),
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The server does not answer. Trying again until it does.");
  }
  if (!reply.ok) throw await refusal(reply);
  return reply;
}

async function refusal(reply) {
  let said = {};
  try { said = (await reply.json()).error ?? {}; } catch { /* no JSON: the status has to do */ }
  return new ApiError(reply.status, said.code ?? "", said.message ?? `The server answered ${reply.status}.`, said.detail);
}

export async function get(path, signal) {
  return (await send("GET", path, undefined, signal)).json();
}

export async function post(path, body, signal) {
  return (await send("POST", path, body, signal)).json();
}

export async function put(path, body) {
  return (await send("PUT", path, body)).json();
}

export async function remove(path) {
  return (await send("DELETE", path)).json();
}

export async function postForText(path, body, signal) {
  return (await send("POST", path, body, signal)).text();
}

export function topicPath(topic, rest = "") {
  return `/v0/topics/${encodeURIComponent(topic)}${rest}`;
}

// The event stream of a watch session by fetch, so that the key goes in a header. Ends when the stream does.
export async function readEvents(path, signal, onEvent) {
  const reply = await send("GET", path, undefined, signal, "text/event-stream");
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const fields = { event: "message", data: "" };
      for (const line of event.split("\n")) {
        const at = line.indexOf(":");
        if (at > 0) fields[line.slice(0, at)] = line.slice(at + 1).trimStart();
      }
      if (fields.data) onEvent(fields.event, fields.data, fields.id);
    }
  }
}
