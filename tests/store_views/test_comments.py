"""The meaning of tables, views and columns is in the file itself."""

from __future__ import annotations

from pathlib import Path

from lightstream.store_views.views import column_meanings
from tests.store_views.log_file import LogFile, open_log_file

COMMENTS = """
SELECT table_name, column_name, comment FROM duckdb_columns() WHERE database_name = 'lightstream'
UNION ALL
SELECT table_name, NULL, comment FROM duckdb_tables() WHERE database_name = 'lightstream'
UNION ALL
SELECT view_name, NULL, comment FROM duckdb_views() WHERE database_name = 'lightstream' AND NOT internal
ORDER BY ALL
"""


def test_everything_has_a_comment(log: LogFile) -> None:
    comments = log.rows(COMMENTS)
    assert [name for *name, comment in comments if not comment] == []
    assert ("rollouts", "run_id", column_meanings()["rollouts"]["run_id"]) in comments


def test_comments_last_and_follow_a_change_of_the_views(tmp_path: Path) -> None:
    path = tmp_path / "view.duckdb"
    with open_log_file(path) as log:
        first = log.rows(COMMENTS)
        log.database.cursor().execute("COMMENT ON VIEW rollouts IS 'changed by hand'")
    with open_log_file(path) as log:
        assert [row for row in log.rows(COMMENTS) if row not in first] == [("rollouts", None, "changed by hand")]
        log.database.cursor().execute("UPDATE origin SET value = 'of an older build' WHERE name = 'views'")
    with open_log_file(path) as log:
        assert log.rows(COMMENTS) == first
