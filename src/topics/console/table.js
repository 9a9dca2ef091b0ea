// A table of any length: only the rows in view, and some around them, are in the page.

import { h, show } from "./dom.js";

const AROUND = 12;

// Columns: {name, title, cell(row), sort(row), kind}. The order is kept in `order`: {column, down}.
export function windowedTable(label, columns, order, onOpen, rowKey) {
  let rows = [];
  let seen = "";
  const state = { column: order.column, down: order.down };
  const body = h("tbody");
  const head = h("tr");
  const table = h("table", { class: "windowed", "aria-label": label, "aria-rowcount": 0 }, h("thead", {}, head), body);
  const frame = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label, onscroll: () => draw(false) }, table);

  function drawHead() {
    show(head, columns.map((column) => h("th", {
      scope: "col", class: column.kind ?? "",
      "aria-sort": state.column !== column.name ? null : state.down ? "descending" : "ascending",
    }, column.sort ? h("button", { type: "button", class: "sort", onclick: () => sortBy(column) },
      column.title, h("span", { "aria-hidden": "true" }, state.column !== column.name ? "" : state.down ? " ↓" : " ↑"))
      : column.title)));
  }

  function sortBy(column) {
    Object.assign(state, state.column === column.name ? { down: !state.down } : { column: column.name, down: column.kind?.startsWith("number") ?? false });
    drawHead();
    sorted();
    draw(true);
  }

  function sorted() {
    const by = columns.find((column) => column.name === state.column)?.sort;
    if (!by) return;
    const keyed = rows.map((row) => [by(row) ?? -Infinity, row]);
    const sign = state.down ? -1 : 1;
    keyed.sort(([left], [right]) => (left < right ? -sign : left > right ? sign : 0));
    rows = keyed.map(([, row]) => row);
  }

  function draw(always) {
    const height = rowHeight();
    const first = Math.max(0, Math.floor(frame.scrollTop / height) - AROUND);
    const last = Math.min(rows.length, first + Math.ceil((frame.clientHeight || 800) / height) + 2 * AROUND);
    const now = `${first}-${last}`;
    if (!always && now === seen) return;
    seen = now;
    const focused = document.activeElement?.closest?.("tr")?.dataset.key;
    const within = body.contains(document.activeElement);
    table.setAttribute("aria-rowcount", rows.length + 1);
    show(body, spacer(first * height),
      rows.slice(first, last).map((row, index) => h("tr", {
        "data-key": rowKey(row), "aria-rowindex": first + index + 2,
        onclick: (event) => { if (!event.target.closest("a,button")) onOpen(row); },
      }, columns.map((column) => h("td", { class: column.kind ?? "" }, column.cell(row))))),
      spacer((rows.length - last) * height));
    if (within && focused !== undefined)
      body.querySelector(`tr[data-key="${CSS.escape(focused)}"] a`)?.focus({ preventScroll: true });
  }

  function spacer(height) {
    return h("tr", { class: "spacer", "aria-hidden": "true" }, h("td", { colspan: columns.length, styles: { height: `${height}px` } }));
  }

  function rowHeight() {
    return body.querySelector("tr[data-key]")?.offsetHeight || 37;
  }

  drawHead();
  return {
    element: frame,
    update(next) {
      rows = next.slice();
      sorted();
      draw(true);
    },
  };
}

// A plain table for short lists.
export function plainTable(label, titles, rows, kinds = []) {
  return h("div", { class: "scroll short", tabindex: 0, role: "region", "aria-label": label },
    h("table", { "aria-label": label },
      h("thead", {}, h("tr", {}, titles.map((title, index) => h("th", { scope: "col", class: kinds[index] ?? "" }, title)))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, index) => h("td", { class: kinds[index] ?? "" }, cell)))))));
}
