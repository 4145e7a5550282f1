// The editor of one text at a time: CodeMirror below a shadow root, where its styles need no exception from the policy
// of the page.

import {
  type Completion,
  type CompletionContext,
  type CompletionResult,
  autocompletion,
  closeBrackets,
  closeBracketsKeymap,
  completionKeymap,
} from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import {
  HighlightStyle,
  StreamLanguage,
  StringStream,
  bracketMatching,
  indentUnit,
  syntaxHighlighting,
} from "@codemirror/language";
import { type Diagnostic as Shown, lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { EditorState, type Extension, type Text } from "@codemirror/state";
import {
  EditorView,
  drawSelection,
  highlightActiveLine,
  hoverTooltip,
  keymap,
  lineNumbers,
  tooltips,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";
import type { Diagnostic } from "../admin";
import { begin, token, whereIs } from "./kdl";
import { type Directive, type Schema, argumentAt } from "./schema";

const INDENT = 4;

const kdl = StreamLanguage.define({
  name: "kdl",
  startState: begin,
  copyState: (state) => ({ ...state }),
  token: (line, state) => token(line, state),
  indent: (state, after) => INDENT * Math.max(0, state.depth - (/^\s*\}/.test(after) ? 1 : 0)),
  languageData: { commentTokens: { line: "//", block: { open: "/*", close: "*/" } }, indentOnInput: /^\s*\}$/ },
  tokenTable: {
    comment: tags.comment,
    slashdash: tags.invalid,
    node: tags.tagName,
    property: tags.attributeName,
    string: tags.string,
    number: tags.number,
    keyword: tags.keyword,
    type: tags.typeName,
    bracket: tags.bracket,
    separator: tags.separator,
    equals: tags.operator,
    value: tags.string,
  },
});

const colours = HighlightStyle.define([
  { tag: tags.comment, color: "var(--faint)", fontStyle: "italic" },
  { tag: tags.invalid, color: "var(--bad)" },
  { tag: tags.tagName, color: "var(--link)", fontWeight: "600" },
  { tag: tags.attributeName, color: "var(--property)" },
  { tag: tags.string, color: "var(--good)" },
  { tag: [tags.number, tags.keyword], color: "var(--bad)" },
]);

const theme = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--card)", height: "100%", fontSize: "13.5px" },
  "&.cm-focused": { outline: "2px solid var(--link)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "ui-monospace, monospace", lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--card)", color: "var(--faint)", borderRight: "1px solid var(--line)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  "&.cm-focused .cm-activeLine": { boxShadow: "inset 0 0 0 1px var(--line)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    background: "color-mix(in srgb, var(--link) 25%, transparent)",
  },
  ".cm-selectionMatch": { backgroundColor: "color-mix(in srgb, var(--c3) 22%, transparent)" },
  ".cm-panels": { backgroundColor: "var(--page)", color: "var(--text)" },
  ".cm-textfield, .cm-button": { backgroundColor: "var(--card)", backgroundImage: "none", color: "var(--text)" },
  ".cm-tooltip": { backgroundColor: "var(--card)", border: "1px solid var(--faint)", color: "var(--text)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--link)", color: "var(--card)" },
  ".cm-tooltip.cm-completionInfo, .docs": { maxWidth: "34rem", padding: "0.4rem 0.6rem", whiteSpace: "pre-line" },
  ".docs": { font: "14px/1.4 system-ui, sans-serif", maxHeight: "18rem", overflow: "auto" },
  ".docs code": { display: "block", marginTop: "0.3rem", color: "var(--faint)" },
});

/** What the editor tells of. */
export interface Told {
  changed(path: string, text: string): void;
}

export class Editor {
  private readonly view: EditorView;
  private readonly extensions: Extension;
  private readonly states = new Map<string, EditorState>();
  private path = "";
  private isOurs = false;

  constructor(
    host: HTMLElement,
    schema: () => Schema | null,
    private readonly told: Told,
  ) {
    const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
    const place = document.createElement("div");
    place.style.height = "100%";
    root.replaceChildren(place);
    this.extensions = extensionsOf(
      schema,
      (text) => this.told.changed(this.path, text),
      () => this.isOurs,
    );
    this.view = new EditorView({ parent: place, root, state: EditorState.create({ doc: "" }) });
  }

  /** Shows a file; what was typed before can still be taken back in it. */
  show(path: string, text: string): void {
    if (this.path !== path) {
      this.states.set(this.path, this.view.state);
      this.path = path;
      const label = EditorView.contentAttributes.of({ "aria-label": path });
      this.view.setState(
        this.states.get(path) ?? EditorState.create({ doc: text, extensions: [this.extensions, label] }),
      );
    }
    const { doc } = this.view.state;
    if (doc.toString() === text) return;
    // It was changed elsewhere: what is the same at both ends keeps its place, and the cursor with it.
    const now = doc.toString();
    let from = 0;
    while (from < now.length && from < text.length && now[from] === text[from]) from += 1;
    let end = 0;
    while (end < Math.min(now.length, text.length) - from && now.at(-1 - end) === text.at(-1 - end)) end += 1;
    this.isOurs = true;
    this.view.dispatch({ changes: { from, to: now.length - end, insert: text.slice(from, text.length - end) } });
    this.isOurs = false;
  }

  /** Marks the mistakes of the file that is shown. */
  mark(diagnostics: readonly Diagnostic[]): void {
    const { state } = this.view;
    const shown = diagnostics.filter(({ file }) => file === this.path).map((told) => placed(state.doc, told));
    this.view.dispatch(setDiagnostics(state, shown));
  }

