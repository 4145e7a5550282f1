// The frame around every page: where one can go, what is asked for, and what is wrong.

import { effect } from "@preact/signals";
import type { FunctionComponent } from "preact";
import { useEffect } from "preact/hooks";
import { isOffered, isSessionKnown, session } from "./admin";
import { duration } from "./format";
import { onKey } from "./keys";
import { paused, report, trouble } from "./live";
import { Caches } from "./pages/caches";
import { Certificates } from "./pages/certificates";
import { Explain } from "./pages/explain";
import { Limits } from "./pages/limits";
import { Overview } from "./pages/overview";
import { Pools } from "./pages/pools";
import { Requests } from "./pages/requests";
import { Settings } from "./pages/settings";
import { Sites } from "./pages/sites";
import { SlowRequests } from "./pages/slow";
import { Tail } from "./pages/tail";
import { Confirm, Outcome } from "./parts/confirm";
import { PendingBanner } from "./parts/pending";
import { PAGES, type Page, RANGES, type Range, format, go, place } from "./route";

const SHOWN: Record<Page, [title: string, page: FunctionComponent]> = {
  overview: ["Overview", Overview],
  sites: ["Sites and routes", Sites],
  requests: ["In flight", Requests],
  slow: ["Slow", SlowRequests],
  pools: ["Pools", Pools],
  caches: ["Caches", Caches],
  limits: ["Limits", Limits],
  certificates: ["Certificates", Certificates],
  tail: ["Tail", Tail],
  settings: ["Settings", Settings],
  explain: ["Explain", Explain],
};

const RANGE_NAMES: Record<Range, string> = { "10m": "10 min", "6h": "6 h", "14d": "14 d", days: "years" };

effect(() => {
  document.title = `${SHOWN[place.value.page][0]} – Tidegate console`;
});

export function App() {
  const { page } = place.value;
  const [title, Shown] = SHOWN[page];
  useEffect(() => {
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  return (
    <>
      <a class="skip" href="#main" onClick={toMain}>
        To the figures
      </a>
      <header>
        <Name />
        <nav aria-label="Pages">
          {PAGES.filter(isOffered).map((name) => (
            <a
              key={name}
              href={format({ ...place.value, page: name, filter: "", sort: "" })}
              aria-current={name === page ? "page" : undefined}
            >
              {SHOWN[name][0]}
            </a>
          ))}
        </nav>
      </header>
      <main id="main" tabIndex={-1}>
        <div class="title">
          <h1>{title}</h1>
          <Controls page={page} />
        </div>
        <Trouble />
        <PendingBanner />
        <Outcome />
        <Content page={page} Shown={Shown} />
      </main>
      <Confirm />
    </>
  );
}

function Content({ page, Shown }: { page: Page; Shown: FunctionComponent }) {
  if (!report.value) return trouble.value ? null : <p class="empty">Asking the server …</p>;
  if (isOffered(page)) return <Shown />;
  if (!isSessionKnown.value) return <p class="empty">Asking the server …</p>;
  return (
    <p class="empty">
      {session.value
        ? `${session.value.user} may not see this page.`
        : "This server has no admin API, or does not tell you of it: tidegate docs console says how that is asked for."}
    </p>
  );
}

function toMain(event: Event) {
  // The part behind `#` is the page that is shown, so the link must not change it.
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function Name() {
  const server = report.value?.server;
  return (
    <p class="name">
      <strong>Tidegate</strong>{" "}
      {server && (
        <span>
          {server.version} · {server.state} for {duration(server.uptime)} · revision {server.revision}
        </span>
      )}
    </p>
  );
}

/** Pages without figures that could stand still. */
const OTHERS: readonly Page[] = ["tail", "settings", "explain"];

function Controls({ page }: { page: Page }) {
  if (OTHERS.includes(page)) return null;
  return (
    <div class="controls">
      {page === "overview" && <Ranges />}
      <button type="button" aria-pressed={paused.value} onClick={() => (paused.value = !paused.value)}>
        {paused.value ? "Go on" : "Pause"}
      </button>
    </div>
  );
}

function Ranges() {
  return (
    <div role="group" aria-label="Time range of graphs">
      {RANGES.map((range) => (
        <button
          type="button"
          key={range}
          aria-pressed={place.value.range === range}
          onClick={() => go({ range, at: null, from: null, until: null })}
        >
          {RANGE_NAMES[range]}
        </button>
      ))}
    </div>
  );
}

function Trouble() {
  return (
    <div role="status">
      {trouble.value && <p class="trouble">{trouble.value} What is shown is what it told last.</p>}
      {paused.value && <p class="note">Paused: the figures stand still.</p>}
    </div>
  );
}
