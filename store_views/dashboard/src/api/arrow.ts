/** Answers as Arrow: thousands of rows in little memory, each value decoded only where it is shown, and exact. */

import { type DataType, type Field, type StructType, tableFromIPC, TimeUnit, Type } from "@uwdata/flechette";

import { type AskOptions, type Parameters, postSql, type Value } from "./request";

export interface ArrowAnswer {
  columns: readonly { name: string; number: boolean }[];
  rowCount: number;
  truncated: boolean;
  /** Null, or text; lists, structs and maps as JSON. */
  textAt: (row: number, column: number) => string | null;
}

export async function askArrow(sql: string, params: Parameters, options: AskOptions): Promise<ArrowAnswer> {
  const response = await postSql(sql, params, options, "application/vnd.apache.arrow.stream");
  const exact = { useBigInt: true, useBigIntTimestamp: true, useDecimalInt: true, useMap: true };
  const table = tableFromIPC(await response.arrayBuffer(), exact);
  return {
    columns: table.schema.fields.map(({ name, type }) => ({ name, number: isNumber(type) })),
    rowCount: table.numRows,
    truncated: response.headers.get("x-lightstream-truncated") === "true",
    textAt: (row, column) => {
      const found = table.getChildAt(column);
      const value = plain(found.at(row) as unknown, found.type);
      return value === null || typeof value === "string" ? value : typeof value === "object" ? JSON.stringify(value) : String(value);
    },
  };
}

function isNumber({ typeId }: DataType): boolean {
  return typeId === Type.Int || typeId === Type.Float || typeId === Type.Decimal;
}

/** A value as JSON would have it, with text in place of what JavaScript's numbers would round. */
function plain(value: unknown, type: DataType): Value {
  if (value === null || value === undefined) return null;
  switch (type.typeId) {
    case Type.Bool:
      return value as boolean;
    case Type.Int:
      return typeof value === "bigint" ? String(value) : (value as number);
    case Type.Float:
      return Number.isFinite(value) ? (value as number) : String(value);
    case Type.Decimal:
      return withPoint(BigInt(value as bigint | number), type.scale);
    case Type.Date:
      return dateOf(value as number);
    case Type.Timestamp:
      return timestampOf(value as bigint, type.unit) + (type.timezone ? "+00:00" : "");
    case Type.Time:
      return clockOf(BigInt(value as bigint | number), type.unit);
    case Type.Interval:
      return Array.from(value as ArrayLike<number>, (part, index) => `${part} ${["months", "days", "ns"][index]}`).join(" ");
    case Type.Binary:
    case Type.LargeBinary:
    case Type.FixedSizeBinary:
      return Array.from(value as Uint8Array, (byte) => byte.toString(16).padStart(2, "0")).join("");
    case Type.List:
    case Type.LargeList:
    case Type.FixedSizeList: {
      const item = type.children[0].type;
      return Array.from(value as ArrayLike<unknown>, (one) => plain(one, item));
    }
    case Type.Struct:
      return Object.fromEntries(type.children.map((field) => [field.name, plain((value as Record<string, unknown>)[field.name], field.type)]));
    case Type.Map: {
      const [keys, values] = (type.children[0].type as StructType).children as [Field, Field];
      return Object.fromEntries([...(value as Map<unknown, unknown>)].map(([key, one]) => [String(plain(key, keys.type)), plain(one, values.type)]));
    }
    case Type.Dictionary:
      return plain(value, type.dictionary);
    default:
      return typeof value === "object" ? JSON.stringify(value) : String(value);
  }
}

function withPoint(scaled: bigint, scale: number): string {
  if (scale === 0) return String(scaled);
  const digits = String(scaled < 0n ? -scaled : scaled).padStart(scale + 1, "0");
  return `${scaled < 0n ? "-" : ""}${digits.slice(0, -scale)}.${digits.slice(-scale)}`;
}

const DIGITS = { [TimeUnit.SECOND]: 0, [TimeUnit.MILLISECOND]: 3, [TimeUnit.MICROSECOND]: 6, [TimeUnit.NANOSECOND]: 9 };
type Unit = keyof typeof DIGITS;

function timestampOf(since1970: bigint, unit: Unit): string {
  const perSecond = 10n ** BigInt(DIGITS[unit]);
  const fraction = ((since1970 % perSecond) + perSecond) % perSecond;
  const date = new Date(Number((since1970 - fraction) / perSecond) * 1000);
  // JavaScript knows dates to the year 275760, DuckDB to 294247, and two infinities.
  return Number.isNaN(date.valueOf()) ? `${since1970} since 1970` : date.toISOString().slice(0, -5) + fractionOf(fraction, unit);
}

function dateOf(ms: number): string {
  const date = new Date(ms);
  return Number.isNaN(date.valueOf()) ? `${ms / 864e5} days since 1970` : (date.toISOString().split("T")[0] ?? "");
}

function clockOf(sinceMidnight: bigint, unit: Unit): string {
  const perSecond = 10n ** BigInt(DIGITS[unit]);
  const seconds = sinceMidnight / perSecond;
  const parts = [seconds / 3600n, (seconds / 60n) % 60n, seconds % 60n];
  return parts.map((part) => String(part).padStart(2, "0")).join(":") + fractionOf(sinceMidnight % perSecond, unit);
}

function fractionOf(fraction: bigint, unit: Unit): string {
  return fraction === 0n ? "" : `.${String(fraction).padStart(DIGITS[unit], "0")}`;
}
