// What of the console wants an admin API, in a real browser, before a played one: `node admin.mjs CHROMIUM URL [SCREENSHOTS]`, where
// URL is the console of a real server (`crates/tidegate/tests/console.rs`). `played.mjs` says how the API is played.

import assert from "node:assert/strict";
import { NARROW, go, isSound, look, until } from "./looks.mjs";
import { MAIN, SITES, play } from "./played.mjs";

const [chromium, upstream, shots] = process.argv.slice(2);
const { browser, said, open } = await look(chromium);
const button = (page, name) => page.getByRole("button", { name, exact: true });
const editor = (page) => page.locator(".cm-content");

/** Opens the editor, which has the settings then. */
async function edit(page) {
  await go(page, "settings");
  await until(editor(page), /The settings of a server/);
}

/** Puts a text in the place of the whole. Chromium would give what is typed over coloured text a style of its own, which the policy keeps out. */
async function type(page, text) {
  await editor(page).press("Control+a");
  await editor(page).press("Delete");
  await page.keyboard.insertText(text);
}

const POOL = {
  state: "up",
  retry_after: null,
  requests: 9,
  in_use: 0,
  waiting: 0,
  oldest_wait: 0,
  refused: { full: 0, too_old: 0, down: 0 },
  abandoned: 0,
  restarts: 0,
  last_failure: null,
  opcache: null,
  processes: [],
};
const MEMBER = {
  name: "unix:/run/app.sock",
  state: "up",
  backup: false,
  weight: 1,
  in_use: 0,
  requests: 9,
  failures: 0,
};

const TIER = { entries: 912, bytes: 64_000_000, limit: 67_108_864, evicted: 130, returned: 12, returned_bytes: 90_000 };
const CACHE = {
  name: "pages",
  hit_ratio: 0.931,
  requests: { hits: 48_120, stale_hits: 11, revalidated: 90, collapsed: 73, misses: 3480, passed: 170, bypassed: 2210 },
  memory: TIER,
  disks: [
    { ...TIER, folder: "/var/cache/tidegate/a", limit: 10_737_418_240, broken_pieces: 0, out: null },
    {
      ...TIER,
      folder: "/var/cache/tidegate/b",
      limit: 10_737_418_240,
      broken_pieces: 2,
      out: { why: "fails: Input/output error (os error 5)", since: "2026-11-23T08:04:47Z" },
    },
  ],
  stored: 3310,
  without_room: 3,
  broken_off: 1,
  not_stored: { private: 12, "no-lifetime": 158 },
  fetches: 1,
  purged: 4,
};

const isApplicable = (page) => page.locator("button.main:enabled", { hasText: "Apply …" }).waitFor();

/** Without the API there are no such pages. */
async function withoutApi() {
  const { url, close } = await play(upstream, { isThere: false });
  const page = await open(`${url}#/settings`);
  await until(page.locator(".empty"), /no admin API/);
  assert.equal(await page.locator("nav a", { hasText: /Tail|Settings|Explain/ }).count(), 0);
  await go(page, "pools");
  assert.equal(await page.getByRole("button", { name: /Restart|Drain/ }).count(), 0);
  await page.close();
  close();
  const seen = await play(upstream, { may: ["view"] });
  const other = await open(seen.url);
  await until(other.locator("nav a"), "Tail");
  assert.equal(await other.locator("nav a", { hasText: "Settings" }).count(), 0);
  await other.close();
  seen.close();
}

