"""History assembled again, from a real log."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lightstream.cli.replay import attempts_where, parse_time, select
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.processes import child_environment
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import QueryError, SettingsError
from lightstream.schemas.packing import unpack_int32
from lightstream.schemas.records import (
    AssemblySpec,
    AttemptClosed,
    AttemptOpened,
    ConsumedTrajectory,
    DropReason,
    Record,
    SpanRecord,
    TrainingStep,
    Trajectory,
)
from lightstream.schemas.topics import SPANS, TRAINING_STEPS, TRAJECTORIES, Topic
from lightstream.store_views.materialiser import default_path
from lightstream.stream_processors.core.assembly import Assembler, AssemblyRules
from lightstream.stream_processors.replay import (
    Comparison,
    History,
    Replay,
    ReplayedAttempt,
    ReplayRules,
    RewardsAgain,
    Selection,
    TopicReader,
    load_reward_rule,
    read_history,
)
from tests.store_views.log_file import open_log_file

from ..assembly.build import closed, framework_span, opened, proxy_span, reward_span

RULE = """
def reward(attempt):
    if attempt.task["fails"]:
        raise ValueError("cannot judge")
    return float(len(attempt.calls)) if attempt.calls[0].answer == "Fine." else None
"""


def attempt(rollout_id: str, **task: Any) -> list[SpanRecord | AttemptOpened | AttemptClosed]:
    """Two calls, the second in continuation of the first, and a reward of 1."""
    answered = json.dumps({"role": "assistant", "content": "Fine."})
    return [
        opened(rollout_id, input_json=json.dumps({"fails": False} | task)),
        proxy_span(1, [1, 2], [3], rollout_id=rollout_id, request_json='{"messages": []}', response_json=answered),
        proxy_span(2, [1, 2, 3, 4], [5], rollout_id=rollout_id),
        reward_span(3, 1.0, rollout_id=rollout_id),
        closed(rollout_id),
    ]


def publish(settings: Settings, topic: Topic, records: Sequence[tuple[str, Record]]) -> None:
    publisher = KafkaPublisher(settings)
    try:
        for future in [publisher.publish(topic, key, record) for key, record in records]:
            future.result(300)
    finally:
        publisher.close()


def assemble_log(settings: Settings, rules: AssemblyRules | None = None) -> list[Trajectory]:
    """What the worker makes of the topic, in its topic: of each late span a revision."""
    made: list[Trajectory] = []
    reader = TopicReader(settings, SPANS)
    for partition in reader.partitions:
        assembler = Assembler(partition, rules, kept_spans_max=1_000_000)
        for entry in reader.records(partition):
            assert isinstance(entry.record, SpanRecord | AttemptOpened | AttemptClosed)
            made += assembler.on_record(entry.record, entry.offset, entry.logged_unix_nano)
            made += assembler.take_revisions()
    publish(settings, TRAJECTORIES, [(t.rollout_id, t) for t in made])
    return made


@pytest.fixture
def history(settings: Settings) -> list[Trajectory]:
    """Five attempts, of which one is still open, one failed the rule, and two were trained on."""
    records: list[tuple[str, Record]] = []
    for name in ("a", "b", "c", "d"):
        records += [(name, record) for record in attempt(name, fails=name == "d")]
    records += [("open", record) for record in attempt("open")[:-1]]
    publish(settings, SPANS, records)
    made = assemble_log(settings)
    consumed = [
        ConsumedTrajectory(rollout_id=n, attempt_id=f"{n}-a1", revision=0, group_id=n, triplet_count=2) for n in "ab"
    ]
    step = TrainingStep(trainer_id="t", step=1, consumed=consumed, started_unix_nano=1, ended_unix_nano=2)
    publish(settings, TRAINING_STEPS, [("t", step)])
    return made


def run(settings: Settings, rules: ReplayRules) -> tuple[list[Trajectory], Comparison]:
    comparison = Comparison(read_history(settings), rules.segments)
    replayed = list(Replay(settings, rules).trajectories())
    for trajectory in replayed:
        comparison.add(trajectory)
    comparison.finish()
    return replayed, comparison


def test_the_same_rules_change_nothing(settings: Settings, history: list[Trajectory]) -> None:
    replay = Replay(settings, ReplayRules())
    assert list(replay.trajectories()) == history
    assert (replay.open_count, replay.undecodable) == (1, 0)
    _, comparison = run(settings, ReplayRules())
    assert (comparison.all.attempts, comparison.all.changed, comparison.trained.attempts) == (4, 0, 2)
    assert comparison.all.mean_rewards == (1.0, 1.0)
    assert (comparison.all.only_before, comparison.all.only_now) == (0, 0)


def test_credit_and_merge_show_in_the_difference(settings: Settings, history: list[Trajectory]) -> None:
    rules = ReplayRules(AssemblyRules(credit="last_call_only"), merge="none")
    replayed, comparison = run(settings, rules)
    assert [[t.reward for t in trajectory.triplets] for trajectory in replayed] == [[None, 1.0]] * 4
    assert comparison.trained.call_rewards_changed == 2
    assert comparison.trained.rewards_changed == 0
    assert comparison.trained.segments == ({"first": 2}, {"first": 2, "branch": 2})


def test_rules_of_a_run_are_kept_unless_others_are_given(settings: Settings) -> None:
    own = AssemblySpec(credit="last_call_only", reward_match="log_order")
    records = [(name, record) for name in ("own", "none") for record in attempt(name)]
    records[0] = ("own", opened("own", input_json='{"fails": false}', assembly=own))
    publish(settings, SPANS, records)
    made = assemble_log(settings)
    rewards = {t.rollout_id: [triplet.reward for triplet in t.triplets] for t in made}
    assert rewards == {"own": [None, 1.0], "none": [1.0, 1.0]}
    assert list(Replay(settings, ReplayRules()).trajectories()) == made
    other = ReplayRules(instead=AssemblySpec(credit="discounted:0.5"))
    again = {t.rollout_id: t for t in Replay(settings, other).trajectories()}
    assert [triplet.reward for triplet in again["own"].triplets] == [0.5, 1.0]
    assert (again["own"].credit, again["own"].reward_match) == ("discounted:0.5", "log_order")
    judged = ReplayRules(reward=lambda attempt: 3.0)
    by_rule = {t.rollout_id: t for t in Replay(settings, judged).trajectories()}
    assert [triplet.reward for triplet in by_rule["own"].triplets] == [None, 3.0]
    assert [triplet.reward for triplet in by_rule["none"].triplets] == [3.0, 3.0]


def test_a_reward_rule_of_the_users(settings: Settings, history: list[Trajectory], tmp_path: Path) -> None:
    file = tmp_path / "rule.py"
    file.write_text(RULE)
    replayed, comparison = run(settings, ReplayRules(reward=load_reward_rule(str(file))))
    rewards = {t.rollout_id: t.reward for t in replayed}
    assert rewards == {"a": 2.0, "b": 2.0, "c": 2.0, "d": None}
    (failed,) = [t for t in replayed if t.rollout_id == "d"]
    assert [(d.reason, "cannot judge" in d.detail) for d in failed.drops] == [(DropReason.BAD_REWARD, True)]
    assert comparison.all.rewards_changed == 4
    assert comparison.trained.mean_rewards == (1.0, 2.0)
    assert comparison.all.drops == ({}, {"bad_reward": 1})


def test_means_are_over_the_same_attempts(settings: Settings, history: list[Trajectory]) -> None:
    """The rule has no reward for one attempt: what it had before does not count either."""
    rewards = {"a": 1.0, "b": 2.0, "c": 3.0}
    rules = ReplayRules(reward=lambda attempt: rewards.get(attempt.trajectory.rollout_id))
    _, comparison = run(settings, rules)
    counts = comparison.all
    assert (counts.rewards_compared, counts.rewards_lost, counts.rewards_added) == (3, 1, 0)
    assert counts.reward_sums == (3.0, 6.0)
    assert counts.mean_rewards == (1.0, 2.0)
    _, comparison = run(settings, ReplayRules(reward=lambda _: None))
    assert comparison.all.mean_rewards == (None, None)


def test_a_rule_that_fails_too_often_ends_the_replay_with_its_first_error(
    settings: Settings, history: list[Trajectory], tmp_path: Path
) -> None:
    file = tmp_path / "rule.py"
    file.write_text("def reward(attempt):\n    raise KeyError(attempt.trajectory.rollout_id)\n")
    rule = load_reward_rule(str(file))
    replay = Replay(settings, ReplayRules(reward=rule, errors_max=4))
    assert len(list(replay.trajectories())) == replay.rule_errors.count == 4
    first = replay.rule_errors.first
    assert "KeyError" in first
    assert first.endswith(f"({file}, line 2)")
    with pytest.raises(SettingsError, match="more than 3 attempts") as raised:
        list(Replay(settings, ReplayRules(reward=rule, errors_max=3)).trajectories())
    assert first in str(raised.value)
    wrong = Replay(settings, ReplayRules(reward=lambda _: float("nan")))
    list(wrong.trajectories())
    assert wrong.rule_errors.count == 4
    assert "finite number" in wrong.rule_errors.first


def test_attempts_of_a_run_or_chosen_ones_are_compared_alone(settings: Settings) -> None:
    asked: list[str] = []

    def rule(attempt: ReplayedAttempt) -> float:
        asked.append(attempt.trajectory.rollout_id)
        return 0.0

    records: list[tuple[str, Record]] = []
    for name, run_id in (("a", "one"), ("b", "two"), ("c", "two")):
        first, *rest = attempt(name)
        assert isinstance(first, AttemptOpened)
        ours = first.rollout.model_copy(update={"run_id": run_id})
        records += [(name, record) for record in (first.model_copy(update={"rollout": ours}), *rest)]
    publish(settings, SPANS, records)
    assemble_log(settings)
    for selection, names in (
        (Selection(run_id="two"), ["b", "c"]),
        (Selection(attempts=frozenset({("a", "a-a1"), ("b", "b-a1")})), ["a", "b"]),
        (Selection(run_id="two", attempts=frozenset({("a", "a-a1"), ("b", "b-a1")})), ["b"]),
        (Selection(run_id="three"), []),
    ):
        asked.clear()
        comparison = Comparison(read_history(settings, selection))
        for trajectory in Replay(settings, ReplayRules(reward=rule), selection).trajectories():
            comparison.add(trajectory)
        comparison.finish()
        assert sorted(asked) == names
        assert (comparison.all.attempts, comparison.all.only_before, comparison.all.only_now) == (len(names), 0, 0)


def test_the_command_chooses_by_sql(settings: Settings, history: list[Trajectory], tmp_path: Path) -> None:
    """Of the view's file, as nothing runs there."""
    here = settings.model_copy(update={"data_dir": tmp_path, "view_url": None})
    (tmp_path / "view").mkdir()
    with open_log_file(default_path(here), history):
        pass
    chosen = select(here, "earliest", None, "run", "rollout_id < 'c' -- two").attempts
    assert chosen == frozenset({("a", "a-a1"), ("b", "b-a1")})
    chosen = select(here, "earliest", None, "run", "rollout_id < 'c'", "rollout_id = 'a' -- one").attempts
    assert chosen == frozenset({("b", "b-a1")})
    assert attempts_where(here, "rollout_id < 'c' -- two", "another") == frozenset()
    assert attempts_where(here, "rollout_id < 'b' OR false", "") == frozenset({("a", "a-a1")})
    with pytest.raises(QueryError, match="no_such_column"):
        select(here, "earliest", None, None, "no_such_column = 1")


