/** What serves each release, how its arms do, and the buttons that change it. */

import { useState } from "react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";

import {
  type ArmRow,
  armsQuery,
  type Change,
  type ChangeRow,
  type CheckRow,
  changesQuery,
  gateReportQuery,
  type ReleaseRow,
  releaseAlarmsQuery,
  releasesQuery,
  sendChange,
} from "../api/releases";
import { count, duration, figure, percent, plural } from "../format";
import { Ago, Button, ErrorMessage, Facts, Panel, Show, Status } from "../ui/basics";
import { type Column, DataTable } from "../ui/DataTable";
import ui from "../ui/ui.module.css";
import styles from "./pages.module.css";

export function Releases() {
  const { release: named } = useSearch({ from: "/releases" });
  const query = useQuery(releasesQuery);
  const alarms = useQuery(releaseAlarmsQuery);
  const chosen = query.data?.find((row) => row.release === named) ?? (named === undefined ? query.data?.[0] : undefined);
  return (
    <>
      <title>Releases · Lightstream</title>
      <div className={styles["head"]}>
        <h1>Releases</h1>
        <p>A release is a name that agents ask for as a model. Its stable model serves it; a candidate serves a share of the sessions.</p>
      </div>
      <Show query={alarms}>
        {(rows) =>
          rows.length === 0 ? null : (
            <ul className={styles["alarms"]} aria-label="Alarms">
              {rows.map((row) => (
                <li key={`${row.release} ${row.alarm} ${row.detail}`} className={styles["alarm"]}>
                  <strong>
                    {row.release}: {row.detail}
                  </strong>
                  <p>{row.next_step}</p>
                </li>
              ))}
            </ul>
          )
        }
      </Show>
      <Panel title="All releases" flush note={query.data ? plural(query.data.length, "release") : ""}>
        <Show query={query}>
          {(rows) => (
            <DataTable
              label="All releases"
              rows={rows}
              columns={RELEASES}
              rowKey={(row) => row.release}
              empty={
                <>
                  There is none yet: <code>lightstream release set NAME --stable MODEL</code> makes one.
                </>
              }
            />
          )}
        </Show>
      </Panel>
      {query.data && named !== undefined && chosen === undefined && <p>{`There is no release ${named}.`}</p>}
      {chosen && <Chosen key={chosen.release} state={chosen} />}
    </>
  );
}

function Chosen({ state }: { state: ReleaseRow }) {
  const arms = useQuery(armsQuery(state.release));
  const changes = useQuery(changesQuery(state.release));
  const report = useQuery(gateReportQuery(state.release, state.candidate ? state.report_id : null));
  return (
    <>
      <Panel title={state.release} note={<Status value={stateOf(state)} tone={state.paused ? "warn" : state.candidate ? "busy" : "good"} />}>
        <Facts
          facts={[
            ["Stable", <Model key="stable" name={state.stable} />],
            ["Candidate", state.candidate ? <Model key="candidate" name={state.candidate} /> : "–"],
            ["Its share", state.candidate ? percent(state.share, 1) : "–"],
            ["Kept by", state.key],
            ["Rules", state.rules === 0 ? "none rolls a candidate back" : plural(state.rules, "rule")],
            [
              "Last change",
              <>
                {changeName(state.action)} by {state.by}, <Ago nanos={state.changed_unix_nano} />
                {state.reason && `: ${state.reason}`}
              </>,
            ],
          ]}
        />
        <ChangeForm state={state} />
      </Panel>
      <Panel title="The gate" flush note={report.data?.[0] ? <Status value={report.data[0].outcome} tone={OUTCOMES[report.data[0].outcome] ?? ""} /> : ""}>
        <Show query={report}>{(rows) => <Report rows={rows} />}</Show>
      </Panel>
      <Panel title="Calls by arm" flush note={state.candidate ? "since the candidate was offered" : "the last day of calls"}>
        <Show query={arms}>
          {(rows) => <DataTable label="Calls by arm" rows={rows} columns={ARMS} rowKey={(row) => row.arm} empty="No call has asked for this release yet." />}
        </Show>
      </Panel>
      <Panel title="History" flush note="the last change first">
        <Show query={changes}>{(rows) => <DataTable label="History" rows={rows} columns={CHANGES} rowKey={(row) => String(row.revision)} atFirst={20} />}</Show>
      </Panel>
    </>
  );
}

