"""The view's tables as Markdown: ``python -m lightstream.store_views.document > docs/tables.md``."""

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

HEAD = """# What the view holds

Query it with `lightstream sql "…"`, or over HTTP: `POST /v1/sql` with `{"sql": "SELECT …"}` is answered with JSON, or
in the form that `Accept` or the key `format` names (`json`, `ndjson`, `csv`, `parquet`, or `arrow`:
`application/vnd.apache.arrow.stream`). The request may also say `params` (values: a list for `?`, an object for
`$name`), `at_least` (`"now"`, or `{topic: {partition: offset}}`: what the answer must reflect), `wait_s` (how long that
may take), `timeout_s` (how long the statement may: 0.01 s to `view_timeout_s_max`) and `rows_max`. JSON has integers as
numbers; browsers, which round those beyond 2^53, ask with `"integers": "text"` for text in place of these.
`GET /v1/positions` tells how far the view is, and `GET /v1/changes` sends an event whenever tables and views may answer
otherwise. An answer that says `rebuilding` lacks rows: the view has not read all of the log since its start. Requests
are of type `application/json`, and carry `view_token` as their bearer token where one is set; pages of other origins
are refused.

A statement is one that reads, of at most 131,072 characters: long lists are better given as `params`. It reads the
tables and views below, `information_schema`, `duckdb_columns()` and the like, `range`, `unnest` and `json_each`, and
calls DuckDB's functions, but for those that change something, wait, or look into files.

`GET /v1/queries` lists the statements that run, and `DELETE /v1/queries/ID` cancels one; a request may choose its
`query_id`, which the answer has in the header `x-lightstream-query-id`. A client that hangs up cancels its statement.
Statements wait only for others of their lane (header `x-lightstream-lane`: `stores`, `dashboard`, or `others`); where
too many wait, the answer is 503. A statement that does not stop within 2 s of its time limit, or fills the memory,
ends the view, which `lightstream up` starts again; for ten minutes it is refused. Run risky statements in a second
view, with its own file and port: `lightstream view --name bi`. With `LIGHTSTREAM_SQL_VIEW=true` a second view answers
the lane `others` and Flight SQL, at their usual addresses.

In a notebook, after `from lightstream.store_views import view`,
`view().sql("FROM rollouts WHERE run_id = $run", run="mine")` gives an Arrow table, `.pl(…)` and `.df(…)` a frame of
polars or pandas; an answer that lacks rows is warned of. The view also speaks **Arrow Flight SQL**, which is what ADBC
and JDBC drivers connect to, at the port that `lightstream status` shows, or that `LIGHTSTREAM_VIEW_FLIGHT_PORT` names
(read only, no transactions; the view's token is the bearer token; a parameter is of the type that the statement casts
it to, `?::BIGINT`, else text; an answer that is cut off, at 100,000 rows or 256 MiB, ends with an error). Until the
view has read all of the log since its start, `lightstream.rebuilding` is `true` in the metadata of an answer's schema,
and `lightstream.rebuilding=true` the metadata of its `FlightInfo`:

    from adbc_driver_flightsql import dbapi
    dbapi.connect("grpc://127.0.0.1:31337", autocommit=True)
    # Java: jdbc:arrow-flight-sql://127.0.0.1:31337?useEncryption=false
    # Go:   sql.Open("flightsql", "flightsql://127.0.0.1:31337?tls=disabled")

A statement reads the tables and views below, what it names by `WITH`, `information_schema`, `duckdb_tables()`,
`duckdb_views()`, `duckdb_columns()`, `duckdb_functions()`, `duckdb_types()`, `pragma_table_info`, and `range`,
`generate_series`, `unnest`, `json_each` and `json_tree`; no file, and nothing that has an effect.

Times are nanoseconds since 1970 (`*_unix_nano`); beside each of them, views have the same as a `TIMESTAMP` in UTC
(`*_at`), to microseconds. Sums of whole numbers are `BIGINT`, or `DOUBLE` where one does not fit; a `MAP` is an object
in JSON. Written by `python -m lightstream.store_views.document`; do not edit.

Ask the **views**: each collapses repeated records by identity and shows the current state. The **raw tables** beneath
are append-only, one row per record of the log, with `log_partition` and `log_offset` saying where in its topic it was.
"""


