// Elements, made without HTML: every value that comes from outside becomes a text node or an attribute.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || (value === false && !name.startsWith("aria-"))) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.setAttribute("class", value);
    else if (name === "value") element.value = value;
    else if (name === "styles") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function s(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

export function show(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return parent;
}

// A labelled form field: the label is always visible, the note below says what the value means.
let fieldsMade = 0;
export function field(label, input, note) {
  fieldsMade += 1;
  input.id ||= `field-${fieldsMade}`;
  return h("div", { class: "field" }, h("label", { for: input.id }, label), input, note && h("small", {}, note));
}

export function select(options, chosen, properties) {
  return h("select", properties, options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
}

export function button(text, onclick, kind = "", properties = {}) {
  return h("button", { type: "button", class: kind, onclick, ...properties }, text);
}

export function empty(title, ...next) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), next.length > 0 && h("p", {}, next));
}

export function card(title, ...children) {
  return h("section", { class: "card", "aria-label": title }, h("h2", {}, title), children);
}

export function fact(label, value, note, kind = "") {
  return h("div", { class: `fact ${kind}` }, h("dt", {}, label), h("dd", {}, value, note && h("small", {}, note)));
}

let noticeTimer = 0;
export function notice(text, kind = "good") {
  let place = document.getElementById("notice");
  if (!place) return;
  clearTimeout(noticeTimer);
  show(place, h("div", { class: `notice ${kind}` }, text, button("Close", () => show(place), "quiet")));
  if (kind === "good") noticeTimer = setTimeout(() => show(place), 8000);
}

export function failed(error) {
  notice(error.message ?? String(error), "bad");
}

// Asks before something is done that cannot be undone. Resolves to true or false. With "Close" it only shows something.
export function ask(title, body, action, kind = "danger") {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-label": title },
      h("h2", {}, title), h("div", {}, body),
      h("div", { class: "actions" }, action !== "Close" && button("Cancel", () => dialog.close(""), "quiet"),
        button(action, () => dialog.close("yes"), kind)));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); });
    document.body.append(dialog);
    dialog.showModal();
  });
}
