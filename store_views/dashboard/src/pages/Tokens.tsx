/** The tokens of a call, coloured by what is known of each: as text where the proxy saw what each says, else as ids. */

import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";

import { type Figures, rolloutFiguresQuery, type TokenRow, tokensQuery } from "../api/rollouts";
import { count, figure, plural } from "../format";
import { classes, Message, Show } from "../ui/basics";
import { Select } from "../ui/Select";
import ui from "../ui/ui.module.css";
import styles from "./pages.module.css";

const SHOWN_TOKENS = 4_000;

const COLOURINGS = [
  ["logprob", "log-probability"],
  ["mask", "mask"],
  ["advantage", "reward minus the group's mean"],
  ["version", "policy version"],
] as const;

export function Tokens({ rollout, span }: { rollout: string; span: string }) {
  const query = useQuery(tokensQuery(rollout, span));
  const figures = useQuery(rolloutFiguresQuery(rollout)).data ?? null;
  const { colour } = useSearch({ from: "/rollout" });
  const navigate = useNavigate();
  const by = COLOURINGS.find(([name]) => name === colour)?.[0] ?? "logprob";
  const setBy = (colour: string) => void navigate({ to: "/rollout", search: (known) => ({ ...known, colour }), replace: true, resetScroll: false });
  return (
    <Show query={query}>
      {(rows) =>
        rows.length === 0 ? (
          <Message title="This call is no training data, so it has no tokens here." />
        ) : (
          <>
            <Select label="Coloured by" value={by} options={COLOURINGS} onChange={setBy} />
            {rows.map((row, index) => (
              <Call key={index} row={row} figures={figures} by={by} />
            ))}
          </>
        )
      }
    </Show>
  );
}

function Call({ row, figures, by }: { row: TokenRow; figures: Figures | null; by: string }) {
  const prompt = row.prompt_token_ids;
  const response = row.response_token_ids.slice(0, SHOWN_TOKENS);
  const texts = row.texts?.length === row.response_token_ids.length ? row.texts : null;
  const sampled = row.response_mask.reduce((total, one) => total + one, 0);
  return (
    <>
      <div className={styles["legend"]}>
        <span>
          {plural(prompt.length, "prompt token")}, {plural(row.response_token_ids.length, "response token")} of which the policy sampled {count(sampled)}
        </span>
        <span>reward of the call {figure(row.reward)}</span>
        {figures && figures.above_mean !== null && <span>{comparedText(figures.above_mean, figures.divided)}</span>}
        <Legend by={by} />
      </div>
      <details>
        <summary className={ui["muted"]}>Prompt tokens</summary>
        <div className={styles["tokens"]}>
          {prompt.slice(-SHOWN_TOKENS).map((id, index) => (
            <span key={index} className={classes(styles["token"], styles["tokenPlain"])}>
              {id}
            </span>
          ))}
        </div>
      </details>
      <div className={styles["tokens"]} tabIndex={0} role="group" aria-label="Response tokens of the call">
        {response.map((id, index) => (
          <span
            key={index}
            className={classes(styles["token"], texts !== null && styles["tokenText"])}
            style={{ background: colourOf(row, index, by, figures) }}
            title={`token ${index}: id ${id}, log-probability ${figure(row.response_logprobs?.[index])}, ${row.response_mask[index] ? "sampled" : "not sampled"}, policy ${figure(versionOf(row, index))}`}
          >
            {texts ? visible(texts[index] ?? "") : id}
          </span>
        ))}
      </div>
    </>
  );
}

/** A token's text with its line ends to be seen; they still end the line. */
function visible(text: string): string {
  return text === "" ? "∅" : text.replaceAll("\n", "↵\n");
}

function Legend({ by }: { by: string }) {
  if (by === "mask") return <span>green: sampled by the policy, grey: not</span>;
  if (by === "advantage")
    return <span>sampled tokens, each as its rollout: green above the group's mean, red below, full at {DEVIATIONS_FULL} standard deviations</span>;
  if (by === "version") return <span>one colour for each policy version</span>;
  return <span>green: expected (log-probability near 0), red: a surprise (–4 and below)</span>;
}

/** Where colours end: more than that is rare. */
const DEVIATIONS_FULL = 2;
/** The log has rewards. The advantages that a trainer makes of them stay with it, so these are called what they are. */
function comparedText(aboveMean: number, divided: number | null): string {
  const difference = `reward of the rollout minus the group's mean: ${signed(aboveMean)}`;
  return divided === null ? difference : `${difference}; divided by the group's standard deviation, as the run's GRPO does: ${signed(divided)}`;
}

function signed(value: number): string {
  return `${value > 0 ? "+" : ""}${figure(value)}`;
}

const VERSION_COLOURS = ["#a9c3ff", "#f5c29a", "#a5dcbb", "#dcb6ea", "#f3df8f"];

function colourOf(row: TokenRow, index: number, by: string, figures: Figures | null): string {
  const grey = "#d5d6da";
  if (by === "mask") return row.response_mask[index] ? "#9fdcb9" : grey;
  if (by === "advantage") {
    if (!row.response_mask[index] || !figures?.above_mean || !figures.deviation) return grey;
    const share = Math.min(1, Math.abs(figures.above_mean) / figures.deviation / DEVIATIONS_FULL);
    return `hsl(${figures.above_mean > 0 ? 146 : 5} 60% ${(93 - 25 * share).toFixed(0)}%)`;
  }
  if (by === "version") {
    const version = versionOf(row, index);
    return version === null ? grey : (VERSION_COLOURS[Math.abs(version) % VERSION_COLOURS.length] ?? grey);
  }
  const logprob = row.response_logprobs?.[index];
  if (logprob === undefined || logprob === null || !row.response_mask[index]) return grey;
  const hue = 140 * Math.max(0, 1 + logprob / 4);
  return `hsl(${hue.toFixed(0)} 62% 78%)`;
}

function versionOf(row: TokenRow, index: number): number | null {
  const run = row.policy_version_runs?.findLast((one) => one.first_token <= index);
  return run ? run.policy_version : row.policy_version;
}
