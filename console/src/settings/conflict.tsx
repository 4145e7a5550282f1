// Somebody else has changed the settings meanwhile: both changes beside what they began with, and one text out of them.
// One's own text is what it is until that is taken.

import { useSignal } from "@preact/signals";
import { type Choice, type Part, merge, resolved } from "./diff";
import { type File, base, newer, rebase, texts } from "./state";

interface Merged {
  path: string;
  parts: Part[];
  /** The file is no longer one of the settings: what one has written of it has no place. */
  isGone: boolean;
}

/** Each file that one of the two has changed. */
function merged(): Merged[] {
  const [had, now] = [base.value?.files ?? [], newer.value?.files ?? []];
  const of = (files: readonly File[], path: string) => files.find((file) => file.path === path)?.text ?? "";
  const paths = new Set([...now, ...had].map(({ path }) => path));
  return [...paths]
    .map((path) => ({
      path,
      parts: merge(of(had, path), of(texts.value, path), of(now, path)),
      isGone: !now.some((file) => file.path === path),
    }))
    .filter(({ parts }) => parts.some(({ by }) => by !== "none"));
}

export function Conflict({ back }: { back: () => void }) {
  const choices = useSignal<Record<string, Choice>>({});
  const all = merged();
  const fights = all.flatMap(({ path, parts, isGone }) =>
    isGone ? [] : parts.filter(({ by }) => by === "each").map((_, index) => `${path} ${index}`),
  );
  const left = fights.filter((fight) => choices.value[fight] === undefined).length;
  const take = () => {
    const files = all
      .filter(({ isGone }) => !isGone)
      .map(({ path, parts }) => {
        const chosen = parts
          .filter(({ by }) => by === "each")
          .map((_, index) => choices.value[`${path} ${index}`] ?? "mine");
        return { path, text: resolved(parts, chosen) };
      });
    rebase(files);
    back();
  };
  return (
    <section aria-labelledby="conflict">
      <h2 id="conflict">Two changes of the same settings</h2>
      <p>
        {base.value?.revision === newer.value?.revision
          ? "The files were changed by hand since you have read them, and revision " + base.value?.revision + " is in force still."
          : "You began with revision " + base.value?.revision + "; revision " + newer.value?.revision + " is in force now."}{" "}
        What only one of you has changed is taken as it is. Where both have changed the same lines, choose. Nothing is applied yet.
      </p>
      {all.map((file) => (
        <FileOf
          key={file.path}
          file={file}
          choices={choices.value}
          choose={(fight, choice) => (choices.value = { ...choices.value, [fight]: choice })}
        />
      ))}
      <p class="actions">
        <button type="button" class="main" disabled={left > 0} onClick={take}>
          Take this into the editor
        </button>
        <button type="button" onClick={back}>
          Back to your texts
        </button>
        <span class="faint" role="status">
          {left > 0 && `${left} to choose.`}
        </span>
      </p>
    </section>
  );
}

function FileOf(of: {
  file: Merged;
  choices: Record<string, Choice>;
  choose: (fight: string, choice: Choice) => void;
}) {
  const { file, choices, choose } = of;
  let fights = 0;
  return (
    <>
      <h3>
        <code>{file.path}</code>
      </h3>
      {file.isGone && (
        <p class="trouble">This file is no longer part of the settings. Copy what you want to keep of it elsewhere.</p>
      )}
      {file.parts.map((part, index) => {
        if (part.by === "none") return null;
        const fight = part.by === "each" && !file.isGone ? `${file.path} ${fights++}` : null;
        return (
          <PartOf key={index} part={part} chosen={fight ? choices[fight] : undefined} fight={fight} choose={choose} />
        );
      })}
    </>
  );
}

const WHOSE: Record<Part["by"], string> = {
  none: "",
  mine: "Changed by you",
  theirs: "Changed by them",
  both: "Changed by both in the same way",
  each: "Changed by both",
};

const CHOICES: [Choice, string][] = [
  ["mine", "Take yours"],
  ["theirs", "Take theirs"],
  ["both", "Take both, theirs first"],
];

function PartOf(of: {
  part: Part;
  fight: string | null;
  chosen: Choice | undefined;
  choose: (fight: string, choice: Choice) => void;
}) {
  const { part, fight, chosen, choose } = of;
  return (
    <div class="part" role="group" aria-label={WHOSE[part.by]}>
      <p>
        <strong>{WHOSE[part.by]}</strong>
        {fight !== null &&
          CHOICES.map(([choice, label]) => (
            <button type="button" key={choice} aria-pressed={chosen === choice} onClick={() => choose(fight, choice)}>
              {label}
            </button>
          ))}
      </p>
      <div class="three">
        <Lines title="Before" lines={part.base} />
        <Lines title="Theirs" lines={part.theirs} />
        <Lines title="Yours" lines={part.mine} />
      </div>
    </div>
  );
}

function Lines({ title, lines }: { title: string; lines: string[] }) {
  return (
    <div>
      <p class="faint">{title}</p>
      {lines.length === 0 ? (
        <p class="faint">(nothing)</p>
      ) : (
        <div class="scrolled" role="region" aria-label={title} tabIndex={0}>
          <pre>{lines.join("\n")}</pre>
        </div>
      )}
    </div>
  );
}
