"""Fixtures of the view's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store_views.log_file import LogFile, open_log_file


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogFile]:
    """An empty view without Kafka."""
    with open_log_file(tmp_path / "view.duckdb") as log_file:
        yield log_file
