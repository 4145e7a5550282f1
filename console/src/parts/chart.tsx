// A graph over time: uPlot on a canvas, in a figure with a name, a cursor that arrow keys move, and a table of the same
// figures for who does not see the canvas.

import { useSignal } from "@preact/signals";
import { useEffect, useId, useRef } from "preact/hooks";
import uPlot from "uplot";
import { moment, tick } from "../format";
import { REACH, go, place } from "../route";
import { decades, fromZero } from "../scale";
import { type Series, nearest } from "../series";

export interface Line {
  /** The name in the history. */
  column: string;
  title: string;
  /** One of the colours of the style sheet: `--c1` and so on. */
  color: string;
}

interface Properties {
  title: string;
  series: Series;
  lines: Line[];
  show: (value: number | null | undefined) => string;
  /** Times span several powers of ten. */
  isLogarithmic?: boolean;
  /** The top of the scale where figures are smaller; shares end at 1. */
  top?: number;
  /** Steps of the scale are powers of two. */
  isBytes?: boolean;
}

const HEIGHT = 150;

/** Rows of the table for who does not see the graph. */
const ROWS = 12;

export function Chart(properties: Properties) {
  const { title, series, lines, show, isLogarithmic = false } = properties;
  const canvas = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const cursor = useSignal<number | null>(null);
  const label = useId();
  const known = lines.filter(({ column }) => series.columns[column]?.some((value) => value !== null));

  const names = known.map(({ column }) => column).join(" ");
  useEffect(() => {
    const parent = canvas.current;
    if (!parent) return;
    const made = new uPlot(options(known, properties, cursor), [[]], parent);
    plot.current = made;
    const fit = () => made.setSize({ width: parent.clientWidth, height: HEIGHT });
    const watch = new ResizeObserver(fit);
    watch.observe(parent);
    // The colours are those of the style sheet, which follows the system.
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => made.redraw(false);
    scheme.addEventListener("change", redraw);
    return () => {
      watch.disconnect();
      scheme.removeEventListener("change", redraw);
      made.destroy();
      plot.current = null;
    };
  }, [names]);

  useEffect(() => {
    const fits = (value: number | null) => (isLogarithmic && value !== null && value <= 0 ? null : value);
    const data = known.map(({ column }) => (series.columns[column] ?? []).map(fits));
    marks.set(plot.current, series.marks);
    plot.current?.setData([series.times, ...data]);
  }, [series, names]);

  const { at } = place.value;
  useEffect(() => plot.current?.redraw(false), [at]);

  const shown = cursor.value ?? (at === null ? series.times.length - 1 : nearest(series.times, at));
  const move = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    const step = steps[event.key];
    if (event.key === "+") narrowed(series.times, shown, 1 / 2);
    if (event.key === "-") narrowed(series.times, shown, 2);
    if (event.key === "Enter" && cursor.value !== null) go({ at: Math.round(series.times[cursor.value] ?? 0) });
    if (event.key === "Escape") {
      cursor.value = null;
      go({ at: null, from: null, until: null });
    }
    if (step === undefined || series.times.length === 0) return;
    event.preventDefault();
    cursor.value = Math.min(series.times.length - 1, Math.max(0, shown + step));
    const x = plot.current?.valToPos(series.times[cursor.value] ?? 0, "x");
    if (x !== undefined) plot.current?.setCursor({ left: x, top: 0 }, false);
  };

  // Of long ranges less is remembered.
  if (known.length === 0 && place.value.range !== "10m") return null;
  return (
    <figure class="chart" aria-labelledby={label}>
      <figcaption id={label}>{title}</figcaption>
      <Legend lines={lines} series={series} at={shown} show={show} isHeld={cursor.value !== null || at !== null} />
      {known.length === 0 && <p class="empty">Nothing is known of this yet.</p>}
      <div
        ref={canvas}
        class="canvas"
        hidden={known.length === 0}
        tabIndex={0}
        role="img"
        aria-label={`${title}. Arrow keys move through time, Enter keeps the moment, plus and minus zoom.`}
        onKeyDown={move}
        onBlur={() => (cursor.value = null)}
      />
      <Hidden title={title} series={series} lines={lines} show={show} />
    </figure>
  );
}

function Legend(of: { lines: Line[]; series: Series; at: number; show: Properties["show"]; isHeld: boolean }) {
  const { lines, series, at, show, isHeld } = of;
  const time = series.times[at];
  return (
    <p class="legend" aria-live={isHeld ? "polite" : "off"}>
      {lines.map(({ column, title, color }) => (
        <span key={column}>
          <span class="swatch" style={{ background: `var(${color})` }} aria-hidden="true" />
          {title} <strong>{show(series.columns[column]?.[at])}</strong>
        </span>
      ))}
      {isHeld && time !== undefined && <span class="time">{moment(time)}</span>}
    </p>
  );
}

/** Zooms around a point; beyond what there is ends the zoom. */
function narrowed(times: number[], at: number, by: number): void {
  const [first, last, middle] = [times[0], times.at(-1), times[at]];
  if (first === undefined || last === undefined || middle === undefined) return;
  if (by > 1 && place.value.from === null) return;
  const half = ((last - first) * by) / 2;
  if (2 * half >= REACH[place.value.range]) go({ from: null, until: null });
  else narrow(middle - half, middle + half);
}

