"""LLM spans into the view's file, million by million: ``python -m benchmarks.million_rows``.

Transactions of 20,000 spans of 640 token ids and their checkpoints, in this process, without Kafka, reading and
decoding. Prints, with ``--json`` as one JSON object, each million's rows per second and microseconds of processor per
row, and the last million's rate by the first's. Bar: 0.9 at the fourth. A million takes gigabytes of disk.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from lightstream.schemas.records import SpanRecord
from lightstream.schemas.topics import SPANS
from lightstream.store_views.materialiser import ViewDatabase
from lightstream.store_views.materialiser.arrow_rows import LoggedRecord, arrow_table
from lightstream.store_views.tables import tables_of

from .command import run
from .view import SPANS_PER_ROLLOUT, llm_span

ROWS_PER_TRANSACTION = 20_000
ROWS = 1_000_000
OFFSET = "log_offset"


def measure(*, millions: int = 4) -> dict[str, float]:
    """Measure.

    Args:
        millions: how many millions of rows are added.
    """
    table, rows = _rows()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        database = ViewDatabase(Path(folder) / "view.duckdb", {})
        try:
            for million in range(millions):
                began_s, processor_s = time.perf_counter(), time.process_time()
                for first in range(million * ROWS, (million + 1) * ROWS, ROWS_PER_TRANSACTION):
                    database.append({table: _at(rows, first)}, {(SPANS.name, 0): first + ROWS_PER_TRANSACTION})
                    database.checkpoint_if_due()
                figures[f"million_{million + 1}_rows_per_s"] = ROWS / (time.perf_counter() - began_s)
                figures[f"million_{million + 1}_cpu_us"] = (time.process_time() - processor_s) / ROWS * 1e6
        finally:
            database.close()
    return figures | {"last_by_first": figures[f"million_{millions}_rows_per_s"] / figures["million_1_rows_per_s"]}


def main() -> None:
    """Measure and print."""
    run(__doc__, measure, millions=4)


def _rows() -> tuple[str, pa.Table]:
    """The table's name, and the rows of a transaction."""
    rng = random.Random(7)
    table = tables_of(SpanRecord)[0]
    spans = [llm_span(f"r{number // SPANS_PER_ROLLOUT}", rng) for number in range(ROWS_PER_TRANSACTION)]
    return table.name, arrow_table(table, [LoggedRecord(span, 0, number, 1) for number, span in enumerate(spans)])


def _at(rows: pa.Table, first: int) -> pa.Table:
    """The rows as those from this offset on."""
    place = rows.schema.get_field_index(OFFSET)
    return rows.set_column(place, rows.schema.field(place), pc.add(rows.column(place), first))


if __name__ == "__main__":
    main()
