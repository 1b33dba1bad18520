/** One statement at a time, with its answer. The view only reads, whatever is asked. */

import { useEffect, useMemo, useRef, useState } from "react";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";

import { catalogueQuery, type NamedQuery, namedQueries } from "../api/operations";
import { type ArrowAnswer, askArrow } from "../api/arrow";
import type { Parameters } from "../api/request";
import { duration, plural } from "../format";
import { Button, ErrorMessage, Message, Panel, Prose } from "../ui/basics";
import { SqlEditor } from "../ui/CodeEditor";
import { LongTable } from "../ui/LongTable";
import { Select } from "../ui/Select";
import ui from "../ui/ui.module.css";
import { saveFile, toCsv } from "./exporting";
import styles from "./pages.module.css";

const FIRST = "SELECT run_id, stage, count, reason\nFROM funnel";

/** Enough to scroll through; programs ask for more with `lightstream sql`. */
const ROWS_MAX = 100_000;

export function Sql() {
  const { query: name } = useSearch({ from: "/sql" });
  const named = useQuery(namedQueries);
  const isUnknown = name !== undefined && named.isPending;
  return (
    <>
      <title>SQL · Lightstream</title>
      <div className={styles["head"]}>
        <h1>SQL</h1>
        <p>Everything that the pages show, and more, by DuckDB's SQL. The view only reads.</p>
      </div>
      {isUnknown ? <p className={ui["muted"]}>Asking the view …</p> : <Asking key={name ?? ""} queries={named.data ?? []} />}
    </>
  );
}

/** A statement with its answer. One that the address names is asked at once; one that it has word by word is not. */
function Asking({ queries }: { queries: NamedQuery[] }) {
  const { q, query: name, run: ofRun } = useSearch({ from: "/sql" });
  const navigate = useNavigate();
  const chosen = queries.find((one) => one.name === name);
  const [text, setText] = useState(q ?? chosen?.sql ?? FIRST);
  const [values, setValues] = useState<Record<string, string>>(ofRun === undefined ? {} : { run: ofRun });
  const catalogue = useQuery(catalogueQuery);
  const parameters = chosen?.parameters.filter((one) => text.includes(`$${one.name}`)) ?? [];
  const running = useRef<AbortController | null>(null);
  const answer = useMutation({
    mutationFn: async ([statement, given]: [string, Parameters]) => {
      running.current?.abort();
      running.current = new AbortController();
      const began = performance.now();
      const found = await askArrow(statement, given, { rowsMax: ROWS_MAX, signal: running.current.signal });
      return { found, seconds: (performance.now() - began) / 1000 };
    },
  });
  const ask = () => answer.mutate([text, valuesOf(parameters, values)]);
  const run = () => {
    const search = { run: ofRun, query: chosen?.name, q: text === chosen?.sql ? undefined : text };
    void navigate({ to: "/sql", search, replace: true, resetScroll: false });
    ask();
  };
  const choose = (other: string) => void navigate({ to: "/sql", search: { run: ofRun, query: other || undefined }, replace: true, resetScroll: false });
  // biome-ignore lint/correctness/useExhaustiveDependencies: once, when it is named
  useEffect(() => {
    if (chosen && q === undefined) ask();
  }, []);
  const tables = useMemo(() => {
    const found: Record<string, string[]> = {};
    for (const { table_name: table, column_name: column } of catalogue.data ?? []) found[table] = [...(found[table] ?? []), column];
    return found;
  }, [catalogue.data]);
  return (
    <>
      <div className={styles["filters"]}>
        <Select
          label="Named query"
          value={chosen?.name ?? ""}
          options={[["", "None"], ...queries.map((one) => [one.name, one.name] as const)]}
          onChange={choose}
        />
        {parameters.map(({ name, default: usual, meaning }) => (
          <label key={name} className={ui["field"]}>
            {name}
            <input
              className={ui["input"]}
              value={values[name] ?? ""}
              placeholder={usual === null ? "any" : String(usual)}
              title={meaning}
              onChange={(event) => setValues({ ...values, [name]: event.target.value })}
            />
          </label>
        ))}
      </div>
      {chosen && (
        <p className={ui["muted"]}>
          <Prose>{chosen.doc}</Prose>
        </p>
      )}
      {name !== undefined && !chosen && <Message bad title={`The view has no query "${name}".`} />}
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

/** What was typed, as numbers where the query has a number; its own value where nothing was. */
function valuesOf(parameters: NamedQuery["parameters"], typed: Record<string, string>): Parameters {
  return Object.fromEntries(
    parameters.map(({ name, default: usual }) => {
      const text = typed[name] ?? "";
      const number = typeof usual === "number" && text !== "" && !Number.isNaN(Number(text));
      return [name, text === "" ? (usual as string | number | null) : number ? Number(text) : text];
    }),
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

/** All rows as texts, by column; of columns with one name the last. */
function rowsOf({ rowCount, columns, textAt }: ArrowAnswer): Record<string, string | null>[] {
  return Array.from({ length: rowCount }, (_, row) => Object.fromEntries(columns.map(({ name }, column) => [name, textAt(row, column)])));
}

function Answer({ found, seconds }: { found: ArrowAnswer; seconds: number }) {
  const note = `${plural(found.rowCount, "row")}${found.truncated ? ", the first of more" : ""} in ${duration(seconds)}`;
  return (
    <Panel
      title="Answer"
      flush
      note={
        <>
          {note} {found.rowCount > 0 && <Button onPress={() => saveFile("answer.csv", "text/csv", toCsv(rowsOf(found)))}>Save as CSV</Button>}
        </>
      }
    >
      <LongTable label="Answer" answer={found} empty="No row." />
    </Panel>
  );
}
