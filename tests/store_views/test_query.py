"""SQL from strangers: it reads, within limits, and does nothing else."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from lightstream.schemas.errors import QueryError
from lightstream.schemas.examples import EXAMPLES
from lightstream.store_views.server import QueryLimits, QueryOutcome, run_query
from lightstream.store_views.server.json_values import json_answer
from lightstream.store_views.server.sql_request import parse_request
from tests.store_views.log_file import LogFile

LIMITS = QueryLimits()


def ask(log: LogFile, sql: str, limits: QueryLimits = LIMITS) -> QueryOutcome:
    return run_query(log.database.cursor(), sql, limits)


def as_json(outcome: QueryOutcome) -> Any:
    return json.loads(json_answer(outcome.columns, outcome.types, outcome.table, truncated=outcome.truncated))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "select 1;",
        "WITH a AS (SELECT 1 AS x) SELECT x FROM a",
        "FROM rollouts",
        "VALUES (1)",
        "TABLE rollouts",
        "DESCRIBE rollouts",
        "SHOW TABLES",
        "SUMMARIZE rollouts",
        "EXPLAIN SELECT * FROM llm_calls",
        "EXPLAIN ANALYZE SELECT 1",
        "-- a comment\nSELECT 1 -- another",
    ],
)
def test_reading_statements_run(sql: str, log: LogFile) -> None:
    outcome = ask(log, sql)
    assert len(outcome.columns) == len(outcome.types)
    assert not outcome.truncated


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO offsets VALUES ('x', 0, 0)",
        "DELETE FROM offsets",
        "WITH gone AS (DELETE FROM offsets RETURNING *) SELECT * FROM gone",
        "EXPLAIN ANALYZE DELETE FROM offsets",
        "DROP VIEW rollouts",
        "CREATE TABLE mine (a INTEGER)",
        "CREATE TEMP TABLE mine AS SELECT 1",
        "SELECT 1; DELETE FROM offsets",
        "ATTACH 'other.duckdb'",
        "COPY offsets TO 'stolen.csv'",
        "EXPORT DATABASE 'stolen'",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM read_csv('/etc/hostname')",
        "SELECT * FROM '/etc/hostname'",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM read_parquet('https://example.invalid/x.parquet')",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 1",
        "SET enable_external_access = true",
        "RESET enable_external_access",
        "PRAGMA database_list",
        "CALL checkpoint()",
        "FROM force_checkpoint()",
        "CHECKPOINT",
        "BEGIN",
        "COMMIT",
        "PREPARE p AS SELECT 1",
        "USE temp",
        "VACUUM",
        "SELECT ?",
        "SELEC 1",
        "SELECT nothing FROM rollouts",
        "",
        "-- nothing",
    ],
)
def test_everything_else_is_refused_and_changes_nothing(sql: str, log: LogFile, tmp_path: Path) -> None:
    log.write(*EXAMPLES)
    before = (log.rows("FROM offsets"), log.rows("SHOW TABLES"))
    files = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(QueryError):
        ask(log, sql)
    assert (log.rows("FROM offsets"), log.rows("SHOW TABLES")) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == files


def test_python_variables_are_out_of_reach(log: LogFile) -> None:
    secret = ask(log, "SELECT 42 AS answer").table
    with pytest.raises(QueryError, match="secret"):
        ask(log, "SELECT * FROM secret")
    assert secret.num_rows == 1


def test_a_slow_statement_is_stopped_and_the_next_one_runs(log: LogFile) -> None:
    slow = "SELECT count(*) FROM range(100000000000) AS a(x) WHERE x % 7 = 3"
    with pytest.raises(QueryError, match=r"longer than 0\.2 s.*timeout_s"):
        ask(log, slow, QueryLimits(timeout_s=0.2))
    assert ask(log, "SELECT 1").table.num_rows == 1


def test_a_stopped_statement_leaves_others_alone(log: LogFile) -> None:
    outcomes: list[QueryOutcome] = []
    other = threading.Thread(target=lambda: outcomes.append(ask(log, "SELECT sum(x) FROM range(50000000) AS a(x)")))
    other.start()
    with pytest.raises(QueryError, match="longer than"):
        ask(log, "SELECT count(*) FROM range(100000000000) AS a(x) WHERE x % 7 = 3", QueryLimits(timeout_s=0.05))
    other.join()
    assert [outcome.table.num_rows for outcome in outcomes] == [1]


def test_rows_beyond_the_limit_are_cut_off_and_said_so(log: LogFile) -> None:
    exact = ask(log, "FROM range(5000)", QueryLimits(rows_max=5000))
    assert (exact.table.num_rows, exact.truncated) == (5000, False)
    cut = ask(log, "FROM range(1000000000)", QueryLimits(rows_max=4999))
    assert (cut.table.num_rows, cut.truncated) == (4999, True)
    assert cut.table["range"].to_pylist() == list(range(4999))


def test_bytes_beyond_the_limit_are_cut_off_and_said_so(log: LogFile) -> None:
    cut = ask(log, "SELECT repeat('x', 1000) FROM range(1000000)", QueryLimits(bytes_max=1_000_000))
    assert cut.truncated
    assert 0 < cut.table.num_rows <= 1000


def test_every_type_has_a_json_form(log: LogFile) -> None:
    answer = as_json(
        ask(
            log,
            "SELECT 170141183460469231731687303715884105727::HUGEINT, 1.25::DECIMAL(9,2), DATE '2026-01-02', "
            "INTERVAL 1 DAY, {'a': [1, NULL]}, MAP {'k': 'nan'::DOUBLE}, 'x'::BLOB, 'inf'::FLOAT, true, NULL, "
            "TIMESTAMPTZ '2026-01-02 03:04:05+00', '{\"j\": 1}'::JSON, 'two', 1 AS same, 2 AS same",
        )
    )
    (row,) = answer["rows"]
    assert row[:3] == [170141183460469231731687303715884105727, 1.25, "2026-01-02"]
    assert row[4] == {"a": [1, None]}
    assert row[6:10] == ["78", "Infinity", True, None]
    assert row[10].startswith("2026-01-02T03:04:05")
    assert row[11:] == ['{"j": 1}', "two", 1, 2]
    assert answer["columns"][-2:] == ["same", "same"]


@pytest.mark.parametrize("name", ["rollouts", "spans", "triplets", "dead_letters", "training_steps"])
def test_views_of_example_records_have_a_json_form(name: str, log: LogFile) -> None:
    log.write(*EXAMPLES)
    answer = as_json(ask(log, f"FROM {name}"))
    assert answer["rows"]
    assert len(answer["rows"][0]) == len(answer["columns"]) == len(answer["types"])


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not JSON"),
        (b"[1]", "not an object"),
        (b"{}", "'sql' must be"),
        (b'{"sql": " "}', "'sql' must be"),
        (b'{"sql": "x", "limit": 1}', "unknown keys"),
        (b'{"sql": "x", "rows_max": 0}', "rows_max"),
        (b'{"sql": "x", "rows_max": true}', "rows_max"),
        (b'{"sql": "x", "rows_max": 1000000000}', "rows_max"),
        (b'{"sql": "x", "timeout_s": -1}', "timeout_s"),
        (b'{"sql": "x", "wait_s": "soon"}', "wait_s"),
        (b'{"sql": "x", "wait_s": NaN}', "wait_s"),
        (b'{"sql": "x", "at_least": 3}', "at_least"),
        (b'{"sql": "x", "at_least": {"nowhere": {"0": 1}}}', "nowhere"),
        (b'{"sql": "x", "at_least": {"spans": {"first": 1}}}', "at_least"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_wrong_requests_are_explained(body: bytes, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        parse_request(body, LIMITS)


def test_offsets_of_records_become_next_offsets() -> None:
    asked = parse_request(b'{"sql": "x", "at_least": {"spans": {"0": 7, "1": 0}}, "timeout_s": 5}', LIMITS)
    assert asked.wanted == {("spans", 0): 8, ("spans", 1): 1}
    assert asked.limits.timeout_s == 5
    assert parse_request(b'{"sql": "x", "at_least": "now"}', LIMITS).wanted == "now"