QUERIES_HEAD = """
## Queries that there are

`lightstream sql :stuck --run my-run` asks one, `lightstream sql :` lists them, and `view().pl(":stuck", run="my-run")`
is the same in a notebook; `{"sql": ":stuck", "params": {"run": "my-run"}}` is over HTTP, where
`GET /v1/named-queries` lists them, and the dashboard's page SQL offers them. Each is a file in
`store_views/queries`. `lightstream sql` alone is a prompt, which completes names, and has
`\\d`, `\\timing` and `\\watch`.

"""


STEP_METRICS: Mapping[str, str] = {
    "rewards": (
        "`reward/mean`, `reward/std`, `reward/baseline` (greedy rollouts), `reward/mean/<data source>` (tasks"
        " with a `data_source`)"
    ),
    "batch": (
        "`groups/without_signal`, `groups/skipped`, `groups/refilled`, `batch/excluded_<reason>`, "
        "`response_tokens/mean`, `turns/mean`"
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


def tables_as_markdown() -> str:
    """Every view and raw table with its columns, as DuckDB itself describes them, and their meanings.

    Raises:
        KeyError: a column has no meaning.
    """
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
            reasons = database.cursor().execute("FROM not_trained_reasons").fetchall()
        finally:
            database.close()
    parts = [HEAD, QUERIES_HEAD, queries_as_markdown(), "\n## Views\n"]
    parts += [_section(view.name, view.doc, by_table[view.name]) for view in VIEWS]
    parts += ["\n## Raw tables\n"]
    parts += [_section(table.name, table.doc, by_table[table.name]) for table in RAW_TABLES]
    parts += [_section(table.name, table.doc, by_table[table.name]) for table in KEPT_TABLES]
    parts += [_section("offsets", OFFSETS_DOC, by_table["offsets"])]
    parts += [
        "\n## Metrics of a step\n\nIn the map `metrics` of `training_steps`:\n\n| group | metrics |\n|---|---|\n",
        *(f"| {group} | {metrics} |\n" for group, metrics in STEP_METRICS.items()),
    ]
    parts += [
        "\n## Reasons\n\nIn `dropped`, and of LLM calls that are not in a triplet:\n\n",
        _meanings(DROP_MEANINGS),
        "\nIn the `notes` of a trajectory, which cost nothing:\n\n",
        _meanings(NOTE_MEANINGS),
        "\nOf `shared_spans`:\n\n",
        _meanings({SHARED_SPAN: SHARED_SPAN_MEANING}),
        "\nOf `why_not_trained`, and of single calls in `not_trained`:\n\n",
        "| reason | meaning | next step |\n|---|---|---|\n",
        *(f"| `{code}` | {meaning} | {next_step} |\n" for code, meaning, next_step in reasons),
    ]
    return "".join(parts)


def _meanings(meanings: Mapping[DropReason, str] | Mapping[NoteReason, str] | Mapping[str, str]) -> str:
    rows = "".join(f"| `{code}` | {meaning} |\n" for code, meaning in meanings.items())
    return f"| reason | meaning |\n|---|---|\n{rows}"


def _section(name: str, doc: str, columns: list[tuple[str, str, str]]) -> str:
    rows = "".join(
        f"| `{column}` | {data_type.replace('|', chr(92) + '|')} | {_sentence(meaning)} |\n"
        for column, data_type, meaning in columns
    )
    return f"\n### {name}\n\n{doc}\n\n| column | type | meaning |\n|---|---|---|\n{rows}"


def _sentence(meaning: str) -> str:
    """A docstring's words in Markdown, and in SQL's terms."""
    text = re.sub(r":\w+:`([^`]+)`", r"`\1`", meaning).replace("``None``", "`NULL`").replace("``", "`")
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    sys.stdout.write(tables_as_markdown())
