// Charts over uPlot: their frame, legend with the values under the cursor, zoom by dragging, keys and buttons, and the
// same range and cursor in all charts of a group.

// Charts whose x axis is one and the same.
class Group {
  constructor(key, min, max) {
    this.key = key;
    this.full = [min, max];
    this.range = [min, max];
    this.charts = [];
    this.listeners = [];
  }

  // `fill(min, max)` of a chart makes its data for a range; null: the data stays.
  add(chart) {
    this.charts.push(chart);
  }

  setRange(min, max) {
    const [low, high] = this.full;
    const least = (high - low) / 20000;
    if (!(max - min > least)) {
      const middle = (min + max) / 2;
      min = middle - least / 2;
      max = middle + least / 2;
    }
    min = Math.max(low, min);
    max = Math.min(high, max);
    if (min === this.range[0] && max === this.range[1]) return;
    this.range = [min, max];
    this.refresh();
  }

  refresh() {
    for (const chart of this.charts) chart.show();
    for (const listener of this.listeners) listener(this.range);
  }

  zoom(factor, around) {
    const [min, max] = this.range;
    const at = around == null ? (min + max) / 2 : around;
    this.setRange(at - (at - min) * factor, at + (max - at) * factor);
  }

  pan(share) {
    const [min, max] = this.range;
    let by = (max - min) * share;
    by = Math.max(this.full[0] - min, Math.min(this.full[1] - max, by));
    this.setRange(min + by, max + by);
  }

  reset() {
    this.setRange(...this.full);
  }

  buttons() {
    const button = (text, label, action) => el("button", { type: "button", "aria-label": label, title: label, onclick: action }, text);
    return el("div", { class: "zoom", role: "group", "aria-label": "Zoom" },
      button("−", "Zoom out", () => this.zoom(2)), button("+", "Zoom in", () => this.zoom(0.5)),
      button("◀", "Earlier", () => this.pan(-0.25)), button("▶", "Later", () => this.pan(0.25)),
      button("Reset", "Show all", () => this.reset()));
  }
}

const MONO = "11px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";

// Everything that is drawn has its colour as a function, so that a theme can change.
//   group, title, label (for those who do not see it), height
//   series: [{label, colour: name, value: (index) => text, width, fill, dash, points, paths, scale}]
//   axes: [{scale, values, side, size, label}] for y; x: {values, label}
//   fill: (min, max, width) => data
//   bands: pairs of series between which it is filled
//   behind, front: (u) => draws on the canvas
class Chart {
  constructor(options) {
    this.options = options;
    this.holder = el("div", { class: "plot", tabindex: "0", role: "img", "aria-label": options.label });
    this.readout = options.readout ? el("p", { class: "readout", "aria-live": "polite" }, options.hint || "") : null;
    this.node = el("figure", { class: "chart" },
      options.title ? el("figcaption", {}, options.title) : null, this.holder, this.readout);
    this.holder.addEventListener("keydown", (event) => this.onKey(event));
    options.group.add(this);
    redraws.add(() => this.rebuild());
    new ResizeObserver(() => this.resize()).observe(this.holder);
  }

  width() {
    return Math.max(200, Math.floor(this.holder.clientWidth));
  }

  resize() {
    const width = this.width();
    if (!this.holder.clientWidth) return;
    if (!this.plot) return this.rebuild();
    if (this.plot.width === width) return;
    this.plot.setSize({ width, height: this.options.height });
    this.show();
  }

  rebuild() {
    if (!this.holder.clientWidth) return;
    if (this.plot) this.plot.destroy();
    this.data = this.options.fill(...this.options.group.range, this.width());
    this.plot = new uPlot(this.settings(), this.data, this.holder);
  }

  show() {
    if (!this.plot) return;
    this.showing = true;
    const [min, max] = this.options.group.range;
    this.data = this.options.fill(min, max, this.width());
    this.plot.batch(() => {
      this.plot.setData(this.data, false);
      this.plot.setScale("x", { min, max });
      for (const axis of this.options.axes) {
        const range = this.yRange(axis);
        this.plot.setScale(axis.scale, { min: range[0], max: range[1] });
      }
    });
    this.showing = false;
  }

  // From 0, or from the least where `axis.zero` is false, to a little above the most that is shown.
  yRange(axis) {
    if (axis.range) return axis.range();
    let low = axis.zero === false ? Infinity : 0;
    let high = axis.least || 0;
    this.options.series.forEach((series, i) => {
      if ((series.scale || "y") !== axis.scale) return;
      if (this.plot && !this.plot.series[i + 1].show) return;
      for (const value of this.data[i + 1]) {
        if (value == null) continue;
        if (value > high) high = value;
        if (value < low) low = value;
      }
    });
    if (!(high > low)) high = low + 1;
    const margin = (high - low) * 0.06;
    return axis.zero === false ? [low - margin, high + margin] : [low, high + margin];
  }

