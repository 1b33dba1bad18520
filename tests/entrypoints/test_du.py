"""``lightstream du``: what lies in the folders, and what the view has of each run, on a real broker."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from lightstream.cli.du import disk_use, size_text
from lightstream.cli.view_query import ask_view
from lightstream.runtime.settings import Settings
from lightstream.schemas.types import EnqueueRolloutRequest
from lightstream.store_views.materialiser import default_path
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.store_views.tables import RAW_TABLES
from lightstream.up import Stack
from tests.support.runs_command import lightstream
from tests.support.waiting import eventually


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    with path.open("rb") as file:
        os.fsync(file.fileno())


def system_du(path: Path) -> int:
    """Bytes that files below a path take, by the system's own command."""
    lines = subprocess.run(
        ["find", str(path), "-type", "f", "-printf", "%i %b\n"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return sum(int(blocks) * 512 for _, blocks in {tuple(line.split()) for line in lines})


def test_each_file_is_counted_once_under_what_it_belongs_to(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = Settings.load(data_dir=data, topic_prefix="team-a.", cache_dir=data / "cache")
    records = data / "broker" / "records"
    write(records / "team-a.spans-0" / "0.log", 50_000)
    write(records / "team-a.spans-11" / "0.log", 9_000)
    write(records / "team-ab.spans-0" / "0.log", 7_000)
    write(records / "team-a.spans-x-0" / "0.log", 6_000)
    write(data / "checkpoints" / "run" / "step-1" / "weights", 30_000)
    write(data / "checkpoints" / "run-2" / "step-1" / "weights", 20_000)
    os.link(data / "checkpoints" / "run" / "step-1" / "weights", data / "checkpoints" / "run" / "again")
    (data / "checkpoints" / "loop").symlink_to(data)
    write(data / "large-records" / "team-a.trajectories" / "ab" / "ab.avro", 80_000)
    write(data / "cache" / "jar", 10_000)
    write(data / "logs" / "view.log", 5_000)
    write(default_path(settings), 40_000)

    found = {(use.kind, use.name): use for use in disk_use(settings)}

    spans = found["topic", "team-a.spans"]
    assert spans.partitions == {n: system_du(records / f"team-a.spans-{n}") for n in (0, 11)}
    assert spans.bytes == sum(spans.partitions.values())
    assert [name for kind, name in found if kind == "topic"] == ["team-a.spans"]
    others = (records / "team-ab.spans-0", records / "team-a.spans-x-0")
    assert found["broker", str(data / "broker")].bytes == sum(map(system_du, others))
    assert found["checkpoints", "run"].bytes == system_du(data / "checkpoints" / "run")
    assert found["checkpoints", "run-2"].bytes == system_du(data / "checkpoints" / "run-2")
    assert found["large records", str(data / "large-records")].bytes == system_du(data / "large-records")
    assert found["cache", str(data / "cache")].bytes == system_du(data / "cache")
    assert found["view", default_path(settings).name].bytes == system_du(data / "view")
    assert sum(use.bytes for use in found.values()) == system_du(data)


def test_an_empty_folder_is_said_to_hold_nothing(tmp_path: Path) -> None:
    settings = Settings.load(data_dir=tmp_path / "none", cache_dir=tmp_path / "cache", view_url="http://127.0.0.1:9")

    told = json.loads(lightstream(settings, "du", "--format", "json"))

    assert (told["uses"], told["runs"]) == ([], [])
    assert "kafka-log-dirs" in told["notes"][0]
    assert "Rows by run are unknown" in told["notes"][1]


def test_sizes_are_told_in_the_largest_unit() -> None:
    assert [size_text(n) for n in (0, 1023, 1024, 1536 * 1024, 5 * 1024**5)] == [
        "0 B",
        "1,023 B",
        "1.0 KiB",
        "1.5 MiB",
        "5,120.0 TiB",
    ]


def test_rows_are_told_by_run_also_of_like_names_and_after_the_view_has_ended(tmp_path: Path) -> None:
    settings = Settings.load(data_dir=tmp_path / "data")
    runs = {"a": 3, "a-b": 5, "A": 1, "": 2}

    async def enqueue(settings: Settings) -> None:
        store = KafkaLightningStore(settings)
        await store.start()
        try:
            for run, count in runs.items():
                await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n, run_id=run) for n in range(count)])
        finally:
            await store.close()

    def told() -> dict[str, Any]:
        body: dict[str, Any] = json.loads(lightstream(stack.settings, "du", "--format", "json"))
        return body

    def states(run: str) -> int:
        answer = ask_view(stack.settings, "SELECT count(*) FROM rollout_states WHERE run_id = ?", params=[run])
        return int(answer["rows"][0][0])

    with Stack(settings, services=["worker", "view"]) as stack:
        asyncio.run(enqueue(stack.settings))
        eventually(lambda: [states(run) for run in runs] == list(runs.values()))
    after = told()

    rows = {run["run_id"]: run["view_rows"] for run in after["runs"]}
    # Of each rollout an event and a state; the empty name has what belongs to no run, too.
    assert {run: rows[run] for run in ("a", "a-b", "A")} == {"a": 6, "a-b": 10, "A": 2}
    count = " UNION ALL ".join(f"SELECT count(*) AS n FROM {table.name}" for table in RAW_TABLES)  # noqa: S608  # ours
    (in_raw_tables,) = ask_view(stack.settings, f"SELECT sum(n)::BIGINT FROM ({count})")["rows"][0]  # noqa: S608  # ours
    assert sum(rows.values()) == in_raw_tables
    assert {use["kind"] for use in after["uses"]} >= {"topic", "broker", "view", "other"}
    assert not after["notes"]
    lines = lightstream(stack.settings, "du").splitlines()
    assert max(map(len, lines)) <= 80
