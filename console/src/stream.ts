// Events that the server sends (https://html.spec.whatwg.org/#server-sent-events), over connections that may break off:
// it is asked again, more seldom the longer it does not answer.

import { Unanswered } from "./api";

export interface Event {
  name: string;
  data: string;
}

/** Characters of a line or an event, at most; what is longer is left out. */
const MOST = 256 * 1024;

/** Puts events together out of pieces of text. */
export class Events {
  private rest = "";
  private name = "";
  private data: string[] = [];
  private isTooLong = false;

  /** The events that end in this piece. */
  feed(piece: string): Event[] {
    const lines = (this.rest + piece).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    if (this.rest.length > MOST) [this.rest, this.isTooLong] = ["", true];
    return lines.flatMap((line) => this.line(line));
  }

  private line(line: string): Event[] {
    if (line === "") {
      const event = { name: this.name || "message", data: this.data.join("\n") };
      const isWhole = this.data.length > 0 && !this.isTooLong;
      [this.name, this.data, this.isTooLong] = ["", [], false];
      return isWhole ? [event] : [];
    }
    const [, field, value = ""] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
    if (field === "event") this.name = value;
    if (field === "data") this.data.push(value);
    if (this.data.length > 1000) this.isTooLong = true;
    return [];
  }
}

/** What becomes of a stream. */
export interface Listener {
  event(event: Event): void;
  /** Events come. */
  opened(): void;
  /** None come, for the time being; why, as a sentence. */
  broken(why: string): void;
}

/** Milliseconds until the server is asked again, at first and at most. */
const [FIRST, LAST] = [500, 8000];

/** Listens to `api/v1/NAME` until what it returns is called. */
export function listen(name: string, listener: Listener): () => void {
  const end = new AbortController();
  void follow(name, listener, end.signal);
  return () => end.abort();
}

async function follow(name: string, listener: Listener, signal: AbortSignal): Promise<void> {
  let pause = FIRST;
  while (!signal.aborted) {
    try {
      await once(name, listener, signal, () => (pause = FIRST));
      listener.broken("The stream has ended.");
    } catch (error) {
      if (signal.aborted) return;
      listener.broken(error instanceof Unanswered ? error.message : "The server does not answer.");
    }
    await rest(pause, signal);
    pause = Math.min(LAST, pause * 2);
  }
}

async function once(name: string, listener: Listener, signal: AbortSignal, opened: () => void): Promise<void> {
  const answer = await fetch(`api/v1/${name}`, { headers: { Accept: "text/event-stream" }, cache: "no-store", signal });
  if (!answer.ok || !answer.body) throw new Unanswered(answer.status, await why(answer));
  listener.opened();
  opened();
  const events = new Events();
  const [reader, decoder] = [answer.body.getReader(), new TextDecoder()];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    for (const event of events.feed(decoder.decode(value, { stream: true }))) listener.event(event);
  }
}

async function why(answer: Response): Promise<string> {
  const told = (await answer.json().catch(() => null)) as { detail?: string } | null;
  return told?.detail ?? `The server answers with ${answer.status}.`;
}

function rest(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((wake) => {
    const timer = setTimeout(wake, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      wake();
    });
  });
}
