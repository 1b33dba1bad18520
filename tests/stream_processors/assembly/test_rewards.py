"""Rewards: read from spans, matched by link, else by log order; and the credit they give."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from lightstream.runtime.settings import Settings
from lightstream.schemas.assembly_rules import CREDIT_RULES, REWARD_MATCHES
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.packing import unpack_float32
from lightstream.schemas.records import (
    DropReason,
    NoteReason,
    RewardMatch,
    SpanEventRecord,
    SpanLinkRecord,
    SpanRecord,
    Trajectory,
)
from lightstream.stream_processors.core.assembly import AssemblyRules
from lightstream.stream_processors.core.credit import CreditStep, credit_rule, credit_rule_names, register_credit_rule
from lightstream.stream_processors.core.rewards import DIMENSIONS_MAX, LINK_TARGETS_MAX, REWARD_MAX
from lightstream.stream_processors.core.segments import segments_of

from .build import TRACE, assemble, framework_span, proxy_span, reward_span, span_id


def rewards(trajectory: Trajectory) -> list[float | None]:
    """Reward of each triplet."""
    return [triplet.reward for triplet in trajectory.triplets]


def test_the_last_reward_in_the_log_is_the_trajectorys_whatever_the_clock_says() -> None:
    early = reward_span(2, 0.9, start_unix_nano=1, end_unix_nano=2)
    trajectory = assemble(proxy_span(1), reward_span(3, 0.1), early)
    assert trajectory.reward == 0.9
    assert rewards(trajectory) == [0.9]
    assert [r.match for r in trajectory.rewards] == [RewardMatch.TRAJECTORY] * 2


@pytest.mark.parametrize(
    "link",
    [
        {"span_id": span_id(1)},
        {"gen_ai.response.id": "resp-1"},
        {"trace_id": TRACE, "span_id": span_id(1)},
        {"custom.key": "seven"},
        {"custom.number": "7"},
    ],
)
def test_a_link_names_the_rewarded_call(link: dict[str, str]) -> None:
    first = proxy_span(1, attributes={"custom.key": "seven", "custom.number": 7})
    trajectory = assemble(first, proxy_span(2), reward_span(3, 0.25, link=link), reward_span(4, 1.0))
    assert rewards(trajectory) == [0.25, 1.0]
    assert trajectory.reward == 1.0
    linked = trajectory.rewards[0]
    assert (linked.match, linked.call_index, linked.value) == (RewardMatch.LINK, 0, 0.25)


def test_a_link_names_a_call_by_an_attribute_behind_those_of_a_long_conversation() -> None:
    messages = {f"gen_ai.prompt.{n}.role": "user" for n in range(70)}
    calls = [proxy_span(1, attributes=messages | {"my.id": "X"}), proxy_span(2, attributes=messages | {"my.id": "Y"})]
    assert rewards(assemble(*calls, reward_span(3, 0.25, link={"my.id": "X"}))) == [0.25, None]


def test_opentelemetrys_own_links_name_the_call_too() -> None:
    link = SpanLinkRecord(trace_id=TRACE, span_id=span_id(1))
    trajectory = assemble(proxy_span(1), proxy_span(2), reward_span(3, 0.5, links=[link]))
    assert rewards(trajectory) == [0.5, None]
    assert trajectory.reward is None


def test_a_link_to_a_decorating_span_names_its_call() -> None:
    sdk = framework_span(11, {"gen_ai.response.id": "resp-1"}, name="openai.chat.completion")
    trajectory = assemble(proxy_span(1), sdk, reward_span(3, 0.5, link={"span_id": span_id(11)}))
    assert rewards(trajectory) == [0.5]


def test_every_key_of_a_link_must_match_and_a_link_to_nothing_rewards_nothing() -> None:
    wrong = {"trace_id": "c" * 32, "span_id": span_id(1)}
    trajectory = assemble(proxy_span(1), reward_span(3, 0.5, link=wrong))
    assert (rewards(trajectory), trajectory.reward) == ([None], None)
    assert [(r.match, r.call_index) for r in trajectory.rewards] == [(RewardMatch.NONE, None)]
    assert [note.reason for note in trajectory.notes] == [NoteReason.UNMATCHED_LINK]


def test_a_link_that_tells_no_calls_apart_is_refused() -> None:
    calls = [proxy_span(n) for n in range(1, LINK_TARGETS_MAX + 2)]
    trajectory = assemble(*calls, reward_span(999, 0.5, link={"trace_id": TRACE}))
    assert [d.reason for d in trajectory.drops] == [DropReason.BAD_REWARD]
    assert rewards(assemble(*calls[:3], reward_span(999, 0.5, link={"trace_id": TRACE}))) == [0.5] * 3


def test_several_dimensions_are_kept_and_the_first_is_the_reward() -> None:
    trajectory = assemble(proxy_span(1), reward_span(2, {"accuracy": 1.0, "style": -0.5}))
    assert trajectory.reward == 1.0
    assert [(r.name, r.value, r.dimension) for r in trajectory.rewards] == [("accuracy", 1.0, 0), ("style", -0.5, 1)]


@pytest.mark.parametrize("value", ["high", math.nan, math.inf, None, [1.0], {"a": 1}, 10**400, b"1", -1e39])
def test_a_malformed_reward_is_dropped_and_the_rest_is_unharmed(value: Any) -> None:
    attributes = {"agentlightning.reward.0.name": "x", "agentlightning.reward.0.value": value}
    bad = framework_span(3, attributes, name="agentlightning.annotation")
    trajectory = assemble(proxy_span(1), reward_span(2, 0.5), bad)
    (drop,) = trajectory.drops
    assert (drop.reason, drop.is_llm_call, drop.span_id) == (DropReason.BAD_REWARD, False, span_id(3))
    assert (trajectory.reward, rewards(trajectory)) == (0.5, [0.5])


def test_the_largest_reward_is_the_largest_of_float32() -> None:
    trajectory = assemble(proxy_span(1), reward_span(2, -REWARD_MAX))
    assert (trajectory.reward, rewards(trajectory)) == (-REWARD_MAX, [-REWARD_MAX])
    (segment,) = segments_of(trajectory)
    assert math.isfinite(unpack_float32(segment.rewards)[-1])


def test_a_secondary_dimension_never_stands_in_for_a_malformed_first_one() -> None:
    trajectory = assemble(proxy_span(1), reward_span(2, {"accuracy": math.nan, "style": 1.0}))
    assert trajectory.reward is None
    assert [(r.name, r.dimension) for r in trajectory.rewards] == [("style", 1)]
    without_first = framework_span(2, {"agentlightning.reward.1.value": 1.0}, name="agentlightning.annotation")
    trajectory = assemble(proxy_span(1), without_first)
    assert trajectory.reward is None
    assert [d.reason for d in trajectory.drops] == [DropReason.BAD_REWARD]


def test_dimensions_and_links_are_bounded() -> None:
    many = reward_span(2, {f"d{n}": float(n) for n in range(DIMENSIONS_MAX + 5)})
    trajectory = assemble(proxy_span(1), many)
    assert len(trajectory.rewards) == DIMENSIONS_MAX
    assert trajectory.reward == 0.0
    assert [d.reason for d in trajectory.drops] == [DropReason.BAD_REWARD]
    linked = reward_span(2, 1.0, link={f"k{n}": "v" for n in range(DIMENSIONS_MAX + 1)})
    trajectory = assemble(proxy_span(1), linked)
    assert (trajectory.rewards, trajectory.reward) == ([], None)


def test_a_link_without_a_value_makes_the_reward_malformed_not_the_trajectorys() -> None:
    attributes = {"agentlightning.reward.0.value": 1.0, "agentlightning.link.0.key_match": "span_id"}
    trajectory = assemble(proxy_span(1), framework_span(2, attributes))
    assert (trajectory.reward, rewards(trajectory)) == (None, [None])
    assert [d.reason for d in trajectory.drops] == [DropReason.BAD_REWARD]


OLDER = {
    "span": framework_span(2, {"reward": 0.75}, name="agentlightning.reward"),
    "task": framework_span(2, {"agentops.task.output": json.dumps({"type": "reward", "value": 0.75})}),
    "entity": framework_span(2, {"agentops.entity.output": {"type": "reward", "value": 0.75}}),
    "structured": framework_span(2, {"agentlightning.reward": [{"name": "x", "value": 0.75}]}),
}


@pytest.mark.parametrize("name", OLDER)
def test_older_ways_to_emit_a_reward(name: str) -> None:
    assert assemble(proxy_span(1), OLDER[name]).reward == 0.75


def test_a_reward_of_none_is_missing_not_malformed() -> None:
    none = framework_span(2, {"agentops.task.output": json.dumps({"type": "reward", "value": None})})
    trajectory = assemble(proxy_span(1), none)
    assert (trajectory.reward, trajectory.rewards, trajectory.drops) == (None, [], [])


def test_evaluations_reward_the_response_they_judge_only() -> None:
    def judged(span: SpanRecord, **attributes: Any) -> SpanRecord:
        values = {"gen_ai.evaluation.name": "relevance", "gen_ai.evaluation.score.value": 0.5} | attributes
        event = SpanEventRecord(name="gen_ai.evaluation.result", attributes=values)
        return span.model_copy(update={"events": [event]})

    trajectory = assemble(judged(proxy_span(1)), proxy_span(2))
    assert (rewards(trajectory), trajectory.reward) == ([0.5, None], None)
    elsewhere = judged(framework_span(3), **{"gen_ai.response.id": "resp-2"})
    assert rewards(assemble(proxy_span(1), proxy_span(2), elsewhere)) == [None, 0.5]


def evaluated(span: SpanRecord, *results: dict[str, Any]) -> SpanRecord:
    """The span with evaluation results as its events."""
    events = [
        SpanEventRecord(
            name="gen_ai.evaluation.result",
            attributes={
                name if name.startswith("gen_ai.") else f"gen_ai.evaluation.{name}": value
                for name, value in result.items()
            },
        )
        for result in results
    ]
    return span.model_copy(update={"events": events})


def test_evaluations_of_one_thing_are_dimensions_of_one_reward() -> None:
    correct, quick = {"name": "correct", "score.value": 1.0}, {"name": "latency", "score.value": 350.0}
    trajectory = assemble(evaluated(proxy_span(1), correct, quick))
    assert rewards(trajectory) == [1.0]
    assert [(r.name, r.value, r.dimension) for r in trajectory.rewards] == [("correct", 1.0, 0), ("latency", 350.0, 1)]


def test_evaluations_of_several_responses_are_rewards_of_each() -> None:
    results = [
        {"name": name, "score.value": value, "gen_ai.response.id": response}
        for name, value, response in [("a", 0.1, "resp-1"), ("a", 0.2, "resp-2"), ("b", 9.0, "resp-1")]
    ]
    trajectory = assemble(proxy_span(1), proxy_span(2), evaluated(framework_span(3), *results))
    assert rewards(trajectory) == [0.1, 0.2]


def test_an_evaluation_with_a_label_alone_is_no_reward() -> None:
    label = {"name": "toxicity", "score.label": "pass"}
    trajectory = assemble(evaluated(proxy_span(1), label, {"name": "right", "score.value": 0.5}))
    assert (rewards(trajectory), trajectory.drops) == ([0.5], [])
    assert [r.dimension for r in trajectory.rewards] == [0]
    assert assemble(evaluated(proxy_span(1), label)).rewards == []


def test_evaluations_are_bounded_like_other_dimensions() -> None:
    many = [{"name": f"d{n}", "score.value": float(n)} for n in range(DIMENSIONS_MAX + 5)]
    trajectory = assemble(evaluated(proxy_span(1), *many))
    assert len(trajectory.rewards) == DIMENSIONS_MAX
    assert [d.reason for d in trajectory.drops] == [DropReason.BAD_REWARD]


def agent_span(number: int, **fields: Any) -> SpanRecord:
    return framework_span(number, {"gen_ai.operation.name": "invoke_agent"}, name="invoke_agent", **fields)


SCORE = {"name": "quality", "score.value": 0.75}


def test_an_evaluation_on_the_agents_span_is_the_trajectorys() -> None:
    trajectory = assemble(evaluated(agent_span(9), SCORE), proxy_span(1, parent=9), proxy_span(2))
    assert (trajectory.reward, rewards(trajectory), trajectory.notes) == (0.75, [0.75, 0.75], [])
    assert [(r.match, r.call_index) for r in trajectory.rewards] == [(RewardMatch.TRAJECTORY, None)]


def test_a_reward_for_the_span_above_all_calls_is_the_trajectorys() -> None:
    spans = [framework_span(8, name="server"), agent_span(9, parent=8), proxy_span(1, parent=9)]
    for reward in (
        reward_span(3, 0.5, link={"span_id": span_id(9)}),
        reward_span(3, 0.5, link={"span_id": span_id(9), "trace_id": TRACE}),
        reward_span(3, 0.5, links=[SpanLinkRecord(trace_id=TRACE, span_id=span_id(9))]),
    ):
        assert assemble(*spans, reward).reward == 0.5
    other = reward_span(3, 0.5, link={"span_id": span_id(9), "trace_id": "c" * 32})
    assert assemble(*spans, other).reward is None


def test_a_reward_for_an_operation_is_that_of_the_calls_below_it() -> None:
    spans = [
        agent_span(9),
        framework_span(10, name="step", parent=9),
        proxy_span(1, parent=10),
        framework_span(11, name="inner", parent=10),
        framework_span(21, {"gen_ai.operation.name": "chat", "gen_ai.response.id": "resp-2"}, parent=11),
        proxy_span(2),
        proxy_span(3, parent=9),
        framework_span(12, name="tool", parent=10),
    ]
    outer, inner, tool = (reward_span(30 + n, n / 4, link={"span_id": span_id(n + 10)}) for n in (0, 1, 2))
    trajectory = assemble(*spans, reward_span(29, 0.5, link={"span_id": span_id(10)}))
    assert (trajectory.reward, rewards(trajectory)) == (None, [0.5, 0.5, None])
    assert [(r.match, r.call_index) for r in trajectory.rewards] == [(RewardMatch.LINK, 0), (RewardMatch.LINK, 1)]
    trajectory = assemble(*spans, outer, inner)
    assert rewards(trajectory) == [0.0, 0.25, None]
    trajectory = assemble(*spans, tool)
    assert (rewards(trajectory), [n.reason for n in trajectory.notes if n.reason == NoteReason.UNMATCHED_LINK]) == (
        [None] * 3,
        [NoteReason.UNMATCHED_LINK],
    )


def test_a_span_around_more_calls_than_a_link_may_name_rewards_none() -> None:
    step = framework_span(200, name="step", parent=201)
    calls = [proxy_span(n, parent=200) for n in range(1, LINK_TARGETS_MAX + 2)]
    spans = [framework_span(201), step, *calls, proxy_span(300)]
    trajectory = assemble(*spans, reward_span(999, 0.5, link={"span_id": span_id(200)}))
    assert [d.reason for d in trajectory.drops] == [DropReason.BAD_REWARD]
    trajectory = assemble(*spans[:-2], proxy_span(300), reward_span(999, 0.5, link={"span_id": span_id(200)}))
    assert rewards(trajectory) == [0.5] * LINK_TARGETS_MAX + [None]


def test_rewards_for_spans_ten_thousand_deep_cost_no_more_than_others() -> None:
    depth = 10_000
    spans = [framework_span(n, parent=n - 1 if n > 1 else None) for n in range(1, depth)]
    calls = [proxy_span(depth + n, parent=n) for n in range(1, depth, 2)]
    links = [reward_span(3 * depth + n, 0.5, link={"span_id": span_id(n)}) for n in range(1, depth)]
    trajectory = assemble(*spans, *calls, *links)
    assert (trajectory.reward, trajectory.triplets[-1].reward) == (0.5, 0.5)


def test_a_reward_for_a_reward_or_within_a_cycle_ends() -> None:
    spans = [framework_span(8, parent=9), framework_span(9, parent=8), proxy_span(1, parent=9)]
    for linked, expected in ((9, [0.5]), (8, [None]), (3, [0.5])):  # the cycle is cut above 9, the root then
        trajectory = assemble(*spans, reward_span(3, 0.5, link={"span_id": span_id(linked)}))
        assert rewards(trajectory) == expected


def test_a_reward_for_a_dropped_call_is_kept_and_credits_nothing_else() -> None:
    trajectory = assemble(
        proxy_span(1, http_status=500), proxy_span(2), reward_span(3, 0.5, link={"span_id": span_id(1)})
    )
    assert rewards(trajectory) == [None]
    assert [(r.call_index, r.value) for r in trajectory.rewards] == [(0, 0.5)]


def test_rewards_by_log_order_go_to_the_last_call_before_them() -> None:
    rules = AssemblyRules(reward_match="log_order")
    spans = [reward_span(9, 9.0), proxy_span(1), reward_span(3, 0.1), proxy_span(2), reward_span(4, 0.2)]
    trajectory = assemble(*spans, rules=rules)
    assert rewards(trajectory) == [0.1, 0.2]
    assert [r.match for r in trajectory.rewards] == [
        RewardMatch.TRAJECTORY,
        RewardMatch.LOG_ORDER,
        RewardMatch.LOG_ORDER,
    ]
    assert (trajectory.reward, trajectory.reward_match) == (0.2, "log_order")


def test_last_call_only() -> None:
    rules = AssemblyRules(credit="last_call_only")
    spans = [proxy_span(1), proxy_span(2), proxy_span(3, http_status=500), reward_span(4, 1.0)]
    trajectory = assemble(*spans, rules=rules)
    assert rewards(trajectory) == [None, 1.0]
    assert trajectory.credit == "last_call_only"


def test_discounted_returns_to_go() -> None:
    rules = AssemblyRules(credit="discounted:0.5")
    step = reward_span(5, 2.0, link={"span_id": span_id(2)})
    trajectory = assemble(proxy_span(1), proxy_span(2), step, proxy_span(3), reward_span(4, 1.0), rules=rules)
    assert rewards(trajectory) == [0.5 * 2.5, 2.0 + 0.5 * 1.0, 1.0]
    assert rewards(assemble(proxy_span(1), rules=rules)) == [None]


def test_the_reward_of_a_dropped_call_counts_for_the_call_before_it() -> None:
    steps = [CreditStep(kept=True), CreditStep(kept=False, reward=4.0), CreditStep(kept=True)]
    assert credit_rule("discounted:0.5")(steps, 1.0) == [4.5, None, 1.0]


def test_without_discount_the_sum_of_all_rewards_reaches_the_first_call() -> None:
    steps = [CreditStep(kept=True, reward=float(n)) for n in range(5)]
    assert credit_rule("discounted:1")(steps, 10.0)[0] == 20.0


def test_a_users_rule_is_used_by_name() -> None:
    register_credit_rule(
        "per_agent_test", lambda steps, reward: [reward if s.agent_name == "a" else None for s in steps]
    )
    spans = [framework_span(1, {"agent.name": "a"}), proxy_span(2, parent=1), proxy_span(3), reward_span(4, 1.0)]
    assert rewards(assemble(*spans, rules=AssemblyRules(credit="per_agent_test"))) == [1.0, None]


@pytest.mark.parametrize(
    "settings",
    [
        {"credit": "nope"},
        {"credit": "discounted:1.5"},
        {"credit": "discounted:nan"},
        {"credit": "discounted"},
        {"reward_match": "clock"},
        {"agents": "("},
        {"trajectory_bytes_max": 0},
    ],
)
def test_rules_that_do_not_exist_are_refused_in_plain_words(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        AssemblyRules(**settings)


def test_the_settings_know_the_same_rules() -> None:
    assert {*credit_rule_names()} >= {*CREDIT_RULES}
    for match in REWARD_MATCHES:
        assert AssemblyRules.of(Settings.load(reward_match=match)).reward_match == match


def test_a_rules_name_cannot_be_taken_twice() -> None:
    with pytest.raises(SettingsError):
        register_credit_rule("identical", lambda steps, reward: [reward for _ in steps])