def test_rewards_of_single_calls_and_wrong_ones(settings: Settings, history: list[Trajectory]) -> None:
    def by_call(attempt: ReplayedAttempt) -> dict[int | None, float | None]:
        return {None: 0.5, 1: 0.25} if attempt.trajectory.rollout_id != "c" else {7: 1.0}

    replayed, _ = run(settings, ReplayRules(reward=by_call))
    rewards = {t.rollout_id: [triplet.reward for triplet in t.triplets] for t in replayed}
    assert rewards == {"a": [0.5, 0.25], "b": [0.5, 0.25], "d": [0.5, 0.25], "c": [None, None]}


def test_rewards_for_the_trajectories_that_a_trainer_consumed(
    settings: Settings, history: list[Trajectory], tmp_path: Path
) -> None:
    """The same as a replay's; a rule that reads answers needs the spans, and an attempt without them is named."""
    (tmp_path / "rule.py").write_text(RULE)
    rule = load_reward_rule(str(tmp_path / "rule.py"))
    replayed = {t.rollout_id: t for t in run(settings, ReplayRules(reward=rule))[0]}
    attempts = frozenset((t.rollout_id, t.attempt_id) for t in history)
    again = RewardsAgain(settings, "", rule, attempts, None)
    for trajectory in history:
        expected = replayed[trajectory.rollout_id]
        assert again(trajectory) == expected.model_copy(update={"drops": again(trajectory).drops})
        assert [drop.detail for drop in again(trajectory).drops] == [drop.detail for drop in expected.drops]
    assert again.errors.count == 1
    assert "rule.py, line 4" in again.errors.first
    with pytest.raises(SettingsError, match=r"1 of 5 attempts, such as 'gone-a1', cannot be assembled again"):
        RewardsAgain(settings, "", rule, attempts | {("gone", "gone-a1")}, None)
    with pytest.raises(SettingsError, match="failed in more than 0 attempts; the first was rollout d"):
        RewardsAgain(settings, "", rule, attempts, 0)
    without = RewardsAgain(settings, "", rule, frozenset(key for key in attempts if key[0] != "d"), 0)
    assert without.errors.count == 0, "the rule is not asked about others"


