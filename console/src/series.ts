// Points over time, in columns as graphs want them: a fixed number of them, oldest first. Pure.

import type { DaysReport, HistoryReport, Mark } from "./report";
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

/** Without the columns that nothing is known of any more. */
export function pruned({ times, columns, marks }: Series): Series {
  const known = Object.entries(columns).filter(([, column]) => column.some((value) => value !== null));
  return { times, columns: Object.fromEntries(known), marks };
}

/** What is between two moments, both included. */
export function within({ times, columns, marks }: Series, from: number, until: number): Series {
  const start = times.findIndex((time) => time >= from);
  const later = times.findIndex((time) => time > until);
  const [first, end] = [start < 0 ? times.length : start, later < 0 ? times.length : later];
  const cut = Object.entries(columns).map(([name, column]) => [name, column.slice(first, end)] as const);
  return {
    times: times.slice(first, end),
    columns: Object.fromEntries(cut),
    marks: marks.filter(({ at }) => at >= from && at <= until),
  };
}

/** What the server remembers, and behind it what has been seen here since; the last `most` points. */
export function joined(told: Series, seen: Series, most: number): Series {
  const last = told.times.at(-1) ?? 0;
  const first = seen.times.findIndex((time) => time > last);
  if (first < 0) return told;
  const added = seen.times.slice(first);
  const unknown = (length: number) => new Array<number | null>(length).fill(null);
  const columns: Series["columns"] = {};
  for (const name of new Set([...Object.keys(told.columns), ...Object.keys(seen.columns)])) {
    const [before, after] = [told.columns[name], seen.columns[name]?.slice(first)];
    columns[name] = [...(before ?? unknown(told.times.length)), ...(after ?? unknown(added.length))].slice(-most);
  }
  const marks = [...told.marks, ...seen.marks.filter(({ at }) => at > last)];
  return { times: [...told.times, ...added].slice(-most), columns, marks };
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

const DAY = 86_400;

/** Totals of days as rates, so that they are read as the others are. */
export function fromDays({ days }: DaysReport): Series {
  const columns: Series["columns"] = {};
  for (const name of ["requests", "received_bytes", "sent_bytes", "refused"] as const) {
    columns[name] = days.map((day) => day[name] / DAY);
  }
  for (const name of ["1xx", "2xx", "3xx", "4xx", "5xx"]) {
    columns[`responses_${name}`] = days.map(({ responses }) => (responses[name] ?? 0) / DAY);
  }
  return { times: days.map(({ day }) => Date.parse(`${day}T12:00:00Z`) / 1000), columns, marks: [] };
}

/** With a mark where something has happened. */
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
