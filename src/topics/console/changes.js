// What changes a topic: publish, delete (after a preview), configure (after a look at what would go).

import { ask, button, card, empty, failed, field, h, notice, select, show } from "./dom.js";
import { bytes, count, duration, formatted, plural } from "./format.js";
import { allowed, get, post, put, remove, topicPath } from "./api.js";
import { refresh } from "./feed.js";
import { recordRow } from "./records.js";

export function publishTab(topic) {
  const data = h("textarea", { rows: 8, spellcheck: "false", dir: "ltr", required: true, value: '{\n  "hello": "world"\n}' });
  const tag = h("input", { autocomplete: "off", spellcheck: "false" });
  const node = h("input", { autocomplete: "off", spellcheck: "false", value: "console" });
  const meta = h("input", { autocomplete: "off", spellcheck: "false", placeholder: '{"trace": "abc"}', dir: "ltr" });
  const said = h("p", { role: "status" });

  async function publish(event) {
    event.preventDefault();
    try {
      for (const [text, name] of [[data.value, "Data"], [meta.value || "{}", "Meta"]]) {
        try { JSON.parse(text); } catch (error) { throw new Error(`${name} is not JSON: ${error.message}`); }
      }
      // The text goes as it was typed: the server keeps it byte for byte.
      const parts = [`"data":${data.value}`];
      if (tag.value) parts.push(`"tag":${JSON.stringify(tag.value)}`);
      if (node.value) parts.push(`"node":${JSON.stringify(node.value)}`);
      if (meta.value) parts.push(`"meta":${meta.value}`);
      const reply = await post(topicPath(topic), `{"records":[{${parts.join(",")}}],"create":false}`);
      show(said, h("span", { class: "good-text" }, `Published as seq ${count(reply.first_seq)}.`));
      refresh();
    } catch (error) { show(said, h("span", { class: "bad-text" }, error.message)); }
  }

  return { element: h("form", { onsubmit: publish }, field("Data (JSON)", data, "Ctrl+Enter publishes"),
    h("div", { class: "fields" }, field("Tag", tag), field("Node", node, "who wrote it"), field("Meta", meta, "a JSON object, optional")),
    h("div", { class: "actions" }, h("button", { class: "primary" }, "Publish")), said),
  ...watchEnter(data) };
}

function watchEnter(area) {
  area.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) area.form.requestSubmit(); });
  return {};
}

export function deleteTab(topic) {
  const before = h("input", { type: "number", min: 1, inputmode: "numeric", oninput: forget });
  const match = h("input", { autocomplete: "off", spellcheck: "false", placeholder: "vip:*", oninput: forget });
  const result = h("div", { role: "status" });

  function forget() { show(result); }

  function wish() {
    const body = {};
    if (before.value) body.before_seq = Number(before.value);
    if (match.value) body.match = match.value;
    return body;
  }

  async function look(event) {
    event.preventDefault();
    const body = wish();
    try {
      const found = await post(topicPath(topic, "/delete/preview"), body);
      show(result, found.count === 0 ? empty("Nothing would be deleted.", "No live record matches.") : [
        h("p", {}, h("strong", {}, `${plural(found.count, "record")} would go`), `, ${bytes(found.bytes)}, seq ${count(found.first_seq)} to ${count(found.last_seq)}. For every reader at once, without a tombstone, for good.`),
        h("div", { class: "records" }, found.sample.map(recordRow)), found.count > found.sample.length && h("p", { class: "dim" }, `… and ${count(found.count - found.sample.length)} more`),
        h("div", { class: "actions" }, button(`Delete ${plural(found.count, "record")}`, () => commit(body, found), "danger"))]);
    } catch (error) { show(result, h("p", { class: "bad-text" }, error.message)); }
  }

  async function commit(body, found) {
    const sure = await ask("Delete records?", h("p", {}, `${plural(found.count, "record")} of ${topic}, for good. What was written since the preview and fits goes too.`), `Delete ${count(found.count)}`);
    if (!sure) return;
    try {
      const gone = await post(topicPath(topic, "/delete"), body);
      notice(`${plural(gone.deleted, "record")} deleted.`);
      show(result);
      refresh();
    } catch (error) { failed(error); }
  }

  async function drop() {
    const name = h("input", { "aria-label": "Name of the topic", autocomplete: "off" });
    const sure = await ask("Delete the whole topic?", [h("p", {}, `${topic}, its records, cursors and routers, for good. Type its name to go on.`), name], "Delete topic");
    if (!sure) return;
    if (name.value !== topic) { notice("The name was not the same; nothing was deleted.", "bad"); return; }
    try {
      await remove(topicPath(topic));
      notice(`${topic} is deleted.`);
      location.hash = "#/overview";
      refresh();
    } catch (error) { failed(error); }
  }

  return { element: h("div", {}, h("form", { onsubmit: look },
    h("div", { class: "fields" }, field("Before seq", before, "records with a smaller seq"), field("Tag, or prefix*", match, "with both: those that satisfy both")),
    h("div", { class: "actions" }, h("button", { class: "primary" }, "Preview"))), result,
    card("The whole topic", h("p", {}, "Deletes the topic with all it holds. A later one of the same name begins at seq 1."), button("Delete topic…", drop, "danger"))) };
}

