"""Odd logs, in which every call still has one fate: too large for a record, and span ids that come twice."""

from __future__ import annotations

from collections import Counter

from lightstream.schemas.records import AttemptClosed, AttemptOpened, SpanRecord
from lightstream.stream_processors.core.assembly import Assembler
from lightstream.stream_processors.worker.large_trajectories import without_calls, without_triplets
from tests.store_views.log_file import LogFile
from tests.stream_processors.assembly.build import closed, framework_span, opened, proxy_span


def told_of(number: int) -> SpanRecord:
    """The same call as :func:`proxy_span` records, told by a framework, without tokens."""
    call = {"gen_ai.operation.name": "chat", "gen_ai.response.id": f"resp-{number}"}
    return framework_span(number, call, name="openai.chat")


def fates(log: LogFile) -> Counter[tuple[str, str | None]]:
    """Of a log whose account is balanced."""
    assert log.rows("SELECT balanced, unaccounted FROM call_accounting") == [(True, 0)], log.dicts("FROM call_spans")
    return Counter(log.rows("SELECT fate, reason FROM llm_calls"))


def test_calls_of_a_trajectory_that_fits_no_record_are_too_large(log: LogFile) -> None:
    records: list[SpanRecord | AttemptOpened | AttemptClosed] = [
        opened(),
        proxy_span(1),
        proxy_span(2, choice_index=1),
        closed(),
    ]
    (trajectory,) = Assembler(partition=0).on_records((record, offset) for offset, record in enumerate(records))
    log.write(*records, without_triplets(trajectory, "a record of 9 bytes is over the limit"))
    assert fates(log) == {("dropped", "too_large"): 2}
    assert log.rows("SELECT choice_index FROM dropped ORDER BY log_offset") == [(0,), (1,)]


def test_calls_that_not_even_a_list_has_room_for_are_too_large(log: LogFile) -> None:
    records: list[SpanRecord | AttemptOpened | AttemptClosed] = [opened(), proxy_span(1), proxy_span(2), closed()]
    (trajectory,) = Assembler(partition=0).on_records((record, offset) for offset, record in enumerate(records))
    log.write(*records, without_calls(trajectory))
    assert fates(log) == {("dropped", "too_large"): 2}


def test_a_recorded_call_whose_span_id_a_framework_took_first_is_that_call(log: LogFile) -> None:
    log.write_and_assemble(opened(), told_of(1), proxy_span(1), proxy_span(1), proxy_span(1, [9], [9]), closed())
    assert fates(log) == {("dropped", "no_token_ids"): 1}
    assert Counter(log.rows("SELECT reason, is_llm_call FROM dropped")) == {
        ("no_token_ids", True): 1,
        ("conflicting_span", False): 2,
    }


def test_a_recorded_call_whose_span_id_is_of_no_call_is_dropped(log: LogFile) -> None:
    log.write_and_assemble(opened(), framework_span(1), proxy_span(1), closed())
    assert fates(log) == {("dropped", "conflicting_span"): 1}


def test_a_call_recorded_twice_under_one_id_counts_as_it_was_recorded_first(log: LogFile) -> None:
    log.write_and_assemble(opened(), proxy_span(1), proxy_span(1, [9], [9]), told_of(1), closed())
    assert fates(log) == {("triplet", None): 1}
