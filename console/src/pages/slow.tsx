// Requests that were slow for their route, with bars of where their time went.

import { bytes, duration, moment } from "../format";
import { slow } from "../live";
import { Phases } from "../parts/meter";
import { type Column, Table } from "../parts/table";
import type { Slow } from "../report";
import { phasesOf, phasesText } from "./phases";

const line = ({ method, target }: Slow) => [method, target].filter(Boolean).join(" ");

const columns = (longest: number): Column<Slow>[] => [
  { name: "took", title: "Took", key: ({ took }) => took, show: ({ took }) => duration(took) },
  {
    name: "phases",
    title: "Phases",
    help: "Where the time went",
    key: ({ took }) => took,
    show: (row) => {
      const phases = phasesOf(row);
      return <Phases phases={phases} whole={longest} label={phasesText(phases)} />;
    },
    isText: true,
  },
  { name: "at", title: "Ended", key: ({ at }) => at, show: ({ at }) => moment(at) },
  { name: "status", title: "Status", key: ({ status }) => status },
  { name: "site", title: "Site", key: ({ site }) => site, isText: true },
  { name: "route", title: "Route", key: ({ route }) => route, isText: true },
  { name: "request", title: "Request", key: line, show: (row) => <code>{line(row)}</code>, isText: true },
  { name: "client", title: "Client", key: ({ client }) => client ?? "", isText: true },
  { name: "sent", title: "Sent", key: ({ sent }) => sent, show: ({ sent }) => bytes(sent) },
];

export function SlowRequests() {
  const told = slow.value;
  if (!told) return <p class="empty">Asking the server …</p>;
  const longest = Math.max(0, ...told.requests.map(({ took }) => took));
  return (
    <>
      <p>
        What took longer than 99.9 % of the requests of its route, and at least ten milliseconds; where a route has not
        had a thousand yet, longer than half a second; and where <code>slow-after</code> says it, longer than that. The
        request, its client and the phases are known where an application was asked or the request had to wait; of
        others where the site has an access log.
      </p>
      <ul class="legend" aria-label="Phases">
        <li>
          <span class="swatch wait" aria-hidden="true" /> in the server
        </li>
        <li>
          <span class="swatch queue" aria-hidden="true" /> queue
        </li>
        <li>
          <span class="swatch connect" aria-hidden="true" /> connecting
        </li>
        <li>
          <span class="swatch application" aria-hidden="true" /> application
        </li>
        <li>
          <span class="swatch answer" aria-hidden="true" /> its answer, and sending
        </li>
      </ul>
      <Table
        caption="Slow requests"
        rows={told.requests}
        columns={columns(longest)}
        id={(row) => `${row.at} ${row.took} ${row.site} ${row.route} ${row.client ?? ""} ${line(row)}`}
        order="-took"
        texts={(row) => [row.site, row.route, line(row), row.client ?? "", String(row.status)]}
        empty="No request was slow. With `statistics off` none is told."
      />
    </>
  );
}
