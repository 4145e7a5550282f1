import assert from "node:assert/strict";
import { test } from "node:test";
import { fillsOf, hitsOf } from "../src/pages/hits";
import { phasesOf, phasesText } from "../src/pages/phases";
import { contentOf, outcomeOf } from "../src/pages/purges";
import { type RouteRow, routesOf, sitesOf } from "../src/pages/routes";
import { isEverything, selectionOf } from "../src/pages/selection";
import { filtered, sorted } from "../src/parts/sorting";
import type { Report, Slow } from "../src/report";

test("rows in order; what has no value stands last", () => {
  const rows = [{ v: 2 }, { v: null }, { v: 10 }];
  const values = (isDescending: boolean) => sorted(rows, ({ v }) => v, isDescending).map(({ v }) => v);
  assert.deepEqual(values(true), [10, 2, null]);
  assert.deepEqual(values(false), [2, 10, null]);
});

test("a row stays that has every word", () => {
  const rows = ["Shop.test /cart/*", "shop.test /", "other /cart/*"];
  assert.deepEqual(
    filtered(rows, (row) => [row], "shop  CART"),
    ["Shop.test /cart/*"],
  );
  assert.equal(filtered(rows, (row) => [row], " ").length, 3);
});

const figures = (requests: number, seconds: number) => ({
  requests,
  seconds,
  responses: { "5xx": 1 },
  received_bytes: 0,
  sent_bytes: 0,
});
const report = (requests: number) =>
  ({
    sites: [
      { name: "a", ...figures(0, 0), routes: [{ route: "/*", ...figures(requests, 3) }], unrouted: figures(1, 1) },
    ],
  }) as unknown as Report;

test("routes with their share and their rate", () => {
  const [first, second] = routesOf(report(30), report(10), 2);
  assert.deepEqual([first?.route, first?.share, first?.rate, first?.mean, first?.p99], ["/*", 0.75, 10, 0.1, null]);
  assert.deepEqual([second?.route, second?.rate], ["(no route)", 0]);
  assert.equal(routesOf(report(30), null, 0)[0]?.rate, null);
  assert.equal(routesOf(report(3), report(10), 2)[0]?.rate, null, "counts have begun anew");
});

test("phases are as long as the request", () => {
  const slow = {
    took: 10,
    upstreams: [{ address: "x", connected: 1, first_byte: 4, complete: 9 }],
  } as unknown as Slow;
  const phases = phasesOf(slow);
  assert.deepEqual(
    phases.map(({ kind, seconds }) => [kind, seconds]),
    [
      ["wait", 1],
      ["connect", 1],
      ["application", 3],
      ["answer", 5],
    ],
  );
  assert.match(phasesText(phases), /^1 s in the server, 1 s connecting to x/);
  assert.deepEqual(
    phasesOf({ took: 2 } as Slow).map(({ kind, seconds }) => [kind, seconds]),
    [["wait", 2]],
  );
});

test("phases are those that the server tells", () => {
  const slow = {
    took: 10,
    queue: 2,
    connect: 0,
    application: 5,
    sending: 1,
    upstreams: [{ address: "x", connected: 9 }],
  } as unknown as Slow;
  assert.deepEqual(
    phasesOf(slow).map(({ kind, seconds }) => [kind, seconds]),
    [
      ["wait", 2],
      ["queue", 2],
      ["application", 5],
      ["answer", 1],
    ],
  );
});

test("limits that were hit, the most frequent first", () => {
  const told = {
    stats: {
      connection_refusals: { total: 2, address: 2 },
      requests_shed: 5,
      connections: { current: 9, peak: 9, limit: 10 },
      queued: { current: 0, peak: 0, limit: 4 },
    },
    limits: [{ name: "api", refused: 3, crowded: 0 }],
    bans: [],
    pools: [{ name: "php", refused: { full: 1, too_old: 0, down: 0 } }],
    upstreams: [],
  } as unknown as Report;
  assert.deepEqual(
    hitsOf(told).map(({ subject, times }) => [subject, times]),
    [
      ["", 5],
      ["api", 3],
      ["", 2],
      ["php", 1],
    ],
  );
  assert.deepEqual(
    fillsOf(told).map(({ member }) => member),
    ["connections", "queued"],
  );
});

test("which requests are meant, as the server reads it", () => {
  const nothing = { site: "", route: "", client: "", upstream: "", seconds: "" };
  assert.ok(isEverything(nothing) && !isEverything({ ...nothing, seconds: "0" }));
  assert.equal(selectionOf({ ...nothing, site: "a.test", seconds: "1.5" }), "site=a.test\tat-least=1500");
  assert.equal(selectionOf({ ...nothing, route: "/a b/*", client: "10.0.0.0/8" }), "route=/a b/*\tclient=10.0.0.0/8");
  for (const wrong of [{ site: "a\tclient=b" }, { seconds: "soon" }, { seconds: "-1" }]) {
    assert.throws(() => selectionOf({ ...nothing, ...wrong }));
  }
});

test("sites are their routes together", () => {
  const row = { requests: 2, rate: 1, seconds: 3, share: 0.25, p50: 9, refused: 1, failed: 0, sent: 5 };
  const rows = [
    { ...row, site: "a", route: "/x" },
    { ...row, site: "a", route: "/y", rate: null },
    { ...row, site: "b", route: "/", requests: 0 },
  ] as unknown as RouteRow[];
  assert.deepEqual(
    sitesOf(rows).map(({ site, route, requests, rate, mean, share, p50 }) => [
      site,
      route,
      requests,
      rate,
      mean,
      share,
      p50,
    ]),
    [
      ["a", "2 routes", 4, 1, 1.5, 0.5, null],
      ["b", "/", 0, 1, null, 0.25, null],
    ],
  );
});

test("a purge says what is meant, or what is missing", () => {
  const wanted = { kind: "tag", name: "post-17", host: "", isSoft: true } as const;
  assert.deepEqual(contentOf("main", wanted), { what: { tag: { name: "post-17" } }, is_soft: true, store: "main" });
  assert.deepEqual(contentOf("main", { ...wanted, kind: "group", host: "a.test" }), {
    what: { group: { name: "post-17", host: "a.test" } },
    is_soft: true,
    store: "main",
  });
  assert.deepEqual(contentOf("main", { ...wanted, kind: "host", name: "a.test", host: "left over" }), {
    what: { host: "a.test" },
    is_soft: true,
    store: "main",
  });
  assert.equal((contentOf("main", { ...wanted, kind: "all" }) as { what: string }).what, "all");
  for (const [kind, name] of [
    ["tag", ""],
    ["url", "/news"],
    ["prefix", "http:///x"],
  ] as const)
    assert.equal(typeof contentOf("main", { ...wanted, kind, name }), "string", name);
  assert.match(outcomeOf(0, false, true), /^No response in memory is meant;/);
  assert.match(outcomeOf(2, true, true), /^2 responses in memory are asked about/);
  assert.equal(outcomeOf(1, false, false), "One response in memory is gone.");
});
