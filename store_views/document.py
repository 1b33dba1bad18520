"""The view's tables as Markdown, a page each: ``python -m lightstream.store_views.document docs/tables``."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from lightstream.schemas.records import DropReason, NoteReason
from lightstream.schemas.records.reasons import DROP_MEANINGS, NOTE_MEANINGS, SHARED_SPAN, SHARED_SPAN_MEANING

from .materialiser import ViewDatabase
from .queries import queries_as_markdown
from .tables import KEPT_TABLES, RAW_TABLES
from .views import OFFSETS_DOC, VIEWS, column_meanings

GENERATED = "<!-- Written by `make docs`. -->\n\n"

INDEX_HEAD = """# Tables and views

[SQL](../sql.md) says how to query them. Beside them there are [named queries](queries.md),
[metrics of a step](metrics.md) and [reasons](reasons.md).
"""

VIEWS_HEAD = """
## Views

Ask the views first: each collapses repeated records by identity, and shows the current state.

| view | holds |
|---|---|
"""

RAW_HEAD = """
## Raw tables

Raw tables are append-only, with one row per record of the log. `log_partition` and `log_offset` say where in its topic
the record was.

| table | holds |
|---|---|
"""

QUERIES_HEAD = """# Named queries

| to | do |
|---|---|
| ask one | `lightstream sql :stuck --run my-run` |
| list them | `lightstream sql :` |
| ask one in a notebook | `view().pl(":stuck", run="my-run")` |
| ask one over HTTP | `POST /v1/sql` with `{"sql": ":stuck", "params": {"run": "my-run"}}` |
| list them over HTTP | `GET /v1/named-queries` |

The dashboard's page SQL offers them too. Each is a file in `store_views/queries`.

