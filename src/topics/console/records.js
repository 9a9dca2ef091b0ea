// Records of a topic: by seq, by time, by tag, by text within a bound; one record in full.

import { button, empty, failed, field, h, show } from "./dom.js";
import { bytes, count, formatted, parseExactly, plainText, plural, preview, time } from "./format.js";
import { get, postForText, topicPath } from "./api.js";

const PAGE = 50;
const SEARCH_RECORDS_MAX = 20_000;
const FOUND_MAX = 200;

export function recordRow(record) {
  const row = h("details", { class: "record" }, h("summary", {},
    h("span", { class: "seq" }, count(record.$seq)), h("span", { class: "when" }, time(record.$ts)),
    h("span", { class: "tags", dir: "ltr" }, record.$tag !== undefined && h("span", { class: "tag" }, plainText(record.$tag)), record.$node !== undefined && h("span", { class: "tag node" }, plainText(record.$node))),
    h("span", { class: "data", dir: "ltr" }, preview(record.data))));
  row.addEventListener("toggle", () => {
    if (!row.open || row.children.length > 1) return;
    const text = formatted(record.data);
    const size = new Blob([JSON.stringify(record.data) ?? ""]).size;
    row.append(h("div", { class: "record-body" },
      h("p", { class: "dim" }, `seq ${count(record.$seq)} · `, time(record.$ts), ` · ${bytes(size)} of data`, record.$tag !== undefined && ` · tag ${plainText(record.$tag)}`, record.$node !== undefined && ` · node ${plainText(record.$node)}`,
        " ", button("Copy", async () => { await navigator.clipboard.writeText(JSON.stringify(record.data)); }, "quiet")),
      h("pre", { dir: "ltr", tabindex: 0, "aria-label": `Data of record ${record.$seq}` }, text),
      record.meta && [h("h3", {}, "meta"), h("pre", { dir: "ltr", tabindex: 0, "aria-label": "meta" }, formatted(record.meta))]));
  });
  return row;
}

export function tombstoneRow(gap) {
  return h("div", { class: "tombstone", role: "note" }, h("strong", {}, `Lost: seq ${count(gap.gap_from)} – ${count(gap.gap_to)}`),
    ` (${plural(gap.gap_to - gap.gap_from + 1, "seq")}), reason ${gap.reason}`);
}

// Records from after `from`, ascending, with tombstones where they belong.
async function read(topic, asked, signal) {
  return parseExactly(await postForText(topicPath(topic, "/diff"), { include_tags: true, ...asked }, signal));
}

