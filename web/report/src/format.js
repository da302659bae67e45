// The data, which the program put into the page.

const DATA = JSON.parse(document.getElementById("report-data").textContent);

// Numbers as people read them.

const DASH = "–";

function fixed(value, digits) {
  return value.toFixed(digits);
}

function significant(value, digits = 3) {
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  return size >= digits - 1 ? fixed(value, 0) : fixed(value, Math.min(8, digits - 1 - size));
}

function bytes(value) {
  if (value == null) return DASH;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(value) : significant(value)} ${units[unit]}`;
}

// Decimal, as rates of links are given.
function rate(value) {
  if (value == null) return DASH;
  if (value === 0) return "0";
  return value >= 1e8 ? `${significant(value / 1e9)} GB/s` : `${significant(value / 1e6)} MB/s`;
}

function seconds(value) {
  if (value == null) return DASH;
  if (value === 0) return "0 s";
  if (value < 1e-3) return `${significant(value * 1e6)} µs`;
  if (value < 1) return `${significant(value * 1e3)} ms`;
  if (value < 120) return `${significant(value)} s`;
  if (value < 7200) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  if (value < 172800) return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
  return `${significant(value / 86400)} days`;
}

function percent(part, whole) {
  if (!(whole > 0) || part == null) return DASH;
  const share = (100 * part) / whole;
  return `${share > 0 && share < 9.95 ? fixed(share, 1) : Math.round(share)}%`;
}

function count(value) {
  if (value == null) return DASH;
  return Math.round(value).toLocaleString("en-US");
}

function plain(value, digits = 4) {
  return value == null ? DASH : significant(value, digits);
}

// Short, for the marks of an axis.
function mark(text) {
  return text.replace(/(\.\d*?)0+(?= |$)/, "$1").replace(/\.(?= |$)/, "");
}

// Steps of axes in bytes.
const BINARY = Array.from({ length: 50 }, (none, i) => 2 ** i);

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