async function tail() {
  const { url, state, close } = await play(upstream);
  const page = await open(url, { expected: ["422", "503", "ERR_"] });
  await until(page.locator("nav a"), "Tail");
  await go(page, "tail");
  const row = page.locator("tbody tr").first();
  // What a client has chosen is text.
  await until(row, /app\/\d+\?<img src=x onerror=alert\(1\)>/);
  assert.equal(await page.locator("tbody img").count(), 0);
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length >= 190);
  await until(page.locator("[role=status]"), /of 500 shown.*were left out/);
  assert.ok((await page.locator("tbody tr").count()) <= 200, "rows are bounded");
  await isSound(page, "light tail", said, shots);
  await button(page, "Pause the tail").click();
  await until(page.locator("[role=status]"), /paused/);
  const shown = await row.innerText();
  await page.evaluate(() => new Promise((rest) => setTimeout(rest, 600)));
  assert.equal(await row.innerText(), shown);
  await button(page, "Go on with the tail").click();
  // The server chooses.
  await page.getByLabel("Status").fill("5xx");
  await page.getByLabel("Site", { exact: true }).fill("b.test");
  await button(page, "Choose").click();
  await until(row, /502.*b\.test/s);
  await page.getByLabel("Filter").fill("nothing has this");
  await until(page.locator(".empty"), /No request/);
  await page.getByLabel("Filter").fill("");
  // It goes on over a connection that breaks off, and a server that is busy for a while.
  state.next.set("GET tail", { status: 503, detail: "The server has no time." });
  state.cutTails();
  await until(page.locator(".trouble"), /It is asked again/);
  await page.locator(".trouble").waitFor({ state: "detached" });
  await row.locator("button.link").click();
  await until(page.locator("pre"), /GET http:\/\/b\.test\/app\/\d+.*client: 192\.0\.2\.7.*answer: 200 OK/s);
  await page.getByLabel("URL").fill("words");
  await button(page, "Explain").click();
  await until(page.locator(".trouble"), /is no URL/);
  await page.close();
  close();
}

async function settings() {
  const { url, state, close } = await play(upstream);
  const page = await open(url, { expected: ["403", "412", "422", "428", "ERR_"] });
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  await until(page.locator("nav a"), "Settings");
  assert.ok(!asked.some((name) => /page-/.test(name)), "the editor is not loaded before it is asked for");
  await edit(page);
  assert.ok(await page.getByRole("button", { name: "Apply …" }).isDisabled(), "there is nothing to apply");
  await isSound(page, "light settings", said, shots);

  // Completion and documentation out of the schema.
  await editor(page).press("Control+Home");
  await editor(page).press("Enter");
  await editor(page).press("ArrowUp");
  await editor(page).pressSequentially("limi");
  await until(page.locator(".cm-completionLabel"), /^limits$/);
  await until(page.locator(".cm-completionInfo"), /limits/i);
  if (shots) await page.screenshot({ path: `${shots}/completion.png`, caret: "initial" });
  await editor(page).press("Escape");
  await editor(page).press("Control+z");
  await page.locator(".cm-line span", { hasText: /^body-size$/ }).hover();
  await until(page.locator(".cm-tooltip .docs"), /Bytes of a request body/);
  await page.mouse.move(0, 0);

  // Mistakes in place, and no way to apply them.
  await type(page, MAIN.replace("limits {", "bogus {"));
  await until(page.locator(".said"), /there is no directive `bogus`/);
  await page.locator(".cm-lintRange-error").first().waitFor();
  await until(page.locator(".actions"), /One mistake stands in the way/);
  assert.ok(await page.getByRole("button", { name: "Apply …" }).isDisabled());
  await page.getByRole("button", { name: /^error tidegate.kdl:4:1$/ }).click();
  await isSound(page, "light settings with a mistake", said, shots);

  // A check that takes long: only the answer to what stands there counts.
  state.slowness = 1500;
  await type(page, MAIN.replace("16MiB", "bogus"));
  await page.waitForRequest(/settings\/check/);
  state.slowness = 0;
  await type(page, MAIN.replace("16MiB", "32MiB"));
  await isApplicable(page);
  await until(page.locator(".said"), "No mistakes.");

  // Whoever leaves is asked; the text survives a reload of the page.
  const question = page.waitForEvent("dialog");
  await page.reload();
  assert.equal((await question).type(), "beforeunload");
  await until(editor(page), /32MiB/);
  await isApplicable(page);

  // What it does, first; then it is in force for a while.
  await button(page, "Apply …").click();
  await until(page.locator(".changes"), /changed\s+site a\.test/);
  await until(page.locator(".difference .added"), /32MiB/);
  await isSound(page, "light review", said, shots);
  await button(page, "Apply it").click();
  await until(page.locator(".pending"), /Revision 8 is in force for now/);
  await isSound(page, "light pending", said, shots);
  await page.reload();
  await button(page, "Keep it").click();
  await until(page.locator(".done"), "Revision 8 is kept.");
  assert.deepEqual(state.done, ["applied 8", "confirmed 8"]);

  await unanswered(page, state);
  await overtaken(page, state);
  await notConfirmed(page, state);
  await goneBack(page, state);
  await page.close();
  close();
}

