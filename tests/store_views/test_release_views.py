"""Releases in SQL: the state, the history without changes that lost a race, and each call once with its arm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lightstream.schemas.records import GateOutcome, GateReport
from lightstream.schemas.releases import Author, Release, offer, promote, roll_back, set_stable
from lightstream.store_views.feedback import Feedback, Target
from lightstream.store_views.queries import named_query
from tests.store_views.log_file import LogFile
from tests.stream_processors.assembly.build import closed, opened, proxy_span, reward_span

from .test_accounting import state

AUTHOR = Author("test", "", 7)


def test_a_change_that_lost_a_race_is_in_no_view(log: LogFile) -> None:
    first = set_stable(Release("agent", None), AUTHOR, "run@1")
    offered = offer(Release("agent", first), AUTHOR, "run@2", 0.5)
    release = Release("agent", offered)
    rolled_back, late = roll_back(release, AUTHOR), promote(release, AUTHOR)
    other = set_stable(Release("other", None), AUTHOR, "run@9")
    log.write(first, offered, other, rolled_back, late, rolled_back)
    assert log.rows("SELECT release, stable, candidate, share, revision FROM releases ORDER BY release") == [
        ("agent", "run@1", None, 0.0, 3),
        ("other", "run@9", None, 0.0, 1),
    ]
    history = "SELECT action FROM release_changes WHERE release = 'agent' ORDER BY revision"
    assert log.rows(history) == [("set",), ("offered",), ("rolled_back",)]
    assert log.rows("SELECT count(*) FROM releases_raw") == [(6,)]


def of_release(arm: str, **more: Any) -> dict[str, Any]:
    names = {"name": "agent", "arm": arm, "model": "run@2", "key": "session-1", **more}
    return {f"lightstream.release.{name}": value for name, value in names.items()}


def test_each_call_of_a_release_is_there_once_with_its_arm_and_reward(log: LogFile) -> None:
    log.write(state("r1"))
    fallen = of_release("candidate", fallback="500: out of memory", model="run@1")
    twice = proxy_span(3, attributes=of_release("stable"))
    log.write_and_assemble(
        opened(), proxy_span(1, attributes=fallen), proxy_span(2), twice, twice, reward_span(9, 0.5), closed()
    )
    alone = proxy_span(4, attributes=of_release("candidate")).model_copy(
        update={"rollout_id": None, "attempt_id": None}
    )
    log.write(alone)
    assert log.rows(
        "SELECT span_id, release, release_arm, release_model, release_key, release_fallback, reward IS NOT NULL "
        "FROM release_calls ORDER BY span_id"
    ) == [
        (f"{1:016x}", "agent", "candidate", "run@1", "session-1", "500: out of memory", True),
        (f"{3:016x}", "agent", "stable", "run@2", "session-1", None, True),
        (f"{4:016x}", "agent", "candidate", "run@2", "session-1", None, False),
    ]


DAY = 86_400_000_000_000


def report(candidate: str, outcome: GateOutcome) -> GateReport:
    return GateReport(
        report_id=f"report-{candidate}",
        release="agent",
        stable="run@1",
        candidate=candidate,
        outcome=outcome,
        error_rate=0.01,
        checks=[],
        sets=[],
        notes=[],
        by="test",
        created_unix_nano=7,
    )


def alarms(log: LogFile) -> list[tuple[Any, ...]]:
    return log.rows("SELECT alarm, detail FROM release_alarms ORDER BY ALL")


def test_a_model_without_a_passed_report_is_an_alarm_once_the_gate_is_used(log: LogFile) -> None:
    first = set_stable(Release("agent", None), AUTHOR, "run@1")
    offered = offer(Release("agent", first), AUTHOR, "run@2", 0.5)
    log.write(first, offered)
    assert alarms(log) == []
    log.write(report("run@2", GateOutcome.FAILED))
    bypassed = [("gate_bypassed", "run@2 serves without a passed report of the gate")]
    assert alarms(log) == bypassed
    promoted = promote(Release("agent", offered), AUTHOR)
    log.write(promoted)
    assert alarms(log) == bypassed
    log.write(report("run@3", GateOutcome.PASSED))
    passed = offer(Release("agent", promoted), AUTHOR, "run@3", 0.5)
    log.write(passed, promote(Release("agent", passed), AUTHOR))
    assert alarms(log) == []


def later(record: Any, nanos: int) -> Any:
    return record.model_copy(
        update={"start_unix_nano": record.start_unix_nano + nanos, "end_unix_nano": record.end_unix_nano + nanos}
    )


def test_rewards_that_fall_silent_are_an_alarm_after_a_day(log: LogFile) -> None:
    log.write(state("r1"))
    log.write_and_assemble(opened(), proxy_span(1, attributes=of_release("stable")), reward_span(9, 0.5), closed())
    alone = proxy_span(4, attributes=of_release("stable")).model_copy(update={"rollout_id": None, "attempt_id": None})
    log.write(later(alone, DAY // 2))
    assert alarms(log) == []
    after_a_quiet_weekend = later(alone.model_copy(update={"span_id": f"{6:016x}"}), DAY)
    log.write(after_a_quiet_weekend)
    assert alarms(log) == []
    log.write(later(alone.model_copy(update={"span_id": f"{5:016x}"}), 2 * DAY))
    assert alarms(log) == [("rewards_silent", "no call of the last 36 hours of traffic has a reward")]


def test_a_stable_model_that_was_the_first_needs_no_report(log: LogFile) -> None:
    first = set_stable(Release("agent", None), AUTHOR, "run@1")
    second = set_stable(Release("agent", first), AUTHOR, "run@2")
    log.write(first, report("run@9", GateOutcome.PASSED), second)
    assert alarms(log) == [("gate_bypassed", "run@2 serves without a passed report of the gate")]
    log.write(set_stable(Release("agent", second), AUTHOR, "run@1"))
    assert alarms(log) == []


def test_an_arm_is_judged_by_the_calls_that_its_own_model_answered(log: LogFile) -> None:
    first = set_stable(Release("agent", None), AUTHOR, "run@1")
    offered = offer(Release("agent", first), replace(AUTHOR, now_unix_nano=0), "run@2", 0.5)
    log.write(first, offered, state("r1"))
    fallen = of_release("candidate", fallback="500: out of memory", model="run@1")
    stable, own = of_release("stable", model="run@1"), of_release("candidate")
    log.write_and_assemble(
        opened(),
        proxy_span(1, attributes=stable),
        proxy_span(2, attributes=fallen),
        proxy_span(3, attributes=own),
        reward_span(9, 0.5),
        closed(),
    )
    sql, values = named_query("release-arms").statement({"release": "agent"})
    rows = [(row["arm"], row["calls"], row["fallbacks"], row["rewarded"]) for row in log.dicts(sql, values)]
    assert rows == [("stable", 1, 0, 1), ("candidate", 2, 1, 1)]
    log.write(roll_back(Release("agent", offered), AUTHOR))
    assert [row["arm"] for row in log.dicts(sql, values)] == ["stable"]
    sql, values = named_query("releases").statement({})
    (row,) = log.dicts(sql, values)
    assert (row["stable"], row["candidate"], row["report_outcome"]) == ("run@1", None, None)


@pytest.mark.parametrize(("sign", "rollouts", "found"), [(1.0, 20, False), (-1.0, 20, True), (-1.0, 19, False)])
def test_a_judge_that_people_contradict_is_an_alarm(log: LogFile, sign: float, rollouts: int, found: bool) -> None:
    for number in range(rollouts):
        rollout = f"r{number}"
        call = proxy_span(1, attributes=of_release("stable")).model_copy(update={"rollout_id": rollout})
        scores = {"judge gpt": number % 4 / 4, "page": sign * (number % 4 / 4)}
        target = Target(rollout, "a1", 0, is_open=False)
        log.write(call, *(Feedback(score=score, key=by, by=by).span(target, 1_000) for by, score in scores.items()))
    expected = [("judge_disagrees", f"the correlation of judge and people is -1.0 over {rollouts} rollouts")]
    assert alarms(log) == (expected if found else [])
