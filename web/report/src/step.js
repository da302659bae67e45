// One step: what computing and the links did over time, what was in memory, and what that says of each phase.

const PHASES = DATA.phases;
const PHASE_COLOURS = PHASES.map((name) => `phase-${name}`);
// Those that took time in one of the runs, by number.
const phasesOf = (runs) => [...PHASES.keys()].filter((p) => runs.some((run) => run.totals.phase_seconds[p] > 0));
const TAG_NAMES = DATA.tags.slice(0, TAGS);
const TAG_COLOURS = TAG_NAMES.map((name) => `tag-${name}`);
const DISK_CAUSES = 8; // the first; the others are of a device
const LINKS = [["Disk read", "link-read"], ["Disk write", "link-write"], ["Copy up", "link-up"], ["Copy down", "link-down"]];

const CAUSE_WORDS = {
  read_weights: "weights to be read", read_optimizer: "optimizer state to be read",
  read_gradients: "gradients to be read", read_activations: "activations to be read",
  write_weights: "weights to be written", write_optimizer: "optimizer state to be written",
  write_gradients: "gradients to be written", write_activations: "activations to be written",
  up_weights: "weights to come up to the device", up_optimizer: "optimizer state to come up to the device",
  up_gradients: "gradients to come up to the device", up_activations: "activations to come up to the device",
  down_weights: "weights to go down from the device", down_optimizer: "optimizer state to go down from the device",
  down_gradients: "gradients to go down from the device", down_activations: "activations to go down from the device",
  update: "updates on the host",
};

class StepView {
  constructor(run, number) {
    this.timeline = run.timeline;
    this.data = new StepData(run.timeline);
    this.group = new Group(`step-${number}`, 0, Math.max(run.timeline.us, 1));
    this.number = number;
    this.bands = run.timeline.bands.map(([from, to, phase]) => [from, to, PHASE_COLOURS[phase], PHASES[phase]]);
  }

  node() {
    const charts = [this.lanes(), this.traffic(), this.device(), this.memory(), this.disk()].filter(Boolean);
    return el("div", {}, this.toolbar(), this.legend(), charts.map((chart) => chart.node));
  }

  toolbar() {
    const names = this.data.layers.map((layer) =>
      el("option", { value: String(layer) }, layer < 0 ? "Outside the layers (embedding, head, shared)" : `Layer ${layer}`));
    const select = el("select", { id: `layer-${this.number}`, onchange: (event) => {
      this.data.layer = event.target.value === "" ? null : Number(event.target.value);
      this.group.refresh();
    } }, el("option", { value: "" }, "All layers"), names);
    return el("div", { class: "toolbar no-print" },
      el("label", { for: `layer-${this.number}` }, "Layer"), select, this.group.buttons(),
      el("p", { class: "hint" }, "Drag over a chart to zoom, double-click to show all. In a chart the arrow keys move, + and − zoom, 0 shows all."));
  }

  legend() {
    const present = new Set(this.timeline.bands.map((band) => band[2]));
    return el("ul", { class: "legend", "aria-label": "Colours of the phases" },
      PHASES.map((name, i) => (present.has(i) ? el("li", {}, swatch(`phase-${name}`), name === "other" ? "host" : name) : null)),
      el("li", {}, swatch("waiting"), "computing waits"),
      TAG_NAMES.map((name) => el("li", {}, swatch(`tag-${name}`), `moves of ${name}`)));
  }

  x() {
    return { label: "Time", value: (v) => seconds(v / 1e6), values: (u, splits) => {
      const [min, max] = this.group.range;
      const unit = max - min < 2e3 ? ["µs", 1] : max - min < 2e6 ? ["ms", 1e3] : ["s", 1e6];
      return splits.map((v) => `${+(v / unit[1]).toPrecision(6)} ${unit[0]}`);
    } };
  }

  bins(min, max, width) {
    const count = Math.max(60, Math.floor((width - 70) / 2));
    const step = (max - min) / count;
    return { count, centres: Array.from({ length: count }, (none, i) => min + (i + 0.5) * step) };
  }

