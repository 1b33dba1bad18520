"""Spans that are filtered, sorted and paged by the view are those that the store in memory gives."""

from __future__ import annotations

import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.schemas.records import SpanRecord
from lightstream.schemas.types import Span
from lightstream.store_views.stores.kafka.span_record import span_of_record, span_of_row
from lightstream.store_views.stores.kafka.spans_sql import (
    span_count_sql,
    span_offsets_sql,
    spans_at_sql,
    spans_page_sql,
)
from lightstream.store_views.stores.queries import SpanQuery
from tests.store_views.exports.test_exports import asks
from tests.store_views.log_file import open_log_file

SECOND = 10**9
ROLLOUTS = ["r", "r'2"]
ATTEMPTS = [None, "a1", "a'2"]
TEXTS = ["", "a", "A", "b", "ö", "'", "\U0001f600", "\uffff"]

RECORDS = st.builds(
    SpanRecord,
    rollout_id=st.sampled_from(ROLLOUTS),
    attempt_id=st.sampled_from(ATTEMPTS),
    sequence_id=st.integers(0, 3),
    trace_id=st.sampled_from(TEXTS[1:4]),
    span_id=st.sampled_from(["s1", "s2", "s3", "s4"]),
    parent_id=st.none() | st.sampled_from(TEXTS),
    name=st.sampled_from(TEXTS),
    start_unix_nano=st.sampled_from([0, SECOND, 2 * SECOND]),
    end_unix_nano=st.sampled_from([0, SECOND, 3 * SECOND]),
)
TEXT_ASKED = st.none() | st.sampled_from(TEXTS)
QUERIES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        **dict.fromkeys(("parent_id", "name", "trace_id_contains", "parent_id_contains", "name_contains"), TEXT_ASKED),
        "filter_logic": st.sampled_from(["and", "or"]),
        "sort_by": st.none()
        | st.sampled_from(
            ["attempt_id", "sequence_id", "trace_id", "span_id", "parent_id", "name", "start_time", "end_time"]
        ),
        "sort_order": st.sampled_from(["asc", "desc"]),
        "limit": st.sampled_from([-1, 0, 1, 2, 100]),
        "offset": st.sampled_from([0, 1, 3, 50]),
    }
)


def once(records: list[SpanRecord], rollout_id: str, attempt_id: str | None) -> list[Span]:
    """The spans of an attempt, or of the rollout, as a store keeps them: of repeated ones the first."""
    kept: dict[tuple[str | None, str, str], Span] = {}
    for record in records:
        if record.rollout_id == rollout_id:
            kept.setdefault((record.attempt_id, record.trace_id, record.span_id), span_of_record(record))
    return [span for span in kept.values() if attempt_id in (None, span.attempt_id)]


@settings(max_examples=25)
@given(st.data(), st.lists(RECORDS, max_size=12))
def test_a_page_is_what_the_store_in_memory_gives(data: st.DataObject, records: list[SpanRecord]) -> None:
    with TemporaryDirectory() as folder, open_log_file(Path(folder) / "view.duckdb") as log:
        log.write(*records)
        asked = st.tuples(QUERIES, st.sampled_from(ROLLOUTS), st.sampled_from([None, "", "a1", "a'2", "nobody"]))
        for arguments, rollout_id, attempt_id in data.draw(st.lists(asked, min_size=5, max_size=5)):
            query = SpanQuery.checked(**arguments)
            expected = query.page(once(records, rollout_id, attempt_id), getattr)
            rows = log.dicts(*spans_page_sql(rollout_id, attempt_id, query))
            assert [span_of_row(row) for row in rows] == list(expected), arguments
            assert {row["total"] for row in rows} <= {expected.total}, arguments
            assert log.rows(*span_count_sql(rollout_id, attempt_id, query)) == [(expected.total,)]
            ((offsets, total),) = log.rows(*span_offsets_sql(rollout_id, attempt_id, query))
            assert total == (expected.total if offsets else 0)
            assert offsets == [row["log_offset"] for row in rows]
            if offsets:
                found = {row["log_offset"]: span_of_row(row) for row in log.dicts(*spans_at_sql(rollout_id, offsets))}
                assert [found[offset] for offset in offsets] == list(expected)


def test_every_field_that_may_be_asked_about_has_its_expression(tmp_path: Path) -> None:
    with open_log_file(tmp_path / "view.duckdb") as log:
        for name in Span.model_fields:
            if name in ("status", "attributes", "events", "links", "context", "parent", "resource"):
                continue
            query = SpanQuery.checked(sort_by=name, sort_order="asc", limit=-1, offset=0)
            assert log.rows(*spans_page_sql("r", None, query)) == []


def test_a_page_comes_whole_over_json(tmp_path: Path) -> None:
    record = SpanRecord(
        rollout_id="r", attempt_id="a", trace_id=uuid.uuid4().hex, span_id="s", name="n", attributes={"k": [1, "é"]}
    )
    query = SpanQuery(limit=1)
    with open_log_file(tmp_path / "view.duckdb", [record]) as log:
        answer = asks(log)(*spans_page_sql("r", "a", query))
    (row,) = answer["rows"]
    assert span_of_row(dict(zip(answer["columns"], row, strict=True))) == span_of_record(record)
