// KDL 2 (https://kdl.dev/spec/), word by word: for colours, and to know where in a document one is. It takes whatever is
// being typed; what is wrong, the server says. Pure.

/** What the tokenizer asks of a line; `StringStream` of CodeMirror does it. */
export interface Line {
  eol(): boolean;
  sol(): boolean;
  next(): string | undefined | void;
  peek(): string | undefined;
  skipToEnd(): void;
  match(pattern: string | RegExp, consume?: boolean): unknown;
  eatSpace(): boolean;
}

/** What a word is. */
export type Kind =
  | "comment"
  | "slashdash"
  | "node"
  | "property"
  | "string"
  | "escape"
  | "number"
  | "keyword"
  | "type"
  | "bracket"
  | "separator"
  | "equals"
  | "value";

export interface State {
  /** How many comments are open, one within the other. */
  comments: number;
  /** The string that is open over the end of a line: its number of `#`, -1 where it has escapes; `null` where none is. */
  open: { hashes: number; isMultiline: boolean } | null;
  /** Whether the next word names a node. */
  isFirst: boolean;
  /** Whether a type is open, between `(` and `)`. */
  isType: boolean;
  /** Whether `\` has led to the next line. */
  isContinued: boolean;
  /** How many braces are open. */
  depth: number;
}

export const begin = (): State => ({
  comments: 0,
  open: null,
  isFirst: true,
  isType: false,
  isContinued: false,
  depth: 0,
});

