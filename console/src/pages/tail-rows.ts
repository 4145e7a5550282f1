// Rows of the tail: what the server tells of a request that has ended, and how many of them are kept. Pure.

export interface Ended {
  /** Counted here. */
  number: number;
  /** Seconds since 1970. */
  at: number;
  /** Seconds. */
  took: number;
  status: number;
  sent: number;
  site: string;
  route: string;
  client?: string;
  scheme?: string;
  method?: string;
  host?: string;
  target?: string;
  upstream?: string;
}

/** Rows that are kept. */
export const KEPT = 500;

/** A line of the server: a request, or how many there was no room for; `null` for what is neither. */
export function rowOf(data: string, number: number): Ended | { lost: number } | null {
  let told: Record<string, unknown>;
  try {
    told = JSON.parse(data) as Record<string, unknown>;
  } catch {
    return null;
  }
  if (typeof told !== "object" || told === null) return null;
  if (typeof told.lost === "number") return { lost: told.lost };
  if (typeof told.at !== "number" || typeof told.status !== "number") return null;
  const text = (name: string) => (typeof told[name] === "string" ? (told[name] as string) : undefined);
  const figure = (name: string) => (typeof told[name] === "number" ? (told[name] as number) : 0);
  const row: Ended = {
    number,
    at: told.at,
    took: figure("took"),
    status: told.status,
    sent: figure("sent"),
    site: text("site") ?? "",
    route: text("route") ?? "",
  };
  for (const name of ["client", "scheme", "method", "host", "target"] as const) {
    const value = text(name);
    if (value !== undefined) row[name] = value;
  }
  const last = Array.isArray(told.upstreams) ? (told.upstreams.at(-1) as { address?: unknown } | undefined) : undefined;
  const upstream = text("upstream") ?? (typeof last?.address === "string" ? last.address : undefined);
  return upstream === undefined ? row : { ...row, upstream };
}

/** The newest first; the oldest beyond what is kept are forgotten. `came` has been put together in the same way. */
export function keep(had: readonly Ended[], came: readonly Ended[]): Ended[] {
  return [...came, ...had].slice(0, KEPT);
}
