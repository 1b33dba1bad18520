/** The rollouts of one group beside each other: the same task, other answers, and what each was worth. */

import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";

import { groupQuery, type Member } from "../api/groups";
import { count, duration, figure, plural, taskLine } from "../format";
import { classes, Message, Panel, Show, Status, Text } from "../ui/basics";
import ui from "../ui/ui.module.css";
import { Beside } from "./Beside";
import { answerText } from "./turns";
import styles from "./pages.module.css";

export function Group() {
  const { id = "", run } = useSearch({ from: "/group" });
  const query = useQuery(groupQuery(id, run));
  return (
    <>
      <title>{`Group ${id} · Lightstream`}</title>
      <div className={styles["head"]}>
        <h1>{`Group ${id}`}</h1>
        <p>One task, tried several times. A rollout is reinforced by how much better it was than the mean of its group.</p>
      </div>
      <Show query={query}>
        {(members) => (members.length === 0 ? <Message title="The view knows no rollout of this group." /> : <Members members={members} />)}
      </Show>
    </>
  );
}

interface Spread {
  mean: number;
  deviation: number;
}

function spreadOf(members: Member[]): Spread | null {
  const rewards = members.flatMap((member) => (member.reward === null ? [] : [member.reward]));
  if (rewards.length === 0) return null;
  const mean = rewards.reduce((total, reward) => total + reward, 0) / rewards.length;
  const square = rewards.reduce((total, reward) => total + (reward - mean) ** 2, 0) / rewards.length;
  return { mean, deviation: Math.sqrt(square) };
}

function Members({ members }: { members: Member[] }) {
  const { a, b } = useSearch({ from: "/group" });
  const navigate = useNavigate();
  const spread = spreadOf(members);
  const first = members[0];
  const ranked = members.toSorted((one, other) => (other.reward ?? -Infinity) - (one.reward ?? -Infinity));
  return (
    <>
      <Panel title="Task" note={`${plural(members.length, "rollout")}${first?.group_size ? ` of ${count(first.group_size)}` : ""}`}>
        <Text>{taskLine(first?.input_json ?? "")}</Text>
        <p className={ui["muted"]}>
          {spread
            ? `Mean reward ${figure(spread.mean)}, deviation ${figure(spread.deviation)}. ${
                spread.deviation === 0 ? "All are alike, so the group says nothing about what is better." : ""
              }`
            : "No rollout of it has a reward yet."}
        </p>
      </Panel>
      <ul className={styles["members"]} aria-label="Rollouts of the group">
        {ranked.map((member) => (
          <MemberCard key={member.rollout_id} member={member} spread={spread} />
        ))}
      </ul>
      <Beside
        rollouts={ranked}
        a={a}
        b={b}
        onChoose={(pair) => void navigate({ to: "/group", search: (known) => ({ ...known, ...pair }), replace: true, resetScroll: false })}
      />
    </>
  );
}

function MemberCard({ member, spread }: { member: Member; spread: Spread | null }) {
  const better = spread && member.reward !== null ? member.reward - spread.mean : null;
  const text = answerText(member.response_json);
  return (
    <li className={styles["member"]}>
      <div className={styles["memberHead"]}>
        <Link to="/rollout" search={{ run: member.run_id, id: member.rollout_id }} className={styles["rowLink"] ?? ""}>
          {member.rollout_id}
        </Link>
        {member.status !== "succeeded" && <Status value={member.status} />}
      </div>
      <div className={styles["memberReward"]}>
        <strong>{figure(member.reward)}</strong>
        <span className={classes(better !== null && better > 0 && styles["above"], better !== null && better < 0 && styles["below"])}>
          {better === null ? "no reward" : `${better > 0 ? "+" : ""}${figure(better)} to the mean`}
        </span>
      </div>
      <div>
        {member.step !== null ? (
          <Status value={`trained in step ${member.step}`} tone="good" />
        ) : member.reason_code ? (
          <span className={ui["muted"]} title={member.reason ?? ""}>
            <code>{member.reason_code}</code>
          </span>
        ) : (
          <span className={ui["muted"]}>not finished</span>
        )}
      </div>
      {member.error_type && (
        <p>
          <strong>{member.error_type}</strong> {member.error_message}
        </p>
      )}
      {text ? <Text>{text}</Text> : <p className={ui["muted"]}>No answer recorded.</p>}
      <p className={ui["muted"]}>
        {`${plural(member.call_count ?? 0, "call")}, ${plural(member.response_tokens ?? 0, "token")} in the last answer, ${duration(member.seconds)}`}
        {member.policy_version === null ? "" : `, policy ${member.policy_version}`}
      </p>
    </li>
  );
}
