// Which requests are meant: conditions that all have to hold, as the server reads them. Pure.

export interface Chosen {
  site: string;
  route: string;
  client: string;
  upstream: string;
  /** They have taken as long already, or longer. */
  seconds: string;
}

/** Whether there is no condition: all requests of the server are never meant. */
export const isEverything = (chosen: Chosen): boolean => Object.values(chosen).every((value) => value === "");

/** `NAME=VALUE` for each condition, with tabs between them. */
export function selectionOf({ seconds, ...texts }: Chosen): string {
  const named = Object.entries(texts).filter(([, value]) => value !== "");
  for (const [name, value] of named) {
    if (/[\u0000-\u001f\u007f]/.test(value)) throw new Error(`The ${name} has a sign in it that no name has.`);
  }
  if (seconds === "") return named.map(([name, value]) => `${name}=${value}`).join("\t");
  const number = Number(seconds);
  if (!(number >= 0 && number < 1e9)) throw new Error(`\`${seconds}\` is no number of seconds.`);
  return [...named.map(([name, value]) => `${name}=${value}`), `at-least=${Math.round(number * 1000)}`].join("\t");
}
