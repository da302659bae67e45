// Several runs side by side: curves over each other, figures in columns, options that differ.

function joined(runs, column) {
  const steps = [...new Set(runs.flatMap((run) => run.steps.step))].sort((a, b) => a - b);
  const columns = runs.map((run) => {
    const at = new Map(run.steps.step.map((step, i) => [step, run.steps[column][i]]));
    return steps.map((step) => (at.has(step) ? at.get(step) : undefined));
  });
  return { steps, columns };
}

function compareChart(runs, group, column, title, text, axis, values) {
  const { steps, columns } = joined(runs, column);
  return new Chart({
    group, title, label: `${title} of each run by step`, height: 230, x: stepAxis(),
    series: runs.map((run, k) => line(run.label, RUN_COLOURS[k], columns[k], text, { spanGaps: true })),
    axes: [{ scale: "y", values: (u, splits) => splits.map(values), ...axis }],
    fill: () => [steps, ...columns],
  });
}

function ratio(value, first) {
  if (!(first > 0) || value == null) return null;
  const share = value / first;
  return share === 1 ? null : el("span", { class: "ratio" }, ` ${plain(share, 3)}×`);
}

function compareRows(runs) {
  const row = (name, get, text, compared) => [name, ...runs.map((run) => el("span", {}, text(get(run)),
    compared ? ratio(get(run), get(runs[0])) : null))];
  const each = (value, run) => (run.totals.steps ? value / run.totals.steps : null);
  return [
    row("How it ended", (run) => run.state, (v) => v),
    row("Steps", (run) => run.totals.steps, count),
    row("Memory allowed", (run) => run.budget_bytes || null, bytes, true),
    row("Peak resident memory", (run) => run.totals.peak_rss_bytes, bytes, true),
    row("Tokens per second (median)", (run) => run.totals.median_tokens_per_second, count, true),
    row("Seconds of a step (median)", (run) => run.totals.median_step_seconds, seconds, true),
    row("Share of the lower bound", (run) => run.totals, (t) => percent(t.lower_bound_seconds, t.median_step_seconds)),
    row("Waiting for the disk", (run) => run.totals, (t) => percent(t.stall_seconds, t.seconds)),
    row("Read in a step", (run) => each(run.totals.read_bytes, run), bytes, true),
    row("Written in a step", (run) => each(run.totals.write_bytes, run), bytes, true),
    row("Loss at the end", (run) => run.totals.last_loss, plain),
    row("Evaluation loss", (run) => run.totals.eval_loss, plain),
    ...phasesOf(runs).map((p) => row(`${capital(PHASES[p] === "other" ? "host" : PHASES[p])}, each step`,
      (run) => (run.totals.with_totals ? run.totals.phase_seconds[p] / run.totals.with_totals : null), seconds, true)),
  ];
}

function differences(runs) {
  const keys = [...new Set(runs.flatMap((run) => run.config.map(([key]) => key)))];
  const values = runs.map((run) => new Map(run.config.map(([key, value]) => [key, value])));
  return keys.filter((key) => new Set(values.map((of) => of.get(key))).size > 1)
    .map((key) => [key, ...values.map((of) => (of.has(key) ? of.get(key) : DASH))]);
}

// Names that tell runs apart: the folder where the last part of it is the same.
function nameRuns(runs) {
  const names = runs.map((run) => run.name);
  runs.forEach((run, k) => {
    run.number = k + 1;
    run.label = names.filter((name) => name === run.name).length > 1 ? run.folder : run.name;
  });
}

function sameLosses(runs) {
  const [first, ...others] = runs.map((run) => new Map(run.steps.step.map((step, i) => [step, run.steps.loss[i]])));
  if (runs.some((run) => run.steps.every > 1)) return null;
  let shared = 0;
  for (const [step, loss] of first) {
    if (!others.every((of) => of.has(step))) continue;
    shared += 1;
    if (others.some((of) => of.get(step) !== loss)) return null;
  }
  if (!shared) return null;
  return el("p", {}, `The losses of all ${count(shared)} shared steps are the same bits.`);
}

function compareSection(runs) {
  const steps = runs.flatMap((run) => run.steps.step);
  const head = () => ["", ...runs.map((run, k) => el("span", {}, swatch(RUN_COLOURS[k]), run.label))];
  const different = differences(runs);
  const nodes = [el("div", { class: "says" }, sameLosses(runs)), table("The runs in figures; small numbers are relative to the first", head(), compareRows(runs))];
  if (steps.length) {
    const low = steps.reduce((a, b) => Math.min(a, b));
    const high = steps.reduce((a, b) => Math.max(a, b));
    const group = new Group("compare", low, Math.max(high, low + 1));
    const charts = [
      compareChart(runs, group, "loss", "Loss", plain, { zero: false }, (v) => mark(plain(v, 3))),
      compareChart(runs, group, "tokens_per_second", "Tokens per second", count, {}, (v) => count(v))];
    nodes.push(el("div", { class: "toolbar no-print" }, group.buttons()), el("div", { class: "grid" }, charts.map((chart) => chart.node)));
  }
  nodes.push(different.length ? table("Options that differ", head(), different)
    : el("p", { class: "hint" }, "The options that are known are the same."));
  return section("compare", "The runs compared", ...nodes);
}