function ChangeForm({ state }: { state: ReleaseRow }) {
  const [reason, setReason] = useState("");
  const [share, setShare] = useState("");
  const client = useQueryClient();
  const sending = useMutation({
    mutationFn: (change: Omit<Change, "revision" | "reason">) =>
      sendChange(state.release, { ...change, revision: state.revision, ...(reason.trim() ? { reason: reason.trim() } : {}) }),
    networkMode: "always",
    onSuccess: () => {
      setReason("");
      setShare("");
    },
    // The view shows the change once it has read it: `useLive` asks again then.
    onSettled: () => client.invalidateQueries({ queryKey: ["releases"] }),
  });
  const typed = share.trim() === "" ? NaN : Number(share) / 100;
  const isShare = typed >= 0 && typed <= 1;
  const off = sending.isPending;
  return (
    <form
      className={styles["scoreForm"]}
      aria-label="Change the release"
      onSubmit={(event) => {
        event.preventDefault();
        if (isShare && !off) sending.mutate({ action: "share", share: typed });
      }}
    >
      <label className={`${ui["field"]} ${styles["note"]}`}>
        Reason
        <input className={ui["input"]} maxLength={1000} value={reason} onChange={(event) => setReason(event.target.value)} />
      </label>
      <div className={styles["scoreButtons"]}>
        {state.candidate && !state.paused && (
          <>
            <Button primary isDisabled={off} onPress={() => sending.mutate({ action: "promote" })}>
              Promote {state.candidate}
            </Button>
            <label className={ui["field"]}>
              Share in %
              <input className={ui["input"]} inputMode="decimal" size={5} value={share} onChange={(event) => setShare(event.target.value)} />
            </label>
            <Button type="submit" isDisabled={!isShare || off}>
              Set the share
            </Button>
          </>
        )}
        {state.candidate && (
          <Button isDisabled={off} onPress={() => sending.mutate({ action: "rollback" })}>
            Roll back
          </Button>
        )}
        {!state.candidate && state.previous && (
          <Button isDisabled={off} onPress={() => sending.mutate({ action: "to_previous" })}>
            Return to {state.previous}
          </Button>
        )}
        {state.paused ? (
          <Button isDisabled={off} onPress={() => sending.mutate({ action: "resume" })}>
            Resume
          </Button>
        ) : (
          <Button isDisabled={off} onPress={() => sending.mutate({ action: "pause" })}>
            Pause
          </Button>
        )}
      </div>
      <div role="status">{sending.isSuccess && "Changed."}</div>
      {sending.error && <ErrorMessage error={sending.error} />}
    </form>
  );
}

function Report({ rows }: { rows: readonly CheckRow[] }) {
  const first = rows[0];
  if (!first)
    return (
      <p>
        No report yet: <code>lightstream gate</code> compares a candidate with the stable model.
      </p>
    );
  const checks = rows.filter((row) => row.figure !== null);
  return (
    <>
      <p>
        {first.candidate} against {first.stable}, by {first.by}, <Ago nanos={first.created_unix_nano} />
      </p>
      {first.notes.map((note) => (
        <p key={note}>{note}</p>
      ))}
      <DataTable
        label="Checks of the gate"
        rows={checks}
        columns={CHECKS}
        rowKey={(row) => `${row.task_set} ${row.figure} ${row.kind}`}
        empty="It has no checks."
      />
    </>
  );
}

/** A model; that of a run's version leads to the run. */
function Model({ name }: { name: string }) {
  const run = /^(.+)@\d+$/.exec(name)?.[1];
  return run === undefined ? (
    <span className={ui["mono"]}>{name}</span>
  ) : (
    <Link to="/resources" search={{ run }} className={ui["mono"] ?? ""}>
      {name}
    </Link>
  );
}

