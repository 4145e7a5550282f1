// Keys: digits lead to the pages, `p` pauses, `/` goes to the filter. None while something is typed.

import { isOffered } from "./admin";
import { paused } from "./live";
import { PAGES, go } from "./route";

export function onKey(event: KeyboardEvent): void {
  // What is typed into the editor comes from below a shadow root.
  const target = event.composedPath()[0];
  const typed =
    target instanceof HTMLElement && (target.matches("input, select, textarea") || target.isContentEditable);
  // Escape empties a filter; it leads out of it as well.
  if (event.key === "Escape" && target instanceof HTMLInputElement && target.type === "search") target.blur();
  if (typed || document.querySelector("dialog[open]") || event.ctrlKey || event.altKey || event.metaKey) return;
  const page = /^\d$/.test(event.key) ? PAGES[(Number(event.key) + 9) % 10] : undefined;
  if (page && isOffered(page)) go({ page, filter: "", sort: "" });
  else if (event.key === "p") paused.value = !paused.value;
  else if (event.key === "/") {
    const filter = document.querySelector<HTMLInputElement>("input[type=search]");
    if (!filter) return;
    event.preventDefault();
    filter.focus();
  }
}
