"""Twenty minutes of load with readers and kills: the view equals a fold of the log, and no process grows.

``LIGHTSTREAM_TEST_SECONDS`` makes it shorter or longer, ``LIGHTSTREAM_TEST_SEED`` repeats the kills.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import psutil
import pytest

from benchmarks.steady_load import steady_load
from lightstream.runtime.kafka import PartitionReader, decoded, partitions_of
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import QueryError, ServiceUnavailableError
from lightstream.schemas.records import AttemptOpened, AttemptStatus, EventKind, Record, RolloutEvent, SpanRecord
from lightstream.schemas.topics import ROLLOUT_EVENTS, SPANS, Topic
from lightstream.store_views.client import ViewClient
from lightstream.store_views.queries import QUERIES
from lightstream.up import Stack
from tests.support.waiting import eventually

SECONDS = float(os.environ.get("LIGHTSTREAM_TEST_SECONDS", 20 * 60.0))
SEED = int(os.environ.get("LIGHTSTREAM_TEST_SEED", random.SystemRandom().randrange(10**6)))
SPANS_PER_S = int(os.environ.get("LIGHTSTREAM_TEST_SPANS_PER_S", 1_000))
KILLS = 6
GROWTH_MAX = 1.05
"""Of the median memory in the last third, against that in the second. The kills are in the first."""
SETTLED_AFTER_S = 300.0
"""In shorter forms caches fill until the end."""
SAMPLE_INTERVAL_S = 1.0
PARTS = 16
STATEMENT_S = 600.0
"""Over all that is there, beside the load."""
SERVICES = ("worker", "view", "proxy", "gateway")

SPANS_OF_VIEW = "SELECT attempt_id, count(*), count(DISTINCT span_id) FROM spans GROUP BY attempt_id"
TRAJECTORIES_OF_VIEW = """
SELECT attempt_id, count(DISTINCT revision), max(status), max(call_count) FROM trajectories_raw GROUP BY attempt_id
"""


@pytest.mark.soak
@pytest.mark.timeout(int(2 * SECONDS) + 1800)
def test_the_view_equals_a_fold_of_the_log_and_nothing_grows(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    settings = Settings.load(data_dir=tmp_path, topic_partitions=2, kafka_bootstrap_servers=None)
    memory: dict[str, list[tuple[float, int]]] = defaultdict(list)
    with Stack(settings, services=SERVICES) as stack, ExitStack() as beside:
        over, failures = threading.Event(), list[BaseException]()
        began_s = time.monotonic()
        work: list[Callable[[], None]] = [
            lambda: _ask_named_queries(stack.settings, over),
            lambda: _keep_a_page_open(stack.settings, over),
            lambda: _sample(stack, memory, began_s, over),
        ]
        threads = [threading.Thread(target=_noting(one, failures)) for one in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            beside.callback(thread.join)
        beside.callback(over.set)
        with steady_load(stack.settings, SPANS_PER_S):
            _kill_by_seed(stack, over)
            over.wait(SECONDS - (time.monotonic() - began_s))
        beside.close()
        assert failures == []
        folded = _folded(stack.settings)
        with closing(ViewClient(stack.settings, patience_s=300)) as view:
            view.wait_for("now", wait_s=600)
            ends = len(folded.ended)
            eventually(lambda: _finished(view) >= ends, timeout_s=600, what="a trajectory of each attempt that ended")
            in_view = {row[0]: tuple(row[1:]) for row in rows(view, SPANS_OF_VIEW)}
            assert in_view == {attempt: (len(ids), len(ids)) for attempt, ids in folded.spans.items()}
            made = {row[0]: tuple(row[1:]) for row in rows(view, TRAJECTORIES_OF_VIEW)}
            assert made.keys() >= folded.ended
            assert {attempt: made[attempt] for attempt in folded.ended - folded.early} == {
                attempt: (1, "succeeded", len(folded.spans[attempt])) for attempt in folded.ended - folded.early
            }
            count = sum(map(len, folded.spans.values()))
            print(f"{ends} attempts, {len(folded.early)} of them with spans before their opening, {count} spans")
            assert folded.ended - folded.early
            assert view.query("SELECT count(*) FROM dead_letters").scalar() == 0
    for name, samples in memory.items():
        second = [used for at_s, used in samples if SECONDS / 3 <= at_s < 2 * SECONDS / 3]
        last = [used for at_s, used in samples if at_s >= 2 * SECONDS / 3]
        print(f"{name}: {median(second) / 2**20:.0f} MiB, then {median(last) / 2**20:.0f} MiB")
        if SECONDS / 3 >= SETTLED_AFTER_S:
            assert median(last) <= GROWTH_MAX * median(second), name


def rows(view: ViewClient, sql: str) -> list[list[Any]]:
    """All rows of an answer by attempt: more than one answer has."""
    found: list[list[Any]] = []
    for part in range(PARTS):
        answer = view.query(f"FROM ({sql}) WHERE hash(attempt_id) % {PARTS} = {part}", "now", timeout_s=300)
        assert not answer.truncated
        found += answer.rows
    return found


def _noting(work: Callable[[], None], failures: list[BaseException]) -> Callable[[], None]:
    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # told to the test, on its own thread
            failures.append(error)

    return run


def _kill_by_seed(stack: Stack, over: threading.Event) -> None:
    rng = random.Random(SEED)
    for _ in range(KILLS):
        over.wait(rng.uniform(0.2, 1.0) * SECONDS / 3 / KILLS / 2)
        victim = rng.choice(SERVICES)
        stack.kill(victim)
        stack.wait_ready(victim)


def _ask_named_queries(settings: Settings, over: threading.Event) -> None:
    with closing(ViewClient(settings, patience_s=300)) as client:
        while not over.is_set():
            for query in QUERIES.values():
                try:
                    client.query(query.sql, params=query.values({}), timeout_s=STATEMENT_S)
                except QueryError as error:
                    raise AssertionError(f":{query.name}: {error}") from error
                if over.wait(0.5):
                    return


def _keep_a_page_open(settings: Settings, over: threading.Event) -> None:
    while not over.is_set():
        try:
            url = discover(settings, "view").address
            with httpx.stream("GET", f"{url}/v1/changes", timeout=30) as changes:
                for _ in changes.iter_lines():
                    if over.is_set():
                        return
        except (httpx.TransportError, ServiceUnavailableError, OSError):
            over.wait(0.5)  # it was killed


def _sample(stack: Stack, memory: dict[str, list[tuple[float, int]]], began_s: float, over: threading.Event) -> None:
    while not over.wait(SAMPLE_INTERVAL_S):
        for name in stack.names:
            pid = stack.supervisor.pid(name)
            if pid is not None and psutil.pid_exists(pid):
                used = psutil.Process(pid).memory_info().rss
                memory[name].append((time.monotonic() - began_s, used))


def _finished(view: ViewClient) -> int:
    return int(
        view.query("SELECT count(DISTINCT attempt_id) FROM trajectories_raw WHERE status = 'succeeded'", "now").scalar()
    )


@dataclass(slots=True)
class Folded:
    """What the log says, an attempt at a time.

    Attributes:
        spans: attempt -> ids of its spans.
        ended: attempts that ended well.
        early: attempts of which a span came before their opening. The load sends spans without asking whether the
            life cycle, which may be dead just then, has begun the attempt; a Runner has its answer by then.
    """

    spans: dict[str, set[str]]
    ended: set[str]
    early: set[str]


def _folded(settings: Settings) -> Folded:
    folded, opened = Folded(defaultdict(set), set(), set()), set[str]()
    for record in _records(settings, SPANS):
        if isinstance(record, AttemptOpened):
            opened.add(record.attempt_id)
        elif isinstance(record, SpanRecord) and record.attempt_id:
            folded.spans[record.attempt_id].add(record.span_id)
            if record.attempt_id not in opened:
                folded.early.add(record.attempt_id)
    for record in _records(settings, ROLLOUT_EVENTS):
        if (
            isinstance(record, RolloutEvent)
            and record.kind is EventKind.ATTEMPT_UPDATED
            and record.attempt_changes is not None
            and record.attempt_changes.status is AttemptStatus.SUCCEEDED
        ):
            folded.ended.add(record.attempt_id or "")
    return folded


def _records(settings: Settings, topic: Topic) -> Iterator[Record]:
    """One at a time: all of them are gigabytes."""
    codec = Codec()
    for partition in partitions_of(settings, topic):
        for message in PartitionReader(settings, topic, partition, group_id="tests").records():
            yield decoded(codec, message)
