// Keys: digits lead to the pages, `p` pauses, `/` goes to the filter. None while something is typed.

import { paused } from "./live";
import { PAGES, go } from "./route";

export function onKey(event: KeyboardEvent): void {
  const typed = event.target instanceof HTMLElement && event.target.matches("input, select, textarea");
  if (typed || event.ctrlKey || event.altKey || event.metaKey) return;
  const page = PAGES[Number(event.key) - 1];
  if (page) go({ page, filter: "", sort: "" });
  else if (event.key === "p") paused.value = !paused.value;
  else if (event.key === "/") {
    const filter = document.querySelector<HTMLInputElement>("input[type=search]");
    if (!filter) return;
    event.preventDefault();
    filter.focus();
  }
}
