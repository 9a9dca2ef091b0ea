// The first page: every topic in one line, and how the server is.

import { button, card, empty, fact, field, h, notice, failed, show } from "./dom.js";
import { ago, bytes, count, duration, percent, rate, short } from "./format.js";
import { allowed, may, put, topicPath } from "./api.js";
import { feed, onFeed, refresh } from "./feed.js";
import { shareBar } from "./chart.js";
import { windowedTable } from "./table.js";

export function topicLink(name, tab = "") {
  return h("a", { href: `#/topics/${encodeURIComponent(name)}${tab && `/${tab}`}`, dir: "ltr" }, name);
}

export function retention(topic) {
  const kept = [
    topic.cap_records > 0 && `${short(topic.cap_records)} records`,
    topic.cap_bytes > 0 && bytes(topic.cap_bytes),
    topic.ttl_ms > 0 && duration(topic.ttl_ms),
  ].filter(Boolean);
  return kept.length ? kept.join(", ") : h("span", { class: "dim" }, "for ever");
}

function shareText(topic) {
  if (topic.lost) return `${percent(topic.lost / topic.head_seq)} lost`;
  if (topic.deleted) return `${percent(topic.deleted / topic.head_seq)} deleted`;
  return topic.head_seq ? "all live" : "empty";
}

const BANDS = ["lowest", "low", "normal", "high", "highest"];

const COLUMNS = [
  { name: "topic", title: "Topic", sort: (row) => row.topic, cell: (row) => [topicLink(row.topic), row.queue && h("span", { class: "tag" }, "queue")], kind: "name" },
  { name: "rate", title: "Writes/s", kind: "number", sort: (row) => feed.rates.get(row.topic) ?? -1, cell: (row) => rate(feed.rates.get(row.topic)) },
  { name: "count", title: "Live", kind: "number wide", sort: (row) => row.count, cell: (row) => h("span", { title: count(row.count) }, short(row.count)) },
  { name: "share", title: "Live · deleted · lost", kind: "shares", sort: (row) => (row.head_seq ? row.lost / row.head_seq : 0),
    cell: (row) => [shareBar(row), h("span", { class: row.lost ? "lost-text" : "dim" }, shareText(row))] },
  { name: "bytes", title: "Size", kind: "number", sort: (row) => row.bytes, cell: (row) => bytes(row.bytes) },
  { name: "retention", title: "Kept", cell: retention, kind: "wide" },
  { name: "durability", title: "Class", sort: (row) => row.durability, cell: (row) => h("span", { class: `tag ${row.durability}` }, row.durability), kind: "wide" },
  { name: "priority", title: "Priority", kind: "number wide", sort: (row) => row.effective_priority,
    cell: (row) => h("span", { title: `band ${row.priority_band}: ${BANDS[row.priority_band] ?? ""}` }, row.effective_priority) },
  { name: "lag", title: "Worst lag", kind: "number", sort: (row) => row.cursors[0]?.lag ?? -1,
    cell: (row) => (row.cursors.length ? h("span", { title: `${row.cursors[0].name}: ${duration(row.cursors[0].lag_ms)}` }, short(row.cursors[0].lag)) : h("span", { class: "dim" }, "–")) },
  { name: "first", title: "Oldest", kind: "wide", sort: (row) => row.first_ts, cell: (row) => ago(row.first_ts, feed.at) },
  { name: "last", title: "Newest", sort: (row) => row.last_ts, cell: (row) => ago(row.last_ts, feed.at) },
];

export function overviewPage() {
  const filter = h("input", { type: "search", placeholder: "Filter by name  ( / )", "aria-label": "Filter topics by name", id: "filter", autocomplete: "off", spellcheck: "false", oninput: () => draw() });
  const kind = h("select", { "aria-label": "Which topics", onchange: () => draw() },
    [["", "All topics"], ["queue", "Queues"], ["lost", "With loss"], ["lag", "With lag"], ["watched", "Being watched"]].map(([value, text]) => h("option", { value }, text)));
  const total = h("span", { class: "dim", "aria-live": "polite" });
  const server = h("div");
  const place = h("div");
  const table = windowedTable("Topics", COLUMNS, { column: "topic", down: false },
    (row) => { location.hash = `#/topics/${encodeURIComponent(row.topic)}`; }, (row) => row.topic);

  function draw() {
    show(server, feed.server ? serverCards(feed.server) : []);
    const wanted = filter.value.trim().toLowerCase();
    const rows = feed.topics.filter((topic) => (!wanted || topic.topic.toLowerCase().includes(wanted)) && KINDS[kind.value](topic));
    total.textContent = feed.server ? (rows.length === feed.topics.length ? `${count(rows.length)} topics` : `${count(rows.length)} of ${count(feed.topics.length)} topics`) : "";
    if (rows.length > 0) {
      if (place.firstChild !== table.element) show(place, table.element);
      table.update(rows);
    } else if (feed.server) {
      show(place, feed.topics.length ? empty("No topic fits.", "Clear the filter to see all of them.") : nothingYet());
    } else {
      show(place, feed.error ? empty("No topics to show.", feed.error.message) : empty("Loading…"));
    }
  }

  const stop = onFeed(draw);
  draw();
  const page = h("div", {}, h("h1", {}, "Overview"), server,
    h("div", { class: "bar" }, filter, kind, total, allowed("admin") && button("New topic", newTopic, "primary push")), place);
  return { element: page, stop };
}

