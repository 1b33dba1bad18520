"""Hostile statements, eight at once: how soon each is over, the memory, and what training and pages notice of them.

``python -m benchmarks.hostile_statements`` prints a table, and with ``--json`` one JSON object. Quiet times and times
beside the statements alternate, in one view under a supervisor, as ``lightstream up`` runs it. Each statement is
repeated by its client as soon as it is over, so that after the first time those that ended the view are refused. Uses
the cluster named by ``LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS``, or a broker of its own.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial

import httpx
import psutil

from lightstream.runtime.processes import ProcessUnit, Supervisor
from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.topics import SPANS
from lightstream.store_views.client import ViewClient
from lightstream.store_views.queries import QUERIES

from .cluster import cluster
from .command import run
from .steady_load import PREFIX, steady_load

ONE_CALL = "SELECT levenshtein(s, reverse(s)) FROM (SELECT string_agg('ab', '') AS s FROM range(500000))"
"""No constant shows how long the text is."""

LARGE_TEXT = (
    "SELECT sum(length(repeat(s, length(s) // 250) || i)) "
    "FROM (SELECT string_agg('ab', '') AS s FROM range(500000)), range(8) AS t(i)"
)

SLOW = "SELECT count(*) FROM range(100000000000) AS a(x) WHERE x % 7 = 3"

STATEMENTS: Mapping[str, tuple[str, float]] = {
    "one call of a function": (ONE_CALL, 1.0),
    "20 GB of text": (LARGE_TEXT, 1.0),
    "a sort that fills the disk": ("SELECT i, md5(i::VARCHAR) AS s FROM range(100000000000) AS t(i) ORDER BY s", 1.0),
    "endless recursion": (
        "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n",
        1.0,
    ),
    "recursion that grows": (
        "WITH RECURSIVE n AS (SELECT 1 AS x UNION SELECT x + y FROM n, range(50) AS t(y)) SELECT max(x) FROM n",
        1.0,
    ),
    "no time": (SLOW, 0.0),
    "hardly any time": (SLOW + " AND x % 5 = 1", 0.001),
    "a long list": ("SELECT list_sort(l) FROM (SELECT list(x) AS l FROM range(300000000) AS t(x))", 1.0),
}
"""Statements, and the limit of each in seconds."""

PROCESS_BYTES_MAX, MEMORY_BYTES_MAX = 4 << 30, 1 << 30
SAMPLE_INTERVAL_S = 0.02
ASK_INTERVAL_S = 0.1
SETTLE_S = 5.0
"""Before the first time: the load's own start."""


STORE_PATIENCE_S = 30.0
"""As a store has it."""
PATIENCE_S = 120.0
"""Of whoever asks for what training and pages do not: a view that was ended is away for seconds."""


@dataclass(slots=True)
class Seen:
    """Observations of clients in times of one kind."""

    seconds: float = 0.0
    rows: int = 0
    named_s: list[float] = field(default_factory=list[float])
    store_calls: int = 0
    store_errors: int = 0
    overrun_s: list[float] = field(default_factory=list[float])
    away_s: list[float] = field(default_factory=list[float])
    memory_bytes_max: int = 0


def measure(*, seconds: int = 60, spans_per_s: int = 1_000, rounds: int = 2) -> dict[str, float]:
    """Measure.

    Args:
        seconds: length of each time.
        spans_per_s: LLM spans of 640 token ids that come in meanwhile.
        rounds: how many times of each kind.
    """
    with cluster() as kafka:
        settings = kafka.settings(
            folder="view", view_process_bytes_max=PROCESS_BYTES_MAX, view_memory_bytes_max=MEMORY_BYTES_MAX
        )
        unit, supervisor = _view(settings), Supervisor()
        supervisor.start([unit])
        try:
            with steady_load(settings, spans_per_s):
                time.sleep(SETTLE_S)
                quiet, beside = Seen(), Seen()
                for _ in range(rounds):
                    during(settings, unit, seconds, quiet, hostile=False)
                    during(settings, unit, seconds, beside, hostile=True)
        finally:
            supervisor.stop()
    return {
        "rows_per_s_quiet": quiet.rows / quiet.seconds,
        "rows_per_s_beside": beside.rows / beside.seconds,
        "ingest_ratio": beside.rows / beside.seconds / (quiet.rows / quiet.seconds),
        "named_queries_p95_ms_quiet": _p95(quiet.named_s) * 1000,
        "named_queries_p95_ms_beside": _p95(beside.named_s) * 1000,
        "named_queries_beside": len(beside.named_s),
        "store_calls_beside": beside.store_calls,
        "store_errors_beside": beside.store_errors,
        "over_limit_s_max": max(beside.overrun_s, default=0.0),
        "ends_of_the_view": supervisor.restarts["view"],
        "away_s_max": max(beside.away_s, default=0.0),
        "memory_over_limit_mib": (beside.memory_bytes_max - PROCESS_BYTES_MAX) / (1 << 20),
    }


