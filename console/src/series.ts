// Points over time, in columns as graphs want them: a fixed number of them, oldest first. Pure.

import type { HistoryReport, Mark } from "./report";
import type { Point } from "./sample";

/** Columns of the same length; `null` where nothing is known. */
export interface Series {
  /** Seconds since 1970. */
  times: number[];
  columns: Record<string, (number | null)[]>;
  marks: Mark[];
}

export const EMPTY: Series = { times: [], columns: {}, marks: [] };

/** Appends a point and forgets the oldest beyond `most`. A point that is no later than the last is dropped. */
export function append(series: Series, at: number, point: Point | null, most: number): Series {
  const last = series.times.at(-1);
  if (last !== undefined && at <= last) return series;
  const names = new Set([...Object.keys(series.columns), ...Object.keys(point ?? {})]);
  const length = series.times.length;
  const from = Math.max(0, length + 1 - most);
  const times = [...series.times.slice(from), at];
  const columns: Series["columns"] = {};
  for (const name of names) {
    const column = series.columns[name] ?? new Array<number | null>(length).fill(null);
    columns[name] = [...column.slice(from), point?.[name] ?? null];
  }
  const first = times[0] ?? at;
  return { times, columns, marks: series.marks.filter((mark) => mark.at >= first) };
}

/** What the server remembers. */
export function fromHistory(history: HistoryReport): Series {
  const columns = history.series ?? {};
  const length = Math.max(0, ...Object.values(columns).map((column) => column.length));
  const step = history.resolution > 0 ? history.resolution : 1;
  // The last point is the newest: where fewer came than were asked for, the beginning is what is missing.
  const times = Array.from({ length }, (_, index) => history.until - (length - 1 - index) * step);
  return { times, columns, marks: history.marks ?? [] };
}

/** What happened when the revision of the settings is another one than before. */
export function marked(series: Series, at: number, what: string): Series {
  return { ...series, marks: [...series.marks, { at, what }] };
}

/** The place of the time nearest to `at`; -1 where there is none. */
export function nearest(times: number[], at: number): number {
  let best = -1;
  for (const [index, time] of times.entries()) {
    if (best < 0 || Math.abs(time - at) < Math.abs((times[best] ?? 0) - at)) best = index;
  }
  return best;
}