"""

STEP_METRICS: Mapping[str, str] = {
    "rewards": (
        "`reward/mean`, `reward/std`, `reward/baseline` (greedy rollouts), `reward/mean/<data source>` (tasks"
        " with a `data_source`)"
    ),
    "batch": (
        "`groups/without_signal`, `groups/skipped`, `groups/refilled`, `metrics/not_finite`, "
        "`batch/excluded_<reason>`, `response_tokens/mean`, `turns/mean`"
    ),
    "actor": (
        "`actor/entropy`, `actor/ppo_kl`, `actor/pg_clipfrac`, `actor/ratio_mean`, `actor/kl_loss`, "
        "`actor/reward_kl_penalty` (mean over tokens), `grad_norm`, `lr`"
    ),
    "critic": (
        "`critic/vf_loss`, `critic/vf_clipfrac`, `critic/vf_explained_var`, `critic/values/mean`, "
        "`critic/returns/mean`, `critic/grad_norm`, `critic/lr`"
    ),
    "actor against sampler": "`logprob_diff_max`, `logprob_diff_mean`, `logprob_k3`",
    "old policies": (
        "`staleness/<versions>`, `correction/ess`, `correction/weight_mean`, `correction/weight_max`, "
        "`correction/cut`, `correction/rejected`"
    ),
    "work": "`tokens/computed`, `tokens/padded`, `tokens_per_second/update`",
    "time": (
        "`seconds/rollout` (mean attempt), `seconds/collect`, `seconds/update`, `seconds/swap` (until the "
        "server lists the version), `seconds/checkpoint`, `seconds/validation`"
    ),
    "validation": "`validation/reward_mean`, `validation/pass@<k>`, `validation/groups_skipped`",
}
"""Of the map `metrics` in `training_steps`: group -> metrics, as engines and the loop name them."""


def tables_as_markdown() -> dict[str, str]:
    """Return a page for every view and raw table, with its columns as DuckDB itself describes them, by its file's name.

    Raises:
        KeyError: a column has no meaning.
    """
    by_table, reasons = _described()
    docs = {view.name: view.doc for view in VIEWS}
    raw = {table.name: table.doc for table in RAW_TABLES} | {table.name: table.doc for table in KEPT_TABLES}
    raw["offsets"] = OFFSETS_DOC
    pages = {
        "README.md": INDEX_HEAD + VIEWS_HEAD + _index(docs) + RAW_HEAD + _index(raw),
        "queries.md": QUERIES_HEAD + queries_as_markdown(),
        "metrics.md": _metrics(),
        "reasons.md": _reasons(reasons),
    }
    pages |= {f"{name}.md": _page(name, doc, by_table[name]) for name, doc in (docs | raw).items()}
    return {name: GENERATED + text for name, text in pages.items()}


def write_pages(folder: Path) -> None:
    """Write every page; a page of a table that is gone is deleted."""
    pages = tables_as_markdown()
    for old in folder.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (folder / name).write_text(text, "utf-8")


def _described() -> tuple[dict[str, list[tuple[str, str, str]]], list[tuple[str, ...]]]:
    """Columns of each table (name, type, meaning), and the reasons why something was not trained on."""
    meanings = column_meanings()
    with tempfile.TemporaryDirectory() as folder:
        database = ViewDatabase(Path(folder) / "view.duckdb", {})
        try:
            columns = database.cursor().execute(
                "SELECT table_name, column_name, data_type FROM information_schema.columns ORDER BY ordinal_position"
            )
            by_table: dict[str, list[tuple[str, str, str]]] = {}
            for table, column, data_type in columns.fetchall():
                if table in meanings and table != "origin":
                    row = (column, data_type, meanings[table][column])
                    by_table.setdefault(table, []).append(row)
            return by_table, database.cursor().execute("FROM not_trained_reasons").fetchall()
        finally:
            database.close()


def _index(docs: Mapping[str, str]) -> str:
    return "".join(f"| [`{name}`]({name}.md) | {_first_sentence(doc)} |\n" for name, doc in docs.items())


def _first_sentence(doc: str) -> str:
    first = re.split(r"(?<=\.)\s+(?=[A-Z`])", doc.partition("\n\n")[0].replace("\n", " "), maxsplit=1)[0]
    return first.replace("|", chr(92) + "|")


def _metrics() -> str:
    rows = "".join(f"| {group} | {metrics} |\n" for group, metrics in STEP_METRICS.items())
    head = "# Metrics of a step\n\nIn the map `metrics` of [`training_steps`](training_steps.md):\n\n"
    return f"{head}| group | metrics |\n|---|---|\n{rows}"


def _reasons(why_not_trained: list[tuple[str, ...]]) -> str:
    rows = "".join(f"| `{code}` | {meaning} | {next_step} |\n" for code, meaning, next_step in why_not_trained)
    return (
        "# Reasons\n\n## Rollouts and calls that are not trained\n\n"
        "In [`why_not_trained`](why_not_trained.md), and of single calls in `not_trained`:\n\n"
        f"| reason | meaning | next step |\n|---|---|---|\n{rows}"
        "\n## Dropped calls and rewards\n\n"
        "In [`dropped`](dropped.md), and of LLM calls that are not in a triplet:\n\n"
        f"{_meanings(DROP_MEANINGS)}"
        "\n## Notes of a trajectory\n\nIn its `notes`. They cost nothing:\n\n"
        f"{_meanings(NOTE_MEANINGS)}"
        "\n## Shared spans\n\nIn [`shared_spans`](shared_spans.md):\n\n"
        f"{_meanings({SHARED_SPAN: SHARED_SPAN_MEANING})}"
    )


def _meanings(meanings: Mapping[DropReason, str] | Mapping[NoteReason, str] | Mapping[str, str]) -> str:
    rows = "".join(f"| `{code}` | {meaning} |\n" for code, meaning in meanings.items())
    return f"| reason | meaning |\n|---|---|\n{rows}"


def _page(name: str, doc: str, columns: list[tuple[str, str, str]]) -> str:
    rows = "".join(
        f"| `{column}` | {data_type.replace('|', chr(92) + '|')} | {_sentence(meaning)} |\n"
        for column, data_type, meaning in columns
    )
    return f"# {name}\n\n{doc}\n\n| column | type | meaning |\n|---|---|---|\n{rows}"


def _sentence(meaning: str) -> str:
    """A docstring's words in Markdown, and in SQL's terms."""
    text = re.sub(r":\w+:`([^`]+)`", r"`\1`", meaning).replace("``None``", "`NULL`").replace("``", "`")
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
