"""Seeds that follow from a run's, for calls without one of their own: the same in every run, another for each call."""

from __future__ import annotations

import openai
import pytest

from lightstream.producers.llm_proxy.call import Caller, CallSeeds
from tests.producers.llm_proxy.upstreams import ScriptedUpstream


def caller(rollout: str | None = "r", attempt: str | None = "a") -> Caller:
    return Caller(rollout, attempt, "0" * 32)


def test_each_call_of_each_attempt_has_a_seed_of_its_own() -> None:
    seeds = CallSeeds()
    asked = [
        (7, caller()),
        (7, caller()),
        (7, caller(attempt="b")),
        (7, caller("q")),
        (8, caller("x")),
        (7, caller("x")),
    ]
    drawn = [seeds.next(*one) for one in asked]
    assert len(set(drawn)) == len(drawn)
    assert all(seed is not None and 0 <= seed < 2**63 for seed in drawn)


def test_the_same_calls_have_the_same_seeds_whatever_their_attempts_are_called() -> None:
    first, second = CallSeeds(), CallSeeds()
    ours = [first.next(7, caller(attempt=attempt)) for attempt in "aab"]
    theirs = [second.next(7, caller(attempt=attempt)) for attempt in "xxy"]
    assert ours == theirs


def test_who_is_no_rollout_gets_none() -> None:
    assert CallSeeds().next(7, caller(None, None)) is None


@pytest.mark.parametrize("own", [None, 5])
def test_the_upstream_is_given_the_seed_unless_the_agent_has_one(
    client: openai.OpenAI, upstream: ScriptedUpstream, own: int | None
) -> None:
    base = str(client.base_url).split("/rollout/")[0]
    seeded = client.with_options(base_url=f"{base}/seed/7/rollout/r/attempt/a/v1")
    options = {} if own is None else {"seed": own}
    for _ in range(2):
        seeded.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], **options)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]  # one option at most
    expected = CallSeeds()
    assert [asked.get("seed") for asked in upstream.asked] == [own or expected.next(7, caller()) for _ in range(2)]
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    assert "seed" not in upstream.asked[-1], "a URL without a seed adds none"
