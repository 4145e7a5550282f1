// The certificates that are served, those first that end first.

import { duration } from "../format";
import { report } from "../live";
import { type Column, Table } from "../parts/table";
import type { Certificate } from "../report";

/** What is to be done about it. */
function state({ seconds_left, ends_soon }: Certificate): [word: string, kind: string] {
  if (seconds_left === null) return ["none yet", "bad"];
  if (seconds_left <= 0) return ["expired", "bad"];
  if (ends_soon) return ["ends soon", "bad"];
  return ["good", "good"];
}

const COLUMNS: Column<Certificate>[] = [
  { name: "names", title: "Names", key: ({ names }) => names.join(", "), isText: true },
  {
    name: "state",
    title: "State",
    key: (row) => state(row)[0],
    show: (row) => <span class={`state ${state(row)[1]}`}>{state(row)[0]}</span>,
    isText: true,
  },
  {
    name: "left",
    title: "Left",
    key: ({ seconds_left }) => seconds_left,
    show: ({ seconds_left }) => duration(seconds_left),
  },
  { name: "until", title: "Good until", key: ({ not_after }) => not_after ?? "", isText: true },
  { name: "key", title: "Key", key: ({ key }) => key, isText: true },
  { name: "issuer", title: "Issuer", key: ({ issuer }) => issuer, isText: true },
  { name: "source", title: "From", key: ({ source }) => source, isText: true },
];

export function Certificates() {
  const told = report.value;
  if (!told) return null;
  return (
    <Table
      caption="Certificates"
      rows={told.server.certificates}
      columns={COLUMNS}
      id={({ source, names }) => `${source} ${names.join(" ")}`}
      order="left"
      texts={({ names, issuer, source, key }) => [...names, issuer, source, key]}
      empty="No certificate is served."
    />
  );
}
