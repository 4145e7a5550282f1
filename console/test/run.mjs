// Bundles the tests, which are TypeScript, and hands them to the test runner of node.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const output = mkdtempSync(join(tmpdir(), "tidegate-console-"));
const entryPoints = readdirSync(here)
  .filter((name) => name.endsWith(".test.ts"))
  .map((name) => join(here, name));
try {
  await build({
    entryPoints,
    outdir: output,
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node18",
    outExtension: { ".js": ".mjs" },
    logLevel: "warning",
  });
  const built = readdirSync(output).map((name) => join(output, name));
  process.exitCode = spawnSync(process.execPath, ["--test", ...built], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(output, { recursive: true });
}
