// What may stand where in settings, out of the JSON schema of the server. Pure.

/** A part of a JSON schema, as far as it is read here. */
interface Node {
  $ref?: string;
  $comment?: string;
  $defs?: Record<string, Node>;
  description?: string;
  title?: string;
  const?: unknown;
  enum?: unknown[];
  items?: Node | boolean;
  prefixItems?: Node[];
  oneOf?: Node[];
  anyOf?: Node[];
  properties?: Record<string, Node>;
}

/** A directive: what it means, and what may stand behind it. */
export interface Directive {
  name: string;
  docs: string;
  /** A line to begin with, where the schema has one. */
  example: string;
  arguments: Argument[];
  /** Whether there may be more of the last one. */
  isOpenEnded: boolean;
  properties: { name: string; docs: string; values: string[] }[];
  /** Where its children are described; `null` where it has none. */
  children: string | null;
}

export interface Argument {
  title: string;
  docs: string;
  values: string[];
}

export interface Schema {
  /** The directives of the whole document, or within one, by their names. */
  within(parents: readonly string[]): Map<string, Directive> | null;
}

/** Reads what `api/v1/schema` tells; what it does not know is passed over. */
export function schemaOf(told: unknown): Schema {
  const root = (told ?? {}) as Node;
  const read = new Map<string, Map<string, Directive>>();
  const named = (reference: string | undefined) => root.$defs?.[reference?.replace(/^#\/\$defs\//, "") ?? ""];
  const all = (reference: string): Map<string, Directive> => {
    const known = read.get(reference);
    if (known) return known;
    const made = new Map<string, Directive>();
    const { items } = named(reference) ?? {};
    const choices = typeof items === "object" ? (items.oneOf ?? items.anyOf ?? [items]) : [];
    for (const choice of choices) {
      const directive = directiveOf(choice.$ref ? named(choice.$ref) : choice);
      if (directive) made.set(directive.name, directive);
    }
    read.set(reference, made);
    return made;
  };
  return {
    within(parents) {
      let here = all(root.$ref ?? "");
      for (const parent of parents) {
        const children = here.get(parent)?.children;
        if (!children) return null;
        here = all(children);
      }
      return here;
    },
  };
}

function directiveOf(node: Node | undefined): Directive | null {
  const name = node?.properties?.directive?.const;
  if (!node || typeof name !== "string") return null;
  const { arguments: given, properties, children } = node.properties ?? {};
  const rest = typeof given?.items === "object" ? [given.items] : [];
  return {
    name,
    docs: text(node.description),
    example: (node.$comment ?? "").replace(/^in KDL: /, ""),
    arguments: [...(given?.prefixItems ?? []), ...rest].map((item) => ({
      title: item.title ?? "",
      docs: text(item.description),
      values: valuesOf(item),
    })),
    isOpenEnded: rest.length > 0,
    properties: Object.entries(properties?.properties ?? {}).map(([name, item]) => ({
      name,
      docs: text(item.description),
      values: valuesOf(item),
    })),
    children: children?.$ref ?? null,
  };
}

/** A description as a line of text: links lead nowhere here. */
const text = (description = ""): string => description.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1");

/** The values that may stand there, where they can be told one by one. */
function valuesOf(node: Node): string[] {
  const own = node.enum ?? (node.const !== undefined ? [node.const] : []);
  return [...own, ...(node.oneOf ?? node.anyOf ?? []).flatMap(valuesOf)].filter((value) => typeof value === "string");
}

/** The argument that stands at a place; the last one again where there may be more of it. */
export function argumentAt(directive: Directive, place: number): Argument | undefined {
  const { arguments: all, isOpenEnded } = directive;
  return all[place] ?? (isOpenEnded ? all.at(-1) : undefined);
}
