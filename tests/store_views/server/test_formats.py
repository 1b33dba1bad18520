"""Answers in each form, written in pieces."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightstream.schemas.errors import QueryError
from lightstream.store_views.server import QueryLimits, QueryOutcome, run_query
from lightstream.store_views.server.answer import AnswerFormat, Integers, accepted_format, json_pieces, pieces_of
from tests.store_views.log_file import LogFile

MIXED = (
    "SELECT i, 9007199254740993 + i AS large, 'text ' || i AS words, [i, i + 9007199254740993] AS list, "
    "{'a': i} AS struct, (i / 4)::DOUBLE AS part, CASE WHEN i % 2 = 0 THEN DATE '2026-01-02' END AS day, "
    "'x'::BLOB AS bytes FROM range(30000) AS t(i)"
)


def ask(log: LogFile, sql: str) -> QueryOutcome:
    return run_query(log.database.cursor(), sql, QueryLimits())


def written(outcome: QueryOutcome, answer_format: AnswerFormat, integers: Integers = "number") -> bytes:
    return b"".join(pieces_of(outcome, answer_format, integers))


def test_pieces_make_the_same_json_as_the_rows_at_once(log: LogFile) -> None:
    outcome = ask(log, MIXED)
    answer = json.loads(written(outcome, AnswerFormat.JSON))
    assert (answer["columns"], answer["types"], answer["truncated"]) == (outcome.columns, outcome.types, False)
    assert answer["rows"] == [
        [
            i,
            9007199254740993 + i,
            f"text {i}",
            [i, i + 9007199254740993],
            {"a": i},
            i / 4,
            "2026-01-02" if i % 2 == 0 else None,
            "78",
        ]
        for i in range(30000)
    ]
    empty = ask(log, "SELECT 1 AS a WHERE false")
    assert json.loads(written(empty, AnswerFormat.JSON))["rows"] == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT range AS i, range(range % 200) AS numbers, 'text' AS word FROM range(20000)",
        "SELECT range(2000000) AS numbers, 'small' AS word",
        "SELECT [range(1000000), NULL, []] AS lists",
        "SELECT i, {'numbers': range(50)} AS struct FROM range(20000) AS t(i)",
    ],
)
def test_json_takes_little_more_memory_than_the_rows_in_arrow(log: LogFile, sql: str) -> None:
    """Pieces of some other place are not counted: the client has taken them."""
    outcome = ask(log, sql)
    tracemalloc.start()
    try:
        for _ in json_pieces(outcome.columns, outcome.types, outcome.table, truncated=False):
            pass
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome.table.nbytes > 5_000_000
    assert peak_bytes < 2 * outcome.table.nbytes


def test_a_large_row_is_the_same_json(log: LogFile) -> None:
    outcome = ask(log, "SELECT [range(1000000), NULL, [7]] AS lists, 'word' AS word, range(40000) AS numbers")
    ((lists, word, numbers),) = json.loads(written(outcome, AnswerFormat.JSON))["rows"]
    assert lists == [list(range(1000000)), None, [7]]
    assert (word, numbers) == ("word", list(range(40000)))


def test_integers_that_browsers_round_are_text_where_that_is_asked_for(log: LogFile) -> None:
    outcome = ask(
        log,
        "SELECT 9007199254740991 AS a, 9007199254740992 AS b, -9007199254740992 AS c, [1, 9223372036854775807] AS d, "
        "{'n': 9007199254740993} AS e, 9007199254740993::DECIMAL(20, 0) AS f, 'NaN'::DOUBLE AS g, true AS h",
    )
    assert json.loads(written(outcome, AnswerFormat.JSON, "text"))["rows"] == [
        [
            9007199254740991,
            "9007199254740992",
            "-9007199254740992",
            [1, "9223372036854775807"],
            {"n": "9007199254740993"},
            "9007199254740993",
            "NaN",
            True,
        ]
    ]
    assert json.loads(written(outcome, AnswerFormat.JSON))["rows"][0][1] == 9007199254740992
    assert json.loads(written(outcome, AnswerFormat.NDJSON, "text"))["e"] == {"n": "9007199254740993"}


def test_ndjson_has_an_object_per_line(log: LogFile) -> None:
    text = written(
        ask(log, "SELECT i, 'a\nb' AS word, 1 AS same, 2 AS same FROM range(5000) AS t(i)"), AnswerFormat.NDJSON
    )
    lines = text.decode().split("\n")
    assert lines.pop() == ""
    assert [json.loads(line) for line in lines] == [
        {"i": i, "word": "a\nb", "same": 1, "same_1": 2} for i in range(5000)
    ]


def test_csv_has_lists_as_json(log: LogFile) -> None:
    text = written(
        ask(
            log, """SELECT i, 'a,"b"' AS word, [1, NULL] AS list, NULL AS none, DATE '2026-01-02' FROM range(3) t(i)"""
        ),
        AnswerFormat.CSV,
    )
    head, *rows = csv.reader(io.StringIO(text.decode()))
    assert head[:4] == ["i", "word", "list", "none"]
    assert rows == [[str(i), 'a,"b"', "[1, null]", "", "2026-01-02"] for i in range(3)]


@pytest.mark.parametrize("answer_format", [AnswerFormat.PARQUET, AnswerFormat.ARROW])
def test_binary_forms_keep_types_and_every_row(log: LogFile, answer_format: AnswerFormat) -> None:
    outcome = ask(log, MIXED)
    data = written(outcome, answer_format)
    if answer_format is AnswerFormat.PARQUET:
        table: pa.Table = pq.read_table(io.BytesIO(data))
    else:
        table = pa.ipc.open_stream(data).read_all()
    assert table.equals(outcome.table.replace_schema_metadata(table.schema.metadata))


def test_values_that_parquet_lacks_are_refused(log: LogFile) -> None:
    outcome = ask(log, "SELECT INTERVAL 1 MONTH AS span")
    with pytest.raises(QueryError, match="Parquet has no such values"):
        written(outcome, AnswerFormat.PARQUET)


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", "json"),
        ("*/*", "json"),
        ("text/csv", "csv"),
        ("Application/X-NDJSON; q=0.9, */*", "ndjson"),
        ("application/vnd.apache.arrow.stream", "arrow"),
        ("image/png, application/vnd.apache.parquet", "parquet"),
    ],
)
def test_the_first_known_form_of_accept_is_taken(accept: str, chosen: str) -> None:
    assert accepted_format(accept) == chosen


def test_pieces_are_small(log: LogFile) -> None:
    outcome: Any = ask(log, MIXED)
    for answer_format in (AnswerFormat.JSON, AnswerFormat.NDJSON, AnswerFormat.CSV, AnswerFormat.ARROW):
        assert max(map(len, pieces_of(outcome, answer_format))) < 2_000_000


def test_columns_of_one_name_are_all_there_in_every_form(log: LogFile) -> None:
    outcome = ask(log, "SELECT 1 AS a, 2 AS a, 3 AS a_1")
    names = ["a", "a_1", "a_1_1"]
    assert list(csv.DictReader(io.StringIO(written(outcome, AnswerFormat.CSV).decode()))) == [
        dict(zip(names, "123", strict=True))
    ]
    assert json.loads(written(outcome, AnswerFormat.NDJSON)) == dict(zip(names, (1, 2, 3), strict=True))
    for table in (
        pq.read_table(io.BytesIO(written(outcome, AnswerFormat.PARQUET))),
        pa.ipc.open_stream(written(outcome, AnswerFormat.ARROW)).read_all(),
    ):
        assert table.to_pylist() == [dict(zip(names, (1, 2, 3), strict=True))]
