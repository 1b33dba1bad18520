/** The tree of a rollout's spans, and all of the one that is chosen. */

import { useEffect, useRef, useState } from "react";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";

import { type Explained, type SpanRow, spanQuery, spansQuery, TEXT_CHARACTERS_MAX } from "../api/rollouts";
import { count, exactTime, plural, prettyJson } from "../format";
import { Button, Facts, Message, Panel, Show, Status, Text } from "../ui/basics";
import { onKeys } from "../ui/keys";
import { SearchBox } from "../ui/SearchBox";
import { TabbedPanel } from "../ui/TabbedPanel";
import ui from "../ui/ui.module.css";
import { CallMessages } from "./Conversation";
import styles from "./pages.module.css";
import { LogPlace } from "./LogPlace";
import { ScoreForm } from "./ScoreForm";
import { placeSpans, spanKey } from "./spanTree";
import own from "./timeline.module.css";
import { Timeline } from "./Timeline";
import { Tokens } from "./Tokens";

const SETTLES_MS = 250;

/** The chosen span: at once on the page, and in the address once somebody has settled on it. */
function useChosenSpan(): [string | undefined, (span: string) => void] {
  const search = useSearch({ from: "/rollout" });
  const navigate = useNavigate();
  const [chosen, setChosen] = useState(search.span);
  const inAddress = useRef(search.span);
  useEffect(() => {
    if (search.span === inAddress.current) return;
    inAddress.current = search.span;
    setChosen(search.span);
  }, [search.span]);
  useEffect(() => {
    if (chosen === inAddress.current) return undefined;
    const timer = window.setTimeout(() => {
      inAddress.current = chosen;
      void navigate({ to: "/rollout", search: (known) => ({ ...known, span: chosen }), replace: true, resetScroll: false });
    }, SETTLES_MS);
    return () => window.clearTimeout(timer);
  }, [chosen, navigate]);
  return [chosen, setChosen];
}

export function Spans({ found }: { found: Explained }) {
  const [picked, pick] = useChosenSpan();
  const { find = "" } = useSearch({ from: "/rollout" });
  const navigate = useNavigate();
  const query = useQuery(spansQuery(found.rollout.rollout_id));
  const spans = query.data?.spans ?? [];
  const named = spans.find((span) => spanKey(span) === picked || span.span_id === picked);
  const failed = spans.filter((span) => span.error !== null);
  const chosen = named ?? spans.find((span) => span.kind === "LLM") ?? spans[0];
  const nextError = () => {
    const inOrder = placeSpans(spans).map(({ span }) => span);
    const at = chosen ? inOrder.indexOf(chosen) : -1;
    const next = inOrder.slice(at + 1).find((span) => span.error !== null) ?? failed[0];
    if (next) pick(spanKey(next));
  };
  useEffect(() => onKeys({ e: nextError }));
  const search = (words: string) =>
    void navigate({ to: "/rollout", search: (known) => ({ ...known, find: words || undefined }), replace: true, resetScroll: false });
  return (
    <Panel title="Spans" flush note={`${plural(spans.length, "span")}; arrow keys move and fold`}>
      <Show query={query}>
        {() =>
          spans.length === 0 ? (
            <div className={ui["panelBody"]}>
              <Message title="No span of it has come." />
            </div>
          ) : (
            <>
              <div className={own["tools"]} id="spans">
                <SearchBox label="Spans with" value={find} placeholder="name, kind, error …" onChange={search} />
                {failed.length > 0 && <Button onPress={nextError}>{`Next of ${plural(failed.length, "error")} (E)`}</Button>}
              </div>
              <Timeline spans={spans} selected={chosen && spanKey(chosen)} isChosen={named !== undefined} words={find} onSelect={pick} />
              {chosen && <SpanDetails found={found} span={chosen} />}
            </>
          )
        }
      </Show>
    </Panel>
  );
}

type Tabs = [string, string, () => React.ReactNode][];

