// A run over its steps: loss, speed, where the time of steps went, traffic.

const RUN_COLOURS = ["run-1", "run-2", "run-3", "run-4", "run-5", "run-6"];

function stepAxis(name = "Step") {
  return { label: name, value: (v) => count(v), values: (u, splits) => splits.map((v) => (v % 1 ? "" : count(v))) };
}

function byStep(run) {
  const { step } = run.steps;
  return new Group(`run-${run.number}`, step[0], Math.max(step[step.length - 1], step[0] + 1));
}

const line = (label, name, values, text, more = {}) =>
  ({ label, colour: name, values, value: (i, v) => text(v), ...more });

// A chart whose data is columns over the steps of a run.
function curves(group, steps, title, label, lines, axes, more = {}) {
  return new Chart({
    group, title, label, height: 210, x: stepAxis(), series: lines, axes,
    fill: () => [steps, ...lines.map((of) => of.values)], ...more,
  });
}

function lossChart(run, group) {
  const s = run.steps;
  const lines = [line("Loss", "loss", s.loss, plain)];
  if (s.eval_loss.some((v) => v != null)) lines.push(line("Evaluation loss", "eval", s.eval_loss, plain, { points: 7, spanGaps: true, width: 1, dash: [4, 4] }));
  lines.push(line("Learning rate", "rate", s.learning_rate, (v) => (v == null ? DASH : v.toExponential(2)), { scale: "rate", dash: [6, 4], width: 1.2 }));
  return curves(group, s.step, "Loss and learning rate", "Training loss, evaluation loss and learning rate by step", lines, [
    { scale: "y", zero: false, values: (u, splits) => splits.map((v) => mark(plain(v, 3))) },
    { scale: "rate", side: 1, grid: false, values: (u, splits) => splits.map((v) => (v === 0 ? "0" : v.toExponential(1).replace(".0", ""))) }]);
}

function speedChart(run, group) {
  const s = run.steps;
  const slow = new Set(run.slow.map(([step]) => step));
  const speed = (column) => s[column].map((v, i) => (v > 0 ? s.tokens[i] / v : null));
  const lines = [line("Tokens/s", "speed", s.tokens_per_second, count)];
  if (slow.size) lines.push(line("Slow step", "waiting", s.tokens_per_second.map((v, i) => (slow.has(s.step[i]) ? v : null)), count, { points: 7, width: 0 }));
  if (s.predicted_seconds.some((v) => v != null)) lines.push(line("Predicted", "predicted", speed("predicted_seconds"), count, { dash: [6, 4] }));
  if (s.lower_bound_seconds.some((v) => v != null)) lines.push(line("Bound", "bound", speed("lower_bound_seconds"), count, { dash: [2, 3] }));
  const title = run.commits.length ? "Tokens per second; marks at the top are commits" : "Tokens per second";
  return curves(group, s.step, title, "Tokens per second by step, with slow steps marked, against the prediction and the bound that no schedule can pass", lines,
    [{ scale: "y", values: (u, splits) => splits.map((v) => count(v)) }], { front: (u) => drawCommits(u, run.commits) });
}

function drawCommits(u, commits) {
  const { ctx } = u;
  ctx.save();
  ctx.fillStyle = colour("commit");
  for (const [, seen] of commits) {
    const x = u.valToPos(seen, "x", true);
    if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x - 4 * devicePixelRatio, u.bbox.top);
    ctx.lineTo(x + 4 * devicePixelRatio, u.bbox.top);
    ctx.lineTo(x, u.bbox.top + 7 * devicePixelRatio);
    ctx.fill();
  }
  ctx.restore();
}

// Columns stacked on each other.
function stackedCurves(group, steps, title, label, names, colourNames, columns) {
  const sums = stack(columns.map((column) => column.map((v) => v || 0)));
  return new Chart({
    group, title, label, height: 210, x: stepAxis(),
    series: names.map((name, k) => ({ label: name, colour: colourNames[k], width: 0.5, fill: k === 0 ? 0.75 : undefined,
      value: (i) => seconds(columns[k][i]) })),
    bands: names.slice(1).map((name, k) => [k + 2, k + 1, colourNames[k + 1]]),
    axes: [{ scale: "y", values: (u, splits) => splits.map((v) => mark(seconds(v))) }],
    fill: () => [steps, ...sums],
  });
}

function runCharts(run) {
  const s = run.steps;
  const group = byStep(run);
  const charts = [lossChart(run, group), speedChart(run, group)];
  const device = s.up_bytes.some((moved) => moved !== null);
  if (run.totals.with_totals > 0) {
    const phases = phasesOf([run]);
    const causes = device ? DATA.causes : DATA.causes.slice(0, DISK_CAUSES);
    charts.push(stackedCurves(group, s.step, "Where the time of a step goes", "Seconds of each phase by step, stacked",
      phases.map((p) => capital(PHASES[p] === "other" ? "host" : PHASES[p])), phases.map((p) => PHASE_COLOURS[p]),
      phases.map((p) => s.phase_seconds[p])));
    charts.push(stackedCurves(group, s.step, device ? "Waiting for disk and link, by cause" : "Waiting for the disk, by cause",
      "Seconds waited in each step by cause, stacked", causes.map((name) => capital(CAUSE_WORDS[name])),
      causes.map((name) => `cause-${name}`), s.wait_seconds.slice(0, causes.length)));
  }
  const moved = [line("Read", "link-read", s.read_bytes, bytes), line("Written", "link-write", s.write_bytes, bytes)];
  if (device) moved.push(line("Copied up", "link-up", s.up_bytes, bytes), line("Copied down", "link-down", s.down_bytes, bytes));
  charts.push(curves(group, s.step, "Moved in a step", "Bytes over the links in each step", moved,
    [{ scale: "y", values: (u, splits) => splits.map((v) => (v === 0 ? "0" : mark(bytes(v)))), size: 72, incrs: BINARY }]));
  return { group, charts };
}

function runSection(run) {
  const id = `run-${run.number}`;
  if (run.steps.step.length === 0) {
    return section(id, "The run over its steps", el("p", { class: "empty" }, "No step was recorded."));
  }
  const { group, charts } = runCharts(run);
  const thinned = run.steps.every > 1 ? el("p", { class: "hint" }, `Each point is the mean of ${count(run.steps.every)} steps.`) : null;
  return section(id, "The run over its steps", slowSentence(run), thinned,
    el("div", { class: "toolbar no-print" }, group.buttons()),
    el("div", { class: "grid" }, charts.map((chart) => chart.node)));
}

function slowSentence(run) {
  if (!run.slow_count) return null;
  const [step, took, median] = run.slow.reduce((worst, of) => (of[1] / of[2] > worst[1] / worst[2] ? of : worst));
  return el("p", {}, `${count(run.slow_count)} slow ${run.slow_count === 1 ? "step" : "steps"} took more than 1.5 times the median around; the worst is step ${count(step)} with ${seconds(took)} instead of ${seconds(median)}.`);
}
