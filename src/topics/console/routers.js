// Routers as a graph: topics are nodes, routers the edges between them, with lag and copies a second.

import { card, empty, h, s, show } from "./dom.js";
import { count, rate, short } from "./format.js";
import { get } from "./api.js";
import { feed, onFeed } from "./feed.js";
import { plainTable } from "./table.js";
import { topicLink } from "./overview.js";

const DRAWN_MAX = 60;
const NODE_WIDTH = 170;
const NODE_HEIGHT = 44;
const GAP_X = 210;
const GAP_Y = 30;

export function routersPage() {
  const place = h("div");
  const seen = new Map();
  const details = new Map();
  let routers = [];
  let asking = false;
  let stopped = false;

  async function look() {
    if (asking || stopped) return;
    asking = true;
    try {
      const found = [];
      let cursor = "";
      do {
        const page = await get(`/v0/routers?page_size=1000${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
        found.push(...page.routers);
        cursor = page.next_cursor ?? "";
      } while (cursor && found.length < 10000);
      routers = found;
      await Promise.all(found.slice(0, DRAWN_MAX).map(async (one) => {
        const state = await get(`/v0/routers/${encodeURIComponent(one.router)}`).catch(() => null);
        if (state) details.set(one.router, state);
      }));
      if (!stopped) draw();
    } catch (error) { if (!stopped) show(place, empty("The routers can't be read.", error.message)); } finally { asking = false; }
  }

  function perSecond(router) {
    const now = details.get(router.router)?.forwarded_total ?? router.forwarded_total;
    const before = seen.get(router.router);
    const at = performance.now();
    if (!before || at - before.at > 900) seen.set(router.router, { at, total: now, speed: before ? Math.max(0, ((now - before.total) / (at - before.at)) * 1000) : null });
    return seen.get(router.router).speed;
  }

  function draw() {
    if (routers.length === 0) {
      show(place, empty("There are no routers.", "A router copies every record of one topic into another: ", h("code", {}, "topics router create orders audit"), "."));
      return;
    }
    const speeds = new Map(routers.map((one) => [one.router, perSecond(one)]));
    const shown = routers.slice(0, DRAWN_MAX);
    const { element, looping } = graph(shown, details, speeds);
    show(place, card("Graph", h("div", { class: "graph-box", tabindex: 0, role: "region", "aria-label": "Graph of the routers" }, element), looping.size > 0 && h("p", { class: "bad-text" }, "Dashed routers are part of a cycle. A copy never returns to the topic its original was written to."),
      routers.length > shown.length && h("p", { class: "dim" }, `The first ${DRAWN_MAX} of ${count(routers.length)} routers.`)),
    card("Routers", plainTable("Routers", ["Router", "From", "To", "Lag", "Copies/s", "Copied", "Filter", "Guarantee", ""], routers.slice(0, 1000).map((one) => {
      const state = details.get(one.router);
      return [one.router, topicLink(one.source), topicLink(one.dest), lagOf(state), rate(speeds.get(one.router)), count(state?.forwarded_total ?? one.forwarded_total), filterText(state?.filter), one.guarantee.replaceAll("_", " "),
        [state?.stalled && h("span", { class: "bad-text" }, `stalled: ${state.stalled}`), looping.has(one.router) && h("span", { class: "tag lost-tag" }, "cycle")]];
    }), ["name", "", "", "number", "number", "number", "", "", ""])));
  }

  const unsubscribe = onFeed(look);
  show(place, empty("Loading…"));
  look();
  return { element: h("div", {}, h("h1", {}, "Routers"), place), stop() { stopped = true; unsubscribe(); } };
}

function lagOf(state) {
  if (!state || state.lag === undefined) return "–";
  return h("span", { class: state.lag > 1000 ? "bad-text" : "" }, count(state.lag));
}

function filterText(filter) {
  if (!filter) return h("span", { class: "dim" }, "all records");
  return h("code", {}, Array.isArray(filter) ? `tag ${filter[1] === "Glob" ? "like" : "="} ${filter[2]}` : String(filter));
}

// Which routers lie on a cycle: those whose destination leads back to their source.
function cyclic(routers) {
  const next = new Map();
  for (const one of routers) next.set(one.source, [...(next.get(one.source) ?? []), one.dest]);
  const reaches = (from, to) => {
    const open = [from];
    const known = new Set(open);
    while (open.length) {
      const at = open.pop();
      if (at === to) return true;
      for (const one of next.get(at) ?? []) if (!known.has(one)) { known.add(one); open.push(one); }
    }
    return false;
  };
  return new Set(routers.filter((one) => reaches(one.dest, one.source)).map((one) => one.router));
}

function graph(routers, details, speeds) {
  const looping = cyclic(routers);
  const level = new Map();
  for (const one of routers) { level.set(one.source, 0); level.set(one.dest, 0); }
  // The longest way from a start, cycles left out.
  for (let round = 0; round < level.size; round += 1) {
    let moved = false;
    for (const one of routers) {
      if (looping.has(one.router) && level.get(one.source) > 0) continue;
      if (level.get(one.dest) <= level.get(one.source)) { level.set(one.dest, level.get(one.source) + 1); moved = true; }
    }
    if (!moved) break;
  }
  const columns = [];
  for (const [name, at] of level) (columns[at] ??= []).push(name);
  const tallest = Math.max(...columns.filter(Boolean).map((column) => column.length));
  const height = tallest * (NODE_HEIGHT + GAP_Y) + 60;
  const place = new Map();
  columns.forEach((column, at) => column?.sort().forEach((name, index) => {
    const free = height - 40 - column.length * (NODE_HEIGHT + GAP_Y);
    place.set(name, { x: 10 + at * (NODE_WIDTH + GAP_X), y: 30 + free / 2 + index * (NODE_HEIGHT + GAP_Y) });
  }));
  const width = columns.length * (NODE_WIDTH + GAP_X) - GAP_X + 20;
  const element = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "graph", role: "group", "aria-label": `${level.size} topics, ${routers.length} routers; the table below says the same` },
    s("defs", {}, ["", "-loop"].map((kind) => s("marker", { id: `arrow${kind}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, s("path", { d: "M0 0L8 4L0 8z", class: `arrow${kind}` })))),
    routers.map((one) => edge(one, place, details.get(one.router), speeds.get(one.router), looping.has(one.router))),
    [...place].map(([name, at]) => node(name, at)));
  return { element, looping };
}

