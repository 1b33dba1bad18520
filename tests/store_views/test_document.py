"""The documentation of the tables is what the tables are."""

from __future__ import annotations

from pathlib import Path

from lightstream.schemas.records import DropReason, NoteReason
from lightstream.schemas.records.reasons import DROP_MEANINGS, NOTE_MEANINGS
from lightstream.store_views.document import tables_as_markdown

DOCUMENT = Path(__file__).parents[2] / "docs" / "tables.md"


def test_the_document_is_current() -> None:
    assert DOCUMENT.read_text("utf-8") == tables_as_markdown(), "run python -m lightstream.store_views.document"


def test_every_reason_code_has_a_meaning() -> None:
    assert list(DROP_MEANINGS) == list(DropReason)
    assert list(NOTE_MEANINGS) == list(NoteReason)
