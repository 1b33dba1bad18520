"""What an attempt's trajectory must be, worked out the slow and plain way: whole lists, nested loops, nothing kept.

Written from the rules alone, to be compared with the assembler on random attempts. It knows the dialects that the
generator speaks: records of the proxy or a tracer, ``prompt_token_ids`` attributes, and GenAI spans without tokens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lightstream.schemas.packing import unpack_float32, unpack_int32
from lightstream.schemas.records import AttemptClosed, SpanRecord
from lightstream.stream_processors.core.assembly import AssemblyRules

__all__ = ["Expected", "expected"]

Id = tuple[str, str]
AGENT, REWARD_SCOPE = "agent.name", "agentlightning.operation.name"


@dataclass
class Sighting:
    """A span that tells of a call."""

    offset: int
    span: SpanRecord
    proxy: bool
    recorded: bool
    rid: str | None
    choice: int
    prompt: list[int] | None
    response: list[int] | None
    logprobs: list[float] | None
    failed: bool
    version: int | None

    @property
    def id(self) -> Id:
        return self.span.trace_id, self.span.span_id

    @property
    def anonymous(self) -> bool:
        return not self.recorded and self.rid is None and self.response is None

    @property
    def content(self) -> Any:
        return None if self.response is None else (self.prompt, self.response)


@dataclass
class Expected:
    """The parts of a trajectory that are compared, as plain values."""

    triplets: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    drops: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    rewards: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    reward: float | None = None
    notes: dict[str, int] = field(default_factory=dict[str, int])
    span_count: int = 0


def expected(log: Sequence[tuple[SpanRecord, int]], closed: AttemptClosed, rules: AssemblyRules) -> Expected:
    """The trajectory of the spans in ``log`` (span, offset)."""
    result = Expected()
    spans: dict[Id, tuple[SpanRecord, int]] = {}
    for span, offset in log:
        first = spans.setdefault((span.trace_id, span.span_id), (span, offset))
        if first[0] != span and all(span != other for other, at in log if at < offset):
            lost = span.llm_call is not None and sighting(*first) is None
            result.drops.append((offset, span.span_id, "conflicting_span", lost))
    result.span_count = len(spans)
    parents = parents_without_cycles(spans, result)
    sightings = [s for span, offset in spans.values() if (s := sighting(span, offset)) is not None]
    calls = sets_of(sightings, parents, result)
    calls.sort(key=lambda group: (believed(group).offset, believed(group).choice))
    kept, agents = judge(calls, parents, spans, closed, rules, result)
    by_call = match(spans, calls, rules, result)
    credit(calls, kept, agents, by_call, rules, result)
    result.drops.sort(key=lambda drop: drop[0])
    return result


def sighting(span: SpanRecord, offset: int) -> Sighting | None:
    """The call that a span tells of."""
    call, at = span.llm_call, span.attributes
    if call is not None:
        failed = bool(call.error_message) or (call.http_status or 0) >= 400
        prompt = None if call.prompt_token_ids is None else unpack_int32(call.prompt_token_ids).tolist()
        response = None if call.response_token_ids is None else unpack_int32(call.response_token_ids).tolist()
        logprobs = None if call.response_logprobs is None else unpack_float32(call.response_logprobs).tolist()
        return Sighting(
            offset=offset,
            span=span,
            proxy=call.http_status is not None or failed,
            recorded=True,
            rid=call.response_id,
            choice=call.choice_index,
            prompt=prompt,
            response=response,
            logprobs=logprobs,
            failed=failed,
            version=call.policy_version,
        )
    if "prompt_token_ids" in at or "response_token_ids" in at or "gen_ai.operation.name" in at:
        prompt, response = at.get("prompt_token_ids"), at.get("response_token_ids")
        rid, version = at.get("gen_ai.response.id"), at.get("lightstream.policy_version")
        return Sighting(offset, span, False, False, rid, 0, prompt, response, None, False, version)
    return None


def parents_without_cycles(spans: dict[Id, tuple[SpanRecord, int]], result: Expected) -> dict[Id, Id]:
    """Parent of each span that has one in the attempt; from each span in turn, the link that closes a cycle is cut."""
    parents: dict[Id, Id] = {}
    for key, (span, _) in spans.items():
        if span.parent_id is not None:
            if (span.trace_id, span.parent_id) in spans:
                parents[key] = (span.trace_id, span.parent_id)
            else:
                note(result, "missing_parent")
    for key in spans:
        walk = [key]
        while walk[-1] in parents:
            if parents[walk[-1]] in walk:
                del parents[walk[-1]]
                note(result, "parent_cycle")
            else:
                walk.append(parents[walk[-1]])
    return parents


def above(key: Id, parents: dict[Id, Id]) -> list[Id]:
    """The spans above, nearest first."""
    line: list[Id] = []
    while key in parents:
        key = parents[key]
        line.append(key)
    return line


def sets_of(sightings: list[Sighting], parents: dict[Id, Id], result: Expected) -> list[list[Sighting]]:
    """Sightings of the same call, together."""
    sets = [[s] for s in sightings]

    def home(s: Sighting) -> list[Sighting]:
        return next(group for group in sets if any(member is s for member in group))

    def unite(a: Sighting, b: Sighting, *, proxies: bool = False) -> None:
        one, two = home(a), home(b)
        if one is two or (has_proxy(one) and has_proxy(two) and not proxies):
            return
        if not has_proxy(one) and not has_proxy(two) and len({s.rid for s in one + two if s.rid is not None}) > 1:
            return
        for index, group in enumerate(sets):
            if group is two:
                del sets[index]
                break
        one.extend(two)

    recorded: list[Sighting] = []
    for s in (s for s in sightings if s.proxy):
        twin = [p for p in recorded if s.rid is not None and key_of(p) == key_of(s) and p.content == s.content]
        if twin:
            unite(twin[0], s, proxies=True)
        else:
            recorded.append(s)
    others = [s for s in sightings if not s.proxy]
    claims: list[Any] = []
    for s in others:
        quoted = [p for p in recorded if s.rid is not None and key_of(p) == key_of(s)]
        alike = [p for p in recorded if s.content is not None and p.content == s.content]
        if quoted:
            before = [p for p in quoted if p.offset < s.offset]
            unite(before[-1] if before else quoted[0], s)
        elif alike:
            unite(alike[min(claims.count(s.content), len(alike) - 1)], s)
            claims.append(s.content)
        elif s.rid is not None:
            first = next(
                o for o in others if o.rid is not None and key_of(o) == key_of(s) and not_with_proxy(o, recorded)
            )
            unite(first, s)
    nested = [(outer, s) for s in others if (outer := around(s, others, sightings, parents)) is not None]
    for outer, s in nested:
        if not outer.anonymous and (s.anonymous or (s.content is not None and s.content == outer.content)):
            unite(outer, s)
    for outer in others:
        inside = [s for o, s in nested if o is outer and not outer.anonymous and not joinable(outer, s)]
        if len(inside) == 1 and complement(outer, inside[0]):
            unite(outer, inside[0])
    for outer in others:
        alone = outer.anonymous and len(home(outer)) == 1
        if alone and any(o is outer for o, _ in nested):
            sets.remove(home(outer))
            note(result, "joined_call")
        elif alone and recorded:
            sets.remove(home(outer))
            note(result, "unattributed_call")
    for group in sets:
        for _ in group[1:]:
            note(result, "joined_call")
    return sets


def key_of(s: Sighting) -> tuple[str | None, int]:
    return s.rid, s.choice


def has_proxy(group: list[Sighting]) -> bool:
    return any(s.proxy for s in group)


def not_with_proxy(s: Sighting, recorded: list[Sighting]) -> bool:
    """Whether the span was joined to no record of the proxy, by response id or tokens."""
    quotes = any(key_of(p) == key_of(s) for p in recorded)
    return not quotes and not any(s.content is not None and p.content == s.content for p in recorded)


def joinable(outer: Sighting, s: Sighting) -> bool:
    return s.anonymous or (s.content is not None and s.content == outer.content)


def complement(outer: Sighting, s: Sighting) -> bool:
    return outer.rid is not None and outer.content is None and s.rid is None and s.content is not None


def around(s: Sighting, others: list[Sighting], sightings: list[Sighting], parents: dict[Id, Id]) -> Sighting | None:
    """The nearest span above that tells of a call, unless the proxy made it."""
    for key in above(s.id, parents):
        for other in sightings:
            if other.id == key:
                return other if other in others else None
    return None


def believed(group: list[Sighting]) -> Sighting:
    """The one whose word counts."""

    def doubt(s: Sighting) -> tuple[bool, bool, bool, int]:
        return not s.proxy, s.prompt is None or s.response is None, not s.recorded, s.offset

    return min(group, key=doubt)


def tokens_of(group: list[Sighting]) -> Sighting:
    """The sighting whose tokens count: the believed one's, else the least doubtful that has any."""
    best = believed(group)
    if best.prompt is None and best.response is None:
        having = [s for s in group if s.prompt is not None and s.response is not None]
        return believed(having) if having else best
    return best


