// A server that plays the admin API, with its errors, in front of a real one: the page is the one of `dist`, with the fields
// that the real server gives it, the figures are the real ones, and `api/v1/*` is played here.

import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const dist = join(root, "dist");
const schema = readFileSync(join(root, "../docs/reference/settings.schema.json"));
const TYPES = { html: "text/html", js: "text/javascript", css: "text/css", txt: "text/plain" };

export const MAIN = `// The settings of a server.
listen "127.0.0.1:8080"

limits {
    body-size "16MiB" // the default
}

site "a.test" {
    root "/srv/a"
    route "/app/*" { proxy "app" }
}

include "sites.kdl"
`;
export const SITES = `site "b.test" { respond 200 "b" }
`;
const PATHS = ["/etc/tidegate/tidegate.kdl", "/etc/tidegate/sites.kdl"];

const etagOf = (texts) => `"${createHash("sha256").update(JSON.stringify(texts)).digest("hex").slice(0, 16)}"`;

/** Plays the API in front of `upstream`, the address of a console; without `isThere` there is no API. */
export async function play(upstream, { may = ["view", "operate", "settings"], isThere = true } = {}) {
  const revisions = [
    {
      revision: 6,
      at: "2026-11-20T08:00:00Z",
      who: "start",
      what: "started",
      texts: [MAIN.replace("16MiB", "1MiB"), SITES],
    },
    { revision: 7, at: "2026-11-22T08:00:00Z", who: "ben", what: "settings changed: limits", texts: [MAIN, SITES] },
  ];
  const state = {
    may,
    isThere,
    csrf: "token-1",
    revisions,
    /** What was asked for that changes something: `METHOD name body`. */
    done: [],
    /** How the next requests end, by `METHOD name`: a status with a sentence, or `break` for an answer that breaks off. */
    next: new Map(),
    /** Milliseconds that each check takes. */
    slowness: 0,
    confirm: null,
    confirmWithin: null,
    isWaiting: false,
    tails: new Set(),
    row: tailRow,
    inForce: () => revisions.at(-1),
    /** Somebody else writes settings. */
    overtake(texts) {
      add(state, "carl", "settings changed: by hand", texts);
    },
    cutTails() {
      for (const answer of state.tails) answer.destroy();
    },
  };
  const page = await new Promise((told) => request(upstream, told).end());
  page.resume();
  const fields = Object.fromEntries(
    ["content-security-policy", "x-content-type-options", "referrer-policy"].map((name) => [name, page.headers[name]]),
  );
  const server = createServer((asked, answer) => {
    const below = asked.url.replace(/^\/\.console\//, "");
    if (below.startsWith("api/v1/")) return void api(state, asked, answer, below.slice(7));
    if (below.startsWith("api/")) return pass(upstream, state, asked, answer, below);
    file(answer, below.split("?")[0] || "index.html", fields);
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  const url = `http://127.0.0.1:${server.address().port}/.console/`;
  const close = () => (clearTimeout(state.confirm), server.closeAllConnections(), server.close());
  return { url, state, close };
}

function file(answer, name, fields) {
  const path = join(dist, `${name}.gz`);
  if (name.includes("/") || !existsSync(path)) return void answer.writeHead(404).end();
  const type = `${TYPES[name.split(".").at(-1)]}; charset=utf-8`;
  answer.writeHead(200, { ...fields, "content-type": type, "content-encoding": "gzip" }).end(readFileSync(path));
}

/** The figures are those of the real server; its revision is the played one. */
function pass(upstream, state, asked, answer, below) {
  const to = new URL(below, upstream);
  const headers = { ...asked.headers, host: to.host };
  const passed = request(to, { method: asked.method, headers }, async (told) => {
    let text = "";
    for await (const piece of told.setEncoding("utf8")) text += piece;
    if (below.startsWith("api/status") && told.statusCode === 200) {
      const report = JSON.parse(text);
      report.server.revision = state.inForce().revision;
      text = JSON.stringify(state.report ? state.report(report) : report);
    }
    answer.writeHead(told.statusCode, { "content-type": "application/json" }).end(text);
  });
  passed.on("error", () => answer.destroy());
  passed.end();
}

function add(state, who, what, texts) {
  const revision = state.inForce().revision + 1;
  state.revisions.push({ revision, at: new Date().toISOString(), who, what, texts });
  return revision;
}

const filesOf = (texts) => texts.map((text, index) => ({ path: PATHS[index], text, is_main: index === 0 }));
const settings = ({ revision, texts }) => ({ etag: etagOf(texts), revision, files: filesOf(texts) });

async function api(state, asked, answer, below) {
  const [name] = below.split("?");
  const query = new URL(below, "http://x/").searchParams;
  const json = (status, told, headers = {}) =>
    answer
      .writeHead(status, { "content-type": "application/json", ...headers })
      .end(told === undefined ? "" : JSON.stringify(told));
  const problem = (status, detail, more = {}) =>
    answer
      .writeHead(status, { "content-type": "application/problem+json" })
      .end(JSON.stringify({ title: "It was not done", detail, status, ...more }));
  if (!state.isThere) return problem(404, "There is no admin API.");
  let text = "";
  for await (const piece of asked.setEncoding("utf8")) text += piece;
  const key = `${asked.method} ${name}`;
  if (asked.method !== "GET") {
    if (asked.headers["content-type"] !== "application/json") return problem(415, "A change is JSON.");
    if (asked.headers["x-tidegate-csrf"] !== state.csrf) return problem(403, "The token is not that of this session.");
    const right = /^settings|^revisions/.test(name) ? "settings" : "operate";
    if (!state.may.includes(right)) return problem(403, `anna may not do this: it takes the right \`${right}\`.`);
  }
  const end = state.next.get(key);
  state.next.delete(key);
  if (end?.status) return problem(end.status, end.detail, end.more);
  const body = text ? JSON.parse(text) : {};
  const handler = HANDLERS.find(([pattern]) => pattern.test(key));
  if (!handler) return problem(404, "There is no such thing.");
  const answered = handler[1]({ state, body, json, problem, query, asked, answer, name });
  void answered;
  if (end === "break") answer.destroy();
}

const HANDLERS = [
  [/^GET session$/, ({ state, json }) => json(200, { user: "anna", may: state.may, csrf: state.csrf })],
  [
    /^GET settings$/,
    ({ state, json }) => {
      const told = settings(state.inForce());
      json(200, told, { etag: told.etag });
    },
  ],
  [
    /^POST settings\/check$/,
    ({ state, body, json }) => setTimeout(() => json(200, check(state, body.files)), state.slowness),
  ],
  [/^PUT settings$/, put],
  [/^POST settings\/confirm$/, confirm],
  [
    /^GET revisions$/,
    ({ state, json }) =>
      json(
        200,
        state.revisions.map(({ texts: _, ...revision }) => ({
          ...revision,
          is_in_force: revision.revision === state.inForce().revision,
        })),
      ),
  ],
  [/^GET revisions\/\d+$/, ({ state, json, name }) => json(200, settings(revisionOf(state, name)))],
  [/^POST revisions\/\d+\/restore$/, restore],
  [/^GET schema$/, ({ answer }) => answer.writeHead(200, { "content-type": "application/schema+json" }).end(schema)],
  [
    /^GET explain$/,
    ({ query, json, problem }) =>
      URL.canParse(query.get("url"))
        ? json(200, {
            text: `${query.get("method")} ${query.get("url")}\nclient: ${query.get("from")}, user: ${query.get("user")}\nroute /app/*: taken\nanswer: 200 OK\n`,
          })
        : problem(422, `\`${query.get("url")}\` is no URL: write it as http://example.com/path.`),
  ],
  [/^GET tail$/, tail],
  [/^GET bans$/, ({ json }) => json(200, { bans: [{ ban: "guess", client: "192.0.2.7", until: 2_000_000_000 }] })],
  [/^POST pools\/[^/]+\/restart$/, done],
  [/^PATCH upstreams\/[^/]+\/members\/.+$/, done],
  [
    /^POST caches\/purge$/,
    ({ state, body, json, name }) => {
      state.done.push(`POST ${name} ${JSON.stringify(body)}`);
      json(200, { purged: { entries: body.what === "all" ? 1204 : 1, is_marked: true } });
    },
  ],
  [/^DELETE bans\/[^/]+$/, done],
  [
    /^POST requests\/cancel$/,
    ({ state, body, json, name }) => {
      if (body.dry_run) return json(200, { text: "2 requests would be ended:\n4711-0-3f-12\n4711-0-3f-13\n" });
      state.done.push(`POST ${name} ${JSON.stringify(body)}`);
      json(200, { text: body.id ? "1 request is ended.\n" : "2 requests are ended.\n" });
    },
  ],
];

function done({ state, body, name, asked, answer }) {
  state.done.push(`${asked.method} ${decodeURIComponent(name)} ${JSON.stringify(body)}`);
  answer.writeHead(204).end();
}

const revisionOf = (state, name) => state.revisions.find(({ revision }) => String(revision) === name.split("/")[1]);

/** `bogus` is a mistake, `odd` is worth a warning. */
function check(state, files) {
  const diagnostics = files.flatMap(({ path, text }) =>
    text.split("\n").flatMap((line, index) =>
      [
        ["bogus", "error", "there is no directive `bogus` here", "did you mean `bounds`?"],
        ["odd", "warning", "`odd` is odd", null],
      ].flatMap(([word, severity, message, help]) => {
        const column = Array.from(line.split(word)[0] ?? "").length + 1;
        const place = { file: path, line: index + 1, column, end_line: index + 1, end_column: column + word.length };
        return line.includes(word) ? [{ severity, ...place, message, help }] : [];
      }),
    ),
  );
  const had = state.inForce().texts;
  const changed = files.filter(({ text }, index) => text !== had[index]);
  const diff = changed
    .map(
      ({ path, text }) =>
        `--- ${path}\n+++ ${path}\n@@ -1 +1 @@\n-${had[PATHS.indexOf(path)].split("\n").find((line) => !text.includes(line)) ?? ""}\n+${text.split("\n").find((line) => !had.join().includes(line)) ?? ""}\n`,
    )
    .join("");
  const sites = changed.length > 0 ? [{ name: "a.test", what: "changed" }] : [];
  return { diagnostics, diff, changes: { sites, server: changed.length > 0, needs_new_processes: false } };
}

function put({ state, body, json, problem, asked }) {
  if (!asked.headers["if-match"]) return problem(428, "Say with If-Match which settings you have begun with.");
  const had = state.inForce();
  if (asked.headers["if-match"] !== etagOf(had.texts)) return problem(412, "Somebody else has changed the settings.");
  if (body.files.some(({ path }) => !PATHS.includes(path)))
    return problem(403, "This file is no part of the settings.");
  if (state.isWaiting)
    return problem(409, `Revision ${had.revision} waits to be confirmed: confirm it or go back first.`);
  const { diagnostics } = check(state, body.files);
  if (diagnostics.some(({ severity }) => severity === "error"))
    return problem(422, "The settings are wrong.", { diagnostics });
  const texts = PATHS.map((path) => body.files.find((file) => file.path === path)?.text ?? "");
  applied(state, json, texts, body.confirm_within, "settings changed: site a.test");
}

function restore({ state, body, json, problem, asked, name }) {
  if (!asked.headers["if-match"]) return problem(428, "Say with If-Match which settings you have begun with.");
  if (asked.headers["if-match"] !== etagOf(state.inForce().texts))
    return problem(412, "Somebody else has changed the settings.");
  const { revision, texts } = revisionOf(state, name);
  applied(state, json, texts, body.confirm_within, `revision ${revision} restored`);
}

function applied(state, json, texts, within, what) {
  clearTimeout(state.confirm);
  state.isWaiting = !!within;
  const had = state.inForce();
  const revision = add(state, "anna", what, texts);
  state.done.push(`applied ${revision}`);
  const seconds = within && (state.confirmWithin ?? within);
  if (within)
    state.confirm = setTimeout(() => {
      state.isWaiting = false;
      add(state, "nobody", "not confirmed", had.texts);
    }, seconds * 1000);
  const confirm_by = within ? new Date(Date.now() + seconds * 1000).toISOString() : null;
  json(200, { revision, etag: etagOf(texts), notes: ["Two sites were set up anew."], confirm_by });
}

function confirm({ state, body, answer, problem }) {
  if (body.revision !== state.inForce().revision) return problem(409, "This revision waits for nobody.");
  clearTimeout(state.confirm);
  state.isWaiting = false;
  state.done.push(`confirmed ${body.revision}`);
  answer.writeHead(204).end();
}

function tail({ state, query, answer }) {
  answer.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  state.tails.add(answer);
  let number = 0;
  const say = () => {
    number += 1;
    answer.write(`data: ${JSON.stringify(state.row(number, query))}\n\n`);
    if (number % 50 === 0) answer.write('data: {"lost":120}\n\n');
  };
  const timer = setInterval(say, 20);
  answer.on("close", () => (clearInterval(timer), state.tails.delete(answer)));
  answer.flushHeaders();
}

function tailRow(number, query) {
  return {
    at: Date.now() / 1000,
    took: 0.0012 * (1 + (number % 7)),
    status: Number((query.get("status") ?? "200").replace("xx", "02")),
    received: 92,
    sent: 136 + number,
    client: "192.0.2.7",
    scheme: "http",
    method: "GET",
    host: query.get("site") ?? "a.test",
    target: `/app/${number}?<img src=x onerror=alert(1)>`,
    site: query.get("site") ?? "a.test",
    route: "/app/*",
    upstreams: [{ address: "127.0.0.1:9000" }],
  };
}
