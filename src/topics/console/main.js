// The frame: navigation, the key, light and dark, and which page is shown.

import { button, failed, h, show } from "./dom.js";
import { duration } from "./format.js";
import { allowed, forgetKey, hasKey, may, useKey } from "./api.js";
import { feed, onFeed, refresh, startFeed } from "./feed.js";
import { overviewPage } from "./overview.js";
import { topicPage } from "./topic.js";
import { queuesPage } from "./queues.js";
import { routersPage } from "./routers.js";
import { livePage } from "./live.js";
import { pipelinesPage } from "./pipelines.js";
import { metricsPage } from "./metrics.js";

const PAGES = [
  ["overview", "Overview", overviewPage],
  ["queues", "Queues", queuesPage],
  ["routers", "Routers", routersPage],
  ["live", "Live", livePage],
  ["pipelines", "Pipelines", pipelinesPage],
  ["metrics", "Metrics", metricsPage],
];
const THEMES = ["auto", "light", "dark"];

let current = null;
const main = h("main", { id: "main", tabindex: -1 });
const nav = h("nav", { "aria-label": "Pages" });
const state = h("div", { class: "state", role: "status" });
const keyPlace = h("div", { class: "key" });

function open() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decode);
  current?.stop?.();
  const isTopic = name === "topics" && rest[0];
  const page = PAGES.find(([known]) => known === name) ?? PAGES[0];
  document.title = `${isTopic ? rest[0] : page[1]} · topics`;
  current = isTopic ? topicPage(rest[0], rest[1]) : page[2](...rest);
  show(main, current.element);
  show(nav, PAGES.map(([known, title]) => h("a", {
    href: `#/${known}`, "aria-current": known === (isTopic ? "overview" : page[0]) ? "page" : null,
  }, title)));
  scrollTo(0, 0);
}

function decode(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

function theme() {
  const shown = THEMES.indexOf(document.documentElement.dataset.theme ?? "auto");
  const next = THEMES[(shown + 1) % THEMES.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  themeButton.textContent = `Theme: ${next}`;
}
const themeButton = button("Theme: auto", theme, "quiet");

function drawState() {
  if (feed.error?.status === 401) { askForKey("This key is not valid any more."); return; }
  show(state, feed.error
    ? h("span", { class: "bad" }, "● ", feed.error.status === 503 ? `The server is not ready: ${feed.error.message}` : feed.error.message)
    : feed.server ? h("span", {}, h("span", { class: "good", "aria-hidden": "true" }, "● "), `connected · up ${duration(feed.server.uptime_ms)}`) : "connecting…");
  show(keyPlace, may.required && hasKey() && [
    h("span", { title: may.prefixes.length ? `Names that begin with ${may.prefixes.join(", ")}` : "All names" },
      `key: ${may.scopes.join(", ")}${may.prefixes.length ? ` · ${may.prefixes.join(" ")}` : ""}`),
    button("Forget key", () => { forgetKey(); askForKey(""); }, "quiet")]);
}

function askForKey(reason) {
  if (document.getElementById("key-form")) return;
  current?.stop?.();
  current = null;
  show(nav);
  show(keyPlace);
  show(state, "a key is needed");
  const input = h("input", { type: "password", id: "key", autocomplete: "off", required: true, spellcheck: "false" });
  const said = h("p", { class: "bad-text", role: "alert" }, reason);
  show(main, h("form", { id: "key-form", class: "card narrow", onsubmit: async (event) => {
    event.preventDefault();
    try {
      await useKey(input.value);
      begin();
    } catch (error) {
      said.textContent = error.status === 401 ? "The server does not know this key." : error.message;
      input.select();
    }
  } }, h("h1", {}, "This server needs a key"),
    h("p", {}, "Enter one of its API keys. It is kept in this page's memory only, and forgotten when you reload or close it."),
    h("label", { for: "key" }, "API key"), input, said, h("button", { class: "primary" }, "Open the console")));
  input.focus();
}

let begun = false;
function begin() {
  if (!allowed("read")) {
    show(main, h("div", { class: "card narrow" }, h("h1", {}, "This key may not read"),
      h("p", {}, `Its scopes are: ${may.scopes.join(", ") || "none"}. The console shows what a key with the scope read may see.`),
      button("Use another key", () => { forgetKey(); askForKey(""); }, "primary")));
    return;
  }
  open();
  if (begun) { refresh(); return; }
  begun = true;
  addEventListener("hashchange", () => { if (current) open(); });
  onFeed(drawState);
  startFeed();
}

function shortcuts(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input,textarea,select,dialog")) return;
  if (event.key === "/") {
    const filter = document.getElementById("filter");
    if (filter) { event.preventDefault(); filter.focus(); }
  }
  const page = PAGES[Number(event.key) - 1];
  if (page && current) location.hash = `#/${page[0]}`;
}

async function start() {
  show(document.getElementById("app"),
    h("header", {}, h("a", { class: "brand", href: "#/overview", "aria-label": "topics: to the overview" }, h("span", { class: "mark", "aria-hidden": "true" }), "topics"),
      nav, h("div", { class: "corner" }, state, keyPlace, themeButton)),
    h("div", { id: "notice", "aria-live": "polite" }), main);
  document.addEventListener("keydown", shortcuts);
  addEventListener("unhandledrejection", (event) => { if (event.reason?.name !== "AbortError") failed(event.reason); });
  for (;;) {
    try {
      await useKey(null);
      begin();
      return;
    } catch (error) {
      if (error.status === 401) { askForKey(""); return; }
      show(main, h("div", { class: "empty" }, h("p", { class: "empty-title" }, "The server is not ready"), h("p", {}, error.message)));
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
}

start();
