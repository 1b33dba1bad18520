"""Makes the record of a call durable."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future

from lightstream.schemas.clock import Clock
from lightstream.schemas.errors import LightstreamError, RecordTooLargeError
from lightstream.schemas.kafka import Position, Publisher
from lightstream.schemas.records import SpanRecord
from lightstream.schemas.topics import SPANS

from .call import Call
from .span_records import smaller, span_records

__all__ = ["CallRecorder"]

logger = logging.getLogger(__name__)


class CallRecorder:
    """Writes calls to the topic ``spans``.

    Args:
        publisher: makes records durable; bounds how long that may take.
        clock: time of a call's end.
    """

    def __init__(self, publisher: Publisher, clock: Clock) -> None:
        self._publisher = publisher
        self._clock = clock

    async def record(self, call: Call) -> None:
        """Write the call; returns once every choice of it is durable.

        Raises:
            PublishError: it did not become durable in the allowed time; the agent must not get the answer then.
            ServiceUnavailableError: no Kafka is named or running.
        """
        for future in self._send(call):
            await asyncio.wrap_future(future)

    def record_soon(self, call: Call) -> None:
        """Write the call of an agent that has gone; what cannot be delivered is logged."""
        try:
            for future in self._send(call):
                future.add_done_callback(_log_failure)
        except LightstreamError as error:
            logger.error("the call of a client that disconnected is lost: %s", error)

    def _send(self, call: Call) -> list[Future[Position]]:
        call.ended_unix_nano = self._clock.now_unix_nano()
        return [self._publish(call.caller.key, record) for record in span_records(call)]

    def _publish(self, key: str, record: SpanRecord) -> Future[Position]:
        while True:
            try:
                return self._publisher.publish(SPANS, key, record)
            except RecordTooLargeError as error:
                cut = smaller(record)
                if cut is None:
                    raise
                logger.warning("a call of rollout %s was truncated: %s", record.rollout_id, error)
                record = cut


def _log_failure(future: Future[Position]) -> None:
    error = future.exception()
    if error is not None:
        logger.error("the call of a client that disconnected is lost: %s", error)
