// The requests that are under way, the oldest first.

import { may } from "../admin";
import { bytes, duration, whole } from "../format";
import { underway } from "../live";
import { type Column, Table } from "../parts/table";
import type { Underway } from "../report";
import { CancelMany, CancelRequest } from "./operate";

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

/** For who may end requests. */
const OPERATE: Column<Underway> = {
  name: "way",
  title: "Operate",
  key: ({ id }) => id,
  show: (row) => <CancelRequest row={row} />,
};

export function Requests() {
  const told = underway.value;
  if (!told) return <p class="empty">Asking the server …</p>;
  return (
    <>
      <p>
        {whole(told.count)} under way, this page's own question among them.
        {told.count > told.requests.length && ` The oldest ${whole(told.requests.length)} are shown.`} What is answered
        at once is never here. <code>tidegate cancel ID</code> ends one.
        {told.silent_workers > 0 && ` ${told.silent_workers} workers do not answer.`}
      </p>
      <CancelMany />
      <Table
        caption="Requests under way"
        rows={told.requests}
        columns={may("operate") ? [...COLUMNS, OPERATE] : COLUMNS}
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
