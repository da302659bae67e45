// Elements. Text from files only ever becomes text nodes.

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child != null) node.append(child);
  }
  return node;
}

function section(id, title, ...children) {
  return el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), ...children);
}

function card(title, ...children) {
  return el("div", { class: "card" }, title ? el("h3", {}, title) : null, ...children);
}

function sentence(text) {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

// rows: lists of cells; a cell is text or a node. The first cell of a row is its heading.
function table(caption, head, rows, className = "") {
  const body = rows.map((row) =>
    el("tr", {}, row.map((cell, i) => el(i === 0 ? "th" : "td", i === 0 ? { scope: "row" } : {}, cell))));
  return el("div", { class: "tablebox" }, el("p", { class: "caption", "aria-hidden": "true" }, caption),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, el("table", { class: className },
      el("thead", {}, el("tr", {}, head.map((cell) => el("th", { scope: "col" }, cell)))),
      el("tbody", {}, body))));
}

function swatch(colour) {
  return el("span", { class: "swatch", style: `background: var(--${colour})`, "aria-hidden": "true" });
}

// A bar of 0 to 1 behind a number.
function meter(share, text, colour) {
  const width = Math.max(0, Math.min(1, share || 0)) * 100;
  return el("span", { class: "meter" },
    el("span", { class: "meter-bar", style: `width: ${width}%; background: var(--${colour})` }),
    el("span", { class: "meter-text" }, text));
}
