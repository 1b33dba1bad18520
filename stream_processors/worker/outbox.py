"""Records on their way out, handed over in one go, and the wait until all of them are durable."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

from lightstream.runtime.kafka import BY_KEY, BatchPublisher, Headers, Instead, Outgoing, Position
from lightstream.schemas.errors import BackpressureError
from lightstream.schemas.records import Record
from lightstream.schemas.topics import Topic


class Outbox:
    """The records that one batch writes. Not thread-safe; use a new one per batch.

    Records are encoded one by one and then handed over in a row: the client's thread finds them together and sends
    them in one request per partition, though it waits for none (a linger costs two milliseconds, however short).
    """

    def __init__(self, publisher: BatchPublisher) -> None:
        self._publisher = publisher
        self._ready: list[Outgoing] = []
        self._sent: list[Future[list[Position]]] = []

    async def send(
        self,
        topic: Topic,
        key: str,
        record: Record | None,
        *,
        headers: Headers | None = None,
        partition: int = BY_KEY,
        instead: Instead | None = None,
        in_thread: bool = False,
    ) -> None:
        """Encode a record (``None``: an empty one), which goes out with the next :meth:`hand_over`.

        Args:
            instead: makes something smaller of it where the topic takes less than we do, as of :class:`Outgoing`.
            in_thread: encode it in a thread: for records that take long.

        Raises:
            RecordTooLargeError: it will not be sent; the others will.
        """
        if record is None:
            value = None
        elif in_thread:
            value = await asyncio.to_thread(self._publisher.encoded, topic, record)
        else:
            value = self._publisher.encoded(topic, record)
        self.add(Outgoing(topic, key, value, headers, partition, instead))

    def add(self, record: Outgoing) -> None:
        """As :meth:`send`, for a record that is already encoded."""
        self._ready.append(record)

    async def hand_over(self) -> None:
        """Give the client all records that were sent so far. Waits only when the send buffer is full, until all before
        is durable.

        Raises:
            BackpressureError: the buffer has no room though nothing of this batch is in it.
            PublishError: an earlier record did not become durable.
        """
        ready, self._ready = self._ready, []
        while ready:
            count, durable = self._publisher.publish_all(ready)
            if count:
                self._sent.append(durable)
                ready = ready[count:]
            if ready:
                if not self._sent:
                    raise BackpressureError(
                        f"the send buffer has no room for {len(ready)} records of a batch.",
                        next_step="Is Kafka reachable? LIGHTSTREAM_SEND_BUFFER_BYTES_MAX sets the size.",
                    )
                await self._all_sent()

    async def durable(self) -> list[Position]:
        """Hand over the rest, and wait until everything is durable.

        Returns:
            The records' positions in the log, in the order in which they were sent.

        Raises:
            PublishError: a record did not become durable; the others may or may not be.
        """
        if self._ready:
            await self.hand_over()
        await self._all_sent()
        return [position for future in self._sent for position in future.result()]

    async def _all_sent(self) -> None:
        await asyncio.gather(*map(asyncio.wrap_future, self._sent), return_exceptions=True)
        for future in self._sent:
            future.result()
