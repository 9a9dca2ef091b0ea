// The live tail of a topic: a watch session read by fetch, taken up again where it was when the server or the tab comes back.

import { button, h, show } from "./dom.js";
import { count, parseExactly, plural } from "./format.js";
import { post, readEvents } from "./api.js";
import { recordRow, tombstoneRow } from "./records.js";

const ROWS_MAX = 500;
const RETRY_MS = 1000;

export function tailTab(topic) {
  let stopped = false;
  let paused = false;
  let stream = null;
  let cursor = null;
  let begin = null; // the seq the tail began after: where to go on before there was any event
  let shown = 0;
  let held = [];
  let dropped = 0;
  const list = h("div", { class: "records tail", role: "log", "aria-label": `Live records of ${topic}`, "aria-live": "off" });
  const status = h("span", { class: "dim", role: "status" }, "connecting…");
  const pause = button("Pause", () => {
    paused = !paused;
    pause.textContent = paused ? "Resume" : "Pause";
    pause.setAttribute("aria-pressed", paused);
    if (!paused) {
      if (dropped) list.prepend(h("div", { class: "note" }, `${plural(dropped, "record")} came while it was paused and are not shown here; they are in the topic.`));
      add(held);
      held = [];
      dropped = 0;
    }
    tell();
  }, "primary", { "aria-pressed": "false" });

  function tell(text) {
    status.textContent = text ?? (paused ? `paused; ${plural(held.length + dropped, "record")} waiting` : `live; ${plural(shown, "record")} since you opened this`);
  }

  function add(rows) {
    if (rows.length) list.querySelector(".empty")?.remove();
    list.prepend(...rows.slice().reverse());
    while (list.children.length > ROWS_MAX) list.lastChild.remove();
  }

  function got(rows) {
    if (!paused) { add(rows); return; }
    held.push(...rows);
    if (held.length > ROWS_MAX) { dropped += held.length - ROWS_MAX; held = held.slice(-ROWS_MAX); }
  }

  function onEvent(kind, data, id) {
    const event = parseExactly(data);
    if (kind === "record") { shown += event.records.length; got(event.records.map(recordRow)); }
    if (kind === "tombstone") got([tombstoneRow(event)]);
    if (kind === "topic-deleted") { got([h("div", { class: "note" }, "The topic was deleted.")]); stopped = true; stream.abort(); }
    if (kind === "error" && event.code === 429) got([h("div", { class: "note" }, "The server is under pressure and holds this tail back for a moment.")]);
    if (id) cursor = id;
    tell();
  }

  async function run() {
    while (!stopped) {
      if (document.hidden) await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
      if (stopped) return;
      stream = new AbortController();
      try {
        const session = await post("/v0/watch", { topics: { [topic]: begin === null ? { tail: true } : { from_seq: begin } }, include_tags: true, limit: 100, ...(cursor && { cursor }) }, stream.signal);
        begin ??= session.topics?.[topic]?.from_seq ?? null;
        tell();
        if (!list.children.length) show(list, h("div", { class: "empty" }, h("p", { class: "empty-title" }, "Waiting for the next record."), h("p", {}, `The head is at seq ${count(session.topics?.[topic]?.head_seq ?? 0)}.`)));
        await readEvents(session.stream_url, stream.signal, onEvent);
      } catch (error) {
        if (stopped) return;
        if (error.name !== "AbortError") {
          // Another 404 is that of a session the server has forgotten, as after a restart: a new one goes on.
          if (error.code === "topic_not_found" || error.status === 403) { tell(error.message); return; }
          tell(`The connection is gone (${error.message ?? "cut"}). Trying again; nothing will be missed.`);
        }
      }
      if (!stopped && !document.hidden) { tell("Connecting again…"); await new Promise((resolve) => setTimeout(resolve, RETRY_MS)); }
    }
  }

  const hide = () => { if (document.hidden) stream?.abort(); };
  document.addEventListener("visibilitychange", hide);
  run();
  return {
    element: h("div", {}, h("div", { class: "bar" }, pause, button("Clear", () => show(list)), status), list),
    stop() { stopped = true; stream?.abort(); document.removeEventListener("visibilitychange", hide); },
  };
}
