// How many requests took how long, second by second: columns of a heat map, out of the histograms of two reports. Pure.

import type { Report } from "./report";
import { difference } from "./sample";

/** A step of the scale is half an octave: the upper end of row `n` is 2^(n / 2) seconds. */
const STEPS = 2;
/** From 2^-16 s (15 µs) to 2^8 s; what is beyond belongs to the last row. */
const [LOWEST, HIGHEST] = [-32, 16];

/** What ended between two reports. */
export interface Column {
  /** Seconds since 1970, and how many of them it is about. */
  at: number;
  seconds: number;
  /** Rows and how many requests a second, the fastest first. */
  rows: [row: number, rate: number][];
}

/** The row of a time in seconds. */
export function rowOf(seconds: number): number {
  if (!(seconds > 0)) return LOWEST;
  // Ends of buckets that are powers of two must not fall into the row above for want of precision.
  return Math.min(HIGHEST, Math.max(LOWEST, Math.ceil(Math.log2(seconds) * STEPS - 1e-6) || 0));
}

/** The upper end of a row, seconds. */
export const endOf = (row: number): number => 2 ** (row / STEPS);

/** The column of what came between two reports. */
export function columnOf(before: Report, after: Report, at: number, seconds: number): Column {
  const rows = new Map<number, number>();
  for (const [end, held] of difference(before.stats.latency, after.stats.latency)) {
    const row = rowOf(end);
    rows.set(row, (rows.get(row) ?? 0) + held / seconds);
  }
  return { at, seconds, rows: [...rows].sort(([one], [other]) => one - other) };
}

/** What is seen of it: the rows from the fastest to the slowest, and the densest cell. */
export function extentOf(columns: readonly Column[]): { low: number; high: number; most: number } | null {
  const rows = columns.flatMap((column) => column.rows);
  if (rows.length === 0) return null;
  const [low, high] = rows.reduce(
    ([low, high], [row]) => [Math.min(low, row), Math.max(high, row)],
    [Infinity, -Infinity],
  );
  // A few rows are no picture of their own.
  const missing = Math.max(0, 7 - (high - low));
  return {
    low: Math.max(LOWEST, low - Math.floor(missing / 2)),
    high: Math.min(HIGHEST, high + Math.ceil(missing / 2)),
    most: rows.reduce((most, [, rate]) => Math.max(most, rate), 0),
  };
}

/** Of a column: requests a second, and where most of them are. */
export function summaryOf({ rows }: Column): { rate: number; densest: number | null; slowest: number | null } {
  const rate = rows.reduce((sum, [, rate]) => sum + rate, 0);
  const densest = rows.reduce<[number, number] | null>(
    (most, cell) => (most && most[1] >= cell[1] ? most : cell),
    null,
  );
  return { rate, densest: densest?.[0] ?? null, slowest: rows.at(-1)?.[0] ?? null };
}
