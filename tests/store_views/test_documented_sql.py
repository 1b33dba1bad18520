"""Every SQL statement on our pages runs as it stands there, at a view that has rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightstream.schemas.errors import QueryError
from lightstream.schemas.records import StepOutcome
from lightstream.store_views.queries import named_query
from lightstream.store_views.server import QueryLimits, run_query
from tests.stream_processors.assembly.build import closed, opened, proxy_span, reward_span

from .log_file import LogFile, open_log_file
from .test_accounting import state
from .test_why_not_trained import training_step

ROOT = Path(__file__).parents[2]
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")})

BLOCK = re.compile(r"^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)
ASKED = re.compile(r"""(?:lightstream sql |\.(?:query|sql|pl|df)\(\s*)(["'])([^:](?:(?!\1).)+)\1""", re.DOTALL)
"""Statements that a command or a program asks, however they begin."""
QUOTED = re.compile(r"""(["`])((?:SELECT|FROM|WITH)\s(?:(?!\1|\n\n).)+)\1""", re.DOTALL)
"""In a sentence, too."""
CONDITION = re.compile(r"""(?:\bwhere=|--where |--without )"([^"]+)\"""")
"""Of trajectories, in place of a statement."""
NAMED = re.compile(r"""(?:lightstream sql |")(:[a-z][\w-]*)([^)}\n`]*)""")
GIVEN = re.compile(r"""--(\w+) (\S+)|(\w+)"?(?:=|: )"([^"]*)\"""")
"""Parameters of a named query: of a command, a Python call or JSON."""
PARAMETER = re.compile(r"\$(\w+)")


def statements_on(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each statement of a page, with values for its parameters."""
    found = [*BLOCK.findall(text), *(sql for _, sql in (*ASKED.findall(text), *QUOTED.findall(text)))]
    found += [f"FROM trajectories WHERE {condition}" for condition in CONDITION.findall(text)]
    for sql in found:
        if "…" not in sql:
            yield sql, dict.fromkeys(PARAMETER.findall(sql), "a")
    for name, rest in NAMED.findall(text):
        query = named_query(name)
        given = {option or key: value or text for option, value, key, text in GIVEN.findall(rest)}
        yield query.sql, query.values(given)


def documented() -> Iterator[Any]:
    for path in PAGES:
        page = str(path.relative_to(ROOT))
        for number, (sql, values) in enumerate(statements_on(path.read_text("utf-8")), 1):
            yield pytest.param(sql, values, id=f"{page}-{number}")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogFile]:
    """A rollout that was trained on, one whose call failed, and a step."""
    with open_log_file(tmp_path_factory.mktemp("view") / "view.duckdb") as log:
        log.write(state("a1", run_id="a"), state("a2", run_id="a"))
        log.write_and_assemble(
            opened("a1", run_id="a"), proxy_span(1, rollout_id="a1"), reward_span(2, 1.0, rollout_id="a1"), closed("a1")
        )
        log.write_and_assemble(opened("a2", run_id="a"), proxy_span(3, rollout_id="a2", http_status=500), closed("a2"))
        log.write(training_step(1, StepOutcome.UPDATED, run_id="a", metrics={"reward/mean": 1.0}))
        yield log


def ask(log: LogFile, sql: str, values: dict[str, Any]) -> None:
    run_query(log.database.cursor(), sql, QueryLimits(), values or None)


@pytest.mark.parametrize(("sql", "values"), list(documented()))
def test_a_statement_on_a_page_runs(filled: LogFile, sql: str, values: dict[str, Any]) -> None:
    ask(filled, sql, values)


@pytest.mark.parametrize(
    "text",
    [
        "```sql\nSELECT rolout_id\nFROM rollouts\n```\n",
        "    lightstream sql \"SELECT rolout_id FROM rollouts WHERE run_id = 'a'\"\n",
        "    lightstream sql 'select rolout_id from rollouts'\n",
        '```python\nview.query(\n    "select rolout_id from rollouts"\n)\n```\n',
        '`view().sql("FROM rollouts WHERE rolout_id = $run", run="a")`\n',
        "what the log has (`SELECT rolout_id FROM rollouts`)\n",
        'SFT(where="rolout_id IS NULL")\n',
        "    lightstream export parquet calls.parquet --where \"rolout_id = 'a'\"\n",
        "    lightstream fork a --without \"rolout_id = 'a'\"\n",
    ],
)
def test_a_column_that_does_not_exist_is_found_in_each_form(filled: LogFile, text: str) -> None:
    found = list(statements_on(text))
    assert found
    for sql, values in found:
        with pytest.raises(QueryError, match="rolout_id"):
            ask(filled, sql, values)


@pytest.mark.parametrize(
    "text",
    [
        "    lightstream sql :stuck --rum a\n",
        '`view().pl(":stuck", rum="a")`\n',
        '`{"sql": ":stuck", "params": {"rum": "a"}}`\n',
    ],
)
def test_a_parameter_that_does_not_exist_is_found_in_each_form(text: str) -> None:
    with pytest.raises(QueryError, match="rum"):
        list(statements_on(text))
