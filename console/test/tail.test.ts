import assert from "node:assert/strict";
import { test } from "node:test";
import { KEPT, type Ended, keep, rowOf } from "../src/pages/tail-rows";
import { Events } from "../src/stream";

test("events, in whatever pieces they come", () => {
  const text = ': hello\r\n\r\ndata: {"a":1}\n\nevent: revision\ndata: one\ndata:two\nid: 7\n\ndata\n\n';
  const expected = [
    { name: "message", data: '{"a":1}' },
    { name: "revision", data: "one\ntwo" },
    { name: "message", data: "" },
  ];
  for (let size = 1; size <= text.length; size += 1) {
    const events = new Events();
    const got = [];
    for (let at = 0; at < text.length; at += size) got.push(...events.feed(text.slice(at, at + size)));
    assert.deepEqual(got, expected, `pieces of ${size}`);
  }
});

test("an event without an end takes no more than its bound, and those behind it are told", () => {
  const events = new Events();
  for (let round = 0; round < 40; round += 1) assert.deepEqual(events.feed("x".repeat(32 * 1024)), []);
  assert.deepEqual(events.feed("\n\n"), []);
  assert.deepEqual(events.feed("data: 1\n\n"), [{ name: "message", data: "1" }]);
});

test("what the tail tells of a request; what is no such line is passed over", () => {
  const line =
    '{"at":1.5,"took":0.1,"status":502,"sent":9,"site":"a","route":"/x","upstreams":[{"address":"b:1"}],"host":7}';
  const row = rowOf(line, 3);
  assert.deepEqual(row, {
    number: 3,
    at: 1.5,
    took: 0.1,
    status: 502,
    sent: 9,
    site: "a",
    route: "/x",
    upstream: "b:1",
  });
  assert.deepEqual(rowOf('{"lost":120}', 1), { lost: 120 });
  for (const other of ["", "null", "[]", "7", "{}", '{"at":"x","status":1}', "{"]) assert.equal(rowOf(other, 1), null);
});

test("the newest rows are kept", () => {
  const row = (number: number) => ({ number }) as Ended;
  let rows: Ended[] = [];
  for (let number = 1; number <= KEPT + 5; number += 1) rows = keep(rows, [row(number)]);
  assert.equal(rows.length, KEPT);
  assert.equal(rows[0]?.number, KEPT + 5);
});
