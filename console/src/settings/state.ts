// The settings that are edited: the texts that the server has, one's own, and what the server says of those. What is not
// applied yet is kept by the browser for as long as its tab is open.

import { computed, effect, signal } from "@preact/signals";
import { type Diagnostic, Problem, call, sentence } from "../admin";

export interface File {
  path: string;
  text: string;
  is_main?: boolean;
}

/** The files of a revision. */
export interface Settings {
  etag: string;
  revision: number;
  files: File[];
}

/** What the server says of texts. */
export interface Checked {
  diagnostics: Diagnostic[];
  diff: string;
  changes: {
    sites: { name: string; what: "added" | "removed" | "changed" }[];
    server: boolean;
    needs_new_processes: boolean;
  };
}

/** A revision that is in force for now, and the one that comes back unless somebody keeps it. */
export interface Pending {
  revision: number;
  /** What it took the place of. */
  before: number;
  /** Milliseconds since 1970, by the clock of this machine. */
  until: number;
  /** The texts that were applied, which are one's own again where they come undone. */
  files: File[];
}

export interface Applied {
  revision: number;
  etag: string;
  notes: string[];
  confirm_by: string | null;
}

/** Seconds that a change has to be confirmed in. */
export const CONFIRM_WITHIN = 60;
/** Milliseconds without a key until the server is asked what it thinks. */
const REST = 400;

/** What one's own texts began with. */
export const base = signal<Settings | null>(null);
/** One's own texts, where they differ from those. */
export const own = signal<Record<string, string>>({});
/** What is on the server's disk, where that is something else than one has begun with. */
export const newer = signal<Settings | null>(null);
export const checked = signal<{ key: string; said: Checked } | null>(null);
/** Why the server could not be asked what it thinks. */
export const checkTrouble = signal<string | null>(null);
export const pending = signal<Pending | null>(null);
/** Why the browser does not keep what has not been applied. */
export const keepTrouble = signal<string | null>(null);

export const texts = computed<File[]>(
  () => base.value?.files.map((file) => ({ ...file, text: own.value[file.path] ?? file.text })) ?? [],
);
export const isChanged = computed(() => Object.keys(own.value).length > 0);

/** Which texts an answer was about. */
const keyOf = (files: readonly File[]) => JSON.stringify(files.map(({ path, text }) => [path, text]));
const key = computed(() => keyOf(texts.value));

/** What the server says of these very texts; `null` until it has. */
export const said = computed<Checked | null>(() => (checked.value?.key === key.value ? checked.value.said : null));
export const mistakes = computed(() => said.value?.diagnostics.filter(({ severity }) => severity === "error") ?? []);

/** Writes one's own text of a file. */
export function write(path: string, text: string): void {
  const had = base.value?.files.find((file) => file.path === path)?.text;
  const { [path]: _, ...others } = own.value;
  own.value = text === had ? others : { ...others, [path]: text };
}

/** Forgets one's own texts. */
export function discard(): void {
  own.value = {};
  if (newer.value) [base.value, newer.value] = [newer.value, null];
}

/** Asks for the settings of the server. One's own texts stay what they are. */
export async function load(): Promise<void> {
  const told = await call<Settings>("GET", "settings");
  const had = base.value;
  if (!had || !isChanged.value || had.etag === told.etag) {
    if (had?.etag !== told.etag || had.revision !== told.revision) base.value = told;
    newer.value = null;
  } else {
    newer.value = told;
  }
}

/** One's own texts go on from what the server has now. */
export function rebase(files: readonly File[]): void {
  const now = newer.value;
  if (!now) return;
  [base.value, newer.value] = [now, null];
  own.value = {};
  for (const { path, text } of files) write(path, text);
}

/** What an answer leaves out, such as the difference of texts with mistakes. */
const NOTHING: Checked = {
  diagnostics: [],
  diff: "",
  changes: { sites: [], server: false, needs_new_processes: false },
};

/** Asks what the server thinks of the texts; the answer is `said`. */
export async function check(): Promise<void> {
  const files = texts.value.map(({ path, text }) => ({ path, text }));
  const asked = keyOf(files);
  if (said.value && !checkTrouble.value) return;
  try {
    const answer = await call<Partial<Checked>>("POST", "settings/check", { body: { files } });
    if (asked !== key.value) return;
    checkTrouble.value = null;
    checked.value = { key: asked, said: { ...NOTHING, ...answer, diff: answer.diff ?? "" } };
  } catch (error) {
    if (asked === key.value) checkTrouble.value = sentence(error);
  }
}

/** Asks what the server thinks whenever the texts have rested; ends with what it returns. */
export function keepChecking(): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const end = effect(() => {
    void key.value;
    clearTimeout(timer);
    if (base.value) timer = setTimeout(() => void check(), REST);
  });
  return () => {
    clearTimeout(timer);
    end();
  };
}

/** How an attempt has ended, beside success and other problems. */
export type Outcome = { kind: "applied"; applied: Applied } | { kind: "overtaken" } | { kind: "wrong"; why: Problem };

