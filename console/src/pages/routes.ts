// Routes of all sites as rows: what each has cost, and what has come since the report before. Pure.

import type { Figures, Report } from "../report";

export interface RouteRow {
  site: string;
  route: string;
  requests: number;
  /** Requests a second since the report before; `null` where there is none. */
  rate: number | null;
  /** All times together. */
  seconds: number;
  /** Of the time of all routes, 0 to 1. */
  share: number;
  mean: number | null;
  p50: number | null;
  p99: number | null;
  queue: number | null;
  application: number | null;
  refused: number;
  failed: number;
  sent: number;
}

/** What no route of its site has taken, in the place of a route. */
const UNROUTED = "(no route)";

type Named = [site: string, route: string, figures: Figures];

function named(report: Report): Named[] {
  return report.sites.flatMap((site) => {
    const routes = site.routes.map((route): Named => [site.name, route.route, route]);
    return site.unrouted ? [...routes, [site.name, UNROUTED, site.unrouted] satisfies Named] : routes;
  });
}

/** A row for each route; rates are those of the `seconds` since `before`. */
export function routesOf(now: Report, before: Report | null, seconds: number): RouteRow[] {
  const all = named(now);
  const had = new Map((before ? named(before) : []).map(([site, route, of]) => [`${site}\n${route}`, of.requests]));
  const total = all.reduce((sum, [, , figures]) => sum + figures.seconds, 0);
  return all.map(([site, route, of]) => {
    const then = had.get(`${site}\n${route}`);
    const isKnown = then !== undefined && seconds > 0 && of.requests >= then;
    return {
      site,
      route,
      requests: of.requests,
      rate: isKnown ? (of.requests - then) / seconds : null,
      seconds: of.seconds,
      share: total > 0 ? of.seconds / total : 0,
      mean: of.requests > 0 ? of.seconds / of.requests : null,
      p50: of.duration?.p50 ?? null,
      p99: of.duration?.p99 ?? null,
      queue: of.queue?.p99 ?? null,
      application: of.application?.p99 ?? null,
      refused: of.responses["4xx"] ?? 0,
      failed: of.responses["5xx"] ?? 0,
      sent: of.sent_bytes,
    };
  });
}

/** A row for each site: its routes together. Percentiles of theirs cannot be added up. */
export function sitesOf(routes: readonly RouteRow[]): RouteRow[] {
  const bySite = new Map<string, RouteRow[]>();
  for (const row of routes) bySite.set(row.site, [...(bySite.get(row.site) ?? []), row]);
  return [...bySite].map(([site, rows]) => {
    const sum = (of: (row: RouteRow) => number) => rows.reduce((total, row) => total + of(row), 0);
    const [requests, seconds] = [sum((row) => row.requests), sum((row) => row.seconds)];
    const isKnown = rows.some(({ rate }) => rate !== null);
    return {
      site,
      route: rows.length === 1 ? (rows[0]?.route ?? "") : `${rows.length} routes`,
      requests,
      rate: isKnown ? sum((row) => row.rate ?? 0) : null,
      seconds,
      share: sum((row) => row.share),
      mean: requests > 0 ? seconds / requests : null,
      p50: null,
      p99: null,
      queue: null,
      application: null,
      refused: sum((row) => row.refused),
      failed: sum((row) => row.failed),
      sent: sum((row) => row.sent),
    };
  });
}
