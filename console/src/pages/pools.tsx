// Applications: the pools that the server runs itself, and the servers elsewhere that it asks.

import { may } from "../admin";
import { bytes, duration, percent, whole } from "../format";
import { report } from "../live";
import { Share, Tile } from "../parts/meter";
import { type Column, Table } from "../parts/table";
import type { Member, Opcache, Pool, Refused, Upstream } from "../report";
import { ratio } from "../sample";
import { RestartPool, SteerMember } from "./operate";

export function Pools() {
  const told = report.value;
  if (!told) return null;
  const { pools, upstreams } = told;
  if (pools.length + upstreams.length === 0) {
    return (
      <p class="empty">
        No pool and no upstream is in the settings. <code>tidegate docs pools</code> and{" "}
        <code>tidegate docs balancing</code> tell of them.
      </p>
    );
  }
  return (
    <>
      {pools.map((pool) => (
        <PoolSection key={pool.name} pool={pool} />
      ))}
      {upstreams.map((upstream) => (
        <UpstreamSection key={upstream.name} upstream={upstream} />
      ))}
    </>
  );
}

function PoolSection({ pool }: { pool: Pool }) {
  return (
    <section aria-label={`Pool ${pool.name}`}>
      <h2>
        Pool {pool.name} <State of={pool.state} /> <RestartPool name={pool.name} />
      </h2>
      {pool.last_failure && (
        <p class="trouble">
          Last failure: <code>{pool.last_failure}</code>
          {pool.retry_after !== null && ` Tried again in ${duration(pool.retry_after)}.`}
        </p>
      )}
      <dl class="tiles">
        <Tile name="Requests" value={whole(pool.requests)} note={`${whole(pool.in_use)} under way`} />
        <Waiting of={pool} />
        <Turned refused={pool.refused} abandoned={pool.abandoned} />
        <Tile name="Restarts" value={whole(pool.restarts)} isBad={pool.restarts > 0} />
        {pool.opcache && <Cached opcache={pool.opcache} />}
      </dl>
      <Table
        caption={`Processes of ${pool.name}`}
        rows={pool.processes}
        columns={PROCESSES}
        id={({ pid }) => String(pid)}
        order="-requests"
        empty="No process runs."
      />
    </section>
  );
}

const PROCESSES: Column<Pool["processes"][number]>[] = [
  { name: "pid", title: "Process", key: ({ pid }) => pid },
  { name: "state", title: "State", key: ({ state }) => state, isText: true },
  { name: "age", title: "For", key: ({ age }) => age, show: ({ age }) => duration(age) },
  { name: "requests", title: "Requests", key: ({ requests }) => requests, show: ({ requests }) => whole(requests) },
  { name: "address", title: "Address", key: ({ address }) => address, isText: true },
];

function UpstreamSection({ upstream }: { upstream: Upstream }) {
  return (
    <section aria-label={`Upstream ${upstream.name}`}>
      <h2>Upstream {upstream.name}</h2>
      <dl class="tiles">
        <Waiting of={upstream} />
        <Turned refused={upstream.refused} abandoned={upstream.abandoned} />
        <Tile name="Retries" value={whole(upstream.retries)} />
        <Tile name="Ejections" value={whole(upstream.ejections)} isBad={upstream.ejections > 0} />
      </dl>
      <Table
        caption={`Members of ${upstream.name}`}
        rows={upstream.members}
        columns={members(upstream)}
        id={({ name }) => name}
        order="name"
        empty="It has no member."
      />
    </section>
  );
}

function members({ name: group, members: all }: Upstream): Column<Member>[] {
  const total = all.reduce((sum, { requests }) => sum + requests, 0);
  const columns: Column<Member>[] = [
    { name: "name", title: "Member", key: ({ name }) => name, isText: true },
    {
      name: "state",
      title: "State",
      key: ({ state }) => state,
      show: ({ state }) => <State of={state} />,
      isText: true,
    },
    { name: "backup", title: "Backup", key: ({ backup }) => (backup ? "yes" : "no"), isText: true },
    { name: "weight", title: "Weight", key: ({ weight }) => weight },
    { name: "in_use", title: "Under way", key: ({ in_use }) => in_use },
    {
      name: "requests",
      title: "Requests",
      key: ({ requests }) => requests,
      show: ({ requests }) => <Share of={total > 0 ? requests / total : 0} text={whole(requests)} />,
    },
    {
      name: "failures",
      title: "Failures",
      key: ({ failures }) => failures,
      show: ({ failures }) => (failures > 0 ? <span class="bad">{whole(failures)}</span> : "0"),
    },
  ];
  if (may("operate")) {
    columns.push({
      name: "way",
      title: "Operate",
      key: ({ state }) => state,
      show: (member) => <SteerMember group={group} member={member} />,
    });
  }
  return columns;
}

function State({ of }: { of: string }) {
  return <span class={of === "up" ? "state good" : "state bad"}>{of}</span>;
}

function Waiting({ of }: { of: { waiting: number; oldest_wait: number } }) {
  const note = of.waiting > 0 ? `the first for ${duration(of.oldest_wait)}` : undefined;
  return <Tile name="Waiting" value={whole(of.waiting)} note={note} isBad={of.waiting > 0} />;
}

function Turned({ refused, abandoned }: { refused: Refused; abandoned: number }) {
  const all = refused.full + refused.too_old + refused.down;
  const reasons = `${whole(refused.full)} queue full, ${whole(refused.too_old)} too old, ${whole(refused.down)} down`;
  const note = `${reasons}; ${whole(abandoned)} gave up`;
  return <Tile name="Refused" value={whole(all)} note={note} isBad={all > 0} />;
}

function Cached({ opcache }: { opcache: Opcache }) {
  const { hits, misses = 0, memory, state, why } = opcache;
  const note = memory ? `hits; ${bytes(memory.used)} in use, ${bytes(memory.free)} free` : (why ?? undefined);
  return <Tile name="OPcache" value={hits === undefined ? state : percent(ratio(hits, misses))} note={note} />;
}
