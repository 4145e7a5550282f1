// Bars: a level before its limit, a share of all, and the phases of a request.

import type { ComponentChildren } from "preact";
import { percent } from "../format";

/** A share from 0 to 1. */
export function Share({ of, text }: { of: number | null; text?: string }) {
  const width = Math.min(100, Math.max(0, (of ?? 0) * 100));
  return (
    <span class="share">
      <span class="bar" aria-hidden="true">
        <span style={{ width: `${width}%` }} />
      </span>
      <span>{text ?? percent(of)}</span>
    </span>
  );
}

export interface Phase {
  name: string;
  /** Decides the colour. */
  kind: "wait" | "queue" | "connect" | "application" | "answer";
  seconds: number;
}

/** The phases of a request, one behind the other, as wide as they took of `whole`. */
export function Phases({ phases, whole, label }: { phases: Phase[]; whole: number; label: string }) {
  return (
    <span class="phases" role="img" aria-label={label} title={label}>
      {phases
        .filter(({ seconds }) => seconds > 0)
        .map(({ name, kind, seconds }, index) => (
          <span
            key={`${index} ${name}`}
            class={kind}
            style={{ width: `${whole > 0 ? (seconds / whole) * 100 : 0}%` }}
          />
        ))}
    </span>
  );
}

/** A status code; failures of the server stand out. */
export function Status({ of }: { of: number }) {
  return of >= 500 ? <span class="bad">{of}</span> : <span>{of}</span>;
}

/** A figure with its name. */
export function Tile({
  name,
  value,
  note,
  isBad,
}: {
  name: string;
  value: ComponentChildren;
  note?: string;
  isBad?: boolean;
}) {
  return (
    <div class={isBad ? "tile bad" : "tile"}>
      <dt>{name}</dt>
      <dd>
        <strong>{value}</strong> {note && <span>{note}</span>}
      </dd>
    </div>
  );
}
