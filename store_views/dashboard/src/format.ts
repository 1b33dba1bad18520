/** Numbers and times as people read them. */

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export function count(value: number): string {
  return whole.format(value);
}

export function plural(value: number, thing: string, things = `${thing}s`): string {
  return `${count(value)} ${value === 1 ? thing : things}`;
}

/** Four significant digits, without trailing zeros. */
export function figure(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return count(value);
  const small = Math.abs(value) < 1e-3;
  return small ? value.toExponential(2) : Number(value.toPrecision(4)).toString();
}

/** Dollars of the calls that have a price, and how many have none. */
export function costLine(cost: number | null, callsWithoutPrice: number): string {
  const known = cost === null ? "–" : `$ ${figure(cost)}`;
  return callsWithoutPrice > 0 ? `${known} (${plural(callsWithoutPrice, "call")} without a price)` : known;
}

export function percent(part: number, of: number): string {
  if (of === 0) return "–";
  const share = (100 * part) / of;
  if (share > 0 && share < 1) return "< 1 %";
  if (share > 99 && share < 100) return "> 99 %";
  return `${Math.round(share)} %`;
}

export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  const size = Math.abs(seconds);
  if (size < 1e-3) return `${Math.round(seconds * 1e6)} µs`;
  if (size < 1) return `${Number((seconds * 1e3).toPrecision(3))} ms`;
  if (size < 60) return `${Number(seconds.toPrecision(3))} s`;
  if (size < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

/** Milliseconds since 1970 of nanoseconds in text, which a number would round. */
export function millis(nanos: string): number {
  return Number(BigInt(nanos) / 1_000_000n);
}

/** "3 s ago", by the browser's clock; a clock that is behind the view's shows "now". */
export function ago(nanos: string | null | undefined, now: number = Date.now()): string {
  if (!nanos) return "–";
  const seconds = (now - millis(nanos)) / 1000;
  if (seconds < 2) return "now";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129_600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86_400)} days ago`;
}

/** Local time, with the nanoseconds kept. */
export function exactTime(nanos: string): string {
  const date = new Date(millis(nanos));
  const two = (value: number) => String(value).padStart(2, "0");
  const fraction = (BigInt(nanos) % 1_000_000_000n).toString().padStart(9, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${fraction}`;
}

/** JSON indented, or the text itself where it is none. */
export function prettyJson(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

const ASKED = ["question", "prompt", "task", "instruction", "input", "query"];

/** A task as one line: its prompt or question where it names one, also where the end of the JSON is cut off. */
export function taskLine(json: string): string {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    return cutText(json) ?? json;
  }
  if (typeof value === "string") return value;
  if (value && typeof value === "object" && !Array.isArray(value)) {
    const fields = value as Record<string, unknown>;
    for (const name of ASKED) if (typeof fields[name] === "string") return fields[name];
  }
  return json;
}

/** Of JSON that ends within a text: that text, if the task is in it; undefined where it is not. */
function cutText(json: string): string | undefined {
  const text = CUT.exec(json)?.[1];
  if (text === undefined) return undefined;
  for (let end = text.length; end >= 0 && end > text.length - ESCAPE_MAX; end -= 1) {
    try {
      return String(JSON.parse(`"${text.slice(0, end)}"`));
    } catch {
      // The cut went through an escape.
    }
  }
  return undefined;
}

const CUT = new RegExp(`^\\s*(?:\\{[^]*?"(?:${ASKED.join("|")})"\\s*:\\s*)?"((?:[^"\\\\]|\\\\[^])*)`);
/** Characters of the longest escape, and of the mark of a cut. */
const ESCAPE_MAX = 8;
