// Stores of responses: what they answer, how full they are, why something was not stored; and purges.

import { signal } from "@preact/signals";
import { call, may } from "../admin";
import { bytes, moment, percent, whole } from "../format";
import { report } from "../live";
import { ask } from "../parts/confirm";
import { Share, Tile } from "../parts/meter";
import { type Column, Table } from "../parts/table";
import type { Cache, Disk, Tier } from "../report";
import { KINDS, type Kind, MEANT, type Wanted, contentOf, outcomeOf } from "./purges";

export function Caches() {
  const caches = report.value?.caches;
  if (!caches || caches.length === 0) {
    return (
      <p class="empty">
        No store of responses is in use. <code>tidegate docs caching</code> tells of them.
      </p>
    );
  }
  return (
    <>
      {caches.map((cache) => (
        <CacheSection key={cache.name} cache={cache} />
      ))}
    </>
  );
}

function CacheSection({ cache }: { cache: Cache }) {
  const { name, requests, memory, disks, not_stored } = cache;
  const reasons = Object.entries(not_stored).map(([why, count]) => ({ why, count }));
  return (
    <section aria-label={`Cache ${name}`}>
      <h2>
        Cache {name} <Purge store={name} />
      </h2>
      <dl class="tiles">
        <Tile name="Hits" value={percent(cache.hit_ratio)} note={hits(requests)} />
        <Tile
          name="Asked of applications"
          value={whole(requests.misses + requests.revalidated)}
          note={`${whole(requests.revalidated)} confirmed; ${whole(requests.passed)} known not to be stored`}
        />
        <Tile name="Past it" value={whole(requests.bypassed)} note="by a cookie, or by method" />
        <Tile name="Memory" value={bytes(memory.bytes)} note={full(memory)} />
        <Tile
          name="Stored"
          value={whole(cache.stored)}
          note={`${whole(cache.without_room)} had no room, ${whole(cache.broken_off)} broke off`}
        />
        <Tile name="Purged" value={whole(cache.purged)} />
      </dl>
      {disks.length > 0 && (
        <Table
          caption={`Disks of ${name}`}
          rows={disks}
          columns={DISKS}
          id={({ folder }) => folder}
          order="folder"
          empty="It has no disk."
        />
      )}
      {reasons.length > 0 && (
        <Table
          caption={`Not stored in ${name}`}
          rows={reasons}
          columns={REASONS}
          id={({ why }) => why}
          order="-count"
          empty=""
        />
      )}
    </section>
  );
}

function hits({ hits, stale_hits, collapsed, revalidated, misses }: Cache["requests"]): string {
  const asked = hits + collapsed + revalidated + misses;
  return `of ${whole(asked)} since the start; ${whole(stale_hits)} stale, ${whole(collapsed)} waited for another's fetch`;
}

const full = ({ entries, limit, evicted }: Tier) =>
  `of ${bytes(limit)}, ${whole(entries)} ${entries === 1 ? "response" : "responses"}, ${whole(evicted)} had to go`;

const DISKS: Column<Disk>[] = [
  { name: "folder", title: "Folder", key: ({ folder }) => folder, isText: true },
  {
    name: "state",
    title: "State",
    key: ({ out }) => out?.why ?? "",
    show: ({ out }) => <State of={out} />,
    isText: true,
  },
  {
    name: "full",
    title: "Full",
    key: (disk) => (disk.limit > 0 ? disk.bytes / disk.limit : null),
    show: (disk) => <Share of={disk.limit > 0 ? disk.bytes / disk.limit : null} />,
  },
  { name: "bytes", title: "Bytes", key: (disk) => disk.bytes, show: (disk) => bytes(disk.bytes) },
  { name: "limit", title: "Of", key: ({ limit }) => limit, show: ({ limit }) => bytes(limit) },
  { name: "entries", title: "Responses", key: ({ entries }) => entries, show: ({ entries }) => whole(entries) },
  { name: "evicted", title: "Had to go", key: ({ evicted }) => evicted, show: ({ evicted }) => whole(evicted) },
];

function State({ of }: { of: Disk["out"] }) {
  if (!of) return <span class="state good">in use</span>;
  const since = of.since ? ` since ${moment(Date.parse(of.since) / 1000)}` : "";
  return (
    <span class="bad">
      out of use{since}: {of.why}
    </span>
  );
}

const REASONS: Column<{ why: string; count: number }>[] = [
  { name: "count", title: "Not stored", key: ({ count }) => count, show: ({ count }) => whole(count) },
  { name: "why", title: "Why", key: ({ why }) => why, isText: true },
];

function Purge({ store }: { store: string }) {
  if (!may("operate")) return null;
  const run = () => {
    const wanted = signal<Wanted>({ kind: "url", name: "", host: "", isSoft: false });
    ask({
      title: `Purge the cache ${store}?`,
      what: <Choice wanted={wanted} />,
      label: "Purge it",
      run: () => purge(store, wanted.value),
    });
  };
  return (
    <button type="button" aria-label={`Purge the cache ${store}`} onClick={run}>
      Purge …
    </button>
  );
}

function Choice({ wanted }: { wanted: { value: Wanted } }) {
  const change = (part: Partial<Wanted>) => (wanted.value = { ...wanted.value, ...part });
  const { kind, name, host, isSoft } = wanted.value;
  const [title, , example] = MEANT[kind];
  return (
    <>
      <p>What goes is not used any more: the application is asked anew.</p>
      <p class="fields">
        <label>
          Which{" "}
          <select value={kind} onChange={(event) => change({ kind: event.currentTarget.value as Kind })}>
            {KINDS.map((kind) => (
              <option key={kind} value={kind}>
                {MEANT[kind][0]}: {MEANT[kind][1]}
              </option>
            ))}
          </select>
        </label>
        {kind !== "all" && <Field title={title} example={example} value={name} set={(name) => change({ name })} />}
        {(kind === "tag" || kind === "group") && (
          <Field title="Of the host alone" example="all hosts" value={host} set={(host) => change({ host })} />
        )}
      </p>
      <p>
        <label>
          <input type="checkbox" checked={isSoft} onChange={() => change({ isSoft: !isSoft })} /> Softly: kept as
          stale, used again once the application has confirmed it, or where it fails
        </label>
      </p>
    </>
  );
}

function Field(field: { title: string; example: string; value: string; set: (text: string) => void }) {
  return (
    <label>
      {field.title}{" "}
      <input
        type="text"
        autocomplete="off"
        size={30}
        placeholder={field.example}
        value={field.value}
        onInput={(event) => field.set(event.currentTarget.value.trim())}
      />
    </label>
  );
}

async function purge(store: string, wanted: Wanted): Promise<string> {
  const body = contentOf(store, wanted);
  if (typeof body === "string") throw new Error(body);
  const told = await call<{ purged?: { entries: number; is_marked: boolean } }>("POST", "caches/purge", { body });
  return outcomeOf(told.purged?.entries ?? 0, wanted.isSoft, told.purged?.is_marked ?? false);
}