def main() -> None:
    """Measure and print."""
    run(__doc__, measure, seconds=60, spans_per_s=1_000, rounds=2)


def _view(settings: Settings) -> ProcessUnit:
    return ProcessUnit("view", [sys.executable, "-m", "lightstream.cli", "view"], settings)


def during(
    settings: Settings,
    unit: ProcessUnit,
    seconds: float,
    seen: Seen,
    *,
    hostile: bool,
    store_patience_s: float = STORE_PATIENCE_S,
) -> None:
    """Add to ``seen`` what is seen for so long.

    Args:
        unit: the view, which must answer.
        hostile: whether :data:`STATEMENTS` are asked meanwhile.
        store_patience_s: how long a store waits for a view that is away before its call fails.
    """
    over = threading.Event()
    work: list[Callable[[], None]] = [
        partial(_ask_named, settings, seen, over),
        partial(_call_store, settings, store_patience_s, seen, over),
        partial(_sample, unit, seen, over),
    ]
    if hostile:
        work += [partial(_attack, settings, asked, seen, over) for asked in STATEMENTS.values()]
    with closing(ViewClient(settings, patience_s=PATIENCE_S)) as client:
        began_s, first = time.monotonic(), _reached(client)
        threads = [threading.Thread(target=one) for one in work]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        seen.rows += _reached(client) - first
        seen.seconds += time.monotonic() - began_s
        over.set()
        for thread in threads:
            thread.join()


def _reached(client: ViewClient) -> int:
    return sum(client.positions()["positions"].get(SPANS.name, {}).values())


def _ask_named(settings: Settings, seen: Seen, over: threading.Event) -> None:
    queries = [(query.sql, query.values({})) for query in QUERIES.values()]
    with closing(ViewClient(settings, patience_s=PATIENCE_S, lane="dashboard")) as client:
        while not over.is_set():
            for sql, parameters in queries:
                began_s = time.monotonic()
                with suppress(LightstreamError):  # its time counts
                    client.query(sql, params=parameters)
                seen.named_s.append(time.monotonic() - began_s)
                over.wait(ASK_INTERVAL_S)


def _call_store(settings: Settings, patience_s: float, seen: Seen, over: threading.Event) -> None:
    sql = "SELECT * FROM rollouts WHERE rollout_id = $id"
    with closing(ViewClient(settings, patience_s=patience_s, lane="stores")) as client:
        while not over.wait(ASK_INTERVAL_S):
            seen.store_calls += 1
            try:
                client.query(sql, "now", params={"id": f"{PREFIX}{seen.store_calls}"})
            except LightstreamError:
                seen.store_errors += 1


def _attack(settings: Settings, asked: tuple[str, float], seen: Seen, over: threading.Event) -> None:
    sql, limit_s = asked
    while not over.wait(ASK_INTERVAL_S):
        service = find(settings, "view")
        if service is None:
            continue
        began_s = time.monotonic()
        try:
            httpx.post(f"{service.address}/v1/sql", json={"sql": sql, "timeout_s": limit_s}, timeout=60)
        except httpx.ConnectError:
            continue
        except httpx.HTTPError:  # it was ended, and the view with it
            pass
        seen.overrun_s.append(time.monotonic() - began_s - limit_s)


def _sample(unit: ProcessUnit, seen: Seen, over: threading.Event) -> None:
    """Memory of the view, and how long there is none."""
    gone_s: float | None = None
    while not over.wait(SAMPLE_INTERVAL_S):
        pid = unit.pid
        try:
            used = 0 if pid is None else psutil.Process(pid).memory_info().rss
        except psutil.NoSuchProcess:
            used = 0
        if used == 0:
            gone_s = gone_s or time.monotonic()
        elif gone_s is not None:
            seen.away_s.append(time.monotonic() - gone_s)
            gone_s = None
        seen.memory_bytes_max = max(seen.memory_bytes_max, used)


def _p95(times_s: list[float]) -> float:
    return sorted(times_s)[int(len(times_s) * 0.95)] if times_s else 0.0


if __name__ == "__main__":
    main()
