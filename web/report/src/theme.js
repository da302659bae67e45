// Light and dark: the system's, until the button says otherwise. Charts are redrawn, since canvas knows no variables.

const redraws = new Set();
let forcedTheme = null;

function currentTheme() {
  if (forcedTheme) return forcedTheme;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function applyTheme() {
  document.documentElement.dataset.theme = currentTheme();
  colours.clear();
  const button = document.getElementById("theme");
  button.textContent = currentTheme() === "dark" ? "Light" : "Dark";
  for (const redraw of redraws) redraw();
}

const colours = new Map();
function colour(name) {
  if (!colours.has(name)) {
    colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  }
  return colours.get(name);
}

function withAlpha(hex, alpha) {
  const value = parseInt(hex.slice(1), 16);
  return `rgba(${value >> 16}, ${(value >> 8) & 255}, ${value & 255}, ${alpha})`;
}

function startTheme() {
  applyTheme();
  document.getElementById("theme").addEventListener("click", () => {
    forcedTheme = currentTheme() === "dark" ? "light" : "dark";
    applyTheme();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
  document.getElementById("print").addEventListener("click", () => print());
  let before = null;
  addEventListener("beforeprint", () => {
    before = forcedTheme;
    forcedTheme = "light";
    applyTheme();
  });
  addEventListener("afterprint", () => {
    forcedTheme = before;
    applyTheme();
  });
}
