// Questions to the server, always below the page that asks.

/** What the server did not tell, as a sentence for a person. */
export class Unanswered extends Error {
  readonly status: number;
  constructor(status: number, sentence: string) {
    super(sentence);
    this.status = status;
  }
}

/** How long an answer may take, milliseconds. */
const PATIENCE = 10_000;

/** Asks for `api/NAME`. */
export async function ask<T>(name: string): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch(`api/${name}`, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  } catch {
    throw new Unanswered(0, "The server does not answer.");
  }
  if (!answer.ok) throw new Unanswered(answer.status, refusal(answer.status));
  try {
    return (await answer.json()) as T;
  } catch {
    throw new Unanswered(answer.status, "The server has answered with something that is no JSON.");
  }
}

function refusal(status: number): string {
  switch (status) {
    case 401:
      return "The server wants to know who asks: load the page anew to log in.";
    case 403:
      return "The server does not let this client see its figures any more.";
    case 404:
      return "This server does not tell that.";
    case 503:
      return "The server's figures are not to be had at the moment.";
    default:
      return `The server answers with ${status}.`;
  }
}
