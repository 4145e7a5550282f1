// The settings of the server: its files in an editor, what is wrong in them, what a change would do, and the way back.

import { computed, effect, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type Diagnostic, call, sentence } from "../admin";
import { report } from "../live";
import { ask } from "../parts/confirm";
import { Conflict } from "./conflict";
import { Editor } from "./editor";
import { Review } from "./review";
import { Revisions } from "./revisions";
import { type Schema, schemaOf } from "./schema";
import {
  base,
  check,
  checkTrouble,
  discard,
  isChanged,
  keepChecking,
  keepTrouble,
  load,
  mistakes,
  newer,
  own,
  said,
  texts,
  write,
} from "./state";
import "./style.css";

/** What is seen: the texts, what a change would do, two changes of the same texts, or the revisions. */
type View = "edit" | "review" | "conflict" | "revisions";
const view = signal<View>("edit");
const shown = signal("");
const trouble = signal<string | null>(null);
let schema: Schema | null = null;

/** The file that is shown: the one chosen, or the main one. */
const path = computed(() => {
  const files = texts.value;
  const chosen = files.find((file) => file.path === shown.value) ?? files.find(({ is_main }) => is_main) ?? files[0];
  return chosen?.path ?? "";
});

async function fetchAll(): Promise<void> {
  try {
    await load();
    trouble.value = null;
    schema ??= schemaOf(await call<unknown>("GET", "schema"));
  } catch (error) {
    trouble.value = sentence(error);
  }
}

export function SettingsPage() {
  const revision = report.value?.server.revision;
  // Another revision: somebody has changed something.
  useEffect(() => void fetchAll(), [revision]);
  useEffect(keepChecking, []);
  useEffect(guard, []);
  const go = (to: View) => (view.value = to);
  if (!base.value)
    return <p class={trouble.value ? "trouble" : "empty"}>{trouble.value ?? "Asking for the settings …"}</p>;
  return (
    <div class="settings">
      <div role="status">
        {trouble.value && (
          <p class="trouble">
            {trouble.value} Your texts are still here.{" "}
            <button type="button" onClick={() => void fetchAll()}>
              Ask again
            </button>
          </p>
        )}
        {keepTrouble.value && <p class="trouble">{keepTrouble.value}</p>}
        {newer.value && view.value !== "conflict" && (
          <p class="trouble">
            Somebody else has changed the settings: revision {newer.value.revision} is in force, and your texts began
            with revision {base.value.revision}.{" "}
            <button type="button" onClick={() => go("conflict")}>
              Bring both together
            </button>
          </p>
        )}
      </div>
      {view.value === "review" ? (
        <Review back={() => go("edit")} overtaken={() => go("conflict")} />
      ) : view.value === "conflict" && newer.value ? (
        <Conflict back={() => go("edit")} />
      ) : view.value === "revisions" ? (
        <Revisions back={() => go("edit")} />
      ) : (
        <Edit go={go} />
      )}
    </div>
  );
}

function Edit({ go }: { go: (to: View) => void }) {
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | null>(null);
  useEffect(() => {
    if (!host.current) return;
    const made = new Editor(host.current, () => schema, { changed: write });
    editor.current = made;
    const ends = [
      effect(() => made.show(path.value, texts.value.find((file) => file.path === path.value)?.text ?? "")),
      effect(() => made.mark(path.value ? (said.value?.diagnostics ?? []) : [])),
    ];
    return () => {
      for (const end of ends) end();
      made.destroy();
    };
  }, []);
  const goTo = ({ file, line, column }: Diagnostic) => {
    shown.value = file ?? "";
    editor.current?.goTo(line, column);
  };
  return (
    <>
      <Tabs />
      <div class="editor" id="editor" role="tabpanel" aria-labelledby={tabId(path.value)} ref={host} />
      <Actions go={go} />
      <Said goTo={goTo} />
    </>
  );
}

const tabId = (path: string) => `tab ${path}`.replace(/\s/g, "-");

