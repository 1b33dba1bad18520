"""The store on Kafka."""

from __future__ import annotations

from lightstream.runtime.clock import Clock, SystemClock
from lightstream.runtime.loop_thread import LoopThread
from lightstream.runtime.settings import Settings

from ..any_loop import AnyLoopStore
from ..store import Store
from .log import KafkaLog


class KafkaLightningStore(AnyLoopStore):
    """A store for processes that reach Kafka.

    Each write waits for the life cycle's result, up to ``settings.publish_timeout_s`` seconds, so a restart of the
    broker or of the worker in between costs time and nothing else. Queries ask the view, which first catches up with
    what this store has written or was told, and may be away for as long; writing and dequeuing need no view.

    Args:
        settings: names the cluster and the topics.
    """

    def __init__(self, settings: Settings, *, clock: Clock | None = None) -> None:
        clock, loop = clock or SystemClock(), LoopThread("lightstream-store", "the store")
        log = KafkaLog(settings, clock, loop)
        self.unready = log.unready
        """Says which version of Lightstream is needed to read what was passed over; ``None`` where nothing was."""
        super().__init__(Store(log, clock), loop)
