"""Accepts the connections of a TLS server: clients without a handshake hold only a few, and none for long.

Uvicorn's own server knows a connection once its handshake is over, so what limits connections
(:mod:`.connections`) does not see those before.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

logger = logging.getLogger(__name__)

HANDSHAKES_MAX = 500
"""At once; beyond that the one that has waited for the longest makes room. Each takes a good client milliseconds."""
HANDSHAKE_TIMEOUT_S = 20.0
OUT_OF_FILES_PAUSE_S = 1.0


class TlsListener:
    """Accepts until :meth:`close`. Stands among a uvicorn server's ``servers``, whose methods it has.

    Args:
        listener: bound and listening; stays the caller's.
        make_protocol: of a connection whose handshake begins.
        context: what clients are met with.
    """

    def __init__(
        self, listener: socket.socket, make_protocol: Callable[[], asyncio.Protocol], context: ssl.SSLContext
    ) -> None:
        self._listener = listener
        self._make_protocol = make_protocol
        self._context = context
        self._handshakes: dict[asyncio.Task[None], None] = {}
        listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept())

    def close(self) -> None:
        """Accept no more, and give up the handshakes under way."""
        for task in (self._accepting, *self._handshakes):
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until nothing is under way."""
        await asyncio.gather(self._accepting, *self._handshakes, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError as error:  # no file is left, or the client has gone already
                logger.warning("a connection cannot be accepted: %s", error)
                await asyncio.sleep(OUT_OF_FILES_PAUSE_S)
                continue
            if len(self._handshakes) >= HANDSHAKES_MAX:
                next(iter(self._handshakes)).cancel()
            task = asyncio.create_task(self._shake_hands(connection))
            self._handshakes[task] = None
            task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _shake_hands(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make_protocol, connection, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S
            )
        except OSError as error:  # of TLS too: the client does not trust us, speaks something else, or left
            logger.debug("a client shook no hands: %s", error)
