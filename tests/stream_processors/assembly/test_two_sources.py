"""The framework's span and the proxy's span of one call, in two traces: one record, whatever comes, and whenever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import AttemptClosed, AttemptOpened, SpanRecord, Trajectory
from lightstream.stream_processors.core.assembly import Assembler
from tests.support.examples import examples

from .build import closed, framework_span, opened, proxy_span, span_id

AGENT, FRAMEWORK_TRACE = 900, "b" * 32
OF_PROXY, OF_FRAMEWORK = 1, 100
"""Call ``n`` has the proxy's span ``n + 1`` and the framework's span ``n + 100``."""


@dataclass(frozen=True)
class Call:
    """One call, and what each side saw of it."""

    number: int
    proxy: bool
    proxy_has_tokens: bool
    proxy_has_version: bool
    framework: bool
    framework_has_tokens: bool

    @property
    def prompt(self) -> list[int]:
        return [self.number, 7]

    @property
    def response(self) -> list[int]:
        return [self.number, 8, 9]

    @property
    def spans(self) -> list[SpanRecord]:
        response_id = f"resp-{self.number}"
        spans: list[SpanRecord] = []
        if self.proxy:
            blind = {"prompt_token_ids": None, "response_token_ids": None, "response_logprobs": None}
            fields: dict[str, Any] = {} if self.proxy_has_tokens else blind
            fields |= {"policy_version": 3} if self.proxy_has_version else {"response_model": None}
            number = self.number + OF_PROXY
            spans.append(proxy_span(number, self.prompt, self.response, response_id=response_id, **fields))
        if self.framework:
            attributes: dict[str, Any] = {
                "gen_ai.operation.name": "chat",
                "gen_ai.response.id": response_id,
                "lightstream.policy_version": 5,
            }
            if self.framework_has_tokens:
                attributes |= {"prompt_token_ids": self.prompt, "response_token_ids": self.response}
            number = self.number + OF_FRAMEWORK
            spans.append(framework_span(number, attributes, parent=AGENT, trace_id=FRAMEWORK_TRACE))
        return spans


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[Call], bool, list[SpanRecord], int]:
    """Calls; whether the agent's span is there; all spans in some order, some twice; how many come in time."""
    flags = st.booleans()
    calls = [
        Call(n, draw(flags), draw(flags), draw(flags), draw(flags), draw(flags)) for n in range(draw(st.integers(1, 5)))
    ]
    spans = [span for call in calls for span in call.spans]
    with_agent = draw(flags)
    if with_agent:
        spans.append(framework_span(AGENT, {"agent.name": "writer"}, trace_id=FRAMEWORK_TRACE))
    if spans:
        spans += draw(st.lists(st.sampled_from(spans), max_size=4))
    spans = draw(st.permutations(spans))
    return calls, with_agent, spans, draw(st.integers(0, len(spans)))


def assembled(spans: list[SpanRecord], in_time: int) -> Trajectory:
    """The last revision, with the closing record behind the first ``in_time`` spans."""
    records: list[SpanRecord | AttemptOpened | AttemptClosed] = [opened(), *spans]
    records.insert(1 + in_time, closed())
    return Assembler().on_records((record, offset) for offset, record in enumerate(records))[-1]


@given(deliveries())
@settings(deadline=None, max_examples=examples(300))
def test_tokens_are_the_proxys_structure_is_the_frameworks_and_each_field_says_so(
    delivery: tuple[list[Call], bool, list[SpanRecord], int],
) -> None:
    calls, with_agent, spans, in_time = delivery
    trajectory = assembled(spans, in_time)
    triplets = {triplet.response_id: triplet for triplet in trajectory.triplets}
    made = [call for call in calls if call.proxy or call.framework]
    assert trajectory.call_count == len(made)
    assert len(triplets) == len(trajectory.triplets)
    for call in made:
        own_tokens = call.proxy and call.proxy_has_tokens
        told = own_tokens or (call.framework and call.framework_has_tokens)
        triplet = triplets.get(f"resp-{call.number}")
        if not told:
            assert triplet is None
            assert any(drop.response_id == f"resp-{call.number}" and drop.is_llm_call for drop in trajectory.drops)
            continue
        assert triplet is not None
        decorator = span_id(call.number + OF_FRAMEWORK)
        own_version = not call.proxy or call.proxy_has_version or not call.framework
        assert triplet.span_id == (span_id(call.number + OF_PROXY) if call.proxy else decorator)
        assert triplet.prompt_token_ids == pack_int32(call.prompt)
        assert triplet.response_token_ids == pack_int32(call.response)
        assert triplet.response_logprobs == (pack_float32([-0.5] * 3) if own_tokens else None)
        version = 3 if call.proxy and call.proxy_has_version else 5 if call.framework else None
        assert triplet.policy_version == version
        assert triplet.agent_name == ("writer" if with_agent and call.framework else None)
        filled: dict[str, str] = {}
        if call.proxy and call.framework:
            assert triplet.joined_span_ids == [decorator]
            if with_agent:
                filled["agent_name"] = f"{decorator}:span"
            if not own_tokens:
                filled |= {name: f"{decorator}:{name}" for name in ("prompt_token_ids", "response_token_ids")}
            if not own_version:
                filled["policy_version"] = f"{decorator}:lightstream.policy_version"
        assert triplet.field_sources == filled
        assert triplet.dialect == ("proxy" if call.proxy else triplet.dialect)
