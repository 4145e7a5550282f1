// Whatever changes something is asked about first: what it does, and whether it shall be done. What came of it is told
// in a line above the page.

import { signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { sentence } from "../admin";

export interface Question {
  title: string;
  /** What it does, and to whom. */
  what: ComponentChildren;
  /** What the button says. */
  label: string;
  /** Does it, and says in a sentence what came of it. */
  run: () => Promise<string>;
}

const question = signal<Question | null>(null);
/** What came of the last one. */
export const outcome = signal<string | null>(null);

/** Asks. */
export function ask(asked: Question): void {
  outcome.value = null;
  question.value = asked;
}

/** Stands once on the page. */
export function Confirm() {
  const asked = question.value;
  return asked && <Asking key={asked.title} asked={asked} />;
}

function Asking({ asked }: { asked: Question }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const title = useId();
  const isBusy = useSignal(false);
  const trouble = useSignal<string | null>(null);
  useEffect(() => {
    const had = document.activeElement;
    dialog.current?.showModal();
    return () => had instanceof HTMLElement && had.focus();
  }, []);
  const run = async () => {
    [isBusy.value, trouble.value] = [true, null];
    try {
      outcome.value = await asked.run();
      question.value = null;
    } catch (error) {
      trouble.value = sentence(error);
      isBusy.value = false;
    }
  };
  return (
    <dialog ref={dialog} aria-labelledby={title} onClose={() => (question.value = null)}>
      <h2 id={title}>{asked.title}</h2>
      <div>{asked.what}</div>
      <div role="alert">{trouble.value && <p class="trouble">{trouble.value}</p>}</div>
      <p class="actions">
        <button type="button" class="main" disabled={isBusy.value} onClick={() => void run()}>
          {isBusy.value ? "…" : asked.label}
        </button>
        <button type="button" onClick={() => (question.value = null)}>
          Leave it
        </button>
      </p>
    </dialog>
  );
}

/** What came of the last thing that was done. */
export function Outcome() {
  return (
    <div role="status">
      {outcome.value && (
        <p class="done">
          {outcome.value}{" "}
          <button type="button" onClick={() => (outcome.value = null)}>
            Good
          </button>
        </p>
      )}
    </div>
  );
}
