"""Every record becomes rows that say what the record says."""

from __future__ import annotations

import json
import math
from array import array

import pytest

from lightstream.schemas.examples import EXAMPLES, example_of
from lightstream.schemas.packing import pack_int32
from lightstream.schemas.records import LlmCall, Record, RolloutState, SpanRecord, Trajectory
from lightstream.store_views.tables import RAW_TABLES, Encoding, columns_of, tables_of
from tests.store_views.log_file import LogFile


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_every_record_has_tables_and_its_fields_come_back(record: Record, log: LogFile) -> None:
    log.write(record)
    tables = [table for table in tables_of(type(record)) if table.items is None]
    assert tables
    for table in tables:
        (row,) = log.dicts(f"FROM {table.name}")
        for column in table.columns:
            value: object = record
            for name in column.path:
                value = getattr(value, name) if value is not None else None
            if column.encoding is Encoding.PLAIN:
                assert row[column.name] == value, column.name


def test_items_are_rows_of_their_own_with_their_parent_and_index(log: LogFile) -> None:
    trajectory = example_of(Trajectory)
    log.write(trajectory, trajectory)
    rows = log.dicts("SELECT * FROM triplets_raw ORDER BY log_offset, item_index")
    assert [row["item_index"] for row in rows] == [*range(len(trajectory.triplets))] * 2
    assert rows[0]["rollout_id"] == trajectory.rollout_id
    ids = array("i", trajectory.triplets[0].response_token_ids).tolist()
    assert rows[0]["response_token_ids"] == ids
    assert rows[0]["response_mask"] == list(trajectory.triplets[0].response_mask)


def test_attempts_of_a_state_are_structs(log: LogFile) -> None:
    state = example_of(RolloutState)
    log.write(state)
    ((attempts,),) = log.rows("SELECT attempts FROM rollout_states")
    assert [attempt["attempt_id"] for attempt in attempts] == [attempt.attempt_id for attempt in state.attempts]
    assert attempts[0]["status"] == state.attempts[0].status.value


@pytest.mark.parametrize(
    ("packed", "expected"),
    [
        (None, None),
        (b"", []),
        (pack_int32([1, -2, 2**31 - 1]), [1, -2, 2**31 - 1]),
        (b"\x01\x00\x00", None),
    ],
)
def test_packed_token_ids_become_lists_and_broken_ones_null(
    packed: bytes | None, expected: list[int] | None, log: LogFile
) -> None:
    log.write(SpanRecord(trace_id="a" * 32, span_id="1" * 16, name="x", llm_call=LlmCall(prompt_token_ids=packed)))
    log.write(SpanRecord(trace_id="a" * 32, span_id="2" * 16, name="no call"))
    assert log.rows("SELECT llm_prompt_token_ids, is_llm_call FROM spans ORDER BY span_id") == [
        (expected, True),
        (None, False),
    ]


def test_attributes_are_json_whatever_they_hold(log: LogFile) -> None:
    deep: dict[str, object] = {"leaf": 1}
    for _ in range(50):
        deep = {"inner": [deep]}
    attributes = {
        "text": "ä \x00 \U0001f600",
        "number": 2**63 - 1,
        "nan": math.nan,
        "inf": [math.inf, -math.inf],
        "bytes": b"\x00\xff",
        "none": None,
        "deep": deep,
        "dotted.name": "found",
    }
    log.write(SpanRecord(trace_id="a" * 32, span_id="1" * 16, name="x", attributes=attributes))
    ((text, found),) = log.rows("SELECT attributes::VARCHAR, attributes->>'dotted.name' FROM spans")
    values = json.loads(text)
    assert values["text"] == attributes["text"]
    assert values["number"] == 2**63 - 1
    assert (values["nan"], values["inf"], values["bytes"]) == ("NaN", ["Infinity", "-Infinity"], "00ff")
    assert values["deep"] == deep
    assert found == "found"


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(TypeError, match="two columns"):
        columns_of(type("Bad", (Record,), {"__annotations__": {"a": SpanRecord, "name": str}}))


def test_no_table_shares_its_name() -> None:
    names = [table.name for table in RAW_TABLES]
    assert len(set(names)) == len(names)
