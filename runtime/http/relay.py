"""Passes connections on to a gRPC server of this process, which cannot take an open socket or read its PEM files
again."""

from __future__ import annotations

import asyncio
import socket
import ssl

HANDSHAKE_TIMEOUT_S = 20.0
PIECE_BYTES = 256 * 1024


class Relay:
    """Passes bytes both ways, for as long as both ends are open.

    Args:
        listener: bound and listening; stays the caller's.
        port: of the server on the loopback interface.
        context: for TLS with the clients; the server gets what they encrypted.
    """

    def __init__(self, listener: socket.socket, port: int, context: ssl.SSLContext | None = None) -> None:
        self._listener = listener
        self._port = port
        self._context = context
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Accept connections from now on."""
        duplicate = self._listener.dup()  # the server closes what it is given
        duplicate.setblocking(False)
        self._server = await asyncio.start_server(
            self._connected,
            sock=duplicate,
            limit=PIECE_BYTES,
            ssl=self._context,
            ssl_handshake_timeout=None if self._context is None else HANDSHAKE_TIMEOUT_S,
        )

    def stop_accepting(self) -> None:
        """Leave further connections in the socket's queue."""
        if self._server is not None:
            self._server.close()

    async def stop(self) -> None:
        """Close all that is open."""
        self.stop_accepting()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._port, limit=PIECE_BYTES)
            try:
                await asyncio.gather(_pass_on(reader, to_writer), _pass_on(to_reader, writer))
            finally:
                to_writer.close()
        except (OSError, asyncio.CancelledError):
            pass  # one end has gone, or we stop: both ends are closed
        finally:
            writer.close()
            if task is not None:
                self._connections.discard(task)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    else:
        writer.close()  # TLS ends both ways at once
