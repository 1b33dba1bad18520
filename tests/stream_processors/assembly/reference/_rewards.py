"""Which call each reward is for, and what each triplet gets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lightstream.schemas.records import SpanRecord, SpanStatus
from lightstream.stream_processors.core.assembly import AssemblyRules

from ._calls import believed, by_doubt, response_id, tokens_of
from ._model import Expected, Id, Observation, note
from ._spans import above


def match(
    spans: dict[Id, tuple[SpanRecord, int]],
    parents: dict[Id, Id],
    calls: list[list[Observation]],
    rules: AssemblyRules,
    result: Expected,
) -> tuple[dict[int, float], float | None, dict[int, float]]:
    """Rewards by call, what is left for credit to dispatch, and what is added to that by call."""
    by_call: dict[int, float] = {}
    added: dict[int, float] = {}
    prices = {rule.split(":")[0]: float(rule.split(":")[1]) for rule in rules.automatic_rewards}
    shared: float | None = None
    for span, offset in spans.values():
        values = {
            int(name.split(".")[2]): value
            for name, value in span.attributes.items()
            if name.startswith("agentlightning.reward.") and name.endswith(".value")
        }
        before = [i for i, group in enumerate(calls) if believed(group).offset < offset]
        sign = None
        if span.attributes.get("openinference.span.kind") == "TOOL":
            sign = "tool_error" if span.status == SpanStatus.ERROR else "tool_ok"
        if sign in prices:
            price = prices[sign]
            if before:
                added[before[-1]] = added.get(before[-1], 0.0) + price
            result.rewards.append((span.span_id, 0, price, *((before[-1], "log_order") if before else (None, "none"))))
        links = {
            span.attributes[f"agentlightning.link.{n}.key_match"]: span.attributes[
                f"agentlightning.link.{n}.value_match"
            ]
            for n in range(5)
            if f"agentlightning.link.{n}.key_match" in span.attributes
        }
        good = {n: float(v) for n, v in values.items() if isinstance(v, float) and math.isfinite(v)}
        result.drops += [(offset, span.span_id, "bad_reward", False)] * (len(values) - len(good))
        if not good:
            continue
        targets: Sequence[int | None] = [None]
        how = "trajectory"
        if links:
            found = [i for i, group in enumerate(calls) if named_by(links, group)]
            around = [] if found else spans_named(links, spans, calls)
            below = [i for i, group in enumerate(calls) if any(key in lines_above(group, parents) for key in around)]
            if any(key not in parents or lies_above_all(key, calls, parents) for key in around):
                how = "trajectory"
                if 0 in good:
                    result.reward = shared = good[0]
            elif found or below:
                targets, how = found or below, "link"
            else:
                how = "none"
                note(result, "unmatched_link")
        else:
            if rules.reward_match == "log_order" and before:
                targets, how = [before[-1]], "log_order"
            if 0 in good:
                result.reward = good[0]
                shared = good[0] if how == "trajectory" else None
        for target in targets:
            if target is not None and 0 in good:
                by_call[target] = good[0]
            result.rewards += [(span.span_id, n, good[n], target, how) for n in sorted(good)]
    return by_call, shared, added


def credit(
    calls: list[list[Observation]],
    kept: list[bool],
    agents: list[str | None],
    rewards: tuple[dict[int, float], float | None, dict[int, float]],
    rules: AssemblyRules,
    result: Expected,
) -> None:
    """Triplets with their rewards."""
    own, shared, added = rewards
    rows = [i for i in range(len(calls)) if kept[i]]
    for position, index in enumerate(rows):
        group = calls[index]
        value = own.get(index)
        if rules.credit == "identical":
            value = shared if value is None else value
        elif rules.credit == "last_call_only":
            value = shared if value is None and position == len(rows) - 1 else value
        elif rules.credit == "identical_plus_own":
            value = shared if value is None else value + (shared or 0.0)
        elif shared is None and not own and not added:
            value = None
        else:
            discount = float(rules.credit.split(":")[1])
            value = (shared or 0.0) * discount ** (len(rows) - 1 - position)
            for later, reward in [*own.items(), *added.items()]:
                steps = sum(index < i <= later for i in rows)
                value += reward * discount**steps if later >= index else 0.0
        if index in added and not rules.credit.startswith("discounted"):
            value = (value or 0.0) + added[index]
        best, told = believed(group), tokens_of(group)
        version = next((s.version for s in [best, *by_doubt(group)] if s.version is not None), None)
        span = best.span.span_id
        row = (index, span, told.prompt, told.response, told.logprobs, version, agents[index], best.choice)
        result.triplets.append((*row, None if value is None else round(value, 9)))


def spans_named(
    links: dict[str, str], spans: dict[Id, tuple[SpanRecord, int]], calls: list[list[Observation]]
) -> list[Id]:
    """Spans that are no calls and have the id that a link names, in the trace that it names."""
    if "span_id" not in links or set(links) - {"span_id", "trace_id"}:
        return []
    taken = [s.id for group in calls for s in group]
    return [
        (trace_id, span_id)
        for trace_id, span_id in spans
        if span_id == links["span_id"]
        and trace_id == links.get("trace_id", trace_id)
        and (trace_id, span_id) not in taken
    ]


def lines_above(group: list[Observation], parents: dict[Id, Id]) -> list[Id]:
    """All spans above any span of a call."""
    return [key for s in group for key in above(s.id, parents)]


def lies_above_all(key: Id, calls: list[list[Observation]], parents: dict[Id, Id]) -> bool:
    return calls != [] and all(key in lines_above(group, parents) for group in calls)


def named_by(links: dict[str, str], group: list[Observation]) -> bool:
    """Whether a link names one of the spans of a call, each key by any of them."""
    rids = [response_id(group) if s is believed(group) else s.rid for s in group]
    values: dict[str, list[Any]] = {
        "span_id": [s.span.span_id for s in group],
        "trace_id": [s.span.trace_id for s in group],
        "gen_ai.response.id": rids,
    }
    return all(value in values[key] for key, value in links.items())
