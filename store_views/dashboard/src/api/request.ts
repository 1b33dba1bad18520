/** Requests to the view that serves this page. Nothing here asks another host. */

import type { Rows } from "./rows";

const TOKEN_KEY = "lightstream.token";

/** An answer that was an error, in the view's own words. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly nextStep: string,
  ) {
    super(message);
    this.name = "ApiError";
  }

  /** True where the view wants a token, or another one than was sent. */
  get needsToken(): boolean {
    return this.status === 401;
  }
}

/** The token of this tab; it is forgotten with the tab. */
export function readToken(): string {
  return sessionStorage.getItem(TOKEN_KEY) ?? "";
}

export function keepToken(token: string): void {
  if (token) sessionStorage.setItem(TOKEN_KEY, token);
  else sessionStorage.removeItem(TOKEN_KEY);
}

interface ErrorBody {
  error?: { message?: string; next_step?: string };
}

async function answer(path: string, init: RequestInit): Promise<Response> {
  const headers = new Headers(init.headers);
  const token = readToken();
  if (token) headers.set("authorization", `Bearer ${token}`);
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "The view does not answer.", "See `lightstream status`: it may be restarting. This page asks again.");
  }
  if (response.ok) return response;
  const body = (await response.json().catch(() => ({}))) as ErrorBody;
  const message = body.error?.message ?? `The view answered ${response.status}.`;
  throw new ApiError(response.status, message, body.error?.next_step ?? "");
}

async function request(path: string, init: RequestInit): Promise<unknown> {
  return (await answer(path, init)).json();
}

/** The bytes of an answer as they come. */
export async function openStream(path: string, signal: AbortSignal): Promise<ReadableStream<Uint8Array<ArrayBuffer>>> {
  const { body } = await answer(path, { signal });
  if (!body) throw new ApiError(0, "The view answered with nothing.", "");
  return body;
}

export function getJson<Answer>(path: string, signal?: AbortSignal): Promise<Answer> {
  return request(path, signal ? { signal } : {}) as Promise<Answer>;
}

export function postJson<Answer>(path: string, body: unknown): Promise<Answer> {
  return request(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }) as Promise<Answer>;
}

export type Value = string | number | boolean | null | Value[] | { [key: string]: Value };
export type Parameters = Record<string, string | number | boolean | null | readonly string[]>;

export interface SqlAnswer {
  columns: string[];
  types: string[];
  rows: Value[][];
  truncated: boolean;
}

export interface AskOptions {
  signal?: AbortSignal;
  rowsMax?: number;
  timeoutS?: number;
  /** What the pages ask has places of its own; a statement of a person waits among everybody else's. */
  lane?: "dashboard" | "others";
}

export async function askSql(sql: string, params: Parameters = {}, options: AskOptions = {}): Promise<SqlAnswer> {
  return (await postSql(sql, params, options, "application/json")).json() as Promise<SqlAnswer>;
}

/** The answer to a statement, in the form that is asked for. */
export function postSql(sql: string, params: Parameters, options: AskOptions, accept: string): Promise<Response> {
  const body: Record<string, unknown> = { sql, integers: "text" }; // beyond 2^53, which JSON numbers would round
  if (Object.keys(params).length > 0) body["params"] = params;
  if (options.rowsMax !== undefined) body["rows_max"] = options.rowsMax;
  if (options.timeoutS !== undefined) body["timeout_s"] = options.timeoutS;
  return answer("/v1/sql", {
    method: "POST",
    headers: { accept, "content-type": "application/json", "x-lightstream-lane": options.lane ?? "others" },
    body: JSON.stringify(body),
    ...(options.signal ? { signal: options.signal } : {}),
  });
}

/**
 * The rows of a named query, by column name.
 *
 * The statements say more of their rows than their columns' types do: pages name what they know (`as Promise<Known[]>`),
 * which types refuse where a column is not there. Integers that may lie beyond 2^53, as nanoseconds do, are cast to
 * VARCHAR in the statement, so that they are texts however large they are.
 */
export async function ask<Name extends keyof Rows>(query: `:${Name}`, params: Parameters = {}, signal?: AbortSignal): Promise<Rows[Name][]> {
  return (await askPage(query, params, signal)).rows;
}

/** As `ask`, with whether the view left out rows, since all of them would be too large an answer. */
export async function askPage<Name extends keyof Rows>(
  query: `:${Name}`,
  params: Parameters = {},
  signal?: AbortSignal,
): Promise<{ rows: Rows[Name][]; truncated: boolean }> {
  const answer = await askSql(query, params, { lane: "dashboard", ...(signal ? { signal } : {}) });
  const rows = answer.rows.map((row) => Object.fromEntries(answer.columns.map((name, index) => [name, row[index]])) as unknown as Rows[Name]);
  return { rows, truncated: answer.truncated };
}
