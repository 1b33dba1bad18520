/** The list of rollouts. Filters are in the address; pages follow by key, so none is skipped while new ones come. */

import { useCallback, useMemo, useState } from "react";
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";

import { allRollouts, type RolloutFilters, type RolloutRow, rolloutsQuery } from "../api/rollouts";
import { count, duration, figure, plural, taskLine } from "../format";
import { Ago, Button, classes, ErrorMessage, Message, Panel, Show, Status } from "../ui/basics";
import { type Column, DataTable } from "../ui/DataTable";
import ui from "../ui/ui.module.css";
import { answerLines } from "./turns";
import { saveFile, toCsv, toJsonLines } from "./exporting";
import styles from "./pages.module.css";
import { Filters, Histogram } from "./RolloutFilters";

export function Rollouts() {
  const filters = useSearch({ from: "/rollouts" });
  const navigate = useNavigate();
  const query = useInfiniteQuery(rolloutsQuery(filters));
  const rows = useMemo(() => query.data?.pages.flat() ?? [], [query.data]);
  const change = useCallback(
    (changed: RolloutFilters) => void navigate({ to: "/rollouts", search: { ...filters, ...changed }, replace: true }),
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
      <Histogram filters={filters} change={change} />
      <Panel
        title={filters.sort ? "Sorted" : "Newest first"}
        flush
        note={
          <span className={styles["actions"]}>
            <Button onPress={() => change({ answers: filters.answers ? undefined : "1" })}>{filters.answers ? "Without answers" : "With answers"}</Button>
            <Export filters={filters} />
            <Button onPress={() => void query.refetch()}>Ask again</Button>
          </span>
        }
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
                <DataTable
                  label="Rollouts"
                  rows={rows}
                  columns={columnsFor(filters)}
                  rowKey={(row) => row.rollout_id}
                  atFirst={rows.length}
                  sorting={{ by: filters.sort, onSort: (sort) => change({ sort }) }}
                />
                <div className={ui["more"]}>
                  {query.hasNextPage ? (
                    <Button onPress={() => void query.fetchNextPage()} isDisabled={query.isFetchingNextPage}>
                      {query.isFetchingNextPage ? "Asking …" : filters.sort ? "Show more" : "Show older ones"}
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

/** All that the filters let through, as a file. */
function Export({ filters }: { filters: RolloutFilters }) {
  const [error, setError] = useState<Error | null>(null);
  const save = async (kind: "csv" | "jsonl") => {
    setError(null);
    try {
      const rows = await allRollouts(filters);
      const all = rows.map(({ sort_key: _, answer, tool_calls, ...row }) => ({ ...row, answer: answerLines(answer, tool_calls) }));
      if (kind === "csv") saveFile("rollouts.csv", "text/csv", toCsv(all));
      else saveFile("rollouts.jsonl", "application/jsonl", toJsonLines(all));
    } catch (failed) {
      setError(failed instanceof Error ? failed : new Error(String(failed)));
    }
  };
  return (
    <>
      {error && <ErrorMessage error={error} />}
      <Button onPress={() => void save("csv")}>Save as CSV</Button>
      <Button onPress={() => void save("jsonl")}>as JSONL</Button>
    </>
  );
}

function columnsFor(filters: RolloutFilters): Column<RolloutRow>[] {
  const others = filters.answers ? OTHERS.toSpliced(1, 0, ANSWER) : OTHERS;
  return filters.run === undefined ? [ID, RUN, ...others] : [ID, ...others];
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

const ANSWER: Column<RolloutRow> = {
  id: "answer",
  header: "Last answer",
  cell: (row) => <div className={ui["clip"]}>{answerLines(row.answer, row.tool_calls) || "–"}</div>,
};

const OTHERS: Column<RolloutRow>[] = [
  {
    id: "task",
    header: "Task",
    cell: (row) => (
      <div className={ui["clip"]}>
        <Link to="/task" search={{ run: row.run_id, id: row.task }} title="The task in every run">
          {taskLine(row.input_json)}
        </Link>
      </div>
    ),
  },
  { id: "status", header: "Status", cell: (row) => <Status value={row.status} /> },
  { id: "reward", sortable: true, header: "Reward", number: true, cell: (row) => figure(row.reward) },
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
  { id: "calls", sortable: true, header: "Calls", number: true, cell: (row) => (row.call_count === null ? "–" : count(row.call_count)) },
  {
    id: "attempts",
    sortable: true,
    header: "Attempts",
    number: true,
    cell: (row) => (row.attempt_count > 1 ? <Status value={count(row.attempt_count)} tone="warn" /> : count(row.attempt_count)),
  },
  { id: "seconds", sortable: true, header: "Took", number: true, cell: (row) => duration(row.seconds) },
  { id: "enqueued", sortable: true, header: "Enqueued", cell: (row) => <Ago nanos={row.enqueued_unix_nano} /> },
];
