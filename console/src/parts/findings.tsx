// What limits the server, and what to change. A server that tells of none has no section.

import { moment } from "../format";
import type { Finding } from "../report";

export function Findings({ findings }: { findings: Finding[] | undefined }) {
  if (!findings) return null;
  return (
    <section class="findings" aria-labelledby="findings">
      <h2 id="findings">Findings</h2>
      {findings.length === 0 ? (
        <p class="empty">Nothing limits this server that it knows of.</p>
      ) : (
        <ul>
          {findings.map((finding) => (
            <li key={`${named(finding)} ${finding.subject ?? ""}`}>
              <p>
                <strong>{withCode(finding.sentence)}</strong>
              </p>
              <p>{withCode((typeof finding.change === "object" ? finding.change.text : finding.change) ?? "")}</p>
              <p class="faint">{about(finding)}</p>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

/** What stands between backticks is code. */
const withCode = (text: string) =>
  text.split("`").map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part));

const named = ({ finding, name }: Finding) => finding ?? name ?? "";

function about(finding: Finding): string {
  const { subject, since, page, also_seen } = finding;
  const parts = [named(finding)];
  if (subject) parts.push(subject);
  if (typeof since === "number") parts.push(`since ${moment(since)}`);
  else if (since) parts.push(`since ${moment(Date.parse(since) / 1000)}`);
  if (Array.isArray(also_seen) && also_seen.length > 0) parts.push(`also: ${also_seen.join(", ")}`);
  if (page) parts.push(`tidegate docs ${page.replace(/^docs\//, "").replace(/\.md(#.*)?$/, "")}`);
  return parts.join(" · ");
}
