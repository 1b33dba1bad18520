"""What an attempt's trajectory must be, worked out the slow and plain way: whole lists, nested loops, nothing kept.

Written from the rules alone, to be compared with the assembler on random attempts. It knows the dialects that the
generator speaks: records of the proxy or a tracer, ``prompt_token_ids`` attributes, GenAI spans without tokens, and
answers of several choices as JSON.

Late spans change nothing of that: the last revision is what would have come had the attempt closed behind them.
"""

from __future__ import annotations

from collections.abc import Sequence

from lightstream.schemas.records import AttemptClosed, SpanRecord
from lightstream.stream_processors.core.assembly import AssemblyRules

from ._calls import believed, sets_of
from ._judging import judge
from ._model import Expected, Id
from ._rewards import credit, match
from ._spans import observations_in, parents_without_cycles

__all__ = ["Expected", "expected"]


NO_CALLS_OF_THEIR_OWN = ("duplicate_call", "conflicting_span")


def expected(log: Sequence[tuple[SpanRecord, int]], closed: AttemptClosed, rules: AssemblyRules) -> Expected:
    """The trajectory of the spans in ``log`` (span, offset)."""
    result = Expected()
    spans: dict[Id, tuple[SpanRecord, int]] = {}
    for span, offset in log:
        first = spans.setdefault((span.trace_id, span.span_id), (span, offset))
        if first[0] != span and all(span != other for other, at in log if at < offset):
            lost = bool(observations_in(span, offset)) and not observations_in(*first)
            result.drops.append((offset, span.span_id, "conflicting_span", lost))
    result.span_count = len(spans)
    parents = parents_without_cycles(spans, result)
    observations = [s for span, offset in spans.values() for s in observations_in(span, offset)]
    calls = sets_of(observations, parents, result)
    calls.sort(key=lambda group: (believed(group).offset, believed(group).choice))
    kept, agents = judge(calls, parents, spans, closed, rules, result)
    rewards = match(spans, parents, calls, rules, result)
    credit(calls, kept, agents, rewards, rules, result)
    reasons = [reason for _, _, reason, is_call in result.drops if is_call and reason not in NO_CALLS_OF_THEIR_OWN]
    without_tokens = "no_token_ids" in reasons and set(reasons) <= {"no_token_ids", "call_failed"}
    if result.reward is None and not any(kept) and without_tokens and rewards[0]:
        result.reward = rewards[0][max(rewards[0])]
    result.drops.sort(key=lambda drop: drop[0])
    return result
