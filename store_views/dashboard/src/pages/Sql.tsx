/** One statement at a time, with its answer. The view only reads, whatever is asked. */

import { useMemo, useRef, useState } from "react";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";

import { catalogueQuery } from "../api/operations";
import { askSql, type SqlAnswer, type Value } from "../api/request";
import { duration, plural } from "../format";
import { Button, classes, ErrorMessage, Panel } from "../ui/basics";
import { SqlEditor } from "../ui/CodeEditor";
import { type Column, DataTable } from "../ui/DataTable";
import ui from "../ui/ui.module.css";
import styles from "./pages.module.css";

const FIRST = "SELECT stage, count, reason\nFROM funnel";

const EXAMPLES = [
  ["Where work goes", FIRST],
  ["Why rollouts did not train", "SELECT reason_code, count(*) AS rollouts, any_value(next_step) AS next_step\nFROM why_not_trained\nGROUP BY reason_code\nORDER BY rollouts DESC"],
  ["Slowest calls", "SELECT rollout_id, response_model, round(seconds, 3) AS seconds, response_token_count\nFROM llm_calls\nORDER BY seconds DESC NULLS LAST\nLIMIT 20"],
  ["Reward by step", "SELECT run_id, step, metrics['reward/mean'] AS reward, trajectory_count, round(seconds, 2) AS seconds\nFROM training_steps\nORDER BY run_id, step DESC"],
  ["Every table and view", "SHOW TABLES"],
] as const;

/** Enough to read; programs ask for more with `lightstream sql`. */
const ROWS_MAX = 1_000;

export function Sql() {
  const { q = FIRST } = useSearch({ from: "/sql" });
  const navigate = useNavigate();
  const [text, setText] = useState(q);
  const catalogue = useQuery(catalogueQuery);
  const running = useRef<AbortController | null>(null);
  const answer = useMutation({
    mutationFn: async (statement: string) => {
      running.current?.abort();
      running.current = new AbortController();
      const began = performance.now();
      const found = await askSql(statement, {}, { rowsMax: ROWS_MAX, signal: running.current.signal });
      return { found, seconds: (performance.now() - began) / 1000 };
    },
  });
  const run = () => {
    void navigate({ to: "/sql", search: { q: text }, replace: true, resetScroll: false });
    answer.mutate(text);
  };
  const tables = useMemo(() => {
    const found: Record<string, string[]> = {};
    for (const column of catalogue.data ?? []) (found[column.table_name] ??= []).push(column.column_name);
    return found;
  }, [catalogue.data]);
  return (
    <>
      <title>SQL · Lightstream</title>
      <div className={styles["head"]}>
        <h1>SQL</h1>
        <p>Everything that the pages show, and more, by DuckDB's SQL. The view only reads.</p>
      </div>
      <div className={styles["filters"]}>
        {EXAMPLES.map(([name, statement]) => (
          <Button key={name} onPress={() => setText(statement)}>
            {name}
          </Button>
        ))}
      </div>
      <SqlEditor key={catalogue.data ? "known" : "unknown"} text={text} tables={tables} onChange={setText} onRun={run} />
      <div className={styles["filters"]}>
        <Button primary onPress={run} isDisabled={answer.isPending || text.trim() === ""}>
          {answer.isPending ? "Asking …" : "Run"}
        </Button>
        {answer.isPending && <Button onPress={() => running.current?.abort()}>Stop</Button>}
        <span className={ui["muted"]}>Ctrl+Enter</span>
      </div>
      {answer.error && answer.error.name !== "AbortError" && <ErrorMessage error={answer.error} />}
      {catalogue.data && <Catalogue tables={tables} />}
      {answer.data && <Answer found={answer.data.found} seconds={answer.data.seconds} />}
    </>
  );
}

function Catalogue({ tables }: { tables: Record<string, string[]> }) {
  const names = Object.keys(tables).filter((name) => !/_raw$/.test(name));
  return (
    <details>
      <summary className={ui["muted"]}>{`${plural(names.length, "table and view", "tables and views")} and their columns`}</summary>
      <dl className={ui["facts"]}>
        {names.map((name) => (
          <div key={name} style={{ display: "contents" }}>
            <dt>
              <code>{name}</code>
            </dt>
            <dd className={ui["mono"]}>{tables[name]?.join(", ")}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

type Row = readonly Value[];

function Answer({ found, seconds }: { found: SqlAnswer; seconds: number }) {
  const columns = useMemo(
    () =>
      found.columns.map(
        (name, index): Column<Row> => ({
          id: `${index}`,
          header: name,
          number: /INT|DOUBLE|FLOAT|DECIMAL/.test(found.types[index] ?? "") && !(found.types[index] ?? "").includes("["),
          cell: (row) => <Cell value={row[index] ?? null} />,
        }),
      ),
    [found],
  );
  const note = `${plural(found.rows.length, "row")}${found.truncated ? ", the first of more" : ""} in ${duration(seconds)}`;
  return (
    <Panel title="Answer" flush note={note}>
      <DataTable label="Answer" rows={found.rows} columns={columns} rowKey={(_, index) => String(index)} empty="No row." />
    </Panel>
  );
}

const CELL_CHARACTERS = 300;

function Cell({ value }: { value: Value }) {
  if (value === null) return <span className={ui["muted"]}>null</span>;
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return <span className={classes(ui["mono"])}>{text.length > CELL_CHARACTERS ? `${text.slice(0, CELL_CHARACTERS)} …` : text}</span>;
}
