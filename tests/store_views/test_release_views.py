"""Releases in SQL: the state, the history without changes that lost a race, and each call once with its arm."""

from __future__ import annotations

from typing import Any

from lightstream.schemas.releases import Author, Release, offer, promote, roll_back, set_stable
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
