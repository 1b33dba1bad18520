/** The list of rollouts. Filters are in the address; pages follow by key, so none is skipped while new ones come. */

import { useCallback, useMemo } from "react";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";

import { type RolloutFilters, type RolloutRow, rolloutsQuery } from "../api/rollouts";
import { notTrainedQuery } from "../api/runs";
import { count, duration, figure, plural, taskLine } from "../format";
import { Ago, Button, classes, Message, Panel, Show, Status } from "../ui/basics";
import { type Column, DataTable } from "../ui/DataTable";
import { SearchBox } from "../ui/SearchBox";
import { Select } from "../ui/Select";
import ui from "../ui/ui.module.css";
import styles from "./pages.module.css";

const STATUSES = ["queuing", "preparing", "running", "requeuing", "succeeded", "failed", "cancelled"];

export function Rollouts() {
  const filters = useSearch({ from: "/rollouts" });
  const navigate = useNavigate();
  const query = useInfiniteQuery(rolloutsQuery(filters));
  const rows = useMemo(() => query.data?.pages.flat() ?? [], [query.data]);
  const change = useCallback(
    (changed: RolloutFilters) =>
      void navigate({ to: "/rollouts", search: { ...filters, ...changed }, replace: true }),
    [filters, navigate],
  );
  return (
    <>
      <title>Rollouts · Lightstream</title>
      <div className={styles["head"]}>
        <h1>Rollouts</h1>
        <p>A rollout is one try of an agent at one task; rollouts of the same task form a group.</p>
      </div>
      <Filters filters={filters} change={change} />
      <Panel
        title="Newest first"
        flush
        note={<Button onPress={() => void query.refetch()}>Ask again</Button>}
      >
        <Show query={{ data: query.data, error: query.error }}>
          {() =>
            rows.length === 0 ? (
              <div className={ui["panelBody"]}>
                <Message title="No rollout fits these filters.">
                  <Link to="/rollouts" search={filters.run === undefined ? {} : { run: filters.run }}>
                    Show all
                  </Link>
                </Message>
              </div>
            ) : (
              <>
                <DataTable label="Rollouts" rows={rows} columns={columnsFor(filters)} rowKey={(row) => row.rollout_id} atFirst={rows.length} />
                <div className={ui["more"]}>
                  {query.hasNextPage ? (
                    <Button onPress={() => void query.fetchNextPage()} isDisabled={query.isFetchingNextPage}>
                      {query.isFetchingNextPage ? "Asking …" : "Show older ones"}
                    </Button>
                  ) : null}
                  <span className={ui["muted"]}>
                    {plural(rows.length, "rollout")} {query.hasNextPage ? "so far" : "in all"}
                  </span>
                </div>
              </>
            )
          }
        </Show>
      </Panel>
    </>
  );
}

function Filters({ filters, change }: { filters: RolloutFilters; change: (changed: RolloutFilters) => void }) {
  const reasons = useQuery({ ...notTrainedQuery(filters.run ?? ""), enabled: filters.run !== undefined });
  const codes = new Set((reasons.data ?? []).map((row) => row.reason_code));
  if (filters.reason && filters.reason !== "trained") codes.add(filters.reason);
  const changeText = useCallback((text: string) => change({ text: text || undefined }), [change]);
  return (
    <div className={styles["filters"]} role="search" aria-label="Filters">
      <SearchBox label="Id or task" value={filters.text ?? ""} placeholder="contains …" onChange={changeText} />
      <Select
        label="Status"
        value={filters.status ?? ""}
        options={[["", "any"], ...STATUSES.map((status) => [status, status] as const)]}
        onChange={(status) => change({ status: status || undefined })}
      />
      <Select
        label="Trained"
        value={filters.reason ?? ""}
        options={[["", "any"], ["trained", "trained"], ...[...codes].map((code) => [code, `not: ${code}`] as const)]}
        onChange={(reason) => change({ reason: reason || undefined })}
      />
      <Select
        label="Purpose"
        value={filters.mode ?? ""}
        options={[["", "any"], ["train", "train"], ["val", "val"], ["test", "test"]]}
        onChange={(mode) => change({ mode: mode || undefined })}
      />
      {filters.step !== undefined && (
        <Button onPress={() => change({ step: undefined })}>Step {filters.step} ✕</Button>
      )}
      {filters.group !== undefined && (
        <Button onPress={() => change({ group: undefined })}>Group {filters.group} ✕</Button>
      )}
    </div>
  );
}

function columnsFor(filters: RolloutFilters): Column<RolloutRow>[] {
  return filters.run === undefined ? [ID, RUN, ...OTHERS] : [ID, ...OTHERS];
}

const ID: Column<RolloutRow> = {
  id: "id",
  header: "Rollout",
  cell: (row) => (
    <Link to="/rollout" search={{ run: row.run_id, id: row.rollout_id }} className={styles["rowLink"] ?? ""}>
      {row.rollout_id}
    </Link>
  ),
};

const RUN: Column<RolloutRow> = {
  id: "run",
  header: "Run",
  cell: (row) => (
    <Link to="/run" search={{ run: row.run_id }}>
      {row.run_id || "–"}
    </Link>
  ),
};

const OTHERS: Column<RolloutRow>[] = [
  { id: "task", header: "Task", cell: (row) => <div className={ui["clip"]}>{taskLine(row.input_json)}</div> },
  { id: "status", header: "Status", cell: (row) => <Status value={row.status} /> },
  { id: "reward", header: "Reward", number: true, cell: (row) => figure(row.reward) },
  {
    id: "trained",
    header: "Trained",
    cell: (row) =>
      row.step !== null ? (
        <Status value={`step ${row.step}`} tone="good" />
      ) : row.reason_code ? (
        <span className={classes(ui["muted"], ui["mono"])}>{row.reason_code}</span>
      ) : (
        "–"
      ),
  },
  { id: "calls", header: "Calls", number: true, cell: (row) => (row.call_count === null ? "–" : count(row.call_count)) },
  {
    id: "attempts",
    header: "Attempts",
    number: true,
    cell: (row) => (row.attempt_count > 1 ? <Status value={count(row.attempt_count)} tone="warn" /> : count(row.attempt_count)),
  },
  { id: "seconds", header: "Took", number: true, cell: (row) => duration(row.seconds) },
  { id: "enqueued", header: "Enqueued", cell: (row) => <Ago nanos={row.enqueued_unix_nano} /> },
];
