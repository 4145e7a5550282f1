// What would answer a request, and why: its way through the settings in force, as `tidegate explain` tells it.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call, sentence } from "../admin";
import { go } from "../route";
import type { Ended } from "./tail-rows";

interface Question {
  method: string;
  url: string;
  from: string;
  user: string;
}

const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

const question = signal<Question>({ method: "GET", url: "", from: "", user: "" });
const answer = signal<string | null>(null);
const trouble = signal<string | null>(null);
const isBusy = signal(false);
/** Set by another page: it is asked as soon as the page is there. */
let isWanted = false;

/** Leads to the page with the question of a request that has ended. */
export function explain({
  method = "GET",
  scheme = "http",
  host,
  site,
  target = "/",
  client = "",
}: Partial<Ended>): void {
  question.value = { method, url: `${scheme}://${host ?? site}${target}`, from: client, user: "" };
  isWanted = true;
  go({ page: "explain", filter: "", sort: "" });
}

async function run(): Promise<void> {
  const { method, url, from, user } = question.value;
  const asked = new URLSearchParams({ url, method });
  if (from) asked.set("from", from);
  if (user) asked.set("user", user);
  [isBusy.value, trouble.value, answer.value] = [true, null, null];
  try {
    answer.value = (await call<{ text: string }>("GET", `explain?${asked.toString()}`)).text;
  } catch (error) {
    trouble.value = sentence(error);
  }
  isBusy.value = false;
}

export function Explain() {
  useEffect(() => {
    if (isWanted) void run();
    isWanted = false;
  }, []);
  return (
    <>
      <p>
        The listener, the site, each route that is tried, who is let in, and the file or answer in the end, each with
        the line of the settings that says so. Nothing is sent.
      </p>
      <Form />
      <div role="status">
        {trouble.value && <p class="trouble">{trouble.value}</p>}
        {isBusy.value && <p class="empty">Asking the server …</p>}
      </div>
      {answer.value !== null && (
        <div class="scrolled way" role="region" aria-label="The way through the settings" tabIndex={0}>
          <pre>{answer.value}</pre>
        </div>
      )}
    </>
  );
}

function Form() {
  const { method, url, from, user } = question.value;
  const set = (changes: Partial<Question>) => (question.value = { ...question.value, ...changes });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    void run();
  };
  return (
    <form class="fields" onSubmit={submit}>
      <label>
        Method{" "}
        <select value={method} onChange={(event) => set({ method: event.currentTarget.value })}>
          {[...new Set([...METHODS, method])].map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <label class="wide">
        URL{" "}
        <input
          type="text"
          inputMode="url"
          required
          placeholder="https://example.com/"
          value={url}
          onInput={(event) => set({ url: event.currentTarget.value.trim() })}
        />
      </label>
      <label>
        Client{" "}
        <input
          type="text"
          placeholder="192.0.2.7"
          value={from}
          onInput={(event) => set({ from: event.currentTarget.value.trim() })}
        />
      </label>
      <label>
        User{" "}
        <input
          type="text"
          autocomplete="off"
          value={user}
          onInput={(event) => set({ user: event.currentTarget.value })}
        />
      </label>
      <button type="submit" class="main" disabled={isBusy.value || !url}>
        Explain
      </button>
    </form>
  );
}
