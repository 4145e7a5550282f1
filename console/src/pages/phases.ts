// Where a slow request has spent its time, out of what the server tells of its phases, or of the applications that
// were asked. Pure.

import { duration } from "../format";
import type { Phase } from "../parts/meter";
import type { Slow } from "../report";

/** The phases in their order; together they are as long as it took. */
export function phasesOf(row: Slow): Phase[] {
  const phases = toldOf(row) ?? triesOf(row);
  const told = phases.reduce((sum, { seconds }) => sum + seconds, 0);
  const rest: Phase = { name: "in the server", kind: "wait", seconds: Math.max(0, row.took - told) };
  return [rest, ...phases].filter(({ seconds }) => seconds > 0);
}

/** What the server tells of the phases; nothing where it does not. */
function toldOf({ queue, connect, application, sending }: Slow): Phase[] | null {
  if (queue === undefined && connect === undefined && application === undefined && sending === undefined) return null;
  return [
    { name: "waiting for a place", kind: "queue", seconds: queue ?? 0 },
    { name: "connecting", kind: "connect", seconds: connect ?? 0 },
    { name: "until the application answered", kind: "application", seconds: application ?? 0 },
    { name: "sending", kind: "answer", seconds: sending ?? 0 },
  ];
}

/** What it tells of each application that was asked. */
function triesOf({ upstreams = [] }: Slow): Phase[] {
  const phases: Phase[] = [];
  for (const { address, connected, first_byte, complete } of upstreams) {
    const answered = first_byte ?? connected ?? 0;
    phases.push(
      { name: `connecting to ${address}`, kind: "connect", seconds: connected ?? 0 },
      { name: `until ${address} answered`, kind: "application", seconds: Math.max(0, answered - (connected ?? 0)) },
      { name: `the answer of ${address}`, kind: "answer", seconds: Math.max(0, (complete ?? answered) - answered) },
    );
  }
  return phases;
}

/** For who does not see the bars. */
export function phasesText(phases: Phase[]): string {
  return phases.map(({ name, seconds }) => `${duration(seconds)} ${name}`).join(", ");
}
