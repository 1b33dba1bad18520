"""Random traces of agents, as data, and how their adapters are set: both packages make triplets of the same ones.

Left out is what differs on purpose:

- an LLM call within another, and a reward within one: there the inner call is lost where it has no response id, and
  what is "after" a call is told by the clock;
- the first sibling of what was put back under its parent: there it comes after all others;
- calls without any message, of which there a conversation of none is made;
- spans of a proxy with one number, which there follow each other by the clock.
"""

from __future__ import annotations

import json
import random
from typing import Any

Trace = dict[str, Any]
"""``spans`` (fields of the interface's ``Span``) and ``options`` of ``TracerTraceToTriplet``."""

DEPTH_MAX = 3
AGENTS: list[dict[str, Any]] = [
    {"agent.name": "A"},
    {"agent.name": "B"},
    {"agentops.span.kind": "agent", "operation.name": "A"},
    {"recipient_agent_type": "C"},
    {"langchain.chain.type": "D"},
    {"executor.id": "E"},
    {"type": "agent", "agentlightning.operation.input.name": "F"},
]
IMAGE = '[{"type": "image_url", "image_url": {"url": "http://there/1.png"}}, {"type": "text", "text": "what is it?"}]'


def trace(seed: int) -> Trace:
    """The spans of one attempt, as an agent's tracer has them; the same for the same seed."""
    chance = random.Random(seed)
    spans: list[dict[str, Any]] = []
    options: dict[str, Any] = {
        "repair_hierarchy": chance.random() < 0.8,
        "agent_match": chance.choice([None, None, "A", "B|C", "^[DE]", "G"]),
        "exclude_llm_call_in_reward": chance.random() < 0.8,
        "reward_match": chance.choice(["first_occurrence", "first_sibling"]),
    }
    if chance.random() < 0.3:
        options["llm_call_match"] = chance.choice(["openai", "other", "completion$"])
    _add(spans, None, "session", {}, 0.0, 1000.0)
    _grow(chance, spans, spans[0], 0, lost=0.1 if options["reward_match"] == "first_occurrence" else 0.0)
    return {"spans": spans, "options": options}


def proxy_trace(seed: int) -> Trace:
    """The spans of one attempt, as a proxy records them beside rewards. Its clock runs backwards."""
    chance = random.Random(seed)
    spans: list[dict[str, Any]] = []
    for number in range(1, chance.randint(2, 8)):
        name, attributes = _proxied(chance) if chance.random() < 0.8 else _reward(chance)
        _add(spans, None, name, attributes, 1000.0 - 10 * number, 1005.0 - 10 * number)
    return {"spans": spans, "options": {}}


def _add(
    spans: list[dict[str, Any]], parent_id: str | None, name: str, attributes: dict[str, Any], start: float, end: float
) -> dict[str, Any]:
    number = len(spans)
    span = {
        "rollout_id": "ro-1",
        "attempt_id": "at-1",
        "sequence_id": number,
        "trace_id": f"{1:032x}",
        "span_id": f"{number + 1:016x}",
        "parent_id": parent_id,
        "name": name,
        "attributes": attributes,
        "start_time": start,
        "end_time": end,
    }
    spans.append(span)
    return span


def _grow(chance: random.Random, spans: list[dict[str, Any]], above: dict[str, Any], depth: int, lost: float) -> None:
    """Spans below another, one after the other in its time; the parents of this share are lost."""
    count = chance.randint(1, 4) if depth == 0 else chance.randrange(4)
    step = (above["end_time"] - above["start_time"]) / max(count, 1)
    for place in range(count):
        start = above["start_time"] + step * (place + 0.1)
        name, attributes, may_hold = _anything(chance, len(spans))
        parent_id = chance.choice([None, f"{9999:016x}"]) if chance.random() < lost else above["span_id"]
        span = _add(spans, parent_id, name, attributes, start, start + step * 0.8)
        if may_hold and depth < DEPTH_MAX and chance.random() < 0.7:
            _grow(chance, spans, span, depth + 1, lost)


def _anything(chance: random.Random, number: int) -> tuple[str, dict[str, Any], bool]:
    """A span's name, its attributes, and whether others may be below it."""
    kind = chance.choice(["call", "call", "agent", "tool", "reward", "chain"])
    if kind == "call":
        names = ["openai.chat.completion", "openai.chat.completion", "openai.chat.completion.create", "other"]
        told = _by_weave if chance.random() < 0.4 else _by_agentops
        return chance.choice(names), told(chance, number), False
    if kind == "agent":
        return "agent", chance.choice(AGENTS), True
    if kind == "chain":
        return "langchain.Chain.x", {"lc_name": "G"} if chance.random() < 0.5 else {}, True
    if kind == "reward":
        return *_reward(chance), False
    return "tool", {"x": 1}, True