  // A row each: computing, its waits, and each direction of the disk and of the link to a device.
  lanes() {
    const rows = ["compute", "waits", "read", "write", "up", "down"].slice(0, 2 + this.data.links);
    return new Chart({
      group: this.group, title: `What happened in step ${count(this.timeline.step)}`, height: 190, x: this.x(), series: [
        { label: "", width: 0, value: () => "" }],
      label: "Rows over time: what is computed by phase, where computing waits, what is read from and written to the disk, and what is copied to and from a device. The table of phases below has the numbers.",
      hint: "Point at a moment to read what was under way.",
      readout: (time) => this.data.at(Math.max(0, Math.min(time, this.timeline.us))),
      axes: [{ scale: "y", range: () => [0, rows.length], values: (u, splits) => splits.map(() => ""), grid: false, size: 72 }],
      fill: (min, max) => [[min, max], [0, 0]],
      behind: (u) => drawBands(u, this.bands, true),
      front: (u) => this.drawLanes(u, rows),
    });
  }

  drawLanes(u, rows) {
    const { ctx } = u;
    const { left, top, width, height } = u.bbox;
    const row = height / rows.length;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    const box = (begin, end, line, fill, strong) => {
      const a = u.valToPos(begin, "x", true);
      const b = u.valToPos(end, "x", true);
      if (b < left || a > left + width) return;
      ctx.globalAlpha = strong ? 1 : 0.13;
      ctx.fillStyle = fill;
      ctx.fillRect(a, top + line * row + row * 0.14, Math.max(b - a - (b - a > 4 ? 1 : 0), 0.8), row * 0.72);
    };
    const all = [...this.timeline.ops.map((op) => [op, 0, PHASE_COLOURS[op[OPS.phase]], op[OPS.layer]]),
      ...this.timeline.waits.map((wait) => [wait, 1, "waiting", wait[WAIT.layer]]),
      ...this.timeline.moves.map((move) => [move, 2 + move[MOVE.link], TAG_COLOURS[move[MOVE.tag]] || "muted", move[MOVE.layer]])];
    for (const strong of [false, true]) {
      for (const [item, line, name, layer] of all) {
        if (this.data.matches(layer) === strong) box(item[0], item[1], line, colour(name), strong);
      }
    }
    // What was waited for within the ops of a label.
    ctx.globalAlpha = 1;
    for (const wait of this.timeline.waits) {
      const a = u.valToPos(wait[0], "x", true);
      const b = u.valToPos(wait[1], "x", true);
      if (b < left || a > left + width) continue;
      ctx.fillStyle = colour("card");
      ctx.fillRect(a, top + row * 0.14, Math.max(b - a, 0.5), row * 0.72);
    }
    ctx.fillStyle = colour("muted");
    ctx.font = `${11 * devicePixelRatio}px system-ui, 'DejaVu Sans', sans-serif`;
    ctx.restore();
    ctx.save();
    ctx.fillStyle = colour("muted");
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    ctx.font = `${11 * devicePixelRatio}px system-ui, 'DejaVu Sans', sans-serif`;
    rows.forEach((name, i) => ctx.fillText(name, left - 6 * devicePixelRatio, top + (i + 0.5) * row));
    ctx.restore();
  }

  traffic() {
    const link = (label, name) => ({ label, colour: name, width: 1.2, fill: 0.35, paths: uPlot.paths.stepped, value: (i, v) => rate(v) });
    return new Chart({
      group: this.group, title: this.data.links > DISK_LINKS ? "Traffic of the disk and of the link to the device" : "Traffic of the links to the disk",
      height: 200, x: this.x(),
      label: "Bytes a second over each link, over the time of the step, with its phases",
      series: LINKS.slice(0, this.data.links).map(([label, name]) => link(label, name)).map((of) => ({ ...of, paths: () => uPlot.paths.stepped({ align: 1 }) })),
      axes: [{ scale: "y", values: (u, splits) => splits.map((v) => (v === 0 ? "0" : mark(rate(v)))), size: 72 }],
      fill: (min, max, width) => {
        const { count, centres } = this.bins(min, max, width);
        return [centres, ...this.data.traffic(min, max, count)];
      },
      behind: (u) => drawBands(u, this.bands, true),
    });
  }

