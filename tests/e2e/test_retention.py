"""Retention at work under load: what is over leaves both views, and what is open or kept by its run stays exact.

The views are killed in the middle, and made from the log again.
"""

from __future__ import annotations

import uuid
from collections import Counter
from contextlib import closing
from pathlib import Path

from lightstream.runtime.settings import Settings
from lightstream.schemas.records import RolloutState
from lightstream.schemas.topics import ROLLOUTS as ROLLOUTS_TOPIC
from lightstream.schemas.types import EnqueueRolloutRequest, RolloutConfig
from lightstream.store_views.client import ViewClient
from lightstream.store_views.materialiser import default_path
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.up import Stack
from tests.entrypoints.test_delete_run import finish, with_store
from tests.support.log_tail import LogTail
from tests.support.waiting import eventually

WAIT_S = 300.0
KEPT_S = 2.0
ROUNDS, ROLLOUTS = 6, 20
VIEWS = ("view", "view-sql")
TABLES = ("rollouts", "rollout_states", "rollout_events", "attempts_opened_raw", "attempts_closed_raw", "trajectories")


def test_what_is_over_leaves_under_load_and_the_rest_stays_exact(kafka_servers: str, tmp_path: Path) -> None:
    own = Settings.load(
        kafka_bootstrap_servers=kafka_servers,
        topic_prefix=f"t{uuid.uuid4().hex[:12]}.",
        data_dir=tmp_path,
        view_retention_s=KEPT_S,
        view_retention_runs="best-*=forever",
        sql_view=True,
    )
    with Stack(own, services=["worker", "view"]) as stack:
        settings = stack.settings
        open_ids: list[str] = []

        async def leave_open(store: KafkaLightningStore) -> None:
            silent = RolloutConfig(unresponsive_seconds=3600.0, timeout_seconds=3600.0)
            await store.enqueue_many_rollouts(
                [EnqueueRolloutRequest(input=n, run_id="open", config=silent) for n in range(2)]
            )
            taken = await store.dequeue_rollout(timeout_s=WAIT_S, run_id="open")
            assert taken is not None
            open_ids.extend(rollout.rollout_id for rollout in await store.query_rollouts())

        with_store(settings, leave_open)
        for number in range(ROUNDS):
            finish(settings, {"best-1": ROLLOUTS, "scratch": ROLLOUTS})
            stack.kill(VIEWS[number % 2])
        finish(settings, {"best-1": 1})
        check(settings, open_ids)
        assert left_log(settings) == {"best-1": ROUNDS * ROLLOUTS + 1, "scratch": ROUNDS * ROLLOUTS, "open": 2}
        files = list(default_path(settings).parent.glob("*.duckdb"))
    assert len(files) == 2
    for path in files:
        path.unlink()
    with Stack(own, services=["worker", "view"]) as stack:
        check(stack.settings, open_ids)


def check(settings: Settings, open_ids: list[str]) -> None:
    """Of ``scratch`` nothing is left in either view, of the others all."""
    whole = ROUNDS * ROLLOUTS + 1
    for lane in ("stores", "others"):  # the training's view, and that of people
        with closing(ViewClient(settings, lane=lane, patience_s=WAIT_S)) as view:
            view.wait_for("now", wait_s=WAIT_S)
            assembled = "SELECT count(*) FROM trajectories WHERE run_id = 'best-1'"
            eventually(lambda: int(view.query(assembled).scalar()) == whole, timeout_s=WAIT_S)  # noqa: B023  # called here
            eventually(lambda: of_runs(view).keys() == {"best-1", "open"}, timeout_s=WAIT_S)  # called here
            assert of_runs(view) == {"best-1": whole, "open": 2}
            rows = view.query("SELECT rollout_id, count(*) FROM attempts_opened_raw GROUP BY ALL").rows
            assert len(rows) == whole + 1, "of the one that was begun and of those that are kept"
            rows = view.query(
                "SELECT rollout_id FROM rollouts WHERE status IN ('queuing', 'preparing', 'running')"
            ).rows
            assert sorted(rollout_id for (rollout_id,) in rows) == sorted(open_ids)
            for table in TABLES:
                sql = f"SELECT count(DISTINCT rollout_id) FROM {table}"  # noqa: S608  # ours
                # A trajectory that came after its rollout had left goes with the next sweep.
                eventually(lambda: int(view.query(sql).scalar()) <= whole + 2, timeout_s=WAIT_S, what=table)  # noqa: B023  # called here


def of_runs(view: ViewClient) -> dict[str, int]:
    """Run -> rollouts, as its sums say."""
    rows = view.query(
        "SELECT run_id, sum(rollouts)::BIGINT FROM run_rollouts GROUP BY ALL HAVING sum(rollouts) > 0"
    ).rows
    return {run: int(count) for run, count in rows}


def left_log(settings: Settings) -> dict[str, int]:
    """Run -> rollouts, as the log has them: it keeps what the view lets go."""
    runs = {
        logged.key: logged.record.rollout.run_id
        for logged in LogTail(settings, ROLLOUTS_TOPIC).read_to_end()
        if isinstance(logged.record, RolloutState)
    }
    return dict(Counter(runs.values()))
