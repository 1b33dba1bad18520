/** The rollouts that nobody has scored yet, one after another: J and K move, and a score brings the next. */

import { useEffect } from "react";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";

import { answerQuery, unscoredQuery } from "../api/scores";
import { figure, plural, taskLine } from "../format";
import { Ago, Message, Panel, Show, Status, Text } from "../ui/basics";
import { type Column, DataTable } from "../ui/DataTable";
import { onKeys } from "../ui/keys";
import ui from "../ui/ui.module.css";
import { answerText } from "./turns";
import styles from "./pages.module.css";
import { ScoreForm } from "./ScoreForm";

export function Queue() {
  const { run, id } = useSearch({ from: "/queue" });
  const navigate = useNavigate();
  const client = useQueryClient();
  const query = useQuery(unscoredQuery(run));
  const waiting = query.data ?? [];
  const at = waiting.findIndex((row) => row.rollout_id === id);
  const chosen = id ?? waiting[0]?.rollout_id;
  const show = (rollout: string | undefined) =>
    void navigate({ to: "/queue", search: { ...(run === undefined ? {} : { run }), ...(rollout ? { id: rollout } : {}) }, replace: true });
  // What is shown may be scored already, by somebody else: then the first of the others is next.
  const move = (by: number) => show(waiting[at < 0 && id !== undefined ? 0 : Math.min(waiting.length - 1, Math.max(0, Math.max(at, 0) + by))]?.rollout_id);
  useEffect(() => onKeys({ j: () => move(1), k: () => move(-1) }));
  const afterScore = async () => {
    const next = waiting.filter((row) => row.rollout_id !== chosen)[Math.max(0, at)]?.rollout_id;
    await client.invalidateQueries({ queryKey: ["unscored"] });
    show(next);
  };
  const columns: Column<(typeof waiting)[number]>[] = [
    {
      id: "rollout",
      header: "Rollout",
      cell: (row) => (
        <span aria-current={row.rollout_id === chosen ? "true" : undefined}>
          <Link to="/queue" search={{ ...(run === undefined ? {} : { run }), id: row.rollout_id }} className={styles["rowLink"] ?? ""}>
            {row.rollout_id}
          </Link>
        </span>
      ),
    },
    { id: "task", header: "Task", cell: (row) => <div className={ui["clip"]}>{taskLine(row.input_json)}</div> },
    { id: "status", header: "Status", cell: (row) => <Status value={row.status} /> },
    { id: "when", header: "Enqueued", cell: (row) => <Ago nanos={row.enqueued_unix_nano} /> },
  ];
  return (
    <>
      <title>To score · Lightstream</title>
      <div className={styles["head"]}>
        <h1>To score</h1>
        <p>
          Finished rollouts without a score by a person, the newest first. <kbd>J</kbd> goes to the next, <kbd>K</kbd> to the one before.
        </p>
      </div>
      {chosen && <Chosen key={chosen} rollout={chosen} onScored={() => void afterScore()} />}
      <Show query={query}>
        {(rows) =>
          rows.length === 0 ? (
            <Message title="Every finished rollout has a score by a person, or none has finished." />
          ) : (
            <Panel title={rows.length < QUEUE_MAX ? `${plural(rows.length, "rollout")} to score` : `The newest ${QUEUE_MAX} to score`} flush>
              <DataTable label="Rollouts to score" rows={rows} columns={columns} rowKey={(row) => row.rollout_id} />
            </Panel>
          )
        }
      </Show>
    </>
  );
}

/** As many as the query gives at once. */
const QUEUE_MAX = 100;

function Chosen({ rollout, onScored }: { rollout: string; onScored: () => void }) {
  const query = useQuery(answerQuery(rollout));
  return (
    <Panel
      title="Is this good?"
      note={
        <Link to="/rollout" search={{ id: rollout, ...(query.data ? { run: query.data.run_id } : {}) }}>
          all of {rollout}
        </Link>
      }
    >
      <Show query={query}>
        {(found) =>
          found === null ? (
            <Message title={`The view knows no rollout ${rollout}.`} />
          ) : (
            <div className={styles["sideBySide"]}>
              <section aria-label="Task">
                <h3>Task</h3>
                <Text>{taskLine(found.input_json)}</Text>
              </section>
              <section aria-label="Answer">
                <h3>{`Answer${found.reward === null ? "" : `, reward ${figure(found.reward)}`}`}</h3>
                {answerText(found.response_json) ? <Text>{answerText(found.response_json)}</Text> : <p className={ui["muted"]}>No answer recorded.</p>}
              </section>
            </div>
          )
        }
      </Show>
      <ScoreForm rollout={rollout} onScored={onScored} />
    </Panel>
  );
}