def fault(group: list[Sighting]) -> str | None:
    """Why a call cannot be trained on."""
    if believed(group).failed:
        return "call_failed"
    told = tokens_of(group)
    if told.prompt is None or told.response is None:
        return "no_token_ids"
    if min([0, *told.prompt, *told.response]) < 0:
        return "bad_token_ids"
    if not told.prompt:
        return "no_token_ids"
    if not told.response:
        return "empty_response"
    if told.logprobs is not None:
        if len(told.logprobs) != len(told.response):
            return "logprobs_length_mismatch"
        if not all(math.isfinite(x) and x <= 1e-3 for x in told.logprobs):
            return "bad_logprobs"
    return None


def judge(
    calls: list[list[Sighting]],
    parents: dict[Id, Id],
    spans: dict[Id, tuple[SpanRecord, int]],
    closed: AttemptClosed,
    rules: AssemblyRules,
    result: Expected,
) -> tuple[list[bool], list[str | None]]:
    """Which calls become triplets, and whose they are; the others' drops."""

    def doubtful_last(group: list[Sighting]) -> list[Sighting]:
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


def response_id(group: list[Sighting]) -> str | None:
    best = believed(group)
    rest = sorted(
        (s for s in group if s is not best), key=lambda s: (not s.proxy, no_tokens(s), not s.recorded, s.offset)
    )
    return next((s.rid for s in [best, *rest] if s.rid is not None), None)


