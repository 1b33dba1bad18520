"""The transition table says something about everything that can occur."""

from __future__ import annotations

import pytest

from lightstream.schemas.records import EventKind, VerdictOutcome
from lightstream.stream_processors.core.lifecycle import TRANSITIONS, Action, Situation
from lightstream.stream_processors.core.lifecycle.situation import ABOUT_AN_ATTEMPT

STILL_SAID = {Action.NOTHING, Action.UPDATE_PAST_ATTEMPT, Action.UPDATE_FINISHED_ROLLOUT, Action.COUNT_SPAN_NUMBERS}
OF_ANY_EVENT = {Situation.NO_ROLLOUT, Situation.WAITING, Situation.BUSY, Situation.FINISHED}


@pytest.mark.parametrize("kind", list(EventKind))
def test_every_event_has_a_rule_in_every_situation(kind: EventKind) -> None:
    expected = set(Situation) if kind in ABOUT_AN_ATTEMPT else OF_ANY_EVENT
    assert set(TRANSITIONS[kind]) == expected


@pytest.mark.parametrize("kind", list(EventKind))
def test_what_is_not_applied_says_why(kind: EventKind) -> None:
    for rule in TRANSITIONS[kind].values():
        assert bool(rule.reason) == (rule.outcome not in (VerdictOutcome.APPLIED, None))


def test_nothing_but_another_attempt_moves_a_finished_rollout() -> None:
    """It comes by the queue or past it. Anything else that is said of it may still be noted."""
    for kind, rules in TRANSITIONS.items():
        for situation in (Situation.FINISHED, Situation.OVER):
            adds = kind is EventKind.ATTEMPT_ADDED and situation is Situation.FINISHED
            allowed = {Action.ADD_ATTEMPT} if adds else STILL_SAID
            assert situation not in rules or rules[situation].action in allowed


@pytest.mark.parametrize("kind", sorted(set(EventKind) - {EventKind.HEARTBEAT, EventKind.SUSPECTED}))
def test_every_event_that_somebody_waits_for_is_answered(kind: EventKind) -> None:
    assert all(rule.outcome is not None for rule in TRANSITIONS[kind].values())
