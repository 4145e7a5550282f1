// Every limit that has turned somebody away, with the setting that says so. Pure.

import type { Kinds, Level, Report } from "../report";

export interface Hit {
  what: string;
  /** Its name where there may be several. */
  subject: string;
  times: number;
  /** The directive, or what to look at. */
  setting: string;
}

/** A count, or counts by kind, of the server: what it means, and the setting. */
type Row = [member: string, kind: string | null, what: string, setting: string];

/** What a server tells itself among what it has turned away. */
const TOLD: Row[] = [
  ["connection_refusals", "connections", "connections beyond all that there may be", "limits { connections }"],
  ["connection_refusals", "address", "connections beyond those of one address", "limits { connections-per-address }"],
  ["connection_refusals", "overload", "connections turned away under overload", "limits { overload-delay }"],
  ["connection_refusals", "memory", "connections turned away for want of memory", "limits { memory }"],
  ["connection_refusals", "descriptors", "connections for which there was no descriptor", "LimitNOFILE="],
  ["queue_refusals", "full", "requests that found the queue full", "limits { queue length= }"],
  ["queue_refusals", "age", "requests that waited too long for their turn", "limits { queue age= }"],
  ["requests_shed", null, "requests turned away under overload", "limits { overload-delay }"],
  ["memory_resets", null, "connections that were cut for want of memory", "limits { memory }"],
];

/** What it does not. */
const OTHERS: Row[] = [
  [
    "accept_errors",
    "process_descriptors",
    "connections that could not be accepted: no descriptor in the process",
    "LimitNOFILE=",
  ],
  [
    "accept_errors",
    "system_descriptors",
    "connections that could not be accepted: no descriptor in the system",
    "sysctl fs.file-max",
  ],
  ["queue_refusals", "client", "requests whose clients went away while they waited", "limits { in-flight }"],
  ["keep_alive_refusals", null, "connections closed after their last request", "limits { keep-alive-requests }"],
  ["keep_alive_flushes", null, "idle connections closed early to make room", "limits { keep-alive-connections }"],
  ["timeouts", "head", "requests whose head took too long", "limits { head-timeout }"],
  ["timeouts", "body", "requests whose content came too slowly", "limits { body-rate }"],
  ["timeouts", "write", "answers that the client took too slowly", "limits { send-rate }"],
  ["timeouts", "handshake", "TLS handshakes that took too long", "limits { handshake-timeout }"],
  ["parse_errors", "target_too_long", "requests whose address was too long", "limits { target-size }"],
  ["parse_errors", "head_too_large", "requests whose head was too large", "limits { head-size }"],
  ["parse_errors", "body_too_large", "requests whose content was too large", "limits { body-size }"],
  ["gateway_errors", "queue_full", "requests that found the queue of an application full", "queue"],
  ["gateway_errors", "queue_age", "requests that waited too long for an application", "queue"],
  ["gateway_errors", "silent", "requests that an application did not answer in time", "timeout"],
  ["http2_resets", "refused", "streams of HTTP/2 that were refused", "limits { streams }"],
  ["http2_resets", "slow", "streams of HTTP/2 whose client was too slow", "limits { send-rate }"],
  [
    "cache_eviction_reasons",
    "entries",
    "files put out of the file cache since there were too many",
    "file-cache { entries }",
  ],
  [
    "cache_eviction_reasons",
    "memory",
    "files put out of the file cache for want of memory",
    "file-cache { memory }",
  ],
  [
    "cache_eviction_reasons",
    "descriptors",
    "files put out of the file cache for want of descriptors",
    "file-cache { descriptors }",
  ],
  [
    "cache_eviction_reasons",
    "process_descriptors",
    "files put out of the file cache since the process has few descriptors left",
    "LimitNOFILE=",
  ],
  ["dns_refused", null, "questions for names of clients beyond their bound", "dns"],
  ["logins_put_off", null, "logins put off because of too many guesses", "login"],
];

/** Levels that have an end. */
const LEVELS: [member: string, what: string, setting: string][] = [
  ["connections", "Connections", "limits { connections }"],
  ["in_flight", "Requests in flight", "limits { in-flight }"],
  ["queued", "Requests that wait", "limits { queue length= }"],
  ["keep_alive", "Idle connections", "limits { keep-alive-connections }"],
  ["buffer", "Memory of connections", "limits { memory }"],
  ["native_threads", "Threads for disks", ""],
  ["native_queue", "Work for disks that waits", ""],
  ["cache_entries", "Files in the cache", "file-cache { entries }"],
  ["cache_bytes", "Bytes in the cache", "file-cache { memory }"],
];

export interface Fill {
  member: string;
  what: string;
  setting: string;
  level: Level;
}

/** What has turned somebody away, the most frequent first; without what the server tells itself. */
export function hitsOf(report: Report): Hit[] {
  const of = (member: string, kind: string | null): number => {
    const counted = report.stats[member];
    if (typeof counted === "number") return kind === null ? counted : 0;
    return kind === null ? 0 : ((counted as Kinds | undefined)?.[kind] ?? 0);
  };
  const isTold = report.turned_away !== undefined;
  const hits = [...(isTold ? [] : TOLD), ...OTHERS].map(([member, kind, what, setting]): Hit => ({
    what,
    subject: "",
    times: of(member, kind),
    setting,
  }));
  for (const { name, refused = 0, crowded, queue } of report.limits) {
    if (!isTold)
      hits.push({ what: "requests beyond the limit", subject: name, times: refused, setting: `limit "${name}"` });
    hits.push({
      what: "requests without a place of their own in the table of the limit",
      subject: name,
      times: crowded,
      setting: `limit "${name}" { keys }`,
    });
    if (queue)
      hits.push({
        what: "requests that gave up before the limit",
        subject: name,
        times: queue.abandoned,
        setting: `limit "${name}" { queue }`,
      });
  }
  for (const { name, refused = 0 } of isTold ? [] : report.bans) {
    hits.push({ what: "requests of banned clients", subject: name, times: refused, setting: `ban "${name}"` });
  }
  for (const { name, refused } of [...report.pools, ...report.upstreams]) {
    if (!isTold) {
      hits.push({ what: "requests that found the queue full", subject: name, times: refused.full, setting: "queue" });
      hits.push({ what: "requests that waited too long", subject: name, times: refused.too_old, setting: "queue" });
    }
    hits.push({ what: "requests while it was down", subject: name, times: refused.down, setting: "" });
  }
  return hits.filter(({ times }) => times > 0).sort((one, other) => other.times - one.times);
}

/** Levels that have an end, the fullest first. */
export function fillsOf(report: Report): Fill[] {
  return LEVELS.flatMap(([member, what, setting]): Fill[] => {
    const level = report.stats[member] as Level | undefined;
    return level?.limit ? [{ member, what, setting, level }] : [];
  }).sort((one, other) => fill(other.level) - fill(one.level));
}

/** How full it is now, 0 to 1. */
export function fill({ current, limit }: Level): number {
  return limit ? current / limit : 0;
}
