// The JSON of the server, as far as the console reads it. `tidegate status --json` says the same. What a later
// server leaves out or adds must not break a page, so whatever may be missing is optional.

/** A histogram of times, in seconds. */
export interface Times {
  count: number;
  sum: number;
  mean: number;
  p50: number;
  p90: number;
  p99: number;
  p999: number;
  max: number;
  /** Longest time of a bucket, and what it holds. */
  buckets?: [number, number][];
}

/** Counts by kind, and all of them. */
export type Kinds = { total: number } & Record<string, number>;

/** A level: now, the most there has been, and where it ends. */
export interface Level {
  current: number;
  peak: number;
  limit?: number;
}

/** What a site, a route or a bucket has counted. */
export interface Figures {
  requests: number;
  responses: Record<string, number>;
  received_bytes: number;
  sent_bytes: number;
  /** All times together. */
  seconds: number;
  duration?: Times;
  first_byte?: Times;
  queue?: Times;
  connect?: Times;
  application?: Times;
}

export interface RouteFigures extends Figures {
  route: string;
}

export interface SiteFigures extends Figures {
  name: string;
  routes: RouteFigures[];
  unrouted?: Figures;
}

export interface Used {
  cpu_seconds: number;
  resident_bytes: number;
  descriptors: number;
}

export interface Process {
  pid: number;
  state: string;
  uptime: number;
  workers: number;
  restarts: number;
  requests?: number;
  connections?: number;
  used?: Used;
}

/** A worker of a server process. */
export interface Worker {
  process: number;
  worker: number;
  connections: number;
  connections_accepted: number;
  requests: number;
  busy_seconds: number;
}

export interface Certificate {
  source: string;
  names: string[];
  key: string;
  issuer: string;
  not_after: string | null;
  seconds_left: number | null;
  ends_soon: boolean;
}

export interface ServerFacts {
  version: string;
  pid: number;
  started: string;
  now: string;
  /** When the figures were read, seconds since 1970, to the millisecond. */
  at: number;
  uptime: number;
  workers: number;
  revision: number;
  state: string;
  log_lines_lost: number;
  /** Server processes that had to be replaced. */
  process_restarts: number;
  used: { servers: Used; master: Used };
  processes: Process[];
  listeners: string[];
  sites: string[];
  certificates: Certificate[];
}

export interface Refused {
  full: number;
  too_old: number;
  down: number;
}

export interface Pool {
  name: string;
  state: string;
  retry_after: number | null;
  requests: number;
  in_use: number;
  waiting: number;
  oldest_wait: number;
  refused: Refused;
  abandoned: number;
  restarts: number;
  last_failure: string | null;
  opcache: Opcache | null;
  processes: { pid: number; state: string; age: number; requests: number; address: string }[];
}

export interface Opcache {
  state: string;
  /** What it was asked in vain for; figures come with an answer alone. */
  why?: string | null;
  hits?: number;
  misses?: number;
  memory?: { used: number; free: number; wasted: number };
}

export interface Upstream {
  name: string;
  retries: number;
  ejections: number;
  waiting: number;
  oldest_wait: number;
  refused: Refused;
  abandoned: number;
  members: Member[];
}

export interface Member {
  name: string;
  state: string;
  backup: boolean;
  weight: number;
  in_use: number;
  requests: number;
  failures: number;
}

/** How much of a memory or a folder is taken. */
export interface Tier {
  entries: number;
  bytes: number;
  limit: number;
  evicted: number;
  /** Of what had to go, what was fetched again soon. */
  returned: number;
}

/** A folder of a store. */
export interface Disk extends Tier {
  folder: string;
  broken_pieces: number;
  /** Why nothing is stored there, and since when, as RFC 3339 has it. */
  out: { why: string; since: string | null } | null;
}

/** A store of responses. */
export interface Cache {
  name: string;
  hit_ratio: number | null;
  requests: {
    hits: number;
    stale_hits: number;
    revalidated: number;
    collapsed: number;
    misses: number;
    passed: number;
    bypassed: number;
  };
  memory: Tier;
  disks: Disk[];
  stored: number;
  without_room: number;
  broken_off: number;
  /** Responses that were not stored, by the reason. */
  not_stored: Record<string, number>;
  fetches: number;
  purged: number;
}

export interface Rate {
  name: string;
  refused?: number;
  delayed_bytes?: number;
  crowded: number;
  queue?: { waiting: number; most: number; served: number; full: number; too_old: number; abandoned: number };
}

/** What limits the server, and what to change. */
export interface Finding {
  finding?: string;
  name?: string;
  subject?: string;
  sentence: string;
  change?: string | { text: string };
  page?: string;
  since?: string | number | null;
  also_seen?: unknown;
}

/** A limit that has turned somebody away. */
export interface TurnedAway {
  limit: string;
  unit: string;
  setting: string;
  count: number;
  since: string;
  last: string;
}

/** What the server as a whole has counted; the members that the console reads by name. */
export interface Stats {
  connections: Level;
  in_flight: Level;
  queued: Level;
  keep_alive: Level;
  requests: number;
  responses: Kinds & { codes: Record<string, number> };
  received_bytes: number;
  sent_bytes: number;
  latency: Times;
  cache_hits: number;
  cache_misses: number;
  tls_handshakes: Kinds;
  connection_refusals: Kinds;
  queue_refusals: Kinds;
  requests_shed: number;
  [name: string]: unknown;
}

export interface Report {
  server: ServerFacts;
  findings?: Finding[];
  turned_away?: TurnedAway[];
  workers?: Worker[];
  pools: Pool[];
  upstreams: Upstream[];
  caches?: Cache[];
  limits: Rate[];
  bandwidths: Rate[];
  bans: Rate[];
  sites: SiteFigures[];
  stats: Stats;
}

/** A request that is under way. */
export interface Underway {
  id: string;
  /** Seconds. */
  age: number;
  phase: string;
  client: string;
  site: string;
  route: string;
  protocol: string;
  status?: number;
  received: number;
  sent: number;
  upstream?: string;
  method?: string;
  host?: string;
  target?: string;
}

export interface UnderwayReport {
  count: number;
  silent_workers: number;
  requests: Underway[];
}

/** Whom a slow request was sent to; seconds from when that was chosen. */
export interface Try {
  address: string;
  connected?: number;
  first_byte?: number;
  complete?: number;
}

/** A request that was slow for its route. */
export interface Slow {
  /** When it ended, seconds since 1970. */
  at: number;
  /** Seconds. */
  took: number;
  status: number;
  received: number;
  sent: number;
  site: string;
  route: string;
  protocol?: string;
  client?: string;
  method?: string;
  host?: string;
  target?: string;
  upstreams?: Try[];
  /** Seconds of each phase, where the server tells them. */
  queue?: number;
  connect?: number;
  application?: number;
  sending?: number;
}

export interface SlowReport {
  requests: Slow[];
}

/** What happened at a moment. */
export interface Mark {
  /** Seconds since 1970. */
  at: number;
  what: string;
}

/** What the server remembers: each series oldest first, `null` where nothing is known. */
export interface HistoryReport {
  /** Seconds between two points. */
  resolution: number;
  /** Seconds since 1970. */
  from: number;
  until: number;
  marks: Mark[];
  series: Record<string, (number | null)[]>;
}

/** Totals of days. */
export interface DaysReport {
  days: Day[];
}

export interface Day {
  /** `2026-11-23`, in UTC. */
  day: string;
  requests: number;
  received_bytes: number;
  sent_bytes: number;
  refused: number;
  responses: Record<string, number>;
}
