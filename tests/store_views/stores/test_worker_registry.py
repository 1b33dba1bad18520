"""A worker's records as the log and this process have them: what is older never takes the place of what is newer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest

from lightstream.runtime.kafka import BY_KEY, Headers, Instead, Position
from lightstream.schemas.errors import PublishError
from lightstream.schemas.records import Record, WorkerHeartbeat, WorkerStatus
from lightstream.schemas.topics import Topic
from lightstream.store_views.stores.kafka.worker_registry import WorkerRegistry


class Log:
    """A publisher whose records are durable or lost when the test says so."""

    def __init__(self) -> None:
        self.written: list[Record | None] = []
        self.futures: list[Future[Position]] = []

    def publish(
        self,
        topic: Topic,
        key: str,
        record: Record | None,
        *,
        headers: Headers | None = None,
        partition: int = BY_KEY,
        instead: Instead | None = None,
    ) -> Future[Position]:
        self.written.append(record)
        self.futures.append(Future())
        return self.futures[-1]

    def flush(self, timeout_s: float) -> int:
        return 0


def at_once(call: Callable[[], None]) -> None:
    call()


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def registry(log: Log) -> WorkerRegistry:
    return WorkerRegistry(log, at_once)


def record(number: int) -> WorkerHeartbeat:
    return WorkerHeartbeat(worker_id="w", kind="worker", status=WorkerStatus.IDLE, heartbeat_unix_nano=number)


def written(registry: WorkerRegistry, number: int) -> WorkerHeartbeat:
    return registry.write("w", lambda _: record(number))[0]


def test_what_the_log_tells_late_does_not_undo_a_change(registry: WorkerRegistry, log: Log) -> None:
    first, second = written(registry, 1), written(registry, 2)
    registry.read(first, 7)
    assert registry.get("w") == second
    log.futures[1].set_result(Position("workers", 0, 9))
    registry.read(first, 8)
    assert registry.get("w") == second
    registry.read(other := record(3), 10)
    assert registry.get("w") == other
    assert registry.all() == [other]


def test_a_change_is_made_to_the_last_one(registry: WorkerRegistry) -> None:
    registry.read(record(1), 1)
    written(registry, 2)
    registry.read(record(1), 1)
    after = registry.change("w", lambda known: record(0 if known is None else known.heartbeat_unix_nano + 1))
    assert after.heartbeat_unix_nano == 3


def test_a_change_that_is_lost_leaves_what_was_before(registry: WorkerRegistry, log: Log) -> None:
    def lose() -> None:
        log.futures[-1].set_exception(PublishError("lost"))

    written(registry, 1)
    lose()
    assert registry.get("w") is None
    registry.read(before := record(2), 5)
    written(registry, 3)
    lose()
    assert registry.get("w") == before
    never_durable = written(registry, 4)
    written(registry, 5)
    lose()
    assert registry.get("w") == never_durable
    registry.read(later := record(6), 6)
    assert registry.get("w") == later, "the log goes on"


def test_of_many_changes_the_last_is_written(registry: WorkerRegistry, log: Log) -> None:
    for number in range(3):
        registry.change("w", lambda _, number=number: record(number))  # type: ignore[misc]  # bound per change
    assert log.written == []
    registry.flush()
    registry.flush()
    assert log.written == [record(2)]
