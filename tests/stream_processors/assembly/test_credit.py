"""Credit and automatic rewards by name: built in, or the user's."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import (
    DropReason,
    RewardMatch,
    SpanEventRecord,
    SpanRecord,
    SpanStatus,
    Trajectory,
)
from lightstream.stream_processors.core.assembly import AssemblyRules
from lightstream.stream_processors.core.credit import CreditStep, assign

from .build import assemble, framework_span, proxy_span, reward_span, span_id

MODULE = "tests.stream_processors.assembly.user_rules"


def rewards(trajectory: Trajectory) -> list[float | None]:
    return [triplet.reward for triplet in trajectory.triplets]


def tool_span(number: int, *, failed: bool = False) -> SpanRecord:
    status = SpanStatus.ERROR if failed else SpanStatus.OK
    return framework_span(number, {"gen_ai.operation.name": "execute_tool"}, status=status)


def test_a_users_function_gives_credit_and_is_recorded_by_name() -> None:
    spans = [proxy_span(1), proxy_span(2), reward_span(3, 0.5)]
    name = f"{MODULE}:by_position"
    trajectory = assemble(*spans, rules=AssemblyRules(credit=name))
    assert rewards(trajectory) == [0.5, 1.0]
    assert trajectory.credit == name


def test_a_users_file_is_found_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "rule.py"
    file.write_text("def half(steps, reward):\n    return [reward / 2 for _ in steps]\n")
    trajectory = assemble(proxy_span(1), reward_span(2, 1.0), rules=AssemblyRules(credit=f"{file}:half"))
    assert rewards(trajectory) == [0.5]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("raises", "raised RuntimeError: no idea"),
        ("raises_odd_text", "raised RuntimeError: cut ?"),
        ("too_few", "gave 0 values for 2 calls"),
        ("not_finite", "gave nan"),
    ],
)
def test_a_bad_credit_rule_costs_rewards_and_says_so(function: str, message: str) -> None:
    rules = AssemblyRules(credit=f"{MODULE}:{function}")
    trajectory = assemble(proxy_span(1), proxy_span(2), reward_span(3, 0.5), rules=rules)
    assert rewards(trajectory) == [None, None]
    assert trajectory.reward == 0.5
    (drop,) = trajectory.drops
    assert drop.reason == DropReason.BAD_REWARD
    assert message in drop.detail


@pytest.mark.parametrize(
    "rules",
    [
        {"credit": "no_such_module:function"},
        {"credit": f"{MODULE}:no_such_function"},
        {"credit": f"{MODULE}:NOT_A_FUNCTION"},
        {"credit": "no/such/file.py:function"},
        {"automatic_rewards": ("tool_ok",)},
        {"automatic_rewards": ("tool_ok:much",)},
        {"automatic_rewards": ("tool_ok:nan",)},
        {"automatic_rewards": ("tool_ok:1e39",)},
        {"automatic_rewards": ("no_such_module:function",)},
    ],
)
def test_rules_that_do_not_exist_are_refused(rules: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        AssemblyRules(**rules)  # type: ignore[arg-type]  # some are wrong on purpose


def test_the_outcome_and_the_steps_together() -> None:
    rules = AssemblyRules(credit="identical_plus_own", automatic_rewards=("tool_error:-0.25", "tool_ok:0.125"))
    spans = [proxy_span(1), tool_span(2, failed=True), tool_span(3, failed=True), proxy_span(4), tool_span(5)]
    trajectory = assemble(*spans, proxy_span(6), reward_span(7, 1.0), rules=rules)
    assert rewards(trajectory) == [0.5, 1.125, 1.0]
    assert trajectory.reward == 1.0
    automatic = [(r.name, r.value, r.call_index, r.match) for r in trajectory.rewards if r.name.startswith("automatic")]
    assert automatic == [
        ("automatic.tool_error", -0.25, 0, RewardMatch.LOG_ORDER),
        ("automatic.tool_error", -0.25, 0, RewardMatch.LOG_ORDER),
        ("automatic.tool_ok", 0.125, 1, RewardMatch.LOG_ORDER),
    ]


@pytest.mark.parametrize(
    ("credit", "wanted"),
    [
        ("identical", [1.0 - 0.5, 1.0, 0.25 + 0.125]),
        ("identical_plus_own", [1.0 - 0.5, 1.0, 1.0 + 0.25 + 0.125]),
        ("last_call_only", [-0.5, None, 0.25 + 0.125]),
        ("discounted:0.5", [-0.5 + 0.5 * 0.5 * 1.375, 0.5 * 1.375, 1.0 + 0.25 + 0.125]),
        (f"{MODULE}:by_position", [1.0 - 0.5, 2.0, 3.0 + 0.125]),
    ],
)
def test_automatic_rewards_are_added_to_what_credit_gives(credit: str, wanted: list[float | None]) -> None:
    rules = AssemblyRules(credit=credit, automatic_rewards=("tool_error:-0.5", "tool_ok:0.125"))
    own = reward_span(7, 0.25, link={"span_id": span_id(4)})
    calls = [proxy_span(1), tool_span(2, failed=True), proxy_span(3), proxy_span(4), tool_span(5), own]
    trajectory = assemble(*calls, reward_span(8, 1.0), rules=rules)
    assert rewards(trajectory) == wanted
    assert trajectory.reward == 1.0
    assert sum(r.value for r in trajectory.rewards) == -0.5 + 0.125 + 0.25 + 1.0


def test_the_outcome_goes_to_the_last_call_whose_tool_succeeded_too() -> None:
    rules = AssemblyRules(credit="last_call_only", automatic_rewards=("tool_ok:0.125",))
    assert rewards(assemble(proxy_span(1), tool_span(2), reward_span(3, 1.0), rules=rules)) == [1.125]
    assert rewards(assemble(proxy_span(1), tool_span(2), rules=rules)) == [0.125]


def test_rewards_that_add_up_beyond_float32_are_dropped_and_the_rest_is_unharmed() -> None:
    rules = AssemblyRules(automatic_rewards=("tool_ok:3e38",))
    trajectory = assemble(proxy_span(1), tool_span(2), tool_span(3), proxy_span(4), reward_span(5, 1.0), rules=rules)
    assert rewards(trajectory) == [3e38, 1.0]
    assert [(d.reason, d.span_id) for d in trajectory.drops] == [(DropReason.BAD_REWARD, span_id(3))]
    assert [r.value for r in trajectory.rewards] == [3e38, 1.0]


def test_credit_beyond_float32_is_missing_and_says_so() -> None:
    trajectory = assemble(
        proxy_span(1),
        reward_span(2, 3e38, link={"span_id": span_id(1)}),
        reward_span(3, 3e38),
        rules=AssemblyRules(credit="identical_plus_own"),
    )
    assert rewards(trajectory) == [None]
    (drop,) = trajectory.drops
    assert drop.reason == DropReason.BAD_REWARD
    assert "gave 6e+38, not a finite number within float32" in drop.detail


def test_an_automatic_reward_takes_no_calls_place_and_is_for_nothing_before_the_first() -> None:
    rules = AssemblyRules(reward_match="first_occurrence", automatic_rewards=("exception:-1",))
    exception = framework_span(1, name="agentlightning.exception")
    later = framework_span(3, name="agentlightning.exception")
    trajectory = assemble(exception, proxy_span(2), later, reward_span(4, 0.5), rules=rules)
    assert rewards(trajectory) == [-0.5]
    assert next((r.call_index, r.match) for r in trajectory.rewards) == (None, RewardMatch.NONE)


def test_what_a_policy_engine_tells_of_violations() -> None:
    """Agent-OS, as Agent Lightning's contribution emits it: annotations, its flight recorder, its own reward."""
    annotated = {"agent_os.violation": True, "agent_os.policy": "sql", "agent_os.severity": "critical"}
    checked = {"agent_os.entry_type": "policy_check", "agent_os.policy_violated": True}
    harmless = {"agent_os.entry_type": "policy_check", "agent_os.policy_violated": False}
    event = SpanEventRecord(name="violation", attributes=annotated | {"agent_os.severity": "low"})
    spans = [
        proxy_span(1),
        framework_span(2, annotated, name="agentlightning.annotation"),
        proxy_span(3),
        framework_span(4, checked, name="agent_os.policy_check"),
        framework_span(5, harmless, name="agent_os.policy_check"),
        framework_span(6, name="tool", events=[event]),
        reward_span(7, {"final": 0.5, "base": 1.0, "policy_penalty": -0.5}),
    ]
    rules = AssemblyRules(
        credit="identical_plus_own", automatic_rewards=("violation:-0.25", "violation.critical:-1", "violation.low:-2")
    )
    trajectory = assemble(*spans, rules=rules)
    assert rewards(trajectory) == [0.5 - 0.25 - 1, 0.5 - 0.25 - 0.25 - 2]
    assert trajectory.reward == 0.5
    assert [(r.name, r.dimension) for r in trajectory.rewards if r.span_id == span_id(7)] == [
        ("final", 0),
        ("base", 1),
        ("policy_penalty", 2),
    ]


