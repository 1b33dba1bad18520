"""SQL from strangers: it reads, within limits, and does nothing else."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightstream.schemas.errors import QueryError
from lightstream.schemas.examples import EXAMPLES
from lightstream.store_views.client import QueryResult
from lightstream.store_views.server import QueryLimits, QueryOutcome, run_query
from lightstream.store_views.server.admission import parse_request
from lightstream.store_views.server.answer import json_answer
from lightstream.store_views.server.statement import FUNCTIONS, TABLE_FUNCTIONS
from tests.store_views.log_file import LogFile, open_log_file

LIMITS = QueryLimits()


@pytest.fixture(scope="module")
def filled_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogFile]:
    """The view with the example of each record, which no test changes: one that could would have failed."""
    with open_log_file(tmp_path_factory.mktemp("filled") / "view.duckdb", EXAMPLES) as log:
        yield log


def ask(
    log: LogFile, sql: str, limits: QueryLimits = LIMITS, parameters: list[Any] | dict[str, Any] | None = None
) -> QueryOutcome:
    return run_query(log.database.cursor(), sql, limits, parameters)


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
        "EXPLAIN (FORMAT json) SELECT 1",
        "EXPLAIN /* why */ (SELECT 1)",
        "WITH mine AS (SELECT 1 AS x) SELECT x FROM mine, range(3), unnest([1, 2])",
        "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n WHERE x < 5) SELECT x FROM n",
        "FROM lightstream.rollouts",
        "FROM lightstream.main.rollouts",
        "FROM information_schema.tables",
        "FROM duckdb_columns()",
        "FROM pragma_table_info('rollouts')",
        "PIVOT (SELECT rollout_id, status FROM rollouts) ON status IN ('succeeded') USING count(*)",
        "SELECT random(), uuid(), now(), count(*) OVER (), list_transform([1], lambda x: x + 1) FROM rollouts",
        "SELECT value FROM json_each('[1, 2]')",
        "SELECT fdiv(7, 2), array_to_string(['a'], ','), list_sum([1]), nullif(1, 2), split_part('a b', ' ', 1)",
        "SELECT pg_typeof(1), pg_size_pretty(1), pg_get_viewdef(0), format_type(0, 0), current_user, ago('1 day')",
        "SELECT j.a, j -> 'a', j ->> 'a', 3!, @1, 'x' LIKE 'y', coalesce(1, 2) FROM (SELECT {'a': 1}::JSON AS j)",
        "SELECT count(*) FILTER (true), grouping(x) FROM range(3) AS t(x) GROUP BY CUBE (x)",
        "SELECT lag(x) OVER (), first_value(x) OVER w, try(x) FROM range(3) AS t(x) WINDOW w AS (ORDER BY x)",
        "SELECT COLUMNS('rollout.*'), [x FOR x IN [1, 2] IF x > 1], 1 BETWEEN 0 AND 2, [1, 2][1:1] FROM rollouts",
        "SELECT extract(year FROM now()), CAST(1 AS VARCHAR), 'a' COLLATE nocase, INTERVAL 1 DAY, (1, 2), MAP {1: 2}",
        "SELECT histogram(status), geomean(1), regexp_split_to_table('a b', ' ') FROM rollouts",
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
        "SELECT content FROM read_blob(getvariable('path'))",
        "SELECT size FROM read_blob('{file}')",
        "SELECT size FROM read_text('{file}.tmp/*')",
        "EXPLAIN ANALYZE SELECT size FROM read_blob('{file}')",
        "EXPLAIN (ANALYZE) SELECT size FROM read_blob('{file}')",
        "SELECT (SELECT max(size) FROM read_blob('{file}'))",
        "SELECT 1 FROM rollouts ORDER BY (SELECT max(size) FROM read_blob('{file}'))",
        "FROM rollouts, LATERAL (SELECT size FROM system.main.read_blob('{file}'))",
        "DESCRIBE SELECT size FROM read_blob('{file}')",
        "SUMMARIZE SELECT size FROM read_blob('{file}')",
        "FROM query('SELECT 1')",
        "FROM query_table('rollouts')",
        "FROM duckdb_databases()",
        "FROM duckdb_databases",
        "FROM checkpoint()",
        "FROM truncate_duckdb_logs()",
        "FROM duckdb_logs",
        "FROM sniff_csv('{file}')",
        "FROM parquet_metadata('{file}')",
        "FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
        "SELECT write_log('told')",
        "SELECT nextval('s')",
        "SELECT sleep_ms(1)",
        "SELECT pg_sleep(0.001)",
        "SELECT PG_CATALOG.Pg_Sleep(0.001)",
        "FROM rollouts ORDER BY list_transform([1], lambda x: pg_sleep(0.001))",
        "SELECT pg_get_constraintdef(1)",
        "SELECT pg_get_constraintdef(1, true)",
        "SELECT get_block_size('lightstream')",
        "SELECT combine('x', 'y')",
        "FROM histogram_values('rollouts', 'status')",
        "FROM duckdb_profiling_settings()",
        "SELECT json_serialize_plan('SELECT nothing FROM read_csv(''/etc/hostname'')')",
        'FROM (WITH "/etc/hostname" AS (SELECT 1) FROM "/etc/hostname")',
        "FROM (WITH duckdb_logs AS (SELECT 1) FROM duckdb_logs), duckdb_logs",
        'WITH "x.csv" AS (SELECT 1) FROM main."x.csv"',
        "SHOW DATABASES",
        "FROM temp.main.offsets",
        "FROM pg_catalog.pg_tables",
        "FROM system.pg_catalog.pg_settings",
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
def test_everything_else_is_refused_and_changes_nothing(sql: str, filled_log: LogFile) -> None:
    file = filled_log.database.path
    before = (filled_log.rows("FROM offsets"), filled_log.rows("SHOW TABLES"))
    files = sorted(path.name for path in file.parent.iterdir())
    with pytest.raises(QueryError):
        ask(filled_log, sql.replace("{file}", str(file)))
    assert (filled_log.rows("FROM offsets"), filled_log.rows("SHOW TABLES")) == before
    assert sorted(path.name for path in file.parent.iterdir()) == files


def test_what_may_be_called_has_no_effects(log: LogFile) -> None:
    rows = log.rows("SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE has_side_effects")
    assert {name for (name,) in rows} & FUNCTIONS == {
        "current_connection_id",
        "current_query",
        "current_query_id",
        "current_transaction_id",
        "error",
        "gen_random_uuid",
        "random",
        "uuid",
        "uuidv4",
        "uuidv7",
    }


def test_macros_that_may_be_called_stand_for_what_may(log: LogFile) -> None:
    """Told by the names in their definitions, which is more than what they call."""
    functions = {name for (name,) in log.rows("SELECT lower(function_name) FROM duckdb_functions()")}
    macros = log.rows(
        "SELECT lower(function_name), lower(macro_definition) FROM duckdb_functions() WHERE function_type = 'macro'"
    )
    forbidden = functions - FUNCTIONS - TABLE_FUNCTIONS
    reaching = {name: words for name, body in macros if (words := forbidden & set(re.findall(r"\w+", body)))}
    assert {name: words for name, words in reaching.items() if name in FUNCTIONS} == {}
    assert set(reaching) == {"get_block_size", "pg_get_constraintdef", "pg_sleep"}


def test_python_variables_are_out_of_reach(log: LogFile) -> None:
    secret = ask(log, "SELECT 42 AS answer").table
    with pytest.raises(QueryError, match="secret"):
        ask(log, "SELECT * FROM secret")
    assert secret.num_rows == 1


def test_what_is_refused_is_named_with_what_may_be_asked(log: LogFile) -> None:
    for sql, said in [
        ("FROM read_text('/etc/hostname')", "the table function 'read_text' is not allowed"),
        ("FROM '/etc/hostname'", "the table '/etc/hostname' does not exist, or"),
        ("FROM rollout", r"'rollout' does not exist, or .*\(there is .*rollouts"),
        ("SELECT sleep_ms(10)", "the function 'sleep_ms' does not exist, or is not for queries"),
        ("SELECT avrg(1)", r"'avrg' does not exist, or .*\(there is .*avg"),
        ("PIVOT rollouts ON status", r"this is MULTI\..*PIVOT with its values"),
        ("SELECT " + "(" * 3000 + "1" + ")" * 3000, "nested|depth|expression"),
        ("SELECT 1 --" + "x" * 150_000, "150,0.. characters; 131,072 are allowed"),
    ]:
        with pytest.raises(QueryError, match=said):
            ask(log, sql)


@pytest.mark.parametrize("timeout_s", [0.0, 1e-9, 1e-4, 1e-3, 0.01])
def test_no_time_limit_is_too_short_to_hold(log: LogFile, timeout_s: float) -> None:
    endless = "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"
    with pytest.raises(QueryError, match="was stopped"):
        ask(log, endless, QueryLimits(timeout_s=timeout_s))


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
    assert row[:4] == [2.0**127, 1.25, "2026-01-02", "1 day"]
    assert row[4:6] == [{"a": [1, None]}, {"k": "NaN"}]
    assert row[6:10] == ["78", "Infinity", True, None]
    assert row[10].startswith("2026-01-02T03:04:05")
    assert row[11:] == ['{"j": 1}', "two", 1, 2]
    assert answer["columns"][-2:] == ["same", "same"]


def test_intervals_and_decimals_are_exact(log: LogFile) -> None:
    answer = as_json(
        ask(
            log,
            "SELECT TIMESTAMP '2026-01-03 00:00:12.105128' - TIMESTAMP '2026-01-01' AS took, NULL::INTERVAL AS none, "
            "[INTERVAL '14 months -2 days'] AS list, {'i': MAP {'k': INTERVAL '-1 second'}} AS nested, "
            "0.1::DECIMAL(38, 9) AS short, 12345678901234567890.123456789::DECIMAL(38, 9) AS long, 3::DECIMAL(38, 9)",
        )
    )
    assert answer["rows"] == [
        [
            "2 days 00:00:12.105128",
            None,
            ["1 year 2 months -2 days"],
            {"i": {"k": "-00:00:01"}},
            0.1,
            "12345678901234567890.123456789",
            3,
        ]
    ]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("TIMESTAMP '2026-01-01 00:00:12.105128' - TIMESTAMP '2026-01-01'", "00:00:12.105128"),
        ("to_months(-14) + to_days(1) + to_microseconds(-3723000001)", "-1 year -2 months 1 day -01:02:03.000001"),
        ("{'a': [INTERVAL 1 DAY, INTERVAL 0 DAY]}", {"a": ["1 day", "00:00:00"]}),
        ("1234567890123456789.12::DECIMAL(38, 2)", "1234567890123456789.12"),
        ("0.1::DECIMAL(9, 2)", 0.1),
    ],
)
def test_intervals_and_decimals_lose_nothing_as_json(log: LogFile, expression: str, value: Any) -> None:
    assert as_json(ask(log, f"SELECT {expression}"))["rows"] == [[value]]


def test_columns_of_one_name_stay_apart_by_name() -> None:
    assert QueryResult(["a", "a", "a_1"], ["INTEGER"] * 3, [[1, 2, 3]], False).dicts() == [
        {"a": 1, "a_1": 2, "a_1_1": 3}
    ]


def test_sums_are_numbers_that_clients_have(log: LogFile) -> None:
    """DuckDB's own are integers of 128 bits."""
    outcome = ask(
        log,
        "SELECT sum(x) AS s, sum(x) AS s, sum(x) * 9223372036854775808, NULL::HUGEINT FROM range(4) t(x)",
    )
    assert outcome.types == ["BIGINT", "BIGINT", "DOUBLE", "BIGINT"]
    assert outcome.columns[:2] == ["s", "s"]
    assert [column.to_pylist() for column in outcome.table.columns] == [[6], [6], [6 * 2.0**63], [None]]
    none = ask(log, "SELECT sum(x) FROM range(4) t(x) GROUP BY x HAVING x > 9")
    assert (none.types, none.table.num_rows) == (["BIGINT"], 0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("DATE '10000-01-01'", "10000-01-01"),
        ("TIMESTAMP '12000-01-02 03:04:05'", "12000-01-02 03:04:05"),
        ("TIMESTAMPTZ '12000-01-02 03:04:05+00'", "12000-01-02 03:04:05+00"),
        ("DATE '0044-03-15 (BC)'", "0044-03-15 (BC)"),
        ("TIMESTAMP '-infinity'", "-infinity"),
        ("[DATE '10000-01-01']", "[10000-01-01]"),
    ],
)
def test_dates_beyond_pythons_are_text(log: LogFile, value: str, expected: str) -> None:
    answer = as_json(ask(log, f"SELECT * FROM (VALUES ({value}), (NULL)) AS t(v)"))  # noqa: S608 - of this test
    assert answer["rows"] == [[expected], [None]]
    mixed = as_json(ask(log, "SELECT * FROM (VALUES (DATE '10000-01-01'), (DATE '2026-01-02')) AS t(v)"))
    assert mixed["rows"] == [["10000-01-01"], ["2026-01-02"]]


