"""The queries of the dashboard's pages, as the history grows: ``python -m benchmarks.view_pages``.

Each named query that ``store_views/dashboard/src/api`` asks runs in this process, over files of finished rollouts of
which a training has consumed half, without HTTP. Prints, with ``--json`` as one JSON object, the p95 at both sizes in
milliseconds, and how many times as long the larger one takes; and the same of the processor time of all threads, its
median, which says more where others keep the machine busy.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from lightstream.schemas.records import ConsumedTrajectory, TrainingStep
from lightstream.store_views.materialiser import ViewDatabase
from lightstream.store_views.materialiser.arrow_rows import LoggedRecord, arrow_table
from lightstream.store_views.queries import NamedQuery, named_query
from lightstream.store_views.server import QueryLimits, run_query
from lightstream.store_views.tables import tables_of

from .command import run
from .finished_rollouts import ROLLOUTS_PER_BATCH, batches

PAGES = Path(__file__).parents[1] / "store_views" / "dashboard" / "src" / "api"
ASKED = re.compile(r'\bask(?:Page)?\(\s*":([\w-]+)"')
REPETITIONS = 20
SECONDS_PER_QUERY = 3.0
"""After so long a query is not repeated any more, once there are three times."""


def measure(*, small: int = 10_000, large: int = 1_000_000) -> dict[str, float]:
    """Measure.

    Args:
        small, large: rollouts in the two files, whole numbers of batches of 5,000.
    """
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for rollouts in (small, large):
            with closing(ViewDatabase(Path(folder) / f"{rollouts}.duckdb", {})) as database:
                _fill(database, rollouts)
                for query in queries():
                    name = query.name
                    p95_ms, processor_ms = _times_ms(database, query)
                    figures[f"{name}_at_{rollouts}_ms"] = p95_ms
                    figures[f"{name}_at_{rollouts}_processor_ms"] = processor_ms
    for name in (query.name for query in queries()):
        for unit in ("ms", "processor_ms"):
            ratio = figures[f"{name}_at_{large}_{unit}"] / figures[f"{name}_at_{small}_{unit}"]
            figures[f"{name}_{unit.removesuffix('ms')}ratio"] = ratio
    return figures


def main() -> None:
    """Measure and print."""
    run(__doc__, measure, small=10_000, large=1_000_000)


def queries() -> Iterator[NamedQuery]:
    """Those of each page, each once."""
    names = {name for path in PAGES.glob("*.ts") for name in ASKED.findall(path.read_text("utf-8"))}
    yield from map(named_query, sorted(names))


def _fill(database: ViewDatabase, rollouts: int) -> None:
    for number, tables in enumerate(batches(rollouts)):
        database.append(tables | _step(number, tables["trajectories_raw"]), {})
        database.checkpoint_if_due()


def _step(number: int, trajectories: pa.Table) -> dict[str, pa.Table]:
    """A training step that consumed every other group of these."""
    of = zip(*(trajectories.column(name).to_pylist() for name in ("rollout_id", "attempt_id", "group_id")), strict=True)
    consumed = [
        ConsumedTrajectory(rollout_id=rollout, attempt_id=attempt, revision=0, group_id=group, triplet_count=1)
        for i, (rollout, attempt, group) in enumerate(of)
        if i < ROLLOUTS_PER_BATCH // 2
    ]
    step = TrainingStep(
        trainer_id="t", run_id="run-1", step=number + 1, consumed=consumed, started_unix_nano=1, ended_unix_nano=2
    )
    return {table.name: arrow_table(table, [LoggedRecord(step, 0, number, 1)]) for table in tables_of(TrainingStep)}


def _times_ms(database: ViewDatabase, query: NamedQuery) -> tuple[float, float]:
    """The p95 of how long it takes, and the median of the processor time."""
    values = asked_values(database)
    page = {"run": values["run"]} if query.name == "rollouts" else values  # the page as it opens
    sql, named = query.statement({one.name: page[one.name] for one in query.parameters if one.name in page})
    times_s: list[float] = []
    processor_s: list[float] = []
    while len(times_s) < REPETITIONS and (len(times_s) < 3 or sum(times_s) < SECONDS_PER_QUERY):
        began_s, processor_began_s = time.perf_counter(), time.process_time()
        run_query(database.cursor(), sql, QueryLimits(timeout_s=600), named or None)
        times_s.append(time.perf_counter() - began_s)
        processor_s.append(time.process_time() - processor_began_s)
    return sorted(times_s)[int(len(times_s) * 0.95)] * 1000, median(processor_s) * 1000


def asked_values(database: ViewDatabase) -> dict[str, Any]:
    """Values of the pages' parameters: a rollout in the middle, its call, group and task, and two steps."""
    cursor = database.cursor().execute(
        "SELECT rollout_id AS rollout, span_id AS span, log_partition AS partition, log_offset AS offset "
        "FROM spans_raw WHERE llm_choice_index IS NOT NULL LIMIT 1 OFFSET (SELECT count(*) // 4 FROM spans_raw)"
    )
    found = dict(zip([column[0] for column in cursor.description or []], cursor.fetchone() or (), strict=True))
    cursor = database.cursor().execute(
        "SELECT group_id AS group, md5(input_json) AS task FROM rollouts WHERE rollout_id = $rollout",
        {"rollout": found["rollout"]},
    )
    found |= dict(zip([column[0] for column in cursor.description or []], cursor.fetchone() or (), strict=True))
    return found | {"run": "run-1", "step": 2, "before": 1}


if __name__ == "__main__":
    main()
