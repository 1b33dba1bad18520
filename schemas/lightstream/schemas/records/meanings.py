"""Meaning of each field of a record, in a sentence: documentation of the tables reads it from here."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType

from ..names_described import names_described
from ._base import Record

__all__ = ["SHARED_MEANINGS", "field_meanings"]

SHARED_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "rollout_id": "id of the rollout.",
        "attempt_id": "id of the attempt.",
        "attempt_sequence": "number of the attempt within its rollout, from 1.",
        "run_id": "training run that this belongs to; empty where none was named.",
        "trainer_id": "trainer that made the step.",
        "step": "number of the step; it counts up from 1 for each trainer.",
        "worker_id": "worker that runs the attempt; ``None`` where it has no name.",
        "mode": "what the rollout is for: ``train``, ``val`` or ``test``; ``unknown`` where nobody said.",
        "input_json": "the task, as JSON.",
        "group_id": "group of rollouts that sample the same task; ``None``: the rollout is a group of its own.",
        "group_size": "how many rollouts the group has.",
        "revision": "number of the trajectory's revision: late spans and rewards make new ones; the highest counts.",
        "rollout_status": "status of the rollout when the attempt was closed.",
        "final": "true for the attempt that counts for its rollout and group: exactly one per rollout.",
        "error_type": "kind of the error that ended the attempt, if any.",
        "error_message": "text of the error that ended the attempt, if any.",
        "trace_id": "OpenTelemetry trace (32 hex digits).",
        "span_id": "OpenTelemetry span (16 hex digits).",
        "response_id": "id that the model server gave its response.",
        "choice_index": "which choice of the response it is, from 0, where a call asked for several.",
        "finish_reason": "why the response ended, such as ``stop`` or ``length``.",
        "source_offset": "offset of its span in the topic ``spans``.",
    }
)
"""Of fields that mean the same in every record that has them; a record that means something else says so itself."""


def field_meanings(record: type[Record]) -> dict[str, str]:
    """Field -> meaning, from the ``Attributes:`` section of the record's docstring, else from what is shared.

    Without docstrings (``python -OO``) there is only what is shared.
    """
    lines = inspect.cleandoc(record.__doc__ or "").splitlines()
    start = lines.index("Attributes:") + 1 if "Attributes:" in lines else len(lines)
    meanings = {**SHARED_MEANINGS, **names_described(lines[start:])}
    return {name: meanings[name] for name in record.model_fields if name in meanings}
