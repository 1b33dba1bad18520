"""Seeds that follow from a run's, for calls without one of their own: the same in every run, another for each call."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from lightstream.producers.llm_proxy.call import Caller
from lightstream.producers.llm_proxy.seeds import CallSeeds
from tests.producers.llm_proxy.upstreams import ScriptedUpstream


def caller(rollout: str | None = "run-s1-g0-2", attempt: str | None = "run-s1-g0-2-a1-x") -> Caller:
    return Caller(rollout, attempt, "0" * 32)


def asked(text: str = "hi", **changes: Any) -> dict[str, Any]:
    return {"model": "digits@3", "messages": [{"role": "user", "content": text}]} | changes


def values(seeds: CallSeeds, requests: list[tuple[int, Caller, dict[str, Any]]]) -> list[int]:
    drawn = [seeds.draw(*request) for request in requests]
    return [seed.value for seed in drawn if seed is not None]


def test_each_call_of_each_attempt_has_a_seed_of_its_own() -> None:
    requests = [
        (7, caller(), asked()),
        (7, caller(), asked()),
        (7, caller(), asked("bye")),
        (7, caller(), asked(temperature=0.5)),
        (7, caller(attempt="run-s1-g0-2-a2-x"), asked()),
        (7, caller("run-s1-g0-3"), asked()),
        (7, caller("run-s1-g1-2"), asked()),
        (7, caller("run-s2-g0-2"), asked()),
        (7, caller("run-s1r1-g0-2"), asked()),
        (7, caller("run-v1-g0-2"), asked()),
        (7, caller("run-x1-2"), asked()),
        (8, caller(), asked()),
    ]
    drawn = values(CallSeeds(), requests)
    assert len(set(drawn)) == len(requests)
    assert all(0 <= seed < 2**63 for seed in drawn)


def test_seeds_do_not_follow_from_names() -> None:
    """Another run, with a name that looks like a place; another version's name; attempts of other random ids."""
    one = [(7, caller("a-s1-g0-2", f"a-s1-g0-2-a{n}-x"), asked(model="a@1")) for n in (1, 2)]
    other = [(7, caller("b-s9-g9-s1-g0-2", f"b-s9-g9-s1-g0-2-a{n}-y"), asked(model="b@4")) for n in (1, 2)]
    assert values(CallSeeds(), one) == values(CallSeeds(), other)


def test_seeds_do_not_follow_from_arrival_or_a_proxys_life() -> None:
    requests = [(7, caller(f"run-s1-g0-{i}", f"run-s1-g0-{i}-a1-x"), asked(text)) for i in range(3) for text in "abc"]
    expected = dict(zip(map(repr, requests), values(CallSeeds(), requests), strict=True))
    backwards = dict(zip(map(repr, requests[::-1]), values(CallSeeds(), requests[::-1]), strict=True))
    restarted = {repr(request): values(CallSeeds(), [request])[0] for request in requests}
    assert backwards == restarted == expected


def test_a_retry_and_the_call_after_one_that_failed_have_the_seed_of_the_first() -> None:
    seeds = CallSeeds()
    first = seeds.draw(7, caller(), asked())
    assert first is not None
    again = seeds.draw(7, caller(), asked(), is_retry=True)
    assert again == first
    second = seeds.draw(7, caller(), asked())
    assert second is not None
    assert second != first
    seeds.give_back(second)
    assert seeds.draw(7, caller(), asked()) == second
    seeds.give_back(second)
    assert seeds.draw(7, caller(), asked(), is_retry=True) == second, "of two the one that failed comes again"
    seeds.give_back(second)
    seeds.give_back(second)
    third = [seeds.draw(7, caller(), asked(), is_retry=again) for again in (True, False)]
    assert third[0] == second
    assert third[1] not in (None, first, second)


def test_ids_that_servers_draw_at_random_count_by_their_order() -> None:
    def turn(*ids: str) -> dict[str, Any]:
        calls = [{"id": i, "type": "function", "function": {"name": "add", "arguments": "{}"}} for i in ids]
        answers = [{"role": "tool", "tool_call_id": i, "content": str(n)} for n, i in enumerate(ids)]
        return {"messages": [{"role": "assistant", "tool_calls": calls}, *answers]}

    def seed(request: dict[str, Any]) -> int:
        return values(CallSeeds(), [(7, caller(), request)])[0]

    assert seed(turn("x", "y")) == seed(turn("p", "q"))
    crossed = turn("x", "y")
    crossed["messages"][1]["tool_call_id"] = "y"
    assert seed(crossed) != seed(turn("x", "y"))


def test_who_is_no_rollout_gets_none() -> None:
    assert CallSeeds().draw(7, caller(None, None), asked()) is None


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
    drawn = values(expected, [(7, caller("r", "a"), {"messages": [{"role": "user", "content": "hi"}]})] * 2)
    assert [request.get("seed") for request in upstream.asked] == ([own] * 2 if own else drawn)
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    assert "seed" not in upstream.asked[-1], "a URL without a seed adds none"
