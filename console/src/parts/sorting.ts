// Rows in order, and those that a filter leaves. Pure.

/** What a cell is sorted by. */
export type Key = string | number | null | undefined;

/** `-p99`: by a column, the largest first; `p99`: the smallest first. */
export function sorted<Row>(rows: readonly Row[], key: (row: Row) => Key, isDescending: boolean): Row[] {
  const sign = isDescending ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    // What has no value stands last, whatever the order.
    if (a == null || b == null) return Number(a == null) - Number(b == null);
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b));
  });
}

/** The rows of which some text has every word of the filter, whatever its case. */
export function filtered<Row>(rows: readonly Row[], texts: (row: Row) => string[], filter: string): Row[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [...rows];
  return rows.filter((row) => {
    const all = texts(row).join("\n").toLowerCase();
    return words.every((word) => all.includes(word));
  });
}
