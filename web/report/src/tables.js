// Figures, tables and texts about a run.

const STATES = {
  finished: "finished", stopped: "was stopped", failed: "ended with an error", running: "is running", killed: "was ended from outside",
  unknown: "how it ended is not known",
};

function tile(name, value, note) {
  return el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, value, note ? el("small", {}, note) : null));
}

function tiles(run) {
  const t = run.totals;
  const list = [];
  if (t.steps) {
    list.push(tile("Speed", `${count(t.median_tokens_per_second)} tokens/s`, `${seconds(t.median_step_seconds)} a step, median`));
    list.push(tile("Of the lower bound", t.lower_bound_seconds ? percent(t.lower_bound_seconds, t.median_step_seconds) : DASH,
      t.lower_bound_seconds ? `${seconds(t.lower_bound_seconds)} at best; predicted ${seconds(t.predicted_seconds)}` : "rates of the machine not known"));
    list.push(tile("Waiting for the disk", percent(t.stall_seconds, t.seconds), `${seconds(t.stall_seconds)} of ${seconds(t.seconds)}`));
    list.push(tile("Peak memory", bytes(t.peak_rss_bytes), run.budget_bytes ? `${bytes(run.budget_bytes)} allowed` : "resident, at the end of a step"));
    list.push(tile("Disk, each step", bytes(t.read_bytes / t.steps), `read; ${bytes(t.write_bytes / t.steps)} written`));
    list.push(tile("Loss", plain(t.last_loss), `from ${plain(t.first_loss)}${t.eval_loss == null ? "" : `; evaluation ${plain(t.eval_loss)}`}`));
  }
  return el("dl", { class: "tiles" }, list);
}

function storyCard(run) {
  if (!run.story.length) return null;
  const ill = run.state === "failed" || run.state === "killed";
  return el("div", { class: ill ? "card story ill" : "card story", role: ill ? "alert" : null },
    el("h3", {}, ill ? "When it stopped" : "How it stands"),
    el("ul", {}, run.story.map((text) => el("li", {}, sentence(capital(text))))));
}

function bar(name, value, whole, colourName, text) {
  return el("li", {}, el("span", { class: "bar-name" }, name),
    el("span", { class: "bar-track" }, el("span", { class: "bar", style: `width: ${whole > 0 ? (100 * value) / whole : 0}%; background: var(--${colourName})` })),
    el("span", { class: "bar-text" }, text));
}

function breakdown(run) {
  const t = run.totals;
  if (!t.with_totals) return null;
  const phases = t.phase_seconds;
  const all = phases.reduce((a, b) => a + b, 0);
  const most = Math.max(...phases);
  return card("Where the time goes, mean of all steps", el("ul", { class: "bars" }, phasesOf([run]).map((p) =>
    bar(PHASES[p] === "other" ? "host" : PHASES[p], phases[p], most, PHASE_COLOURS[p], `${seconds(phases[p] / t.with_totals)}, ${percent(phases[p], all)}`))));
}

// By tensor class and link.
function moved(run) {
  const t = run.totals;
  if (!t.with_totals) return null;
  const n = t.with_totals;
  const device = run.steps.up_bytes.some((copied) => copied !== null);
  const sum = (list) => list.slice(0, TAGS).reduce((a, b) => a + b, 0);
  const waits = (link) => TAG_NAMES.map((name) => t.wait_seconds[DATA.causes.indexOf(`${link}_${name}`)]);
  const links = ["read", "write", ...(device ? ["up", "down"] : [])].map(waits);
  const most = Math.max(...links.flat(), 1e-12);
  const cell = (value) => (value > 0 ? meter(value / most, `${seconds(value / n)}, ${percent(value, t.seconds)}`, "waiting") : DASH);
  const row = (heading, value) => {
    const [read, written, ...copied] = links.map((of) => cell(value(of)));
    return [heading, bytes(value(t.read_bytes_by_tag) / n), read, bytes(value(t.write_bytes_by_tag) / n), written, ...copied];
  };
  const rows = TAG_NAMES.map((name, tag) => row(el("span", {}, swatch(TAG_COLOURS[tag]), capital(name)), (of) => of[tag]));
  rows.push(row("All", sum));
  const head = ["", "Read", "Waited for reads", "Written", "Waited for writes"];
  if (device) head.push("Waited for copies up", "Waited for copies down");
  return table("What moves and what is waited for, mean of a step", head, rows, "moved");
}

const RATED_TERABYTES = 600; // as drives of 1 TB for personal computers usually are

function wear(run) {
  const t = run.totals;
  if (!t.steps) return null;
  const perDay = t.seconds > 0 ? (t.write_bytes / t.seconds) * 86400 : 0;
  const rows = [["Written in the steps of this run", bytes(t.write_bytes)],
    ["Read in the steps of this run", bytes(t.read_bytes)],
    ["Written for each token", t.tokens ? bytes(t.write_bytes / t.tokens) : DASH],
    ["Written in a day at this pace", bytes(perDay)]];
  const limit = run.config.find(([key]) => key === "max_disk_writes_per_day");
  if (limit) rows.push(["Limit of a day (max_disk_writes_per_day)", limit[1]]);
  if (perDay > 0) {
    rows.push([`A drive rated for ${RATED_TERABYTES} TB written would last, at this pace`,
      seconds((RATED_TERABYTES * 1e12) / perDay * 86400)]);
  }
  return table("Disk wear", ["", ""], rows, "plain");
}

function machineTable(run) {
  const m = run.machine;
  if (!m) return el("p", { class: "empty" }, "The machine was not recorded.");
  const known = m.source === "measured" || m.source === "declared";
  const rows = [["Processor", m.processor.split(";")[0] || DASH], ["Processors", count(m.cpus)], ["Compute threads", count(m.threads)],
    ["Memory", bytes(m.memory_bytes)], ["System", m.kernel || DASH], ["Libraries", m.libraries || DASH]];
  if (known) {
    rows.push(["Products, bf16", `${significant(m.bf16_flops_per_second / 1e9)} GFLOP/s`],
      ["Products, f32", `${significant(m.f32_flops_per_second / 1e9)} GFLOP/s`],
      ["Memory bandwidth", rate(m.memory_bytes_per_second)]);
    for (const disk of m.disks) {
      rows.push([`Disk ${disk.directory || ""} ${disk.device ? `(${disk.device})` : ""}`,
        `reads ${rate(disk.read_bytes_per_second)}, writes ${rate(disk.write_bytes_per_second)}, both ${rate(disk.mixed_bytes_per_second)}`]);
    }
  }
  rows.push(["Rates are", known ? m.source : "not known: `spillway probe` measures them"]);
  return table("The machine", ["", ""], rows, "plain");
}

function configTable(run) {
  if (!run.config.length) {
    return run.config_text ? el("pre", {}, run.config_text) : el("p", { class: "empty" }, "The options were not recorded.");
  }
  const rows = run.config.map(([key, value, usual]) => [key, usual ? value : el("strong", {}, value)]);
  return table("Options of the run; bold ones are not the defaults", ["Key", "Value"], rows, "plain config");
}

function aboutSection(run) {
  return section(`about-${run.number}`, "Machine and options", el("div", { class: "grid" },
    card(null, machineTable(run), wear(run)), card(null, configTable(run))));
}

function notes(run) {
  if (!run.notes.length) return null;
  return section(`notes-${run.number}`, "Notes", el("p", {}, "Some of this run could not be read:"),
    el("ul", {}, run.notes.map((note) => el("li", {}, sentence(note)))));
}
