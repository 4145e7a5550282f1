import assert from "node:assert/strict";
import { test } from "node:test";
import { EMPTY, append, fromDays, fromHistory, joined, marked, nearest } from "../src/series";

test("points are appended, and the oldest forgotten", () => {
  let series = append(EMPTY, 1, { a: 1 }, 3);
  series = append(series, 2, { b: 2 }, 3);
  series = append(series, 2, { b: 9 }, 3);
  series = append(series, 3, null, 3);
  assert.deepEqual(series.columns, { a: [1, null, null], b: [null, 2, null] });
  series = append(marked(series, 1, "revision 2"), 4, { a: 4 }, 3);
  assert.deepEqual(series.times, [2, 3, 4]);
  assert.deepEqual(series.columns, { a: [null, null, 4], b: [2, null, null] });
  assert.deepEqual(series.marks, []);
});

test("what the server remembers ends at its last moment", () => {
  const marks = [{ at: 80, what: "upgrade" }];
  const series = fromHistory({ resolution: 10, from: 60, until: 100, marks, series: { a: [1, null, 3], b: [] } });
  assert.deepEqual(series.times, [80, 90, 100]);
  assert.deepEqual(series.columns.a, [1, null, 3]);
  assert.equal(series.marks, marks);
});

test("the nearest point", () => {
  assert.equal(nearest([10, 20, 30], 24), 1);
  assert.equal(nearest([10, 20, 30], 99), 2);
  assert.equal(nearest([], 5), -1);
});

test("days are rates of their totals", () => {
  const day = {
    day: "2026-11-23",
    requests: 86_400,
    received_bytes: 0,
    sent_bytes: 172_800,
    refused: 0,
    responses: { "2xx": 43_200 },
  };
  const series = fromDays({ days: [day] });
  assert.deepEqual(series.times, [Date.UTC(2026, 10, 23, 12) / 1000]);
  assert.deepEqual(
    [series.columns.requests, series.columns.sent_bytes, series.columns.responses_2xx, series.columns.responses_5xx],
    [[1], [2], [0.5], [0]],
  );
});

test("what was seen here follows what the server remembers", () => {
  const told = { times: [1, 2], columns: { a: [1, 2] }, marks: [{ at: 1, what: "x" }] };
  const seen = {
    times: [2, 3, 4],
    columns: { a: [9, 3, 4], b: [9, 8, 7] },
    marks: [
      { at: 2, what: "x" },
      { at: 4, what: "y" },
    ],
  };
  const all = joined(told, seen, 3);
  assert.deepEqual(all.times, [2, 3, 4]);
  assert.deepEqual(all.columns, { a: [2, 3, 4], b: [null, 8, 7] });
  assert.deepEqual(
    all.marks.map(({ what }) => what),
    ["x", "y"],
  );
  assert.equal(joined(told, { ...seen, times: [1, 2, 2] }, 3), told);
});