/** Applies one's own texts; they come undone unless they are confirmed where that is wanted. */
export async function apply(isConfirmed: boolean): Promise<Outcome> {
  const [had, files] = [base.value, texts.value];
  if (!had) throw new Problem(0, "There are no settings to apply.");
  const body = {
    files: files.map(({ path, text }) => ({ path, text })),
    ...(isConfirmed && { confirm_within: CONFIRM_WITHIN }),
  };
  const ask = () => call<Applied>("PUT", "settings", { body, etag: had.etag, patience: 60 });
  const outcome = await attempt(ask, had, files, isConfirmed);
  if (outcome.kind !== "applied") return outcome;
  // What was written while the answer was on its way is still one's own.
  base.value = { etag: outcome.applied.etag, revision: outcome.applied.revision, files };
  newer.value = null;
  const now = own.value;
  own.value = {};
  for (const { path, text } of files) write(path, now[path] ?? text);
  return outcome;
}

/** Goes back to a revision. */
export async function restore(revision: number, isConfirmed: boolean): Promise<Outcome> {
  const had = newer.value ?? base.value;
  if (!had) throw new Problem(0, "The settings in force are not known.");
  const body = isConfirmed ? { confirm_within: CONFIRM_WITHIN } : {};
  const ask = () => call<Applied>("POST", `revisions/${revision}/restore`, { body, etag: had.etag, patience: 60 });
  // Whoever undoes it has their own texts as they are now.
  const outcome = await attempt(ask, had, isChanged.value ? texts.value : [], isConfirmed);
  await load();
  return outcome;
}

const waiting = (revision: number, had: Settings, files: File[]): Pending => ({
  revision,
  before: had.revision,
  until: Date.now() + CONFIRM_WITHIN * 1000,
  files,
});

/** Has it done; `files` are what is one's own again where it comes undone. */
async function attempt(
  ask: () => Promise<Applied>,
  had: Settings,
  files: File[],
  isConfirmed: boolean,
): Promise<Outcome> {
  try {
    const applied = { ...(await ask()) };
    applied.notes ??= [];
    if (applied.confirm_by) {
      // The clocks may differ: what counts is when the answer came.
      pending.value = waiting(applied.revision, had, files);
    }
    return { kind: "applied", applied };
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.status === 412) {
      await load();
      return { kind: "overtaken" };
    }
    if (error.status === 422) return { kind: "wrong", why: error };
    if (error.status === 0) return unanswered(error, had, files, isConfirmed);
    throw error;
  }
}

/** The answer broke off: whether it was done is seen by what the server has. */
async function unanswered(error: Problem, had: Settings, files: File[], isConfirmed: boolean): Promise<Outcome> {
  const now = await call<Settings>("GET", "settings").catch(() => null);
  if (!now) {
    throw new Problem(
      0,
      "The answer broke off, and the server does not say whether the settings were applied. Nothing of yours is lost.",
    );
  }
  if (now.etag === had.etag) throw new Problem(0, `${error.message} Nothing was applied.`);
  if (keyOf(now.files) !== keyOf(files)) {
    newer.value = now;
    return { kind: "overtaken" };
  }
  const { revision, etag } = now;
  if (isConfirmed) pending.value = waiting(revision, had, files);
  return { kind: "applied", applied: { revision, etag, notes: ["The answer broke off."], confirm_by: null } };
}

/** Keeps the revision that is in force for now. */
export async function confirm(): Promise<void> {
  const had = pending.value;
  if (!had) return;
  await call("POST", "settings/confirm", { body: { revision: had.revision } });
  pending.value = null;
}

/** Nobody has confirmed in time: the old settings are back, and what was applied is one's own text again. */
export async function expired(): Promise<void> {
  const had = pending.value;
  pending.value = null;
  await load();
  for (const { path, text } of had?.files ?? []) write(path, text);
}

/** Goes back to what was in force before the change that waits; what was applied is one's own text again. */
export async function undo(waiting: Pending): Promise<Outcome> {
  if (!base.value) await load();
  const outcome = await restore(waiting.before, false);
  if (outcome.kind !== "applied") return outcome;
  pending.value = null;
  for (const { path, text } of waiting.files) write(path, text);
  return outcome;
}

const DRAFT = "tidegate settings";
const PENDING = "tidegate pending";

/** Takes up what the browser has kept, and keeps from now on what is not applied. */
export function remember(): () => void {
  recall();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const store = () => {
    try {
      if (base.value && isChanged.value) sessionStorage.setItem(DRAFT, JSON.stringify([base.value, own.value]));
      else sessionStorage.removeItem(DRAFT);
      keepTrouble.value = null;
    } catch {
      keepTrouble.value = "These texts are too large for the browser to keep: they are lost when this page is left.";
    }
  };
  const ends = [
    effect(() => {
      void [base.value, own.value];
      clearTimeout(timer);
      timer = setTimeout(store, 150);
    }),
    effect(() => {
      try {
        if (pending.value) sessionStorage.setItem(PENDING, JSON.stringify(pending.value));
        else sessionStorage.removeItem(PENDING);
      } catch {
        // Too large to keep: only a reload of the page loses sight of it.
      }
    }),
  ];
  addEventListener("pagehide", store);
  return () => {
    for (const end of ends) end();
    removeEventListener("pagehide", store);
  };
}

function recall(): void {
  try {
    const [had, mine] = JSON.parse(sessionStorage.getItem(DRAFT) ?? "[]") as [Settings?, Record<string, string>?];
    if (had?.files && mine && !base.value) [base.value, own.value] = [had, mine];
    const waiting = JSON.parse(sessionStorage.getItem(PENDING) ?? "null") as Pending | null;
    if (waiting && waiting.until > Date.now()) pending.value = waiting;
  } catch {
    // What cannot be read was not written by this version.
  }
}
