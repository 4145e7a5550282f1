// Makes the pictures of docs/console.md anew: `node pictures.mjs CHROMIUM URL [SECONDS]`, where URL is the console of a server that
// has something to do, which is looked at for SECONDS first. The admin API is played.

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { go, look, until } from "./looks.mjs";
import { MAIN, play } from "./played.mjs";

const [chromium, upstream, seconds = "240"] = process.argv.slice(2);
const folder = fileURLToPath(new URL("../../docs/pictures", import.meta.url));
/** Bytes of a picture, at most. */
const MOST = 60_000;

const { browser, open } = await look(chromium);
const { url, close } = await play(upstream);
const studio = await (await browser.newContext()).newPage();
mkdirSync(folder, { recursive: true });

/** Writes what is seen as WebP, which Chromium can make. */
async function picture(page, name) {
  const png = (await page.screenshot({ caret: "initial" })).toString("base64");
  const webp = await studio.evaluate(
    async ([png, most]) => {
      const image = new Image();
      image.src = `data:image/png;base64,${png}`;
      await image.decode();
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [image.width, image.height];
      canvas.getContext("2d").drawImage(image, 0, 0);
      let made = "";
      // As good as its bound allows.
      for (let quality = 0.9; quality >= 0.3; quality -= 0.05) {
        made = canvas.toDataURL("image/webp", quality).split(",")[1];
        if (made.length * 0.75 <= most) break;
      }
      return made;
    },
    [png, MOST],
  );
  const bytes = Buffer.from(webp, "base64");
  assert.ok(bytes.length <= MOST, `${name} has ${bytes.length} bytes`);
  writeFileSync(join(folder, name), bytes);
  console.log(`${name}: ${bytes.length} bytes`);
}

try {
  const page = await open(url, { viewport: { width: 1400, height: 1000 }, deviceScaleFactor: 0.75 });
  await page.waitForTimeout(Number(seconds) * 1000);
  await picture(page, "console-overview.webp");
  const settings = await open(url, { viewport: { width: 1000, height: 680 } });
  await until(settings.locator("nav a"), "Settings");
  await go(settings, "settings");
  const editor = settings.locator(".cm-content");
  await until(editor, /The settings of a server/);
  await editor.press("Control+a");
  await editor.press("Delete");
  await settings.keyboard.insertText(MAIN.replace("limits {", "bogus {").replace("include", "statis\ninclude"));
  await settings.locator(".cm-lintRange-error").first().waitFor();
  for (const key of ["ArrowUp", "ArrowUp", "End"]) await editor.press(key);
  await editor.pressSequentially("t");
  await until(settings.locator(".cm-completionInfo"), /./);
  await until(settings.locator(".said"), /bogus/);
  await picture(settings, "console-settings.webp");
} finally {
  await browser.close();
  close();
}
process.exit(0);