/** What ends a word that is not between quotes. */
const WORD = /^[^\s\\/(){};[\]"#=]([^\s\\/(){};[\]"#=]|\/(?![/*-]))*/;
const NUMBER =
  /^[+-]?(?:0x[0-9a-fA-F][0-9a-fA-F_]*|0o[0-7][0-7_]*|0b[01][01_]*|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d[\d_]*)?)(?=[\s(){};[\]"#=\\/]|$)/;
const KEYWORD = /^#(?:true|false|null|inf|-inf|nan)(?=[\s(){};[\]"#=\\/]|$)/;

/** Takes one word; `null` for space. */
export function token(line: Line, state: State): Kind | null {
  if (state.comments > 0) return comment(line, state);
  if (state.open) return string(line, state);
  if (line.sol() && !state.isContinued) state.isFirst = true;
  state.isContinued = false;
  if (line.eatSpace()) return null;
  if (line.match("//")) {
    line.skipToEnd();
    return "comment";
  }
  if (line.match("/*")) {
    state.comments = 1;
    return comment(line, state);
  }
  if (line.match("/-")) return "slashdash";
  const quotes = line.match(/^(#*)("""|")/) as RegExpMatchArray | null;
  if (quotes) {
    const hashes = quotes[1]?.length ?? 0;
    state.open = { hashes: hashes || -1, isMultiline: quotes[2] === '"""' };
    return string(line, state);
  }
  if (line.match(KEYWORD)) return after(state, "keyword");
  if (line.match(NUMBER)) return after(state, "number");
  return mark(line, state) ?? word(line, state);
}

/** A sign that stands for itself. */
function mark(line: Line, state: State): Kind | null {
  switch (line.peek()) {
    case "{":
    case "}":
      state.depth = Math.max(0, state.depth + (line.next() === "{" ? 1 : -1));
      state.isFirst = true;
      return "bracket";
    case ";":
      line.next();
      state.isFirst = true;
      return "separator";
    case "(":
    case ")":
      state.isType = line.next() === "(";
      return "type";
    case "=":
      line.next();
      return "equals";
    case "\\":
      line.next();
      state.isContinued = true;
      return "separator";
    default:
      return null;
  }
}

function word(line: Line, state: State): Kind {
  if (!line.match(WORD)) {
    line.next();
    return "value";
  }
  if (state.isType) return "type";
  if (state.isFirst) return after(state, "node");
  return line.match(/^\s*=/, false) ? "property" : "value";
}

/** The word was the first of its node, if any was asked for. */
function after(state: State, kind: Kind): Kind {
  state.isFirst = false;
  return kind;
}

function comment(line: Line, state: State): Kind {
  while (!line.eol() && state.comments > 0) {
    if (line.match("/*")) state.comments += 1;
    else if (line.match("*/")) state.comments -= 1;
    else line.next();
  }
  return "comment";
}

/** A string to its end, or to the end of the line. */
function string(line: Line, state: State): Kind {
  const { open } = state;
  if (!open) return "string";
  const end = (open.isMultiline ? '"""' : '"') + "#".repeat(Math.max(0, open.hashes));
  while (!line.eol()) {
    if (line.match(end)) {
      state.open = null;
      break;
    }
    if (line.next() === "\\" && open.hashes < 0) line.next();
  }
  // A string of one line ends with it, right or wrong: what follows keeps its colours.
  if (line.eol() && !open.isMultiline) state.open = null;
  if (state.open) return "string";
  const isName = state.isFirst && !state.isType;
  state.isFirst = state.isFirst && state.isType;
  if (isName) return "node";
  return line.match(/^\s*=/, false) ? "property" : "string";
}

/** Where in a document an offset is. */
export interface Where {
  /** The directives around it, the outermost first. */
  parents: string[];
  /** The directive that the offset belongs to; `null` where the name of one stands or is wanted. */
  directive: string | null;
  /** What has been written of a word that ends there. */
  word: string;
  /** Whether it is in a string, a comment, or behind the `=` of a property. */
  isText: boolean;
  /** The property whose value stands there. */
  property: string | null;
  /** Arguments of the directive before the offset. */
  before: number;
}

const unquoted = (text: string) => text.replace(/^#*"+|"+#*$/g, "");

/** Reads the document up to `offset`, with lines as `open` makes them of texts. */
export function whereIs(text: string, offset: number, open: (line: string) => Line & Reading): Where {
  const state = begin();
  const where: Where = { parents: [], directive: null, word: "", isText: false, property: null, before: 0 };
  let last: Word = NOTHING;
  for (const content of text.slice(0, offset).split("\n")) {
    const line = open(content);
    enter(where, last);
    last = NOTHING;
    if (!state.isContinued && state.comments === 0 && !state.open) [where.directive, where.property] = [null, null];
    while (!line.eol()) {
      enter(where, last);
      line.start = line.pos;
      const kind = token(line, state);
      last = { kind, text: content.slice(line.start, line.pos) };
    }
  }
  return finished(where, state, last);
}

interface Word {
  kind: Kind | null;
  text: string;
}

const NOTHING: Word = { kind: null, text: "" };

/** Where a line is being read. */
export interface Reading {
  pos: number;
  start: number;
}

/** Follows one word. */
function enter(where: Where, { kind, text }: Word): void {
  if (kind === "node") Object.assign(where, { directive: unquoted(text), property: null, before: 0 });
  else if (text === "{" && kind === "bracket") {
    where.parents.push(where.directive ?? "");
    Object.assign(where, { directive: null, before: 0 });
  } else if (text === "}" && kind === "bracket") {
    where.parents.pop();
    Object.assign(where, { directive: null, before: 0 });
  } else if (text === ";" && kind === "separator") Object.assign(where, { directive: null, before: 0 });
  else if (kind === "property") where.property = unquoted(text);
  else if (kind === "string" || kind === "value" || kind === "number" || kind === "keyword") {
    if (where.property === null) where.before += 1;
    where.property = null;
  }
}

/** What the last word, which may not be whole yet, means. */
function finished(where: Where, state: State, last: Word): Where {
  const { kind, text } = last;
  if (state.comments > 0 || kind === "comment") return { ...where, isText: true };
  const isOpen = state.open !== null || (kind === "string" && !/[^#]"#*$/.test(text));
  if (isOpen) return { ...where, word: text.replace(/^#*"+/, ""), isText: true };
  if (kind === "node") return { ...where, directive: null, word: text, before: 0 };
  if (kind === "value") return { ...where, word: text };
  enter(where, last);
  return where;
}
