/** What agents were given, version by version, with what changed and how they fared; and prompts of a search. */

import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";

import { type PromptRow, promptsQuery, type ResourcesRow, resourcesQuery } from "../api/operations";
import { count, figure, plural, prettyJson } from "../format";
import { Ago, Facts, Panel, Show, Text } from "../ui/basics";
import { Chart } from "../ui/Chart";
import { Difference } from "../ui/CodeEditor";
import { type Column, DataTable } from "../ui/DataTable";
import ui from "../ui/ui.module.css";
import styles from "./pages.module.css";

export function Resources() {
  const { run = "", id } = useSearch({ from: "/resources" });
  const query = useQuery(resourcesQuery(run));
  const prompts = useQuery(promptsQuery(run));
  return (
    <>
      <title>Prompts and resources · Lightstream</title>
      <div className={styles["head"]}>
        <h1>Prompts and resources</h1>
        <p>What rollouts are given: the model's address, prompts, weights. Each version stays as it was.</p>
      </div>
      {prompts.data && prompts.data.length > 0 && <Prompts run={run} prompts={prompts.data} chosen={id} />}
      <Show query={query}>
        {(rows) => (
          <>
            <RewardByVersion rows={rows} />
            <Versions run={run} rows={rows} chosen={id} />
          </>
        )}
      </Show>
    </>
  );
}

function RewardByVersion({ rows }: { rows: ResourcesRow[] }) {
  const known = rows.filter((row) => row.version !== null && row.reward !== null).toReversed();
  if (known.length < 2) return null;
  return (
    <Panel title="Mean reward by version" note="of the rollouts that were pinned to it">
      <Chart
        label="Mean reward by version"
        height={180}
        xLabel="version"
        x={known.map((row) => row.version ?? 0)}
        lines={[{ label: "mean reward", colour: 3, values: known.map((row) => row.reward) }]}
      />
    </Panel>
  );
}

function Versions({ run, rows, chosen }: { run: string; rows: ResourcesRow[]; chosen: string | undefined }) {
  const at = Math.max(
    0,
    rows.findIndex((row) => row.resources_id === chosen),
  );
  const shown = rows[at];
  const before = rows[at + 1];
  const columns: Column<ResourcesRow>[] = [
    {
      id: "id",
      header: "Resources",
      cell: (row) => (
        <Link to="/resources" search={{ run, id: row.resources_id }} replace resetScroll={false} className={styles["rowLink"] ?? ""}>
          {row.resources_id}
        </Link>
      ),
    },
    { id: "version", header: "Version", number: true, cell: (row) => figure(row.version) },
    { id: "model", header: "Model", cell: (row) => row.model ?? "–" },
    { id: "rollouts", header: "Rollouts", number: true, cell: (row) => count(row.rollouts ?? 0) },
    { id: "reward", header: "Mean reward", number: true, cell: (row) => figure(row.reward) },
    { id: "created", header: "Made", cell: (row) => <Ago nanos={row.created_unix_nano} /> },
  ];
  return (
    <div className={styles["columns"]}>
      <Panel title="Versions" flush note={plural(rows.length, "version")}>
        <div className={styles["tall"]}>
          <DataTable label="Versions" rows={rows} columns={columns} rowKey={(row) => row.resources_id} empty="Nothing was published." />
        </div>
      </Panel>
      {shown && (
        <Panel title={shown.resources_id} note={before ? `compared with ${before.resources_id}` : "the first"}>
          <div className={styles["stack"]}>
            {before ? (
              <Difference
                key={shown.resources_id}
                label={`Changes in ${shown.resources_id}`}
                before={readable(before.resources)}
                after={readable(shown.resources)}
              />
            ) : (
              <Text>{readable(shown.resources)}</Text>
            )}
            <Facts
              facts={[
                [
                  "Weights",
                  <span key="weights" className={ui["mono"]}>
                    {shown.checkpoint_url ?? "–"}
                  </span>,
                ],
                ["In the log", <span key="place" className={ui["mono"]}>{`resources/${shown.log_partition} @ ${shown.log_offset}`}</span>],
              ]}
            />
          </div>
        </Panel>
      )}
    </div>
  );
}

/** Resources are JSON whose values are JSON in text: all of it opened, prompts with their lines. */
function readable(text: string): string {
  try {
    const named = JSON.parse(text) as Record<string, unknown>;
    return Object.entries(named)
      .map(([name, value]) => `${name}\n${typeof value === "string" ? prettyJson(value).replaceAll("\\n", "\n") : JSON.stringify(value, null, 2)}`)
      .join("\n\n");
  } catch {
    return text;
  }
}

function Prompts({ run, prompts, chosen }: { run: string; prompts: PromptRow[]; chosen: string | undefined }) {
  const navigate = useNavigate();
  const shown = prompts.find((row) => row.prompt === chosen) ?? prompts[0];
  const parent = prompts.find((row) => row.prompt === shown?.parent);
  const columns: Column<PromptRow>[] = [
    {
      id: "prompt",
      header: "Prompt",
      cell: (row) => (
        <a
          href="#prompt"
          onClick={(event) => {
            event.preventDefault();
            void navigate({ to: "/resources", search: { run, id: row.prompt }, replace: true, resetScroll: false });
          }}
        >
          {row.prompt}
        </a>
      ),
    },
    { id: "parent", header: "Made of", cell: (row) => row.parent ?? "–" },
    { id: "score", header: "Score", number: true, cell: (row) => figure(row.score) },
    { id: "tasks", header: "On tasks", number: true, cell: (row) => figure(row.tasks) },
  ];
  return (
    <div className={styles["columns"]}>
      <Panel title="Prompts of the search, best first" flush>
        <DataTable label="Prompts" rows={prompts} columns={columns} rowKey={(row) => row.prompt} />
      </Panel>
      {shown && (
        <Panel title={shown.prompt} note={parent ? `compared with ${parent.prompt}` : undefined}>
          <div className={styles["stack"]}>
            {parent?.template && shown.template ? (
              <Difference key={shown.prompt} label={`Changes in ${shown.prompt}`} before={parent.template} after={shown.template} />
            ) : (
              <Text>{shown.template ?? "Its text was not recorded."}</Text>
            )}
            {shown.critique && (
              <div>
                <h3>What the model found wrong with {shown.parent}</h3>
                <Text>{shown.critique}</Text>
              </div>
            )}
          </div>
        </Panel>
      )}
    </div>
  );
}
