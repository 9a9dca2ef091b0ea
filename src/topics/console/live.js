// Who is connected right now, who is slow, and what the server does about it.

import { card, empty, fact, h, show } from "./dom.js";
import { count, duration, percent, rate, short } from "./format.js";
import { get, topicPath } from "./api.js";
import { feed, onFeed } from "./feed.js";
import { plainTable } from "./table.js";
import { topicLink } from "./overview.js";

const LOOKED_AT_MAX = 20;
const BAND_NAMES = ["4 (first)", "3", "2", "1", "0 (last)"];

export function livePage() {
  const facts = h("div");
  const watchers = h("div");
  const slow = h("div");
  const bands = h("div");
  let asking = false;
  let stopped = false;

  async function look() {
    if (!feed.server || asking || stopped) return;
    drawServer();
    asking = true;
    const watched = feed.topics.filter((topic) => topic.watchers > 0).sort((left, right) => right.watchers - left.watchers);
    try {
      const maps = await Promise.all(watched.slice(0, LOOKED_AT_MAX).map((topic) => get(topicPath(topic.topic, "/map")).catch(() => null)));
      if (!stopped) drawWatchers(watched, maps.filter(Boolean));
    } finally { asking = false; }
  }

  function drawServer() {
    const { connections, pressure } = feed.server;
    show(facts, h("dl", { class: "facts" },
      fact("Connections", count(connections.open)), fact("Streams", count(connections.live), "SSE, WebSocket, export"),
      fact("Watch sessions", count(connections.watch_sessions), "they outlive streams"), fact("Long polls", count(connections.long_polls)),
      fact("Pressure", percent(pressure), pressure >= 0.8 ? "low priorities are held back" : "nobody is held back", pressure >= 0.8 ? "bad" : "")));
    const byBand = [4, 3, 2, 1, 0].map((band) => feed.topics.filter((topic) => topic.priority_band === band));
    show(bands, card("Priorities", h("p", { class: "dim" }, "Under pressure, bands are served from the top; a topic gets there by being read, or by hand."),
      plainTable("Priority bands", ["Band", "Topics", "Writes/s", "For example"], byBand.map((topics, index) => [BAND_NAMES[index], count(topics.length),
        rate(topics.reduce((sum, topic) => sum + (feed.rates.get(topic.topic) ?? 0), 0)),
        topics.slice(0, 3).map((topic, at) => [at > 0 && ", ", topicLink(topic.topic)])]), ["", "number", "number", ""])));
    const behind = feed.topics.flatMap((topic) => topic.cursors.filter((cursor) => cursor.lag > 0).map((cursor) => [topic, cursor]))
      .sort((left, right) => right[1].lag_ms - left[1].lag_ms).slice(0, 100);
    show(slow, card("Slow readers", behind.length ? [h("p", { class: "dim" }, "Named cursors that are behind, the slowest first. They hold nothing back: a capped topic goes on, and they lose what it evicts."),
      plainTable("Slow readers", ["Cursor", "Topic", "Lag, records", "Lag, time", "Loses when"], behind.map(([topic, cursor]) => [cursor.name, topicLink(topic.topic), count(cursor.lag), duration(cursor.lag_ms), losesWhen(topic, cursor)]),
        ["name", "", "number", "number", ""])] : empty("Nobody is behind.", "Every named cursor is at the head of its topic.")));
  }

  function losesWhen(topic, cursor) {
    if (cursor.seq + 1 < topic.evict_floor) return h("span", { class: "bad-text" }, `has lost ${short(topic.evict_floor - cursor.seq - 1)}`);
    if (topic.cap_records > 0) {
      const room = topic.cap_records - cursor.lag;
      return room < topic.cap_records / 5 ? h("span", { class: "bad-text" }, `${short(Math.max(0, room))} more records come`) : `${short(room)} more records come`;
    }
    if (topic.ttl_ms > 0) return `${duration(Math.max(0, topic.ttl_ms - cursor.lag_ms))} from now`;
    return h("span", { class: "dim" }, "never");
  }

  function drawWatchers(watched, maps) {
    const rows = maps.flatMap((map) => map.watchers.slice(0, 100).map((one) => [topicLink(map.topic), one.kind.replace("_", " "), count(one.seq), count(one.lag), one.lag ? duration(one.lag_ms) : "–",
      one.lag > 1000 ? h("span", { class: "bad-text" }, "slow") : h("span", { class: "good-text" }, one.seq === null ? "waits" : one.lag ? "behind" : "caught up")]));
    show(watchers, card("Watchers", rows.length ? [plainTable("Watchers", ["Topic", "Kind", "Sent up to", "Lag, records", "Lag, time", ""], rows, ["", "", "number", "number", "number", ""]),
      watched.length > maps.length && h("p", { class: "dim" }, `Of the ${maps.length} topics with the most watchers; ${count(watched.length)} are watched.`)]
      : empty("Nobody watches.", "Streams, WebSockets, long polls and workers show here: ", h("code", {}, "topics tail orders"))));
  }

  const unsubscribe = onFeed(look);
  look();
  return { element: h("div", {}, h("h1", {}, "Live"), facts, watchers, slow, bands), stop() { stopped = true; unsubscribe(); } };
}
