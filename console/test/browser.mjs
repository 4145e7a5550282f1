// The console in a real browser, before a real server: `node browser.mjs CHROMIUM URL TIDEGATE CONTROL [SCREENSHOTS]`.
// `crates/tidegate/tests/console.rs` starts the server and an application that fails or never answers, and runs this.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { NARROW, go, isSound, look, until } from "./looks.mjs";

const [chromium, url, tidegate, control, shots] = process.argv.slice(2);
const PAGES = ["overview", "sites", "requests", "slow", "pools", "caches", "limits", "certificates"];
const { browser, said, open } = await look(chromium);

/** The figure of a tile. */
const tile = (page, name) => page.locator("dt", { hasText: name }).locator("xpath=following-sibling::dd/strong");

async function dataOfAllPages(page) {
  await until(tile(page, "Answers"), /\/s$/);
  await until(page.locator(".busiest"), /a\.test \/fail\/\*/);
  await page.locator(".chart canvas").first().waitFor();
  // The heat map: drawn, and told to who does not see it.
  const heat = page.locator("figure", { hasText: "how many took how long" });
  await until(heat.locator(".legend"), /most.+ to .+slowest/);
  await heat.locator("tbody tr").first().waitFor({ state: "attached" });
  await page.waitForFunction(() => {
    const canvas = document.querySelector("canvas.heat");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return data.some((value) => value > 0);
  });
  await go(page, "sites");
  await until(page.locator("tbody tr"), /a\.test\s*\/fail\/\*/);
  await page.locator("input[type=search]").fill("fail");
  await until(page.locator(".filter [role=status]"), /^1 of \d+$/);
  await page.getByRole("button", { name: "5xx" }).click();
  await page.locator("th[aria-sort=descending]", { hasText: "5xx" }).waitFor();
  await go(page, "requests");
  // What a client has chosen is text.
  await until(page.locator("tbody code"), "GET /hang/?<img src=x onerror=alert(1)>".slice(0, 10));
  assert.equal(await page.locator("tbody img").count(), 0);
  await go(page, "slow");
  await page.locator("caption, .empty").first().waitFor({ state: "attached" });
  await go(page, "limits");
  await until(page.locator("tbody tr"), /limit "?few/);
  await go(page, "pools");
  await until(page.locator("h2"), /Upstream app/);
  await go(page, "caches");
  await until(page.locator("h2"), /Cache main/);
  await until(tile(page, "Asked of applications"), /[1-9]/);
  await until(tile(page, "Memory"), /B$/);
  assert.equal(await page.getByRole("button", { name: /Purge/ }).count(), 0, "only who may operate purges");
  await go(page, "certificates");
  await until(page.locator(".empty"), /No certificate/);
  await go(page, "overview");
}

async function updatesGoOn(page) {
  const answers = async () =>
    Number(
      (
        await page.locator("dt", { hasText: "Answers" }).locator("xpath=following-sibling::dd/span").innerText()
      ).replace(/\D/g, ""),
    );
  for (const [command, sign] of [
    ["reload", /revision 2/],
    ["upgrade", /serving for/],
  ]) {
    const before = await answers();
    execFileSync(tidegate, [command, "--control", control]);
    await until(page.locator(".name"), sign);
    await page.waitForFunction((before) => {
      const note = [...document.querySelectorAll("dt")]
        .find((dt) => dt.textContent === "Answers")
        ?.nextElementSibling?.querySelector("span");
      return Number(note?.textContent.replace(/\D/g, "")) > before;
    }, before);
    await page.locator(".trouble").waitFor({ state: "detached" });
    if (command === "reload") {
      const { server } = await page.evaluate(async () => (await fetch("api/status?sites=none")).json());
      const { pid } = server.processes[0];
      process.kill(pid, "SIGKILL");
      await until(page.locator(".note"), new RegExp(`revision 2.*server process ${pid} replaced`));
    }
  }
  // An upgraded server begins with a revision 1 of its own, which is no change of the settings.
  await until(page.locator(".note"), /Broken lines: .*revision 2.* replaced.*upgrade to \d/);
  assert.equal(await page.locator(".note", { hasText: "revision 1" }).count(), 0);
}

async function keysAndPause(page) {
  await page.keyboard.press("p");
  await page.getByRole("button", { name: "Go on" }).waitFor();
  await page.keyboard.press("p");
  await page.keyboard.press("2");
  await until(page.locator("h1"), "Sites and routes");
  await page.getByRole("button", { name: "A row for each site" }).click();
  await page.getByRole("button", { name: "a.test" }).click();
  await until(page.locator("tbody tr"), /a\.test\s*\/fail/);
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("type")), "search");
  await page.keyboard.press("Escape");
  await page.keyboard.press("1");
  await until(page.locator("h1"), "Overview");
  await page.locator(".canvas").first().focus();
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("Enter");
  await until(page.locator(".note"), /Marked/);
  assert.match(page.url(), /at=\d+/);
  await page.keyboard.press("Escape");
  // A part of the range, by keys and by drawing over it; the address leads there again.
  await page.keyboard.press("+");
  await until(page.locator(".note"), /Shown/);
  assert.match(page.url(), /from=\d+&until=\d+/);
  await page.keyboard.press("Escape");
  await page.locator(".note", { hasText: "Shown" }).waitFor({ state: "detached" });
  const { x, y, width } = await page.locator(".u-over").first().boundingBox();
  await page.mouse.move(x + width - 120, y + 40);
  await page.mouse.down();
  await page.mouse.move(x + width - 5, y + 40, { steps: 5 });
  await page.mouse.up();
  await until(page.locator(".note"), /Shown/);
  assert.doesNotMatch(page.url(), /[?&]at=/);
  const link = page.url();
  await page.goto("about:blank");
  await page.goto(link);
  await until(page.locator(".note"), /Shown/);
  await page.getByRole("button", { name: "Copy the link" }).click();
  await until(page.locator(".note"), /Copied|Shown/);
  await page.getByRole("button", { name: "Whole range" }).click();
  await page.locator(".note", { hasText: "Shown" }).waitFor({ state: "detached" });
}

async function areSound(page, kind) {
  for (const name of PAGES) {
    await go(page, name);
    await page.locator("h1").waitFor();
    if (name !== "overview") await page.locator("caption, .empty, h2").first().waitFor({ state: "attached" });
    await isSound(page, `${kind} ${name}`, said, shots);
  }
}

try {
  const page = await open(url, { colorScheme: "light" });
  await dataOfAllPages(page);
  await keysAndPause(page);
  await areSound(page, "light");
  await go(page, "overview");
  await updatesGoOn(page);
  await areSound(await open(url, { colorScheme: "dark" }), "dark");
  await areSound(await open(url, { viewport: NARROW }), "narrow");
} finally {
  await browser.close();
}
assert.deepEqual(said, []);
console.log("all is well");
