"""Server-sent events: bytes as they come from the network, cut into events. Pure."""

from __future__ import annotations

EVENT_BYTES_MAX = 16 * 1024 * 1024
"""The largest true ones hold the prompt's token ids: some megabytes. An endless one is not gathered forever."""


class EventSplitter:
    """Cuts a stream of bytes into events, each with the blank line that ends it.

    Raises:
        ValueError: (from :meth:`feed`) an event is over :data:`EVENT_BYTES_MAX`.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """The events that ``piece`` completes."""
        if len(self._rest) > EVENT_BYTES_MAX:
            raise ValueError(f"an event has over {EVENT_BYTES_MAX:,} bytes")
        data = self._rest + piece if self._rest else piece
        if b"\r" in data:
            if data.endswith(b"\r"):  # its line feed may be in the next piece
                self._rest = data
                return []
            data = data.replace(b"\r\n", b"\n")
        *events, self._rest = data.split(b"\n\n")
        return [event + b"\n\n" for event in events if event]

    def rest(self) -> list[bytes]:
        """The rest of a stream that ends without a blank line."""
        rest, self._rest = self._rest.strip(), b""
        return [rest + b"\n\n"] if rest else []


def event_data(event: bytes) -> bytes | None:
    """The data of an event, or ``None`` where it has none (a comment, say)."""
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


def event_of(data: bytes, name: str = "") -> bytes:
    """An event with that data, which has no line breaks, and that name, if any."""
    return (f"event: {name}\ndata: ".encode() if name else b"data: ") + data + b"\n\n"
