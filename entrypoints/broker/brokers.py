"""All embedded brokers of a data folder, one or three."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from lightstream.runtime.services import Service
from lightstream.runtime.settings import Settings

from .embedded import EmbeddedBroker


class EmbeddedBrokers:
    """The brokers that ``settings.brokers`` asks for.

    Args:
        settings: as of :class:`EmbeddedBroker`.
        dies_with_us: as of :class:`EmbeddedBroker`.
    """

    def __init__(self, settings: Settings, *, dies_with_us: bool = True) -> None:
        self.each = [
            EmbeddedBroker(settings, dies_with_us=dies_with_us, node=node) for node in range(1, settings.brokers + 1)
        ]

    def __enter__(self) -> EmbeddedBrokers:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def services(self) -> list[Service]:
        """The running brokers."""
        return [service for broker in self.each if (service := broker.service) is not None]

    def start(self) -> str:
        """Start the stopped brokers, at the same time, and wait until they answer.

        Returns:
            The addresses for ``bootstrap.servers``.

        Raises:
            BrokerError: one cannot be started; those that this call started are stopped.
        """
        stopped = [broker for broker in self.each if not broker.is_running]
        with ThreadPoolExecutor(len(self.each), thread_name_prefix="lightstream-broker") as pool:
            try:
                return ",".join(pool.map(EmbeddedBroker.start, self.each))
            except BaseException:
                for broker in stopped:
                    broker.stop()
                raise

    def stop(self) -> None:
        """Stop all, at the same time: one alone waits for its controllers.

        Raises:
            BrokerError: one is still there after a stop and a kill.
        """
        with ThreadPoolExecutor(len(self.each), thread_name_prefix="lightstream-broker") as pool:
            list(pool.map(EmbeddedBroker.stop, self.each))

    def wipe(self) -> None:
        """Stop all and delete all records.

        Raises:
            BrokerError: one cannot be stopped, or a folder cannot be deleted.
        """
        self.stop()
        for broker in self.each:
            broker.wipe()
