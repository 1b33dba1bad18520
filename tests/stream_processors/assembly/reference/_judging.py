"""Which calls become triplets."""

from __future__ import annotations

import re

from lightstream.schemas.records import AttemptClosed, SpanRecord
from lightstream.stream_processors.core.assembly import AssemblyRules

from ._calls import bad_tokens, believed, response_id, tokens_of
from ._model import AGENT, REWARD_SCOPE, Expected, Id, Observation
from ._spans import above


def judge(
    calls: list[list[Observation]],
    parents: dict[Id, Id],
    spans: dict[Id, tuple[SpanRecord, int]],
    closed: AttemptClosed,
    rules: AssemblyRules,
    result: Expected,
) -> tuple[list[bool], list[str | None]]:
    """Which calls become triplets, and whose they are; the others' drops."""

    def doubtful_last(group: list[Observation]) -> list[Observation]:
        best = believed(group)
        return [best, *sorted((s for s in group if s is not best), key=lambda s: s.offset)]

    agents: list[str | None] = []
    for group in calls:
        found: str | None = None
        for s in doubtful_last(group):
            lines = [spans[key][0].attributes.get(AGENT) for key in [s.id, *above(s.id, parents)]]
            found = found or next((name for name in lines if name is not None), None)
        agents.append(found)
    named = list(agents)
    for index, group in enumerate(calls):
        rid = response_id(group)
        if named[index] is None and rid is not None:
            same = [named[i] for i, other in enumerate(calls) if response_id(other) == rid and named[i] is not None]
            agents[index] = same[0] if same else None
    kept: list[bool] = []
    for group, agent in zip(calls, agents, strict=True):
        scopes = [spans[key][0].attributes.get(REWARD_SCOPE) for s in group for key in above(s.id, parents)]
        reason = fault(group)
        if not closed.final:
            reason = "attempt_not_final"
        elif "agentlightning.reward" in scopes and rules.exclude_calls_in_rewards:
            reason = "inside_reward"
        elif rules.agents is not None and not re.search(rules.agents, agent or ""):
            reason = "agent_not_selected"
        kept.append(reason is None)
        best = believed(group)
        if reason is not None:
            result.drops.append((best.offset, best.span.span_id, reason, True))
        told = tokens_of(group)
        for s in group:
            if s is not best and s.recorded:
                result.drops.append((s.offset, s.span.span_id, "duplicate_call", True))
            elif s is not best and s.content is not None and s.content != told.content:
                result.drops.append((s.offset, s.span.span_id, "duplicate_call", False))
    return kept, agents


def fault(group: list[Observation]) -> str | None:
    """Why a call cannot be trained on."""
    if believed(group).failed:
        return "call_failed"
    return bad_tokens(tokens_of(group))
