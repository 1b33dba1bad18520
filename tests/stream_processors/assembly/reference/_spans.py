"""What single spans tell, and which lie above which."""

from __future__ import annotations

import json

from lightstream.schemas.packing import unpack_float32, unpack_int32
from lightstream.schemas.records import SpanRecord

from ._model import Expected, Id, Observation, note


def observations_in(span: SpanRecord, offset: int) -> list[Observation]:
    """The calls that a span tells of: one, or each choice of an answer by its number; none of most spans."""
    call, at = span.llm_call, span.attributes
    if call is not None:
        failed = bool(call.error_message) or (call.http_status or 0) >= 400
        prompt = None if call.prompt_token_ids is None else unpack_int32(call.prompt_token_ids).tolist()
        response = None if call.response_token_ids is None else unpack_int32(call.response_token_ids).tolist()
        logprobs = None if call.response_logprobs is None else unpack_float32(call.response_logprobs).tolist()
        found = Observation(
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
            resent=at.get("http.request.resend_count", 0),
        )
        return [found]
    if "output.value" in at:
        answer = json.loads(at["output.value"])
        prompt, rid = answer.get("prompt_token_ids"), answer.get("id")
        return [
            Observation(
                offset, span, False, False, rid, choice["index"], prompt, choice.get("token_ids"), None, False, None
            )
            for choice in sorted(answer["choices"], key=lambda choice: choice["index"])
        ]
    if "prompt_token_ids" in at or "response_token_ids" in at or "gen_ai.operation.name" in at:
        prompt, response = at.get("prompt_token_ids"), at.get("response_token_ids")
        rid, version = at.get("gen_ai.response.id"), at.get("lightstream.policy_version")
        return [Observation(offset, span, False, False, rid, 0, prompt, response, None, False, version)]
    return []


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