def test_rewards_of_calls_that_came_later_are_not_put_on_an_earlier_revision(
    settings: Settings, history: list[Trajectory]
) -> None:
    by_call: dict[int | None, float | None] = {0: 0.5, 1: 0.25}
    again = RewardsAgain(settings, "", lambda _: by_call, frozenset({("a", "a-a1")}), 0)
    first = next(t for t in history if t.rollout_id == "a")
    earlier = first.model_copy(update={"triplets": first.triplets[:1]})
    assert [triplet.reward for triplet in again(earlier).triplets] == [0.5]
    assert again(earlier).drops == earlier.drops


def test_of_a_trained_attempt_that_revision_counts(history: list[Trajectory], settings: Settings) -> None:
    first = next(t for t in history if t.rollout_id == "a")
    revised = first.model_copy(update={"revision": 1, "reward": 0.0})
    for order in ([first, revised, first], [revised, first, revised]):
        known = History(trained={("a", "a-a1"): 0})
        untrained = History()
        for trajectory in order:
            known.add(trajectory)
            untrained.add(trajectory)
        assert known.emitted["a", "a-a1"].reward == 1.0
        assert untrained.emitted["a", "a-a1"].reward == 0.0


def opened_now(rollout_id: str) -> AttemptOpened:
    """Late spans are refused some days after the opening."""
    return opened(rollout_id).model_copy(update={"opened_unix_nano": time.time_ns()})


