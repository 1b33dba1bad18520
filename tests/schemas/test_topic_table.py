"""ARCHITECTURE.md's table of topics is what is declared."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightstream.schemas.topics import TOPICS, Cleanup, Topic

DOCUMENT = Path(__file__).parents[2] / "ARCHITECTURE.md"


def rows() -> dict[str, list[str]]:
    """Topic -> the other cells of its row."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("\n## Topics\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:2] == "| "]
    return {row[0].strip("`"): row[1:] for row in cells[1:]}  # below the head


def test_it_has_every_topic_in_order() -> None:
    assert list(rows()) == [topic.name for topic in TOPICS]


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_a_row_is_what_is_declared(topic: Topic) -> None:
    key, records, made_by, kept = rows()[topic.name]
    assert key == topic.key
    assert [name for name in records.replace(",", " ").replace(";", " ").split() if name[0].isupper()] == [
        record.__name__ for record in topic.records
    ]
    assert made_by == ", ".join(topic.made_by)
    age = "compacted" if topic.cleanup is Cleanup.COMPACT else "for ever"
    assert kept == age + (", one partition" if topic.single_partition else "")