  settings() {
    const { group, series, axes, x, height, bands } = this.options;
    const grid = { stroke: colour("grid"), width: 1 };
    const axis = (of) => ({
      stroke: colour("muted"), ticks: { show: false }, font: MONO, ...of,
      grid: of.grid === false ? { show: false } : grid,
    });
    const scales = { x: { time: false, range: () => group.range } };
    for (const of of axes) scales[of.scale] = { range: () => this.yRange(of) };
    return {
      width: this.width(), height, scales, bands: (bands || []).map(([upper, lower, name, alpha]) =>
        ({ series: [upper, lower], fill: withAlpha(colour(name), alpha == null ? 0.75 : alpha) })),
      series: [
        { label: x.label, value: (u, v, s, i) => (i == null ? DASH : x.value(v)) },
        ...series.map((of) => ({
          label: of.label, scale: of.scale || "y", width: of.width == null ? 1.5 : of.width,
          stroke: of.colour ? colour(of.colour) : "transparent", dash: of.dash, paths: of.paths && of.paths(),
          fill: of.fill ? withAlpha(colour(of.colour), of.fill) : undefined, spanGaps: of.spanGaps,
          points: of.points ? { show: true, size: of.points, fill: colour(of.colour), stroke: colour(of.colour) }
            : { show: false },
          value: (u, v, s, i) => (i == null ? DASH : of.value(i, v)),
        })),
      ],
      axes: [axis({ values: x.values, size: 26, space: 70 }),
        ...axes.map((of) => axis({ scale: of.scale, side: of.side || 3, size: of.size || 62, values: of.values, ...(of.incrs ? { incrs: of.incrs } : {}),
          grid: of.grid, space: 34 }))],
      cursor: {
        sync: { key: group.key, setSeries: false, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
        drag: { x: true, y: false, setScale: false, dist: 4 },
        points: { size: 7 }, y: false,
        bind: { dblclick: (u, target, handler) => () => { group.reset(); return null; } },
      },
      legend: { show: series.length > 0 && !this.options.readout, live: true,
        markers: { width: 0, fill: (u, i) => (i > 0 && series[i - 1].colour ? colour(series[i - 1].colour) : "transparent") } },
      hooks: {
        drawClear: [(u) => this.options.behind && this.options.behind(u)],
        draw: [(u) => this.options.front && this.options.front(u)],
        setSelect: [(u) => this.select(u)],
        setSeries: [() => this.plot && !this.showing && this.show()],
        setCursor: [(u) => this.onCursor(u)],
        ready: [(u) => this.makeLegendReachable(u)],
      },
    };
  }

  makeLegendReachable(u) {
    for (const row of u.root.querySelectorAll(".u-legend .u-series")) {
      const head = row.querySelector("th");
      head.setAttribute("title", "Show or hide");
    }
  }

  select(u) {
    if (u.select.width < 4) return;
    const min = u.posToVal(u.select.left, "x");
    const max = u.posToVal(u.select.left + u.select.width, "x");
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.options.group.setRange(min, max);
  }

  onCursor(u) {
    if (!this.readout || !this.options.readout) return;
    const at = u.cursor.left == null || u.cursor.left < 0 ? null : u.posToVal(u.cursor.left, "x");
    const text = at == null ? this.options.hint : this.options.readout(at);
    if (this.readout.textContent !== text) this.readout.textContent = text;
  }

  onKey(event) {
    const group = this.options.group;
    const u = this.plot;
    if (!u || event.ctrlKey || event.metaKey || event.altKey) return;
    const width = u.bbox.width / devicePixelRatio;
    const at = u.cursor.left >= 0 ? u.cursor.left : width / 2;
    const move = (by) => u.setCursor({ left: Math.max(0, Math.min(width, at + by)), top: 10 });
    const actions = {
      ArrowLeft: () => move(event.shiftKey ? -width / 10 : -width / 200),
      ArrowRight: () => move(event.shiftKey ? width / 10 : width / 200),
      Home: () => move(-width), End: () => move(width),
      "+": () => group.zoom(0.5, u.posToVal(at, "x")), "=": () => group.zoom(0.5, u.posToVal(at, "x")),
      "-": () => group.zoom(2, u.posToVal(at, "x")),
      PageUp: () => group.pan(-0.5), PageDown: () => group.pan(0.5),
      0: () => group.reset(), Escape: () => group.reset(),
    };
    if (!actions[event.key]) return;
    actions[event.key]();
    event.preventDefault();
  }
}

// Rectangles over the height of the plot: [from, to, colour]; labels where there is room.
function drawBands(u, bands, labelled) {
  const { ctx } = u;
  const { left, top, width, height } = u.bbox;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top - 20 * ratio, width, height + 20 * ratio);
  ctx.clip();
  for (const [from, to, name, text] of bands) {
    const a = Math.max(left, u.valToPos(from, "x", true));
    const b = Math.min(left + width, u.valToPos(to, "x", true));
    if (b <= a) continue;
    ctx.fillStyle = withAlpha(colour(name), currentTheme() === "dark" ? 0.2 : 0.16);
    ctx.fillRect(a, top, b - a, height);
    if (!labelled) continue;
    ctx.font = `600 ${11 * ratio}px system-ui, 'DejaVu Sans', sans-serif`;
    if (ctx.measureText(text).width + 8 * ratio > b - a) continue;
    ctx.fillStyle = colour("text");
    ctx.textAlign = "center";
    ctx.textBaseline = "bottom";
    ctx.fillText(text, (a + b) / 2, top - 3 * ratio);
  }
  ctx.restore();
}