  /** Puts the cursor to a place; lines and columns from 1. */
  goTo(line: number | null, column: number | null): void {
    const at = offset(this.view.state.doc, line, column);
    this.view.dispatch({ selection: { anchor: at }, effects: EditorView.scrollIntoView(at, { y: "center" }) });
    this.view.focus();
  }

  destroy(): void {
    this.view.destroy();
  }
}

function extensionsOf(schema: () => Schema | null, changed: (text: string) => void, isOurs: () => boolean): Extension {
  return [
    lineNumbers(),
    history(),
    drawSelection(),
    indentUnit.of(" ".repeat(INDENT)),
    kdl,
    syntaxHighlighting(colours),
    theme,
    bracketMatching(),
    closeBrackets(),
    autocompletion({ override: [(context) => complete(context, schema())], icons: false }),
    hoverTooltip((view, at) => hover(view.state, at, schema())),
    tooltips({ position: "absolute" }),
    highlightActiveLine(),
    highlightSelectionMatches(),
    search({ top: true }),
    lintGutter(),
    keymap.of([
      ...closeBracketsKeymap,
      ...defaultKeymap,
      ...searchKeymap,
      ...historyKeymap,
      ...completionKeymap,
      ...lintKeymap,
    ]),
    EditorView.lineWrapping,
    EditorView.updateListener.of((update) => {
      if (update.docChanged && !isOurs()) changed(update.state.doc.toString());
    }),
  ];
}

/** Of a line and a column in characters; the nearest place that there is. */
function offset(doc: Text, line: number | null, column: number | null): number {
  const at = doc.line(Math.min(Math.max(1, line ?? 1), doc.lines));
  const characters = Array.from(at.text).slice(0, Math.max(0, (column ?? 1) - 1));
  return at.from + characters.join("").length;
}

function placed(doc: Text, told: Diagnostic): Shown {
  const { line, column, end_line, end_column, severity, message, help } = told;
  const from = offset(doc, line, column);
  const end = end_line && end_column ? offset(doc, end_line, end_column) : from + 1;
  const to = Math.min(doc.length, Math.max(end, from));
  return {
    from,
    to,
    severity: severity === "notice" ? "info" : severity,
    message: help ? `${message}\n${help}` : message,
  };
}

const open = (line: string) => new StringStream(line, INDENT, INDENT);

/** What may stand where the cursor is. */
function complete(context: CompletionContext, schema: Schema | null): CompletionResult | null {
  const { state, pos, explicit } = context;
  const where = whereIs(state.doc.sliceString(0, pos), pos, open);
  const around = schema?.within(where.parents);
  if (!around || (!where.word && !explicit)) return null;
  const from = pos - where.word.length;
  if (!where.directive) {
    if (where.isText) return null;
    const options = [...around.values()].map((directive): Completion => ({
      label: directive.name,
      detail: directive.children ? "{ }" : "",
      info: () => docsOf(directive),
    }));
    return { from, options, validFor: /^[\w-]*$/ };
  }
  const directive = around.get(where.directive);
  if (!directive) return null;
  return { from, options: behind(directive, where), validFor: /^[\w.#/-]*$/ };
}

/** Values and properties that may stand behind a directive. */
function behind(directive: Directive, where: ReturnType<typeof whereIs>): Completion[] {
  const of =
    where.property === null
      ? argumentAt(directive, where.before)
      : directive.properties.find(({ name }) => name === where.property);
  const values = (of?.values ?? []).map((value): Completion => ({
    label: value,
    info: of?.docs ?? "",
    apply: where.isText ? value : `"${value}"`,
    boost: 1,
  }));
  if (where.isText || where.property !== null) return values;
  const properties = directive.properties.map(({ name, docs }): Completion => ({
    label: name,
    detail: "=",
    info: docs,
    apply: `${name}=`,
    type: "property",
  }));
  return [...values, ...properties];
}

/** What the word under the pointer means. */
function hover(state: EditorState, at: number, schema: Schema | null) {
  const word = state.wordAt(at);
  const line = state.doc.lineAt(at);
  const name = /[\w-]*$/.exec(line.text.slice(0, at - line.from))?.[0] ?? "";
  const rest = /^[\w-]*/.exec(line.text.slice(at - line.from))?.[0] ?? "";
  const [from, to] = [at - name.length, at + rest.length];
  if (!schema || !word || from === to) return null;
  const where = whereIs(state.doc.sliceString(0, to), to, open);
  const around = schema.within(where.parents);
  const whole = state.doc.sliceString(from, to);
  const directive = where.directive === null && !where.isText ? around?.get(whole) : undefined;
  const property = where.directive
    ? around?.get(where.directive)?.properties.find(({ name }) => name === whole && !where.isText)
    : undefined;
  if (!directive && !property) return null;
  return {
    pos: from,
    end: to,
    above: true,
    create: () => ({ dom: directive ? docsOf(directive) : paragraph(property?.docs ?? "") }),
  };
}

function paragraph(text: string): HTMLElement {
  const dom = document.createElement("div");
  dom.className = "docs";
  dom.textContent = text;
  return dom;
}

/** The documentation of a directive, with a line to begin with. */
function docsOf({ docs, example }: Directive): HTMLElement {
  const dom = paragraph(docs);
  if (example) {
    const code = document.createElement("code");
    code.textContent = example;
    dom.append(code);
  }
  return dom;
}