/** An answer that breaks off: what was applied is seen on the server. */
async function unanswered(page, state) {
  await edit(page);
  await type(page, MAIN.replace("16MiB", "33MiB"));
  await isApplicable(page);
  await button(page, "Apply …").click();
  const place = { file: null, line: null, column: null, help: null };
  const diagnostics = [{ ...place, severity: "error", message: "the folder /srv/gone is missing" }];
  state.next.set("PUT settings", { status: 422, detail: "The server does not take it up.", more: { diagnostics } });
  await button(page, "Apply it").click();
  await until(page.locator(".trouble"), /does not take it up/);
  await until(page.locator("[role=alert] li"), /\/srv\/gone is missing/);
  state.next.set("PUT settings", { status: 428, detail: "Say with If-Match which settings you have begun with." });
  await button(page, "Apply it").click();
  await until(page.locator(".trouble"), /Say with If-Match/);
  state.next.set("PUT settings", "break");
  await button(page, "Apply it").click();
  await until(page.locator(".pending"), /Revision 9 is in force/);
  await button(page, "Keep it").click();
  await page.locator(".pending").waitFor({ state: "detached" });
  // The token of a process that has ended: a new one is fetched.
  state.csrf = "token-2";
}

/** Somebody else was faster: both changes side by side, and nothing is lost. */
async function overtaken(page, state) {
  await edit(page);
  await type(page, MAIN.replace("16MiB", "64MiB").replace('root "/srv/a"', 'root "/srv/mine"'));
  await isApplicable(page);
  await button(page, "Apply …").click();
  await page.locator(".changes").waitFor();
  state.overtake([MAIN.replace("16MiB", "8MiB"), SITES.replace('"b" }', '"theirs" }')]);
  await button(page, "Apply it").click();
  await until(page.locator("h2"), "Two changes of the same settings");
  await until(page.locator(".part"), /Changed by both.*8MiB.*64MiB/s);
  await until(page.locator(".part"), /Changed by you.*\/srv\/mine/s);
  await until(page.locator(".part"), /Changed by them.*theirs/s);
  await isSound(page, "light conflict", said, shots);
  assert.ok(await button(page, "Take this into the editor").isDisabled(), "one has to choose");
  await button(page, "Take yours").click();
  await button(page, "Take this into the editor").click();
  await until(editor(page), /64MiB.*\/srv\/mine/s);
  await page.getByRole("tab", { name: "sites.kdl" }).click();
  await until(editor(page), /theirs/);
  await isApplicable(page);
  await button(page, "Apply …").click();
  await page.getByLabel(/Undo it unless/).uncheck();
  await button(page, "Apply it").click();
  await until(page.locator(".done"), "Revision 11 is in force.");
  assert.match(state.inForce().texts.join(), /64MiB.*\/srv\/mine.*theirs/s);
}

/** Nobody confirms: the old settings are back, and the text is still there. */
async function notConfirmed(page, state) {
  await page.clock.install();
  await page.getByRole("tab", { name: "tidegate.kdl" }).click();
  await type(page, MAIN.replace("16MiB", "1GiB"));
  await page.clock.runFor(1000);
  await isApplicable(page);
  await button(page, "Apply …").click();
  await page.clock.runFor(1000);
  state.confirmWithin = 0;
  await button(page, "Apply it").click();
  await until(page.locator(".pending"), /Revision 12 is in force/);
  await page.clock.runFor(61_000);
  await until(page.locator(".done"), /the settings from before are back/);
  state.confirmWithin = null;
  await until(editor(page), /1GiB/);
  await page.clock.resume();
  await isApplicable(page);
  await button(page, "Discard").click();
  await button(page, "Discard it").click();
  await until(editor(page), /64MiB/);
}

