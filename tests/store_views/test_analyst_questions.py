"""The questions of ``docs/questions.md``, each with at most one join, at a view in which the answers are known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lightstream.schemas.policy_names import model_family
from lightstream.schemas.records import (
    AttemptState,
    AttemptStatus,
    ConsumedTrajectory,
    ResourcesRecord,
    RolloutMode,
    RolloutStatus,
    SpanEventRecord,
    SpanStatus,
    StepOutcome,
)
from lightstream.store_views.server import QueryLimits, run_query
from lightstream.store_views.tables.kept import PRICES

from ..stream_processors.assembly.build import closed, framework_span, opened, proxy_span, reward_span
from .log_file import LogFile, open_log_file
from .test_accounting import state
from .test_why_not_trained import training_step

PAGE = Path(__file__).parents[2] / "docs" / "questions.md"
SECTION = re.compile(r"^## ([^\n]+)\n+```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)
QUESTIONS = dict(SECTION.findall(PAGE.read_text("utf-8")))
SECOND = 1_000_000_000


def attempt(rollout_id: str, status: AttemptStatus, error: str | None = None) -> AttemptState:
    return AttemptState(
        attempt_id=f"{rollout_id}-a1",
        sequence=1,
        status=status,
        started_unix_nano=1,
        ended_unix_nano=2,
        error_type=None if error is None else "ValueError",
        error_message=error,
    )


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogFile]:
    """Run ``a``: ``r1`` and ``r2`` with two agents and tools behind the proxy, of two versions; ``v1``, a validation
    rollout of spans alone, and ``f1``, which failed. Run ``b`` has a rollout that must not count."""
    with open_log_file(tmp_path_factory.mktemp("view") / "view.duckdb") as log:
        _fill(log)
        yield log


def _fill(log: LogFile) -> None:
    for number, (rollout_id, version, reward) in enumerate([("r1", 1, 1.0), ("r2", 2, 0.0)], start=1):
        spec: dict[str, Any] = {"run_id": "a", "mode": RolloutMode.TRAIN, "input_json": f'"task {number}"'}
        log.write(
            state(rollout_id, **spec).model_copy(update={"attempts": [attempt(rollout_id, AttemptStatus.SUCCEEDED)]})
        )
        base = 100 * number
        log.write_and_assemble(
            opened(rollout_id, **spec),
            framework_span(base, {"gen_ai.agent.name": "planner"}, name="invoke_agent", rollout_id=rollout_id),
            proxy_span(
                base + 1, (1, 2, 3), (4, 5), rollout_id=rollout_id, parent=base, response_model=f"digits@{version}"
            ),
            framework_span(
                base + 2,
                {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"},
                name="execute_tool search",
                rollout_id=rollout_id,
                parent=base,
                start_unix_nano=1,
                end_unix_nano=1 + number * SECOND,
                status=SpanStatus.ERROR if number == 2 else SpanStatus.OK,
                status_message="no network" if number == 2 else "",
            ),
            # Without an agent around it.
            proxy_span(base + 3, (1, 2), (4,), rollout_id=rollout_id, trace_id="f" * 32, response_model="digits@1"),
            reward_span(base + 4, reward, rollout_id=rollout_id),
            reward_span(base + 5, 0.25, link={"gen_ai.response.id": "resp-lost"}, rollout_id=rollout_id),
            closed(rollout_id),
        )
    spec = {"run_id": "a", "mode": RolloutMode.VAL, "input_json": '"task 3"'}
    log.write(state("v1", **spec).model_copy(update={"attempts": [attempt("v1", AttemptStatus.SUCCEEDED)]}))
    evaluation = SpanEventRecord(
        name="gen_ai.evaluation.result",
        attributes={"gen_ai.evaluation.name": "quality", "gen_ai.evaluation.score.value": 0.5},
    )
    usage = {"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.output_tokens": 10}
    of_call = {"gen_ai.operation.name": "chat", "gen_ai.response.model": "gpt-4o-mini-2024-07-18"}
    log.write_and_assemble(
        opened("v1", **spec),
        framework_span(300, of_call | usage, name="chat", rollout_id="v1", events=[evaluation]),
        closed("v1"),
    )
    spec = {"run_id": "a", "mode": RolloutMode.TRAIN, "input_json": '"task 2"'}
    failed = {"attempts": [attempt("f1", AttemptStatus.FAILED, "bad input")]}
    log.write(state("f1", RolloutStatus.FAILED, **spec).model_copy(update=failed))
    log.write_and_assemble(
        opened("f1", **spec),
        proxy_span(
            400,
            rollout_id="f1",
            response_model=None,
            requested_model="digits",
            http_status=500,
            error_message="out of memory",
            response_token_ids=None,
            prompt_token_ids=None,
        ),
        closed("f1"),
    )
    log.write(state("other", run_id="b"))
    log.write_and_assemble(opened("other", run_id="b"), proxy_span(500, rollout_id="other"), closed("other"))
    log.write(*[ResourcesRecord(resources_id=f"a-v{n}", version=n, run_id="a", created_unix_nano=1) for n in (1, 2)])
    log.write(
        *[
            training_step(
                number,
                StepOutcome.UPDATED,
                run_id="a",
                consumed=[
                    ConsumedTrajectory(
                        rollout_id=name, attempt_id=f"{name}-a1", revision=0, group_id=name, triplet_count=2
                    )
                ],
            )
            for number, name in ((1, "r1"), (2, "r2"))
        ]
    )
    prices = [("digits", 1.0, 2.0, None, True), ("gpt-4o-mini", 0.15, 0.6, None, False)]
    columns = [pa.array(values, kind) for values, kind in zip(zip(*prices, strict=True), KINDS, strict=True)]
    log.database.replace_rows("prices", pa.Table.from_arrays(columns, names=list(PRICES.types)))


KINDS = (pa.string(), pa.float64(), pa.float64(), pa.float64(), pa.bool_())
ANSWERS: dict[str, list[tuple[Any, ...]]] = {
    "What does each agent earn, step by step?": [
        (1, "agent", 1, 1.0),
        (1, "planner", 1, 1.0),
        (2, "agent", 1, 0.0),
        (2, "planner", 1, 0.0),
    ],
    "What does each model cost?": [
        ("gpt-4o-mini", 1, 1000, 10, pytest.approx((1000 * 0.15 + 10 * 0.6) / 1e6)),
        ("digits", 5, 2 * (3 + 2), 2 * (2 + 1), pytest.approx((10 * 1.0 + 6 * 2.0) / 1e6)),
    ],
    "Which tool is slowest?": [("search", 2, 1.5, 1)],
    "Why do attempts fail?": [("ValueError", "bad input", 1)],
    "How many tokens does a rollout take?": [
        ("v1", "succeeded", 1000, 10),
        ("r1", "succeeded", 5, 3),
        ("r2", "succeeded", 5, 3),
        ("f1", "failed", None, None),
    ],
    "How slow are LLM calls, and how many fail?": [
        ("agent", "digits", 3, 4e-9, 1, "out of memory"),
        ("planner", "digits", 2, 4e-9, 0, None),
        ("agent", "gpt-4o-mini", 1, 4e-9, 0, None),
    ],
    "Which tasks are never solved?": [('"task 2"', 2, 0.0)],
    "Is validation as good as training?": [("train", 3, 0.5, 1), ("val", 1, 0.5, 0)],
    "Does a tool's failure cost reward?": [("search", False, 1, 1.0), ("search", True, 1, 0.0)],
    "Which rewards reached no call?": [
        ("r1", "primary", 0.25, "gen_ai.response.id=resp-lost"),
        ("r2", "primary", 0.25, "gen_ai.response.id=resp-lost"),
    ],
}


def test_the_page_asks_what_is_known_here() -> None:
    assert list(QUESTIONS) == list(ANSWERS)
    assert len(QUESTIONS) == 10


@pytest.mark.parametrize("question", ANSWERS)
def test_a_question_has_its_answer_with_at_most_one_join(question: str, log: LogFile) -> None:
    sql = QUESTIONS[question]
    assert len(re.findall(r"\bJOIN\b", sql)) <= 1
    assert sql.count("SELECT") == 1
    rows = run_query(log.database.cursor(), sql, QueryLimits(), {"run": "a"}).table.to_pylist()
    assert [tuple(row.values()) for row in rows] == ANSWERS[question]


WIDE = {
    "llm_calls": "status",
    "costs": "status",
    "tools": "status",
    "triplets": "status",
    "rewards": "status",
    "dropped": "status",
    "consumed_calls": "status",
    "attempts": "rollout_status",
    "trajectories": "rollout_status",
    "consumed": "rollout_status",
    "spans": "rollout_status",
}


@pytest.mark.parametrize("view", WIDE)
def test_a_wide_view_names_run_mode_agent_model_and_status_in_every_row(view: str, log: LogFile) -> None:
    own = {"spans": "agent_name, read_model"}.get(view, "agent_name, model")
    rows = log.rows(f"SELECT run_id, mode, {WIDE[view]}, {own} FROM {view}")  # noqa: S608  # our names
    assert rows
    assert all(run_id in ("a", "b") and mode and status for run_id, mode, status, *_ in rows)
    if view not in ("spans", "dropped", "attempts"):
        assert all(agent and model is not None for *_, agent, model in rows)


def test_a_reward_of_a_call_without_token_ids_is_the_calls_own(log: LogFile) -> None:
    rows = log.rows("SELECT reward, reason, prompt_token_count, finish_reason FROM llm_calls WHERE rollout_id = 'v1'")
    assert rows == [(0.5, "no_token_ids", 1000, None)]
    assert log.rows("SELECT agent_name, model, status FROM rewards WHERE rollout_id = 'v1'") == [
        ("agent", "gpt-4o-mini", "succeeded")
    ]


def test_the_funnel_tells_runs_apart(log: LogFile) -> None:
    stages = {(run, stage): count for run, stage, count, _ in log.rows("FROM funnel")}
    assert (stages["a", "rollouts enqueued"], stages["b", "rollouts enqueued"]) == (4, 1)
    assert (stages["a", "LLM calls made"], stages["b", "LLM calls made"]) == (6, 1)
    assert (stages["a", "rollouts trained"], stages["b", "rollouts trained"]) == (2, 0)


NAMES = {
    "digits@7": "digits",
    "digits/planner@12": "digits/planner",
    "gpt-4o-mini-2024-07-18": "gpt-4o-mini",
    "claude-sonnet-4-20250514": "claude-sonnet-4",
    "claude-sonnet-4-5@20250929": "claude-sonnet-4-5",
    "anthropic.claude-3-5-sonnet-20241022-v2:0": "anthropic.claude-3-5-sonnet",
    "Qwen/Qwen2.5-1.5B-Instruct": "Qwen/Qwen2.5-1.5B-Instruct",
    "gpt-4": "gpt-4",
    "user@example": "user@example",
    "": "",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_family_is_the_same_in_sql_and_python(name: str, log: LogFile) -> None:
    assert model_family(name) == NAMES[name]
    rows = run_query(log.database.cursor(), "SELECT model_family($name)", QueryLimits(), {"name": name}).table
    assert rows.to_pylist()[0].popitem()[1] == NAMES[name]
