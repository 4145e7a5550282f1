import assert from "node:assert/strict";
import { test } from "node:test";
import { EMPTY, append, fromHistory, marked, nearest } from "../src/series";

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