def test_a_users_automatic_reward_and_its_faults() -> None:
    rules = AssemblyRules(automatic_rewards=(f"{MODULE}:long_answer",))
    broken, odd = framework_span(3, name="broken"), framework_span(4, name="odd")
    trajectory = assemble(proxy_span(1), framework_span(2, {"cost": 0.5}), broken, odd, rules=rules)
    assert rewards(trajectory) == [-0.5]
    assert [(drop.reason, drop.span_id) for drop in trajectory.drops] == [
        (DropReason.BAD_REWARD, broken.span_id),
        (DropReason.BAD_REWARD, odd.span_id),
    ]
    assert "raised KeyError" in trajectory.drops[0].detail
    assert "raised ValueError: cut ?" in trajectory.drops[1].detail


def test_settings_choose_the_rules() -> None:
    settings = Settings.load(
        credit="discounted:0.9",
        reward_match="log_order",
        automatic_rewards="tool_ok:1, exception:-1",
        trained_agents="^planner$",
    )
    rules = AssemblyRules.of(settings)
    assert (rules.credit, rules.reward_match, rules.agents) == ("discounted:0.9", "log_order", "^planner$")
    assert rules.automatic_rewards == ("tool_ok:1", "exception:-1")
    assert AssemblyRules.of(Settings.load()) == AssemblyRules()


