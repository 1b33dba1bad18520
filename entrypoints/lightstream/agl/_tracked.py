"""Counts the calls of a store."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from typing import Any

from lightstream.schemas.interfaces import LightningStore

from .utils.metrics import MetricsBackend

__all__ = ["track"]

CALLS = "agl.store.total"
SECONDS = "agl.store.latency"
LABELS = ("method", "store_pubmeth", "status")
BUCKETS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)

WITHOUT = frozenset({"start", "close"})


def track(store: LightningStore, tracker: MetricsBackend) -> None:
    """From now on count each call of ``store`` and its seconds, with Agent Lightning 0.3's names and labels.

    ``status`` is ``OK`` or the error's type. One store may have several trackers.

    Raises:
        ValueError: the tracker has other metrics of these names.
    """
    tracker.register_counter(CALLS, LABELS, group_level=1)
    tracker.register_histogram(SECONDS, LABELS, BUCKETS_S, group_level=1)
    for name, method in inspect.getmembers(type(store), inspect.iscoroutinefunction):
        if not name.startswith("_") and name not in WITHOUT and hasattr(LightningStore, name):
            setattr(store, name, _counted(getattr(store, name), method, name, tracker))


def _counted(call: Callable[..., Any], method: Callable[..., Any], name: str, tracker: MetricsBackend) -> Any:
    @functools.wraps(method)
    async def counted(*arguments: Any, **named: Any) -> Any:
        began_s, status = time.perf_counter(), "OK"
        try:
            return await call(*arguments, **named)
        except BaseException as error:
            status = type(error).__name__
            raise
        finally:
            labels = {"method": name, "store_pubmeth": name, "status": status}
            await tracker.inc_counter(CALLS, labels=labels)
            await tracker.observe_histogram(SECONDS, time.perf_counter() - began_s, labels=labels)

    return counted
