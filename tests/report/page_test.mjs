// The pages of tests/report/run in a headless Chromium: as a reader uses them, at desktop and phone width, in light and
// dark. Usage: node page_test.mjs FOLDER
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const folder = process.argv[2];
const { chromium } = createRequire(join(folder, "driver/"))("playwright-core");

const faults = [];

async function open(browser, file, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) faults.push(`${file}: console: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`${file}: ${error.stack}`));
  page.on("request", (request) => {
    if (!/^(file|data):/.test(request.url())) faults.push(`${file}: asks the network for ${request.url()}`);
  });
  page.on("dialog", (dialog) => {
    faults.push(`${file}: a script of the data ran`);
    dialog.dismiss();
  });
  await page.goto(pathToFileURL(join(folder, file)).href);
  await page.waitForFunction(() => document.querySelectorAll(".chart").length === document.querySelectorAll(".uplot").length);
  return page;
}

const chart = (page, title) => page.locator("figure.chart", { has: page.locator("figcaption", { hasText: title }) });

async function overflow(page) {
  return page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
}

async function shot(page, name) {
  await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
}

// Where ink is in the canvas of a chart: charts that draw nothing are found by this.
async function colours(figure) {
  return figure.locator("canvas").evaluate((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const seen = new Set();
    for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
    return seen.size;
  });
}

async function ticks(figure) {
  return figure.locator("canvas").evaluate((canvas) => canvas.toDataURL());
}

async function tryStep(page) {
  const says = await page.locator("#step-1 .says").innerText();
  assert.match(says, /leaves? the disk idle/);
  assert.match(says, /waits? for the disk/);
  const rows = await page.locator("table.phases tbody tr").allInnerTexts();
  assert.ok(rows.some((row) => row.startsWith("forward")) && rows.some((row) => row.startsWith("update")), rows.join("|"));

  // Hover shows values, in all charts of the step at once.
  const traffic = chart(page, "Traffic of the links");
  const over = traffic.locator(".u-over");
  await over.scrollIntoViewIfNeeded();
  const box = await over.boundingBox();
  await page.mouse.move(box.x + box.width * 0.6, box.y + box.height / 2);
  assert.match(await traffic.locator(".u-legend").innerText(), /Disk read\s*(0|[\d.]+ [GM]B\/s)/);
  assert.match(await chart(page, "In memory").locator(".u-legend").innerText(), /Optimizer\s*[\d.]+ [KMG]?i?B/);
  assert.match(await chart(page, "What happened").locator(".readout").innerText(), /^[\d.]+ (µs|ms|s): /);

  // Zoom by dragging, by keys, and back.
  const lanes = chart(page, "What happened");
  const before = await ticks(lanes);
  await page.mouse.move(box.x + box.width * 0.3, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.5, box.y + box.height / 2, { steps: 6 });
  await page.mouse.up();
  await page.mouse.move(0, 0);
  const zoomed = await ticks(lanes);
  assert.notEqual(zoomed, before, "dragging zooms all charts of the step");
  await shot(page, "desktop-zoomed");
  await lanes.locator(".plot").focus();
  await page.keyboard.press("+");
  assert.notEqual(await ticks(lanes), zoomed, "+ zooms");
  await page.keyboard.press("ArrowRight");
  assert.match(await lanes.locator(".readout").innerText(), /^[\d.]+ (µs|ms|s): /);
  await page.keyboard.press("0");
  await page.mouse.move(0, 0);
  assert.equal(await ticks(lanes), before, "0 shows all again");
  await over.dblclick({ position: { x: 5, y: 5 } });

  // One layer alone.
  const memory = chart(page, "In memory");
  const all = await ticks(memory);
  await page.getByLabel("Layer", { exact: true }).selectOption({ label: "Layer 1" });
  assert.notEqual(await ticks(memory), all, "the layer filter changes what is drawn");
  await shot(page, "desktop-layer");
  await page.getByLabel("Layer", { exact: true }).selectOption({ label: "All layers" });
}

async function main() {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox", "--force-color-profile=srgb"] });
  try {
    const page = await open(browser, "tight/report.html");
    assert.equal(await overflow(page), 0);
    await shot(page, "desktop-light");
    for (const figure of await page.locator("figure.chart").all()) {
      const caption = await figure.locator("figcaption").innerText();
      assert.ok(await colours(figure) > 4, `${caption}: is empty`);
    }
    await tryStep(page);
    await page.getByRole("button", { name: "Light or dark" }).click();
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
    await shot(page, "desktop-dark");
    await page.pdf({ path: join(folder, "print.pdf") });

    const phone = await open(browser, "tight/report.html", { viewport: { width: 375, height: 800 }, deviceScaleFactor: 2, hasTouch: true, colorScheme: "dark" });
    assert.equal(await overflow(phone), 0, "no sideways scrolling on a phone");
    assert.equal(await phone.evaluate(() => document.documentElement.dataset.theme), "dark");
    await shot(phone, "phone-dark");

    const killed = await open(browser, "killed/report.html");
    assert.match(await killed.locator(".story").innerText(), /ended from outside[\s\S]*Last op finished/);
    await shot(killed, "killed");

    const hostile = await open(browser, "hostile.html");
    assert.equal(await hostile.locator("img").count(), 0);
    assert.match(await hostile.locator("h1").innerText(), /<\/script>|img src|onerror/);
    assert.match(await hostile.locator("#notes-1").innerText(), /flight\.bin[\s\S]*|metrics\.jsonl/);
    await shot(hostile, "hostile");

    const wide = await open(browser, "wide.html");
    assert.match(await wide.locator("#step-1 .says").innerText(), /everything stayed in memory/);

    const compared = await open(browser, "compared.html");
    assert.match(await compared.locator("#compare").innerText(), /same bits/);
    assert.match(await compared.locator("#compare").innerText(), /memory\s/);
    await compared.getByRole("tab", { name: "tight" }).click();
    assert.match(await compared.locator("#subtitle").innerText(), /tight/);
    assert.equal(await compared.locator("#step-2").count(), 1);
    assert.equal(await overflow(compared), 0);
    await shot(compared, "compared");
    const narrow = await open(browser, "compared.html", { viewport: { width: 360, height: 740 } });
    assert.equal(await overflow(narrow), 0);
    await shot(narrow, "compared-phone");
  } finally {
    await browser.close();
  }
  const figure = readFileSync(join(folder, "step.png"));
  assert.equal(figure.subarray(1, 4).toString(), "PNG");
  assert.ok(figure.length > 20000, "the figure is empty");
  assert.ok(existsSync(join(folder, "print.pdf")));
  assert.deepEqual(faults, []);
  console.log(`pages of a run, a killed one, a hostile one and two compared: as they should be; screenshots in ${folder}`);
}

await main();
