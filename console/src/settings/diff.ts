// Which lines two texts have in common (Myers, "An O(ND) Difference Algorithm and Its Variations", 1986), and what comes
// of two changes of the same text. Pure.

/** Lines `aFrom` to `aTo` of the first text have become lines `bFrom` to `bTo` of the second. */
export interface Edit {
  aFrom: number;
  aTo: number;
  bFrom: number;
  bTo: number;
}

/** Texts that differ in more lines than this are told apart roughly. */
const MOST = 800;

/** The lines of a text; what ends with a line feed has an empty one at the end, so that joining gives it back. */
export const linesOf = (text: string): string[] => text.split("\n");

/** What has to be changed to make `b` of `a`, in order. */
export function edits(a: readonly string[], b: readonly string[]): Edit[] {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let [aEnd, bEnd] = [a.length, b.length];
  while (aEnd > start && bEnd > start && a[aEnd - 1] === b[bEnd - 1]) [aEnd, bEnd] = [aEnd - 1, bEnd - 1];
  if (start === aEnd && start === bEnd) return [];
  const pairs = common(a.slice(start, aEnd), b.slice(start, bEnd));
  if (!pairs) return [{ aFrom: start, aTo: aEnd, bFrom: start, bTo: bEnd }];
  const made: Edit[] = [];
  let [x, y] = [0, 0];
  for (const [i, j] of [...pairs, [aEnd - start, bEnd - start] as const]) {
    if (i > x || j > y) made.push({ aFrom: start + x, aTo: start + i, bFrom: start + y, bTo: start + j });
    [x, y] = [i + 1, j + 1];
  }
  return made;
}

/** Lines that stay, as pairs of their places; `null` where too much differs. */
function common(a: string[], b: string[]): [number, number][] | null {
  const reached: Map<number, number>[] = [];
  let furthest = new Map([[1, 0]]);
  for (let steps = 0; steps <= Math.min(a.length + b.length, MOST); steps += 1) {
    reached.push(new Map(furthest));
    for (let k = -steps; k <= steps; k += 2) {
      const [down, right] = [furthest.get(k + 1) ?? -1, furthest.get(k - 1) ?? -1];
      let x = k === -steps || (k !== steps && right < down) ? down : right + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
      furthest.set(k, x);
      if (x >= a.length && x - k >= b.length) return traced(reached, a.length, b.length);
    }
    furthest = new Map([...furthest].filter(([k]) => Math.abs(k) <= steps + 1));
  }
  return null;
}

/** The way back from the ends of both texts. */
function traced(reached: Map<number, number>[], aLength: number, bLength: number): [number, number][] {
  const pairs: [number, number][] = [];
  let [x, y] = [aLength, bLength];
  for (let steps = reached.length - 1; steps >= 0; steps -= 1) {
    const furthest = reached[steps] ?? new Map<number, number>();
    const k = x - y;
    const [down, right] = [furthest.get(k + 1) ?? -1, furthest.get(k - 1) ?? -1];
    const before = k === -steps || (k !== steps && right < down) ? k + 1 : k - 1;
    const fromX = steps === 0 ? 0 : (furthest.get(before) ?? 0);
    const fromY = steps === 0 ? 0 : fromX - before;
    while (x > fromX && y > fromY) {
      [x, y] = [x - 1, y - 1];
      pairs.push([x, y]);
    }
    [x, y] = [fromX, fromY];
  }
  return pairs.reverse();
}

/** A difference as `diff -u` writes it, without the names of files; empty where there is none. */
export function unified(before: string, after: string, context = 3): string[] {
  const [a, b] = [linesOf(before), linesOf(after)];
  const written: string[] = [];
  let group: Edit[] = [];
  const flush = () => {
    const [first, last] = [group[0], group.at(-1)];
    if (!first || !last) return;
    const [aStart, bStart] = [Math.max(0, first.aFrom - context), Math.max(0, first.bFrom - context)];
    const [aStop, bStop] = [Math.min(a.length, last.aTo + context), Math.min(b.length, last.bTo + context)];
    written.push(`@@ -${aStart + 1},${aStop - aStart} +${bStart + 1},${bStop - bStart} @@`);
    let at = aStart;
    for (const { aFrom, aTo, bFrom, bTo } of group) {
      written.push(...a.slice(at, aFrom).map((line) => ` ${line}`));
      written.push(...a.slice(aFrom, aTo).map((line) => `-${line}`), ...b.slice(bFrom, bTo).map((line) => `+${line}`));
      at = aTo;
    }
    written.push(...a.slice(at, aStop).map((line) => ` ${line}`));
    group = [];
  };
  for (const edit of edits(a, b)) {
    const last = group.at(-1);
    if (last && edit.aFrom - last.aTo > 2 * context) flush();
    group.push(edit);
  }
  flush();
  return written;
}

/** A part of a text that two have changed: by none of them, one of them, both in the same way, or each in their own. */
export interface Part {
  by: "none" | "mine" | "theirs" | "both" | "each";
  base: string[];
  mine: string[];
  theirs: string[];
}

/** What two have made of the same text, part by part. */
export function merge(base: string, mine: string, theirs: string): Part[] {
  const [o, a, b] = [linesOf(base), linesOf(mine), linesOf(theirs)];
  const [ofMine, ofTheirs] = [edits(o, a), edits(o, b)];
  const parts: Part[] = [];
  let [at, i, j] = [0, 0, 0];
  let [aShift, bShift] = [0, 0];
  while (i < ofMine.length || j < ofTheirs.length) {
    const from = Math.min(ofMine[i]?.aFrom ?? Infinity, ofTheirs[j]?.aFrom ?? Infinity);
    if (from > at) {
      const same = o.slice(at, from);
      parts.push({ by: "none", base: same, mine: same, theirs: same });
    }
    // Everything that touches belongs together.
    let to = from;
    const [aStart, bStart] = [from + aShift, from + bShift];
    const [iFrom, jFrom] = [i, j];
    for (;;) {
      const [one, other] = [ofMine[i], ofTheirs[j]];
      if (one && one.aFrom <= to) {
        to = Math.max(to, one.aTo);
        aShift += one.bTo - one.bFrom - (one.aTo - one.aFrom);
        i += 1;
      } else if (other && other.aFrom <= to) {
        to = Math.max(to, other.aTo);
        bShift += other.bTo - other.bFrom - (other.aTo - other.aFrom);
        j += 1;
      } else break;
    }
    const part = { base: o.slice(from, to), mine: a.slice(aStart, to + aShift), theirs: b.slice(bStart, to + bShift) };
    const isSame = part.mine.join("\n") === part.theirs.join("\n") && part.mine.length === part.theirs.length;
    const by = i === iFrom ? "theirs" : j === jFrom ? "mine" : isSame ? "both" : "each";
    parts.push({ by, ...part });
    at = to;
  }
  if (at < o.length) parts.push({ by: "none", base: o.slice(at), mine: o.slice(at), theirs: o.slice(at) });
  return parts;
}

/** Whose lines are taken where each has changed the same ones. */
export type Choice = "mine" | "theirs" | "both";

/** The text that comes of it; `choices` has one for each part that each has changed, in order. */
export function resolved(parts: Part[], choices: readonly Choice[]): string {
  let next = 0;
  return parts
    .flatMap(({ by, mine, theirs }) => {
      if (by === "theirs") return theirs;
      if (by !== "each") return mine;
      const choice = choices[next++] ?? "mine";
      return choice === "both" ? [...theirs, ...mine] : choice === "mine" ? mine : theirs;
    })
    .join("\n");
}
