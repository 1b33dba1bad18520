"""Meaning of each field of a record, in a sentence, for the documentation of the tables."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ._base import Record

SHARED_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "rollout_id": "Id of the rollout.",
        "attempt_id": "Id of the attempt.",
        "attempt_sequence": "Number of the attempt within its rollout, from 1.",
        "run_id": "Training run that this belongs to; empty where none was named.",
        "trainer_id": "Trainer that made the step.",
        "step": "Number of the step; it counts up from 1 for each trainer.",
        "worker_id": "Worker that runs the attempt; ``None`` where it has no name.",
        "mode": "Purpose of the rollout: ``train``, ``val`` or ``test``; ``unknown`` where nobody said.",
        "input_json": "The task, as JSON.",
        "group_id": "Group of rollouts that sample the same task; ``None``: the rollout is a group of its own.",
        "group_size": "Number of rollouts of the group.",
        "revision": "Number of the trajectory's revision: late spans and rewards make new ones; the highest counts.",
        "rollout_status": "Status of the rollout when the attempt was closed.",
        "final": "True for the attempt that ended its rollout: one, or more where it was put back into the queue.",
        "error_type": "Kind of the error that ended the attempt, if any.",
        "error_message": "Text of the error that ended the attempt, if any.",
        "trace_id": "OpenTelemetry trace (32 hex digits).",
        "span_id": "OpenTelemetry span (16 hex digits).",
        "response_id": "Id that the model server gave its response.",
        "choice_index": "Number of the choice within the response, from 0, where a call asked for several.",
        "finish_reason": "Reason why the response ended, such as ``stop`` or ``length``.",
        "source_offset": "Offset of its span in the topic ``spans``.",
    }
)
"""Of fields that mean the same in every record that has them; a record that means something else says so itself."""


def field_meanings(record: type[Record]) -> dict[str, str]:
    """Field -> meaning: the field's docstring, else the shared meaning.

    Without docstrings (``python -OO``) there is only what is shared.
    """
    meanings = {name: field.description or SHARED_MEANINGS.get(name, "") for name, field in record.model_fields.items()}
    return {name: " ".join(meaning.split()) for name, meaning in meanings.items() if meaning}
