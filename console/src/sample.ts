// From two reports to a point of the graphs: rates, ratios and percentiles of the time between them. Pure.

import type { Report, Times } from "./report";

/** What a point tells, by the names that the history of the server has. */
export type Point = Record<string, number | null>;

const QUANTILES: [string, number][] = [
  ["p50", 0.5],
  ["p90", 0.9],
  ["p99", 0.99],
  ["p999", 0.999],
];

/** Rates between two reports that were taken `seconds` apart; `null` where the server has begun to count anew. */
export function point(before: Report, after: Report, seconds: number): Point | null {
  const [old, now] = [before.stats, after.stats];
  if (seconds <= 0 || now.requests < old.requests || before.server.started !== after.server.started) return null;
  const rate = (of: (report: Report) => number) => Math.max(0, (of(after) - of(before)) / seconds);
  const made: Point = {
    requests: rate((report) => report.stats.requests),
    received_bytes: rate((report) => report.stats.received_bytes),
    sent_bytes: rate((report) => report.stats.sent_bytes),
    connections: now.connections.current,
    in_flight: now.in_flight.current,
    waiting: now.queued.current,
    idle: now.keep_alive.current,
    refused: rate(refused),
    cpu_servers: rate((report) => report.server.used.servers.cpu_seconds),
    cpu_master: rate((report) => report.server.used.master.cpu_seconds),
    resident_servers: after.server.used.servers.resident_bytes,
    resident_master: after.server.used.master.resident_bytes,
    cache_hit_ratio: ratio(now.cache_hits - old.cache_hits, now.cache_misses - old.cache_misses),
    store_hit_ratio: ratio(rise(before, after, storeHits), rise(before, after, storeFetches)),
    tls_full: rate((report) => report.stats.tls_handshakes.full ?? 0),
    tls_resumed: rate((report) => report.stats.tls_handshakes.resumed ?? 0),
  };
  for (const name of ["1xx", "2xx", "3xx", "4xx", "5xx"]) {
    made[`responses_${name}`] = rate((report) => report.stats.responses[name] ?? 0);
  }
  const between = difference(old.latency, now.latency);
  for (const [name, share] of QUANTILES) made[name] = quantile(between, share);
  return made;
}

/** What has happened to the server between two reports, in the words of its history. */
export function changes(before: Report, after: Report): string[] {
  const [old, now] = [before.server, after.server];
  // Another master begins with a revision 1 of its own, and with processes of its own.
  if (old.pid !== now.pid) return [`upgrade to ${now.version}`];
  const made = old.revision === now.revision ? [] : [`revision ${now.revision}`];
  const replaced = Math.max(0, now.process_restarts - old.process_restarts);
  const running = new Set(now.processes.map(({ pid }) => pid));
  const gone = old.processes.filter(({ pid }) => pid > 0 && !running.has(pid)).slice(0, replaced);
  return [...made, ...gone.map(({ pid }) => `server process ${pid} replaced`)];
}

/** Processor time and memory of each server process, as `cpu PID` and `resident PID`; those that are new have none yet. */
export function processPoint(before: Report, after: Report, seconds: number): Point {
  const had = new Map(before.server.processes.map(({ pid, used }) => [pid, used]));
  const made: Point = {};
  for (const { pid, used } of after.server.processes) {
    const then = had.get(pid);
    if (!used || !then || seconds <= 0) continue;
    made[`cpu ${pid}`] = Math.max(0, (used.cpu_seconds - then.cpu_seconds) / seconds);
    made[`resident ${pid}`] = used.resident_bytes;
  }
  return made;
}

/** Connections and requests that were turned away. */
export function refused(report: Report): number {
  const { connection_refusals, queue_refusals, requests_shed } = report.stats;
  return connection_refusals.total + queue_refusals.total + requests_shed;
}

const rise = (before: Report, after: Report, of: (report: Report) => number) => Math.max(0, of(after) - of(before));

/** Requests that stores of responses have answered by themselves. */
const storeHits = (report: Report) =>
  (report.caches ?? []).reduce((sum, { requests }) => sum + requests.hits + requests.collapsed, 0);
/** Those for which an application was asked. */
const storeFetches = (report: Report) =>
  (report.caches ?? []).reduce((sum, { requests }) => sum + requests.revalidated + requests.misses, 0);

/** Hits among all; `null` where there was nothing. */
export function ratio(hits: number, misses: number): number | null {
  return hits + misses > 0 ? hits / (hits + misses) : null;
}

/** What has come into the buckets of a histogram, shortest first. */
export function difference(before: Times, after: Times): [number, number][] {
  const had = new Map(before.buckets ?? []);
  return (after.buckets ?? [])
    .map(([end, held]): [number, number] => [end, held - (had.get(end) ?? 0)])
    .filter(([, held]) => held > 0)
    .sort(([one], [other]) => one - other);
}

/** The end of the bucket that holds the quantile; `null` where nothing was counted. */
export function quantile(buckets: [number, number][], share: number): number | null {
  const total = buckets.reduce((sum, [, held]) => sum + held, 0);
  let left = Math.ceil(total * share);
  for (const [end, held] of buckets) {
    left -= held;
    if (left <= 0) return end;
  }
  return null;
}
