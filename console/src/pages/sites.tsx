// Every route of every site that was asked for, those first that cost the most time.

import { signal } from "@preact/signals";
import { bytes, count, duration, whole } from "../format";
import { sites } from "../live";
import { Share } from "../parts/meter";
import { type Column, Table } from "../parts/table";
import { go, place } from "../route";
import { type RouteRow, routesOf, sitesOf } from "./routes";

const COLUMNS: Column<RouteRow>[] = [
  { name: "site", title: "Site", key: ({ site }) => site, isText: true },
  { name: "route", title: "Route", key: ({ route }) => route, isText: true },
  {
    name: "seconds",
    title: "Share of time",
    help: "All times of its requests together, of those of all routes",
    key: ({ seconds }) => seconds,
    show: ({ share }) => <Share of={share} />,
  },
  {
    name: "rate",
    title: "Now",
    help: "Requests a second",
    key: ({ rate }) => rate,
    show: ({ rate }) => (rate === null ? "–" : `${count(rate)}/s`),
  },
  { name: "requests", title: "Requests", key: ({ requests }) => requests, show: ({ requests }) => whole(requests) },
  { name: "mean", title: "Mean", key: ({ mean }) => mean, show: ({ mean }) => duration(mean) },
  {
    name: "p50",
    title: "50th",
    help: "Half of the requests took no longer",
    key: ({ p50 }) => p50,
    show: ({ p50 }) => duration(p50),
  },
  {
    name: "p99",
    title: "99th",
    help: "One of a hundred took longer",
    key: ({ p99 }) => p99,
    show: ({ p99 }) => duration(p99),
  },
  {
    name: "queue",
    title: "Queue 99th",
    help: "Waiting for a place, of those who had to",
    key: ({ queue }) => queue,
    show: ({ queue }) => duration(queue),
  },
  {
    name: "application",
    title: "Application 99th",
    help: "From the first byte to an application until the head of its answer",
    key: ({ application }) => application,
    show: ({ application }) => duration(application),
  },
  { name: "refused", title: "4xx", key: ({ refused }) => refused, show: ({ refused }) => whole(refused) },
  {
    name: "failed",
    title: "5xx",
    key: ({ failed }) => failed,
    show: ({ failed }) => (failed > 0 ? <span class="bad">{whole(failed)}</span> : "0"),
  },
  { name: "sent", title: "Sent", key: ({ sent }) => sent, show: ({ sent }) => bytes(sent) },
];

/** What only a route has. */
const OF_ROUTES = ["p50", "p99", "queue", "application"];

/** Sites lead to their routes. */
const OF_SITES: Column<RouteRow>[] = COLUMNS.filter(({ name }) => !OF_ROUTES.includes(name)).map((column) =>
  column.name === "site"
    ? {
        ...column,
        show: ({ site }) => (
          <button type="button" class="link" onClick={() => show(false, site)}>
            {site}
          </button>
        ),
      }
    : column,
);

/** Whether the routes of a site are one row. */
const isBySite = signal(false);

function show(bySite: boolean, filter: string): void {
  isBySite.value = bySite;
  go({ filter, sort: "" });
}

export function Sites() {
  const told = sites.value;
  if (!told) return <p class="empty">Asking the server …</p>;
  const isUncounted = told.now.sites.length === 0 && told.now.server.sites.length > 0;
  const routes = routesOf(told.now, told.before, told.seconds);
  return (
    <>
      <div class="controls">
        <div role="group" aria-label="Rows">
          {[false, true].map((bySite) => (
            <button
              type="button"
              key={String(bySite)}
              aria-pressed={isBySite.value === bySite}
              onClick={() => show(bySite, place.value.filter)}
            >
              {bySite ? "A row for each site" : "A row for each route"}
            </button>
          ))}
        </div>
      </div>
      <Table
        key={String(isBySite.value)}
        caption={isBySite.value ? "Sites" : "Routes"}
        rows={isBySite.value ? sitesOf(routes) : routes}
        columns={isBySite.value ? OF_SITES : COLUMNS}
        id={({ site, route }) => `${site}\n${route}`}
        order="-seconds"
        texts={({ site, route }) => [site, route]}
        empty={isUncounted ? "Sites are not counted here: the settings say `statistics off`." : "Nothing was asked for yet."}
      />
    </>
  );
}
