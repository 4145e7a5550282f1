import assert from "node:assert/strict";
import { test } from "node:test";
import { decades, fromZero } from "../src/scale";

test("every scale has an end", () => {
  for (const [low, high, expected] of [
    [0, 0, [1e-4, 0.1]],
    [null, null, [1e-4, 0.1]],
    [0.2, 3, [1e-4, 3]],
    [2e-6, 0.01, [1e-6, 0.1]],
    [0.95e-4, 0.01, [1e-5, 0.1]],
    [1e-5, 0.01, [1e-5, 0.1]],
    [1e-12, 0.01, [1e-4, 0.1]],
    [-1, Number.POSITIVE_INFINITY, [1e-4, 0.1]],
    [Number.NaN, Number.NaN, [1e-4, 0.1]],
  ] as const)
    assert.deepEqual(decades(low, high), expected, `${low} ${high}`);
  for (let low = 1.1e-9; low < 1; low *= 1.007) {
    const [first] = decades(low, 1);
    assert.ok(first <= low && /^1e-\d+$/.test(first.toExponential()), `${low}: ${first}`);
  }
  assert.deepEqual(fromZero(null), [0, 1]);
  assert.deepEqual(fromZero(Number.POSITIVE_INFINITY, 1), [0, 1]);
  assert.deepEqual(fromZero(10), [0, 11]);
});
