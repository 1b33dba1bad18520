"""Queries that have names, each asked of a view in which its answer is known."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

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
from tests.stream_processors.assembly.build import closed, opened, proxy_span, reward_span

SECOND = 1_000_000_000
PRICES_SCHEMA = pa.schema(
    [("model", pa.string())]
    + [(name, pa.float64()) for name in ("prompt_price", "response_price", "cached_price")]
    + [("given", pa.bool_())]
)


def ask(log: LogFile, name: str, **given: Any) -> list[dict[str, Any]]:
    query = named_query(name)
    return run_query(log.database.cursor(), query.sql, QueryLimits(), query.values(given)).table.to_pylist()


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


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_runs_on_an_empty_view_and_says_what_it_tells(name: str, log: LogFile) -> None:
    query = QUERIES[name]
    assert query.doc.endswith(".")
    assert {parameter.name for parameter in query.parameters} >= {"run"}
    assert ask(log, name) == []


def test_what_there_is_not_is_named() -> None:
    with pytest.raises(NotFoundError, match=r":stuk \(there is :stuck\).*lightstream sql :"):
        named_query(":stuk")
    with pytest.raises(QueryError, match=":stuck has no parameter 'rum'; it has run, seconds, limit"):
        named_query("stuck").values({"rum": "x"})
    with pytest.raises(QueryError, match=r"'limit' must be a number .*'many'"):
        named_query("stuck").values({"limit": "many"})
    assert named_query("stuck").values({"limit": "7"}) == {"run": None, "seconds": 60, "limit": 7}
