"""``lightstream runs``, beside a worker and a view on a real Kafka."""

from __future__ import annotations

import asyncio
import io
import json
import uuid
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console

from lightstream.cli.runs import print_runs
from lightstream.runtime.settings import Settings
from lightstream.schemas.types import EnqueueRolloutRequest, RolloutConfig
from lightstream.store_views.client import ViewClient
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.up import Stack
from tests.store_views.view_process import running_view
from tests.support.runs_command import counts_of_run, lightstream
from tests.support.trainings import EXPECTED, trainings
from tests.support.waiting import eventually


def test_what_a_dead_run_left_is_shown_and_cancelled(kafka_servers: str, tmp_path: Path) -> None:
    settings = Settings.load(
        kafka_bootstrap_servers=kafka_servers, topic_prefix=f"t{uuid.uuid4().hex[:12]}.", data_dir=tmp_path
    )

    async def enqueue(settings: Settings) -> None:
        store = KafkaLightningStore(settings)
        await store.start()
        try:
            silent = RolloutConfig(unresponsive_seconds=3600.0, timeout_seconds=3600.0)
            for run, count in (("it's dead", 5), ("live", 2)):
                await store.enqueue_many_rollouts(
                    [EnqueueRolloutRequest(input=n, run_id=run, config=silent) for n in range(count)]
                )
            assert await store.dequeue_rollout(timeout_s=60, run_id="it's dead") is not None
        finally:
            await store.close()

    with Stack(settings, services=["worker", "view"]) as stack:
        asyncio.run(enqueue(stack.settings))
        eventually(lambda: counts_of_run(stack.settings, "it's dead") == [4, 1, 0, 0, 0])
        assert "5 rollouts of run" in lightstream(stack.settings, "runs", "cancel", "it's dead")
        eventually(lambda: counts_of_run(stack.settings, "it's dead") == [0, 0, 0, 0, 5])
        assert counts_of_run(stack.settings, "live") == [2, 0, 0, 0, 0]


def test_every_way_to_ask_has_the_same_state_of_a_run(settings: Settings) -> None:
    """Killed, hung, failed, stopped and finished trainings, by SQL, `runs` and `status`."""
    with running_view(settings), trainings(settings):
        view = ViewClient(settings)

        def by_sql() -> dict[str, str]:
            rows = view.query("SELECT run_id, state FROM run_states", "now").rows
            return {row[0]: row[1] for row in rows}

        eventually(lambda: by_sql() == EXPECTED, what="the states of all runs")
        for command in (("runs", "--format", "json"), ("status", "--format", "json")):
            said = json.loads(lightstream(settings, *command))
            rows = said if isinstance(said, list) else said["runs"]
            assert {row["run_id"]: row["state"] for row in rows} == EXPECTED
        errors = {run: view.query(":run-state", params={"run": run}).dicts()[0]["error"] for run in EXPECTED}
        view.close()
        assert {run for run, error in errors.items() if error} == {"failed", "raised"}
        assert errors["failed"] == "all 64 rollouts of step 4 failed. See `lightstream explain`."
        assert errors["raised"] == "ValueError: three\nlines ?"
        table = lightstream(settings, "runs", columns=80)
        assert max(map(len, table.splitlines()[: len(EXPECTED) + 4])) <= 80
        for run, state in EXPECTED.items():
            assert f"│ {run} " in table
            assert state in next(line for line in table.splitlines() if f"│ {run} " in line)
        assert "failed failed: all 64 rollouts of step 4 failed." in table


def test_a_row_fits_80_columns_whatever_a_run_is_called() -> None:
    row = {
        "run_id": "a-run-with-a-long-name-" * 4, "state": "finished", "error": "", "step": 12_000,
        "steps_planned": 12_000, "reward": -1.23456e-7, "failed": 123_456, "rollouts": 1_234_567,
        "changed_unix_nano": "1", "said_unix_nano": None,
    }  # fmt: skip
    output = io.StringIO()
    print_runs(Console(file=output, width=80), [row, row | {"run_id": "", "state": None, "step": None, "reward": None}])
    lines = output.getvalue().splitlines()
    assert len(lines) == 6, "a line for each run"
    assert max(map(cell_len, lines)) <= 80
    for shown in ("a-run", "finished", "12000/12000", "-1.235e-07", "123456/1234567"):
        assert shown in lines[3], lines[3]
