// Where a slow request has spent its time, out of what the server tells of the applications that were asked. Pure.

import { duration } from "../format";
import type { Phase } from "../parts/meter";
import type { Slow } from "../report";

/** The phases in their order; together they are as long as it took. */
export function phasesOf({ took, upstreams = [] }: Slow): Phase[] {
  const phases: Phase[] = [];
  for (const { address, connected, first_byte, complete } of upstreams) {
    const answered = first_byte ?? connected ?? 0;
    phases.push(
      { name: `connecting to ${address}`, kind: "connect", seconds: connected ?? 0 },
      { name: `until ${address} answered`, kind: "application", seconds: Math.max(0, answered - (connected ?? 0)) },
      { name: `the answer of ${address}`, kind: "answer", seconds: Math.max(0, (complete ?? answered) - answered) },
    );
  }
  const told = phases.reduce((sum, { seconds }) => sum + seconds, 0);
  const rest = Math.max(0, took - told);
  const name = upstreams.length > 0 ? "in the server, queues included" : "in the server, and sending";
  return [{ name, kind: "wait" as const, seconds: rest }, ...phases].filter(({ seconds }) => seconds > 0);
}

/** For who does not see the bars. */
export function phasesText(phases: Phase[]): string {
  return phases.map(({ name, seconds }) => `${duration(seconds)} ${name}`).join(", ");
}
