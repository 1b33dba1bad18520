"""What one call may make or do, by a statement's constants."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightstream.schemas.errors import QueryError
from lightstream.store_views.server.cost import ONCE_MAX
from lightstream.store_views.server.statement import check_statement

COSTLY = [
    "SELECT repeat('x', {n})",
    "SELECT repeat('x', {n} + 1 * 2)",
    "SELECT repeat('x', '{n}'::BIGINT)",
    "SELECT repeat('x', length(repeat('y', 1000)) * {n})",
    "SELECT repeat('x', list_sum(list_transform(range(1000), lambda i: i * {n}))::BIGINT)",
    "SELECT repeat('x', (SELECT {n}))",
    "SELECT {n} AS n, repeat('x', n)",
    "SELECT repeat('x', n) FROM (SELECT {n} AS n)",
    "SELECT repeat('x', n) FROM (VALUES ({n})) AS t(n)",
    "WITH t AS (SELECT {n} AS n) SELECT repeat('x', n) FROM t",
    "SELECT repeat('x', n) FROM range({n}) AS t(n)",
    "SELECT repeat('x', length(rollout_id) * 0 + {n}) FROM rollouts",
    "SELECT 1 FROM rollouts ORDER BY repeat('x', {n})",
    "SELECT repeat(repeat('x', 100000), 100000 + {n} * 0)",
    "SELECT levenshtein(repeat('ab', {n} % 1000 + 90000), repeat('ba', 90000))",
    "SELECT damerau_levenshtein(s, s) FROM (SELECT repeat('b', {n} % 1000 + 90000) AS s)",
    "SELECT jaro_winkler_similarity(s, repeat('a', 90000)) FROM (SELECT repeat('b', {n} % 1000 + 90000) AS s)",
    "SELECT list_sort(range({n}))",
    "SELECT len(generate_series(0, {n}))",
    "SELECT len(range(TIMESTAMP '1900-01-01', TIMESTAMP '2100-01-01', to_microseconds({n} % 1000 + 1)))",
    "SELECT lpad('x', {n}, '-')",
    "SELECT rpad(rollout_id, {n}, '-') FROM rollouts",
    "SELECT list_resize([1], {n}, 0)",
    "SELECT array_resize([1], {n})",
    "SELECT bitstring('1', {n})",
    "SELECT format('{{:{n}}}', 1)",
    "SELECT format('{{:{{}}}}', 1, {n})",
    "SELECT printf('%{n}d', 1)",
    "SELECT printf('%*d', {n}, 1)",
    "SELECT replace(repeat('a', 100000), 'a', repeat('b', {n} % 1000 + 90000))",
    "SELECT regexp_replace(repeat('a', 100000), 'a', repeat('b', {n} % 1000 + 90000), 'g')",
    "SELECT array_to_string(range(100000), repeat('b', {n} % 1000 + 90000))",
    "SELECT list_transform(range(1000000), lambda i: repeat('x', i + {n} * 0))",
    "SELECT list_reduce(list_transform(range({n} % 1000 + 60), lambda i: 'ab'), lambda x, y: x || x)",
    "SELECT list_transform([{n}], lambda i: repeat('x', i))",
    "SELECT list_reduce(['a'], lambda x, y: repeat(x, {n}), 'b')",
]

FREE = [
    "SELECT repeat('█', count(*)::INT), run_id FROM rollouts WHERE enqueued_unix_nano > 17 * 10**17 GROUP BY run_id",
    "SELECT [x FOR x IN [1, 2] IF x > 1], list_transform([1, 2], lambda x: repeat('x', x))",
    "SELECT unnest(range(1000000))",
    "SELECT x FROM range(100000000000) AS t(x) WHERE x % 7 = 0",
    "SELECT bar(count(*), 0, 1000, 40) FROM spans GROUP BY run_id",
    "SELECT list_transform(range(1000), lambda i: repeat('x', i))",
    "SELECT lpad(rollout_id, 100, ' '), format('{:>20}', rollout_id), printf('%08d', 3) FROM rollouts",
    "SELECT levenshtein(rollout_id, 'ro-0000000000') FROM rollouts",
    "SELECT list_reduce(range(1000), lambda x, y: x + y)",
    "SELECT regexp_replace(run_id, '[0-9]+', 'N', 'g') FROM rollouts",
]


@pytest.mark.parametrize("number", [4_000_000_001, 77_777_777_777])
@pytest.mark.parametrize("statement", COSTLY)
def test_constants_that_cost_too_much_are_refused(statement: str, number: int) -> None:
    with pytest.raises(QueryError, match=r"steps.*allowed") as refused:
        check_statement(statement.format(n=number))
    assert refused.value.next_step == "Ask for less in one call."


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("SELECT repeat('x', ?)", [4_000_000_000]),
        ("SELECT repeat('x', $n)", {"n": 4_000_000_000}),
        ("SELECT repeat($1, 100000)", ["x" * 100_000]),
        ("SELECT levenshtein($a, $b)", {"a": "x" * 100_000, "b": "y" * 100_000}),
    ],
)
def test_values_of_placeholders_are_constants(sql: str, parameters: list[Any] | dict[str, Any]) -> None:
    with pytest.raises(QueryError, match="may take"):
        check_statement(sql, parameters)
    small: list[Any] | dict[str, Any] = (
        [_small(value) for value in parameters]
        if isinstance(parameters, list)
        else {name: _small(value) for name, value in parameters.items()}
    )
    check_statement(sql, small)


def _small(value: object) -> object:
    return "x" if isinstance(value, str) else 3


@pytest.mark.parametrize("statement", FREE)
def test_usual_statements_are_free(statement: str) -> None:
    check_statement(statement)


TEXTS: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["'a'", "'abc'", "'%d'"]),
        st.builds("repeat({}, {})".format, TEXTS, NUMBERS),
        st.builds("lpad({}, {}, '-')".format, TEXTS, NUMBERS),
        st.builds("({} || {})".format, TEXTS, TEXTS),
        st.builds("replace({}, 'a', {})".format, TEXTS, TEXTS),
        st.builds("array_to_string(range({}), {})".format, NUMBERS, TEXTS),
        st.builds(
            "list_reduce(list_resize(['a'], {}, 'b'), lambda x, y: x || {} || x, {})".format, NUMBERS, TEXTS, TEXTS
        ),
        st.builds("array_to_string(list_transform(range({}), lambda i: repeat({}, i)), '')".format, NUMBERS, TEXTS),
    )
)
NUMBERS: st.SearchStrategy[str] = st.one_of(
    st.integers(0, 40).map(str),
    st.integers(0, 3000).map(str),
    st.builds("length({})".format, TEXTS),
    st.builds("({} * {})".format, st.integers(0, 500), st.integers(0, 500)),
)


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # expressions that nest too deep are drawn again
@given(TEXTS)
def test_what_is_allowed_makes_no_more_than_it_may(expression: str) -> None:
    """Against DuckDB itself, which runs what the gate lets through."""
    sql = f"SELECT length({expression})"
    try:
        check_statement(sql)
    except QueryError:
        return
    try:
        with duckdb.connect() as connection:
            (length,) = connection.execute(sql).fetchone() or (0,)
    except duckdb.Error:
        return  # a number too large for what it is used for
    assert length <= ONCE_MAX