def _ids(chance: random.Random) -> list[int]:
    return [chance.randrange(9) for _ in range(chance.randint(1, 3))]


def _some(chance: random.Random, share: float, **attributes: Any) -> dict[str, Any]:
    return attributes if chance.random() < share else {}


def _by_agentops(chance: random.Random, number: int) -> dict[str, Any]:
    attributes: dict[str, Any] = {"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": f"a{number}"}
    for place in range(chance.randrange(3)):
        attributes[f"gen_ai.prompt.{place}.role"] = chance.choice(["user", "system"])
        attributes[f"gen_ai.prompt.{place}.content"] = chance.choice(["hi", IMAGE, "{}"])
    tool = {"name": "f", "description": "d", "parameters": '{"type": "object"}'}
    optional: list[dict[str, Any]] = [
        {"prompt_token_ids": _ids(chance)},
        {"response_token_ids": _ids(chance)},
        {"gen_ai.response.id": f"response-{number}"},
        {"gen_ai.request.model": "m", "gen_ai.request.temperature": 0.5},
        {"gen_ai.response.model": "m2", "gen_ai.response.finish_reason": "stop"},
        {f"gen_ai.request.functions.0.{name}": value for name, value in tool.items()},
        {"logprobs.content": json.dumps([{"token": "a", "logprob": -0.5}])},
    ]
    for more in optional:
        attributes |= _some(chance, 0.6, **more)
    return attributes


def _by_weave(chance: random.Random, number: int) -> dict[str, Any]:
    said, answered = "agentlightning.operation.input", "agentlightning.operation.output"
    attributes: dict[str, Any] = {f"{said}.model": "m"}
    for place in range(chance.randrange(3)):
        attributes[f"{said}.messages.{place}.role"] = "user"
        attributes[f"{said}.messages.{place}.content"] = chance.choice(["hi", IMAGE])
    tokens = ["response_token_ids.0", "choices.0.token_ids", "choices.0.provider_specific_fields.token_ids"]
    optional: list[dict[str, Any]] = [
        {f"{answered}.prompt_token_ids": _ids(chance)},
        {f"{answered}.{chance.choice(tokens)}": _ids(chance)},
        {f"{answered}.id": f"response-{number}"},
        {f"{answered}.choices.0.message.role": "assistant", f"{answered}.choices.0.message.content": f"a{number}"},
        {f"{answered}.usage.total_tokens": 5},
    ]
    for more in optional:
        attributes |= _some(chance, 0.7, **more)
    return attributes


def _reward(chance: random.Random) -> tuple[str, dict[str, Any]]:
    value = chance.choice([0.0, 0.5, 1.0, -1.0, 2])
    payload = json.dumps({"type": "reward", "value": value})
    named = {"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": value}
    second = {"agentlightning.reward.1.name": "style", "agentlightning.reward.1.value": 3.0}
    told: list[tuple[str, dict[str, Any]]] = [
        ("agentlightning.annotation", named),
        ("agentlightning.annotation", named | second),
        ("reward", {"agentops.task.output": payload}),
        ("agentops_reward_operation.task", {"agentops.entity.output": payload}),
    ]
    return chance.choice(told)


def _proxied(chance: random.Random) -> tuple[str, dict[str, Any]]:
    prompt, response = _ids(chance), _ids(chance)
    choices = str([{"token_ids": response}])
    raw, request = "raw_gen_ai_request", "litellm_request"
    told: list[tuple[str, dict[str, Any]]] = [
        (raw, {"llm.hosted_vllm.prompt_token_ids": str(prompt), "llm.hosted_vllm.choices": choices}),
        (
            raw,
            {
                "llm.hosted_vllm.prompt_token_ids": str(prompt),
                "llm.hosted_vllm.response_token_ids": f"[{response}]",
            },
        ),
        (request, {"prompt_token_ids": prompt, "response_token_ids": response}),
        (request, {"prompt_token_ids": str(prompt), "response_token_ids": str(response)}),
        (request, {"prompt_token_ids": prompt}),
    ]
    name, attributes = chance.choice(told)
    identity = "llm.hosted_vllm.id" if name == raw else "gen_ai.response.id"
    return name, attributes | _some(chance, 0.6, **{identity: f"response-{chance.randrange(4)}"})
