import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { StringStream } from "@codemirror/language";
import { edits, linesOf, merge, resolved, unified } from "../src/settings/diff";
import { begin, token, whereIs } from "../src/settings/kdl";
import { argumentAt, schemaOf } from "../src/settings/schema";

const open = (line: string) => new StringStream(line, 4, 4);

/** Words of a document with their kinds. */
function words(text: string): string[] {
  const state = begin();
  return text.split("\n").flatMap((content) => {
    const line = open(content);
    const found: string[] = [];
    while (!line.eol()) {
      line.start = line.pos;
      const kind = token(line, state);
      assert.ok(line.pos > line.start, `it stands still in ${content}`);
      if (kind) found.push(`${kind} ${content.slice(line.start, line.pos)}`);
    }
    return found;
  });
}

test("KDL 2, word by word", () => {
  assert.deepEqual(words('site "a.test" { root "/srv" follow=#true }'), [
    "node site",
    'string "a.test"',
    "bracket {",
    "node root",
    'string "/srv"',
    "property follow",
    "equals =",
    "keyword #true",
    "bracket }",
  ]);
  assert.deepEqual(words("/* a /* b */\n c */ x 0x1f -1_000.5e3 10ms"), [
    "comment /* a /* b */",
    "comment  c */",
    "node x",
    "number 0x1f",
    "number -1_000.5e3",
    "value 10ms",
  ]);
  assert.deepEqual(words('a #"no "end" \\"# "\\"" /-b\nc \\\n  d; e'), [
    "node a",
    'string #"no "end" \\"#',
    'string "\\""',
    "slashdash /-",
    "value b",
    "node c",
    "separator \\",
    "value d",
    "separator ;",
    "node e",
  ]);
  assert.deepEqual(words('x """\n  one "two"\n  """ (u8)y\n"quoted" 1'), [
    "node x",
    'string """',
    'string   one "two"',
    'string   """',
    "type (",
    "type u8",
    "type )",
    "value y",
    'node "quoted"',
    "number 1",
  ]);
});

test("whatever is typed, each step takes something, and a line with an open string ends it", () => {
  for (const text of ['a "b', "##", "a #", "(", "a=", "\\", '"""', "[]", "/", "a #tru", "\u{1f600} {", '#"', "]"])
    words(text);
  assert.deepEqual(words('a "b\nc'), ["node a", 'string "b', "node c"]);
});

test("where one is in a document", () => {
  const at = (text: string) => {
    const { parents, directive, word, isText, property, before } = whereIs(text, text.length, open);
    return [parents.join("/"), directive, word, isText, property, before];
  };
  assert.deepEqual(at("li"), ["", null, "li", false, null, 0]);
  assert.deepEqual(at("limits {\n  bo"), ["limits", null, "bo", false, null, 0]);
  assert.deepEqual(at('site "a" { route "/x" { expires "1d" }\n ro'), ["site", null, "ro", false, null, 0]);
  assert.deepEqual(at('compress "br" "z'), ["", "compress", "z", true, null, 1]);
  assert.deepEqual(at("compress br z"), ["", "compress", "z", false, null, 1]);
  assert.deepEqual(at('error-log "x" level="in'), ["", "error-log", "in", true, "level", 1]);
  assert.deepEqual(at("error-log level="), ["", "error-log", "", false, "level", 0]);
  assert.deepEqual(at("// site { x"), ["", null, "", true, null, 0]);
  assert.deepEqual(at("a {} } b { "), ["b", null, "", false, null, 0]);
});

test("what the schema of the server knows", () => {
  const schema = schemaOf(JSON.parse(readFileSync("../docs/reference/settings.schema.json", "utf8")));
  const top = schema.within([]);
  assert.ok(top?.get("site")?.docs.startsWith("A virtual server"));
  const route = schema.within(["site", "route"]);
  assert.ok(route && route.size > 40 && route.has("expires"));
  assert.equal(schema.within(["workers"]), null);
  const challenge = schema.within(["acme"])?.get("challenge");
  assert.ok(challenge && argumentAt(challenge, 3)?.values.includes("dns-01"));
  const log = top?.get("error-log");
  assert.ok(log?.properties.find(({ name }) => name === "level")?.values.includes("info"));
  assert.match(top?.get("statistics")?.docs ?? "", /what there was \(watching\)/);
  assert.equal(schemaOf(null).within([])?.size, 0);
});

