"""The header of the records of ``trajectories`` that names their run, so that readers skip other runs."""

from __future__ import annotations

from confluent_kafka import Message

from .publishing import Headers

RUN = "run"
"""Header: the run of the record, empty where it names none. Older writers leave it out."""


def run_headers(run_id: str) -> Headers:
    """The headers of a record of this run."""
    return [(RUN, _encoded(run_id))]


def of_another_run(message: Message, run_id: str) -> bool:
    """Whether the record says that it belongs to another run than this one."""
    run = dict(message.headers() or {}).get(RUN)
    return run is not None and run != _encoded(run_id)


def _encoded(run_id: str) -> bytes:
    return run_id.encode(errors="replace")  # text that is no Unicode is repaired, or refused, with the record
