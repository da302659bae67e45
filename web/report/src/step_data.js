// The timeline of a step: looking things up by time, and binning for a range. Times are microseconds from its begin.

const OPS = { begin: 0, end: 1, phase: 2, layer: 3, what: 4 };
const WAIT = { begin: 0, end: 1, cause: 2, phase: 3, layer: 4, what: 5 };
const MOVE = { begin: 0, end: 1, link: 2, tag: 3, layer: 4, bytes: 5, bundle: 6, submit: 7 };
const CHANGE = { at: 0, layer: 1, tag: 2, bytes: 3 };
const TAGS = 4; // those that take memory
const DISK_LINKS = 2; // read and write; then up and down, of a device

class StepData {
  constructor(timeline) {
    this.timeline = timeline;
    this.layer = null; // all of them
    this.links = timeline.device_bytes > 0 ? 2 * DISK_LINKS : DISK_LINKS;
    const layers = new Set();
    for (const op of timeline.ops) layers.add(op[OPS.layer]);
    for (const move of timeline.moves) layers.add(move[MOVE.layer]);
    this.layers = [...layers].sort((a, b) => a - b);
  }

  matches(layer) {
    return this.layer === null || layer === this.layer;
  }

  // Bytes a second by link in `count` bins.
  traffic(min, max, count) {
    const width = (max - min) / count;
    const links = Array.from({ length: this.links }, () => new Float64Array(count));
    for (const move of this.timeline.moves) {
      const begin = move[MOVE.submit];
      const end = move[MOVE.end];
      if (begin >= max || end <= min || !this.matches(move[MOVE.layer])) continue;
      const duration = Math.max(end - begin, 0.1);
      const first = Math.max(0, Math.floor((begin - min) / width));
      const last = Math.min(count - 1, Math.floor((begin + duration - min) / width));
      for (let bin = first; bin <= last; bin += 1) {
        const from = Math.max(begin, min + bin * width);
        const to = Math.min(begin + duration, min + (bin + 1) * width);
        if (to > from) links[move[MOVE.link]][bin] += (move[MOVE.bytes] * (to - from)) / duration;
      }
    }
    return links.map((link) => Array.from(link, (moved) => (moved / width) * 1e6));
  }

  // Bytes by tag in `count` bins, each at the moment at which the most were there.
  amounts(changes, min, max, count) {
    const width = (max - min) / count;
    const result = Array.from({ length: TAGS }, () => new Array(count));
    const now = new Array(TAGS).fill(0);
    let used = 0;
    let next = 0;
    const apply = () => {
      const at = changes[next][CHANGE.at];
      for (; next < changes.length && changes[next][CHANGE.at] === at; next += 1) {
        const change = changes[next];
        if (change[CHANGE.tag] >= TAGS || !this.matches(change[CHANGE.layer])) continue;
        now[change[CHANGE.tag]] += change[CHANGE.bytes];
        used += change[CHANGE.bytes];
      }
    };
    while (next < changes.length && changes[next][CHANGE.at] <= min) apply();
    for (let bin = 0; bin < count; bin += 1) {
      let most = used;
      let kept = now.slice();
      while (next < changes.length && changes[next][CHANGE.at] <= min + (bin + 1) * width) {
        apply();
        if (used > most) {
          most = used;
          kept = now.slice();
        }
      }
      for (let tag = 0; tag < TAGS; tag += 1) result[tag][bin] = kept[tag];
    }
    return result;
  }

  // What is under way at a time, in words.
  at(time) {
    const { timeline } = this;
    const within = (list) => list.filter((item) => item[0] <= time && time < item[1]);
    const parts = [];
    const wait = within(timeline.waits)[0];
    const op = within(timeline.ops)[0];
    if (wait) parts.push(`computing waits for ${wait[WAIT.what]}`);
    else if (op) parts.push(`computing ${op[OPS.what]}`);
    else parts.push("no op computes");
    const moves = within(timeline.moves);
    for (const [link, verb] of [[0, "the disk reads"], [1, "the disk writes"], [2, "the link copies up"], [3, "the link copies down"]]) {
      const move = moves.find((of) => of[MOVE.link] === link);
      if (move) {
        parts.push(`${verb} ${timeline.bundles[move[MOVE.bundle]] || "?"} (${bytes(move[MOVE.bytes])} in ` +
          `${seconds((move[MOVE.end] - move[MOVE.begin]) / 1e6)})`);
      }
    }
    if (!moves.some((of) => of[MOVE.link] < DISK_LINKS)) parts.push("the disk is idle");
    return `${seconds(time / 1e6)}: ${parts.join("; ")}.`;
  }
}

function stack(rows) {
  const sums = [];
  rows.forEach((row, i) => {
    sums.push(i === 0 ? row.slice() : row.map((value, k) => value + sums[i - 1][k]));
  });
  return sums;
}
