// A difference of texts, line by line. Signs and words tell what colours tell.

/** Lines that are shown. */
const MOST = 2000;

/** Lines as `diff -u` writes them. */
export function Difference({ lines, label }: { lines: readonly string[]; label: string }) {
  const shown = lines.slice(0, MOST);
  if (lines.every((line) => line === "")) return <p class="empty">There is no difference.</p>;
  return (
    <div class="scrolled difference" role="region" aria-label={label} tabIndex={0}>
      <pre>
        {shown.map((line, index) => (
          <span key={index} class={kind(line)}>
            {line}
            {"\n"}
          </span>
        ))}
      </pre>
      {lines.length > MOST && <p class="faint">{lines.length - MOST} lines more.</p>}
    </div>
  );
}

function kind(line: string): string | undefined {
  if (line.startsWith("@@") || line.startsWith("+++") || line.startsWith("---")) return "head";
  if (line.startsWith("+")) return "added";
  return line.startsWith("-") ? "removed" : undefined;
}
