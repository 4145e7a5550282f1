// The requests that are under way, the oldest first.

import { bytes, duration, whole } from "../format";
import { underway } from "../live";
import { type Column, Table } from "../parts/table";
import type { Underway } from "../report";

const phase = ({ phase, status }: Underway) => (status === undefined ? phase : `${phase} ${status}`);
const line = ({ method, target }: Underway) => [method, target].filter(Boolean).join(" ");

const COLUMNS: Column<Underway>[] = [
  { name: "age", title: "Age", key: ({ age }) => age, show: ({ age }) => duration(age) },
  { name: "phase", title: "Status", key: phase, isText: true },
  { name: "client", title: "Client", key: ({ client }) => client, isText: true },
  { name: "site", title: "Site", key: ({ site }) => site, isText: true },
  { name: "route", title: "Route", key: ({ route }) => route, isText: true },
  { name: "request", title: "Request", key: line, show: (row) => <code>{line(row)}</code>, isText: true },
  { name: "upstream", title: "Application", key: ({ upstream }) => upstream ?? "", isText: true },
  { name: "received", title: "Received", key: ({ received }) => received, show: ({ received }) => bytes(received) },
  { name: "sent", title: "Sent", key: ({ sent }) => sent, show: ({ sent }) => bytes(sent) },
  {
    name: "id",
    title: "Id",
    help: "For tidegate cancel",
    key: ({ id }) => id,
    show: ({ id }) => <code>{id}</code>,
    isText: true,
  },
];

export function Requests() {
  const told = underway.value;
  if (!told) return <p class="empty">Asking the server …</p>;
  return (
    <>
      <p>
        {whole(told.count)} under way, {whole(told.requests.length)} told, the oldest of them; the question of this
        page is one. What is answered at once is never here. <code>tidegate cancel ID</code> ends one.
        {told.silent_workers > 0 && ` ${told.silent_workers} workers do not answer.`}
      </p>
      <Table
        caption="Requests under way"
        rows={told.requests}
        columns={COLUMNS}
        id={({ id }) => id}
        order="-age"
        texts={(row) => [
          row.site,
          row.route,
          row.client,
          phase(row),
          line(row),
          row.host ?? "",
          row.upstream ?? "",
          row.id,
        ]}
        empty="No request is under way."
      />
    </>
  );
}
