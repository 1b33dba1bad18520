"""One run of a command: input, output within bounds, a folder within a bound, and an end that leaves no process."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightstream.schemas.errors import LightstreamError

REAPER = Path(__file__).with_name("reaper.py")
PIECE_BYTES = 64 * 1024
OUTPUT_KEPT_BYTES = 1024 * 1024
"""Of standard output, from its beginning; the rest is read and forgotten."""
TAIL_BYTES = 4096
"""Of standard error, from its end: what an error quotes."""
LOOK_S = 0.5
HARD_GRACE_S = 2.0
"""For the reaper itself, after its own grace. It needs milliseconds."""


class CommandError(LightstreamError):
    """A command failed, or wrote more than it may. Its processes have ended."""


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """Bounds of one run.

    Attributes:
        folder_bytes_max: of all files in the folder together, and of any single file.
        grace_s: between SIGTERM and SIGKILL.
    """

    folder_bytes_max: int = 1024**3
    grace_s: float = 2.0


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The results of a command.

    Attributes:
        status: exit status; 128 + n where signal n ended it.
        output: the first :data:`OUTPUT_KEPT_BYTES` of standard output.
        error_tail: the last :data:`TAIL_BYTES` of standard error.
    """

    status: int
    output: bytes
    error_tail: bytes


async def run_command(
    command: str, *, folder: Path, environment: Mapping[str, str], content: bytes, limits: CommandLimits
) -> CommandResult:
    """Run ``command`` by the shell in ``folder``. If this is cancelled, all its processes end first.

    Args:
        content: standard input.

    Raises:
        CommandError: the folder has grown over its bound.
        OSError: the process cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        str(REAPER),
        str(os.getpid()),
        str(limits.grace_s),
        str(limits.folder_bytes_max),
        command,
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    output = asyncio.create_task(_head_of(process.stdout))
    error_tail = asyncio.create_task(_tail_of(process.stderr))
    watch = asyncio.create_task(_watch(folder, limits.folder_bytes_max))
    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(_feed(process.stdin, content)), output, error_tail, watch]
    ended = asyncio.create_task(process.wait())
    try:
        await asyncio.wait([ended, watch], return_when=asyncio.FIRST_COMPLETED)
        if watch.done():
            raise CommandError(
                f"the command's folder has grown over {limits.folder_bytes_max:,} bytes; the command was ended.",
                next_step="Raise folder_bytes_max (--folder-mb-max), or let the command write less.",
            )
        status = await ended
        return CommandResult(status, await output, await error_tail)
    finally:
        if not ended.done():
            await _end(process, ended, limits.grace_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _end(process: asyncio.subprocess.Process, ended: asyncio.Task[int], grace_s: float) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    await asyncio.wait([ended], timeout=grace_s + HARD_GRACE_S)
    if not ended.done():
        with suppress(ProcessLookupError):
            process.kill()
        await ended


async def _feed(stream: asyncio.StreamWriter | None, content: bytes) -> None:
    if stream is not None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it does not read its input
            stream.write(content)
            await stream.drain()
        stream.close()


async def _head_of(stream: asyncio.StreamReader | None) -> bytes:
    head = bytearray()
    while stream is not None and (piece := await stream.read(PIECE_BYTES)):
        head += piece[: OUTPUT_KEPT_BYTES - len(head)]
    return bytes(head)


async def _tail_of(stream: asyncio.StreamReader | None) -> bytes:
    pieces: deque[bytes] = deque(maxlen=2)
    while stream is not None and (piece := await stream.read(PIECE_BYTES)):
        pieces.append(piece)
    return b"".join(pieces)[-TAIL_BYTES:]


async def _watch(folder: Path, bytes_max: int) -> None:
    """Return once the folder holds more."""
    while await asyncio.to_thread(folder_bytes, folder) <= bytes_max:  # noqa: ASYNC110  # another process writes it
        await asyncio.sleep(LOOK_S)


def folder_bytes(folder: Path) -> int:
    """Bytes that the files below a folder take on the disk. Files that vanish meanwhile count nothing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += 512 * Path(parent, name).lstat().st_blocks
    return total
