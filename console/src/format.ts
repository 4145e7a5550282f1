// Figures as a person reads them. Pure.

const COUNTS = ["", " k", " M", " G", " T"];
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Three significant digits, without zeros at the end. */
function short(value: number): string {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  const text = value.toFixed(digits);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** `1.23 k` */
export function count(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return "–";
  let rest = value;
  let step = 0;
  while (Math.abs(rest) >= 999.5 && step < COUNTS.length - 1) {
    rest /= 1000;
    step += 1;
  }
  return short(rest) + COUNTS[step];
}

/** Whole numbers in full, with thin spaces between thousands. */
export function whole(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return "–";
  return Math.round(value)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** `1.5 MiB` */
export function bytes(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return "–";
  let rest = value;
  let step = 0;
  while (Math.abs(rest) >= 1023.5 && step < BYTES.length - 1) {
    rest /= 1024;
    step += 1;
  }
  return `${short(rest)} ${BYTES[step]}`;
}

/** A duration in seconds: `850 µs`, `12.3 ms`, `4.5 s`, `3 min 20 s`, `2 d 4 h`. */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 0) return `-${duration(-seconds)}`;
  if (seconds < 0.9995e-3) return `${short(seconds * 1e6)} µs`;
  if (seconds < 0.9995) return `${short(seconds * 1e3)} ms`;
  if (seconds < 60) return `${short(seconds)} s`;
  const parts: [number, string][] = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [Math.floor(seconds) % 60, "s"],
  ];
  const first = parts.findIndex(([number]) => number > 0);
  return parts
    .slice(first, first + 2)
    .filter(([number]) => number > 0)
    .map(([number, unit]) => `${number} ${unit}`)
    .join(" ");
}

/** `0.123` as `12.3 %` */
export function percent(share: number | null | undefined): string {
  return share == null || !Number.isFinite(share) ? "–" : `${short(share * 100)} %`;
}

/** A time below an axis: hours and minutes, seconds where there are any, and the day at midnight. */
export function tick(at: number): string {
  const then = new Date(at * 1000);
  const pad = (number: number) => number.toString().padStart(2, "0");
  if (then.getHours() + then.getMinutes() + then.getSeconds() === 0)
    return `${then.getMonth() + 1}-${pad(then.getDate())}`;
  const seconds = then.getSeconds() ? `:${pad(then.getSeconds())}` : "";
  return `${pad(then.getHours())}:${pad(then.getMinutes())}${seconds}`;
}

/** Seconds since 1970 as local time; the date where it is not today. */
export function moment(at: number, now = Date.now() / 1000): string {
  const [then, today] = [new Date(at * 1000), new Date(now * 1000)];
  const pad = (number: number) => number.toString().padStart(2, "0");
  const time = `${pad(then.getHours())}:${pad(then.getMinutes())}:${pad(then.getSeconds())}`;
  if (then.toDateString() === today.toDateString()) return time;
  return `${then.getFullYear()}-${pad(then.getMonth() + 1)}-${pad(then.getDate())} ${time}`;
}
