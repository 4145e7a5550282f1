// How the console is built: one page, one script, one sheet of styles, each compressed here once. The server sends the
// compressed form as it is; `crates/tidegate-modules/build.rs` puts what lies in `dist` into the program.

import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import { defineConfig } from "vite";

/** JavaScript, compressed: what every page wants, and all of it. More is worth a look at what has come in. */
const [FIRST, MOST] = [90_000, 250 * 1024];

/** What the script has of others: their licences want to go with it. */
function licences(root) {
  const editor = ["autocomplete", "commands", "language", "lint", "search", "state", "streamparser", "view"];
  return [
    ...["preact", "@preact/signals", "@preact/signals-core", "uplot"],
    ...editor.map((name) => `@codemirror/${name}`),
    ...[
      "@lezer/common",
      "@lezer/highlight",
      "@lezer/lr",
      "@marijn/find-cluster-break",
      "crelt",
      "style-mod",
      "w3c-keyname",
    ],
  ]
    .map((name) => `${name}\n\n${readFileSync(join(root, "node_modules", name, "LICENSE"), "utf8")}`)
    .join("\n----\n\n");
}

/** Puts compressed files into the place of the others. */
function compressed() {
  let [root, folder] = ["", ""];
  return {
    name: "compressed",
    apply: "build",
    configResolved(config) {
      root = config.root;
      folder = resolve(root, config.build.outDir);
    },
    closeBundle() {
      let [first, scripts] = [0, 0];
      const page = readFileSync(join(folder, "index.html"), "utf8");
      writeFileSync(join(folder, "licences.txt"), licences(root));
      for (const name of readdirSync(folder).filter((name) => !name.startsWith(".") && !name.endsWith(".gz"))) {
        const packed = gzipSync(readFileSync(join(folder, name)), { level: 9 });
        writeFileSync(join(folder, `${name}.gz`), packed);
        rmSync(join(folder, name));
        if (name.endsWith(".js")) scripts += packed.length;
        if (name === "index.html" || page.includes(name)) first += packed.length;
      }
      console.log(
        `console: ${(scripts / 1024).toFixed(1)} KiB of JavaScript, compressed; ${first} bytes to begin with`,
      );
      if (first > FIRST) throw new Error(`more than ${FIRST} bytes to begin with`);
      if (scripts > MOST) throw new Error(`more than ${MOST / 1024} KiB of JavaScript`);
    },
  };
}

export default defineConfig({
  // The console does not know below which route it is served.
  base: "./",
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  build: {
    target: "es2022",
    assetsDir: ".",
    // What git keeps of the folder stays; `cargo xtask console` empties it.
    emptyOutDir: false,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  plugins: [compressed()],
});
