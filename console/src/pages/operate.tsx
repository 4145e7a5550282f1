// What an operator may do to what runs: each thing is asked about first, with what it does.

import { signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call, may, sentence } from "../admin";
import { moment } from "../format";
import { ask } from "../parts/confirm";
import { type Column, Table } from "../parts/table";
import type { Member, Underway } from "../report";
import { type Chosen, isEverything, selectionOf } from "./selection";

const NOTHING: Chosen = { site: "", route: "", client: "", upstream: "", seconds: "" };

/** A name as a part of a path. The server takes a slash as it is, and no other. */
const part = (name: string) => encodeURIComponent(name).replaceAll("%2F", "/");

/** A button for who may operate. */
function Operate({ label, of, run }: { label: string; of: string; run: () => void }) {
  if (!may("operate")) return null;
  return (
    <button type="button" aria-label={`${label} ${of}`} onClick={run}>
      {label} …
    </button>
  );
}

export function RestartPool({ name }: { name: string }) {
  const run = () =>
    ask({
      title: `Restart the pool ${name}?`,
      what: (
        <p>
          Its processes are replaced one by one: a new one is up before an old one ends, and each finishes its requests.
          What they hold in memory, such as caches of scripts, begins anew.
        </p>
      ),
      label: "Restart it",
      run: async () => {
        await call("POST", `pools/${part(name)}/restart`);
        return `The pool ${name} is being restarted.`;
      },
    });
  return <Operate label="Restart" of={`the pool ${name}`} run={run} />;
}

type Way = "serve" | "drain" | "pause" | "weigh";

const WAYS: [Way, string, string][] = [
  ["serve", "Serve", "It gets requests again, as the settings say."],
  ["drain", "Drain", "It gets no new clients, only those whose cookie names it; without cookies nobody."],
  ["pause", "Pause", "It gets no requests at all. Those under way are finished."],
  ["weigh", "Weigh", "It gets more or fewer requests than the settings say; empty: as they say."],
];

export function SteerMember({ group, member }: { group: string; member: Member }) {
  const run = () => {
    const [way, weight] = [signal<Way>(member.state === "up" ? "drain" : "serve"), signal(String(member.weight))];
    ask({
      title: `Change the member ${member.name} of ${group}?`,
      what: (
        <>
          {WAYS.map(([name, title, what]) => (
            <p key={name}>
              <label>
                <input type="radio" name="way" checked={way.value === name} onChange={() => (way.value = name)} />{" "}
                <strong>{title}.</strong> {what}
              </label>
            </p>
          ))}
          <p>
            <label>
              Weight{" "}
              <input
                type="text"
                inputMode="numeric"
                size={6}
                value={weight.value}
                onInput={(event) => ([way.value, weight.value] = ["weigh", event.currentTarget.value.trim()])}
              />
            </label>
          </p>
          <p class="faint">
            It holds at once and over reloads, until something else is said; an upgrade or a new start goes by the
            settings again.
          </p>
        </>
      ),
      label: "Do it",
      run: () => steer(group, member.name, way.value, weight.value),
    });
  };
  return <Operate label="Change" of={`the member ${member.name} of ${group}`} run={run} />;
}

async function steer(group: string, member: string, way: Way, weight: string): Promise<string> {
  if (way === "weigh" && !/^\d{0,6}$/.test(weight))
    throw new Error(`\`${weight}\` is no weight: write a whole number.`);
  const body = way === "weigh" ? { weight: weight === "" ? null : Number(weight) } : { way };
  await call("PATCH", `upstreams/${part(group)}/members/${part(member)}`, { body });
  if (way === "weigh") return `The member ${member} weighs ${weight || "what the settings say"}.`;
  return `The member ${member} is told to ${way}.`;
}

export function CancelRequest({ row }: { row: Underway }) {
  const run = () =>
    ask({
      title: "End this request?",
      what: (
        <>
          <p>
            Its stream is reset, or its connection where it has one to itself. Its client gets no answer, or half of
            one.
          </p>
          <pre>
            {row.id} {row.client} {row.method} {row.host}
            {row.target}
          </pre>
        </>
      ),
      label: "End it",
      run: () => cancel({ id: row.id }),
    });
  return <Operate label="End" of={`the request ${row.id}`} run={run} />;
}

