/** Files of rows, made and kept in the browser. */

type Row = Readonly<Record<string, unknown>>;

/** The lines of RFC 4180: fields with a comma, a quote or a line end in quotes, `'` before a text that is like a formula. A browser holds no text of all of them. */
export function toCsv(rows: readonly Row[]): string[] {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const lines = [columns, ...rows.map((row) => columns.map((name) => row[name]))];
  return lines.map((fields) => `${fields.map(csvField).join(",")}\r\n`);
}

/** Spreadsheets take a text that begins so as a formula. */
const FORMULA = /^[=+\-@\t\r\n\uFF1D\uFF0B\uFF0D\uFF20]/;
const NUMBER = /^-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf(?:inity)?)$/i;

function csvField(value: unknown): string {
  const told = value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  const text = FORMULA.test(told) && !NUMBER.test(told) ? `'${told}` : told;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function toJsonLines(rows: readonly Row[]): string[] {
  return rows.map((row) => `${JSON.stringify(row)}\n`);
}

export function saveFile(name: string, type: string, lines: string[]): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(lines, { type }));
  link.download = name;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
