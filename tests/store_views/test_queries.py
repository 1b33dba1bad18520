"""Queries that have names, each asked of a view in which its answer is known."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks import view_pages
from lightstream.schemas.errors import NotFoundError, QueryError
from lightstream.schemas.records import (
    AttemptState,
    AttemptStatus,
    ConsumedTrajectory,
    ResourcesRecord,
    RolloutMode,
    RolloutStatus,
    StepOutcome,
)
from lightstream.store_views.queries import QUERIES, named_query
from lightstream.store_views.server import QueryLimits, run_query
from tests.store_views.log_file import LogFile
from tests.store_views.test_accounting import state
from tests.store_views.test_why_not_trained import training_step
from tests.stream_processors.assembly.build import closed, opened, proxy_span, reward_span, span_id

SECOND = 1_000_000_000
PRICES_SCHEMA = pa.schema(
    [("model", pa.string())]
    + [(name, pa.float64()) for name in ("prompt_price", "response_price", "cached_price")]
    + [("given", pa.bool_())]
)


def ask(log: LogFile, name: str, **given: Any) -> list[dict[str, Any]]:
    sql, values = named_query(name).statement(given)
    return run_query(log.database.cursor(), sql, QueryLimits(), values or None).table.to_pylist()


@pytest.fixture
def run(log: LogFile) -> LogFile:
    """Two runs: in ``a``, a group of two with the same reward, one with two, and a lost call; in ``b``, a rollout."""
    rewards = {"a1": ("flat", 0.5), "a2": ("flat", 0.5), "a3": ("steep", 0.0), "a4": ("steep", 1.0)}
    for number, (rollout_id, (group_id, reward)) in enumerate(rewards.items(), 1):
        spec: dict[str, Any] = {"run_id": "a", "group_id": group_id, "group_size": 2, "mode": RolloutMode.TRAIN}
        log.write(state(rollout_id, **spec))
        log.write_and_assemble(
            opened(rollout_id, **spec),
            proxy_span(number, rollout_id=rollout_id, policy_version=1, response_model="policy@1"),
            reward_span(100 + number, reward, rollout_id=rollout_id),
            closed(rollout_id),
        )
    log.write(state("b1", run_id="b"))
    log.write_and_assemble(
        opened("b1", run_id="b"),
        proxy_span(9, rollout_id="b1", response_model="other", http_status=500, error_message="out of memory"),
        closed("b1"),
    )
    return log


def test_task_rates_are_those_of_consumed_rollouts(log: LogFile) -> None:
    rewards = {"r1": ("easy", 1.0, 1), "r2": ("easy", 1.0, 2), "r3": ("hard", 0.0, 1), "r4": ("hard", 1.0, 3)}
    others = {"r5": ("hard", 1.0, None), "r6": ("other set", 1.0, 1)}
    cases: dict[str, tuple[str, float, int | None]] = {**rewards, **others}
    for number, (rollout_id, (task, reward, step)) in enumerate(cases.items(), 1):
        digest = "old" if task == "other set" else "new"
        spec: dict[str, Any] = {"run_id": "a", "group_id": rollout_id, "mode": RolloutMode.TRAIN}
        noted = {"task": {"set": "s", "digest": digest, "id": task}}
        log.write(state(rollout_id, metadata_json=json.dumps(noted), **spec))
        log.write_and_assemble(
            opened(rollout_id, **spec), reward_span(100 + number, reward, rollout_id=rollout_id), closed(rollout_id)
        )
        if step is not None:
            consumed = ConsumedTrajectory(
                rollout_id=rollout_id,
                attempt_id=f"{rollout_id}-a1",
                revision=0,
                group_id=rollout_id,
                triplet_count=0,
            )
            log.write(training_step(step, StepOutcome.UPDATED, consumed=[consumed], run_id="a"))
    # A late reward is of a revision that no step has consumed.
    log.write_and_assemble(reward_span(200, 5.0, rollout_id="r3"))
    assert log.rows("SELECT revision, reward FROM trajectories_latest WHERE rollout_id = 'r3'") == [(1, 5.0)]
    shown = ask(log, "task-rates", run="a", digest="new")
    assert [(row["task"], row["rollouts"], row["pass_rate"], row["low"], row["high"]) for row in shown] == [
        ("easy", 2, 1.0, 1.0, 1.0),
        ("hard", 2, 0.5, 0.0, 1.0),
    ]
    early = ask(log, "task-rates", run="a", digest="new", step=2)
    assert [(row["task"], row["rollouts"]) for row in early] == [("easy", 2), ("hard", 1)]
    assert [row["rollouts"] for row in ask(log, "task-rates", run="a", digest="new", last=1)] == [1, 1]


def test_stuck_names_the_quietest_first(log: LogFile) -> None:
    (beat,) = log.rows("SELECT (epoch(now()) * 1000000000)::BIGINT")[0]

    def running(rollout_id: str, quiet_s: int) -> None:
        attempt = AttemptState(
            attempt_id=f"{rollout_id}-a1",
            sequence=1,
            status=AttemptStatus.RUNNING,
            worker_id=f"runner of {rollout_id}",
            started_unix_nano=1,
            last_heartbeat_unix_nano=beat - quiet_s * SECOND,
        )
        known = state(rollout_id, RolloutStatus.RUNNING, run_id="a")
        log.write(known.model_copy(update={"attempts": [attempt], "updated_unix_nano": beat}))

    running("lively", 0)
    running("quiet", 1_000)
    running("quieter", 2_000)
    log.write(state("ended", run_id="a").model_copy(update={"ended_unix_nano": 3}))
    rows = ask(log, "stuck", run="a")
    assert [(row["rollout_id"], row["worker_id"]) for row in rows] == [
        ("quieter", "runner of quieter"),
        ("quiet", "runner of quiet"),
    ]
    assert 2_000 <= rows[0]["quiet_seconds"] < 2_000 + 3_600
    assert [row["rollout_id"] for row in ask(log, "stuck", seconds="1500", limit="1")] == ["quieter"]
    assert ask(log, "stuck", run="b") == []


def test_reward_by_agent(run: LogFile) -> None:
    (row,) = ask(run, "reward-by-agent", run="a")
    assert (row["calls"], row["rollouts"], row["rewarded_calls"]) == (4, 4, 4)
    assert (row["reward_mean"], row["reward_min"], row["reward_max"]) == (0.5, 0.0, 1.0)
    assert row["response_tokens_mean"] == 2
    assert ask(run, "reward-by-agent", run="a", mode="val") == []


def test_staleness_counts_versions_between_sampling_and_training(run: LogFile) -> None:
    def consumed(rollout_id: str, group_id: str) -> ConsumedTrajectory:
        return ConsumedTrajectory(
            rollout_id=rollout_id, attempt_id=f"{rollout_id}-a1", revision=0, group_id=group_id, triplet_count=1
        )

    versions = [ResourcesRecord(resources_id=f"a-v{n}", version=n, run_id="a", created_unix_nano=1) for n in (1, 2, 3)]
    run.write(*versions)
    run.write(
        training_step(
            1,
            StepOutcome.UPDATED,
            run_id="a",
            resources_id="a-v3",
            consumed=[consumed("a1", "flat"), consumed("a2", "flat")],
        ),
        training_step(2, StepOutcome.UPDATED, run_id="a", consumed=[consumed("a3", "steep")]),
    )
    assert [
        (row["step"], row["calls"], row["staleness_mean"], row["staleness_max"]) for row in ask(run, "staleness")
    ] == [
        (1, 2, 0.0, 0),
        (2, 1, 2.0, 2),
    ]
    assert [row["step"] for row in ask(run, "curve", run="a")] == [1, 2]


def test_lost_calls_and_their_reasons(run: LogFile) -> None:
    (lost,) = ask(run, "lost-calls")
    assert (lost["run_id"], lost["rollout_id"], lost["reason"]) == ("b", "b1", "call_failed")
    assert ask(run, "lost-calls", run="a") == []
    assert ask(run, "lost-calls", reason="no_token_ids") == []
    (all_runs,) = ask(run, "dropped-reasons")
    assert (all_runs["reason"], all_runs["dropped"], all_runs["share_of_calls"]) == ("call_failed", 1, 0.2)
    assert ask(run, "dropped-reasons", run="b")[0]["share_of_calls"] == 1.0


def test_cost_by_model_adds_up_its_versions(run: LogFile) -> None:
    prices = {
        "model": ["policy"],
        "prompt_price": [1e6],
        "response_price": [5e5],
        "cached_price": [None],
        "given": [True],
    }
    run.database.replace_rows("prices", pa.table(prices).cast(PRICES_SCHEMA))
    run.write_and_assemble(
        opened("b2", run_id="b"), proxy_span(10, rollout_id="b2", response_model="policy@2"), closed("b2")
    )
    run.write(state("b2", run_id="b"))
    ours, theirs, other = ask(run, "cost-by-model")
    assert (ours["run_id"], ours["model"], ours["versions"], ours["calls"]) == ("a", "policy", 1, 4)
    assert (ours["prompt_tokens"], ours["response_tokens"], ours["cost"]) == (12, 8, 16.0)
    assert (theirs["run_id"], theirs["model"], theirs["cost"]) == ("b", "policy", 4.0)
    assert (other["model"], other["failed_calls"], other["cost"]) == ("other", 1, None)
    assert [row["cost"] for row in ask(run, "cost-by-model", run="a")] == [16.0]


def test_flat_groups_have_one_reward(run: LogFile) -> None:
    (row,) = ask(run, "flat-groups")
    assert (row["group_id"], row["rollouts"], row["group_size"], row["reward"]) == ("flat", 2, 2, 0.5)
    assert ask(run, "flat-groups", run="b") == []


OF_ONE_ROW = {"trained-inputs", "rollout-figures", "rollout-marks", "run", "trained"}


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_runs_on_an_empty_view_and_says_what_it_tells(name: str, log: LogFile) -> None:
    query = QUERIES[name]
    assert query.doc.endswith(".")
    assert set(re.findall(r"\$(\w+)", query.sql)) == {parameter.name for parameter in query.parameters}
    if name != "catalogue":
        assert len(ask(log, name)) == (name in OF_ONE_ROW)


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_runs_with_all_of_its_parameters(name: str, run: LogFile) -> None:
    given = {parameter.name: parameter.default or "1" for parameter in QUERIES[name].parameters}
    sql, values = named_query(name).statement(given)
    assert sql == QUERIES[name].sql
    run_query(run.database.cursor(), sql, QueryLimits(), values)


def test_rollouts_are_narrowed_by_what_is_given(run: LogFile) -> None:
    run.write(
        training_step(
            1,
            StepOutcome.UPDATED,
            run_id="a",
            consumed=[
                ConsumedTrajectory(rollout_id="a3", attempt_id="a3-a1", revision=0, group_id="steep", triplet_count=1)
            ],
        )
    )

    def found(**given: Any) -> list[str]:
        return sorted(row["rollout_id"] for row in ask(run, "rollouts", **given))

    assert found() == ["a1", "a2", "a3", "a4", "b1"]
    assert found(run="b") == ["b1"]
    assert found(mode="val") == found(status="failed") == []
    assert found(group="flat") == ["a1", "a2"]
    assert found(text="A3") == []
    assert found(text="a3") == found(step=1) == found(step="1", run="a") == found(reason="trained") == ["a3"]
    assert found(reason="not_consumed") == ["a1", "a2", "a4"]
    assert found(step=1, run="b") == []
    (last,) = ask(run, "rollouts", limit=1)
    rest = found(nanos=last["enqueued_unix_nano"], id=last["rollout_id"])
    assert len(rest) == 4
    assert last["rollout_id"] not in rest
    rows = {row["rollout_id"]: row for row in ask(run, "rollouts")}
    assert (rows["a3"]["step"], rows["a3"]["reward"], rows["a3"]["reason_code"]) == (1, 0.0, None)
    assert (rows["a4"]["step"], rows["a4"]["reason_code"], rows["a4"]["call_count"]) == (None, "not_consumed", 1)


def test_runs_are_listed_with_what_became_of_them(run: LogFile) -> None:
    run.write(training_step(1, StepOutcome.UPDATED, run_id="a", metrics={"reward/mean": 0.5}))
    rows = {row["run_id"]: row for row in ask(run, "runs")}
    assert (rows["a"]["rollouts"], rows["a"]["succeeded"], rows["a"]["step"], rows["a"]["rewards"]) == (4, 4, 1, [0.5])
    assert (rows["b"]["rollouts"], rows["b"]["trainers"]) == (1, None)
    assert [row["run_id"] for row in ask(run, "runs", run="b")] == ["b"]
    assert [row["rollout_id"] for row in ask(run, "open-rollouts", run="a")] == []


def test_what_there_is_not_is_named() -> None:
    with pytest.raises(NotFoundError, match=r":stuk \(there is :stuck\).*lightstream sql :"):
        named_query(":stuk")
    with pytest.raises(QueryError, match=":stuck has no parameter 'rum'; it has run, seconds, limit"):
        named_query("stuck").values({"rum": "x"})
    with pytest.raises(QueryError, match=r"'limit' must be a number .*'many'"):
        named_query("stuck").values({"limit": "many"})
    assert named_query("stuck").values({"limit": "7"}) == {"run": None, "seconds": 60, "limit": 7}


def test_a_task_of_several_groups_is_one(log: LogFile) -> None:
    for step, group in (("s1", "g1"), ("s2", "g2")):
        for task in ("1", "2"):
            log.write(state(f"{step}-{task}", run_id="r", group_id=f"{group}-{task}", input_json=task))
    ((row),) = ask(log, "run", run="r")
    assert (row["tasks"], row["groups"], row["rollouts"]) == (2, 4, 4)


PAGES = sorted((Path(__file__).parents[2] / "store_views" / "dashboard" / "src").rglob("*.ts*"))
ASKED = re.compile(r'\bask\("(:[\w-]+)", (?:\{([^}]*)\}|(\w+)\()')


def test_what_the_dashboard_asks_are_queries_that_there_are() -> None:
    """Statements of its own would be a second home."""
    text = "\n".join(path.read_text("utf-8") for path in PAGES if path.name != "Sql.tsx")
    found = ASKED.findall(text)
    assert len(found) == len(re.findall(r"\bask\((?!sql\b)", text)) > 15
    for name, given, _ in found:
        named = {part.split(":")[0].strip() for part in given.split(",") if part.strip() and "..." not in part}
        assert named <= {parameter.name for parameter in named_query(name).parameters}
    assert re.findall(r"\bSELECT\b", text) == []


def test_blame_names_what_raised_an_answer_first(log: LogFile) -> None:
    """Ten groups of two; in each one answers as the answer in question, and is rewarded for it in the third alone."""
    for group in range(10):
        for member in range(2):
            rollout_id, alike = f"g{group}-{member}", member == 0
            spec: dict[str, Any] = {"run_id": "a", "group_id": f"g{group}", "group_size": 2, "mode": RolloutMode.TRAIN}
            log.write(state(rollout_id, **spec))
            prompt = [1, 2, 3] if group < 6 else [9, 8, 7]
            number = 10 * group + member + 1
            reward = 0.5 if group == 5 else float(alike == (group == 2))
            log.write_and_assemble(
                opened(rollout_id, **spec),
                proxy_span(number, prompt, [4, 5, 6] if alike else [4, 6], rollout_id=rollout_id, policy_version=0),
                reward_span(1000 + number, reward, rollout_id=rollout_id),
                closed(rollout_id),
            )
    consumed = [
        ConsumedTrajectory(
            rollout_id=f"g{group}-{member}",
            attempt_id=f"g{group}-{member}-a1",
            group_id=f"g{group}",
            revision=0,
            triplet_count=1,
        )
        for group in range(10)
        for member in range(2)
    ]
    before, after = consumed[:18], consumed[18:]
    log.write(
        *[ResourcesRecord(resources_id=f"v{n}", version=n, run_id="a", created_unix_nano=1) for n in range(3)],
        training_step(1, StepOutcome.UPDATED, run_id="a", consumed=before, resources_id="v1"),
        training_step(2, StepOutcome.UPDATED, run_id="a", consumed=after, resources_id="v2"),
    )
    log.write(state("asked", run_id="a"))
    log.write_and_assemble(
        opened("asked", run_id="a"),
        proxy_span(500, [1, 2, 3], [4, 5, 6], rollout_id="asked", policy_version=1),
        closed("asked"),
    )
    found = ask(log, "blame", span=f"{500:016x}", limit=100)
    assert (found[0]["rollout_id"], found[0]["raised_by"]) == ("g2-0", 0.5)
    lowered = {row["rollout_id"] for row in found if row["raised_by"] == -0.5}
    assert lowered == {f"g{group}-0" for group in (0, 1, 3, 4)}, "and the flat group says nothing"
    likeness = {row["rollout_id"]: (row["response_likeness"], row["prompt_likeness"]) for row in found}
    assert likeness["g2-1"] == (pytest.approx(1 / 3), 1.0), "4 begins both answers"
    assert likeness["g6-0"] == (1.0, 0.0)
    assert not any(name.startswith("g9") for name in likeness), "the second step came after the answer's version"
    assert ask(log, "blame", span="0" * 16) == []


def test_blame_takes_the_mean_of_rollouts_and_lists_only_calls_with_weight(log: LogFile) -> None:
    """One rollout of the group has three calls; one has no call that entered the batch."""
    consumed = []
    for member, (calls, reward, weight) in enumerate(((3, 1.0, 3), (1, 0.0, 1), (1, 0.5, 0))):
        rollout_id = f"r{member}"
        log.write(state(rollout_id, run_id="a", group_id="g"))
        numbers = [10 * member + call for call in range(1, calls + 1)]
        log.write_and_assemble(
            opened(rollout_id, run_id="a", group_id="g"),
            *[proxy_span(number, rollout_id=rollout_id, policy_version=0) for number in numbers],
            *[
                reward_span(1000 + number, reward, rollout_id=rollout_id, link={"span_id": span_id(number)})
                for number in numbers
            ],
            closed(rollout_id),
        )
        used = ConsumedTrajectory(
            rollout_id=rollout_id, attempt_id=f"{rollout_id}-a1", revision=0, group_id="g", triplet_count=weight
        )
        consumed.append(used)
    log.write(
        *[ResourcesRecord(resources_id=f"v{n}", version=n, run_id="a", created_unix_nano=1) for n in range(2)],
        training_step(1, StepOutcome.UPDATED, run_id="a", consumed=consumed, resources_id="v1"),
    )
    log.write(state("asked", run_id="a"))
    log.write_and_assemble(
        opened("asked", run_id="a"), proxy_span(500, rollout_id="asked", policy_version=1), closed("asked")
    )
    found = ask(log, "blame", span=span_id(500), limit=100)
    assert [(row["rollout_id"], row["span_id"], row["advantage"]) for row in found] == [
        ("r0", span_id(1), 0.5),
        ("r0", span_id(2), 0.5),
        ("r0", span_id(3), 0.5),
        ("r1", span_id(11), -0.5),
    ]


def test_blame_compares_with_rollouts_without_a_call_too_and_with_no_baseline(log: LogFile) -> None:
    consumed = list[ConsumedTrajectory]()
    for name, calls, reward in (("called", 1, 1.0), ("silent", 0, 0.0), ("baseline", 1, 0.0)):
        spec: dict[str, Any] = {
            "run_id": "a",
            "group_id": "g",
            "mode": RolloutMode("test" if name == "baseline" else "train"),
        }
        log.write(state(name, **spec))
        log.write_and_assemble(
            opened(name, **spec),
            *[proxy_span(len(consumed) + 1, rollout_id=name, policy_version=0) for _ in range(calls)],
            reward_span(1000 + len(consumed), reward, rollout_id=name),
            closed(name),
        )
        weight = int(name == "called")
        consumed.append(
            ConsumedTrajectory(rollout_id=name, attempt_id=f"{name}-a1", revision=0, group_id="g", triplet_count=weight)
        )
    log.write(
        *[ResourcesRecord(resources_id=f"v{n}", version=n, run_id="a", created_unix_nano=1) for n in range(2)],
        training_step(1, StepOutcome.UPDATED, run_id="a", consumed=consumed, resources_id="v1"),
    )
    log.write(state("asked", run_id="a"))
    log.write_and_assemble(
        opened("asked", run_id="a"), proxy_span(500, rollout_id="asked", policy_version=1), closed("asked")
    )
    (found,) = ask(log, "blame", span=span_id(500))
    assert (found["rollout_id"], found["advantage"]) == ("called", 0.5)


def test_the_benchmark_of_the_pages_asks_each_of_their_queries_with_values(run: LogFile) -> None:
    api = Path(__file__).parents[2] / "store_views" / "dashboard" / "src" / "api"
    named = {name for path in api.glob("*.ts") for name in re.findall(r'":([a-z-]+)"', path.read_text("utf-8"))}
    asked = {query.name: query for query in view_pages.queries()}
    assert asked.keys() == named
    assert {"rollouts", "task", "step-changes", "conversation"} <= named
    values = view_pages.asked_values(run.database)
    for query in asked.values():
        narrowed = {one.name: values[one.name] for one in query.parameters if one.name in values}
        ask(run, query.name, **narrowed)
    (task,) = {row["task"] for row in ask(run, "rollouts", run="a")}
    assert values["task"] == task
    assert {"run", "rollout", "span", "group", "task", "step", "before"} <= values.keys()
