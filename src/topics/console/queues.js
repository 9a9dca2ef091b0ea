// Queues: how much waits, who works on what, and what went wrong.

import { ask, button, card, empty, fact, failed, h, notice, show } from "./dom.js";
import { bytes, count, duration, formatted, parseExactly, plainText, plural, time } from "./format.js";
import { allowed, get, post, postForText, topicPath } from "./api.js";
import { feed, onFeed, refresh, serverNow } from "./feed.js";
import { plainTable } from "./table.js";
import { topicLink } from "./overview.js";

const LEASES_SHOWN = 200;
const REDRIVE_STEP = 100;

export function queuesPage(chosen) {
  const list = h("div");
  const detail = h("div");
  let asking = false;
  let stopped = false;
  let config = null;
  let redriving = null;

  function draw() {
    const queues = feed.topics.filter((topic) => topic.queue);
    if (!feed.server) { show(list, empty("Loading…")); return; }
    if (queues.length === 0) {
      show(list, empty("There are no queues.", "Make one: ", h("code", {}, "topics create jobs --queue"), ", or with New topic in the overview."));
      show(detail);
      return;
    }
    const name = queues.some((queue) => queue.topic === chosen) ? chosen : queues[0].topic;
    show(list, plainTable("Queues", ["Queue", "Ready", "In flight", "Delayed", "Dead, ever", "Ready · in flight · delayed"], queues.slice(0, 500).map((topic) => [
      h("a", { href: `#/queues/${encodeURIComponent(topic.topic)}`, "aria-current": topic.topic === name ? "true" : null }, topic.topic),
      count(topic.queue.ready), count(topic.queue.in_flight), count(topic.queue.delayed),
      h("span", { class: topic.queue.dead_lettered ? "lost-text" : "" }, count(topic.queue.dead_lettered)), bar(topic.queue)]),
    ["name", "number", "number", "number", "number", "shares wide"]));
    look(name);
  }

  async function look(name) {
    if (asking || stopped) return;
    asking = true;
    try {
      const [page, state] = await Promise.all([get(topicPath(name, `/leases?page_size=${LEASES_SHOWN}`)), get(topicPath(name, "?touch=false"))]);
      config = state.config;
      if (!stopped) show(detail, drawQueue(name, page, state));
    } catch (error) { if (!stopped) show(detail, h("p", { class: "bad-text" }, error.message)); } finally { asking = false; }
  }

  function drawQueue(name, page, state) {
    const row = feed.byName.get(name);
    const workers = new Map();
    for (const lease of page.leases) workers.set(lease.node, (workers.get(lease.node) ?? 0) + 1);
    const most = Math.max(1, ...workers.values());
    const dead = config.dead_letter && feed.byName.get(config.dead_letter);
    return [
      card(name, h("dl", { class: "facts" },
        fact("Ready", count(state.queue.ready)), fact("In flight", count(state.queue.in_flight)), fact("Delayed", count(row?.queue.delayed ?? 0)),
        fact("Dead, ever", count(state.queue.dead_lettered), dead ? [`${count(dead.count)} now in `, topicLink(config.dead_letter)] : config.dead_letter ? `to ${config.dead_letter}` : "no dead letter topic", dead?.count ? "bad" : ""),
        fact("Lease", duration(config.lease_ms), config.max_deliveries ? `${config.max_deliveries} deliveries at most` : "delivered until done")),
        h("p", {}, topicLink(name), " as a topic")),
      h("div", { class: "two" },
        card("Leases", page.leases.length ? [leases(name, page.leases), page.next_cursor && h("p", { class: "dim" }, `The first ${LEASES_SHOWN}.`)] : empty("No job is leased.", state.queue.ready ? "Jobs wait, but no worker claims them." : "There is nothing to do.")),
        h("div", {},
          card("Workers", workers.size ? h("ul", { class: "bars" }, [...workers].sort((a, b) => b[1] - a[1]).map(([node, held]) =>
            h("li", {}, h("span", { dir: "ltr" }, plainText(node)), h("meter", { min: 0, max: most, value: held, "aria-label": `${node} holds ${held}` }), h("b", {}, count(held))))) : empty("Nobody holds a job.")),
          config.dead_letter && card("Dead letters", dead?.count ? [h("p", {}, `${plural(dead.count, "job")} in `, topicLink(config.dead_letter), ". Sent back, they begin anew."), redriveControl(name, dead.count)]
            : empty("No dead letters.", "Jobs that fail too often would be here.")))),
    ];
  }

  function leases(name, rows) {
    return plainTable("Leases", ["Job", "Worker", "Held for", "Deliveries", "Time left", ""], rows.map((lease) => {
      const left = lease.deadline - serverNow();
      return [button(count(lease.$seq), () => history(name, lease), "link", { "aria-label": `Job ${lease.$seq}` }), h("span", { dir: "ltr" }, plainText(lease.node), lease.pushed && h("span", { class: "tag" }, "stream")),
        h("span", { title: `Since ${new Date(lease.claimed_ts).toISOString()}` }, duration(Math.max(0, serverNow() - lease.claimed_ts))),
        h("span", { class: lease.deliveries > 1 ? "lost-text" : "" }, count(lease.deliveries)),
        h("span", { class: left < 0 ? "bad-text" : "", title: new Date(lease.deadline).toISOString() }, left < 0 ? "over" : duration(left)),
        allowed("write") && h("span", { class: "nowrap" }, button("Extend", () => act(name, lease, "extend"), "quiet"), button("Give back", () => act(name, lease, "nack"), "quiet"))];
    }), ["number", "name", "number", "number", "number", ""]);
  }

  async function act(name, lease, what) {
    const body = { node: lease.node, seqs: [lease.$seq], lease_ids: [lease.lease_id], ...(what === "extend" && { lease_ms: config.lease_ms }) };
    try {
      const reply = await post(topicPath(name, `/${what}`), body);
      const done = what === "extend" ? reply.extended : reply.nacked;
      const skipped = Array.isArray(reply.skipped) ? reply.skipped.length : reply.skipped;
      if (skipped) notice(`Job ${lease.$seq} is not held by ${lease.node} any more.`, "bad");
      else notice(what === "extend" ? `Job ${lease.$seq} is ${lease.node}'s for ${duration(config.lease_ms)} more.` : `Job ${lease.$seq} is ready again.`, done === 0 ? "bad" : "good");
      refresh();
    } catch (error) { failed(error); }
  }

  async function history(name, lease) {
    let record = null;
    try {
      record = parseExactly(await postForText(topicPath(name, "/diff"), { from_seq: lease.$seq - 1, to_seq: lease.$seq, limit: 1, include_tags: true })).records[0];
    } catch (error) { failed(error); return; }
    const came = record?.meta?.$dead_letter_from;
    await ask(`Job ${lease.$seq}`, record ? [h("ol", { class: "history" },
      h("li", {}, time(record.$ts), " written", record.$node !== undefined && ` by ${plainText(record.$node)}`, came !== undefined && `, a dead letter of ${plainText(String(came))}`),
      lease.deliveries > 1 && h("li", {}, `given out ${plural(lease.deliveries - 1, "time")} before, and not done`),
      h("li", {}, time(lease.claimed_ts), ` leased to ${plainText(lease.node)}: delivery ${lease.deliveries}${config.max_deliveries ? ` of ${config.max_deliveries}` : ""}`),
      h("li", {}, time(lease.deadline), " the lease ends")),
    h("p", { class: "dim" }, `${bytes(new Blob([JSON.stringify(record.data)]).size)} of data`), h("pre", { tabindex: 0, "aria-label": "Data" }, formatted(record.data))] : h("p", {}, "The job is done: it was acknowledged meanwhile."), "Close", "primary");
  }

  function redriveControl(name, total) {
    if (redriving) return redriving.element;
    if (!allowed("read", "write", "delete")) return h("p", { class: "dim" }, "Sending them back needs the scopes read, write and delete.");
    return button("Redrive…", async () => {
      if (await ask("Send dead letters back?", h("p", {}, `${plural(total, "job")}, ${REDRIVE_STEP} at a time. You can stop in between.`), "Redrive", "primary")) redrive(name, total);
    }, "primary");
  }

  async function redrive(name, total) {
    const progress = h("progress", { max: total, value: 0, "aria-label": "Jobs sent back" });
    const said = h("span", { role: "status" });
    let halted = false;
    let moved = 0;
    redriving = { element: h("div", {}, progress, said, button("Stop", () => { halted = true; }, "danger")) };
    try {
      for (let step = REDRIVE_STEP; step === REDRIVE_STEP && !halted && !stopped && moved < total;) {
        step = (await post(topicPath(name, "/redrive"), { max: REDRIVE_STEP })).redriven;
        moved += step;
        progress.value = moved;
        said.textContent = ` ${count(moved)} of ${count(total)} `;
      }
      notice(`${plural(moved, "job")} sent back to ${name}${halted ? "; stopped" : ""}.`);
    } catch (error) { failed(error); }
    redriving = null;
    refresh();
  }

  const unsubscribe = onFeed(draw);
  draw();
  return { element: h("div", {}, h("h1", {}, "Queues"), list, detail), stop() { stopped = true; unsubscribe(); } };
}

function bar(queue) {
  const all = Math.max(1, queue.ready + queue.in_flight + queue.delayed);
  const words = `${queue.ready} ready, ${queue.in_flight} in flight, ${queue.delayed} delayed`;
  return h("span", { class: "stack", role: "img", "aria-label": words, title: words },
    [["ready", queue.ready], ["flight", queue.in_flight], ["delayed", queue.delayed]].map(([kind, value]) => h("i", { class: kind, styles: { width: `${(value / all) * 100}%` } })));
}