const NUMBERS = [
  ["cap_records", "Most records", "0: no cap"], ["cap_bytes", "Most bytes", "0: no cap"], ["ttl_ms", "Kept for, ms", "0: for ever"],
  ["idempotency_window_ms", "Idempotency window, ms", "how long a write's key is remembered"],
];
const QUEUE_NUMBERS = [
  ["lease_ms", "Lease, ms", "100 to 86400000"], ["max_deliveries", "Most deliveries", "0: no dead letters"], ["claim_jitter_ms", "Claim window, ms", "0 to 5000"],
];

export function configTab(topic) {
  const element = h("div", {}, h("p", { class: "dim" }, "Loading…"));
  load();

  async function load() {
    let state;
    try { state = await get(topicPath(topic, "?touch=false")); } catch (error) { show(element, h("p", { class: "bad-text" }, error.message)); return; }
    const before = state.config;
    if (!allowed("admin")) {
      show(element, h("p", { class: "dim" }, "This key may look at the configuration, not change it (scope admin)."), h("pre", { tabindex: 0, "aria-label": "Configuration" }, formatted(before)));
      return;
    }
    const inputs = Object.fromEntries([...NUMBERS, ...(state.type === "queue" ? QUEUE_NUMBERS : [])].map(([name]) =>
      [name, h("input", { type: "number", min: 0, value: before[name] })]));
    inputs.discard = select([["old", "evict the oldest"], ["reject", "refuse the write"]], before.discard);
    inputs.durability = select(["ephemeral", "memory", "disk", "fsync"].map((name) => [name, name]), before.durability);
    inputs.priority = h("input", { type: "number", min: -1000, max: 1000, value: before.priority ?? "", placeholder: "automatic" });
    if (state.type === "queue") inputs.dead_letter = h("input", { value: before.dead_letter ?? "", placeholder: "none", autocomplete: "off" });
    const labelled = (list) => list.map(([name, label, note]) => field(label, inputs[name], note));
    const result = h("div", { role: "status" });

    function change() {
      const patch = {};
      for (const [name, input] of Object.entries(inputs)) {
        const value = name === "discard" || name === "durability" ? input.value
          : name === "dead_letter" ? input.value || null
          : name === "priority" ? (input.value === "" ? null : Number(input.value)) : Number(input.value);
        if (value !== (before[name] ?? null)) patch[name] = value;
      }
      return patch;
    }

    async function look(event) {
      event.preventDefault();
      const patch = change();
      if (!Object.keys(patch).length) { show(result, h("p", { class: "dim" }, "Nothing is changed.")); return; }
      show(result, h("p", { class: "dim" }, "Finding out what would be deleted…"));
      try {
        const gone = await evicted(topic, before, patch);
        show(result, h("ul", {}, Object.entries(patch).map(([name, value]) => h("li", {}, h("code", {}, name), `: ${JSON.stringify(before[name] ?? null)} → ${JSON.stringify(value)}`))),
          gone.count === 0 ? h("p", { class: "good-text" }, "No record will be evicted.")
            : h("p", { class: "bad-text" }, h("strong", {}, `${plural(gone.count, "record")} will be evicted at once`), ` (${bytes(gone.bytes)}, by ${gone.why}). Readers who come later get a tombstone.${gone.leased ? ` ${count(gone.leased)} of them are leased: their workers will settle nothing.` : ""}`),
          h("div", { class: "actions" }, button(gone.count ? `Apply and evict ${count(gone.count)}` : "Apply", () => apply(patch, gone), gone.count ? "danger" : "primary")));
      } catch (error) { show(result, h("p", { class: "bad-text" }, error.message)); }
    }

    async function apply(patch, gone) {
      if (gone.count && !(await ask("Evict records?", h("p", {}, `${plural(gone.count, "record")} of ${topic} will be lost.`), "Apply"))) return;
      try {
        await put(topicPath(topic), patch);
        notice(`${topic} is configured.`);
        refresh();
        load();
      } catch (error) { failed(error); }
    }

    show(element, h("form", { onsubmit: look, oninput: () => show(result) }, h("div", { class: "fields" }, labelled(NUMBERS),
      field("At a cap", inputs.discard), field("Durability", inputs.durability), field("Priority", inputs.priority, "−1000 to 1000; empty: by its readers"),
      state.type === "queue" && [labelled(QUEUE_NUMBERS), field("Dead letters go to", inputs.dead_letter, "another topic")]),
      h("div", { class: "actions" }, h("button", { class: "primary" }, "Preview change"))), result);
  }
  return { element };
}

