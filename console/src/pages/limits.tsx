// Limits that have turned somebody away, and how near the others are.

import { may } from "../admin";
import { bytes, moment, whole } from "../format";
import { report } from "../live";
import { Share } from "../parts/meter";
import { type Column, Table } from "../parts/table";
import type { Rate, TurnedAway } from "../report";
import { type Fill, type Hit, fill, fillsOf, hitsOf } from "./hits";
import { Bans } from "./operate";

const HITS: Column<Hit>[] = [
  { name: "times", title: "How often", key: ({ times }) => times, show: ({ times }) => whole(times) },
  { name: "what", title: "What was turned away", key: ({ what }) => what, isText: true },
  { name: "subject", title: "Of", key: ({ subject }) => subject, isText: true },
  {
    name: "setting",
    title: "Setting",
    key: ({ setting }) => setting,
    show: ({ setting }) => <code>{setting}</code>,
    isText: true,
  },
];

const when = (date: string) => moment(Date.parse(date) / 1000);

const TURNED_AWAY: Column<TurnedAway>[] = [
  {
    name: "count",
    title: "How often",
    key: ({ count }) => count,
    show: ({ count, unit }) => (unit === "bytes" ? bytes(count) : whole(count)),
  },
  { name: "unit", title: "What", key: ({ unit }) => unit, isText: true },
  { name: "limit", title: "Limit", key: ({ limit }) => limit, isText: true },
  {
    name: "setting",
    title: "Setting",
    key: ({ setting }) => setting,
    show: ({ setting }) => <code>{setting}</code>,
    isText: true,
  },
  { name: "since", title: "Since", key: ({ since }) => since, show: ({ since }) => when(since) },
  { name: "last", title: "Last", key: ({ last }) => last, show: ({ last }) => when(last) },
];

const amount = ({ member }: Fill) => (member === "buffer" || member === "cache_bytes" ? bytes : whole);

const FILLS: Column<Fill>[] = [
  { name: "what", title: "Level", key: ({ what }) => what, isText: true },
  { name: "fill", title: "Full", key: ({ level }) => fill(level), show: ({ level }) => <Share of={fill(level)} /> },
  { name: "now", title: "Now", key: ({ level }) => level.current, show: (row) => amount(row)(row.level.current) },
  { name: "peak", title: "Most so far", key: ({ level }) => level.peak, show: (row) => amount(row)(row.level.peak) },
  { name: "limit", title: "Limit", key: ({ level }) => level.limit, show: (row) => amount(row)(row.level.limit) },
  {
    name: "setting",
    title: "Setting",
    key: ({ setting }) => setting,
    show: ({ setting }) => <code>{setting}</code>,
    isText: true,
  },
];

const BANDWIDTHS: Column<Rate>[] = [
  { name: "name", title: "Bandwidth", key: ({ name }) => name, isText: true },
  {
    name: "delayed",
    title: "Held up",
    key: ({ delayed_bytes }) => delayed_bytes,
    show: ({ delayed_bytes }) => bytes(delayed_bytes),
  },
];

export function Limits() {
  const told = report.value;
  if (!told) return null;
  return (
    <>
      {told.turned_away && told.turned_away.length > 0 && (
        <Table
          caption="Turned away"
          rows={told.turned_away}
          columns={TURNED_AWAY}
          id={({ limit, unit }) => `${limit} ${unit}`}
          order="-count"
          empty=""
        />
      )}
      <Table
        caption="Limits that were hit"
        rows={hitsOf(told)}
        columns={HITS}
        id={({ what, subject, setting }) => `${what} ${subject} ${setting}`}
        order="-times"
        texts={({ what, subject, setting }) => [what, subject, setting]}
        empty={
          told.turned_away?.length
            ? "Nothing else was turned away."
            : "No limit has turned anybody away since the server started."
        }
      />
      <h2>How full</h2>
      <Table
        caption="Levels and their limits"
        rows={fillsOf(told)}
        columns={FILLS}
        id={({ member }) => member}
        order="-fill"
        empty="No level has a limit."
      />
      {told.bans.length > 0 && may("view") && <Bans />}
      {told.bandwidths.length > 0 && (
        <>
          <h2>Bandwidths</h2>
          <Table
            caption="Bandwidths"
            rows={told.bandwidths}
            columns={BANDWIDTHS}
            id={({ name }) => name}
            order="-delayed"
            empty=""
          />
        </>
      )}
    </>
  );
}
