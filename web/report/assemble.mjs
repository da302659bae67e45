// Puts page.html, style.css, the chart library and src/*.js into one page, and that into a C++ source.
// Usage: node assemble.mjs NODE_MODULES FOLDER
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const [modules, folder] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));
const own = (name) => readFileSync(join(here, name), "utf8");
const library = (name) => readFileSync(join(modules, "uplot", name), "utf8");

const scripts = ["format", "dom", "theme", "chart", "step_data", "step", "run", "compare", "tables", "main"];
const licence = library("LICENSE").trim();
const version = JSON.parse(library("package.json")).version;

const parts = {
  "@STYLE@": library("dist/uPlot.min.css") + own("style.css"),
  "@LIBRARY@": `/* uPlot ${version}\n${licence} */\n` + library("dist/uPlot.iife.min.js"),
  "@SCRIPT@": `(() => {\n"use strict";\n${scripts.map((name) => own(`src/${name}.js`)).join("\n")}\n})();`,
};
let page = own("page.html");
for (const [place, text] of Object.entries(parts)) {
  if (place !== "@STYLE@" && /<\/script/i.test(text)) throw new Error(`${place} would end its script`);
  page = page.split(place).join(text);
}

// Raw strings in pieces: some compilers limit the length of one.
const pieces = page.match(/[\s\S]{1,4000}/g).map((piece) => `    R"page~(${piece})page~"`);
writeFileSync(join(folder, "uPlot.LICENSE"), licence + "\n");
writeFileSync(
  join(folder, "page_text.cpp"),
  `// The page of spillway report, made by web/report/assemble.mjs.\n#include "report/page.h"\n\nnamespace spillway {\n` +
    `const std::string_view report_page_text =\n${pieces.join("\n")};\nconst std::string_view report_page_missing;\n}\n`,
);
