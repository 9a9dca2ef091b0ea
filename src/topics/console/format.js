// Numbers, sizes, durations and times as people read them.

import { h } from "./dom.js";

const WHOLE = new Intl.NumberFormat();
const SHORT = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
});
const TIME_MAX = 8.64e15;

export function count(value) {
  return value === null || value === undefined ? "–" : WHOLE.format(value);
}

export function short(value) {
  return value === null || value === undefined ? "–" : Math.abs(value) < 10000 ? WHOLE.format(value) : SHORT.format(value);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  while (value >= 1024 && unit < 5) { value /= 1024; unit += 1; }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  return value < 10 ? value.toFixed(1) : short(Math.round(value));
}

export function percent(share) {
  if (share === 0) return "0 %";
  if (share < 0.001) return "<0.1 %";
  return `${share >= 0.0995 ? Math.round(share * 100) : (share * 100).toFixed(1)} %`;
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

function utc(ms) {
  return new Date(ms).toISOString().replace("T", " ").replace("Z", " UTC");
}

// In the reader's zone; UTC on hover. What is no time is shown as it is.
export function time(ms) {
  if (ms === null || ms === undefined) return h("span", { class: "dim" }, "never");
  if (typeof ms !== "number" || !(Math.abs(ms) <= TIME_MAX)) return h("span", {}, String(ms));
  const today = Math.abs(Date.now() - ms) < 12 * 3600 * 1000;
  return h("time", { datetime: new Date(ms).toISOString(), title: utc(ms) }, (today ? CLOCK : DAY).format(ms));
}

export function ago(ms, now) {
  if (ms === null || ms === undefined) return h("span", { class: "dim" }, "never");
  if (!(Math.abs(ms) <= TIME_MAX)) return h("span", {}, String(ms));
  const gone = now - ms;
  return h("time", { datetime: new Date(ms).toISOString(), title: `${DAY.format(ms)} · ${utc(ms)}` },
    gone < 1500 ? "now" : `${duration(gone)} ago`);
}

// Numbers that JavaScript would change (1.0, 1e400, 18 digits) are kept as they were written, where the browser can.
export function parseExactly(text) {
  try {
    return JSON.parse(text, (_, value, context) =>
      typeof value === "number" && context?.source !== undefined && JSON.rawJSON && String(value) !== context.source
        ? JSON.rawJSON(context.source) : value);
  } catch (error) {
    if (error instanceof RangeError) return JSON.parse(text);
    throw error;
  }
}

const SHOWN_CHARS_MAX = 200_000;

// Text for a <pre>: at most 200 000 characters, and marks that turn the direction of text are shown as codes.
export function formatted(value, indent = 2) {
  let text;
  try {
    text = JSON.stringify(value, null, indent) ?? "";
  } catch (error) {
    text = error instanceof RangeError ? "(nested too deeply to show; export the topic to read it)" : String(value);
  }
  const cut = text.length > SHOWN_CHARS_MAX;
  text = plainText(cut ? text.slice(0, SHOWN_CHARS_MAX) : text);
  return cut ? `${text}\n… (the first ${count(SHOWN_CHARS_MAX)} of ${count(text.length)} characters)` : text;
}

export function plainText(text) {
  return text.replace(/[\u200e\u200f\u202a-\u202e\u2066-\u2069\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g,
    (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export function preview(value, length = 160) {
  let text;
  try { text = JSON.stringify(value) ?? ""; } catch { text = "(nested too deeply)"; }
  return plainText(text.length > length ? `${text.slice(0, length)}…` : text);
}