async function cancel(body: Record<string, unknown>): Promise<string> {
  return (await call<{ text: string }>("POST", "requests/cancel", { body })).text;
}

const chosen = signal(NOTHING);
const FIELDS: [keyof Chosen, string, string][] = [
  ["site", "Site", "example.com"],
  ["route", "Route", "/app/*"],
  ["client", "Client", "192.0.2.0/24"],
  ["upstream", "Application", "10.0.0.1:3000"],
  ["seconds", "Older than, seconds", "30"],
];

/** Ends all requests of a kind, once it is seen which those are. */
export function CancelMany() {
  const trouble = useSignal<string | null>(null);
  const isBusy = useSignal(false);
  if (!may("operate")) return null;
  const look = async (event: SubmitEvent) => {
    event.preventDefault();
    [trouble.value, isBusy.value] = [null, true];
    try {
      await endMany(selectionOf(chosen.value));
    } catch (error) {
      trouble.value = sentence(error);
    }
    isBusy.value = false;
  };
  return (
    <details>
      <summary>End several requests</summary>
      <form class="fields" onSubmit={(event) => void look(event)}>
        {FIELDS.map(([name, title, example]) => (
          <label key={name}>
            {title}{" "}
            <input
              type="text"
              autocomplete="off"
              size={14}
              placeholder={example}
              value={chosen.value[name]}
              onInput={(event) => (chosen.value = { ...chosen.value, [name]: event.currentTarget.value.trim() })}
            />
          </label>
        ))}
        <button type="submit" disabled={isBusy.value || isEverything(chosen.value)}>
          See which
        </button>
      </form>
      <div role="status">{trouble.value && <p class="trouble">{trouble.value}</p>}</div>
    </details>
  );
}

async function endMany(selection: string): Promise<void> {
  const text = await cancel({ selection, dry_run: true });
  ask({
    title: "End these requests?",
    what: (
      <>
        <p>Those that the conditions hold for when this is confirmed. As of now:</p>
        <pre>{text}</pre>
      </>
    ),
    label: "End them",
    run: () => cancel({ selection }),
  });
}

interface Ban {
  /** The `ban` of the settings. */
  ban: string;
  client: string;
  /** Seconds since 1970. */
  until: number;
}

const BANS: Column<Ban>[] = [
  { name: "client", title: "Client", key: ({ client }) => client, isText: true },
  { name: "ban", title: "Ban", key: ({ ban }) => ban, isText: true },
  { name: "until", title: "Until", key: ({ until }) => until, show: ({ until }) => moment(until) },
];

/** Who is banned, and the way to let them in again. */
export function Bans() {
  const all = useSignal<Ban[]>([]);
  const trouble = useSignal<string | null>(null);
  const fetchAll = async () => {
    try {
      all.value = (await call<{ bans: Ban[] }>("GET", "bans")).bans;
      trouble.value = null;
    } catch (error) {
      trouble.value = sentence(error);
    }
  };
  useEffect(() => void fetchAll(), []);
  const lift: Column<Ban> = {
    name: "way",
    title: "Operate",
    key: ({ client }) => client,
    show: ({ client }) => <Operate label="Lift" of={`the ban of ${client}`} run={() => liftBan(client, fetchAll)} />,
  };
  return (
    <section aria-labelledby="banned">
      <h2 id="banned">Who is banned</h2>
      <div role="status">{trouble.value && <p class="trouble">{trouble.value}</p>}</div>
      <Table
        caption="Who is banned"
        rows={all.value}
        columns={may("operate") ? [...BANS, lift] : BANS}
        id={({ ban, client }) => `${ban} ${client}`}
        order="-until"
        empty="Nobody is banned."
      />
    </section>
  );
}

function liftBan(client: string, done: () => Promise<void>): void {
  ask({
    title: `Lift the ban of ${client}?`,
    what: <p>This client is let in again, and what was counted of it is forgotten.</p>,
    label: "Lift it",
    run: async () => {
      await call("DELETE", `bans/${part(client)}`);
      await done();
      return `${client} is let in again.`;
    },
  });
}