@pytest.mark.parametrize("name", ["rollouts", "spans", "triplets", "dead_letters", "training_steps"])
def test_views_of_example_records_have_a_json_form(name: str, filled_log: LogFile) -> None:
    answer = as_json(ask(filled_log, f"FROM {name}"))
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


def test_a_request_may_ask_for_as_much_time_as_the_limit_allows() -> None:
    def timeout_s(asked_s: float, limits: QueryLimits) -> float:
        return parse_request(json.dumps({"sql": "x", "timeout_s": asked_s}).encode(), limits).limits.timeout_s

    longer = QueryLimits(timeout_s_max=7200.0)
    assert timeout_s(3600, LIMITS) == 3600
    assert timeout_s(7200, longer) == 7200
    assert timeout_s(0.01, longer) == 0.01
    for limits, asked_s in [(LIMITS, 3600.5), (longer, 7201), (longer, 0.009), (longer, float("inf"))]:
        with pytest.raises(QueryError, match=f"from 0.01 to {limits.timeout_s_max:g}.*VIEW_TIMEOUT_S_MAX"):
            timeout_s(asked_s, limits)


def test_offsets_of_records_become_next_offsets() -> None:
    asked = parse_request(b'{"sql": "x", "at_least": {"spans": {"0": 7, "1": 0}}, "timeout_s": 5}', LIMITS)
    assert asked.required == {("spans", 0): 8, ("spans", 1): 1}
    assert asked.limits.timeout_s == 5
    assert parse_request(b'{"sql": "x", "at_least": "now"}', LIMITS).required == "now"


VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(codec="utf-8"))


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(VALUES, min_size=1, max_size=4))
def test_parameters_come_back_as_they_went_in(log: LogFile, values: list[Any]) -> None:
    """No text in them is SQL, whatever quotes it has."""
    in_order = ask(log, f"SELECT {', '.join('?' * len(values))}", parameters=values)
    assert [in_order.table.column(n)[0].as_py() for n in range(len(values))] == values
    names = {f"v{n}": value for n, value in enumerate(values)}
    named = ask(log, f"SELECT {', '.join(f'${name}' for name in names)}", parameters=names)
    assert [named.table.column(n)[0].as_py() for n in range(len(values))] == values


@pytest.mark.parametrize(
    ("sql", "parameters", "problem"),
    [
        ("SELECT ?", [], "1"),
        ("SELECT ?", None, "1"),
        ("SELECT ?", [1, 2], "2"),
        ("SELECT $a, $b", {"a": 1}, "b"),
        ("SELECT 1", [1], "1"),
        ("SELECT ?", [2**200], "[0-9]"),
        ("SELECT 1 LIMIT ?", ["many"], "many"),
    ],
)
def test_wrong_parameters_are_refused(log: LogFile, sql: str, parameters: Any, problem: str) -> None:
    with pytest.raises(QueryError, match=problem):
        ask(log, sql, parameters=parameters)


@pytest.mark.parametrize("parameters", ["1", 1, True])
def test_parameters_are_a_list_or_an_object(parameters: Any) -> None:
    with pytest.raises(QueryError, match="'params' must be a list"):
        parse_request(json.dumps({"sql": "SELECT ?", "params": parameters}).encode(), LIMITS)
