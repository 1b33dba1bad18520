"""The record's own ``llm_call``: what the LLM proxy, or a tracer that knows, saw in the raw upstream answer."""

from __future__ import annotations

from http import HTTPStatus

from lightstream.schemas.policy_names import version_of_model
from lightstream.schemas.records import LlmCall, SpanRecord

from ._model import ReadCall

__all__ = ["PROXY", "RECORDED", "read_recorded"]

PROXY = "proxy"
"""The call passed through the proxy: it certainly happened, as recorded. Told by its HTTP status or error."""
RECORDED = "recorded"
"""A tracer filled in the call itself."""


def read_recorded(span: SpanRecord, call: LlmCall) -> ReadCall:
    """The call as recorded. ``span`` is unchanged; nothing is copied."""
    failure = None
    status = call.http_status
    if status is not None and status >= HTTPStatus.BAD_REQUEST:
        failure = f"HTTP {status}: {call.error_message or 'no message'}"
    elif call.error_message:
        failure = call.error_message
    model = call.response_model or call.requested_model
    runs = tuple(call.policy_version_runs)
    version = runs[0].policy_version if runs and call.policy_version is None else call.policy_version
    return ReadCall(
        PROXY if status is not None or failure is not None else RECORDED,
        call.response_id or None,
        call.choice_index,
        model,
        version if version is not None else version_of_model(model),
        call.prompt_token_ids,
        call.response_token_ids,
        call.response_logprobs,
        call.finish_reason,
        failure,
        policy_version_runs=runs,
    )