  stacked(title, label, changes, least) {
    let rows = [];
    return new Chart({
      group: this.group, title, label, height: 200, x: this.x(),
      // From the top of the stack down, so that the legend reads as the picture does.
      series: TAG_NAMES.map((name, tag) => ({ label: capital(name), colour: TAG_COLOURS[tag], width: 0.5,
        fill: tag === 0 ? 0.75 : undefined, value: (i) => bytes(rows[tag] && rows[tag][i]) })),
      bands: TAG_NAMES.slice(1).map((name, i) => [i + 2, i + 1, TAG_COLOURS[i + 1]]),
      axes: [{ scale: "y", values: (u, splits) => splits.map((v) => (v === 0 ? "0" : mark(bytes(v)))), size: 72, incrs: BINARY,
        least: least }],
      fill: (min, max, width) => {
        const { count, centres } = this.bins(min, max, width);
        rows = this.data.amounts(changes, min, max, count);
        return [centres, ...stack(rows)];
      },
      behind: (u) => drawBands(u, this.bands, false),
      front: (u) => this.drawArena(u, least),
    });
  }

  // The pages that there are.
  drawArena(u, arena) {
    if (!arena || this.data.layer !== null) return;
    const y = u.valToPos(arena, "y", true);
    const { ctx } = u;
    ctx.save();
    ctx.strokeStyle = colour("muted");
    ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(u.bbox.left, y);
    ctx.lineTo(u.bbox.left + u.bbox.width, y);
    ctx.stroke();
    ctx.restore();
  }

  memory() {
    return this.stacked(`In memory: ${bytes(this.timeline.arena_bytes)} of pages, by what is on them`,
      "Bytes in memory by tensor class over the time of the step", this.timeline.memory, this.timeline.arena_bytes);
  }

  device() {
    if (this.data.links === DISK_LINKS) return null;
    return this.stacked(`On the device: ${bytes(this.timeline.device_bytes)} of pages, by what is on them`,
      "Bytes on the device by tensor class over the time of the step", this.timeline.device, this.timeline.device_bytes);
  }

  disk() {
    if (!this.timeline.disk.some((change) => change[CHANGE.bytes] > 0)) return null;
    return this.stacked("On the disk alone", "Bytes that are on the disk and not in memory, by tensor class, over the time of the step",
      this.timeline.disk, 0);
  }
}

function phaseRows(timeline) {
  return timeline.phases.map((row) => [
    el("span", {}, swatch(`phase-${PHASES[row.phase]}`), PHASES[row.phase] === "other" ? "host" : PHASES[row.phase]),
    seconds(row.seconds),
    meter(row.waiting_seconds / row.seconds, percent(row.waiting_seconds, row.seconds), "waiting"),
    meter(row.disk_busy_seconds / row.seconds, percent(row.disk_busy_seconds, row.seconds), "link-read"),
    meter(1 - row.disk_busy_seconds / row.seconds, percent(row.seconds - row.disk_busy_seconds, row.seconds), "idle"),
    rate(row.read_bytes / row.seconds), rate(row.write_bytes / row.seconds), waitedFor(row),
  ]);
}

function waitedFor(row) {
  const most = row.wait_seconds.reduce((best, value, i) => (value > row.wait_seconds[best] ? i : best), 0);
  return row.wait_seconds[most] > 0 ? CAUSE_WORDS[DATA.causes[most]] : DASH;
}

function phaseTable(timeline) {
  return table(`Phases of step ${count(timeline.step)}: who waits, and when the disk is idle`,
    ["Phase", "Time", timeline.device_bytes > 0 ? "Waits" : "Waits for the disk", "Disk busy", "Disk idle", "Read", "Written", "Waits mostly for"],
    phaseRows(timeline), "phases");
}

function stepSection(run, number) {
  if (!run.timeline) {
    return section(`step-${number}`, "One step over time",
      el("p", { class: "empty" }, "There is no record of a step to show. The notes at the end say which file is missing."));
  }
  const { timeline } = run;
  return section(`step-${number}`, "One step over time",
    el("div", { class: "says" }, run.step_sentences.map((text) => el("p", {}, sentence(text)))),
    timeline.whole ? null : el("p", { class: "hint" }, "The run ended in this step: what follows is all there is of it."),
    phaseTable(timeline), new StepView(run, number).node());
}
