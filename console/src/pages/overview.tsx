// What the server does: what limits it first, then figures of this moment, then graphs.

import { bytes, count, duration, moment, percent, whole } from "../format";
import { heat, latest, processes, remembers, report, series, sites } from "../live";
import { Chart, type Line } from "../parts/chart";
import { Findings } from "../parts/findings";
import { HeatMap, type Span } from "../parts/heatmap";
import { CopyLink } from "../parts/link";
import { Tile } from "../parts/meter";
import { Processes, Workers } from "../parts/processes";
import type { Report } from "../report";
import { format, go, place } from "../route";
import type { Point } from "../sample";
import { within } from "../series";
import { routesOf } from "./routes";

const CLASSES: Line[] = [
  { column: "responses_2xx", title: "2xx", color: "--c1" },
  { column: "responses_3xx", title: "3xx", color: "--c2" },
  { column: "responses_4xx", title: "4xx", color: "--c3" },
  { column: "responses_5xx", title: "5xx", color: "--c4" },
];
const TIMES: Line[] = [
  { column: "p50", title: "50th", color: "--c1" },
  { column: "p90", title: "90th", color: "--c2" },
  { column: "p99", title: "99th", color: "--c3" },
  { column: "p999", title: "99.9th", color: "--c4" },
];
const CONNECTIONS: Line[] = [
  { column: "connections", title: "open", color: "--c1" },
  { column: "in_flight", title: "in flight", color: "--c2" },
  { column: "waiting", title: "waiting", color: "--c3" },
  { column: "idle", title: "idle", color: "--c5" },
];
const TURNED_AWAY: Line[] = [
  { column: "refused", title: "refused", color: "--c3" },
  { column: "responses_5xx", title: "5xx", color: "--c4" },
];
const CPU: Line[] = [
  { column: "cpu_servers", title: "servers", color: "--c1" },
  { column: "cpu_master", title: "master", color: "--c2" },
];
const MEMORY: Line[] = [
  { column: "resident_servers", title: "servers", color: "--c1" },
  { column: "resident_master", title: "master", color: "--c2" },
];
const BYTES: Line[] = [
  { column: "sent_bytes", title: "sent", color: "--c1" },
  { column: "received_bytes", title: "received", color: "--c2" },
];
const RATIOS: Line[] = [{ column: "cache_hit_ratio", title: "file cache hits", color: "--c1" }];
const STORE_RATIOS: Line[] = [{ column: "store_hit_ratio", title: "answered from stores", color: "--c1" }];
const HANDSHAKES: Line[] = [
  { column: "tls_full", title: "full", color: "--c3" },
  { column: "tls_resumed", title: "resumed", color: "--c1" },
];

const rate = (value: number | null | undefined) => (value == null ? "–" : `${count(value)}/s`);
const bytesRate = (value: number | null | undefined) => (value == null ? "–" : `${bytes(value)}/s`);

export function Overview() {
  const told = report.value;
  if (!told) return null;
  const seen = series.value;
  return (
    <>
      <Findings findings={told.findings} />
      <Now told={told} />
      <Moment />
      <div class="charts">
        <Chart title="Answers a second, by class" series={seen} lines={CLASSES} show={rate} />
        <Chart title="Time to answer, percentiles" series={seen} lines={TIMES} show={duration} isLogarithmic />
        {place.value.range === "10m" && (
          <HeatMap title="Time to answer, how many took how long" columns={heat.value} span={span()} />
        )}
        <Chart title="Connections and requests" series={seen} lines={shownOf(CONNECTIONS)} show={count} />
        <Chart title="Turned away and failed, a second" series={seen} lines={TURNED_AWAY} show={rate} />
        <Chart title="Processor time (100 % is one processor)" series={seen} lines={CPU} show={percent} />
        <Chart title="Memory of processes" series={seen} lines={MEMORY} show={bytes} isBytes />
        <Chart title="Bytes a second" series={seen} lines={BYTES} show={bytesRate} isBytes />
        <Chart title="File cache: share of hits" series={seen} lines={RATIOS} show={percent} top={1} />
        {told.caches && told.caches.length > 0 && (
          <Chart title="Caches: share of hits" series={seen} lines={STORE_RATIOS} show={percent} top={1} />
        )}
        <EachProcess />
        {told.stats.tls_handshakes.total > 0 && (
          <Chart title="TLS handshakes a second" series={seen} lines={HANDSHAKES} show={rate} />
        )}
      </div>
      <Changes />
      <Busiest />
      <Processes server={told.server} />
      <Workers workers={told.workers} />
      {remembers.value === false && (
        <p class="note">
          This server does not remember its figures: the graphs begin when this page was opened, and longer ranges are
          empty.
        </p>
      )}
    </>
  );
}

/** What the history of a server does not have is drawn only where it was seen here. */
function shownOf(lines: Line[]): Line[] {
  return lines.filter(
    ({ column }) => column !== "idle" || series.value.columns[column]?.some((value) => value !== null),
  );
}

/** Answers a second, those to what could not be read as a request as well; `null` where that is not known. */
function answersOf(point: Point | null): number | null {
  return point && CLASSES.reduce((sum, { column }) => sum + (point[column] ?? 0), 0);
}