def test_late_spans_count_however_many_spans_lie_between(settings: Settings) -> None:
    """More than the assembler holds of closed attempts; each attempt comes once, in its newest revision."""
    records: list[tuple[str, Record]] = []
    for name in ("soon", "hours"):
        records += [("k", opened_now(name)), ("k", proxy_span(1, rollout_id=name)), ("k", closed(name))]
    records.append(("k", reward_span(2, 1.0, rollout_id="soon")))
    for number in range(11):
        name = f"other-{number}"
        spans = [framework_span(n, rollout_id=name) for n in range(1, 1001)]
        records += [("k", record) for record in (opened_now(name), *spans, closed(name))]
    records.append(("k", reward_span(2, 1.0, rollout_id="hours")))
    publish(settings, SPANS, records)
    assemble_log(settings)

    replayed, comparison = run(settings, ReplayRules())
    late = {t.rollout_id: (t.revision, t.reward) for t in replayed if not t.rollout_id.startswith("other")}
    assert late == {"soon": (1, 1.0), "hours": (1, 1.0)}
    assert len(replayed) == 13
    assert (comparison.all.attempts, comparison.all.changed, comparison.all.only_before) == (13, 0, 0)
    by_rule, _ = run(settings, ReplayRules(reward=lambda attempt: float(len(attempt.spans) + len(attempt.calls))))
    assert {t.rollout_id: t.reward for t in by_rule if t.rollout_id in late} == {"soon": 3.0, "hours": 3.0}
    assert not [drop for t in by_rule for drop in t.drops]


