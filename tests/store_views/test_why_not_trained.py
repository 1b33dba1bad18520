"""Every finished rollout was trained on, or has one reason why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from lightstream.schemas.records import (
    AttemptClosed,
    AttemptOpened,
    ConsumedTrajectory,
    RolloutMode,
    RolloutStatus,
    SpanRecord,
    StepOutcome,
    TrainingStep,
)
from lightstream.store_views.explain import explain
from lightstream.trainers.rollouts.batch import Exclusion
from tests.store_views.log_file import LogFile
from tests.store_views.test_accounting import state
from tests.stream_processors.assembly.build import closed, opened, proxy_span, reward_span

SUCCEEDED, FAILED, CANCELLED = RolloutStatus.SUCCEEDED, RolloutStatus.FAILED, RolloutStatus.CANCELLED
UPDATED = StepOutcome.UPDATED

SpansRecord = SpanRecord | AttemptOpened | AttemptClosed


@dataclass(frozen=True)
class Case:
    """A rollout of its own group.

    Attributes:
        code: what must be said of it: empty, it was trained on; ``None``, nothing, for it is not finished.
        says: what the reason must hold.
        consumed: outcome of the step that consumed it, how many of its calls had a weight, and why others had none.
    """

    code: str | None
    says: Sequence[str] = ()
    status: RolloutStatus = SUCCEEDED
    mode: RolloutMode = RolloutMode.TRAIN
    calls: int = 1
    reward: float | None = 1.0
    assembled: bool = True
    group_size: int = 1
    run_id: str = "run"
    error: str | None = None
    consumed: tuple[StepOutcome, int, Mapping[str, int]] | None = None
    spans: list[SpanRecord] = field(default_factory=list[SpanRecord])


OF_LEARNERS = (
    "late",
    "clock_ahead",
    "left_out",
    "not_taken",
    "no_consent",
    "below_quality",
    "too_old",
    "not_in_share",
    "repeated_input",
    "rejected",
)
"""Reasons of `lightstream learn`."""

CASES = {
    "waiting": Case(None, status=RolloutStatus.QUEUING, assembled=False),
    "running": Case(None, status=RolloutStatus.RUNNING, assembled=False),
    "trained": Case("", consumed=(UPDATED, 1, {})),
    "partly trained": Case("", calls=2, consumed=(UPDATED, 1, {"stale": 1})),
    "val": Case("not_for_training", ["mode val"], mode=RolloutMode.VAL),
    "cancelled": Case("cancelled", status=CANCELLED, assembled=False),
    "cancelled while it ran": Case("cancelled", status=CANCELLED),
    "unassembled": Case("not_assembled", assembled=False),
    "failed early": Case("attempt_failed", ["ValueError: boom"], FAILED, calls=0, reward=None, error="boom"),
    "failed late": Case("attempt_failed", ["ValueError: boom"], FAILED, reward=None, error="boom"),
    "failed, consumed": Case(
        "attempt_failed",
        ["ValueError: boom", "step 1 of t: 1 no_reward"],
        FAILED,
        reward=None,
        error="boom",
        consumed=(UPDATED, 0, {"no_reward": 1}),
    ),
    "failed, but rewarded": Case("no_signal", status=FAILED, error="x", consumed=(UPDATED, 0, {"no_signal": 1})),
    "silent": Case("no_calls", calls=0),
    "broken": Case(
        "no_calls",
        ["dropped: 1 logprobs_length_mismatch"],
        calls=0,
        spans=[proxy_span(1, rollout_id="broken", response_logprobs=b"123")],
    ),
    "silent, consumed": Case("no_calls", calls=0, consumed=(UPDATED, 0, {"no_calls": 1})),
    "unrewarded": Case("no_reward", reward=None),
    "ready": Case("not_consumed"),
    "alone": Case("group_incomplete", ["1 of 2 rollouts"], group_size=2),
    "too late": Case("after_the_end", ["step 3 of 3"], run_id="ended"),
    "several reasons": Case(
        "stale", ["step 1 of t: 2 stale, 1 too_long"], calls=3, consumed=(UPDATED, 0, {"too_long": 1, "stale": 2})
    ),
    "discarded": Case("step_discarded", ["discarded"], consumed=(StepOutcome.DISCARDED, 1, {})),
    "discarded for its own fault": Case(
        "no_reward", ["discarded: 1 no_reward"], reward=None, consumed=(StepOutcome.DISCARDED, 0, {"no_reward": 1})
    ),
    "unchanged": Case("step_unchanged", ["unchanged"], consumed=(StepOutcome.UNCHANGED, 1, {})),
    "unchanged for want of signal": Case("no_signal", consumed=(StepOutcome.UNCHANGED, 0, {"no_signal": 1})),
    "unexplained": Case("no_weight", consumed=(UPDATED, 0, {})),
    "of another algorithm": Case("too_boring", consumed=(UPDATED, 0, {"too_boring": 1})),
    **{
        reason: Case(reason, [f"step 1 of t: 1 {reason}"], consumed=(UPDATED, 0, {reason: 1}))
        for reason in (*(exclusion.value for exclusion in Exclusion), "group_skipped", *OF_LEARNERS)
    },
}


def write(log: LogFile, rollout_id: str, case: Case) -> None:
    spec: dict[str, Any] = {
        "group_id": f"g-{rollout_id}",
        "group_size": case.group_size,
        "run_id": case.run_id,
        "mode": case.mode,
    }
    log.write(state(rollout_id, case.status, **spec))
    if case.assembled:
        spans: list[SpansRecord] = [opened(rollout_id, **spec), *case.spans]
        spans += [proxy_span(n, rollout_id=rollout_id) for n in range(1, case.calls + 1)]
        if case.reward is not None:
            spans.append(reward_span(9, case.reward, rollout_id=rollout_id))
        error = {"error_type": "ValueError", "error_message": case.error} if case.error else {}
        log.write_and_assemble(*spans, closed(rollout_id).model_copy(update=error))
    if case.consumed is not None:
        outcome, weighed, not_trained = case.consumed
        consumed = ConsumedTrajectory(
            rollout_id=rollout_id,
            attempt_id=f"{rollout_id}-a1",
            revision=0,
            group_id=f"g-{rollout_id}",
            triplet_count=weighed,
            not_trained=dict(not_trained),
        )
        log.write(training_step(1, outcome, consumed=[consumed]))


def training_step(number: int, outcome: StepOutcome, **more: object) -> TrainingStep:
    return TrainingStep.model_validate(
        {"trainer_id": "t", "run_id": "run", "step": number, "outcome": outcome}
        | {"started_unix_nano": 1, "ended_unix_nano": 2}
        | more
    )


@pytest.fixture
def whole(log: LogFile) -> LogFile:
    """Every case, and a run that has done all its steps."""
    for rollout_id, case in CASES.items():
        write(log, rollout_id, case)
    log.write(
        training_step(3, UPDATED, run_id="ended", trainer_id="e", steps_planned=3),
        training_step(4, StepOutcome.DISCARDED, run_id="run", steps_planned=3),
    )
    return log


def test_every_reason_is_told_with_what_to_do(whole: LogFile) -> None:
    found = {row["rollout_id"]: row for row in whole.dicts("FROM why_not_trained")}
    assert {name: row["reason_code"] for name, row in found.items()} == {
        name: case.code for name, case in CASES.items() if case.code
    }
    for name, row in found.items():
        for part in CASES[name].says:
            assert part in row["reason"], name
        assert row["next_step"].endswith("."), name
    known = {code for (code,) in whole.rows("SELECT reason_code FROM not_trained_reasons")}
    assert {row["reason_code"] for row in found.values()} - known == {"too_boring"}
    assert known - {row["reason_code"] for row in found.values()} == set(), "each is among the cases"


def test_reasons_and_trained_are_all_finished_rollouts(whole: LogFile) -> None:
    ((trained, reasons, rows, finished),) = whole.rows(
        "SELECT (SELECT count(DISTINCT rollout_id) FROM trained), "
        "(SELECT count(DISTINCT rollout_id) FROM why_not_trained), (SELECT count(*) FROM why_not_trained), "
        "(SELECT count(*) FROM rollouts WHERE status IN ('succeeded', 'failed', 'cancelled'))"
    )
    assert (trained, reasons) == (2, rows)
    assert trained + reasons == finished == len([case for case in CASES.values() if case.code is not None])
    stages = whole.dicts("FROM funnel")
    assert sum(row["count"] for row in stages if row["stage"] == "finished rollouts not trained") == reasons
    assert sum(row["count"] for row in stages if row["stage"] == "rollouts trained") == trained


def test_a_rollout_that_was_consumed_in_vain_and_then_trained_on_is_trained(log: LogFile) -> None:
    write(log, "r1", Case("", consumed=(StepOutcome.DISCARDED, 1, {})))
    assert log.rows("SELECT reason_code FROM why_not_trained") == [("step_discarded",)]
    write(log, "r1", Case("", consumed=(UPDATED, 1, {})))
    assert log.rows("FROM why_not_trained") == []
    assert log.rows("SELECT outcome FROM consumed ORDER BY log_offset") == [("discarded",), ("updated",)]
    assert log.rows("SELECT outcome FROM trained") == [("updated",)]


@pytest.mark.parametrize(
    ("rollout_id", "conclusion", "code"),
    [
        ("waiting", "it waits for a Runner", ""),
        ("running", "it is still running", ""),
        ("trained", "it trained in step 1 of t (1 call)", ""),
        ("partly trained", "it trained in step 1 of t (1 call; not trained: 1 stale)", ""),
        ("no_signal", "it was as good as the mean of its group", "no_signal"),
        ("discarded", "the step that consumed it found nothing to train on", "step_discarded"),
    ],
)
def test_explain_says_trained_only_of_what_had_a_weight(
    rollout_id: str, conclusion: str, code: str, whole: LogFile
) -> None:
    found = explain(whole.dicts, rollout_id)
    assert found.conclusion.startswith(conclusion)
    assert found.reason_code == code
    assert bool(found.next_step) == bool(code)
