"""ATIF, Harbor's Agent Trajectory Interchange Format (1.0 to 1.8): steps become spans."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lightstream.schemas.types import Span

from .atif_steps import StepNames, StepSpans, number_or_none, rewards_of
from .json_parts import map_in, maps_in
from .trace import SPAN_DIGITS, TRACE_DIGITS, ImportedTrace, hex_id, reward_span

EXTRA = "lightstream"


def is_atif(document: object) -> bool:
    """Whether a document says that it is ATIF."""
    return isinstance(document, dict) and str(document.get("schema_version") or "").startswith("ATIF")


def atif_trace(document: Mapping[str, Any]) -> ImportedTrace:
    """One trajectory, with its sub-agents' trajectories below it. A step of an agent is an LLM call unless it says that
    it took none, or is there for its context only.

    Agents write their reward where they like: it is read from ``extra.lightstream``, ``extra.reward`` and
    ``final_metrics.extra.reward``; that of a step from the step's ``extra.lightstream``.

    Raises:
        SettingsError: a part of the document is of another type than the format says.
    """
    name = _name_of(document)
    trace_id = hex_id(name, TRACE_DIGITS)
    spans: list[Span] = []
    rewards: list[Span] = []
    agents: list[tuple[Mapping[str, Any], str, str | None, str]] = [(document, name, None, "the document")]
    names = StepNames()
    while agents:
        trajectory, path, parent, where = agents.pop()
        root = hex_id(f"{path}:agent", SPAN_DIGITS)
        agent = map_in(trajectory, "agent", where)
        steps = StepSpans(trace_id, root, path, agent, names)
        for number, step in enumerate(maps_in(trajectory, "steps", where), start=1):
            steps.add(step, number, f"step {number} of {where}")
        steps.add_root(parent)
        spans += steps.spans
        rewards += steps.rewards
        for number, below in enumerate(maps_in(trajectory, "subagent_trajectories", where)):
            agents.append((below, f"{path}/{number}", root, f"sub-agent {number + 1} of {where}"))
    extra = map_in(document, "extra", "the document")
    ours = map_in(extra, EXTRA, "'extra'")
    spans += rewards
    given = rewards_of(ours) or _reward(extra, map_in(map_in(document, "final_metrics", "the document"), "extra", "it"))
    if given:
        spans.append(reward_span(trace_id, given))
    task = ours["input"] if "input" in ours else {"session_id": document.get("session_id")}
    return ImportedTrace(trace_id, task, spans)


def _name_of(document: Mapping[str, Any]) -> str:
    """Its own id; else that of its session, of which there may be other trajectories, with a hash of what it holds."""
    if document.get("trajectory_id"):
        return str(document["trajectory_id"])
    content = json.dumps(document, sort_keys=True)
    session = document.get("session_id")
    return f"{session}:{hex_id(content, TRACE_DIGITS)}" if session else content


def _reward(*places: Mapping[str, Any]) -> list[tuple[str, float]]:
    found = (number_or_none(place.get("reward")) for place in places)
    return next(([("reward", value)] for value in found if value is not None), [])
