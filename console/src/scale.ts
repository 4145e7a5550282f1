// How far a scale reaches. uPlot draws axes step by step: one whose end is no number, or whose beginning is no power of ten where
// steps are (0.000095 is followed by 0.00011, to which no further one is added), would have no end.

const finite = (value: number | null | undefined) => (Number.isFinite(value) ? (value as number) : 0);

/** Of times: from a tenth of a millisecond to a tenth of a second at least. */
export function decades(low: number | null, high: number | null): [number, number] {
  const lowest = Math.min(finite(low), 1e-4);
  // By its digits: a power that was computed may be one that is not quite.
  const decade = lowest > 1e-9 ? Number(`1e${Math.floor(Math.log10(lowest))}`) : 1e-4;
  return [decade, Math.max(finite(high), 0.1)];
}

/** Of anything else: from zero to a little above what there is, or to `top` at least. */
export function fromZero(high: number | null, top = 0): [number, number] {
  return [0, Math.max(top, finite(high) * 1.1) || 1];
}