function SpanDetails({ found, span }: { found: Explained; span: SpanRow }) {
  const rollout = found.rollout.rollout_id;
  const query = useQuery(spanQuery(rollout, span));
  const search = useSearch({ from: "/rollout" });
  const navigate = useNavigate();
  const showTab = (tab: string) => void navigate({ to: "/rollout", search: (known) => ({ ...known, tab }), replace: true, resetScroll: false });
  const call = found.calls.find((one) => one.span_id === span.span_id);
  return (
    <div className={own["details"]}>
      <div className={styles["callHead"]}>
        <h3>{span.name}</h3>
        {span.status !== "unset" && <Status value={span.status} />}
        {call && <Status value={call.fate} />}
        {call?.reason && <code>{call.reason}</code>}
        <LogPlace topic="spans" partition={span.log_partition} offset={span.log_offset} />
      </div>
      <Show query={query}>
        {(detail) => {
          if (!detail) return <Message title="The view has no such span." />;
          const error = detail.llm_error_message ?? detail.status_message;
          const tabs: Tabs = [];
          if (span.kind === "LLM") tabs.push(["tokens", "Tokens", () => <Tokens rollout={rollout} span={span.span_id} />]);
          if (detail.has_messages) {
            const messages: Tabs[number] = ["messages", "Messages", () => <CallMessages rollout={rollout} span={span.span_id} />];
            if (call?.fate === "triplet") tabs.push(messages);
            else tabs.unshift(messages);
          }
          if (detail.input !== null || detail.output !== null)
            tabs.push(["io", "Input and output", () => <InputOutput input={detail.input} output={detail.output} />]);
          tabs.push(["attributes", "Attributes", () => <Text>{prettyJson(detail.attributes ?? "{}")}</Text>]);
          if (span.kind === "LLM") tabs.push(["score", "Score", () => <ScoreForm rollout={rollout} span={span.span_id} />]);
          if (detail.events && detail.events !== "[]") tabs.push(["events", "Events", () => <Text>{prettyJson(detail.events ?? "")}</Text>]);
          if (detail.links && detail.links !== "[]") tabs.push(["links", "Links", () => <Text>{prettyJson(detail.links ?? "")}</Text>]);
          const facts: [string, React.ReactNode][] = [
            ["Span", <code key="span">{span.span_id}</code>],
            ["Parent", <code key="parent">{span.parent_id ?? "–"}</code>],
            ["Trace", <code key="trace">{detail.trace_id}</code>],
            ["Attempt", <code key="attempt">{detail.attempt_id ?? "–"}</code>],
            ["Began", exactTime(detail.start_unix_nano)],
            ["Ended", detail.end_unix_nano ? exactTime(detail.end_unix_nano) : "–"],
            ["Written by", detail.scope_name ?? "–"],
            ["Error", error || "–"],
          ];
          tabs.push(["about", "About", () => <Facts facts={facts} />]);
          return (
            <>
              {span.error !== null && error && <p className={own["message"]}>{error}</p>}
              {detail.characters > TEXT_CHARACTERS_MAX && (
                <Message title={`Only the first ${count(TEXT_CHARACTERS_MAX)} of ${count(detail.characters)} characters are shown.`}>
                  <span>
                    <code>lightstream sql --format json</code> gives all of them.
                  </span>
                </Message>
              )}
              <TabbedPanel key={spanKey(span)} label="The span" tabs={tabs} selected={search.tab} onSelect={showTab} />
            </>
          );
        }}
      </Show>
    </div>
  );
}

function InputOutput({ input, output }: { input: string | null; output: string | null }) {
  return (
    <>
      <h4>Input</h4>
      {input === null ? <p className={ui["muted"]}>Not recorded.</p> : <Text>{prettyJson(input)}</Text>}
      <h4>Output</h4>
      {output === null ? <p className={ui["muted"]}>Not recorded.</p> : <Text>{prettyJson(output)}</Text>}
    </>
  );
}
