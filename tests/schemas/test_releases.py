"""Changes of releases: each from a state and a wish, an error says the next step; and arms that a share decides."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightstream.schemas.errors import StoreError
from lightstream.schemas.records import ReleaseAction, ReleaseChanged, ReleaseKey, ReleaseRule
from lightstream.schemas.releases import (
    Author,
    Release,
    folded,
    is_of_candidate,
    offer,
    pause,
    point_of,
    promote,
    resume,
    roll_back,
    set_share,
    set_stable,
)

POINT = 0.010043061202023798
"""First eight bytes of SHA-256 of ``support-agent\\0session-1``, of 2^64."""
AUTHOR = Author("test", "because", 7)
Wish = Callable[[Release, Author], ReleaseChanged]


def after(*wishes: Wish) -> ReleaseChanged:
    """The state after these wishes, from ``run@1`` on."""
    state = set_stable(Release("agent", None), AUTHOR, "run@1")
    for wish in wishes:
        state = wish(Release("agent", state), AUTHOR)
    return state


OFFERED = partial(offer, candidate="run@2", share=0.25)


def test_a_candidate_comes_and_becomes_stable() -> None:
    state = after(OFFERED)
    assert (state.action, state.stable, state.candidate, state.share) == (ReleaseAction.OFFERED, "run@1", "run@2", 0.25)
    assert (state.revision, state.offered_unix_nano, state.by, state.reason) == (2, 7, "test", "because")
    state = after(OFFERED, promote)
    assert (state.stable, state.candidate, state.share, state.previous) == ("run@2", None, 0.0, "run@1")
    state = after(OFFERED, promote, partial(roll_back, to_previous=True))
    assert (state.stable, state.previous, state.revision) == ("run@1", None, 4), "the way back"


def test_a_candidate_is_rolled_back_also_while_paused() -> None:
    for state in (after(OFFERED, roll_back), after(OFFERED, pause, roll_back)):
        assert (state.stable, state.candidate, state.share, state.offered_unix_nano) == ("run@1", None, 0.0, None)


def test_a_pause_keeps_the_candidate_for_later() -> None:
    state = after(partial(offer, candidate="run@2", share=1.0), pause)
    assert state.candidate == "run@2"
    assert not is_of_candidate(state, "a session")
    assert is_of_candidate(after(partial(offer, candidate="run@2", share=1.0), pause, resume), "a session")


RULE = ReleaseRule(name="errors", sql="SELECT 1")


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ([promote], "has no candidate: there is nothing to promote. Offer one: `lightstream release offer agent"),
        ([roll_back], "has no candidate: there is nothing to roll back. Offer one"),
        ([OFFERED, promote, roll_back], "nothing to roll back (to return to 'run@1': --to-previous)"),
        ([OFFERED, partial(roll_back, to_previous=True)], "has the candidate 'run@2': roll that back first"),
        ([partial(roll_back, to_previous=True)], "no stable model before 'run@1'. Name one: `lightstream release set"),
        ([partial(set_share, share=0.5)], "has no candidate"),
        ([pause, OFFERED], "is paused: no candidate may be offered. `lightstream release resume agent` ends the pause"),
        ([OFFERED, pause, promote], "is paused: no candidate may be promoted"),
        ([pause, pause], "is paused"),
        ([resume], "is not paused"),
        ([OFFERED, partial(offer, candidate="run@3", share=0.1)], "has the candidate 'run@2': it takes no second one"),
        ([partial(offer, candidate="run@1", share=0.1)], "is the stable model of release 'agent'. Offer another"),
        ([partial(offer, candidate=" ", share=0.1)], "a model is named by"),
        ([partial(offer, candidate="run@2", share=1.5)], "a share is a number from 0 to 1, not 1.5"),
        ([partial(offer, candidate="run@2", share=float("nan"))], "a share is a number from 0 to 1, not nan"),
        ([OFFERED, partial(set_share, share=0.25)], "has a share of 0.25 already"),
        ([OFFERED, partial(set_stable, stable="run@5")], "its stable model cannot be changed. Promote it or roll it"),
        ([OFFERED, partial(set_stable, key=ReleaseKey.USER)], "its key cannot be changed"),
        ([partial(set_stable, stable="run@1")], "is so already"),
        ([partial(set_stable, rules=[RULE, RULE])], "two rules have the name 'errors'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_error_says_the_next_step(wishes: list[Wish], message: str) -> None:
    with pytest.raises(StoreError) as caught:
        after(*wishes)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["", "run@1", "a/b", "-a", "a" * 101, "ä"])
def test_a_name_is_no_name_of_a_version(name: str) -> None:
    with pytest.raises(StoreError, match="a release's name is"):
        set_stable(Release(name, None), AUTHOR, "run@1")


def test_a_release_that_is_not_there_cannot_be_changed() -> None:
    for wish in (OFFERED, promote, roll_back, pause, resume, partial(set_stable, key=ReleaseKey.USER)):
        with pytest.raises(StoreError, match="there is no release 'agent'"):
            wish(Release("agent", None), AUTHOR)


WISHES: list[Wish] = [
    promote,
    roll_back,
    partial(roll_back, to_previous=True),
    pause,
    resume,
    *(partial(offer, candidate=f"run@{number}", share=0.5) for number in range(1, 4)),
    *(partial(set_stable, stable=f"run@{number}") for number in range(1, 4)),
    partial(set_share, share=0.1),
]


@given(st.lists(st.tuples(st.sampled_from(WISHES), st.booleans()), max_size=40))
def test_of_two_changes_of_one_state_the_first_counts(steps: list[tuple[Wish, bool]]) -> None:
    """Two writers, one of which has not heard of the other's last change: a stale change changes nothing."""
    states: dict[str, ReleaseChanged] = {}
    first = set_stable(Release("agent", None), AUTHOR, "run@1")
    assert folded(states, first)
    stale = first
    for wish, is_stale in steps:
        known = states["agent"]
        try:
            record = wish(Release("agent", stale if is_stale else known), AUTHOR)
        except StoreError:
            continue
        counts = folded(states, record)
        assert counts == (not is_stale or stale == known)
        state = states["agent"]
        assert state == (record if counts else known)
        assert state.revision == known.revision + counts
        assert state.candidate != state.stable
        assert (state.candidate is None) == (state.offered_unix_nano is None)
        if counts and record.action is ReleaseAction.ROLLED_BACK:
            assert state.candidate is None
        if not is_stale:
            stale = known
        assert not folded(states, record), "a record that comes twice counts once"


@given(st.text(max_size=30), st.floats(0, 1), st.floats(0, 1))
def test_an_arm_is_monotone_in_the_share(key: str, one: float, other: float) -> None:
    less, more = sorted((one, other))
    arms = [is_of_candidate(after(partial(offer, candidate="b", share=share)), key) for share in (less, more)]
    assert arms[1] or not arms[0]
    assert 0.0 <= point_of("agent", key) < 1.0
    assert not is_of_candidate(after(partial(offer, candidate="b", share=0.0)), key)
    assert is_of_candidate(after(partial(offer, candidate="b", share=1.0)), key)


def test_a_tenth_of_the_keys_is_a_tenth() -> None:
    state = after(partial(offer, candidate="b", share=0.1))
    assert 900 < sum(is_of_candidate(state, f"session-{number}") for number in range(10_000)) < 1100


def test_the_hash_is_the_documented_one() -> None:
    """Two proxies, and a program in another language, find the same arm."""
    assert point_of("support-agent", "session-1") == pytest.approx(POINT, abs=1e-15)
