// What every test in a browser wants: a page that tells of all that goes wrong on it, and a look at how sound it is.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export const WIDE = { width: 1400, height: 900 };
export const NARROW = { width: 390, height: 844 };

/** A browser; `said` becomes what went wrong in it. */
export async function look(executablePath) {
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
  const said = [];
  return { browser, said, open: (url, options) => open(browser, said, url, options) };
}

/** Opens the console; `expected` are statuses that the test provokes. */
async function open(browser, said, url, { expected = ["404"], ...options } = {}) {
  const context = await browser.newContext({ viewport: WIDE, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.on("pageerror", (error) => said.push(`an error: ${error.stack ?? error.message}`));
  page.on("console", (message) => {
    if (message.type() === "error" && !expected.some((status) => message.text().includes(status)))
      said.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(new URL("/", url).href) && !request.url().startsWith("data:"))
      said.push(`it asks ${request.url()}`);
  });
  page.on("dialog", (dialog) => {
    if (dialog.type() !== "beforeunload") said.push(`a dialog: ${dialog.message()}`);
    void dialog.accept();
  });
  await page.goto(url);
  return page;
}

/** Leads to a page of the console. */
export async function go(page, name, query = "") {
  await page.evaluate((hash) => {
    location.hash = hash;
  }, `#/${name}${query}`);
  await page.locator(`nav a[aria-current=page][href^="#/${name}"]`).waitFor();
}

/** Waits until a text matches. */
export async function until(locator, pattern) {
  await locator.filter({ hasText: pattern }).first().waitFor();
}

/** Nothing serious by axe-core, and nothing wider than the window. */
export async function isSound(page, what, said, shots) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  for (const { id, nodes } of serious)
    said.push(
      `axe, ${what}: ${id}: ${nodes
        .map(({ html }) => html)
        .join(" | ")
        .slice(0, 500)}`,
    );
  const beyond = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (beyond > 0) said.push(`${what}: wider than the window by ${beyond}`);
  // A screenshot without a caret would have a style put into the page.
  if (shots)
    await page.screenshot({
      path: join(shots, `${what.replace(/[^\w]+/g, "-")}.png`),
      fullPage: true,
      caret: "initial",
    });
}
