// The admin API of the server, where it has one: who one is there, what one may do, and how it is asked. Each change
// carries the token of the session, which pages of other sites cannot read.

import { signal } from "@preact/signals";
import { Unanswered } from "./api";
import type { Page } from "./route";

/** What somebody may do: look, steer what runs, change settings. */
export type Right = "view" | "operate" | "settings";

export interface Session {
  user: string;
  may: Right[];
  csrf: string;
}

/** A mistake in settings; lines and columns from 1, columns in characters; without a place where no text is to blame. */
export interface Diagnostic {
  severity: "error" | "warning" | "notice";
  file: string | null;
  line: number | null;
  column: number | null;
  end_line?: number | null;
  end_column?: number | null;
  message: string;
  help?: string | null;
}

/** Why the API did not do it, in its own sentence (RFC 9457). */
export class Problem extends Unanswered {
  readonly diagnostics: Diagnostic[];
  constructor(status: number, sentence: string, diagnostics: Diagnostic[] = []) {
    super(status, sentence);
    this.diagnostics = diagnostics;
  }
}

/** Who one is; `null` where there is no API, or one is not let in, or that is not known yet. */
export const session = signal<Session | null>(null);
/** Whether the question for it has been answered. */
export const isSessionKnown = signal(false);

export const may = (right: Right): boolean => session.value?.may.includes(right) ?? false;

/** What a page wants that is more than the figures. */
const WANTED: Partial<Record<Page, Right>> = { tail: "view", settings: "settings", explain: "view" };

/** Whether one may see a page. */
export const isOffered = (page: Page): boolean => {
  const right = WANTED[page];
  return right === undefined || may(right);
};

/** Asks who one is. A server without the API answers 404. */
export async function begin(): Promise<void> {
  try {
    const told = await call<Session>("GET", "session");
    // What is the same keeps the pages as they are.
    if (JSON.stringify(told) !== JSON.stringify(session.value)) session.value = told;
    isSessionKnown.value = true;
  } catch (error) {
    // A server that does not answer at all may have the API all the same.
    if (!(error instanceof Unanswered) || error.status === 0 || error.status >= 500) return;
    session.value = null;
    isSessionKnown.value = true;
  }
}

export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

export interface Asked {
  body?: unknown;
  /** What `If-Match` says. */
  etag?: string;
  /** Seconds until the question is given up. */
  patience?: number;
}

/** Asks `api/v1/NAME`; nothing comes of an answer without content. */
export async function call<T>(method: Method, name: string, asked: Asked = {}): Promise<T> {
  const answer = await send(method, name, asked);
  if (answer.status !== 403 || method === "GET") return read<T>(answer);
  // The token may be that of an admin process that has ended since. What was refused has not been done.
  const refusal = await problem(answer);
  const had = session.value?.csrf;
  await begin();
  if (!session.value || session.value.csrf === had) throw refusal;
  return read<T>(await send(method, name, asked));
}

async function send(method: Method, name: string, { body, etag, patience = 15 }: Asked): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (method !== "GET") {
    headers["Content-Type"] = "application/json";
    headers["X-Tidegate-CSRF"] = session.value?.csrf ?? "";
  }
  if (etag !== undefined) headers["If-Match"] = etag;
  try {
    return await fetch(`api/v1/${name}`, {
      method,
      headers,
      body: method === "GET" ? null : JSON.stringify(body ?? {}),
      cache: "no-store",
      signal: AbortSignal.timeout(patience * 1000),
    });
  } catch {
    throw new Problem(0, "The server does not answer.");
  }
}

async function read<T>(answer: Response): Promise<T> {
  if (!answer.ok) throw await problem(answer);
  let text: string;
  try {
    text = await answer.text();
  } catch {
    throw new Problem(0, "The answer of the server broke off.");
  }
  if (!text) return undefined as T;
  try {
    return JSON.parse(text) as T;
  } catch {
    throw new Problem(answer.status, "The server has answered with something that is no JSON.");
  }
}

/** What a refusal says; its own sentence where it has one. */
async function problem(answer: Response): Promise<Problem> {
  const { status } = answer;
  try {
    const told = (await answer.json()) as { detail?: string; title?: string; diagnostics?: Diagnostic[] };
    return new Problem(status, told.detail ?? told.title ?? `The server answers with ${status}.`, told.diagnostics);
  } catch {
    return new Problem(status, `The server answers with ${status}.`);
  }
}

/** Of whatever was thrown, the sentence. */
export const sentence = (error: unknown): string => (error instanceof Error ? error.message : String(error));