// How many records a change would evict now. Previews of deletes answer it exactly, and change nothing.
export async function evicted(topic, before, patch) {
  const config = { ...before, ...patch };
  const state = await get(topicPath(topic, "?touch=false"));
  const none = { count: 0, bytes: 0, why: "" };
  const upTo = async (seq, why) => (seq <= state.earliest_seq ? none : { ...(await post(topicPath(topic, "/delete/preview"), { before_seq: seq })), why });
  const found = [none];
  if (patch.ttl_ms > 0) {
    const reply = await post(topicPath(topic, "/diff"), { from_ts: Date.now() - patch.ttl_ms, limit: 1, include_meta: false });
    found.push(await upTo(reply.records[0]?.$seq ?? state.head_seq + 1, `the age of ${duration(patch.ttl_ms)}`));
  }
  const tight = config.discard === "old" && ("discard" in patch || "cap_records" in patch || "cap_bytes" in patch);
  if (tight && config.cap_records > 0 && state.count > config.cap_records)
    found.push(await upTo(await smallest(state, async (seq) => state.count - (await upTo(seq)).count <= config.cap_records), "the cap of records"));
  if (tight && config.cap_bytes > 0 && state.bytes > config.cap_bytes)
    found.push(await upTo(await smallest(state, async (seq) => state.bytes - (await upTo(seq)).bytes <= config.cap_bytes), "the cap of bytes"));
  const most = found.reduce((left, right) => (right.count > left.count ? right : left));
  return state.queue && most.count ? { ...most, leased: await leasedUpTo(topic, most.last_seq) } : most;
}

// How many jobs up to a seq somebody works on.
async function leasedUpTo(topic, seq) {
  let leased = 0;
  let cursor = "";
  do {
    const page = await get(topicPath(topic, `/leases${cursor && `?cursor=${encodeURIComponent(cursor)}`}`));
    leased += page.leases.filter((lease) => lease.$seq <= seq).length;
    cursor = page.next_cursor ?? "";
  } while (cursor);
  return leased;
}

// The smallest seq for which `enough` holds, by halving; it holds at the head's end.
async function smallest(state, enough) {
  let low = state.earliest_seq;
  let high = state.head_seq + 1;
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (await enough(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