function stateOf(state: ReleaseRow): string {
  if (state.paused) return "paused";
  return state.candidate ? `${percent(state.share, 1)} for the candidate` : "stable";
}

function changeName(action: string): string {
  return action.replace("_", " ");
}

const OUTCOMES: Record<string, string> = { passed: "good", failed: "bad", undecided: "warn" };

const RELEASES: Column<ReleaseRow>[] = [
  {
    id: "release",
    header: "Release",
    cell: (row) => (
      <Link to="/releases" search={(known) => ({ ...known, release: row.release })} className={ui["mono"] ?? ""}>
        {row.release}
      </Link>
    ),
  },
  { id: "stable", header: "Stable", cell: (row) => <Model name={row.stable} /> },
  { id: "candidate", header: "Candidate", cell: (row) => (row.candidate ? <Model name={row.candidate} /> : "–") },
  { id: "share", header: "Share", number: true, cell: (row) => (row.candidate ? percent(row.share, 1) : "–") },
  { id: "state", header: "State", cell: (row) => (row.paused ? <Status value="paused" tone="warn" /> : changeName(row.action)) },
  { id: "changed", header: "Changed", cell: (row) => <Ago nanos={row.changed_unix_nano} /> },
];

const ARMS: Column<ArmRow>[] = [
  { id: "arm", header: "Arm", cell: (row) => row.arm },
  { id: "calls", header: "Calls", number: true, cell: (row) => count(row.calls) },
  { id: "keys", header: "Sessions", number: true, cell: (row) => count(row.keys) },
  { id: "reward", header: "Reward", number: true, cell: (row) => figure(row.reward) },
  { id: "rewarded", header: "Rewarded", number: true, cell: (row) => percent(row.rewarded, row.calls - row.fallbacks) },
  { id: "errors", header: "Errors", number: true, cell: (row) => percent(row.errors, row.calls) },
  { id: "fallbacks", header: "Answered by stable", number: true, cell: (row) => count(row.fallbacks) },
  { id: "tokens", header: "Tokens", number: true, cell: (row) => figure(row.response_tokens) },
  { id: "cost", header: "$ a call", number: true, cell: (row) => figure(row.cost) },
  { id: "seconds", header: "Median time", number: true, cell: (row) => duration(row.seconds) },
  { id: "p95", header: "95 % within", number: true, cell: (row) => duration(row.seconds_p95) },
];

const CHECKS: Column<CheckRow>[] = [
  { id: "set", header: "Tasks", cell: (row) => `${row.task_set} (${count(row.tasks ?? 0)})` },
  { id: "figure", header: "Figure", cell: (row) => `${row.figure}${row.kind === "guard" ? "" : `, ${(row.kind ?? "").replace("_", " ")}`}` },
  { id: "stable", header: "Stable", number: true, cell: (row) => figure(row.stable_mean) },
  { id: "candidate", header: "Candidate", number: true, cell: (row) => figure(row.candidate_mean) },
  { id: "bound", header: "Limit", number: true, cell: (row) => figure(row.bound) },
  { id: "p", header: "p", number: true, cell: (row) => figure(row.probability) },
  { id: "passed", header: "", cell: (row) => <Status value={row.passed ? "passed" : "failed"} tone={row.passed ? "good" : "bad"} /> },
];

const CHANGES: Column<ChangeRow>[] = [
  { id: "revision", header: "Revision", number: true, cell: (row) => count(row.revision) },
  { id: "action", header: "Change", cell: (row) => changeName(row.action) },
  { id: "stable", header: "Stable", cell: (row) => <Model name={row.stable} /> },
  { id: "candidate", header: "Candidate", cell: (row) => (row.candidate ? `${row.candidate} (${percent(row.share, 1)})` : "–") },
  { id: "by", header: "By", cell: (row) => row.by },
  { id: "reason", header: "Reason", cell: (row) => <span className={styles["comment"]}>{row.reason || "–"}</span> },
  { id: "when", header: "When", cell: (row) => <Ago nanos={row.changed_unix_nano} /> },
];
