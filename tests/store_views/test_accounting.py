"""Every LLM call has one fate, whatever the log holds; and training is accounted for."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.schemas.packing import pack_int32
from lightstream.schemas.records import (
    AttemptClosed,
    AttemptOpened,
    ConsumedTrajectory,
    EventKind,
    Record,
    RolloutSpec,
    RolloutState,
    RolloutStatus,
    SpanRecord,
    StepOutcome,
    TrainingStep,
    Verdict,
    VerdictOutcome,
)
from lightstream.stream_processors.core.assembly import AssemblyRules
from tests.store_views.log_file import LogFile, open_log_file
from tests.stream_processors.assembly.build import closed, framework_span, opened, proxy_span, reward_span

SpansRecord = SpanRecord | AttemptOpened | AttemptClosed


def state(
    rollout_id: str, status: RolloutStatus = RolloutStatus.SUCCEEDED, offset: int = 0, **spec: Any
) -> RolloutState:
    return RolloutState(
        rollout=RolloutSpec(rollout_id=rollout_id, **spec),
        status=status,
        updated_unix_nano=2,
        source_offset=offset,
        verdict=Verdict(event_id="e", kind=EventKind.ENQUEUED, outcome=VerdictOutcome.APPLIED),
    )


def step(number: int, *consumed: tuple[str, str], trainer_id: str = "t") -> TrainingStep:
    return TrainingStep(
        trainer_id=trainer_id,
        step=number,
        consumed=[
            ConsumedTrajectory(rollout_id=r, attempt_id=f"{r}-a1", revision=0, group_id=g, triplet_count=1)
            for r, g in consumed
        ],
        metrics={"reward": 0.5},
        started_unix_nano=1,
        ended_unix_nano=2_000_000_001,
    )


def account(log: LogFile) -> dict[str, Any]:
    (row,) = log.dicts("FROM call_accounting")
    return row


def fates(log: LogFile) -> Counter[tuple[str, str | None]]:
    return Counter(log.rows("SELECT fate, reason FROM llm_calls"))


def test_a_call_is_pending_then_in_a_triplet(log: LogFile) -> None:
    log.write_and_assemble(opened(), proxy_span(1), proxy_span(2))
    assert fates(log) == {("pending", None): 2}
    assert account(log)["balanced"]
    log.write_and_assemble(reward_span(3, 1.0), closed())
    assert fates(log) == {("triplet", None): 2}
    assert account(log) | {"made": 2, "in_triplets": 2, "dropped": 0, "pending": 0, "balanced": True} == account(log)
    (call,) = log.dicts("SELECT * FROM llm_calls WHERE response_id = 'resp-1'")
    assert (call["prompt_token_ids"], call["response_token_count"], call["http_status"]) == ([1, 2, 3], 2, 200)


def test_each_response_token_has_its_text_where_the_proxy_saw_it(log: LogFile) -> None:
    texts = ["Ünï", "", "🙂 c", "<|im_end|>"]
    told = {
        "response_token_ids": pack_int32([7, 8, 9, 2]),
        "response_tokens_text": "".join(texts),
        "response_token_ends": pack_int32(accumulate(map(len, texts))),
    }
    span = proxy_span(1)
    assert span.llm_call is not None
    log.write(opened(), span.model_copy(update={"llm_call": span.llm_call.model_copy(update=told)}), proxy_span(2))
    found = log.rows("SELECT response_token_texts FROM llm_calls ORDER BY span_id")
    assert found == [(texts,), (None,)]


def test_closed_but_not_yet_assembled_is_pending(log: LogFile) -> None:
    log.write(opened(), proxy_span(1), closed())
    assert fates(log) == {("pending", None): 1}
    assert account(log)["balanced"]


def test_calls_without_a_place_are_dropped_with_the_reason(log: LogFile) -> None:
    nowhere = proxy_span(1).model_copy(update={"rollout_id": None, "attempt_id": None})
    stranger = proxy_span(2, rollout_id="nobody")
    log.write(state("known"))
    refused = proxy_span(3, rollout_id="known", attempt=7)
    early = proxy_span(4)
    log.write_and_assemble(nowhere, stranger, refused, early, opened(), proxy_span(5), closed())
    log.write(proxy_span(6), reward_span(7, 1.0))
    assert Counter(log.rows("SELECT span_id, reason, derived FROM dropped")) == {
        ("0" * 15 + "1", "no_rollout", True): 1,
        ("0" * 15 + "2", "no_rollout", True): 1,
        ("0" * 15 + "3", "attempt_refused", True): 1,
        ("0" * 15 + "4", "attempt_refused", True): 1,
        ("0" * 15 + "6", "late", True): 1,
        ("0" * 15 + "7", "late", True): 1,
    }
    assert account(log) | {"made": 6, "in_triplets": 1, "dropped": 5, "balanced": True} == account(log)


def test_a_span_that_belongs_to_two_rollouts_harms_neither(log: LogFile) -> None:
    of_both = proxy_span(1, rollout_id="r1").model_copy(update={"attempt_id": "r2-a1"})
    log.write(state("r1"), state("r2"))
    spans = [of_both, proxy_span(2, rollout_id="r1"), proxy_span(2, rollout_id="r2")]
    made = log.write_and_assemble(opened("r1"), opened("r2"), *spans, closed("r1"), closed("r2"))
    assert [[t.response_id for t in trajectory.triplets] for trajectory in made] == [["resp-2"], ["resp-2"]]
    assert log.rows("SELECT rollout_id, span_id, reason FROM dropped") == [("r1", of_both.span_id, "attempt_refused")]
    assert account(log) | {"made": 3, "in_triplets": 2, "dropped": 1, "balanced": True} == account(log)


def test_late_calls_and_rewards_count_once_they_are_in_a_revision(log: LogFile) -> None:
    (first,) = log.write_and_assemble(opened(), proxy_span(1), closed())
    log.write(step(1, ("r1", "r1")))
    (second,) = log.write_and_assemble(proxy_span(2), reward_span(3, 1.0), proxy_span(2), reward_span(3, 1.0))
    log.write(first)  # once more, after a crash
    assert (first.revision, second.revision) == (0, 2)
    assert log.rows("SELECT revision, reward, call_count FROM trajectories") == [(2, 1.0, 2)]
    assert log.rows("SELECT response_id, revision, reward FROM triplets ORDER BY ALL") == [
        ("resp-1", 2, 1.0),
        ("resp-2", 2, 1.0),
    ]
    assert log.rows("SELECT count(*) FROM rewards") == [(1,)]
    assert log.rows("FROM dropped") == []
    assert account(log) | {"made": 2, "in_triplets": 2, "balanced": True} == account(log)
    assert log.rows("SELECT revision, latest_revision FROM trained") == [(0, 2)]
    assert log.rows("SELECT consumed_twice, balanced FROM training_accounting") == [(0, True)]


def test_calls_beyond_the_spans_that_an_attempt_may_have_are_too_large(tmp_path: Path) -> None:
    with open_log_file(tmp_path / "full.duckdb", rules=AssemblyRules(attempt_spans_max=1)) as log:
        log.write_and_assemble(opened(), proxy_span(1), proxy_span(2), closed())
        assert fates(log) == {("triplet", None): 1, ("dropped", "too_large"): 1}
        assert account(log)["balanced"]


def test_the_assemblers_drops_are_told_as_they_are(log: LogFile) -> None:
    log.write_and_assemble(
        opened(),
        proxy_span(1, response_logprobs=b"\x00\x00\x00\x00"),
        proxy_span(2, response_token_ids=None),
        proxy_span(3, http_status=500, error_message="boom"),
        proxy_span(4, response_token_ids=b"\x01\x02\x03"),
        reward_span(5, "much"),
        closed(),
    )
    assert Counter(log.rows("SELECT reason, is_llm_call, derived FROM dropped")) == {
        ("logprobs_length_mismatch", True, False): 1,
        ("no_token_ids", True, False): 1,
        ("call_failed", True, False): 1,
        ("bad_token_ids", True, False): 1,
        ("bad_reward", False, False): 1,
    }
    assert account(log) | {"made": 4, "in_triplets": 0, "dropped": 4, "balanced": True} == account(log)


def test_repeated_records_count_once(log: LogFile) -> None:
    trajectories = log.write_and_assemble(
        opened(), opened(), proxy_span(1), proxy_span(1), closed(), closed(), opened(), proxy_span(1)
    )
    log.write(*trajectories)  # emitted again after a crash
    assert fates(log) == {("triplet", None): 1}
    assert account(log)["balanced"]
    assert log.rows("SELECT count(*) FROM spans") == [(1,)]
    assert log.rows("SELECT count(*) FROM trajectories") == [(1,)]


def test_an_attempt_that_is_retried_drops_its_calls(log: LogFile) -> None:
    log.write_and_assemble(
        opened(), proxy_span(1), closed(final=False), opened(attempt=2), proxy_span(2, attempt=2), closed(attempt=2)
    )
    assert fates(log) == {("dropped", "attempt_not_final"): 1, ("triplet", None): 1}
    assert account(log)["balanced"]


def test_a_call_that_only_a_framework_tells_is_counted(log: LogFile) -> None:
    call = framework_span(
        1,
        {
            "gen_ai.response.id": "chatcmpl-1",
            "prompt_token_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9],
            "response_token_ids": [4, 5],
            "logprobs.content": '[{"logprob": -0.5}, {"logprob": -0.25}]',
        },
        name="openai.chat.completion",
    )
    log.write_and_assemble(opened(), call, closed())
    assert account(log)["made"] == account(log)["in_triplets"] + account(log)["dropped"] == 1
    assert account(log)["balanced"]


def test_an_imbalance_shows(log: LogFile) -> None:
    (trajectory,) = log.write_and_assemble(opened(), proxy_span(1), proxy_span(2), closed())
    lost = trajectory.model_copy(update={"revision": 1, "triplets": trajectory.triplets[:1]})
    log.write(lost)
    assert account(log) | {"made": 2, "in_triplets": 1, "unaccounted": 1, "balanced": False} == account(log)
    twice = trajectory.model_copy(update={"revision": 2, "triplets": [*trajectory.triplets, trajectory.triplets[0]]})
    log.write(twice)
    assert account(log) | {"in_triplets": 3, "counted_twice": 1, "balanced": False} == account(log)


RECORDS: list[SpansRecord] = [
    *(opened(r, a) for r in ("r1", "r2") for a in (1, 2)),
    *(closed(r, 1, final=False) for r in ("r1", "r2")),
    *(closed(r, 2) for r in ("r1", "r2")),
    *(proxy_span(n, rollout_id=r, attempt=a) for n in (1, 2) for r in ("r1", "r2") for a in (1, 2)),
    proxy_span(1, rollout_id="r1", response=(9, 9, 9)),
    proxy_span(3, rollout_id="r1", response_id="resp-1"),
    proxy_span(4, rollout_id="r2", response_logprobs=b"123"),
    proxy_span(5).model_copy(update={"rollout_id": None, "attempt_id": None}),
    proxy_span(6).model_copy(update={"attempt_id": None}),
    framework_span(1, {"gen_ai.response.id": "resp-1"}, name="openai.chat.completion"),
    framework_span(7, {"gen_ai.response.id": "resp-7", "prompt_token_ids": [1] * 9, "response_token_ids": [2]}),
    framework_span(8, parent=1),
    reward_span(9, 1.0),
]


@settings(max_examples=25)
@given(order=st.lists(st.sampled_from(range(len(RECORDS))), max_size=40))
def test_the_account_balances_for_any_log(order: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    with open_log_file(tmp_path_factory.mktemp("any") / "view.duckdb", [state("r1"), state("r2")]) as log:
        log.write_and_assemble(*(RECORDS[i] for i in order))
        assert account(log)["balanced"], (account(log), log.dicts("FROM call_spans"))


def test_training_is_balanced_when_every_trajectory_of_a_group_is_consumed_once(log: LogFile) -> None:
    for rollout in ("r1", "r2", "r3"):
        group = "g2" if rollout == "r3" else "g1"
        log.write(state(rollout, group_id=group, group_size=2))
        log.write_and_assemble(
            opened(rollout, group_id=group, group_size=2),
            proxy_span(1, rollout_id=rollout),
            reward_span(2, 1.0, rollout_id=rollout),
            closed(rollout),
        )
    log.write(step(1, ("r1", "g1"), ("r2", "g1")))
    (row,) = log.dicts("FROM training_accounting")
    assert row == {
        "steps": 1,
        "consumed_groups": 1,
        "consumed": 2,
        "in_consumed_groups": 2,
        "consumed_twice": 0,
        "without_trajectory": 0,
        "steps_repeated": 0,
        "steps_skipped": 0,
        "balanced": True,
    }
    assert log.rows("SELECT rollout_id, reward, step FROM trained ORDER BY ALL") == [("r1", 1.0, 1), ("r2", 1.0, 1)]
    assert log.rows("SELECT trajectory_count, group_count, triplet_count, seconds FROM training_steps") == [
        (2, 1, 2, 2.0)
    ]
    assert log.rows("SELECT rollout_id, reason_code FROM why_not_trained") == [("r3", "group_incomplete")]


def test_steps_that_were_discarded_and_the_last_validation_repeat_no_step(log: LogFile) -> None:
    for number, outcome in (
        (1, StepOutcome.DISCARDED),
        (1, StepOutcome.UPDATED),
        (2, StepOutcome.UNCHANGED),
        (2, StepOutcome.MEASURED),
    ):
        log.write(step(number).model_copy(update={"outcome": outcome}))
    assert log.rows("SELECT steps, steps_repeated, steps_skipped, balanced FROM training_accounting") == [
        (2, 0, 0, True)
    ]


@pytest.mark.parametrize(
    ("steps", "wrong"),
    [
        ([step(1, ("r1", "g1"))], {"in_consumed_groups": 2}),
        ([step(1, ("r1", "g1"), ("r2", "g1")), step(2, ("r1", "g1"))], {"consumed_twice": 1}),
        ([step(1, ("r1", "g1"), ("r2", "g1")), step(1)], {"steps_repeated": 1}),
        ([step(1, ("r1", "g1"), ("r2", "g1")), step(3)], {"steps_skipped": 1}),
        ([step(1, ("r1", "g1"), ("ghost", "g1"))], {"without_trajectory": 1}),
    ],
)
def test_training_that_loses_or_repeats_shows(steps: list[Record], wrong: dict[str, int], log: LogFile) -> None:
    for rollout in ("r1", "r2"):
        spec: dict[str, Any] = {"group_id": "g1", "group_size": 2}
        log.write_and_assemble(opened(rollout, **spec), proxy_span(1, rollout_id=rollout), closed(rollout))
    log.write(*steps)
    (row,) = log.dicts("FROM training_accounting")
    assert not row["balanced"]
    assert row | wrong == row
