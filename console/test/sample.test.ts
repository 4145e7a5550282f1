import assert from "node:assert/strict";
import { test } from "node:test";
import type { Report } from "../src/report";
import { changes, difference, point, quantile, ratio } from "../src/sample";

const times = (buckets: [number, number][]) => ({
  count: 0,
  sum: 0,
  mean: 0,
  p50: 0,
  p90: 0,
  p99: 0,
  p999: 0,
  max: 0,
  buckets,
});

/** A report with these counts, and nothing of anything else. */
function told(requests: number, buckets: [number, number][], started = "2026-01-01T00:00:00Z"): Report {
  const kinds = { total: 0 };
  const level = { current: 3, peak: 4 };
  const used = { cpu_seconds: requests / 1024, resident_bytes: 7, descriptors: 1 };
  return {
    server: { started, used: { servers: used, master: used } },
    stats: {
      requests,
      responses: { total: requests, "2xx": requests, codes: {} },
      received_bytes: requests * 10,
      sent_bytes: requests * 100,
      connections: level,
      in_flight: level,
      queued: level,
      keep_alive: level,
      latency: times(buckets),
      cache_hits: requests,
      cache_misses: 0,
      tls_handshakes: kinds,
      connection_refusals: kinds,
      queue_refusals: kinds,
      requests_shed: 0,
    },
  } as unknown as Report;
}

test("what happened between two reports has the words of the history", () => {
  const server = (pid: number, revision: number, process_restarts: number, pids: number[]): Report => {
    const processes = pids.map((pid) => ({ pid }));
    return { server: { pid, revision, version: "1.2.3", process_restarts, processes } } as unknown as Report;
  };
  const before = server(10, 4, 1, [11, 12]);
  const happened = (...after: Parameters<typeof server>) => changes(before, server(...after));
  assert.deepEqual(happened(10, 4, 1, [11, 12]), []);
  assert.deepEqual(happened(10, 5, 1, [21, 22]), ["revision 5"]);
  assert.deepEqual(happened(10, 4, 2, [11, 0]), ["server process 12 replaced"]);
  assert.deepEqual(happened(10, 4, 2, [11, 22]), ["server process 12 replaced"]);
  // The settings of an upgraded server are its first.
  assert.deepEqual(happened(20, 1, 0, [21, 22]), ["upgrade to 1.2.3"]);
});

test("two reports make rates", () => {
  const made = point(
    told(100, [[0.001, 100]]),
    told(300, [
      [0.001, 110],
      [0.5, 190],
    ]),
    2,
  );
  assert.ok(made);
  assert.equal(made.requests, 100);
  assert.equal(made.responses_2xx, 100);
  assert.equal(made.responses_5xx, 0);
  assert.equal(made.sent_bytes, 10_000);
  assert.equal(made.cpu_servers, 100 / 1024);
  assert.equal(made.connections, 3);
  assert.equal(made.cache_hit_ratio, 1);
  assert.deepEqual([made.p50, made.p99], [0.5, 0.5]);
});

test("counts that begin anew are a gap", () => {
  assert.equal(point(told(300, []), told(100, []), 1), null);
  assert.equal(point(told(100, []), told(300, [], "2026-01-02T00:00:00Z"), 1), null);
  assert.equal(point(told(100, []), told(300, []), 0), null);
});

test("percentiles of what has come since", () => {
  const between = difference(
    times([
      [0.001, 5],
      [0.1, 1],
    ]),
    times([
      [0.1, 2],
      [0.001, 104],
    ]),
  );
  assert.deepEqual(between, [
    [0.001, 99],
    [0.1, 1],
  ]);
  assert.equal(quantile(between, 0.5), 0.001);
  assert.equal(quantile(between, 0.99), 0.001);
  assert.equal(quantile(between, 0.999), 0.1);
  assert.equal(quantile([], 0.5), null);
});

test("a ratio of nothing is none", () => {
  assert.equal(ratio(0, 0), null);
  assert.equal(ratio(3, 1), 0.75);
});
