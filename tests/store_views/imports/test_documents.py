"""Files in any arrangement, compressed or not, a piece at a time; and what is wrong in one is told with its line."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightstream.schemas.errors import SettingsError
from lightstream.store_views.imports import documents
from lightstream.store_views.imports.documents import documents_of

DOCUMENTS: list[Any] = [
    {"a": 1, "text": 'quotes " and \\ and \n', "deep": [[{"b": [1, 2.5, None, True]}]]},
    {"ä": "ü" * 50, "empty": {}, "list": []},
    {"a": -12345678901234567890, "pair": "\U0001f600"},
]
PRETTY = "\n".join(json.dumps(document, indent=2) for document in DOCUMENTS)
LINES = "\n".join(map(json.dumps, DOCUMENTS))
ARRANGED = {
    "lines": LINES,
    "lines with CRLF and empty ones": "\r\n\r\n".join(map(json.dumps, DOCUMENTS)) + "\r\n",
    "one after another": "".join(map(json.dumps, DOCUMENTS)),
    "pretty": PRETTY,
    "a list": json.dumps(DOCUMENTS),
    "a pretty list": json.dumps(DOCUMENTS, indent=1),
    "below data, with more behind": json.dumps({"data": DOCUMENTS, "next_cursor": None, "n": {"x": [1]}}, indent=1),
    "several lists": json.dumps(DOCUMENTS[:1]) + "\n" + json.dumps(DOCUMENTS[1:]),
}


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize("arranged", ARRANGED)
def test_documents_are_the_same_in_any_arrangement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arranged: str, chunk: int
) -> None:
    monkeypatch.setattr(documents, "CHUNK_CHARS", chunk)
    path = tmp_path / "file"
    path.write_text(ARRANGED[arranged], encoding="utf-8", newline="")
    assert list(documents_of(path)) == DOCUMENTS


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_marks_of_the_byte_order_and_gzip_are_no_part_of_it(tmp_path: Path, encoding: str) -> None:
    content = LINES.encode(encoding)
    path = tmp_path / "file"
    path.write_bytes(content)
    assert list(documents_of(path)) == DOCUMENTS
    if encoding != "utf-16":
        path.write_bytes(gzip.compress(content))
        assert list(documents_of(path)) == DOCUMENTS


def test_lists_of_spans_are_taken_apart_and_stay_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text('{"resourceSpans": [{"a": 1}, {"b": 2}]}\n{"resourceSpans": []}\n{"traces": [{"c": 3}]}')
    assert list(documents_of(path)) == [
        {"resourceSpans": [{"a": 1}]},
        {"resourceSpans": [{"b": 2}]},
        {"resourceSpans": []},
        {"c": 3},
    ]


def test_rows_of_parquet(tmp_path: Path) -> None:
    rows = [{"a": number, "b": {"c": [number]}} for number in range(1000)]
    path = tmp_path / "file"
    pq.write_table(pa.Table.from_pylist(rows), path)
    seen: list[int] = []
    assert list(documents_of(path, seen.append)) == rows
    assert seen == sorted(seen)
    assert seen[-1] == path.stat().st_size


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a": 1}\n{"b": 2,,}\n', "line 2 of .* is not valid JSON: .*column 9"),
        ('{"a": 1}\n\n{"b": ', "line 3 of .* is not valid JSON"),
        ('[{"a": 1}\n{"b": 2}]', "line 2 of .* is not valid JSON: Expecting '\\]' or ','"),
        ('{"data": [{"a": 1}', "line 1 of .* is not valid JSON"),
        ("a,b\n1,2\n", "line 1 of .* is not valid JSON"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 1 << 20])
def test_what_is_no_json_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str, chunk: int
) -> None:
    monkeypatch.setattr(documents, "CHUNK_CHARS", chunk)
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(SettingsError, match=told):
        list(documents_of(path))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"PK\x03\x04rest", "is a zip archive.*`unzip`"),
        (b"\x28\xb5\x2f\xfdrest", "is zstd.*`unzstd`"),
        (gzip.compress(LINES.encode())[:-20], "cannot be read"),
        (b"PAR1rest", "cannot be read as Parquet"),
        (b'{"a": "\xff"}', "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_told_with_what_to_do(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=told):
        list(documents_of(path))


@pytest.mark.parametrize("begin", ["", '{"data": ['], ids=["lines", "one document"])
def test_a_large_file_is_held_a_piece_at_a_time(tmp_path: Path, begin: str) -> None:
    path = tmp_path / "file"
    row = json.dumps({"text": "x" * 10_000})
    count = 3_000
    with path.open("w") as file:
        file.write(begin + (",\n" if begin else "\n").join([row] * count) + ("]}" if begin else ""))
    seen: list[int] = []
    tracemalloc.start()
    try:
        assert sum(len(document["text"]) for document in documents_of(path, seen.append)) == 10_000 * count
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < path.stat().st_size / 3
    assert len(seen) > 10
    assert seen[-1] == path.stat().st_size


def test_a_document_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "CHUNK_CHARS", 100)
    monkeypatch.setattr(documents, "DOCUMENT_CHARS_MAX", 1000)
    path = tmp_path / "file"
    path.write_text('{"a": 1}\n{"a": "' + "x" * 5000 + '"}')
    with pytest.raises(SettingsError, match=r"the document at line 2 of .* over 1,000 characters.*one a line"):
        list(documents_of(path))
