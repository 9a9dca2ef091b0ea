// One topic: its seq line, who reads it, its records, and what may be changed.

import { card, empty, fact, h, show } from "./dom.js";
import { ago, bytes, count, duration, plural, rate, time } from "./format.js";
import { allowed, get, topicPath } from "./api.js";
import { feed, follow, onFeed } from "./feed.js";
import { lines } from "./chart.js";
import { plainTable } from "./table.js";
import { retention, topicLink } from "./overview.js";
import { seqLine } from "./seqline.js";
import { browseTab } from "./records.js";
import { tailTab } from "./tail.js";
import { configTab, deleteTab, publishTab } from "./changes.js";

const TREND_MS = 60_000;
const NOISE = 2; // records: who is almost there is now one behind and now not

export function topicPage(name, tab = "records") {
  const samples = follow(name);
  const lags = new Map();
  const facts = h("div");
  const line = seqLine((seq) => { location.hash = `#/topics/${encodeURIComponent(name)}/records`; current?.goTo?.(seq); });
  const readers = h("div");
  const losses = h("div");
  const spark = h("div");
  const place = h("div", { class: "tab-body" });
  let current = null;
  let asking = false;
  let ended = false;
  let map = null;

  const TABS = [
    ["records", "Records", browseTab, true],
    ["tail", "Live tail", tailTab, true],
    ["publish", "Publish", publishTab, allowed("write")],
    ["delete", "Delete", deleteTab, allowed("delete")],
    ["config", "Configuration", configTab, true],
  ].filter(([, , , shown]) => shown);

  async function look() {
    if (asking || ended) return;
    asking = true;
    try {
      map = await get(topicPath(name, "/map"));
      if (!ended) draw();
    } catch (error) {
      if (error.status === 404 && !ended) gone();
      else if (error.status === 403 && !ended) { show(page, h("h1", {}, name), empty("This key may not see this topic.", error.message)); stop(); }
    } finally { asking = false; }
  }

  function gone() {
    stop();
    show(page, h("h1", {}, name), empty("There is no topic of this name.", h("a", { href: "#/overview" }, "Back to the overview"), ", where one can be made; or write to it."));
  }

  function draw() {
    const row = feed.byName.get(name);
    show(facts, h("dl", { class: "facts" },
      fact("Live records", count(map.count), row && bytes(row.bytes)),
      fact("Head", count(map.head_seq), row && `${rate(feed.rates.get(name))} writes/s`),
      fact("Deleted", count(map.deleted), "on request"),
      fact("Lost", count(map.lost), map.lost ? Object.entries(row?.lost_by_reason ?? {}).map(([reason, seqs]) => `${reason} ${count(seqs)}`).join(", ") : "nothing", map.lost ? "bad" : ""),
      row && fact("Kept", retention(row), row.durability),
      row && fact("Newest", ago(row.last_ts, feed.at), ["oldest ", ago(row.first_ts, feed.at)]),
      row && fact("Last read", ago(row.last_read_ts, feed.at), `priority ${row.effective_priority}`)));
    line.update(map);
    show(readers, drawReaders());
    show(losses, drawLosses());
    show(spark, lines("Writes, and reads by named cursors", samples,
      [{ name: "writes/s", kind: "a", of: (one) => one.writes }, { name: "reads/s", kind: "b", of: (one) => one.reads }], rate, 64));
  }

  function trend(key, lag) {
    const seen = lags.get(key) ?? [];
    lags.set(key, seen);
    seen.push([Date.now(), lag]);
    while (seen.length > 2 && seen[1][0] < Date.now() - TREND_MS) seen.shift();
    if (lag === 0) return h("span", { class: "good-text" }, "caught up");
    if (seen.length < 3) return h("span", { class: "dim" }, "…");
    const change = lag - seen[0][1];
    const span = duration(seen.at(-1)[0] - seen[0][0]);
    if (Math.abs(change) <= NOISE) return h("span", { class: "dim", title: `over ${span}` }, "steady");
    if (change > 0) return h("span", { class: "bad-text", title: `${plural(change, "record")} more than ${span} ago` }, `↑ grows, +${count(change)}`);
    return h("span", { class: "good-text", title: `over ${span}` }, `↓ shrinks, ${count(change)}`);
  }

  function drawReaders() {
    const rows = [
      ...map.cursors.map((one) => [one.name, "named cursor", count(one.seq), count(one.lag), one.lag ? duration(one.lag_ms) : "–", trend(`c${one.name}`, one.lag), ago(one.updated_ts, feed.at)]),
      ...map.watchers.map((one) => [h("span", { class: "dim" }, "–"), one.kind.replace("_", " "), count(one.seq), count(one.lag), one.lag ? duration(one.lag_ms) : "–", h("span", { class: "dim" }, one.seq === null ? "waits for the next" : one.lag ? "behind" : "caught up"), "now"]),
      ...map.routers.filter((one) => one.source === name).map((one) => [one.router, ["router to ", topicLink(one.dest)], count(map.head_seq - one.lag), count(one.lag), "–", trend(`r${one.router}`, one.lag), "now"]),
    ];
    if (rows.length === 0) return card("Readers", empty("Nobody is known to read this topic.", "A named cursor shows here how far its reader is: ", h("code", {}, `topics cursor set ${name} my-app 0`)));
    return card("Readers", plainTable("Readers", ["Name", "Kind", "At seq", "Lag", "Lag time", "Trend", "Moved"], rows, ["name", "", "number", "number", "number", "", ""]));
  }

  function drawLosses() {
    if (map.losses.length === 0) return null;
    const newest = map.losses.slice(-200).reverse();
    return card("Loss", h("p", { class: "dim" }, `Nobody asked for these to go. Readers who come by get a tombstone with the exact range.${map.losses.length > newest.length ? ` The newest ${newest.length} of ${map.losses.length} ranges.` : ""}`),
      plainTable("Ranges that were lost", ["From seq", "To seq", "Seqs", "Reason", "When"], newest.map((one) =>
        [count(one.gap_from), count(one.gap_to), count(one.gap_to - one.gap_from + 1), h("span", { class: "tag lost-tag" }, one.reason), time(one.ts)]), ["number", "number", "number", "", ""]));
  }

  function stop() {
    ended = true;
    unsubscribe();
    line.stop();
    current?.stop?.();
  }

  const chosen = TABS.find(([key]) => key === tab) ?? TABS[0];
  const routes = feed.byName.get(name)?.queue;
  const page = h("div", {},
    h("p", { class: "crumbs" }, h("a", { href: "#/overview" }, "Topics"), routes && " · ", routes && h("a", { href: `#/queues/${encodeURIComponent(name)}` }, "as a queue")),
    h("h1", { dir: "ltr" }, name), facts,
    card("Seq line", line.element, h("p", { class: "dim small-text" }, "Click the line to read there; drag to move, + and − to zoom.")),
    h("div", { class: "two" }, h("div", {}, readers, losses), spark),
    h("div", { class: "tabs", role: "tablist", "aria-label": "What to do" }, TABS.map(([key, title]) => h("a", {
      role: "tab", href: `#/topics/${encodeURIComponent(name)}/${key}`, "aria-selected": key === chosen[0], "aria-controls": "tab-panel",
    }, title))), place);
  place.id = "tab-panel";
  place.setAttribute("role", "tabpanel");
  place.setAttribute("aria-label", chosen[1]);
  current = chosen[2](name, () => map);
  show(place, current.element);
  const unsubscribe = onFeed(look);
  look();
  return { element: page, stop };
}
