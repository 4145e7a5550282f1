// The processes of the server, and how evenly they share the work.

import { bytes, duration, percent, whole } from "../format";
import { processes as perProcess } from "../live";
import type { Process, ServerFacts, Worker } from "../report";
import { Share } from "./meter";
import { type Column, Table } from "./table";

export function Processes({ server }: { server: ServerFacts }) {
  const { processes } = server;
  const all = processes.reduce((sum, { requests }) => sum + (requests ?? 0), 0);
  const columns: Column<Process>[] = [
    { name: "pid", title: "Process", key: ({ pid }) => pid },
    { name: "state", title: "State", key: ({ state }) => state, isText: true },
    { name: "uptime", title: "For", key: ({ uptime }) => uptime, show: ({ uptime }) => duration(uptime) },
    { name: "workers", title: "Workers", key: ({ workers }) => workers },
    {
      name: "restarts",
      title: "Restarts",
      key: ({ restarts }) => restarts,
      show: ({ restarts }) => (restarts > 0 ? <span class="bad">{restarts}</span> : "0"),
    },
  ];
  // A server that does not tell them apart has none of these columns.
  if (processes.some(({ requests }) => requests !== undefined)) {
    columns.push(
      {
        name: "requests",
        title: "Received",
        help: "Requests whose head was read, and their share: one that has many more than its siblings is worth a look",
        key: ({ requests }) => requests,
        show: ({ requests = 0 }) => <Share of={all > 0 ? requests / all : 0} text={whole(requests)} />,
      },
      {
        name: "connections",
        title: "Connections",
        key: ({ connections }) => connections,
        show: ({ connections }) => whole(connections),
      },
    );
  }
  if (processes.some(({ used }) => used)) {
    columns.push(
      {
        name: "now",
        title: "Processor now",
        help: "100 % is one processor",
        key: ({ pid }) => cpuNow(pid),
        show: ({ pid }) => percent(cpuNow(pid)),
      },
      {
        name: "cpu",
        title: "Processor time",
        key: ({ used }) => used?.cpu_seconds,
        show: ({ used }) => duration(used?.cpu_seconds),
      },
      {
        name: "memory",
        title: "Memory",
        key: ({ used }) => used?.resident_bytes,
        show: ({ used }) => bytes(used?.resident_bytes),
      },
    );
  }
  return (
    <section aria-labelledby="processes">
      <h2 id="processes">Processes</h2>
      <Table
        caption="Server processes"
        rows={processes}
        columns={columns}
        id={({ pid }) => String(pid)}
        order="pid"
        empty="No server process runs."
      />
    </section>
  );
}

/** Of the last second. */
const cpuNow = (pid: number) => perProcess.value.columns[`cpu ${pid}`]?.at(-1);

/** The workers one by one, where the server tells of them. */
export function Workers({ workers }: { workers: Worker[] | undefined }) {
  if (!workers || workers.length === 0) return null;
  const total = (of: (worker: Worker) => number) => workers.reduce((sum, worker) => sum + of(worker), 0);
  const [requests, busy] = [total(({ requests }) => requests), total(({ busy_seconds }) => busy_seconds)];
  const share = (part: number, whole: number) => (whole > 0 ? part / whole : 0);
  const columns: Column<Worker>[] = [
    { name: "worker", title: "Worker", key: ({ process, worker }) => `${process}-${worker}`, isText: true },
    {
      name: "requests",
      title: "Received",
      help: "Requests whose head was read",
      key: ({ requests }) => requests,
      show: (worker) => <Share of={share(worker.requests, requests)} text={whole(worker.requests)} />,
    },
    {
      name: "busy",
      title: "Processor time",
      help: "One that is busy while its siblings rest is worth a look",
      key: ({ busy_seconds }) => busy_seconds,
      show: ({ busy_seconds }) => <Share of={share(busy_seconds, busy)} text={duration(busy_seconds)} />,
    },
    {
      name: "connections",
      title: "Connections",
      key: ({ connections }) => connections,
      show: ({ connections }) => whole(connections),
    },
    {
      name: "accepted",
      title: "Accepted",
      key: (worker) => worker.connections_accepted,
      show: (worker) => whole(worker.connections_accepted),
    },
  ];
  return (
    <section aria-labelledby="workers">
      <h2 id="workers">Workers</h2>
      <Table
        caption="Workers"
        rows={workers}
        columns={columns}
        id={({ process, worker }) => `${process}-${worker}`}
        order="worker"
        empty=""
      />
    </section>
  );
}
