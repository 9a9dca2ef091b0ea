// Lines over time, as small SVG pictures with a text beside them for who cannot see them.

import { h, s } from "./dom.js";
import { time } from "./format.js";

const WIDTH = 400;

// Series: [{name, kind, values}], where values are numbers or null. Null is a gap, never a zero.
export function lines(title, samples, series, show, height = 96) {
  const top = Math.max(1e-9, ...series.flatMap((one) => samples.map((sample) => one.of(sample) ?? 0)));
  const first = samples[0]?.ts ?? 0;
  const span = Math.max(1, (samples.at(-1)?.ts ?? 1) - first);
  const x = (sample) => ((sample.ts - first) / span) * WIDTH;
  const y = (value) => height - 4 - (value / top) * (height - 12);
  const picture = s("svg", { viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", class: "chart", "aria-hidden": "true" },
    [0.25, 0.5, 0.75].map((share) => s("line", { x1: 0, x2: WIDTH, y1: height * share, y2: height * share, class: "grid" })),
    series.map((one) => s("path", { d: path(samples, one.of, x, y), class: `line ${one.kind}` })));
  const latest = series.map((one) => {
    const seen = samples.map(one.of).filter((value) => value !== null && value !== undefined);
    return h("span", { class: `legend ${one.kind}` }, h("b", {}, seen.length ? show(seen.at(-1)) : "–"), " ", one.name);
  });
  return h("figure", { class: "chart-card" },
    h("figcaption", {}, h("h3", {}, title), h("div", { class: "legends" }, latest)),
    picture,
    h("div", { class: "axis" }, samples.length > 1 ? time(first) : "", h("span", {}, `highest ${show(top === 1e-9 ? 0 : top)}`),
      samples.length > 1 ? time(samples.at(-1).ts) : "collecting…"));
}

function path(samples, of, x, y) {
  let drawing = "";
  let pen = false;
  for (const sample of samples) {
    const value = of(sample);
    if (value === null || value === undefined) { pen = false; continue; }
    drawing += pen ? `L${x(sample).toFixed(1)} ${y(value).toFixed(1)}` : `M${x(sample).toFixed(1)} ${y(value).toFixed(1)}l0 0`;
    pen = true;
  }
  return drawing;
}

// The shares of a log: live, deleted (asked for), lost (nobody asked for it).
export function shareBar(topic) {
  const all = topic.head_seq;
  const words = all === 0 ? "nothing written yet"
    : `of ${all} seqs ${topic.count} are live, ${topic.deleted} deleted, ${topic.lost} lost`;
  if (all === 0) return h("span", { class: "share none", role: "img", "aria-label": words, title: words });
  const wide = (value) => (value === 0 ? 0 : Math.max(2, (value / all) * 100));
  let x = 0;
  const parts = [["lost", topic.lost], ["deleted", topic.deleted], ["live", topic.count]].map(([kind, value]) => {
    const width = wide(value);
    const part = s("rect", { x, y: 0, width, height: 10, class: kind });
    x += width;
    return part;
  });
  return h("span", { class: "share", role: "img", "aria-label": words, title: words },
    s("svg", { viewBox: `0 0 ${Math.max(100, x)} 10`, preserveAspectRatio: "none", "aria-hidden": "true" }, parts));
}