WHOLE = st.none() | st.integers(-8, 8).map(float)
STEPS = st.lists(
    st.builds(CreditStep, kept=st.booleans(), reward=WHOLE, added=WHOLE),
    max_size=12,
)


@given(STEPS, WHOLE)
def test_sums_of_rewards_hold(steps: list[CreditStep], trajectory: float | None) -> None:
    own = [step.reward for step in steps]
    added = [step.added or 0 for step in steps]
    bare = [step._replace(added=None) for step in steps]
    kept = [index for index, step in enumerate(steps) if step.kept]
    identical, _ = assign("identical", bare, trajectory)
    assert identical == [trajectory if value is None else value for value in own]
    together, _ = assign("identical_plus_own", steps, trajectory)
    assert sum(v or 0 for v in together) == len(steps) * (trajectory or 0) + sum(v or 0 for v in own) + sum(added)
    last, _ = assign("last_call_only", bare, trajectory)
    assert [i for i, value in enumerate(last) if value != own[i]] in ([], kept[-1:])
    for name in ("identical", "last_call_only"):
        without, _ = assign(name, bare, trajectory)
        given_out, _ = assign(name, steps, trajectory)
        assert [v or 0 for v in given_out] == [(v or 0) + more for v, more in zip(without, added, strict=True)]
    undiscounted, _ = assign("discounted:1", steps, trajectory)
    before = next((i for i, step in enumerate(steps) if step.kept), None)
    if before is not None and undiscounted[before] is not None:
        assert undiscounted[before] == sum(v or 0 for v in own[before:]) + sum(added[before:]) + (trajectory or 0)
