// The pages of kept runs in a real browser: `node runs.mjs CHROMIUM URL PID [SCREENSHOTS]`. PID is that of a run that goes on,
// which is ended. `crates/tidegate/tests/bench/runs.rs` starts all of it, with runs whose names would be markup, and runs this.

import assert from "node:assert/strict";
import { NARROW, isSound, look, until } from "./looks.mjs";

const [chromium, url, pid, shots] = process.argv.slice(2);
const { browser, said, open } = await look(chromium);
const GOES_ON = "goes on";

/** The table, its filter, and the way to two runs and to a series. */
async function table(page) {
  await until(page.locator("tbody tr"), GOES_ON);
  assert.equal(await page.locator("img").count(), 0, "names of runs are text");
  await page.getByLabel("Verdict").selectOption("FAIL");
  // By keys alone.
  await page.getByLabel("Name, label or target").fill("evil");
  await page.keyboard.press("Enter");
  await until(page.locator(".sub"), /^3 of 4/);
  assert.equal(await page.getByLabel("Verdict").inputValue(), "FAIL");
  const boxes = page.getByRole("checkbox");
  await boxes.nth(0).focus();
  await page.keyboard.press("Space");
  await boxes.nth(1).check();
  await page.getByRole("button", { name: "Compare" }).click();
  await until(page.locator("h1"), "beside each other");
  await until(page.locator(".note"), "proves nothing");
  await isSound(page, "runs pair", said, shots);
  await page.goBack();
  for (let number = 0; number < 3; number += 1) await boxes.nth(number).check();
  await page.getByRole("button", { name: "Compare" }).click();
  await until(page.locator("h1"), "3 runs as a series");
  await page.getByRole("img", { name: /Operations per second over users.*20.0 to 60.0/ }).waitFor();
  await isSound(page, "runs series", said, shots);
}

/** A run that goes on is drawn as it goes on, and says when it has ended. */
async function live(page) {
  await page.goto(url);
  await page.locator("tr", { hasText: GOES_ON }).getByRole("link").click();
  await until(page.locator(".verdict"), "RUNNING");
  const seconds = async () => Number((await page.locator(".note", { hasText: "seconds" }).innerText()).split(" ")[0]);
  const first = await seconds();
  await page.waitForFunction(
    (first) => Number(document.querySelector("#live .note")?.textContent.split(" ")[0]) > first,
    first,
  );
  await page.getByRole("img", { name: /Operations over time, over seconds; all:/ }).waitFor();
  await page.getByRole("img", { name: /Users and connections over time, over seconds; users active:/ }).waitFor();
  await isSound(page, "runs live", said, shots);
  process.kill(Number(pid), "SIGINT");
  await until(page.locator(".verdict"), /MEASURED|INVALID|FAIL/);
  await until(page.locator("pre").first(), "Verdict:");
}

/** One run with everything, for whoever looks at it in another way. */
async function areSound(page, kind) {
  await isSound(page, `runs table ${kind}`, said, shots);
  await page.getByRole("link", { name: "evil" }).first().click();
  await until(page.locator("h2"), "Over time");
  await page.getByRole("img", { name: /^Response times of operations, and their targets/ }).waitFor();
  await isSound(page, `runs one ${kind}`, said, shots);
  await page.getByRole("link", { name: "All runs" }).click();
  for (const number of [1, 2]) await page.getByRole("checkbox").nth(number).check();
  await page.getByRole("button", { name: "Compare" }).click();
  await until(page.locator("h1"), "beside each other");
  await isSound(page, `runs pair ${kind}`, said, shots);
}

try {
  const page = await open(url, { colorScheme: "light" });
  await table(page);
  await live(page);
  await areSound(await open(url, { colorScheme: "light" }), "light");
  await areSound(await open(url, { colorScheme: "dark" }), "dark");
  await areSound(await open(url, { viewport: NARROW }), "narrow");
} finally {
  await browser.close();
}
assert.deepEqual(said, []);
console.log("all is well");
