"""Which observations are of one call, and which of them counts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ._model import Expected, Id, Observation, note
from ._spans import above


def sets_of(observations: list[Observation], parents: dict[Id, Id], result: Expected) -> list[list[Observation]]:
    """Observations of the same call, together."""
    sets = [[s] for s in observations]

    def home(s: Observation) -> list[Observation]:
        return next(group for group in sets if any(member is s for member in group))

    def unite(a: Observation, b: Observation, *, proxies: bool = False) -> None:
        one, two = home(a), home(b)
        if one is two or (has_proxy(one) and has_proxy(two) and not proxies):
            return
        if not has_proxy(one) and not has_proxy(two) and len({key_of(s) for s in one + two if s.rid is not None}) > 1:
            return
        if any(s.id == other.id for s in one for other in two):
            return  # choices of one answer
        for index, group in enumerate(sets):
            if group is two:
                del sets[index]
                break
        one.extend(two)

    quotable: list[Observation] = []
    for s in (s for s in observations if s.proxy):
        twin = [p for p in quotable if s.rid is not None and key_of(p) == key_of(s) and p.content == s.content]
        if twin:
            unite(twin[0], s, proxies=True)
        else:
            quotable.append(s)
    recorded: list[Observation] = []
    unanswered: list[Observation] = []
    for s in quotable:
        sent_before = [p for p in unanswered if p.content is not None and p.content == s.content]
        sent_before = [p for p in sent_before if p.choice == s.choice]
        after = [q for q in quotable if sent_before and sent_before[-1].offset < q.offset < s.offset and q.failed]
        if sent_before and len(after) < s.resent:
            unite(sent_before[-1], s, proxies=True)
            unanswered = [p for p in unanswered if p is not sent_before[-1]]
        else:
            recorded.append(s)
        unanswered.append(s)
    others = [s for s in observations if not s.proxy]
    claims: list[Any] = []
    for s in others:
        quoted = [p for p in quotable if s.rid is not None and key_of(p) == key_of(s)]
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
    nested = [(outer, s) for s in others for outer in around(s, others, observations, parents)]
    for s in others:
        for outer in around(s, others, observations, parents):
            if not outer.anonymous and joinable(outer, s):
                unite(outer, s)
        for outer in with_tokens_around(s, others, observations, parents):
            if s.content is not None and s.content == outer.content:
                unite(outer, s)
    for outer, _ in nested:
        inside = [s for o, s in nested if o is outer and not outer.anonymous and not joinable(outer, s)]
        if len(inside) == 1 and complement(outer, inside[0]):
            unite(outer, inside[0])
    for outer in others:
        if outer.anonymous and len(home(outer)) == 1 and any(o is outer for o, _ in nested):
            sets.remove(home(outer))
            note(result, "joined_call")
    left = [s for s in others if s.anonymous and any(group[0] is s and len(group) == 1 for group in sets)]
    told: list[tuple[str, Observation]] = []
    for s in left:
        alike = [p for p in recorded if s.words is not None and p.words == s.words and p.offset < s.offset]
        free = [p for p in alike if not any(name == s.span.name and other is p for name, other in told)]
        if alike:
            chosen = (free or alike)[-1]
            told.append((s.span.name, chosen))
            unite(chosen, s)
    for s in left if recorded else []:
        if len(home(s)) > 1:
            continue
        during = [p for p in recorded if len(home(p)) == 1 and p.offset < s.offset and s.lasts_longer_than(p)]
        if s.words is None and len(during) == 1:
            unite(during[0], s)
        else:
            sets.remove(home(s))
            note(result, "unattributed_call")
    for group in sets:
        for _ in group[1:]:
            note(result, "joined_call")
    return sets


def key_of(s: Observation) -> tuple[str | None, int]:
    return s.rid, s.choice


def has_proxy(group: list[Observation]) -> bool:
    return any(s.proxy for s in group)


def not_with_proxy(s: Observation, recorded: list[Observation]) -> bool:
    """Whether the span was joined to no record of the proxy, by response id or tokens."""
    quotes = any(key_of(p) == key_of(s) for p in recorded)
    return not quotes and not any(s.content is not None and p.content == s.content for p in recorded)


def joinable(outer: Observation, s: Observation) -> bool:
    return s.anonymous or (s.content is not None and s.content == outer.content)


def complement(outer: Observation, s: Observation) -> bool:
    return outer.rid is not None and outer.content is None and s.rid is None and s.content is not None


def around(
    s: Observation, others: list[Observation], observations: list[Observation], parents: dict[Id, Id]
) -> list[Observation]:
    """The calls of the nearest span above that tells of any, unless the proxy made it; first its own choice."""
    for key in above(s.id, parents):
        told = [other for other in observations if other.id == key]
        if told:
            same = [other for other in told if other.choice == s.choice and other in others]
            return same + [other for other in told if other.choice != s.choice and other in others]
    return []


def with_tokens_around(
    s: Observation, others: list[Observation], observations: list[Observation], parents: dict[Id, Id]
) -> list[Observation]:
    """The calls of the nearest span above that has tokens, where those between that tell of calls have none."""
    telling = [key for key in above(s.id, parents) if any(other.id == key for other in observations)]
    for place, key in enumerate(telling[:9]):
        told = [other for other in others if other.id == key]
        if not told or (place == 0 and told[0].content is not None):
            return []
        if told[0].content is not None:
            same = [other for other in told if other.choice == s.choice]
            return same + [other for other in told if other.choice != s.choice]
    return []


def believed(group: list[Observation]) -> Observation:
    """The one whose word counts."""
    return by_doubt(group)[0]


def by_doubt(group: list[Observation]) -> list[Observation]:
    """The one whose word counts, then those whose word does where it is silent."""

    def useless(s: Observation) -> bool:  # of a call that failed, only the lack of tokens counts
        return s.prompt is None or s.response is None or (not s.failed and bad_tokens(s) is not None)

    return sorted(group, key=lambda s: (not s.proxy, useless(s), not s.recorded, s.offset))


def tokens_of(group: list[Observation]) -> Observation:
    """The believed observation with the tokens that count: its own, else another's; the rest of them from others."""
    told, *others = by_doubt(group)
    for s in others:
        if told.prompt is None and told.response is None and s.prompt is not None and s.response is not None:
            told = replace(told, prompt=s.prompt, response=s.response, logprobs=s.logprobs)
        elif told.response is not None and told.response == s.response:
            told = replace(
                told,
                prompt=s.prompt if told.prompt is None else told.prompt,
                logprobs=s.logprobs if told.logprobs is None else told.logprobs,
            )
    return told


def response_id(group: list[Observation]) -> str | None:
    return next((s.rid for s in by_doubt(group) if s.rid is not None), None)


def bad_tokens(s: Observation) -> str | None:
    """Why these tokens cannot be trained on."""
    if s.prompt is None or s.response is None:
        return "no_token_ids"
    if min([0, *s.prompt, *s.response]) < 0:
        return "bad_token_ids"
    if not s.prompt:
        return "no_token_ids"
    if not s.response:
        return "empty_response"
    if s.logprobs is not None:
        if len(s.logprobs) != len(s.response):
            return "logprobs_length_mismatch"
        if not all(math.isfinite(x) and x <= 1e-3 for x in s.logprobs):
            return "bad_logprobs"
    return None