test("edits lead from one text to the other, and are as few as may be", () => {
  let seed = 7;
  const random = (most: number) => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed % most;
  };
  for (let round = 0; round < 300; round += 1) {
    const a = Array.from({ length: random(12) }, () => "abcd"[random(4)] ?? "");
    const b = Array.from({ length: random(12) }, () => "abcd"[random(4)] ?? "");
    const made = [...a];
    let changed = 0;
    for (const { aFrom, aTo, bFrom, bTo } of edits(a, b).reverse()) {
      made.splice(aFrom, aTo - aFrom, ...b.slice(bFrom, bTo));
      changed += aTo - aFrom + (bTo - bFrom);
    }
    assert.deepEqual(made, b);
    assert.equal(changed, a.length + b.length - 2 * longestCommon(a, b), `${a.join("")} ${b.join("")}`);
  }
  const [one, other] = [linesOf("x\n".repeat(4000)), linesOf("y\n".repeat(4000))];
  assert.equal(edits(one, other).length, 1, "what has nothing in common is replaced as a whole");
});

function longestCommon(a: string[], b: string[]): number {
  const table = Array.from({ length: a.length + 1 }, () => new Array<number>(b.length + 1).fill(0));
  for (let i = 1; i <= a.length; i += 1) {
    for (let j = 1; j <= b.length; j += 1) {
      const row = table[i] ?? [];
      row[j] =
        a[i - 1] === b[j - 1] ? (table[i - 1]?.[j - 1] ?? 0) + 1 : Math.max(table[i - 1]?.[j] ?? 0, row[j - 1] ?? 0);
    }
  }
  return table[a.length]?.[b.length] ?? 0;
}

test("a difference as diff -u writes it", () => {
  const before = Array.from({ length: 20 }, (_, index) => `line ${index}`).join("\n");
  const after = before.replace("line 3", "line three").replace("line 15", "line fifteen");
  assert.deepEqual(unified(before, after, 1), [
    "@@ -3,3 +3,3 @@",
    " line 2",
    "-line 3",
    "+line three",
    " line 4",
    "@@ -15,3 +15,3 @@",
    " line 14",
    "-line 15",
    "+line fifteen",
    " line 16",
  ]);
  assert.deepEqual(unified(before, before), []);
});

test("two who have changed the same text", () => {
  const base = "a\nb\nc\nd\ne";
  const parts = merge(base, "a\nB\nc\nd\ne", "a\nb\nc\nD\ne");
  assert.equal(resolved(parts, []), "a\nB\nc\nD\ne");
  const fight = merge(base, "a\nb\nmine\nd\ne", "a\nb\ntheirs\nd\ne\nf");
  assert.deepEqual(
    fight.map(({ by }) => by),
    ["none", "each", "none", "theirs"],
  );
  assert.equal(resolved(fight, ["mine"]), "a\nb\nmine\nd\ne\nf");
  assert.equal(resolved(fight, ["theirs"]), "a\nb\ntheirs\nd\ne\nf");
  assert.equal(resolved(fight, ["both"]), "a\nb\ntheirs\nmine\nd\ne\nf");
  assert.deepEqual(
    merge(base, "x", "x").map(({ by }) => by),
    ["both"],
  );
  for (const [mine, theirs] of [
    ["", base],
    [base, ""],
    ["b\na", "a"],
    ["a\nb\nb\nc", "c\nb\na"],
  ] as const) {
    const all = merge(base, mine, theirs);
    assert.equal(all.flatMap((part) => part.mine).join("\n"), mine, "nothing of mine is lost");
    assert.equal(all.flatMap((part) => part.theirs).join("\n"), theirs);
    assert.equal(all.flatMap((part) => part.base).join("\n"), base);
  }
});
