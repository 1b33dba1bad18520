"""The documentation of the tables is what the tables are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lightstream.schemas import records
from lightstream.schemas.records import DropReason, NoteReason, Record
from lightstream.schemas.records.meanings import SHARED_MEANINGS
from lightstream.schemas.records.reasons import DROP_MEANINGS, NOTE_MEANINGS
from lightstream.store_views.document import tables_as_markdown
from lightstream.store_views.queries.typescript import rows_as_typescript
from lightstream.store_views.views import VIEWS, SqlView, column_meanings

PAGES = Path(__file__).parents[2] / "docs" / "tables"
RECORDS = [value for value in vars(records).values() if isinstance(value, type) and issubclass(value, Record)]


@pytest.fixture(scope="module")
def documents() -> dict[str, str]:
    return tables_as_markdown()


@pytest.fixture(scope="module")
def columns(documents: dict[str, str]) -> dict[str, list[str]]:
    """Table or view -> its columns."""
    names = {name.removesuffix(".md"): text for name, text in documents.items()}
    return {name: re.findall(r"^\| `(\w+)` \|", names[name], re.MULTILINE) for name in column_meanings().keys() & names}


def test_the_documents_are_current(documents: dict[str, str]) -> None:
    assert {page.name: page.read_text("utf-8") for page in PAGES.glob("*.md")} == documents, "run make docs"


def test_every_view_has_a_page_that_the_index_names(documents: dict[str, str], columns: dict[str, list[str]]) -> None:
    assert {view.name for view in VIEWS} <= columns.keys()
    assert [name for name in columns if f"]({name}.md)" not in documents["README.md"]] == []


def test_the_rows_that_the_dashboard_reads_are_current() -> None:
    kept = Path(__file__).parents[2] / "store_views" / "dashboard" / "src" / "api" / "rows.ts"
    assert kept.read_text("utf-8") == rows_as_typescript(), "run make docs"


def test_every_column_has_a_meaning(columns: dict[str, list[str]]) -> None:
    meanings = column_meanings()
    lacking = [
        f"{table}.{column}" for table, names in columns.items() for column in names if not meanings[table].get(column)
    ]
    assert lacking == []


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_a_view_says_nothing_of_columns_it_has_not(view: SqlView, columns: dict[str, list[str]]) -> None:
    assert view.meanings.keys() <= set(columns[view.name])
    own = set(columns[view.name]) - view.meanings.keys()
    for source in view.columns_of:
        assert own & column_meanings()[source].keys(), f"none of its columns is of {source}"


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_a_record_repeats_no_meaning_that_is_shared(record: type[Record]) -> None:
    described = {name: field.description for name, field in record.model_fields.items() if field.description}
    assert [name for name, meaning in described.items() if SHARED_MEANINGS.get(name) == meaning] == []


def test_every_reason_code_has_a_meaning() -> None:
    assert list(DROP_MEANINGS) == list(DropReason)
    assert list(NOTE_MEANINGS) == list(NoteReason)
