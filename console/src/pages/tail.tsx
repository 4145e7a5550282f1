// Requests as they end, the newest first: as many as a person reads, of those that the filters leave.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { bytes, duration, moment, whole } from "../format";
import { Status } from "../parts/meter";
import { filtered } from "../parts/sorting";
import { FilterInput } from "../parts/table";
import { place } from "../route";
import { listen } from "../stream";
import { explain } from "./explain";
import { type Ended, KEPT, keep, rowOf } from "./tail-rows";

/** Rows that are shown. */
const SHOWN = 200;
/** Milliseconds between two looks at what has come. */
const EVERY = 250;

const rows = signal<Ended[]>([]);
const lost = signal(0);
const site = signal("");
const status = signal("");
const isPaused = signal(false);
const connection = signal("Asking the server …");

const texts = (row: Ended) => [
  row.site,
  row.route,
  row.client ?? "",
  String(row.status),
  row.method ?? "",
  row.host ?? "",
  row.target ?? "",
  row.upstream ?? "",
];

/** Listens for as long as the page is seen. */
function follow(query: string): () => void {
  let came: Ended[] = [];
  let number = rows.value[0]?.number ?? 0;
  let end = () => {};
  const look = () => {
    end();
    if (document.hidden) return;
    end = listen(`tail${query}`, {
      event({ name, data }) {
        const row = name === "message" ? rowOf(data, number + 1) : null;
        if (row === null) return;
        if ("lost" in row) lost.value += row.lost;
        else {
          number += 1;
          came = keep(came, [row]);
        }
      },
      opened: () => (connection.value = ""),
      broken: (why) => (connection.value = `${why} It is asked again.`),
    });
  };
  const timer = setInterval(() => {
    if (came.length === 0 || isPaused.value) return;
    rows.value = keep(rows.value, came);
    came = [];
  }, EVERY);
  document.addEventListener("visibilitychange", look);
  look();
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", look);
    end();
  };
}

export function Tail() {
  const asked = new URLSearchParams();
  if (site.value) asked.set("site", site.value);
  if (status.value) asked.set("status", status.value);
  const query = asked.size > 0 ? `?${asked.toString()}` : "";
  useEffect(() => follow(query), [query]);
  const left = filtered(rows.value, texts, place.value.filter);
  return (
    <>
      <p>
        Requests as they end. The server chooses by site and status; the filter chooses among the last {KEPT}. What
        comes faster than it can be told is counted.
      </p>
      <Filters />
      <p role="status" class={connection.value ? "trouble" : "faint"}>
        {connection.value || `${left.length} of ${rows.value.length} shown${isPaused.value ? ", paused" : ""}.`}
        {lost.value > 0 && ` ${whole(lost.value)} were left out.`}
      </p>
      <Rows rows={left.slice(0, SHOWN)} />
    </>
  );
}

function Filters() {
  return (
    <form class="fields" onSubmit={choose}>
      <label>
        Site <input name="site" type="text" value={site.value} autocomplete="off" />
      </label>
      <label>
        Status <input name="status" type="text" value={status.value} placeholder="5xx" autocomplete="off" size={8} />
      </label>
      <button type="submit">Choose</button>
      <FilterInput />
      <button type="button" aria-pressed={isPaused.value} onClick={() => (isPaused.value = !isPaused.value)}>
        {isPaused.value ? "Go on with the tail" : "Pause the tail"}
      </button>
      <button type="button" onClick={() => ([rows.value, lost.value] = [[], 0])}>
        Clear
      </button>
    </form>
  );
}

function choose(event: SubmitEvent): void {
  event.preventDefault();
  const form = new FormData(event.currentTarget as HTMLFormElement);
  [rows.value, lost.value] = [[], 0];
  site.value = String(form.get("site") ?? "").trim();
  status.value = String(form.get("status") ?? "").trim();
}

const COLUMNS: [title: string, isText: boolean, show: (row: Ended) => ComponentChildren][] = [
  ["Ended", false, ({ at }) => moment(at)],
  ["Status", false, ({ status }) => <Status of={status} />],
  ["Took", false, ({ took }) => duration(took)],
  ["Sent", false, ({ sent }) => bytes(sent)],
  [
    "Request",
    true,
    (row) => (
      <button type="button" class="link" title="Explain this request" onClick={() => explain(row)}>
        <code>
          {row.method} {row.host}
          {row.target}
        </code>
      </button>
    ),
  ],
  ["Site and route", true, ({ site, route }) => `${site} ${route}`],
  ["Client", true, ({ client }) => client],
  ["Application", true, ({ upstream }) => upstream],
];

/** In the order in which they came, so that there is nothing to sort. */
function Rows({ rows }: { rows: Ended[] }) {
  if (rows.length === 0) return <p class="empty">No request has ended since.</p>;
  return (
    <div class="scrolled" role="region" aria-label="Requests as they end" tabIndex={0}>
      <table role="table">
        <caption>Requests as they end</caption>
        <thead role="rowgroup">
          <tr role="row">
            {COLUMNS.map(([title, isText]) => (
              <th scope="col" role="columnheader" key={title} class={isText ? "text" : undefined}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {rows.map((row) => (
            <tr role="row" key={row.number}>
              {COLUMNS.map(([title, isText, show]) => (
                <td role="cell" key={title} class={isText ? "text" : undefined} data-title={title}>
                  {show(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