function Tabs() {
  const move = (event: KeyboardEvent) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const all = texts.value;
    if (step === undefined) return;
    const next = all[(all.findIndex((file) => file.path === path.value) + step + all.length) % all.length];
    if (!next) return;
    shown.value = next.path;
    document.getElementById(tabId(next.path))?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label="Files" onKeyDown={move}>
      {texts.value.map((file) => {
        const wrong = mistakes.value.filter((mistake) => mistake.file === file.path).length;
        return (
          <button
            type="button"
            role="tab"
            key={file.path}
            id={tabId(file.path)}
            title={file.path}
            aria-controls="editor"
            aria-selected={file.path === path.value}
            tabIndex={file.path === path.value ? 0 : -1}
            onClick={() => (shown.value = file.path)}
          >
            {named(file.path)}
            {own.value[file.path] !== undefined && <span title="not applied"> •</span>}
            {wrong > 0 && <span class="bad"> {wrong}</span>}
          </button>
        );
      })}
    </div>
  );
}

/** The name of a file, with as much of its folder as tells it from the others. */
function named(path: string): string {
  const name = path.split("/").at(-1) ?? path;
  const others = texts.value.filter((file) => file.path !== path && file.path.endsWith(`/${name}`));
  return others.length > 0 ? path.split("/").slice(-2).join("/") : name;
}

function Actions({ go }: { go: (to: View) => void }) {
  const why = obstacle();
  const drop = () =>
    ask({
      title: "Discard what you have changed?",
      what: <p>The texts are those of the server again. What you have written is gone.</p>,
      label: "Discard it",
      run: async () => {
        discard();
        return "Your changes are discarded.";
      },
    });
  return (
    <p class="actions">
      <button type="button" class="main" disabled={why !== null} onClick={() => go("review")}>
        Apply …
      </button>
      <button type="button" disabled={!isChanged.value} onClick={drop}>
        Discard
      </button>
      <button type="button" onClick={() => go("revisions")}>
        Revisions
      </button>
      <span class="faint" role="status">
        Revision {base.value?.revision}. {why}
      </span>
      {checkTrouble.value && (
        <button type="button" onClick={() => void check()}>
          Ask again
        </button>
      )}
    </p>
  );
}

/** Why the texts cannot be applied. */
function obstacle(): string | null {
  const wrong = mistakes.value.length;
  if (wrong > 0) return wrong === 1 ? "One mistake stands in the way." : `${wrong} mistakes stand in the way.`;
  if (!isChanged.value) return "Nothing is changed.";
  if (newer.value) return "Somebody else has changed the settings.";
  if (checkTrouble.value) return `The texts were not checked: ${checkTrouble.value}`;
  return said.value ? null : "The texts are being checked …";
}

/** What the server says of the texts, as a list of places. */
function Said({ goTo }: { goTo: (told: Diagnostic) => void }) {
  const all = said.value?.diagnostics ?? [];
  const [first, rest] = [all.slice(0, 100), all.length - 100];
  return (
    <section class="said" aria-label="What the server says of the texts">
      {said.value && all.length === 0 && <p class="empty">No mistakes.</p>}
      <ul>
        {first.map((told, index) => (
          <li key={index} class={told.severity}>
            {told.file === null ? (
              <strong>{told.severity}</strong>
            ) : (
              <button type="button" onClick={() => goTo(told)}>
                {told.severity} {named(told.file)}:{told.line}:{told.column}
              </button>
            )}{" "}
            {told.message} {told.help && <span class="faint">{told.help}</span>}
          </li>
        ))}
      </ul>
      {rest > 0 && <p class="faint">{rest} more.</p>}
    </section>
  );
}

/** Leaving the page asks first while something is not applied. */
function guard(): () => void {
  return effect(() => {
    if (!isChanged.value) return;
    const stay = (event: BeforeUnloadEvent) => event.preventDefault();
    addEventListener("beforeunload", stay);
    return () => removeEventListener("beforeunload", stay);
  });
}
