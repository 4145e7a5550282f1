// The settings: the editor comes when it is asked for, since it is larger than all the rest.

import { signal } from "@preact/signals";
import type { FunctionComponent } from "preact";

const editor = signal<FunctionComponent | null>(null);
const isMissing = signal(false);

async function fetchEditor(): Promise<void> {
  isMissing.value = false;
  try {
    editor.value = (await import("../settings/page")).SettingsPage;
  } catch {
    isMissing.value = true;
  }
}

export function Settings() {
  const Shown = editor.value;
  if (Shown) return <Shown />;
  if (isMissing.value) {
    return (
      <p class="trouble">
        The editor could not be loaded: the server does not answer, or it is of another version than this page.{" "}
        <button type="button" onClick={() => location.reload()}>
          Load the page anew
        </button>
      </p>
    );
  }
  void fetchEditor();
  return <p class="empty">Loading the editor …</p>;
}
