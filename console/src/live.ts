// What the pages show, and the one loop that keeps it up to date: one question under way at a time, none while
// nobody looks.

import { computed, effect, signal } from "@preact/signals";
import { begin, isSessionKnown } from "./admin";
import { Unanswered, ask } from "./api";
import { type Column, columnOf } from "./heat";
import type { DaysReport, HistoryReport, Report, SlowReport, UnderwayReport } from "./report";
import { type Page, type Range, place } from "./route";
import { type Point, changes, point, processPoint } from "./sample";
import { EMPTY, type Series, append, fromDays, fromHistory, joined, marked, pruned, within } from "./series";

/** Points that are kept of what is asked here: ten minutes. */
const KEPT = 600;
/** Two reports that are further apart make no point, seconds. */
const PAUSE = 5;
/** Milliseconds between two questions. */
const EVERY = 1000;
/** How long it waits at most: one answer that was late, as on a machine that was busy for a moment, is no reason to look away. */
const SELDOM = 5000;
/** How often the server is asked for what it remembers, seconds. */
const REMEMBERED_EVERY: Record<Range, number> = { "10m": 300, "6h": 10, "14d": 300, days: 3600 };
/** Pages that show sites, which make the report large, and how often they are asked for, seconds. */
const SITES_EVERY: Partial<Record<Page, number>> = { overview: 5, sites: 2 };

export const paused = signal(false);
export const trouble = signal<string | null>(null);
export const report = signal<Report | null>(null);
/** The last report that told of sites, the one before, and the seconds between the two. */
export const sites = signal<{ now: Report; before: Report | null; seconds: number } | null>(null);
export const underway = signal<UnderwayReport | null>(null);
export const slow = signal<SlowReport | null>(null);

/** The figures of the last second; whatever range the graphs have. */
export const latest = signal<Point | null>(null);

const watched = signal<Series>(EMPTY);
const remembered = signal<{ range: Range; series: Series } | null>(null);
/** Whether the server remembers at all; `null` before it has been asked. */
export const remembers = signal<boolean | null>(null);

/** How long requests took, for as long as the page is open. */
export const heat = signal<Column[]>([]);
/** Processor time and memory of each process, likewise. */
export const processes = signal<Series>(EMPTY);

/** What the graphs draw: the whole range, or the part of it that was chosen. */
export const series = computed<Series>(() => {
  const { from, until } = place.value;
  return from === null || until === null ? whole.value : within(whole.value, from, until);
});

const whole = computed<Series>(() => {
  const { range } = place.value;
  const told = remembered.value?.range === range ? remembered.value.series : null;
  if (range !== "10m") return told ?? EMPTY;
  return told ? joined(told, watched.value, KEPT) : watched.value;
});

let sitesTaken = Number.NEGATIVE_INFINITY;
let historyTaken = Number.NEGATIVE_INFINITY;
/** The server and its settings when it was asked who one is, and when that was. */
let introduced = "";
let introducedAt = 0;
/** Seconds until a question that was not answered is asked again. */
const REFUSED_FOR = 10;

/** Asks for what the page wants. */
async function round(): Promise<void> {
  const { page } = place.value;
  const started = performance.now() / 1000;
  const withSites = SITES_EVERY[page] !== undefined && started - sitesTaken >= (SITES_EVERY[page] ?? 0) - 0.1;
  // What another page was told less than a second ago will do: the server reads its figures once for all of them.
  const told = await ask<Report>(withSites ? "status?recent" : "status?sites=none&recent");
  if (withSites) {
    sitesTaken = started;
    learnSites(told);
  }
  learn(told);
  await introduce(told, started);
  if (page === "requests") underway.value = await ask<UnderwayReport>("requests");
  if (page === "slow") slow.value = await ask<SlowReport>("slow");
  await remember(started);
}

function learn(told: Report): void {
  const before = report.value;
  // The clock of the graphs is the server's, as it is in what the server remembers.
  const now = told.server.at;
  if (before) {
    const gap = now - before.server.at;
    // The one that there is, or one of a moment before: with sites and without are two reports.
    if (gap <= 0 && gap > -PAUSE) return;
    // After a pause the rates would be those of the pause; the server may know better.
    const made = gap < PAUSE ? point(before, told, gap) : null;
    if (gap >= PAUSE) historyTaken = Number.NEGATIVE_INFINITY;
    watched.value = append(watched.value, now, made, KEPT);
    if (made) {
      heat.value = [...heat.value, columnOf(before, told, now, gap)].slice(-KEPT);
      processes.value = pruned(append(processes.value, now, processPoint(before, told, gap), KEPT));
    }
    latest.value = made;
    for (const what of changes(before, told)) watched.value = marked(watched.value, now, what);
  }
  report.value = told;
}

function learnSites(told: Report): void {
  const last = sites.value?.now ?? null;
  const seconds = last ? told.server.at - last.server.at : 0;
  if (last && seconds === 0) return;
  sites.value = { now: told, before: last, seconds: Math.max(seconds, 0) };
}

/** Asks who one is to the server: at first, and again where it may be another server, or other settings. */
async function introduce(told: Report, now: number): Promise<void> {
  const { pid, revision } = told.server;
  const known = `${pid} ${revision}`;
  if (introduced === known && (isSessionKnown.value || now - introducedAt < REFUSED_FOR)) return;
  [introduced, introducedAt] = [known, now];
  await begin();
}

/** Asks for what the server remembers, where that is due. */
async function remember(now: number): Promise<void> {
  const { range } = place.value;
  const isDue = remembered.value?.range !== range || now - historyTaken >= REMEMBERED_EVERY[range];
  if (!isDue || (remembers.value === false && now - historyTaken < 60)) return;
  historyTaken = now;
  try {
    const told = await ask<HistoryReport | DaysReport>(`history?range=${range}`);
    remembered.value = { range, series: "days" in told ? fromDays(told) : fromHistory(told) };
    remembers.value = true;
  } catch (error) {
    // A server that does not remember is no trouble: what is seen here is drawn.
    if (!(error instanceof Unanswered) || error.status !== 404) throw error;
    remembers.value = false;
  }
}

/** Goes on for as long as the page is there. */
async function loop(): Promise<never> {
  for (;;) {
    const began = performance.now();
    if (!paused.value && !document.hidden) {
      try {
        await round();
        trouble.value = null;
      } catch (error) {
        trouble.value = error instanceof Error ? error.message : String(error);
      }
    }
    // A report that takes long, as one of very many sites does, is asked for less often.
    const took = performance.now() - began;
    await new Promise<void>((wake) => {
      wakeUp = wake;
      setTimeout(wake, Math.max(EVERY - took, Math.min(4 * took, SELDOM), 50));
    });
  }
}

let wakeUp: () => void = () => {};

/** Begins to ask. */
export function start(): void {
  document.addEventListener("visibilitychange", () => wakeUp());
  // Another page or range wants something else at once.
  effect(() => {
    void [place.value.page, place.value.range, paused.value];
    wakeUp();
  });
  void loop();
}