/** The figures of this moment. */
function Now({ told }: { told: Report }) {
  const { stats, server } = told;
  const last = (name: string) => latest.value?.[name];
  const { connections, in_flight, queued, keep_alive } = stats;
  const failing = last("responses_5xx") ?? 0;
  const limit = (level: { limit?: number }) => (level.limit ? `of ${whole(level.limit)}` : undefined);
  const isFull = (level: { current: number; limit?: number }) => !!level.limit && level.current >= 0.9 * level.limit;
  const cpu = (last("cpu_servers") ?? 0) + (last("cpu_master") ?? 0);
  const memory = server.used.servers.resident_bytes + server.used.master.resident_bytes;
  return (
    <dl class="tiles now" aria-label="Now">
      <Tile name="Answers" value={rate(answersOf(latest.value))} note={`${whole(stats.responses.total)} in all`} />
      <Tile name="Median time" value={duration(last("p50"))} note={`99th ${duration(last("p99"))}`} />
      <Tile
        name="Errors (5xx)"
        value={rate(last("responses_5xx"))}
        note={`${whole(stats.responses["5xx"])} in all`}
        isBad={failing > 0}
      />
      <Tile
        name="Connections"
        value={whole(connections.current)}
        note={limit(connections)}
        isBad={isFull(connections)}
      />
      <Tile name="Idle" value={whole(keep_alive.current)} note={limit(keep_alive)} />
      <Tile name="In flight" value={whole(in_flight.current)} note={limit(in_flight)} isBad={isFull(in_flight)} />
      <Tile name="Waiting" value={whole(queued.current)} note={limit(queued)} isBad={queued.current > 0} />
      <Tile name="Sent" value={bytesRate(last("sent_bytes"))} note={`${bytes(stats.sent_bytes)} in all`} />
      <Tile name="Processor" value={percent(cpu)} note="of one core" />
      <Tile name="Memory" value={bytes(memory)} />
    </dl>
  );
}

/** What the graphs of the last minutes show: the part that was chosen, or all that is known. */
function span(): Span | null {
  const { from, until } = place.value;
  if (from !== null && until !== null) return { from, until };
  const [first, last] = [series.value.times[0], series.value.times.at(-1)];
  return first === undefined || last === undefined ? null : { from: Math.min(first, last - 60), until: last };
}

/** The moment, or the part of the range, that a link leads to. */
function Moment() {
  const { at, from, until } = place.value;
  if (at === null && (from === null || until === null)) return null;
  return (
    <p class="note">
      {at !== null && `Marked: ${moment(at)}. `}
      {from !== null && until !== null && `Shown: ${moment(from)} to ${moment(until)}. `}
      <CopyLink />{" "}
      <button type="button" onClick={() => go({ at: null, from: null, until: null })}>
        {from === null ? "Unmark" : "Whole range"}
      </button>
    </p>
  );
}

/** Colours of lines that are told apart by their names. */
const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5"];
/** Processes that are drawn one by one. */
const MOST = 10;

/** Each server process, where there are several. */
function EachProcess() {
  const { range, from, until } = place.value;
  const all = report.value?.server.processes ?? [];
  if (range !== "10m" || all.length < 2) return null;
  const seen = from !== null && until !== null ? within(processes.value, from, until) : processes.value;
  const lines = (what: string): Line[] =>
    all.slice(0, MOST).map(({ pid }, index) => ({
      column: `${what} ${pid}`,
      title: String(pid),
      color: COLOURS[index % COLOURS.length] ?? "--c1",
    }));
  return (
    <>
      <Chart title="Processor time of each server process" series={seen} lines={lines("cpu")} show={percent} />
      <Chart title="Memory of each server process" series={seen} lines={lines("resident")} show={bytes} isBytes />
    </>
  );
}

/** What the broken lines of the graphs are, the last ones. */
function Changes() {
  const marks = [...series.value.marks].sort((one, other) => one.at - other.at).slice(-8);
  if (marks.length === 0) return null;
  return <p class="note">Broken lines: {marks.map(({ at, what }) => `${moment(at)} ${what}`).join(", ")}.</p>;
}

/** Which routes the time goes to. */
function Busiest() {
  const told = sites.value;
  if (!told) return null;
  const routes = routesOf(told.now, told.before, told.seconds).filter(({ seconds }) => seconds > 0);
  const busiest = routes.sort((one, other) => other.seconds - one.seconds).slice(0, 5);
  if (busiest.length === 0) return null;
  return (
    <section aria-labelledby="busiest">
      <h2 id="busiest">Where the time goes</h2>
      <ol class="busiest">
        {busiest.map((route) => (
          <li key={`${route.site} ${route.route}`}>
            <a href={format({ ...place.value, page: "sites", filter: `${route.site} ${route.route}` })}>
              {route.site} {route.route}
            </a>{" "}
            <strong>{percent(route.share)}</strong> of all time
            {route.rate !== null && `, ${rate(route.rate)}`}, 99th {duration(route.p99)}
          </li>
        ))}
      </ol>
    </section>
  );
}
