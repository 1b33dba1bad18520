"""Threads, timers and pools have the OpenTelemetry context in which they were started."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry.context import attach, detach, get_value, set_value

from lightstream.producers.tracer.threads import follow_threads, leave_threads


class Overridden(threading.Thread):
    """A thread whose ``run`` is its own."""

    def __init__(self, function: Callable[[], None]) -> None:
        super().__init__()
        self._function = function

    def run(self) -> None:
        self._function()


def joined(thread: threading.Thread) -> None:
    thread.start()
    thread.join()


def pooled(function: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(function).result()


WAYS: dict[str, Callable[[Callable[[], None]], None]] = {
    "thread": lambda function: joined(threading.Thread(target=function)),
    "subclass": lambda function: joined(Overridden(function)),
    "timer": lambda function: joined(threading.Timer(0, function)),
    "pool": pooled,
}


@pytest.fixture(autouse=True)
def followed() -> Iterator[None]:
    follow_threads()
    token = attach(set_value("place", "here"))
    yield
    detach(token)
    follow_threads()


@pytest.mark.parametrize("way", WAYS)
def test_the_context_goes_along_until_it_is_switched_off(way: str) -> None:
    seen: list[object] = []
    for switch in (follow_threads, leave_threads, follow_threads):
        switch()
        WAYS[way](lambda: seen.append(get_value("place")))
    assert seen == ["here", None, "here"]


def test_each_task_of_a_pool_has_its_own_context_and_none_stays() -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(get_value, "place").result()
        token = attach(set_value("place", "there"))
        second = list(pool.map(get_value, ["place"]))
        detach(token)
        assert [first, *second, pool.submit(get_value, "place").result()] == ["here", "there", "here"]


def test_a_thread_that_ended_is_not_held_and_its_error_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda details: told.append(details.exc_type))
    thread = threading.Thread(target=lambda: 1 / 0)
    joined(thread)
    assert told == [ZeroDivisionError]
    assert "run" not in thread.__dict__
