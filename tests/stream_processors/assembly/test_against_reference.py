"""The assembler and a slow, plain reference agree on random attempts."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from lightstream.schemas.packing import pack_float32, pack_int32, unpack_float32, unpack_int32
from lightstream.schemas.records import AttemptClosed, AttemptOpened, SpanRecord, SpanStatus, Trajectory
from lightstream.stream_processors.core.assembly import Assembler, AssemblyRules

from .build import closed, framework_span, opened, proxy_span, reward_span, span_id
from .reference import Expected, expected

ATTEMPTS = 2_400
ATTEMPTS_SOAK = 40_000
CHUNKS = 4


def random_attempt(draw: random.Random) -> list[SpanRecord]:
    """Up to 20 spans over few ids, tokens and parents, so that everything collides with everything."""
    ids = draw.choice([6, 12, 40])
    return [random_span(draw, n, ids) for n in range(1, draw.randint(1, 20))] if draw.random() > 0.01 else []


def random_span(draw: random.Random, number: int, ids: int) -> SpanRecord:
    """A record of the proxy or a tracer, a framework's LLM span, an answer's choices, a plain span, or a reward."""
    if draw.random() < 0.06:
        number = draw.randint(1, number)  # the id of an earlier span, with other content
    parent = draw.randint(1, ids) if draw.random() < 0.6 else None
    trace = draw.choice(["a" * 32, "a" * 32, "b" * 32])
    where: dict[str, Any] = {"parent": parent, "trace_id": trace}
    response_id = f"resp-{draw.randint(1, 5)}" if draw.random() < 0.7 else None
    prompt = draw.choice([[1], [1, 2], [1, 2, 3], [], [3, -1]]) if draw.random() < 0.3 else [1, 2]
    response = draw.choice([[4], [5], [5, 6], [], [-4]]) if draw.random() < 0.6 else [4]
    agent = {"agent.name": draw.choice(["a", "b"])} if draw.random() < 0.3 else {}
    kind = draw.random()
    if kind < 0.35:
        each = -0.5 if draw.random() < 0.8 else draw.choice([0.0, 0.5, math.nan, -math.inf])
        logprobs = pack_float32([each] * len(response))
        call: dict[str, Any] = {
            "response_id": response_id,
            "choice_index": draw.choice([0, 0, 0, 1]),
            "http_status": draw.choice([200] * 7 + [500, None, None]),
            "policy_version": draw.choice([1, 2, None]),
            "response_model": None,
            "response_logprobs": draw.choice([None, pack_float32([-1.0]), *[logprobs] * 4]),
        }
        if draw.random() < 0.7:
            call["response_json"] = json.dumps({"role": "assistant", "content": draw.choice("vwxyz")})
        if draw.random() < 0.1:
            call |= {"prompt_token_ids": None, "response_token_ids": None, "response_logprobs": None}
        again = {"http.request.resend_count": draw.choice([1, 1, 2])} if draw.random() < 0.2 else {}
        return proxy_span(number, prompt, response, attributes=agent | again, **where, **call)
    if kind < 0.45:
        answer: dict[str, Any] = {"choices": [{"index": i, "token_ids": draw.choice([[4], [5]])} for i in (0, 1)]}
        draw.shuffle(answer["choices"])
        if response_id is not None:
            answer["id"] = response_id
        if draw.random() < 0.8:
            answer["prompt_token_ids"] = prompt
        else:
            answer["choices"] = [{"index": choice["index"]} for choice in answer["choices"]]
        choices = {"openinference.span.kind": "LLM", "output.value": json.dumps(answer)}
        return framework_span(number, choices | agent, name="ChatOpenAI", **where)
    if kind < 0.7:
        attributes: dict[str, Any] = {"gen_ai.operation.name": "chat"} | agent
        if response_id is not None and draw.random() < 0.6:
            attributes["gen_ai.response.id"] = response_id
        if draw.random() < 0.6:
            attributes |= {"response_token_ids": response}
            if draw.random() < 0.9:
                attributes |= {"prompt_token_ids": prompt}
        if draw.random() < 0.3:
            attributes["lightstream.policy_version"] = 9
        if draw.random() < 0.5:
            attributes["llm.output_messages.0.message.content"] = draw.choice("vwxyz")
        where["end_unix_nano"] = number * 10 + 5
        where["start_unix_nano"] = max(1, number * 10 - draw.choice([0, 20, 60]))
        return framework_span(number, attributes, name=draw.choice(["openai.chat", "litellm"]), **where)
    if kind < 0.85:
        scope = {"agentlightning.operation.name": "agentlightning.reward"} if draw.random() < 0.2 else {}
        tool = {"openinference.span.kind": "TOOL"} if draw.random() < 0.5 else {}
        return framework_span(number, agent | scope | tool, status=draw.choice(list(SpanStatus)), **where)
    link: dict[str, str] | None = None
    if draw.random() < 0.5:
        link = {"span_id": span_id(draw.randint(1, ids))} if draw.random() < 0.5 else {"gen_ai.response.id": "resp-1"}
        if draw.random() < 0.3:
            link["trace_id"] = trace
    value = draw.choice([0.0, 0.25, 1.0, math.nan])
    return reward_span(number, {"x": value, "y": 0.5} if draw.random() < 0.3 else value, link=link, **where)


def plain(trajectory: Trajectory) -> Expected:
    """What the reference tells, of a real trajectory."""
    return Expected(
        triplets=[
            (
                t.call_index,
                t.span_id,
                unpack_int32(t.prompt_token_ids).tolist(),
                unpack_int32(t.response_token_ids).tolist(),
                None if t.response_logprobs is None else unpack_float32(t.response_logprobs).tolist(),
                t.policy_version,
                t.agent_name,
                t.choice_index,
                None if t.reward is None else round(t.reward, 9),
            )
            for t in trajectory.triplets
        ],
        drops=sorted((d.source_offset, d.span_id, d.reason.value, d.is_llm_call) for d in trajectory.drops),
        rewards=[(r.span_id, r.dimension, r.value, r.call_index, r.match.value) for r in trajectory.rewards],
        reward=trajectory.reward,
        notes={n.reason.value: n.count for n in trajectory.notes},
        span_count=trajectory.span_count,
    )


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_reference_agrees(chunk: int) -> None:
    compare(range(chunk, ATTEMPTS, CHUNKS))


@pytest.mark.soak
def test_the_reference_agrees_on_many_more() -> None:
    compare(range(ATTEMPTS, ATTEMPTS_SOAK))


def compare(seeds: range) -> None:
    """Assemble the random attempts of these seeds both ways."""
    for seed in seeds:
        draw = random.Random(seed)
        log = [(span, offset) for offset, span in enumerate(random_attempt(draw), start=1)]
        rules = AssemblyRules(
            credit=draw.choice(["identical", "identical_plus_own", "last_call_only", "discounted:0.5"]),
            reward_match=draw.choice(["trajectory", "log_order"]),
            automatic_rewards=draw.choice([(), ("tool_ok:0.5", "tool_error:-0.25")]),
            agents=draw.choice([None, None, "^a"]),
            exclude_calls_in_rewards=draw.random() < 0.8,
        )
        end = closed(final=draw.random() < 0.9)
        in_time = draw.randint(0, len(log)) if draw.random() < 0.5 else len(log)
        log[in_time:] = [(span, offset + 1) for span, offset in log[in_time:]]
        records: list[tuple[SpanRecord | AttemptOpened | AttemptClosed, int]]
        records = [(opened(), 0), *log[:in_time], (end, in_time + 1), *log[in_time:]]
        trajectory = Assembler(rules=rules).on_records(records)[-1]
        assert trajectory.revision <= len(log) - in_time
        wanted = expected(log, end, rules)
        wanted.drops.sort()
        assert plain(trajectory) == wanted, f"seed {seed}"
        assert trajectory.call_count == len(trajectory.triplets) + sum(d.is_llm_call for d in trajectory.drops)
        assert all(t.response_mask == b"\x01" * (len(t.response_token_ids) // 4) for t in trajectory.triplets)
        recorded = {span.span_id for span, _ in log if span.llm_call is not None}
        told = {t.span_id for t in trajectory.triplets} | {d.span_id for d in trajectory.drops}
        assert recorded <= told, f"seed {seed}"


def test_token_data_comes_out_as_it_went_in() -> None:
    span = proxy_span(1, range(100), range(50))
    (trajectory,) = Assembler().on_records([(opened(), 0), (span, 1), (closed(), 2)])
    (triplet,) = trajectory.triplets
    assert span.llm_call is not None
    assert triplet.prompt_token_ids is span.llm_call.prompt_token_ids
    assert triplet.response_token_ids == pack_int32(range(50))
