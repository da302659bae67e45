// The page.

function runNodes(run) {
  return [tiles(run), storyCard(run), stepSection(run, run.number),
    section(`time-${run.number}`, "Where time and bytes go", saysOfBound(run), el("div", { class: "grid" }, breakdown(run), card(null, moved(run)))),
    runSection(run), aboutSection(run), notes(run)];
}

function saysOfBound(run) {
  return el("div", { class: "says" }, run.bound_sentences.map((text) => el("p", {}, sentence(text))));
}

function subtitle(run) {
  const steps = run.totals.steps ? `, ${count(run.totals.steps)} of ${count(run.totals.total_steps)} steps` : "";
  return `${run.folder}: ${STATES[run.state] || run.state}${steps}`;
}

function tabs(runs, holder) {
  const buttons = runs.map((run, k) => el("button", { type: "button", role: "tab", id: `tab-${run.number}`,
    "aria-controls": "run", onclick: () => choose(k) }, swatch(RUN_COLOURS[k]), run.label));
  const choose = (k) => {
    buttons.forEach((button, i) => {
      button.setAttribute("aria-selected", String(i === k));
      button.tabIndex = i === k ? 0 : -1;
    });
    holder.replaceChildren(...runNodes(runs[k]).filter(Boolean));
    holder.setAttribute("aria-labelledby", `tab-${runs[k].number}`);
  };
  const list = el("div", { class: "tabs", role: "tablist", "aria-label": "Runs" }, buttons);
  list.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    const next = (buttons.indexOf(document.activeElement) + by + runs.length) % runs.length;
    choose(next);
    buttons[next].focus();
  });
  choose(0);
  return list;
}

function start() {
  const { runs } = DATA;
  nameRuns(runs);
  const content = document.getElementById("content");
  const single = runs.length === 1;
  document.title = `${runs.map((run) => run.label).join(" and ")} – Spillway report`;
  document.getElementById("title").textContent = runs.map((run) => run.label).join(" and ");
  document.getElementById("subtitle").textContent = single ? subtitle(runs[0]) : runs.map(subtitle).join("; ");
  startTheme();
  if (single) {
    content.replaceChildren(...runNodes(runs[0]).filter(Boolean));
  } else {
    const holder = el("div", { id: "run", role: "tabpanel" });
    content.replaceChildren(compareSection(runs), tabs(runs, holder), holder);
  }
  document.getElementById("foot").textContent =
    `Made by Spillway ${DATA.spillway} on ${DATA.made}. Charts by uPlot, whose licence is in the source of this page.`;
}

start();
