/** A score by hand: thumbs or a number, with a name and a note. */

import { useEffect, useState } from "react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";

import { newKey, type Scored, type ScoreRow, scoresQuery, sendScore } from "../api/scores";
import { figure } from "../format";
import { Ago, Button, ErrorMessage, Panel, Show } from "../ui/basics";
import { type Column, DataTable } from "../ui/DataTable";
import ui from "../ui/ui.module.css";
import styles from "./pages.module.css";

const EFFECTS: Record<Scored["effect"], string> = {
  trajectory: "Kept. The attempt still runs: its trajectory will have the score.",
  revision: "Kept. A revision of the trajectory has the score.",
  too_late: "Kept, but the attempt began too long ago for a revision: only a replay uses it.",
};

interface ScoreFormProps {
  rollout: string;
  /** The call that is scored; without it the whole rollout. */
  span?: string;
  onScored?: () => void;
}

export function ScoreForm({ rollout, span, onScored }: ScoreFormProps) {
  const [number, setNumber] = useState("");
  const [name, setName] = useState("");
  const [comment, setComment] = useState("");
  const [key, setKey] = useState(newKey);
  const client = useQueryClient();
  const sending = useMutation({
    mutationFn: (score: number) =>
      sendScore({
        rollout_id: rollout,
        ...(span ? { span_id: span } : {}),
        score,
        ...(name.trim() ? { name: name.trim() } : {}),
        ...(comment.trim() ? { comment: comment.trim() } : {}),
        key,
      }),
    networkMode: "always",
    onSuccess: async () => {
      setKey(newKey());
      setNumber("");
      setComment("");
      await client.invalidateQueries({ queryKey: ["scores", rollout] });
      onScored?.();
    },
  });
  const typed = number.trim() === "" ? NaN : Number(number);
  return (
    <form
      className={styles["scoreForm"]}
      aria-label={span ? "Score of the call" : "Score of the rollout"}
      onSubmit={(event) => {
        event.preventDefault();
        if (Number.isFinite(typed) && !sending.isPending) sending.mutate(typed);
      }}
    >
      <div className={styles["scoreButtons"]}>
        <Button isDisabled={sending.isPending} onPress={() => sending.mutate(1)}>
          <span aria-hidden="true">👍</span> Good (1)
        </Button>
        <Button isDisabled={sending.isPending} onPress={() => sending.mutate(0)}>
          <span aria-hidden="true">👎</span> Bad (0)
        </Button>
        <label className={ui["field"]}>
          or a number
          <input className={ui["input"]} inputMode="decimal" size={8} value={number} onChange={(event) => setNumber(event.target.value)} />
        </label>
        <Button type="submit" primary isDisabled={!Number.isFinite(typed) || sending.isPending}>
          Score it
        </Button>
      </div>
      <div className={styles["scoreButtons"]}>
        <label className={ui["field"]}>
          What is judged
          <input className={ui["input"]} maxLength={200} placeholder="feedback" value={name} onChange={(event) => setName(event.target.value)} />
        </label>
        <label className={`${ui["field"]} ${styles["note"]}`}>
          Note
          <input className={ui["input"]} maxLength={10_000} value={comment} onChange={(event) => setComment(event.target.value)} />
        </label>
      </div>
      <div role="status">{sending.data && (sending.data.repeated ? "This score was there already." : EFFECTS[sending.data.effect])}</div>
      {sending.error && <ErrorMessage error={sending.error} />}
    </form>
  );
}

const COLUMNS: Column<ScoreRow>[] = [
  { id: "value", header: "Score", number: true, cell: (row) => figure(row.value) },
  {
    id: "name",
    header: "Of",
    cell: (row) => (
      <>
        {row.name}
        {row.comment && <div className={styles["comment"]}>{row.comment}</div>}
        {row.compared_with && <div className={ui["muted"]}>compared with {row.compared_with}</div>}
      </>
    ),
  },
  { id: "went", header: "Went to", cell: wentTo },
  { id: "by", header: "By", cell: (row) => row.scored_by || "–" },
  { id: "when", header: "Given", cell: (row) => <Ago nanos={row.scored_unix_nano} /> },
];

function wentTo(row: ScoreRow): string {
  const target = row.scored_span_id ? `call ${row.scored_span_id.slice(0, 8)}` : "the whole trajectory";
  if (row.match === null) return `${target}; no revision has it yet`;
  return row.match === "none" ? "nothing: it names no call of this attempt" : target;
}

export function Scores({ rollout }: { rollout: string }) {
  const query = useQuery(scoresQuery(rollout));
  const client = useQueryClient();
  const assembled = query.data?.filter((row) => row.match !== null).length ?? 0;
  useEffect(() => {
    if (assembled > 0) void client.invalidateQueries({ queryKey: ["explain", rollout] }); // which has the new revision's rewards
  }, [assembled, client, rollout]);
  return (
    <Panel title="Score it" note="The last score is the reward">
      <ScoreForm rollout={rollout} />
      <Show query={query}>
        {(rows) => (rows.length === 0 ? null : <DataTable label="Scores by people" rows={rows} columns={COLUMNS} rowKey={(row) => row.span_id} />)}
      </Show>
    </Panel>
  );
}
