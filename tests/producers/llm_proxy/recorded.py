"""What the proxy recorded."""

from __future__ import annotations

from lightstream.runtime.settings import Settings
from lightstream.schemas.records import LlmCall, SpanRecord, SpanStatus
from tests.producers.support import read_spans


def only_record(settings: Settings) -> tuple[SpanRecord, LlmCall]:
    """The one record there is, of attempt ``a`` of rollout ``r``, and its call."""
    (record,) = read_spans(settings)
    assert record.llm_call is not None
    assert (record.rollout_id, record.attempt_id) == ("r", "a")
    return record, record.llm_call


def only_call(settings: Settings) -> LlmCall:
    """The call of the one record there is; it has failed exactly if it says why."""
    (record,) = read_spans(settings)
    assert record.llm_call is not None
    assert (record.status is SpanStatus.ERROR) == (record.llm_call.error_message is not None)
    return record.llm_call
