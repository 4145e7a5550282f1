// A table that is sorted by its heads and filtered by a word, and shows no more rows than a person reads. Where the window is
// narrow its rows are cards, which take the roles of a table from its elements: so they are said.

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { go, place } from "../route";
import { type Key, filtered, sorted } from "./sorting";

export interface Column<Row> {
  name: string;
  title: string;
  /** Spoken and shown on a pointer. */
  help?: string;
  key: (row: Row) => Key;
  /** What is shown; else the key. */
  show?: (row: Row) => ComponentChildren;
  isText?: boolean;
}

interface Properties<Row> {
  caption: string;
  rows: readonly Row[];
  columns: Column<Row>[];
  id: (row: Row) => string;
  /** The column and direction at first: `-seconds`. */
  order: string;
  /** What the filter looks at; without it there is none. */
  texts?: (row: Row) => string[];
  empty: string;
}

/** Rows that are shown at first; a demand for more brings some times as many. On a telephone each takes several lines. */
const SHOWN = globalThis.matchMedia?.("(max-width: 40rem)").matches ? 15 : 50;

export function Table<Row>({ caption, rows, columns, id, order, texts, empty }: Properties<Row>) {
  const more = useSignal(SHOWN);
  const asked = texts ? place.value.sort || order : order;
  const own = useSignal(order);
  const chosen = texts ? asked : own.value;
  const column = columns.find((column) => column.name === chosen.replace(/^-/, "")) ?? columns[0];
  const left = texts ? filtered(rows, texts, place.value.filter) : rows;
  const inOrder = column ? sorted(left, column.key, chosen.startsWith("-")) : left;
  const choose = (sort: string) => (texts ? go({ sort }) : (own.value = sort));
  return (
    <div class="table">
      {texts && <Filter found={left.length} all={rows.length} />}
      {rows.length === 0 ? (
        <p class="empty">{empty}</p>
      ) : (
        <div class="scrolled" role="region" aria-label={caption} tabIndex={0}>
          <table role="table">
            <caption>{caption}</caption>
            <thead role="rowgroup">
              <tr role="row">
                {columns.map((column) => (
                  <Head key={column.name} column={column} chosen={chosen} choose={choose} />
                ))}
              </tr>
            </thead>
            <tbody role="rowgroup">
              {inOrder.slice(0, more.value).map((row) => (
                <tr role="row" key={id(row)}>
                  {columns.map((column) => (
                    <td
                      role="cell"
                      key={column.name}
                      class={column.isText ? "text" : undefined}
                      data-title={column.title}
                    >
                      {column.show ? column.show(row) : column.key(row)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {inOrder.length > more.value && (
        <button type="button" onClick={() => (more.value += SHOWN * 4)}>
          Show more ({inOrder.length - more.value} are left)
        </button>
      )}
    </div>
  );
}

function Head<Row>(of: { column: Column<Row>; chosen: string; choose: (sort: string) => void }) {
  const { column, chosen, choose } = of;
  const isChosen = chosen.replace(/^-/, "") === column.name;
  const isDescending = chosen.startsWith("-");
  // Figures begin with the largest, texts with the first.
  const next = isChosen
    ? isDescending
      ? column.name
      : `-${column.name}`
    : column.isText
      ? column.name
      : `-${column.name}`;
  return (
    <th
      scope="col"
      role="columnheader"
      class={column.isText ? "text" : undefined}
      aria-sort={isChosen ? (isDescending ? "descending" : "ascending") : undefined}
    >
      <button type="button" title={column.help} onClick={() => choose(next)}>
        {column.title}
        <span aria-hidden="true">{isChosen ? (isDescending ? " ▾" : " ▴") : ""}</span>
      </button>
    </th>
  );
}

/** The word that chooses rows, which stands in the address. */
export function FilterInput() {
  return (
    <label>
      Filter{" "}
      <input type="search" value={place.value.filter} onInput={(event) => go({ filter: event.currentTarget.value })} />
    </label>
  );
}

function Filter({ found, all }: { found: number; all: number }) {
  return (
    <p class="filter">
      <FilterInput />{" "}
      <span role="status">{place.value.filter ? `${found} of ${all}` : `${all} in all`}</span>
    </p>
  );
}
