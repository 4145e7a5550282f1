// Where in the console one is, as the part of the address behind `#`: a page, and what is chosen on it. Pure but for
// the signal at the end.

import { signal } from "@preact/signals";

export const PAGES = [
  "overview",
  "sites",
  "requests",
  "slow",
  "pools",
  "caches",
  "limits",
  "certificates",
  "tail",
  "settings",
  "explain",
] as const;
export type Page = (typeof PAGES)[number];

export const RANGES = ["10m", "6h", "14d", "days"] as const;
export type Range = (typeof RANGES)[number];

export interface Place {
  page: Page;
  range: Range;
  /** A moment that is looked at, seconds since 1970. */
  at: number | null;
  /** A part of the range, seconds since 1970; both or none. */
  from: number | null;
  until: number | null;
  filter: string;
  sort: string;
}

const has = <T extends string>(all: readonly T[], text: string | null | undefined): text is T =>
  all.some((known) => known === text);

/** How far back the ranges go, seconds. */
export const REACH: Record<Range, number> = { "10m": 600, "6h": 21_600, "14d": 1_209_600, days: Infinity };

/** The range that still has a moment: the one that was asked for, or one that goes back further. */
export function reaching(place: Place, now = Date.now() / 1000): Place {
  const first = place.from ?? place.at;
  if (first === null) return place;
  const wide = RANGES.filter((range) => RANGES.indexOf(range) >= RANGES.indexOf(place.range));
  return { ...place, range: wide.find((range) => now - first < REACH[range]) ?? "days" };
}

/** Reads `#/sites?range=6h&filter=shop`; whatever means nothing is passed over. */
export function parse(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const asked = new URLSearchParams(query);
  const range = asked.get("range");
  const moment = (name: string) => {
    const number = Number(asked.get(name));
    return Number.isSafeInteger(number) && number > 0 ? number : null;
  };
  const [from, until] = [moment("from"), moment("until")];
  const isPart = from !== null && until !== null && from < until;
  return {
    page: has(PAGES, path) ? path : "overview",
    range: has(RANGES, range) ? range : "10m",
    at: moment("at"),
    from: isPart ? from : null,
    until: isPart ? until : null,
    filter: asked.get("filter") ?? "",
    sort: asked.get("sort") ?? "",
  };
}

/** The other way; what is as it is anyway is left out. */
export function format(place: Place): string {
  const asked = new URLSearchParams();
  if (place.range !== "10m") asked.set("range", place.range);
  if (place.at !== null) asked.set("at", String(place.at));
  if (place.from !== null) asked.set("from", String(place.from));
  if (place.until !== null) asked.set("until", String(place.until));
  if (place.filter) asked.set("filter", place.filter);
  if (place.sort) asked.set("sort", place.sort);
  const query = asked.toString();
  return `#/${place.page}${query ? `?${query}` : ""}`;
}

export const place = signal<Place>(reaching(parse(globalThis.location?.hash ?? "")));

/** Changes a part of it, without a step of its own in the history of the browser. */
export function go(changes: Partial<Place>): void {
  place.value = { ...place.value, ...changes };
  history.replaceState(null, "", format(place.value));
}

globalThis.addEventListener?.("hashchange", () => {
  place.value = reaching(parse(location.hash));
});
