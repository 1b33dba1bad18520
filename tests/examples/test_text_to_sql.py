"""The database of the example that asks one: what it answers, and what a model's query cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.text_to_sql.database import COLUMNS, QueryError, ask, query_of, tasks_on, write_database


def test_each_question_has_an_answer_of_its_own(tmp_path: Path) -> None:
    tasks = tasks_on(write_database(tmp_path / "shop.duckdb", seed=0))
    answers = {task["question"]: ask(task["database"], task["query"]) for task in tasks}
    assert len(set(answers.values())) == len(answers) == len(tasks)
    assert all(isinstance(answer, float) for answer in answers.values())


def test_another_table_is_refused(tmp_path: Path) -> None:
    database = str(write_database(tmp_path / "shop.duckdb", seed=0))
    for column, table in COLUMNS.items():
        for other in set(COLUMNS.values()) - {table}:
            with pytest.raises(QueryError, match=column):
                ask(database, query_of("max", column, other))


@pytest.mark.parametrize("query", ["", "SELECT price FROM orders", "SELECT min(price), max(price) FROM orders"])
def test_what_returns_no_single_value_is_refused(tmp_path: Path, query: str) -> None:
    with pytest.raises(QueryError):
        ask(str(write_database(tmp_path / "shop.duckdb", seed=0)), query)


def test_a_query_reads_the_database_and_nothing_else(tmp_path: Path) -> None:
    database = write_database(tmp_path / "shop.duckdb", seed=0)
    secret, before = tmp_path / "secret.csv", database.read_bytes()
    secret.write_text("a\n1\n")
    for query in (
        f"SELECT a FROM read_csv('{secret}')",  # noqa: S608  # the test's own
        f"COPY orders TO '{tmp_path / 'copy.csv'}'",
        f"ATTACH '{tmp_path / 'other.duckdb'}'",
        "SET enable_external_access = true",
        "DROP TABLE orders",
        "UPDATE orders SET price = 0",
    ):
        with pytest.raises(QueryError):
            ask(str(database), query)
    assert sorted(tmp_path.iterdir()) == [secret, database]
    assert database.read_bytes() == before
