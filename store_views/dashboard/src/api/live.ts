/** Keeps what is shown current: the view says which tables have changed, and what reads them is asked again. */

import { useEffect } from "react";
import { type Query, useQueryClient } from "@tanstack/react-query";

import { openStream } from "./request";

declare module "@tanstack/react-query" {
  interface Register {
    queryMeta: {
      /** Tables and views that the query reads. */
      reads?: readonly string[];
    };
  }
}

interface Change {
  tables: string[];
}

/** Changes are gathered for at least so long, and for several times as long as it took to ask again the last time. */
const GATHER_MS = 2_000;
const GATHER_TIMES = 4;
const RECONNECT_MS = 4_000;

/** Follows the changes as long as the component is there. */
export function useLive(): void {
  const client = useQueryClient();
  useEffect(() => {
    const stop = new AbortController();
    const changed = new Set<string>();
    let isAsking = false;

    const isBehind = (query: Query) => {
      const pages = (query.state.data as { pages?: unknown[] } | undefined)?.pages;
      // Once somebody reads on in a list, its rows stay where they are.
      return (pages?.length ?? 0) <= 1 && (query.meta?.reads ?? []).some((name) => changed.has(name));
    };
    const askAgain = async () => {
      if (isAsking || document.hidden) return;
      isAsking = true;
      const began = performance.now();
      const behind = client.getQueryCache().findAll({ type: "active", predicate: isBehind });
      changed.clear();
      await Promise.all(behind.map((query) => client.invalidateQueries({ queryKey: query.queryKey, exact: true })));
      await pause(Math.max(GATHER_MS, GATHER_TIMES * (performance.now() - began)), stop.signal);
      isAsking = false;
      if (changed.size > 0 && !stop.signal.aborted) void askAgain();
    };
    const follow = async () => {
      while (!stop.signal.aborted) {
        try {
          for await (const change of changes(stop.signal)) {
            for (const name of change.tables) changed.add(name);
            void askAgain();
          }
        } catch {
          // The view is away, or wants a token: whatever the page asks tells so, and the stream is tried again.
        }
        await pause(RECONNECT_MS, stop.signal);
      }
    };
    const seen = () => void (changed.size > 0 && askAgain());
    document.addEventListener("visibilitychange", seen);
    void follow();
    return () => {
      document.removeEventListener("visibilitychange", seen);
      stop.abort();
    };
  }, [client]);
}

/** Server-sent events of the view. `fetch` reads them, since an EventSource sends no token. */
async function* changes(signal: AbortSignal): AsyncGenerator<Change> {
  const stream = (await openStream("/v1/changes", signal)).pipeThrough(new TextDecoderStream());
  const reader = stream.getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop() ?? "";
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data: "));
      if (data) yield JSON.parse(data.slice("data: ".length)) as Change;
    }
  }
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const timer = window.setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      window.clearTimeout(timer);
      resolve();
    });
  });
}
