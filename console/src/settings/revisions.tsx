// The revisions that the server remembers: who has changed what, how each differs from what is in force, and the way back.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call, sentence } from "../admin";
import { moment } from "../format";
import { ask } from "../parts/confirm";
import { type Column, Table } from "../parts/table";
import { unified } from "./diff";
import { Difference } from "./difference";
import { CONFIRM_WITHIN, type Settings, base, newer, restore } from "./state";

interface Revision {
  revision: number;
  at: string;
  who: string;
  what: string;
  is_in_force: boolean;
}

export function Revisions({ back }: { back: () => void }) {
  const all = useSignal<Revision[] | null>(null);
  const looked = useSignal<{ revision: number; lines: string[] } | null>(null);
  const trouble = useSignal<string | null>(null);
  const inForce = (newer.value ?? base.value)?.revision;
  const fetchAll = async () => {
    try {
      [all.value, trouble.value] = [await call<Revision[]>("GET", "revisions"), null];
    } catch (error) {
      trouble.value = sentence(error);
    }
  };
  useEffect(() => void fetchAll(), [inForce]);
  const look = async (revision: number) => {
    try {
      const told = await call<Settings>("GET", `revisions/${revision}`);
      looked.value = { revision, lines: differenceOf(newer.value ?? base.value, told) };
      trouble.value = null;
    } catch (error) {
      trouble.value = sentence(error);
    }
  };
  return (
    <section aria-labelledby="revisions">
      <h2 id="revisions">Revisions</h2>
      <div role="status">{trouble.value && <p class="trouble">{trouble.value}</p>}</div>
      {all.value && (
        <Table
          caption="Revisions"
          rows={all.value}
          columns={columns((revision) => void look(revision))}
          id={({ revision }) => String(revision)}
          order="-revision"
          empty="The server remembers no revision."
        />
      )}
      {looked.value && (
        <>
          <h3>What going back to revision {looked.value.revision} would change</h3>
          <Difference lines={looked.value.lines} label={`Difference to revision ${looked.value.revision}`} />
        </>
      )}
      <p class="actions">
        <button type="button" onClick={back}>
          Back to the texts
        </button>
      </p>
    </section>
  );
}

const columns = (look: (revision: number) => void): Column<Revision>[] => [
  { name: "revision", title: "Revision", key: ({ revision }) => revision },
  { name: "at", title: "When", key: ({ at }) => at, show: ({ at }) => moment(Date.parse(at) / 1000), isText: true },
  { name: "who", title: "Who", key: ({ who }) => who, isText: true },
  { name: "what", title: "What", key: ({ what }) => what, isText: true },
  {
    name: "way",
    title: "State",
    key: ({ is_in_force }) => String(is_in_force),
    show: ({ revision, is_in_force }) =>
      is_in_force ? (
        <span class="state good">in force</span>
      ) : (
        <span class="row">
          <button type="button" aria-label={`Look at revision ${revision}`} onClick={() => look(revision)}>
            Look
          </button>
          <button type="button" aria-label={`Go back to revision ${revision}`} onClick={() => goBack(revision)}>
            Go back …
          </button>
        </span>
      ),
  },
];

function goBack(revision: number): void {
  ask({
    title: `Go back to revision ${revision}?`,
    what: (
      <p>
        The files on the server are those of revision {revision} again, and the server takes them up. It comes undone
        unless you keep it within {CONFIRM_WITHIN} seconds. What you have written and not applied stays.
      </p>
    ),
    label: "Go back to it",
    run: async () => {
      const came = await restore(revision, true);
      if (came.kind === "overtaken") throw new Error("Somebody else has changed the settings meanwhile. Look again.");
      if (came.kind === "wrong") throw came.why;
      return [
        `Revision ${came.applied.revision} is in force, with the texts of revision ${revision}.`,
        ...came.applied.notes,
      ].join(" ");
    },
  });
}

function differenceOf(from: Settings | null, to: Settings): string[] {
  const paths = new Set([...(from?.files ?? []), ...to.files].map(({ path }) => path));
  const of = (settings: Settings | null, path: string) =>
    settings?.files.find((file) => file.path === path)?.text ?? "";
  return [...paths].flatMap((path) => {
    const lines = unified(of(from, path), of(to, path));
    return lines.length > 0 ? [`--- ${path}`, ...lines] : [];
  });
}
