"""The view with finished rollouts on disk: how soon it answers after its start, and how long queries take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from lightstream.runtime.settings import Settings
from lightstream.store_views.client import ViewClient
from lightstream.store_views.materialiser import ViewDatabase, default_path
from lightstream.store_views.materialiser.cluster import topic_ids
from lightstream.store_views.stores.kafka.log import STATISTICS_SQL
from lightstream.store_views.stores.kafka.query_sql import Parameters, Statement
from lightstream.store_views.stores.kafka.rollouts_sql import page_and_count_sql, states_sql
from lightstream.store_views.stores.kafka.spans_sql import spans_page_sql
from lightstream.store_views.stores.queries import RolloutQuery, SpanQuery

from .finished_rollouts import batches
from .view_process import CATCH_UP_TIMEOUT_S, memory_bytes_max, view_process

KAFKA_PATIENCE_S = 30.0
REPETITIONS = 5
SECONDS_PER_QUERY = 10.0
"""After so long a query is not repeated any more."""


SPANS = SpanQuery()
"""Default page size of ``query_spans``."""


def measure_at_scale(settings: Settings, rollouts: int) -> dict[str, float]:
    """Fill the view's file with finished rollouts, start the view on it, and ask.

    Args:
        settings: with topics of their own, empty, and a data folder of its own.
    """
    origin = {"topic prefix": settings.topic_prefix} | topic_ids(settings, patience_s=KAFKA_PATIENCE_S)
    database = ViewDatabase(default_path(settings), origin)
    for tables in batches(rollouts):
        database.append(tables, {})
    ((rollout_id,),) = (
        database.cursor()
        .execute("SELECT rollout_id FROM rollouts ORDER BY enqueued_unix_nano LIMIT 1 OFFSET ?", [rollouts // 3])
        .fetchall()
    )
    database.close()
    figures = {f"view_file_mb_at_{rollouts}": default_path(settings).stat().st_size / 1e6}
    began_s = time.perf_counter()
    with view_process(settings) as process, closing(ViewClient(settings)) as client:
        client.query("SELECT count(*) FROM rollouts", "now", wait_s=CATCH_UP_TIMEOUT_S)
        figures[f"view_start_s_at_{rollouts}"] = time.perf_counter() - began_s
        for name, statement in _queries(rollout_id):
            figures[f"{name}_at_{rollouts}_ms"] = _median_ms(client, statement)
        figures[f"view_memory_mb_max_at_{rollouts}"] = memory_bytes_max(process.pid) / 1e6
    return figures


def _queries(rollout_id: str) -> Iterator[tuple[str, str | Statement]]:
    """Queries of users, queries of the store, and expensive ones."""
    one = Parameters(p1=rollout_id)
    yield "newest_100_rollouts", "SELECT * FROM rollouts ORDER BY enqueued_unix_nano DESC LIMIT 100"
    yield "query_rollouts_newest_100", _page("start_time")
    yield "query_rollouts_newest_100_succeeded", _page("start_time", status_in=["succeeded"])
    yield "query_rollouts_last_ended_100", _page("end_time")
    yield "query_rollouts_100_by_prefix", _page("rollout_id", rollout_id_prefix=rollout_id[:5])
    yield "rollouts_by_status", "SELECT status, count(*) FROM rollouts GROUP BY status"
    yield "one_rollout", states_sql([rollout_id])
    yield (
        "attempts_of_one_rollout",
        Statement("SELECT * FROM attempts WHERE rollout_id = $p1", one),
    )
    yield "query_spans_of_one_rollout", spans_page_sql(rollout_id, None, SPANS)
    yield (
        "llm_calls_of_one_rollout",
        Statement("SELECT * FROM llm_calls WHERE rollout_id = $p1", one),
    )
    yield "statistics", STATISTICS_SQL
    yield "funnel", "FROM funnel"


def _page(sort_by: str, **filters: object) -> Statement:
    """The SQL of ``query_rollouts`` for the first hundred, latest first."""
    names = (
        "status_in",
        "rollout_id_in",
        "rollout_id_contains",
        "rollout_id_prefix",
        "started_after",
        "started_before",
    )
    arguments: dict[str, Any] = dict.fromkeys(names) | filters
    query = RolloutQuery.checked(
        **arguments,
        filter_logic="and",
        sort_by=sort_by,
        sort_order="desc",
        limit=100,
        offset=0,
    )
    return page_and_count_sql(query)


def _median_ms(client: ViewClient, statement: str | Statement) -> float:
    """Of the whole call, over HTTP."""
    sql, parameters = (statement, None) if isinstance(statement, str) else statement
    times_s: list[float] = []
    while len(times_s) < REPETITIONS and sum(times_s) < SECONDS_PER_QUERY:
        began_s = time.perf_counter()
        client.query(sql, params=parameters, timeout_s=CATCH_UP_TIMEOUT_S)
        times_s.append(time.perf_counter() - began_s)
    return sorted(times_s)[len(times_s) // 2] * 1000
