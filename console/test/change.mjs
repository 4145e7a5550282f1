// Settings changed in a real browser, at a real server: `node change.mjs CHROMIUM URL [SCREENSHOTS]`, where URL is a console with
// `change` for `anna`, whose password is `secret` (`crates/tidegate/tests/console.rs`).

import assert from "node:assert/strict";
import { go, isSound, look, until } from "./looks.mjs";

const [chromium, url, shots] = process.argv.slice(2);
const { browser, said, open } = await look(chromium);
const page = await open(url, {
  expected: ["401", "404", "422"],
  httpCredentials: { username: "anna", password: "secret" },
});
const button = (name) => page.getByRole("button", { name, exact: true });
const editor = page.locator(".cm-content");

/** What the server says at a path of its own. */
const served = (path) => page.evaluate(async (path) => (await fetch(path)).text(), path);
const settings = async () => JSON.parse(await served("api/v1/settings")).files[0].text;

async function type(text) {
  await editor.press("Control+a");
  await editor.press("Delete");
  await page.keyboard.insertText(text);
}

/** Waits until the server says so: what was begun before the change is answered as before. */
async function untilServed(text) {
  await page.waitForFunction(async (text) => (await (await fetch("/text")).text()) === text, text);
}

try {
  await until(page.locator("nav a"), "Settings");
  await go(page, "settings");
  await until(editor, /site/);
  const before = await settings();
  assert.equal(await served("/text"), "first");

  // A mistake cannot be applied.
  await type(before.replace('200 "first"', "200 bogus=1"));
  await until(page.locator(".actions"), /stands? in the way/);
  assert.ok(await button("Apply …").isDisabled());

  // A change can, and is kept.
  await type(before.replace('200 "first"', '200 "second"'));
  await page.locator("button.main:enabled", { hasText: "Apply …" }).waitFor();
  await button("Apply …").click();
  await until(page.locator(".changes"), /localhost/);
  await until(page.locator(".difference .added"), /second/);
  await button("Apply it").click();
  await until(page.locator(".pending"), /is in force for now/);
  await untilServed("second");
  await isSound(page, "changed settings", said, shots);
  await button("Keep it").click();
  await until(page.locator(".done"), /is kept/);
  assert.equal(await settings(), before.replace('200 "first"', '200 "second"'));

  // And it can be taken back.
  await button("Revisions").click();
  await until(page.locator("tbody tr"), /anna/);
  await button("Go back to revision 1").click();
  await button("Go back to it").click();
  await until(page.locator(".done"), /with the texts of revision 1/);
  await untilServed("first");
  assert.equal(await settings(), before);
  await button("Keep it").click();
  await until(page.locator(".done"), /is kept/);

  // Requests as they end, and what would answer one.
  await go(page, "tail");
  await until(page.locator("tbody tr"), /fail\/x/);
  await go(page, "explain");
  await page.getByLabel("URL").fill(new URL("/text", url).href);
  await button("Explain").click();
  await until(page.locator("pre"), /200/);
} finally {
  await browser.close();
}
assert.deepEqual(said, []);
console.log("all is well");
process.exit(0);
