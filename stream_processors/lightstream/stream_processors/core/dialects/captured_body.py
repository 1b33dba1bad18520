"""Spans that keep a whole answer in one attribute: MLflow, Langfuse, traceloop entities, NeMo Gym, ATIF, raw HTTP."""

from __future__ import annotations

from lightstream.schemas.records import SpanRecord

from ._attributes import complete
from ._kind import is_of_llm_kind
from ._model import ReadCall
from ._values import parse_json
from .atif import read_atif
from .engine_response import read_response

__all__ = ["BODY_ATTRIBUTES", "read_captured_body"]

BODY_ATTRIBUTES = {
    "gen_ai.response.body": "engine_response",
    "http.response.body": "engine_response",
    "llm.response": "engine_response",
    "nemo_gym.response": "nemo_gym",
    "atif.trajectory": "atif",
    "mlflow.spanOutputs": "mlflow",
    "langfuse.observation.output": "langfuse",
    "traceloop.entity.output": "openllmetry",
}
"""Attribute -> name of the dialect."""


def read_captured_body(span: SpanRecord) -> list[ReadCall]:
    """The calls of the first such attribute that holds token ids of any; without them where the span is of LLM kind.

    Entities around a call often keep its answer too, so a body without token ids alone does not mean a call.
    """
    attributes = span.attributes
    without_tokens: list[ReadCall] = []
    for name, dialect in BODY_ATTRIBUTES.items():
        if name not in attributes:
            continue
        body = parse_json(attributes[name])
        calls = read_response(body, name, dialect) or read_atif(body, name)
        if any(call.response_token_ids is not None or call.problem is not None for call in calls):
            return complete(calls, span)
        without_tokens = without_tokens or calls
    return complete(without_tokens, span) if without_tokens and is_of_llm_kind(span) else []
