"""``lightstream du``: disk use by topic and by run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lightstream.broker.config import BrokerFiles
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import QueryError, ServiceUnavailableError
from lightstream.schemas.topics import TOPICS

from .formats import Format
from .load import needs
from .view_query import ask_view

BLOCK_BYTES = 512
"""Unit of ``st_blocks``, whatever the file system's own blocks are."""
TABLE_WIDTH = 80
console = Console(highlight=False)


@dataclass(slots=True)
class Use:
    """Disk that something takes.

    Attributes:
        kind: ``topic``, ``broker`` (what it keeps beside our topics), ``view``, ``checkpoints``, ``large records``,
            ``cache`` (shared by all data folders) or ``other`` (of the data folder).
        name: topic, run of the checkpoints, file of the view, or folder.
        bytes: blocks on this machine's disks.
        partitions: of a topic, bytes by partition.
    """

    kind: str
    name: str
    bytes: int = 0
    partitions: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunUse:
    """The view's rows of one run.

    Attributes:
        run_id: empty for what belongs to no run.
        view_rows: rows in the raw tables.
        view_bytes: their share of the view's file, as if all rows were of one size: an estimate.
        large_record_bytes: of trajectories that lie in files, as the records tell; a file that two runs name counts
            for both.
        checkpoint_bytes: on this machine's disks.
    """

    run_id: str
    view_rows: int
    view_bytes: int
    large_record_bytes: int
    checkpoint_bytes: int


def run_du(settings: Settings, output: Format) -> None:
    """Print the use of disk. A view that does not answer leaves out its rows by run, and says so."""
    uses = disk_use(settings)
    notes: list[str] = []
    if not any(use.kind == "topic" for use in uses):
        notes.append("No topic lies on this machine: `kafka-log-dirs --describe` tells what they take on the brokers.")
    try:
        by_run = use_by_run(settings, uses)
    except (QueryError, ServiceUnavailableError) as error:
        by_run = []
        notes.append(f"Rows by run are unknown: {error}")
    if output is Format.JSON:
        body = {"uses": [asdict(use) for use in uses], "runs": [asdict(run) for run in by_run], "notes": notes}
        print(json.dumps(body, indent=2))
        return
    console.print(_uses_table(uses))
    if by_run:
        console.print(_runs_table(by_run))
    for note in notes:
        console.print(escape(note), soft_wrap=True)


def disk_use(settings: Settings) -> list[Use]:
    """Data on this machine's disks, largest first. Each file is counted once, also where folders overlap."""
    with needs("view"):
        from lightstream.store_views.materialiser import default_path
    data = settings.data_dir.absolute()
    places: list[tuple[Path, str]] = [
        (BrokerFiles.of(settings).records, "topic"),
        (BrokerFiles.of(settings).folder, "broker"),
        (default_path(settings).absolute().parent, "view"),
        ((settings.checkpoint_root or data).absolute() / "checkpoints", "checkpoints"),
        ((settings.large_records_dir or data / "large-records").absolute(), "large records"),
        (settings.cache_folder.absolute(), "cache"),
        (data, "other"),
    ]
    names = {topic.full_name(settings.topic_prefix) for topic in TOPICS}
    uses: dict[tuple[str, str], Use] = {}
    counted: set[tuple[int, int]] = set()
    for place, kind in places:  # a folder within another one comes before it
        for path, status in _files(place):
            if (status.st_dev, status.st_ino) in counted:
                continue
            counted.add((status.st_dev, status.st_ino))
            size = status.st_blocks * BLOCK_BYTES
            first = path.relative_to(place).parts[0]
            topic, _, partition = first.rpartition("-")
            if kind == "topic" and topic in names and partition.isdecimal():
                use = uses.setdefault((kind, topic), Use(kind, topic))
                use.partitions[int(partition)] = use.partitions.get(int(partition), 0) + size
            elif kind == "topic":
                use = uses.setdefault(("broker", str(place.parent)), Use("broker", str(place.parent)))
            elif kind in ("checkpoints", "view"):
                use = uses.setdefault((kind, first), Use(kind, first))
            else:
                use = uses.setdefault((kind, str(place)), Use(kind, str(place)))
            use.bytes += size
    return sorted(uses.values(), key=lambda use: (-use.bytes, use.kind, use.name))


def use_by_run(settings: Settings, uses: list[Use]) -> list[RunUse]:
    """Disk use of each run, the one with most rows first; then runs with checkpoints alone.

    Raises:
        QueryError: the view could not answer.
        ServiceUnavailableError: no view runs, and its file is not there.
    """
    with needs("view"):
        from lightstream.store_views.materialiser import default_path
        from lightstream.store_views.queries import named_query
    sql, values = named_query("rows-by-run").statement({})
    rows: list[list[Any]] = ask_view(settings, sql, params=values)["rows"]
    file = default_path(settings).name
    of_view = sum(use.bytes for use in uses if (use.kind, use.name) == ("view", file))
    all_rows = sum(int(row[1]) for row in rows)
    checkpoints = {use.name: use.bytes for use in uses if use.kind == "checkpoints"}
    found = [
        RunUse(run, int(count), of_view * int(count) // all_rows, int(large), checkpoints.pop(run, 0))
        for run, count, large in rows
    ]
    return found + [RunUse(run, 0, 0, 0, size) for run, size in checkpoints.items()]


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The files below a folder, which may be missing; links are not followed."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue  # deleted meanwhile
            yield path, status


def _uses_table(uses: list[Use]) -> Table:
    table = Table(title="On this machine", title_justify="left", width=TABLE_WIDTH)
    table.add_column("what")
    table.add_column("name", overflow="fold", ratio=1)
    table.add_column("on disk", justify="right", no_wrap=True)
    for use in uses:
        table.add_row(use.kind, escape(use.name), size_text(use.bytes))
    table.add_section()
    table.add_row("all", "", size_text(sum(use.bytes for use in uses)))
    return table


def _runs_table(runs: list[RunUse]) -> Table:
    caption = "An empty name: what belongs to no run. ~: by the number of rows."
    table = Table(title="By run", caption=caption, title_justify="left", caption_justify="left", width=TABLE_WIDTH)
    table.add_column("run", overflow="fold", ratio=1)
    for name in ("rows in view", "~ on disk", "large records", "checkpoints"):
        table.add_column(name, justify="right")
    for run in runs:
        sizes: Mapping[str, int] = asdict(run)
        shown = [size_text(sizes[name]) for name in ("view_bytes", "large_record_bytes", "checkpoint_bytes")]
        table.add_row(escape(run.run_id), f"{run.view_rows:,}", *shown)
    return table


def size_text(size_bytes: int) -> str:
    """Bytes in the largest unit with at least one whole: ``1.5 MiB``."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} B" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"
