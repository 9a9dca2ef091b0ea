// The last hour in pictures, as far as this page was open: it is kept here and nowhere else.

import { h, show } from "./dom.js";
import { bytes, count, duration, percent, plural, rate } from "./format.js";
import { feed, onFeed } from "./feed.js";
import { lines } from "./chart.js";

const of = (name) => (sample) => sample[name];
const atMost = (us) => `≤ ${us < 1000 ? `${Math.round(us)} µs` : duration(us / 1000)}`; // the end of a bucket

const CHARTS = [
  ["Records written", [["records/s", "a", "records"]], rate],
  ["Records lost", [["lost/s", "bad", "lost"]], rate],
  ["Requests", [["requests/s", "a", "requests"]], rate],
  ["Time to answer", [["p50", "a", "latency50"], ["p99", "b", "latency99"]], atMost],
  ["fsync", [["p50", "a", "fsync50"], ["p99", "b", "fsync99"]], atMost],
  ["Written to the log", [["a second", "a", "wal"]], bytes],
  ["Network", [["received/s", "a", "received"], ["sent/s", "b", "sent"]], bytes],
  ["Event loop", [["worst lag", "a", "loop"]], duration],
  ["Memory", [["resident", "a", "memory"]], bytes],
  ["Connections", [["open", "a", "connections"], ["live", "b", "live"]], count],
  ["Pressure", [["of 100 %", "a", "pressure"]], percent],
  ["Last checkpoint", [["took", "a", "checkpoint"]], duration],
];

export function metricsPage() {
  const place = h("div", { class: "charts" });
  const span = h("p", { class: "dim", role: "status" });
  let drawn = -1;

  function draw() {
    const samples = feed.hour;
    if (samples.at(-1)?.ts === drawn) return;
    drawn = samples.at(-1)?.ts;
    span.textContent = samples.length < 2 ? "Collecting; the first figures come in a few seconds."
      : `${plural(samples.length, "sample")} over ${duration(samples.at(-1).ts - samples[0].ts)}. While the tab is hidden nothing is asked for.`;
    show(place, CHARTS.map(([title, series, show_]) => lines(title, samples, series.map(([name, kind, key]) => ({ name, kind, of: of(key) })), show_)));
  }

  const unsubscribe = onFeed(draw);
  draw();
  return {
    element: h("div", {}, h("h1", {}, "Metrics"), span, place,
      h("p", {}, "For Prometheus: ", h("a", { href: "/v0/metrics", target: "_blank", rel: "noreferrer" }, "/v0/metrics"), " (with keys on, it needs a key with the scope read).")),
    stop: unsubscribe,
  };
}
