import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, count, duration, moment, percent, tick, whole } from "../src/format";

test("figures as a person reads them", () => {
  for (const [told, expected] of [
    [count(0), "0"],
    [count(7.5), "7.5"],
    [count(999.4), "999"],
    [count(999.6), "1 k"],
    [count(1_234_567), "1.23 M"],
    [count(null), "–"],
    [count(Number.NaN), "–"],
    [whole(1234567.4), "1\u202f234\u202f567"],
    [bytes(1023), "1023 B"],
    [bytes(1536), "1.5 KiB"],
    [bytes(10 * 1024 ** 3), "10 GiB"],
    [percent(0.1234), "12.3 %"],
    [percent(null), "–"],
  ]) {
    assert.equal(told, expected);
  }
});

test("durations keep three digits, or two units", () => {
  for (const [seconds, expected] of [
    [0, "0 s"],
    [0.00000095, "0.95 µs"],
    [0.00085, "850 µs"],
    [0.0123, "12.3 ms"],
    [0.9996, "1 s"],
    [59.94, "59.9 s"],
    [200, "3 min 20 s"],
    [3600, "1 h"],
    [187_200, "2 d 4 h"],
    [-90, "-1 min 30 s"],
  ] as const) {
    assert.equal(duration(seconds), expected);
  }
});

test("moments of another day have a date", () => {
  const at = new Date(2026, 0, 31, 9, 5, 7).getTime() / 1000;
  assert.equal(moment(at, at + 60), "09:05:07");
  assert.equal(moment(at, at + 86_400), "2026-01-31 09:05:07");
});

test("below every axis a time reads the same", () => {
  const at = (hours: number, minutes: number, seconds: number) =>
    tick(new Date(2026, 4, 7, hours, minutes, seconds).getTime() / 1000);
  assert.deepEqual([at(15, 15, 0), at(15, 15, 30), at(9, 0, 0), at(0, 0, 0)], ["15:15", "15:15:30", "09:00", "5-07"]);
});
