// What a change would do, before it is done.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type Diagnostic, sentence } from "../admin";
import { outcome } from "../parts/confirm";
import { Difference } from "./difference";
import { CONFIRM_WITHIN, type Checked, apply, check, checkTrouble, mistakes, said } from "./state";

export function Review({ back, overtaken }: { back: () => void; overtaken: () => void }) {
  const isConfirmed = useSignal(true);
  const isBusy = useSignal(false);
  const trouble = useSignal<string | null>(null);
  const refused = useSignal<Diagnostic[]>([]);
  useEffect(() => void check(), []);
  const run = async () => {
    [isBusy.value, trouble.value, refused.value] = [true, null, []];
    try {
      const came = await apply(isConfirmed.value);
      if (came.kind === "overtaken") return overtaken();
      if (came.kind === "wrong") {
        [trouble.value, refused.value] = [came.why.message, came.why.diagnostics];
      } else {
        outcome.value = [`Revision ${came.applied.revision} is in force.`, ...came.applied.notes].join(" ");
        back();
      }
    } catch (error) {
      trouble.value = sentence(error);
    } finally {
      isBusy.value = false;
    }
  };
  const told = said.value;
  return (
    <section aria-labelledby="review">
      <h2 id="review">What changes</h2>
      {told ? <Changes {...told} /> : <p class="empty">{checkTrouble.value ?? "Asking the server …"}</p>}
      {told && <Difference lines={told.diff.split("\n")} label="The difference" />}
      <div role="alert">
        {trouble.value && <p class="trouble">{trouble.value}</p>}
        <ul>
          {refused.value.map((told, index) => (
            <li key={index}>
              <code>{placeOf(told)}</code> {told.message} {told.help}
            </li>
          ))}
        </ul>
      </div>
      <p>
        <label>
          <input
            type="checkbox"
            checked={isConfirmed.value}
            onChange={(event) => (isConfirmed.value = event.currentTarget.checked)}
          />{" "}
          Undo it unless I keep it within {CONFIRM_WITHIN} seconds
        </label>
      </p>
      <p class="actions">
        <button
          type="button"
          class="main"
          disabled={isBusy.value || !told || mistakes.value.length > 0}
          onClick={() => void run()}
        >
          {isBusy.value ? "Applying …" : "Apply it"}
        </button>
        <button type="button" onClick={back}>
          Back to the texts
        </button>
      </p>
    </section>
  );
}

/** `FILE:LINE:COLUMN`; nothing where no text is to blame. */
const placeOf = ({ file, line, column }: Diagnostic) => (file === null ? "" : `${file}:${line}:${column}`);

/** How many sites are named one by one. */
const NAMED = 40;

function Changes({ changes, diagnostics }: Checked) {
  const { sites, server, needs_new_processes } = changes;
  const rest = sites.length - NAMED;
  const warnings = diagnostics.filter(({ severity }) => severity !== "error");
  return (
    <>
      <ul class="changes">
        {sites.slice(0, NAMED).map(({ name, what }) => (
          <li key={`${what} ${name}`}>
            <span class={`state ${what}`}>{what}</span> site <code>{name}</code>
          </li>
        ))}
        {rest > 0 && <li>{rest} more sites</li>}
        {server && <li>Settings of the whole server change.</li>}
        {needs_new_processes && (
          <li>New server processes take over; requests under way are finished by the old ones.</li>
        )}
        {sites.length === 0 && !server && <li>Nothing that is served changes: comments and layout alone.</li>}
      </ul>
      {warnings.map((told, index) => (
        <p class="note" key={index}>
          {placeOf(told)} {told.message}
        </p>
      ))}
    </>
  );
}