const KINDS = {
  "": () => true,
  queue: (topic) => topic.queue,
  lost: (topic) => topic.lost > 0,
  lag: (topic) => topic.cursors.some((cursor) => cursor.lag > 0),
  watched: (topic) => topic.watchers > 0,
};

function nothingYet() {
  return empty("There are no topics yet.", may.prefixes.length
    ? `This key sees names that begin with ${may.prefixes.join(" or ")}. ` : "A topic is made by the first write to it: ",
    h("code", {}, "topics put hello '{\"first\": true}'"), ". To see a living server, run ", h("code", {}, "topics demo"), ".");
}

function newTopic() {
  const name = h("input", { required: true, pattern: "[A-Za-z0-9][A-Za-z0-9._:\\-]{0,254}", autocomplete: "off", spellcheck: "false", value: may.prefixes[0] ?? "" });
  const type = h("select", {}, ["log", "queue"].map((value) => h("option", { value }, value)));
  const durability = h("select", {}, ["disk", "fsync", "memory", "ephemeral"].map((value) => h("option", { value }, value)));
  const form = h("form", { method: "dialog", onsubmit: async (event) => {
    event.preventDefault();
    try {
      const made = await put(topicPath(name.value), { type: type.value, durability: durability.value });
      notice(made.created ? `${made.topic} is made.` : `${made.topic} was there already; it is configured now.`);
      dialog.close();
      await refresh();
      location.hash = `#/topics/${encodeURIComponent(made.topic)}`;
    } catch (error) { failed(error); dialog.close(); }
  } }, field("Name", name, "Letters, digits and . _ : - ; at most 255"), field("Type", type, "A queue leases its records to workers"),
    field("Durability", durability, "What survives a crash; fsync loses nothing that was acknowledged"),
    h("div", { class: "actions" }, button("Cancel", () => dialog.close(), "quiet"), h("button", { class: "primary" }, "Create")));
  const dialog = h("dialog", { "aria-label": "New topic", onclose: () => dialog.remove() }, h("h2", {}, "New topic"), form);
  document.body.append(dialog);
  dialog.showModal();
}

function serverCards(server) {
  const fsync = server.wal.fsync;
  const disk = server.disk_free_bytes;
  const low = disk !== null && disk < 1 << 30;
  return [
    server.read_only_shards.length > 0 && h("div", { class: "alarm", role: "alert" },
      h("strong", {}, "The server refuses writes: its disk failed. "),
      "Reads go on. Next: look at the reason below, make room or repair the disk, then restart the server. ",
      h("ul", {}, server.read_only_shards.map((shard) => h("li", {}, h("code", {}, shard.shard), ": ", shard.reason)))),
    card("Server", h("dl", { class: "facts" },
      fact("Version", server.version, `up ${duration(server.uptime_ms)}`),
      fact("Records", short(server.records), bytes(server.bytes)),
      fact("Disk free", bytes(disk), low ? "make room soon" : null, low ? "bad" : ""),
      fact("fsync p99", fsync.p99_us === null ? "–" : duration(fsync.p99_us / 1000), `mean ${duration(fsync.mean_us / 1000)}`),
      fact("WAL waiting", count(server.wal.queue_depth), `${bytes(server.wal.bytes_written_total)} written`),
      fact("Loop lag", duration(server.loop.lag_ms), `worst ${duration(server.loop.lag_ms_max)}`, server.loop.lag_ms_max > 500 ? "bad" : ""),
      fact("Connections", count(server.connections.open), `${count(server.connections.live)} live`),
      fact("Pressure", percent(server.pressure), server.pressure >= 0.8 ? "writers are slowed down" : "room to spare", server.pressure >= 0.8 ? "bad" : ""),
      server.recovery && fact("Last start", server.recovery.clean ? "clean" : "after a crash",
        server.recovery.lost ? `${count(server.recovery.lost)} seqs lost` : `${count(server.recovery.records)} records, ${duration(server.recovery.duration_ms)}`,
        server.recovery.lost ? "bad" : ""))),
  ];
}
