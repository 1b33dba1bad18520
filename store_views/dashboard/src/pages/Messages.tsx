/** The messages of an LLM call, as text: whatever an agent or a model wrote is shown and never run. */

import { useMemo } from "react";

import { prettyJson } from "../format";
import { classes, Text } from "../ui/basics";
import styles from "./pages.module.css";

interface Turn {
  role: string;
  text: string;
}

export function Messages({ request, response }: { request: string | null; response: string | null }) {
  const turns = useMemo(() => [...requestTurns(request), ...responseTurns(response)], [request, response]);
  return (
    <div className={styles["messages"]}>
      {turns.map((turn, index) => (
        <div key={index} className={classes(styles["turn"], turn.role === "assistant" && styles["assistant"])}>
          <div className={styles["role"]}>{turn.role}</div>
          <div>
            <Text>{turn.text}</Text>
          </div>
        </div>
      ))}
    </div>
  );
}

function requestTurns(request: string | null): Turn[] {
  const parsed = parse(request);
  if (!parsed) return request ? [{ role: "request", text: request }] : [];
  const messages = parsed["messages"] ?? parsed["input"];
  const system = parsed["system"] ?? parsed["instructions"];
  const first = system === undefined ? [] : [{ role: "system", text: contentText(system) }];
  if (typeof messages === "string") return [...first, { role: "user", text: messages }];
  if (!Array.isArray(messages)) return [{ role: "request", text: prettyJson(request ?? "") }];
  const tools = Array.isArray(parsed["tools"]) ? [{ role: "tools", text: JSON.stringify(parsed["tools"], null, 2) }] : [];
  return [...first, ...tools, ...messages.map(messageTurn)];
}

function responseTurns(response: string | null): Turn[] {
  if (!response) return [];
  const parsed = parse(response);
  return [parsed ? messageTurn({ role: "assistant", ...parsed }) : { role: "assistant", text: response }];
}

function messageTurn(message: unknown): Turn {
  if (!message || typeof message !== "object") return { role: "message", text: contentText(message) };
  const fields = message as Record<string, unknown>;
  const parts = [
    typeof fields["reasoning_content"] === "string" ? `(reasoning)\n${fields["reasoning_content"]}` : "",
    fields["content"] === undefined || fields["content"] === null ? "" : contentText(fields["content"]),
    fields["tool_calls"] ? toolCalls(fields["tool_calls"]) : "",
  ];
  const text = parts.filter(Boolean).join("\n\n");
  return { role: String(fields["role"] ?? "message"), text: text || JSON.stringify(message, null, 2) };
}

/** `name(arguments)`, a line each; what is of another shape stays JSON. */
function toolCalls(calls: unknown): string {
  if (!Array.isArray(calls)) return JSON.stringify(calls, null, 2);
  return calls
    .map((call: { function?: { name?: unknown; arguments?: unknown } } | null) => {
      const called = call?.function;
      return typeof called?.name === "string" && typeof called.arguments === "string"
        ? `${called.name}(${called.arguments})`
        : JSON.stringify(call, null, 2);
    })
    .join("\n");
}

function contentText(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return JSON.stringify(content, null, 2);
  return content
    .map((part: unknown) => {
      const text = part && typeof part === "object" ? (part as Record<string, unknown>)["text"] : part;
      return typeof text === "string" ? text : JSON.stringify(part, null, 2);
    })
    .join("\n");
}

/** What the model answered, as text; empty where nothing was recorded. */
export function responseText(response: string | null): string {
  return responseTurns(response)
    .map((turn) => turn.text)
    .join("\n");
}

function parse(text: string | null): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text ?? "");
    return value && typeof value === "object" && !Array.isArray(value) ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}
