// Where in the console one is, as the part of the address behind `#`: a page, and what is chosen on it. Pure but for
// the signal at the end.

import { signal } from "@preact/signals";

export const PAGES = [
  "overview",
  "sites",
  "requests",
  "slow",
  "pools",
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
  filter: string;
  sort: string;
}

const has = <T extends string>(all: readonly T[], text: string | null | undefined): text is T =>
  all.some((known) => known === text);

/** Reads `#/sites?range=6h&filter=shop`; whatever means nothing is passed over. */
export function parse(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const asked = new URLSearchParams(query);
  const [range, at] = [asked.get("range"), Number(asked.get("at"))];
  return {
    page: has(PAGES, path) ? path : "overview",
    range: has(RANGES, range) ? range : "10m",
    at: Number.isSafeInteger(at) && at > 0 ? at : null,
    filter: asked.get("filter") ?? "",
    sort: asked.get("sort") ?? "",
  };
}

/** The other way; what is as it is anyway is left out. */
export function format(place: Place): string {
  const asked = new URLSearchParams();
  if (place.range !== "10m") asked.set("range", place.range);
  if (place.at !== null) asked.set("at", String(place.at));
  if (place.filter) asked.set("filter", place.filter);
  if (place.sort) asked.set("sort", place.sort);
  const query = asked.toString();
  return `#/${place.page}${query ? `?${query}` : ""}`;
}

export const place = signal<Place>(parse(globalThis.location?.hash ?? ""));

/** Changes a part of it, without a step of its own in the history of the browser. */
export function go(changes: Partial<Place>): void {
  place.value = { ...place.value, ...changes };
  history.replaceState(null, "", format(place.value));
}

globalThis.addEventListener?.("hashchange", () => {
  place.value = parse(location.hash);
});
