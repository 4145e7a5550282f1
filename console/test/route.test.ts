import assert from "node:assert/strict";
import { test } from "node:test";
import { format, parse, reaching } from "../src/route";

test("an address says the page, and what is chosen on it", () => {
  const place = parse("#/sites?range=6h&at=1700000000&filter=a%26b+%2F*&sort=-p99&from=17&until=19");
  assert.deepEqual(place, {
    page: "sites",
    range: "6h",
    at: 1_700_000_000,
    from: 17,
    until: 19,
    filter: "a&b /*",
    sort: "-p99",
  });
  assert.deepEqual(parse(format(place)), place);
});

test("what means nothing is passed over", () => {
  const first = { page: "overview", range: "10m", at: null, from: null, until: null, filter: "", sort: "" };
  for (const hash of [
    "",
    "#",
    "#/",
    "#/nowhere?range=9y&at=-3",
    "#/overview?at=x",
    "#/overview?from=9&until=3",
    "#/overview?from=9",
    "#?%%%",
  ]) {
    assert.deepEqual(parse(hash), first, hash);
  }
  assert.equal(format(parse("")), "#/overview");
});

test("a moment that is long ago is looked for where it is still remembered", () => {
  const range = (hash: string) => reaching(parse(hash), 2_000_000).range;
  assert.equal(range("#/overview?at=1999500"), "10m");
  assert.equal(range("#/overview?at=1990000"), "6h");
  assert.equal(range("#/overview?from=1900000&until=1999999"), "14d");
  assert.equal(range("#/overview?at=5"), "days");
  assert.equal(range("#/overview?at=1999999&range=14d"), "14d");
});