async function goneBack(page, state) {
  await button(page, "Revisions").click();
  await until(page.locator("tbody tr"), /ben.*settings changed: limits/s);
  await button(page, "Look at revision 7").click();
  await until(page.locator(".difference .added"), /16MiB/);
  await isSound(page, "light revisions", said, shots);
  await button(page, "Go back to revision 7").click();
  await button(page, "Go back to it").click();
  await until(page.locator(".done"), /with the texts of revision 7/);
  assert.deepEqual(state.inForce().texts, [MAIN, SITES]);
  await button(page, "Undo it now").click();
  await until(page.locator(".done"), /is undone/);
  assert.match(state.inForce().texts[0], /64MiB/);
}

const withApplications = (report) => ({
  ...report,
  pools: [{ ...POOL, name: "php 8" }],
  upstreams: [{ ...POOL, name: "app", retries: 0, ejections: 0, members: [MEMBER] }],
  caches: [CACHE],
  bans: [{ name: "guess", crowded: 0 }],
});

/** Whatever an operator does is asked about first. */
async function operate() {
  const { url, state, close } = await play(upstream);
  state.report = withApplications;
  const page = await open(url, { expected: ["403", "409", "422"] });
  const toldThat = (text) => until(page.locator(".done"), text);
  await until(page.locator("nav a"), "Tail");
  await go(page, "pools");
  await button(page, "Restart the pool php 8").click();
  await until(page.locator("dialog"), /replaced one by one/);
  await isSound(page, "light dialog", said, shots);
  await button(page, "Leave it").click();
  assert.deepEqual(state.done, []);
  await button(page, "Restart the pool php 8").click();
  state.next.set("POST pools/php%208/restart", { status: 409, detail: "The pool `php 8` is down." });
  await button(page, "Restart it").click();
  await until(page.locator("dialog .trouble"), /is down/);
  await button(page, "Restart it").click();
  await toldThat(/php 8 is being restarted/);
  const member = button(page, "Change the member unix:/run/app.sock of app");
  await member.click();
  await button(page, "Do it").click();
  await toldThat(/told to drain/);
  await member.click();
  await page.getByLabel("Weight").fill("5");
  await button(page, "Do it").click();
  await toldThat(/weighs 5/);
  await isSound(page, "light pools", said, shots);
  await go(page, "requests");
  await page
    .getByRole("button", { name: /^End the request/ })
    .first()
    .click();
  await button(page, "End it").click();
  await toldThat(/1 request is ended/);
  await page.locator("summary").click();
  await page.getByLabel("Site").fill("a.test");
  await page.getByLabel("Older than").fill("1.5");
  await button(page, "See which").click();
  await until(page.locator("dialog pre"), /2 requests would be ended/);
  await button(page, "End them").click();
  await toldThat(/2 requests are ended/);
  await go(page, "limits");
  await button(page, "Lift the ban of 192.0.2.7").click();
  await button(page, "Lift it").click();
  await toldThat(/is let in again/);
  const [id] = state.done.splice(3, 1);
  assert.match(id, /^POST requests\/cancel \{"id":".+"\}$/);
  assert.deepEqual(state.done, [
    "POST pools/php 8/restart {}",
    'PATCH upstreams/app/members/unix:/run/app.sock {"way":"drain"}',
    'PATCH upstreams/app/members/unix:/run/app.sock {"weight":5}',
    'POST requests/cancel {"selection":"site=a.test\\tat-least=1500"}',
    "DELETE bans/192.0.2.7 {}",
  ]);
  state.done.length = 0;
  await go(page, "caches");
  await until(page.locator("dd strong"), "93.1 %");
  await until(page.locator("tbody tr"), /cache\/tidegate\/b.*out of use since .*Input\/output error/s);
  await isSound(page, "light caches", said, shots);
  await purges(page, toldThat);
  assert.deepEqual(state.done, [
    'POST caches/purge {"what":{"url":"https://a.test/news"},"is_soft":false,"store":"pages"}',
    'POST caches/purge {"what":{"tag":{"name":"post-17","host":"a.test"}},"is_soft":true,"store":"pages"}',
    'POST caches/purge {"what":"all","is_soft":false,"store":"pages"}',
  ]);
  await page.close();
  close();
}

