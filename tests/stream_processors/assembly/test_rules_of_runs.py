"""Runs with rules of their own on one assembler."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightstream.runtime.settings import Settings
from lightstream.schemas.records import AssemblySpec, AttemptClosed, AttemptOpened, DropReason, SpanRecord, Trajectory
from lightstream.stream_processors.core.assembly import Assembler, AssemblyRules

from .build import closed, framework_span, opened, proxy_span, reward_span

CONFIGURED = AssemblyRules(
    credit="last_call_only", reward_match="trajectory", agents="^planner$", functions_of_rollouts=True
)

Records = list[SpanRecord | AttemptOpened | AttemptClosed]


def attempt(rollout_id: str, own: AssemblySpec | None) -> Records:
    """A planner's call and a reward without a link, then a coder's and another one."""
    return [
        opened(rollout_id, assembly=own),
        framework_span(1, {"gen_ai.agent.name": "planner"}, rollout_id=rollout_id),
        proxy_span(2, rollout_id=rollout_id, parent=1),
        reward_span(3, 0.25, rollout_id=rollout_id),
        framework_span(4, {"gen_ai.agent.name": "coder"}, rollout_id=rollout_id),
        proxy_span(5, rollout_id=rollout_id, parent=4),
        reward_span(6, 1.0, rollout_id=rollout_id),
        closed(rollout_id),
    ]


def assembled(**runs: AssemblySpec | None) -> dict[str, Trajectory]:
    """All at once, record by record in turn."""
    attempts = [attempt(name, own) for name, own in runs.items()]
    records = [record for row in zip(*attempts, strict=True) for record in row]
    made = Assembler(rules=CONFIGURED).on_records((record, offset) for offset, record in enumerate(records))
    return {trajectory.rollout_id: trajectory for trajectory in made}


def calls(trajectory: Trajectory) -> list[tuple[str | None, float | None]]:
    return [(triplet.agent_name, triplet.reward) for triplet in trajectory.triplets]


def test_each_run_has_its_rules_and_what_it_leaves_open_is_as_configured() -> None:
    made = assembled(
        none=None,
        credit=AssemblySpec(credit="discounted:0.5"),
        match=AssemblySpec(reward_match="log_order"),
        agents=AssemblySpec(trained_agents="^coder$"),
        everyone=AssemblySpec(credit="identical", trained_agents=""),
        all=AssemblySpec(credit="identical", reward_match="log_order", trained_agents="planner|coder"),
    )
    assert {name: calls(trajectory) for name, trajectory in made.items()} == {
        "none": [("planner", 1.0)],
        "credit": [("planner", 1.0)],
        "match": [("planner", 0.25)],
        "agents": [("coder", 1.0)],
        "everyone": [("planner", 1.0), ("coder", 1.0)],
        "all": [("planner", 0.25), ("coder", 1.0)],
    }
    named = {name: (trajectory.credit, trajectory.reward_match) for name, trajectory in made.items()}
    assert named["credit"] == ("discounted:0.5", "trajectory")
    assert named["match"] == ("last_call_only", "log_order")
    assert named["none"] == named["agents"] == ("last_call_only", "trajectory")


def test_a_late_reward_goes_by_the_rules_of_its_run() -> None:
    records = [*attempt("r", AssemblySpec(credit="identical", trained_agents="")), reward_span(7, 0.5, rollout_id="r")]
    first, revised = Assembler(rules=CONFIGURED).on_records((record, offset) for offset, record in enumerate(records))
    assert (calls(first), revised.revision) == ([("planner", 1.0), ("coder", 1.0)], 1)
    assert calls(revised) == [("planner", 0.5), ("coder", 0.5)]


def test_a_function_of_the_users(tmp_path: Path) -> None:
    file = tmp_path / "rule.py"
    file.write_text("def halves(steps, reward):\n    return [reward / 2 for _ in steps]\n")
    made = assembled(own=AssemblySpec(credit=f"{file}:halves"), none=None)
    assert (calls(made["own"]), calls(made["none"])) == ([("planner", 0.5)], [("planner", 1.0)])


def test_a_function_that_a_rollout_names_is_imported_only_where_that_is_allowed(tmp_path: Path) -> None:
    file = tmp_path / "rule.py"
    file.write_text("raise SystemExit('this must not run')")
    guarded = AssemblyRules.of(Settings.load(data_dir=tmp_path))
    rules = guarded.with_those_of(AssemblySpec(credit=f"{file}:halves"))
    assert "LIGHTSTREAM_ROLLOUT_FUNCTIONS=true" in rules.unusable
    assert guarded.with_those_of(AssemblySpec(credit="discounted:0.5")).unusable == ""
    named_here = guarded.with_those_of(AssemblySpec(credit=f"{file}:halves"), AssemblySpec(credit="last_call_only"))
    assert (named_here.credit, named_here.unusable) == ("last_call_only", "")


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (AssemblySpec(credit="no_such_module:rule"), "'no_such_module'"),
        (AssemblySpec.model_construct(credit="of tomorrow"), "'of tomorrow'"),
        (AssemblySpec.model_construct(reward_match="of tomorrow"), "'of tomorrow'"),
        (AssemblySpec.model_construct(trained_agents="("), "'('"),
    ],
)
def test_rules_that_cannot_be_used_cost_the_rollouts_rewards_and_say_so(own: AssemblySpec, said: str) -> None:
    """Other rules would give it wrong rewards; and nobody would wait for a trajectory that never comes."""
    made = assembled(broken=own, good=AssemblySpec(credit="identical"))
    broken = made["broken"]
    assert (broken.reward, broken.rewards, calls(broken)) == (None, [], [("planner", None)])
    (why,) = [drop for drop in broken.drops if drop.reason is DropReason.BAD_REWARD]
    assert "the rollout's own rules of assembly cannot be used" in why.detail
    assert said in why.detail
    assert calls(made["good"]) == [("planner", 1.0)]


def test_rules_given_for_all_have_the_last_word() -> None:
    broken = attempt("broken", AssemblySpec(credit="no_such_module:rule", trained_agents="^coder$"))
    records = [*broken, *attempt("none", None)]
    assembler = Assembler(rules=CONFIGURED, instead=AssemblySpec(credit="identical"))
    made = assembler.on_records((record, offset) for offset, record in enumerate(records))
    assert [calls(trajectory) for trajectory in made] == [[("coder", 1.0)], [("planner", 1.0)]]