export function browseTab(topic) {
  let page = { from: 0, next: 0 };
  let search = null;
  const seq = h("input", { type: "number", min: 0, inputmode: "numeric" });
  const when = h("input", { type: "datetime-local", step: 1 });
  const tag = h("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder: "vip:*" });
  const text = h("input", { type: "search", autocomplete: "off", spellcheck: "false" });
  const list = h("div", { class: "records", "aria-live": "off" });
  const status = h("p", { class: "dim", role: "status" });
  const older = button("← Older", () => back(page.from));
  const newer = button("Newer →", () => forward(page.next));
  const halt = button("Stop searching", () => search?.abort(), "danger", { hidden: true });

  function wishes() {
    const asked = {};
    if (tag.value.trim()) asked.match = tag.value.trim();
    return asked;
  }

  async function forward(from, more = {}) {
    try {
      const reply = await read(topic, { from_seq: Math.max(0, from), limit: PAGE, ...wishes(), ...more });
      display(from, reply);
    } catch (error) { failed(error); }
  }

  // The page that ends at `end`. Deleted stretches may leave it short, so it looks further back, a few times.
  async function back(end) {
    try {
      let width = PAGE;
      for (let tries = 0; ; tries += 1) {
        const from = Math.max(0, end - width);
        const reply = await read(topic, { from_seq: from, to_seq: Math.max(1, end), limit: 1000, ...wishes() });
        const whole = reply.next_from_seq >= Math.min(end, reply.head_seq);
        if (from === 0 || tries === 8 || reply.records.length >= PAGE || !whole) {
          const cut = whole && reply.records.length > PAGE ? reply.records.slice(-PAGE) : reply.records;
          const begin = cut.length < reply.records.length ? cut[0].$seq - 1 : from;
          display(begin, { ...reply, records: cut, tombstone: cut.length < reply.records.length ? null : reply.tombstone });
          return;
        }
        width *= 4;
      }
    } catch (error) { failed(error); }
  }

  function display(from, reply) {
    page = { from, next: reply.next_from_seq };
    const rows = reply.records.map(recordRow);
    if (reply.tombstone) rows.splice(reply.records.findIndex((one) => one.$seq > reply.tombstone.gap_to) >>> 0, 0, tombstoneRow(reply.tombstone));
    show(list, rows.length ? rows : empty("No records here.", reply.head_seq === 0 ? "Nothing was written yet." : "What was here was deleted, or does not match the tag."));
    older.disabled = from <= 0;
    newer.disabled = reply.next_from_seq >= reply.head_seq;
    const first = reply.records[0]?.$seq;
    status.textContent = reply.records.length ? `${plural(reply.records.length, "record")}, seq ${count(first)} – ${count(reply.records.at(-1).$seq)} of ${count(reply.head_seq)}` : "";
  }

  async function latest() {
    try { await back((await get(topicPath(topic, "?touch=false"))).head_seq); } catch (error) { if (error.status !== 404) failed(error); }
  }

  async function find() {
    search?.abort();
    search = new AbortController();
    const { signal } = search;
    const wanted = text.value;
    const found = [];
    let from = Math.max(0, Number(seq.value || 1) - 1);
    let seen = 0;
    let more = when.value ? { from_ts: new Date(when.value).getTime() } : {};
    let reply = null;
    halt.hidden = false;
    show(list);
    try {
      do {
        reply = await read(topic, { from_seq: from, limit: 500, ...wishes(), ...more }, signal);
        if (reply.tombstone) list.append(tombstoneRow(reply.tombstone));
        for (const record of reply.records) {
          seen += 1;
          if (!JSON.stringify([record.data, record.meta ?? null, record.$tag ?? "", record.$node ?? ""]).includes(wanted)) continue;
          found.push(record.$seq);
          list.append(recordRow(record));
          if (found.length >= FOUND_MAX) break;
        }
        from = reply.next_from_seq;
        more = {};
        status.textContent = `Searching: ${plural(found.length, "match", "matches")} in ${plural(seen, "record")}…`;
      } while (!reply.caught_up && found.length < FOUND_MAX && seen < SEARCH_RECORDS_MAX);
    } catch (error) { if (error.name !== "AbortError") failed(error); }
    halt.hidden = true;
    const ended = signal.aborted ? "stopped" : reply?.caught_up ? "searched to the head" : `stopped at seq ${count(from)}; search on from there`;
    status.textContent = `${plural(found.length, "match", "matches")} for “${plainText(wanted)}” in ${plural(seen, "record")}; ${ended}.`;
    if (!found.length && !list.children.length) show(list, empty("Nothing found.", `${plural(seen, "record")} searched.`));
    page = { from: from - 1, next: from };
    if (!reply?.caught_up && !signal.aborted) seq.value = from + 1;
  }

  function go(event) {
    event?.preventDefault();
    if (text.value) find();
    else if (when.value) forward(0, { from_ts: new Date(when.value).getTime() });
    else if (seq.value) forward(Number(seq.value) - 1);
    else latest();
  }

  const element = h("div", {}, h("form", { class: "bar fields", onsubmit: go },
    field("From seq", seq), field("From time", when), field("Tag, or prefix*", tag), field(`Text (within ${count(SEARCH_RECORDS_MAX)} records)`, text),
    h("div", { class: "actions" }, h("button", { class: "primary" }, "Show"), button("Newest", () => { seq.value = when.value = text.value = ""; latest(); }), halt)),
    status, list, h("div", { class: "bar" }, older, newer));
  latest();
  return { element, stop: () => search?.abort(), goTo: (at) => { seq.value = at; when.value = text.value = ""; go(); } };
}