/** By URL, tag and all; what is missing is said before anything is asked. */
async function purges(page, toldThat) {
  const purge = button(page, "Purge the cache pages");
  const dialog = page.locator("dialog");
  await purge.click();
  await button(page, "Purge it").click();
  await until(dialog.locator(".trouble"), /Say which url is meant/);
  await dialog.getByLabel("URL", { exact: true }).fill("/news");
  await button(page, "Purge it").click();
  await until(dialog.locator(".trouble"), /begins with http/);
  await dialog.getByLabel("URL", { exact: true }).fill("https://a.test/news");
  await isSound(page, "light purge", said, shots);
  await button(page, "Purge it").click();
  await toldThat(/One response in memory is gone/);
  await purge.click();
  await dialog.locator("select").selectOption("tag");
  await dialog.getByLabel("Tag", { exact: true }).fill("post-17");
  await dialog.getByLabel("Of the host alone").fill("a.test");
  await dialog.getByLabel("Softly").check();
  await button(page, "Purge it").click();
  await toldThat(/One response in memory is asked about/);
  await purge.click();
  await dialog.locator("select").selectOption("all");
  await button(page, "Purge it").click();
  await toldThat(/1204 responses in memory are gone/);
}

/** Each page in the dark, and on a telephone. */
async function looks() {
  for (const [kind, options] of [
    ["dark", { colorScheme: "dark" }],
    ["narrow", { viewport: NARROW }],
  ]) {
    const { url, state, close } = await play(upstream);
    state.report = withApplications;
    const page = await open(url, options);
    await until(page.locator("nav a"), "Tail");
    await go(page, "tail");
    await page.locator("tbody tr").first().waitFor();
    await button(page, "Pause the tail").click();
    await isSound(page, `${kind} tail`, said, shots);
    await edit(page);
    await type(page, MAIN.replace("limits {", "bogus {"));
    await page.locator(".cm-lintRange-error").first().waitFor();
    await isSound(page, `${kind} settings`, said, shots);
    await type(page, MAIN.replace("16MiB", "2MiB"));
    await isApplicable(page);
    await button(page, "Apply …").click();
    await page.locator(".changes").waitFor();
    await isSound(page, `${kind} review`, said, shots);
    await button(page, "Back to the texts").click();
    await button(page, "Revisions").click();
    await button(page, "Look at revision 6").click();
    await page.locator(".difference").waitFor();
    await isSound(page, `${kind} revisions`, said, shots);
    await button(page, "Back to the texts").click();
    state.overtake([MAIN.replace("16MiB", "8MiB"), SITES]);
    await button(page, "Bring both together").click();
    await isSound(page, `${kind} conflict`, said, shots);
    await button(page, "Take both, theirs first").click();
    await button(page, "Take this into the editor").click();
    await until(page.locator(".said"), "No mistakes.");
    await go(page, "explain");
    await page.getByLabel("URL").fill("http://a.test/app/x");
    await button(page, "Explain").click();
    await page.locator("pre").waitFor();
    await isSound(page, `${kind} explain`, said, shots);
    for (const name of ["limits", "requests", "caches", "pools"]) {
      await go(page, name);
      await page.locator("caption").first().waitFor({ state: "attached" });
      await isSound(page, `${kind} ${name} of an operator`, said, shots);
    }
    await button(page, "Change the member unix:/run/app.sock of app").click();
    await isSound(page, `${kind} dialog`, said, shots);
    await button(page, "Leave it").click();
    await go(page, "caches");
    await button(page, "Purge the cache pages").click();
    await isSound(page, `${kind} purge`, said, shots);
    await page.close();
    close();
  }
}

try {
  await withoutApi();
  await tail();
  await settings();
  await operate();
  await looks();
} finally {
  await browser.close();
}
assert.deepEqual(said, []);
console.log("all is well");
process.exit(0);