@pytest.mark.parametrize("batch_bytes", [1, 64 * 1024 * 1024])
def test_rollouts_with_late_spans_come_in_batches(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    monkeypatch.setattr("lightstream.stream_processors.replay.late_rollouts.BATCH_BYTES_MAX", batch_bytes)
    names = ("a", "b", "c")
    records: list[tuple[str, Record]] = [("k", opened_now(name)) for name in names]
    records += [("k", proxy_span(1, rollout_id=name)) for name in names]
    records += [("k", closed(name)) for name in names]
    records += [("k", reward_span(n, n / 4, rollout_id=name)) for n in (2, 3) for name in ("a", "b")]
    records.append(("k", proxy_span(1, rollout_id="c")))
    publish(settings, SPANS, records)
    made = assemble_log(settings)

    replayed, _ = run(settings, ReplayRules())
    newest = {t.rollout_id: t for t in made}
    assert {t.rollout_id: t for t in replayed} == newest
    assert [(t.rollout_id, t.revision) for t in replayed] == [("a", 2), ("b", 2), ("c", 0)], "a repeated span is none"


def test_spans_that_came_too_late_are_refused_as_the_worker_refuses_them(settings: Settings) -> None:
    records: list[Record] = [opened(), proxy_span(1), closed(), reward_span(2, 1.0)]  # opened in 1970
    publish(settings, SPANS, [("k", record) for record in records])
    made = assemble_log(settings)
    (replayed,), _ = run(settings, ReplayRules())
    assert [replayed] == made
    assert (replayed.revision, replayed.reward) == (0, None)


def test_the_rule_is_not_asked_about_attempts_that_were_tried_again(settings: Settings) -> None:
    """They have no calls, and so no last one."""
    records: list[Record] = [opened(), proxy_span(1), closed(final=False)]
    publish(settings, SPANS, [("k", record) for record in records])
    made = assemble_log(settings)
    replayed, comparison = run(settings, ReplayRules(reward=lambda attempt: float(len(attempt.calls[-1].answer))))
    assert replayed == made
    assert (comparison.all.attempts, comparison.all.changed) == (1, 0)


def test_a_rule_reads_the_answer_of_the_calls_own_choice(settings: Settings) -> None:
    body = {"id": "x", "prompt_token_ids": [1], "choices": [{"token_ids": [10]}, {"token_ids": [20]}]}
    attributes = {"openinference.span.kind": "LLM", "output.value": json.dumps(body)}
    for index, content in enumerate(("wrong", "right")):
        attributes[f"llm.output_messages.{index}.message.role"] = "assistant"
        attributes[f"llm.output_messages.{index}.message.content"] = content
    records: list[Record] = [opened(), framework_span(1, attributes), closed()]
    publish(settings, SPANS, [("k", record) for record in records])

    def is_right(attempt: ReplayedAttempt) -> dict[int | None, float | None]:
        return {call.triplet.call_index: float(call.answer == "right") for call in attempt.calls}

    (trajectory,) = Replay(settings, ReplayRules(reward=is_right)).trajectories()
    assert [(unpack_int32(t.response_token_ids).tolist(), t.reward) for t in trajectory.triplets] == [
        ([10], 0.0),
        ([20], 1.0),
    ]


def test_reading_from_a_time_on(settings: Settings, history: list[Trajectory]) -> None:
    def replayed(start: str, end: str | None = None) -> int:
        selection = select(settings, start, end, None, None)
        return len(list(Replay(settings, ReplayRules(), selection).trajectories()))

    assert replayed("2999-01-01T00:00:00") == 0
    assert replayed("1h") == 4
    assert replayed("earliest", "1h") == 0
    assert replayed("1h", "2999-01-01") == 4
    assert parse_time("1970-01-01T01:00:00+01:00", "--from") == 0
    with pytest.raises(SettingsError, match="--to 'yesterday' is neither"):
        replayed("earliest", "yesterday")


def test_the_command_line(settings: Settings, history: list[Trajectory], tmp_path: Path) -> None:
    (tmp_path / "rule.py").write_text(RULE)
    out = tmp_path / "replayed.parquet"
    prefix = f"{settings.topic_prefix}again."
    arguments = ["--reward", str(tmp_path / "rule.py"), "--out", str(out), "--to-prefix", prefix, "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "lightstream.cli", "replay", *arguments],
        env=child_environment(settings),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["trained"]["rewards_changed"], answer["open_attempts"]) == (2, 1)
    assert answer["rule_errors"] == 1
    assert "cannot judge" in answer["first_rule_error"]
    rewards = pq.read_table(out, columns=["rollout_id", "reward"]).to_pylist()
    assert {row["rollout_id"]: row["reward"] for row in rewards} == {"a": 2.0, "b": 2.0, "c": 2.0, "d": None}
    again = read_history(settings.model_copy(update={"topic_prefix": prefix}))
    assert again.emitted["a", "a-a1"].reward == 2.0
    by_setting = settings.model_copy(update={"credit": "last_call_only"})
    tables = [
        subprocess.run(
            [sys.executable, "-m", "lightstream.cli", "replay", *arguments],
            env=child_environment(its_settings),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for its_settings, arguments in ((settings, ["--credit", "last_call_only"]), (by_setting, []))
    ]
    assert "calls with another reward" in tables[0]
    assert tables[0] == tables[1]


def test_what_began_before_any_log_is_all_of_it() -> None:
    assert [parse_time(text, "--from") for text in ("9999999d", "9" * 19 + "h", "0001-01-01", "earliest")] == [0] * 4
    assert parse_time("1m", "--from") > parse_time("1h", "--from") > parse_time("1d", "--from") > 0
    with pytest.raises(SettingsError):
        parse_time("9" * 5_000 + "h", "--from")


def test_a_record_that_cannot_be_assembled_ends_no_replay(
    settings: Settings, history: list[Trajectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with the worker, which makes it a dead letter."""
    whole = Assembler.on_record

    def fails_at_one(self: Assembler, record: Any, offset: int, logged_unix_nano: int = 0) -> list[Trajectory]:
        if isinstance(record, AttemptClosed) and record.rollout_id == "b":
            raise RuntimeError("a bug")
        return whole(self, record, offset, logged_unix_nano)

    monkeypatch.setattr(Assembler, "on_record", fails_at_one)
    replay = Replay(settings, ReplayRules())
    assert [t.rollout_id for t in replay.trajectories()] == [t.rollout_id for t in history if t.rollout_id != "b"]
    assert replay.left_out == 1