/** A dozen points of it as a table. */
function Hidden({ title, series, lines, show }: Pick<Properties, "title" | "series" | "lines" | "show">) {
  const step = Math.max(1, Math.ceil(series.times.length / ROWS));
  const rows = series.times.map((time, index) => [time, index] as const).filter(([, index]) => index % step === 0);
  return (
    <table class="hidden">
      <caption>{title}</caption>
      <thead>
        <tr>
          <th scope="col">Time</th>
          {lines.map(({ column, title }) => (
            <th scope="col" key={column}>
              {title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map(([time, index]) => (
          <tr key={time}>
            <th scope="row">{moment(time)}</th>
            {lines.map(({ column }) => (
              <td key={column}>{show(series.columns[column]?.[index])}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** What happened, for the plots that draw it. */
const marks = {
  of: new WeakMap<uPlot, Series["marks"]>(),
  set(plot: uPlot | null, all: Series["marks"]) {
    if (plot) this.of.set(plot, all);
  },
};

/** A colour of the style sheet, which follows the system. */
export const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** 1 B to 1 PiB. */
const POWERS_OF_TWO = Array.from({ length: 51 }, (_, power) => 2 ** power);

/** Whether a time is a power of ten, which alone have lines and names. */
const isDecade = (value: number) => Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-6;

/** The first seconds are no graph of their own. */
const atLeastAMinute: uPlot.Scale.Range = (_, low, high) => {
  const { from, until } = place.value;
  return from !== null && until !== null ? [from, until] : [Math.min(low, high - 60), high];
};

function options(lines: Line[], of: Properties, cursor: { value: number | null }): uPlot.Options {
  const { show, isLogarithmic = false, isBytes = false, top } = of;
  const axis = { stroke: () => colour("--faint"), font: "11px system-ui", ticks: { show: false } };
  const range: uPlot.Scale.Range = (_, low, high) => {
    return isLogarithmic ? decades(low, high) : fromZero(high, top);
  };
  return {
    width: 300,
    height: HEIGHT,
    legend: { show: false },
    cursor: {
      y: false,
      drag: { x: true, y: false, setScale: false, dist: 8 },
      sync: ALONE,
      points: { show: false },
    },
    scales: { x: { range: atLeastAMinute }, y: isLogarithmic ? { distr: 3, range } : { range } },
    axes: [
      { ...axis, space: 70, size: 24, grid: { show: false }, values: (_, splits) => splits.map(tick) },
      {
        ...axis,
        size: 66,
        space: isLogarithmic ? 20 : 34,
        ...(isBytes && { incrs: POWERS_OF_TWO }),
        filter: (_, splits) => splits.map((split) => (isLogarithmic && !isDecade(split) ? null : split)),
        grid: {
          stroke: () => colour("--line"),
          width: 1,
          filter: (_, splits) => splits.map((split) => (isLogarithmic && !isDecade(split) ? null : split)),
        },
        values: (_, splits) => splits.map((split) => (split === null ? "" : show(split))),
      },
    ],
    series: [
      {},
      ...lines.map(({ title, color }) => ({
        label: title,
        stroke: () => colour(color),
        width: 1.5,
        points: { show: false },
        spanGaps: false,
      })),
    ],
    hooks: {
      draw: [drawMarks],
      setCursor: [
        (plot) =>
          (cursor.value = plot.cursor.left !== undefined && plot.cursor.left >= 0 ? (plot.cursor.idx ?? null) : null),
      ],
      setSelect: [zoom],
      ready: [(plot) => plot.over.addEventListener("click", () => keep(plot))],
    },
  };
}

/** What was drawn over becomes the range. */
function zoom(plot: uPlot) {
  const { left, width } = plot.select;
  if (width <= 0) return;
  const [from, until] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
  narrow(from, until);
  // The click that ends it keeps no moment.
  dragged.add(plot);
  setTimeout(() => dragged.delete(plot));
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
}

const dragged = new WeakSet<uPlot>();

/** Shows a part of the range; a few seconds at least. */
function narrow(from: number, until: number): void {
  const [first, last] = [Math.floor(from), Math.ceil(until)];
  if (Number.isSafeInteger(first) && Number.isSafeInteger(last) && last - first >= 3) go({ from: first, until: last });
}

/** The cursor is that of all graphs; what is drawn over belongs to one, since others may have no width to read it by. */
const ALONE: uPlot.Cursor.Sync = {
  key: "time",
  filters: { pub: (type) => type === "mousemove" || type === "mouseleave" },
};

/** A click keeps the moment in the address, so that a link leads to it. */
function keep(plot: uPlot) {
  if (dragged.delete(plot)) return;
  const time = plot.cursor.idx == null ? undefined : plot.data[0][plot.cursor.idx];
  if (time !== undefined) go({ at: Math.round(time) });
}

/** Revisions and upgrades, and the moment that is kept, as lines from top to bottom. */
function drawMarks(plot: uPlot) {
  const { ctx, bbox } = plot;
  const kept = place.value.at;
  const all = (marks.of.get(plot) ?? []).map(({ at }) => ({ at, color: colour("--faint") }));
  if (kept !== null) all.push({ at: kept, color: colour("--link") });
  for (const { at, color } of all) {
    const x = Math.round(plot.valToPos(at, "x", true));
    if (!(x >= bbox.left && x <= bbox.left + bbox.width)) continue;
    ctx.save();
    ctx.strokeStyle = color;
    ctx.setLineDash([4, 4]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.restore();
  }
}