function node(name, at) {
  const topic = feed.byName.get(name);
  const shown = name.length > 20 ? `${name.slice(0, 19)}…` : name;
  return s("a", { href: `#/topics/${encodeURIComponent(name)}`, class: "node" }, s("title", {}, name),
    s("rect", { x: at.x, y: at.y, width: NODE_WIDTH, height: NODE_HEIGHT, rx: 8 }),
    s("text", { x: at.x + 12, y: at.y + 19 }, shown),
    s("text", { x: at.x + 12, y: at.y + 35, class: "small dim-text" }, topic ? `${short(topic.count)} live · ${rate(feed.rates.get(name))}/s` : ""));
}

function edge(router, place, state, speed, loops) {
  const from = place.get(router.source);
  const to = place.get(router.dest);
  const back = to.x <= from.x;
  const x1 = back ? from.x + NODE_WIDTH / 2 : from.x + NODE_WIDTH;
  const y1 = back ? from.y : from.y + NODE_HEIGHT / 2;
  const x2 = back ? to.x + NODE_WIDTH / 2 : to.x;
  const y2 = back ? to.y : to.y + NODE_HEIGHT / 2;
  const d = back ? `M${x1} ${y1}C${x1} ${y1 - 40} ${x2} ${y2 - 40} ${x2} ${y2}` : `M${x1} ${y1}C${x1 + GAP_X / 2} ${y1} ${x2 - GAP_X / 2} ${y2} ${x2 - 2} ${y2}`;
  const filter = state?.filter && (Array.isArray(state.filter) ? state.filter[2] : state.filter);
  const middle = { x: (x1 + x2) / 2, y: back ? Math.min(y1, y2) - 22 : (y1 + y2) / 2 };
  return s("g", { class: `edge${loops ? " loop" : ""}${state?.stalled ? " stalled" : ""}` }, s("title", {}, router.router),
    s("path", { d, "marker-end": `url(#arrow${loops ? "-loop" : ""})` }),
    s("text", { x: middle.x, y: middle.y - 6, "text-anchor": "middle" }, [speed !== undefined && speed !== null && `${rate(speed)}/s`, state?.lag && `lag ${short(state.lag)}`].filter(Boolean).join(" · ")),
    filter && s("text", { x: middle.x, y: middle.y + 14, "text-anchor": "middle", class: "small dim-text" }, `only ${filter}`));
}
