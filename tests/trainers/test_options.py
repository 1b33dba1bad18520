"""Options are declared once: checks, rules, the documentation and the reading of verl's keys go by that."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from lightstream.schemas.errors import SettingsError
from lightstream.trainers import VERL, AgentPolicy, VllmOptions
from lightstream.trainers.algorithms.options_document import verl_options_as_markdown
from lightstream.trainers.run.option import declared

PAGE = Path(__file__).parents[2] / "docs" / "options.md"

GIVEN: dict[str, Any] = {
    "advantage": "gae",
    "critic_model": "folder",
    "policies": {"planner": AgentPolicy()},
    "reward_dimensions": {"correct": 1.0},
    "reward_model": "folder",
}
"""Values of options that numbers do not fit."""


def made(**options: Any) -> VERL:
    given: dict[str, Any] = {"model": "m", "steps": 1, **options}
    return VERL(**given)


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == verl_options_as_markdown(), "run make docs"


def test_every_option_is_declared() -> None:
    assert [f.name for f in fields(VERL)] == list(declared(VERL))


def beyond() -> list[tuple[str, Any]]:
    """Values that are out of bounds."""
    found: list[tuple[str, Any]] = []
    for name, of in declared(VERL).items():
        values: list[Any] = ["no such value"] if of.choices else []
        values += [] if of.least is None else [of.least - 1]
        values += [] if of.most is None else [of.most + 1]
        values += [] if of.above is None else [of.above, math.inf]
        values += [math.inf] if of.finite else []
        found += [(name, value) for value in [*values, *of.refused]]
    return found


@pytest.mark.parametrize(("name", "value"), beyond())
def test_a_value_out_of_bounds_is_refused(name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=f"VERL's {name} is "):
        made(**{name: value})


@pytest.mark.parametrize(
    ("name", "other"), [(name, rule.other) for name, of in declared(VERL).items() for rule in of.rules]
)
def test_a_rule_over_two_options_is_kept(name: str, other: str) -> None:
    of = next(rule for rule in declared(VERL)[name].rules if rule.other == other)
    numbers: dict[str, Any] = {"gamma": 0.5, "lam": 0.5, "servers": VllmOptions()}
    value = (GIVEN | numbers).get(name, 1)
    left_out: dict[str, Any] = {"advantage": "grpo", "stale": "wait"}
    breaking: Any = left_out[other] if of.is_needed else of.values[0] if of.values else GIVEN.get(other, 4)
    with pytest.raises(SettingsError, match=f"VERL is given {name}.*, but its {other} is "):
        made(**{name: value, other: breaking})