def no_tokens(s: Sighting) -> bool:
    return s.prompt is None or s.response is None


def match(
    spans: dict[Id, tuple[SpanRecord, int]], calls: list[list[Sighting]], rules: AssemblyRules, result: Expected
) -> tuple[dict[int, float], float | None]:
    """Rewards by call, and what is left for credit to hand out."""
    by_call: dict[int, float] = {}
    shared: float | None = None
    for span, offset in spans.values():
        values = {
            int(name.split(".")[2]): value
            for name, value in span.attributes.items()
            if name.startswith("agentlightning.reward.") and name.endswith(".value")
        }
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
            targets, how = (found, "link") if found else ([None], "none")
            if not found:
                note(result, "unmatched_link")
        else:
            before = [i for i, group in enumerate(calls) if believed(group).offset < offset]
            if rules.reward_match == "log_order" and before:
                targets, how = [before[-1]], "log_order"
            if 0 in good:
                result.reward = good[0]
                shared = good[0] if how == "trajectory" else None
        for target in targets:
            if target is not None and 0 in good:
                by_call[target] = good[0]
            result.rewards += [(span.span_id, n, good[n], target, how) for n in sorted(good)]
    return by_call, shared


def named_by(links: dict[str, str], group: list[Sighting]) -> bool:
    """Whether a link names one of the spans of a call, each key by any of them."""
    rids = [response_id(group) if s is believed(group) else s.rid for s in group]
    values: dict[str, list[Any]] = {
        "span_id": [s.span.span_id for s in group],
        "trace_id": [s.span.trace_id for s in group],
        "gen_ai.response.id": rids,
    }
    return all(value in values[key] for key, value in links.items())


def credit(
    calls: list[list[Sighting]],
    kept: list[bool],
    agents: list[str | None],
    rewards: tuple[dict[int, float], float | None],
    rules: AssemblyRules,
    result: Expected,
) -> None:
    """Triplets with their rewards."""
    own, shared = rewards
    rows = [i for i in range(len(calls)) if kept[i]]
    for position, index in enumerate(rows):
        group = calls[index]
        value = own.get(index)
        if rules.credit == "identical":
            value = shared if value is None else value
        elif rules.credit == "last_call_only":
            value = shared if value is None and position == len(rows) - 1 else value
        elif shared is None and not own:
            value = None
        else:
            discount = float(rules.credit.split(":")[1])
            value = (shared or 0.0) * discount ** (len(rows) - 1 - position)
            for later, reward in own.items():
                steps = sum(index < i <= later for i in rows)
                value += reward * discount**steps if later >= index else 0.0
        best, told = believed(group), tokens_of(group)
        version = next((s.version for s in [best, *by_doubt(group)] if s.version is not None), None)
        span = best.span.span_id
        row = (index, span, told.prompt, told.response, told.logprobs, version, agents[index], best.choice)
        result.triplets.append((*row, None if value is None else round(value, 9)))


def by_doubt(group: list[Sighting]) -> list[Sighting]:
    return sorted(group, key=lambda s: (not s.proxy, no_tokens(s), not s.recorded, s.offset))


def note(result: Expected, reason: str) -> None:
    result.notes[reason] = result.notes.get(reason, 0) + 1
