/** One conversation of the messages of a rollout's calls: each message once, tool results with the calls that they answer. */

import type { MessageRow } from "../api/rollouts";

export interface ToolUse {
  name: string;
  given: string;
  /** Undefined while no message has it. */
  result: string | undefined;
}

export interface Turn {
  key: string;
  role: string;
  agent: string;
  text: string;
  characters: number;
  reasoning: string;
  tools: ToolUse[];
  /** The call that answered with this turn. */
  call: MessageRow | null;
  /** True where the agent goes on with other messages than before. */
  restarts: boolean;
  /** Number of the attempt that begins with this turn, from 1; null within an attempt. */
  attempt: number | null;
}

const BY_MODEL = new Set(["assistant", "function_call", "reasoning"]);
const RESULTS = new Set(["tool", "function", "function_call_output"]);

export function turnsOf(rows: readonly MessageRow[]): Turn[] {
  const turns: Turn[] = [];
  const open = new Map<string, ToolUse>();
  let attempt: string | null | undefined;
  let attempts = 0;
  let begins: number | null = null;
  let span = "";
  let isEcho = false;
  for (const row of rows) {
    if (row.attempt_id !== attempt) {
      // Models number their tool calls from the same begin in each attempt.
      attempt = row.attempt_id;
      attempts += 1;
      begins = attempts;
      open.clear();
      span = "";
    }
    const isFirst = row.span_id !== span;
    if (isFirst) {
      span = row.span_id;
      // What the model said before comes again as the first message of the next call.
      isEcho = row.continued_span_id !== null;
    }
    const restarts = isFirst && !row.continues;
    const role = row.role ?? "";
    if (isEcho && BY_MODEL.has(role)) continue;
    isEcho = false;
    const result = RESULTS.has(role) ? open.get(`${row.agent_name} ${row.tool_call_id ?? ""}`) : undefined;
    if (result && result.result === undefined) {
      result.result = row.text ?? "";
      continue;
    }
    const tools = toolsOf(row.tool_calls);
    for (const [id, use] of tools) if (id) open.set(`${row.agent_name} ${id}`, use);
    turns.push({
      key: `${row.attempt_id ?? ""} ${row.span_id} ${row.place ?? 0}`,
      role: role === "answer" ? "assistant" : role || "call",
      agent: row.agent_name,
      text: row.text ?? "",
      characters: row.characters ?? 0,
      reasoning: row.reasoning ?? "",
      tools: tools.map(([, use]) => use),
      call: role === "answer" || role === "" || (isFirst && row.error !== null) ? row : null,
      restarts,
      attempt: begins,
    });
    begins = null;
  }
  return turns;
}

interface RawCall {
  id?: unknown;
  call_id?: unknown;
  name?: unknown;
  arguments?: unknown;
  function?: { name?: unknown; arguments?: unknown } | null;
}

function toolsOf(json: string | null): [string, ToolUse][] {
  if (!json) return [];
  const parsed = parse(json);
  if (!Array.isArray(parsed)) return [["", { name: "tool calls", given: json, result: undefined }]];
  return parsed.map((raw: RawCall | null) => {
    const called = raw?.function ?? raw;
    const known = typeof called?.name === "string";
    const given = known ? called.arguments : raw;
    const use = { name: known ? String(called.name) : "tool", given: typeof given === "string" ? given : JSON.stringify(given ?? {}), result: undefined };
    return [String(raw?.call_id ?? raw?.id ?? ""), use];
  });
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** `a: 3, b: 4` of arguments in JSON; the text itself of others. */
export function givenLine(given: string): string {
  const parsed = parse(given);
  if (!parsed || typeof parsed !== "object" || Array.isArray(parsed)) return given;
  return Object.entries(parsed)
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
}

/** The text of an answer as a model gave it, with its tool calls as `name(arguments)`; empty where nothing was recorded. */
export function answerText(json: string | null): string {
  if (!json) return "";
  const parsed = parse(json) as { content?: unknown; tool_calls?: unknown; text?: unknown } | string | null | undefined;
  if (!parsed || typeof parsed !== "object") return typeof parsed === "string" ? parsed : json;
  const { content } = parsed;
  const parts = Array.isArray(content)
    ? content.map((part: { text?: unknown } | null) => (typeof part?.text === "string" ? part.text : JSON.stringify(part)))
    : [];
  const text = typeof content === "string" ? content : parts.join("\n");
  return (
    answerLines(text, parsed.tool_calls ? JSON.stringify(parsed.tool_calls) : null) ||
    (content == null && !parsed.tool_calls && Object.keys(parsed).some((key) => key !== "role" && key !== "content") ? json : "")
  );
}

/** An answer whose text and tool calls, as JSON, are known apart. */
export function answerLines(text: string | null | undefined, toolCalls: string | null | undefined): string {
  const tools = toolsOf(toolCalls ?? null).map(([, use]) => `${use.name}(${use.given})`);
  return [text, ...tools].filter(Boolean).join("\n");
}

/** Place of the first turn in which two conversations differ, by role, text and tools; undefined where they are alike. */
export function firstDifference(one: readonly Turn[], other: readonly Turn[]): number | undefined {
  const told = (turn: Turn | undefined) => turn && JSON.stringify([turn.role, turn.text, turn.tools.map(({ name, given, result }) => [name, given, result])]);
  const length = Math.max(one.length, other.length);
  for (let at = 0; at < length; at += 1) if (told(one[at]) !== told(other[at])) return at;
  return undefined;
}
