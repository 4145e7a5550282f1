import assert from "node:assert/strict";
import { test } from "node:test";
import { decades, fromZero } from "../src/scale";

test("every scale has an end", () => {
  for (const [low, high, expected] of [
    [0, 0, [1e-4, 0.1]],
    [null, null, [1e-4, 0.1]],
    [0.2, 3, [1e-4, 3]],
    [2e-6, 0.01, [2e-6, 0.1]],
    [-1, Number.POSITIVE_INFINITY, [1e-4, 0.1]],
    [Number.NaN, Number.NaN, [1e-4, 0.1]],
  ] as const)
    assert.deepEqual(decades(low, high), expected, `${low} ${high}`);
  assert.deepEqual(fromZero(null), [0, 1]);
  assert.deepEqual(fromZero(Number.POSITIVE_INFINITY, 1), [0, 1]);
  assert.deepEqual(fromZero(10), [0, 11]);
});
