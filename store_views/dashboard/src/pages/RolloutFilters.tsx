/** What narrows the list of rollouts; all of it is in the address. */

import { useCallback, useMemo } from "react";
import { useQuery } from "@tanstack/react-query";

import { type RewardBin, rewardHistogramQuery, toolNamesQuery } from "../api/agent";
import type { RolloutFilters } from "../api/rollouts";
import { notTrainedQuery } from "../api/runs";
import { figure, plural } from "../format";
import { Button } from "../ui/basics";
import { SearchBox } from "../ui/SearchBox";
import { Select } from "../ui/Select";
import styles from "./pages.module.css";

const STATUSES = ["queuing", "preparing", "running", "requeuing", "succeeded", "failed", "cancelled"];
const MODES = ["train", "val", "test"];

interface FiltersProps {
  filters: RolloutFilters;
  change: (changed: RolloutFilters) => void;
}

const same = (values: readonly string[]) => [["", "any"], ...values.map((value) => [value, value])] as [string, string][];

export function Filters({ filters, change }: FiltersProps) {
  const { run } = filters;
  const reasons = useQuery({ ...notTrainedQuery(run ?? ""), enabled: run !== undefined });
  const tools = useQuery({ ...toolNamesQuery(run ?? ""), enabled: run !== undefined });
  const codes = new Set((reasons.data ?? []).map((row) => row.reason_code));
  if (filters.reason && filters.reason !== "trained") codes.add(filters.reason);
  const names = new Set((tools.data ?? []).map((row) => row.tool_name));
  if (filters.tool) names.add(filters.tool);
  const changeText = useCallback((text: string) => change({ text: text || undefined }), [change]);
  const changeError = useCallback((error: string) => change({ error: error || undefined }), [change]);
  return (
    <div className={styles["filters"]} role="search" aria-label="Filters">
      <SearchBox label="Id or task" value={filters.text ?? ""} placeholder="contains …" onChange={changeText} />
      <Select label="Status" value={filters.status ?? ""} options={same(STATUSES)} onChange={(status) => change({ status: status || undefined })} />
      <Select
        label="Trained"
        value={filters.reason ?? ""}
        options={[["", "any"], ["trained", "trained"], ...[...codes].map((code) => [code, `not: ${code}`] as const)]}
        onChange={(reason) => change({ reason: reason || undefined })}
      />
      <Select label="Purpose" value={filters.mode ?? ""} options={same(MODES)} onChange={(mode) => change({ mode: mode || undefined })} />
      {names.size > 0 && <Select label="Tool" value={filters.tool ?? ""} options={same([...names])} onChange={(tool) => change({ tool: tool || undefined })} />}
      <SearchBox label="Error" value={filters.error ?? ""} placeholder="contains …" onChange={changeError} />
      {filters.step !== undefined && <Button onPress={() => change({ step: undefined })}>Step {filters.step} ✕</Button>}
      {filters.group !== undefined && <Button onPress={() => change({ group: undefined })}>Group {filters.group} ✕</Button>}
      {filters.task !== undefined && <Button onPress={() => change({ task: undefined })}>One task ✕</Button>}
      {(filters.low !== undefined || filters.high !== undefined) && (
        <Button onPress={() => change({ low: undefined, high: undefined })}>{`Reward ${figure(filters.low)} to ${figure(filters.high)} ✕`}</Button>
      )}
    </div>
  );
}

/** How many rollouts have which reward; a bar narrows the list to its rewards. */
export function Histogram({ filters, change }: FiltersProps) {
  const query = useQuery({ ...rewardHistogramQuery(filters.run ?? "", filters.mode), enabled: filters.run !== undefined });
  const bins = query.data ?? [];
  const bars = useMemo(() => barsOf(bins), [bins]);
  if (bins.length === 0) return null;
  const high = Math.max(...bins.map((one) => one.count));
  return (
    <div className={styles["histogram"]} role="group" aria-label="Rewards">
      <span>{figure(bins[0]?.low)}</span>
      {bars.map((one, index) =>
        one === null ? (
          <span key={index} className={styles["noBar"]} />
        ) : (
          <button
            key={index}
            type="button"
            title={`reward ${range(one)}: ${plural(one.count, "rollout")}`}
            aria-label={`Reward ${range(one)}: ${plural(one.count, "rollout")}`}
            aria-pressed={filters.low === one.low && filters.high === one.high}
            onClick={() => change({ low: one.low, high: one.high })}
          >
            <span style={{ height: `${Math.max(6, (100 * one.count) / high)}%` }} />
          </button>
        ),
      )}
      <span>{figure(bins.at(-1)?.high)}</span>
    </div>
  );
}

function range({ low, high }: RewardBin): string {
  return low === high ? figure(low) : `${figure(low)} to ${figure(high)}`;
}

/** With the ranges that nothing lies in. */
function barsOf(bins: readonly RewardBin[]): (RewardBin | null)[] {
  const last = bins.at(-1)?.bin ?? -1;
  const found = new Map(bins.map((one) => [one.bin, one]));
  return Array.from({ length: last + 1 }, (_, bin) => found.get(bin) ?? null);
}
