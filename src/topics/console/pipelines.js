// What pipelines run and ran, as they tell it in the topic `topics:pipelines`.

import { card, empty, failed, h, show } from "./dom.js";
import { ago, count, parseExactly, plainText, preview, rate } from "./format.js";
import { postForText, topicPath } from "./api.js";
import { feed, onFeed } from "./feed.js";
import { plainTable } from "./table.js";
import { recordRow } from "./records.js";
import { topicLink } from "./overview.js";

const TOPIC = "topics:pipelines";
const KEPT = 500;

export function pipelinesPage() {
  const place = h("div");
  let records = [];
  let next = null;
  let epoch = null;
  let asking = false;
  let stopped = false;

  async function look() {
    const topic = feed.byName.get(TOPIC);
    if (!feed.server || asking || stopped) return;
    if (!topic) {
      show(place, empty("No pipeline has reported yet.", "Pipelines report to the topic ", h("code", {}, TOPIC), " when they run: ", h("code", {}, "topics pipeline up pipelines.toml"), "."));
      return;
    }
    if (next === null || epoch !== topic.epoch) { next = Math.max(0, topic.head_seq - KEPT); records = []; epoch = topic.epoch; }
    asking = true;
    try {
      let reply = null;
      do {
        reply = parseExactly(await postForText(topicPath(TOPIC, "/diff"), { from_seq: next, limit: 500, include_tags: true }));
        records = [...records, ...reply.records].slice(-KEPT);
        next = reply.next_from_seq;
      } while (!reply.caught_up && !stopped);
      if (!stopped) draw();
    } catch (error) { if (!stopped) failed(error); } finally { asking = false; }
  }

  function draw() {
    const last = new Map();
    for (const record of records) {
      const data = record.data && typeof record.data === "object" ? record.data : {};
      const name = String(data.pipeline ?? record.$tag ?? "unnamed");
      const known = last.get(name) ?? {};
      last.delete(name);
      // What a run found stays until the next one ends; an error does not outlive it.
      last.set(name, { ...known, error: undefined, ...data, ts: record.$ts });
    }
    const audits = records.filter((record) => record.data?.audit).slice(-20).reverse();
    const rows = [...last].reverse();
    show(place, rows.length === 0 ? empty("Nothing is reported yet.") : card("Pipelines", plainTable("Pipelines", ["Pipeline", "State", "Lag", "Rows/s", "Last error", "Told"], rows.map(([name, one]) => {
      const state = String(one.state ?? "–");
      return [plainText(name), h("span", { class: `tag ${/fail|error/i.test(state) ? "lost-tag" : ""}` }, plainText(state)), figure(one.lag, count), figure(one.rows_per_s, rate),
        one.error ? h("span", { class: "bad-text" }, plainText(typeof one.error === "string" ? one.error : preview(one.error))) : h("span", { class: "dim" }, "none"), ago(one.ts, feed.at)];
    }), ["name", "", "number", "number", "", ""])),
    audits.length > 0 && card("Audits", h("p", { class: "dim" }, "An audit holds when read + deleted + lost = head."), plainTable("Audits", ["When", "Topic", "Read", "Deleted", "Lost", "Head", ""], audits.map((record) => {
      const audit = record.data.audit;
      const holds = Number(audit.read) + Number(audit.deleted) + Number(audit.lost) === Number(audit.head);
      return [ago(record.$ts, feed.at), plainText(String(audit.topic ?? "–")), figure(audit.read, count), figure(audit.deleted, count), figure(audit.lost, count), figure(audit.head, count),
        h("span", { class: holds ? "good-text" : "bad-text" }, holds ? "holds" : "does not add up")];
    }), ["", "", "number", "number", "number", "number", ""])),
    rows.length > 0 && card("Their last reports", h("p", {}, "From ", topicLink(TOPIC)), records.slice(-20).reverse().map(recordRow)));
  }

  const unsubscribe = onFeed(look);
  show(place, empty("Loading…"));
  look();
  return { element: h("div", {}, h("h1", {}, "Pipelines"), place), stop() { stopped = true; unsubscribe(); } };
}

function figure(value, as) {
  return typeof value === "number" ? as(value) : value === undefined || value === null ? "–" : preview(value, 40);
}
