"""``lightstream import``: traces that were recorded elsewhere, into a run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from lightstream.schemas.settings import Settings

from .load import load

__all__ = ["run_import"]

console = Console(highlight=False)


def run_import(settings: Settings, files: Sequence[Path], run_id: str, kind: str, score: str | None) -> None:
    """Import the files. All are read before the first trace is imported; a trace may be in several of them.

    Raises:
        SettingsError: a file cannot be read or understood, or none has the score; nothing was imported.
        ServiceUnavailableError: Kafka or the worker does not answer; what was imported stays. A repeat continues.
        StoreError: a trace cannot be stored, or somebody else ended its rollout; all others were imported.
    """
    read = load("lightstream.store_views.imports", "read_traces")
    traces = [trace for file in files for trace in read(file, kind, score)]
    load("lightstream.store_views.imports", "check_score")(traces, score)
    report = asyncio.run(_import(settings, traces, run_id))
    made = f"{report.rollouts:,} rollouts with {report.spans:,} spans in run {run_id}"
    console.print(f"{made}; {report.known:,} were already there.")
    if report.incomplete:
        console.print(
            f"{report.incomplete:,} of these lack {report.spans_missing:,} spans of the files. They were not imported: "
            "a rollout that is over takes no more. Import all files of a trace together, into another run."
        )


async def _import(settings: Settings, traces: list[Any], run_id: str) -> Any:
    store = load("lightstream.store_views.stores", "KafkaLightningStore")(settings)
    try:
        await store.start()
        return await load("lightstream.store_views.imports", "import_traces")(store, traces, run_id)
    finally:
        await store.close()
