// What a purge takes, as the admin API is told of it. Pure.

export const KINDS = ["url", "prefix", "host", "tag", "group", "all"] as const;
export type Kind = (typeof KINDS)[number];

export interface Wanted {
  kind: Kind;
  /** The URL, host, tag or group. */
  name: string;
  /** Of a tag or a group: the host whose responses are meant; empty: all. */
  host: string;
  /** Kept as stale, until the application has confirmed it. */
  isSoft: boolean;
}

/** What each kind is of, with an example. */
export const MEANT: Record<Kind, [title: string, what: string, example: string]> = {
  url: ["URL", "one URL, with all its variants", "https://example.com/news"],
  prefix: ["Prefix", "what begins so", "https://example.com/blog/"],
  host: ["Host", "all of a host", "example.com"],
  tag: ["Tag", "what the application has given this tag", "post-17"],
  group: ["Group", "what is in this group (Cache-Groups)", "images"],
  all: ["All", "all that is stored here", ""],
};

/** The content of `POST caches/purge`, or a sentence that says what is missing. */
export function contentOf(store: string, { kind, name, host, isSoft }: Wanted): Record<string, unknown> | string {
  if (kind !== "all" && name === "") return `Say which ${MEANT[kind][0].toLowerCase()} is meant.`;
  if ((kind === "url" || kind === "prefix") && !/^https?:\/\/[^/]/i.test(name))
    return "A URL begins with http:// or https:// and a host.";
  const named = host === "" ? { name } : { name, host };
  const what = kind === "all" ? "all" : { [kind]: kind === "tag" || kind === "group" ? named : name };
  return { what, is_soft: isSoft, store };
}

/** What has come of it. */
export function outcomeOf(entries: number, isSoft: boolean, isMarked: boolean): string {
  const what = isSoft ? "asked about before it is used again" : "gone";
  const many = entries === 1 ? "One response in memory is" : `${entries} responses in memory are`;
  const found = entries === 0 ? "No response in memory is meant" : `${many} ${what}`;
  if (!isMarked) return `${found}.`;
  const rest = isSoft ? "is asked about as well" : "is never sent again either";
  return `${found}; what lies on a disk alone was not counted, and ${rest}.`;
}
