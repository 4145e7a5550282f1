import assert from "node:assert/strict";
import { test } from "node:test";
import { format, parse } from "../src/route";

test("an address says the page, and what is chosen on it", () => {
  const place = parse("#/sites?range=6h&at=1700000000&filter=a%26b+%2F*&sort=-p99");
  assert.deepEqual(place, { page: "sites", range: "6h", at: 1_700_000_000, filter: "a&b /*", sort: "-p99" });
  assert.deepEqual(parse(format(place)), place);
});

test("what means nothing is passed over", () => {
  const first = { page: "overview", range: "10m", at: null, filter: "", sort: "" };
  for (const hash of ["", "#", "#/", "#/nowhere?range=9y&at=-3", "#/overview?at=x", "#?%%%"]) {
    assert.deepEqual(parse(hash), first, hash);
  }
  assert.equal(format(parse("")), "#/overview");
});
