// Times to answer over time as a heat map: the darker a cell, the more requests took so long then. Two humps that the
// percentiles would draw as one line are two here.

import { useSignal } from "@preact/signals";
import { useEffect, useId, useRef } from "preact/hooks";
import { count, duration, moment, tick } from "../format";
import { type Column, endOf, extentOf, summaryOf } from "../heat";
import { colour } from "./chart";

const HEIGHT = 174;
/** The place of the axes, as wide as those of the graphs beside it. */
const [LEFT, BOTTOM, TOP, RIGHT] = [66, 24, 6, 18];
/** Rows of the table for who does not see it. */
const ROWS = 12;
const DECADES = [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 100];

/** From when to when, seconds since 1970. */
export interface Span {
  from: number;
  until: number;
}

export function HeatMap({ title, columns, span }: { title: string; columns: readonly Column[]; span: Span | null }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const cursor = useSignal<number | null>(null);
  const label = useId();
  const shown = span ? columns.filter(({ at }) => at >= span.from && at <= span.until) : [];
  const last = shown.length - 1;
  const at = cursor.value === null ? last : Math.min(cursor.value, last);

  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const redraw = () => span && draw(element, shown, span, cursor.value === null ? null : (shown[at]?.at ?? null));
    redraw();
    const watch = new ResizeObserver(redraw);
    watch.observe(element);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", redraw);
    return () => {
      watch.disconnect();
      scheme.removeEventListener("change", redraw);
    };
  }, [columns, span?.from, span?.until, cursor.value]);

  const move = (event: KeyboardEvent) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (event.key === "Escape") cursor.value = null;
    if (step === undefined || last < 0) return;
    event.preventDefault();
    cursor.value = Math.min(last, Math.max(0, at + step));
  };
  const point = (event: PointerEvent) => {
    if (!span || !canvas.current || last < 0) return;
    const { left, width } = canvas.current.getBoundingClientRect();
    const share = (event.clientX - left - LEFT) / (width - LEFT - RIGHT);
    const time = span.from + share * (span.until - span.from);
    const later = shown.findIndex((column) => column.at >= time);
    cursor.value = later < 0 ? last : later;
  };
  return (
    <figure class="chart" aria-labelledby={label}>
      <figcaption id={label}>{title}</figcaption>
      <Reading column={shown[at]} isHeld={cursor.value !== null} />
      <canvas
        ref={canvas}
        class="heat"
        style={{ height: `${HEIGHT}px` }}
        tabIndex={0}
        role="img"
        aria-label={`${title}. Arrow keys move through time.`}
        onKeyDown={move}
        onPointerMove={point}
        onPointerLeave={() => (cursor.value = null)}
        onBlur={() => (cursor.value = null)}
      />
      <Hidden title={title} columns={shown} />
    </figure>
  );
}

/** A row as a person reads it: `1 ms to 1.41 ms`. */
const between = (row: number | null) => (row === null ? "–" : `${duration(endOf(row - 1))} to ${duration(endOf(row))}`);

function Reading({ column, isHeld }: { column: Column | undefined; isHeld: boolean }) {
  const { rate, densest, slowest } = column ? summaryOf(column) : { rate: 0, densest: null, slowest: null };
  return (
    <p class="legend" aria-live={isHeld ? "polite" : "off"}>
      <span>
        requests <strong>{count(rate)}/s</strong>
      </span>
      <span>
        most <strong>{between(densest)}</strong>
      </span>
      <span>
        slowest <strong>{slowest === null ? "–" : duration(endOf(slowest))}</strong>
      </span>
      {isHeld && column && <span class="time">{moment(column.at)}</span>}
    </p>
  );
}

function Hidden({ title, columns }: { title: string; columns: readonly Column[] }) {
  const step = Math.max(1, Math.ceil(columns.length / ROWS));
  return (
    <table class="hidden">
      <caption>{title}</caption>
      <thead>
        <tr>
          <th scope="col">Time</th>
          <th scope="col">Requests a second</th>
          <th scope="col">Most of them took</th>
          <th scope="col">None took longer than</th>
        </tr>
      </thead>
      <tbody>
        {columns
          .filter((_, index) => index % step === 0)
          .map((column) => {
            const { rate, densest, slowest } = summaryOf(column);
            return (
              <tr key={column.at}>
                <th scope="row">{moment(column.at)}</th>
                <td>{count(rate)}</td>
                <td>{between(densest)}</td>
                <td>{slowest === null ? "–" : duration(endOf(slowest))}</td>
              </tr>
            );
          })}
      </tbody>
    </table>
  );
}

function draw(canvas: HTMLCanvasElement, columns: readonly Column[], span: Span, held: number | null): void {
  const scale = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, HEIGHT];
  if (width === 0) return;
  [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  const paper = canvas.getContext("2d");
  const extent = extentOf(columns);
  if (!paper || !extent) return;
  paper.scale(scale, scale);
  const { low, high, most } = extent;
  const [wide, tall] = [width - LEFT - RIGHT, height - TOP - BOTTOM];
  const x = (at: number) => LEFT + (wide * (at - span.from)) / Math.max(1, span.until - span.from);
  const y = (row: number) => TOP + tall * (1 - (row - low + 1) / (high - low + 1));
  axes(paper, { x, y, low, high, width, height, span });
  paper.fillStyle = colour("--c1");
  for (const { at, seconds, rows } of columns) {
    const [from, to] = [Math.max(LEFT, x(at - seconds)), x(at)];
    for (const [row, rate] of rows) {
      paper.globalAlpha = 0.15 + (0.85 * Math.log1p(rate)) / Math.log1p(most);
      paper.fillRect(from, y(row), Math.max(1, to - from), Math.ceil(y(row - 1) - y(row)));
    }
  }
  paper.globalAlpha = 1;
  if (held === null) return;
  paper.fillStyle = colour("--link");
  paper.fillRect(x(held) - 0.5, TOP, 1, tall);
}

interface Frame {
  x: (at: number) => number;
  y: (row: number) => number;
  low: number;
  high: number;
  width: number;
  height: number;
  span: Span;
}

function axes(paper: CanvasRenderingContext2D, { x, y, low, high, width, height, span }: Frame): void {
  paper.font = "11px system-ui";
  paper.fillStyle = colour("--faint");
  paper.strokeStyle = colour("--line");
  [paper.textAlign, paper.textBaseline] = ["right", "middle"];
  for (const decade of DECADES) {
    // A time is at the upper end of its row.
    const at = y(Math.log2(decade) * 2);
    if (at < TOP - 1 || at > y(low - 1) + 1 || Math.log2(decade) * 2 > high) continue;
    paper.fillText(duration(decade), LEFT - 6, at);
    paper.beginPath();
    paper.moveTo(LEFT, at);
    paper.lineTo(width - RIGHT, at);
    paper.stroke();
  }
  [paper.textAlign, paper.textBaseline] = ["center", "bottom"];
  const length = span.until - span.from;
  const step = [10, 30, 60, 120, 300, 600].find((step) => length / step <= width / 90) ?? 1200;
  for (let at = Math.ceil(span.from / step) * step; at <= span.until; at += step) {
    if (x(at) < LEFT + 20 || x(at) > width - 24) continue;
    paper.fillText(tick(at), x(at), height - 4);
  }
}
