// The seq line: a topic from seq 1 to its head as a picture. What is live, what was deleted because somebody asked, what
// was lost though nobody did; and who stands where.

import { button, h, s, show } from "./dom.js";
import { count, duration, plural, short } from "./format.js";

const TRACK_TOP = 58;
const TRACK_HEIGHT = 30;
const HEIGHT = 150;
const LABEL_ROWS = 3;

export function seqLine(onPick) {
  let map = null;
  let from = 1;
  let to = 1;
  let whole = true;
  let dragged = null;
  const picture = s("svg", { class: "seqline", role: "img", tabindex: 0, height: HEIGHT, onkeydown: keys, onwheel: wheel, onpointerdown: grab, onpointermove: drag, onpointerup: drop });
  const range = h("output", { class: "dim" });
  const bar = h("div", { class: "bar tight", role: "group", "aria-label": "Zoom of the seq line" },
    button("−", () => zoom(2), "", { "aria-label": "Zoom out" }), button("+", () => zoom(0.5), "", { "aria-label": "Zoom in" }),
    button("←", () => pan(-0.5), "", { "aria-label": "Towards older records" }), button("→", () => pan(0.5), "", { "aria-label": "Towards newer records" }),
    button("All", all), button("Last 1000", () => { whole = false; to = head(); from = Math.max(1, to - 999); draw(); }), range);
  const legend = h("div", { class: "legends" },
    [["live", "live"], ["deleted", "deleted on request"], ["lost", "lost: cap, TTL or crash"]].map(([kind, text]) =>
      h("span", { class: "legend" }, h("i", { class: `swatch ${kind}`, "aria-hidden": "true" }), text)),
    h("span", { class: "legend" }, h("i", { class: "swatch cursor", "aria-hidden": "true" }), "cursor"),
    h("span", { class: "legend" }, h("i", { class: "swatch watcher", "aria-hidden": "true" }), "watcher"));
  const element = h("div", { class: "seqline-box" }, bar, picture, legend);
  const watch = new ResizeObserver(draw);
  watch.observe(element);

  const head = () => Math.max(1, map?.head_seq ?? 1);
  const width = () => Math.max(280, element.clientWidth);
  const x = (seq) => ((seq - from) / Math.max(1, to + 1 - from)) * width();

  function all() { whole = true; from = 1; to = head(); draw(); }

  function zoom(factor, around = (from + to) / 2) {
    const span = Math.max(10, Math.min(head(), (to - from + 1) * factor));
    const share = (around - from) / Math.max(1, to - from);
    from = Math.round(around - span * share);
    to = Math.round(from + span - 1);
    settle();
  }

  function pan(share) {
    const step = Math.round((to - from + 1) * share);
    from += step;
    to += step;
    settle();
  }

  function settle() {
    const span = to - from;
    if (from < 1) { from = 1; to = from + span; }
    if (to > head()) { to = head(); from = Math.max(1, to - span); }
    whole = from === 1 && to === head();
    draw();
  }

  function keys(event) {
    const actions = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => pan(-0.25), ArrowRight: () => pan(0.25), Home: all, 0: all };
    if (actions[event.key] && !event.ctrlKey && !event.metaKey) { event.preventDefault(); event.stopPropagation(); actions[event.key](); }
  }

  function wheel(event) {
    if (!event.ctrlKey && !event.shiftKey && document.activeElement !== picture) return;
    event.preventDefault();
    zoom((event.deltaY || event.deltaX) > 0 ? 1.4 : 0.7, seqAt(event));
  }

  function seqAt(event) {
    const box = picture.getBoundingClientRect();
    return from + ((event.clientX - box.left) / box.width) * (to - from + 1);
  }

  function grab(event) {
    dragged = { x: event.clientX, from, to, moved: false };
    picture.setPointerCapture(event.pointerId);
  }

  function drag(event) {
    if (!dragged) return;
    const step = Math.round(((dragged.x - event.clientX) / width()) * (dragged.to - dragged.from + 1));
    if (Math.abs(event.clientX - dragged.x) < 4 && !dragged.moved) return;
    dragged.moved = true;
    from = dragged.from + step;
    to = dragged.to + step;
    settle();
  }

  function drop(event) {
    if (dragged && !dragged.moved) onPick(Math.min(head(), Math.max(1, Math.floor(seqAt(event)))));
    dragged = null;
  }

  function draw() {
    if (!map) return; // somebody was quicker than the server
    if (whole) { from = 1; to = head(); }
    picture.setAttribute("viewBox", `0 0 ${width()} ${HEIGHT}`);
    picture.setAttribute("width", width());
    picture.setAttribute("aria-label", `Seqs 1 to ${map.head_seq}: ${map.count} live, ${map.deleted} deleted, ${map.lost} lost in ${plural(map.losses.length, "range")}; ${plural(map.cursors.length, "cursor")}, ${plural(map.watchers.length, "watcher")}`);
    range.textContent = map.head_seq ? `seq ${count(from)} – ${count(to)}` : "empty";
    show(picture, defs(), track(), floors(), axis(), marks());
  }

  function defs() {
    return s("defs", {},
      s("pattern", { id: "hatch-lost", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("rect", { width: 6, height: 6, class: "lost" }), s("rect", { width: 2, height: 6, class: "hatch" })),
      s("pattern", { id: "hatch-deleted", width: 6, height: 6, patternUnits: "userSpaceOnUse" }, s("rect", { width: 6, height: 6, class: "deleted" }), s("circle", { cx: 3, cy: 3, r: 1, class: "hatch" })),
      s("clipPath", { id: "track" }, s("rect", { x: 0, y: TRACK_TOP, width: width(), height: TRACK_HEIGHT, rx: 5 })));
  }

  function block(first, last, kind, words) {
    if (last < from || first > to) return null;
    const left = Math.max(0, x(first));
    return s("rect", { x: left, y: TRACK_TOP, width: Math.max(1.5, Math.min(width(), x(last + 1)) - left), height: TRACK_HEIGHT, class: kind === "live" ? kind : `range-${kind}`, fill: kind === "live" ? null : `url(#hatch-${kind})` }, s("title", {}, words));
  }

  function track() {
    if (map.head_seq === 0) return s("rect", { x: 0, y: TRACK_TOP, width: width(), height: TRACK_HEIGHT, rx: 5, class: "nothing" });
    const said = (name, first, last) => `${name}: seq ${count(first)} to ${count(last)}, ${count(last - first + 1)} in all`;
    return s("g", { "clip-path": "url(#track)" },
      block(1, map.head_seq, "live", "live"),
      map.deleted_ranges.map((one) => block(one.first_seq, one.last_seq, "deleted", said("deleted on request", one.first_seq, one.last_seq))),
      map.losses.map((one) => block(one.gap_from, one.gap_to, "lost", `${said(`lost (${one.reason})`, one.gap_from, one.gap_to)}, ${new Date(one.ts).toLocaleString()}`)));
  }

  function floors() {
    const lines = [];
    if (map.evict_floor > 1) lines.push([map.evict_floor, "evict floor", "end"]);
    if (map.earliest_seq > map.evict_floor) lines.push([map.earliest_seq, "first live", "start"]);
    return lines.filter(([seq]) => seq >= from && seq <= to + 1).map(([seq, name, anchor]) => [
      s("line", { x1: x(seq), x2: x(seq), y1: TRACK_TOP - 4, y2: TRACK_TOP + TRACK_HEIGHT + 4, class: "floor" }, s("title", {}, `${name}: seq ${count(seq)}`)),
      s("text", { x: Math.max(64, Math.min(width() - 64, x(seq))) + (anchor === "end" ? -5 : 5), y: TRACK_TOP + TRACK_HEIGHT + 14, "text-anchor": anchor, class: "small" }, `${name} ${short(seq)}`)]);
  }

  function axis() {
    const ticks = Math.max(2, Math.floor(width() / 140));
    return Array.from({ length: ticks + 1 }, (_, index) => {
      const seq = Math.round(from + ((to - from) * index) / ticks);
      const last = index === ticks;
      return s("text", { x: last ? width() - 2 : Math.max(2, x(seq)), y: HEIGHT - 8, "text-anchor": last ? "end" : index === 0 ? "start" : "middle", class: "small dim-text" },
        last && to === map.head_seq ? `head ${count(seq)}` : count(seq));
    });
  }

  function marks() {
    const ends = new Array(LABEL_ROWS).fill(-Infinity);
    const all = [
      ...map.cursors.map((one) => ({ name: one.name, kind: "cursor", seq: one.seq, lag: one.lag, ms: one.lag_ms })),
      ...map.watchers.filter((one) => one.seq !== null).map((one) => ({ name: one.kind, kind: "watcher", seq: one.seq, lag: one.lag, ms: one.lag_ms })),
    ].filter((one) => one.seq + 1 >= from && one.seq <= to).sort((left, right) => left.seq - right.seq).reduce(together, []);
    return all.map((one) => {
      const at = Math.min(width() - 2, Math.max(2, x(one.seq + 1)));
      const text = `${one.name}${one.times > 1 ? ` ×${one.times}` : ""}${one.lag ? ` −${short(one.lag)}` : ""}`;
      const size = text.length * 6.6 + 10;
      const turned = at + size > width();
      const start = turned ? at - size : at;
      const row = ends.findIndex((end) => end < start);
      if (row >= 0) ends[row] = start + size;
      const top = 12 + Math.max(0, row) * 15;
      return s("g", { class: `mark ${one.kind}` },
        s("title", {}, `${one.name} has read up to seq ${count(one.seq)}; ${plural(one.lag, "record")} and ${duration(one.ms)} behind`),
        s("line", { x1: at, x2: at, y1: row < 0 ? TRACK_TOP - 8 : top - 8, y2: TRACK_TOP + TRACK_HEIGHT }),
        row >= 0 && s("text", { x: turned ? at - 5 : at + 5, y: top, "text-anchor": turned ? "end" : "start" }, text));
    });
  }

  return {
    element,
    update(next) { map = next; if (to > head()) { to = head(); from = Math.min(from, to); } draw(); },
    stop() { watch.disconnect(); },
  };
}

// Watchers of one kind at one place are one mark.
function together(marks, one) {
  const same = one.kind === "watcher" && marks.find((mark) => mark.kind === "watcher" && mark.name === one.name && mark.seq === one.seq);
  if (same) same.times += 1;
  else marks.push({ ...one, times: 1 });
  return marks;
}
