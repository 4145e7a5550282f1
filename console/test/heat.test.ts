import assert from "node:assert/strict";
import { test } from "node:test";
import { columnOf, endOf, extentOf, rowOf, summaryOf } from "../src/heat";
import type { Report } from "../src/report";
import { processPoint } from "../src/sample";
import { append, EMPTY, pruned, within } from "../src/series";

const report = (buckets: [number, number][]) => ({ stats: { latency: { buckets } } }) as unknown as Report;

test("every time has a row whose upper end it does not pass", () => {
  for (let time = 2e-5; time < 200; time *= 1.07) {
    const row = rowOf(time);
    assert.ok(time <= endOf(row) * 1.001 && time > endOf(row - 1), `${time} in ${row}`);
  }
  for (const power of [-8, -1, 0, 3]) assert.equal(rowOf(2 ** power), 2 * power, "an end belongs to its own row");
  assert.deepEqual([rowOf(0), rowOf(NaN), rowOf(1e9)], [-32, -32, 16]);
});

test("a column is what came between two reports", () => {
  const before = report([
    [0.001, 5],
    [0.1, 1],
  ]);
  const after = report([
    [0.001, 9],
    [0.00101, 2],
    [0.1, 1],
    [1, 4],
  ]);
  const column = columnOf(before, after, 7, 2);
  assert.deepEqual(column, {
    at: 7,
    seconds: 2,
    rows: [
      [-19, 3],
      [0, 2],
    ],
  });
  assert.deepEqual(summaryOf(column), { rate: 5, densest: -19, slowest: 0 });
  assert.deepEqual(extentOf([column]), { low: -19, high: 0, most: 3 });
  assert.equal(extentOf([columnOf(after, after, 8, 1)]), null);
  const narrow = extentOf([{ at: 1, seconds: 1, rows: [[0, 1]] }]);
  assert.ok(narrow && narrow.high - narrow.low >= 7, "a single row is no picture");
});

test("processes have lines of their own, for as long as something is known of them", () => {
  const of = (processes: unknown[]) => ({ server: { processes } }) as unknown as Report;
  const used = (cpu_seconds: number) => ({ cpu_seconds, resident_bytes: 10, descriptors: 1 });
  const before = of([{ pid: 1, used: used(1) }, { pid: 2 }]);
  const after = of([
    { pid: 1, used: used(1.5) },
    { pid: 2, used: used(9) },
    { pid: 3, used: used(9) },
  ]);
  assert.deepEqual(processPoint(before, after, 2), { "cpu 1": 0.25, "resident 1": 10 });
  let series = append(EMPTY, 1, { "cpu 1": 0.5 }, 2);
  for (const at of [2, 3]) series = pruned(append(series, at, { "cpu 7": 1 }, 2));
  assert.deepEqual(series.columns, { "cpu 7": [1, 1] });
});

test("a part of the range", () => {
  const series = { times: [1, 2, 3, 4], columns: { a: [1, null, 3, 4] }, marks: [{ at: 1, what: "x" }] };
  assert.deepEqual(within(series, 2, 3), { times: [2, 3], columns: { a: [null, 3] }, marks: [] });
  assert.deepEqual(within(series, 5, 9).times, []);
  assert.deepEqual(within(series, 0, 9), series);
});
