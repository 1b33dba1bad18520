"""Forks Python programs from a process that has loaded torch and verl, which each would need five seconds for.

Run as a program with the path of a Unix socket in a folder of its own, which it removes at the end. A client sends a
program, its environment, folder and standard streams; it is told the process id, and at the end the status as
``waitpid(2)`` gives it. The server ends with its last client.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import logging
import os
import runpy
import selectors
import shutil
import signal
import socket
import struct
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType, ModuleType

STREAMS = 3
"""Standard input, output and error."""

LOADED = (
    "lightstream.trainers.algorithms.trainer",
    "lightstream.trainers.algorithms.verl",
    "openai.resources.chat",
    "transformers.models.auto.modeling_auto",
    "transformers.models.qwen2.modeling_qwen2",
)
LENGTH = struct.Struct("!Q")
NUMBER = struct.Struct("!q")


@dataclass(frozen=True, slots=True)
class ForkedProgram:
    """A program as the interpreter's command line names it.

    Attributes:
        arguments: what follows the interpreter: a file, ``-c TEXT``, ``-m MODULE``, or nothing for standard input; then
            the program's own.
    """

    arguments: list[str]
    environment: dict[str, str]
    folder: str

    def send(self, connection: socket.socket, streams: list[int]) -> None:
        """Hand it over with its standard streams."""
        text = json.dumps(asdict(self)).encode()
        socket.send_fds(connection, [LENGTH.pack(len(text))], streams)
        connection.sendall(text)

    @classmethod
    def receive(cls, connection: socket.socket) -> tuple[ForkedProgram, list[int]] | None:
        """The next program and its streams; None where the client is gone."""
        head, streams, _, _ = socket.recv_fds(connection, LENGTH.size, STREAMS)
        if not head:
            return None
        return cls(**json.loads(receive_exactly(connection, LENGTH.unpack(head)[0]))), streams

    def become(self, streams: list[int]) -> None:
        """Run it as this process's main module; the interpreter ends as it does after any program."""
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.folder)
        unbuffered = "PYTHONUNBUFFERED" in self.environment
        for output in (sys.stdout, sys.stderr):
            assert isinstance(output, io.TextIOWrapper)
            output.reconfigure(write_through=unbuffered)
        first, *rest = self.arguments or ["-"]
        if first == "-m":
            sys.path[0], sys.argv = self.folder, rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
            return
        main = ModuleType("__main__")
        if first == "-c":
            text, name, sys.argv, sys.path[0] = rest[0], "<string>", ["-c", *rest[1:]], ""
        elif first == "-":
            text, name, sys.argv, sys.path[0] = sys.stdin.read(), "<stdin>", ["-"], ""
        else:
            text, name, sys.argv, sys.path[0] = (
                Path(first).read_text("utf-8"),
                first,
                [first, *rest],
                str(Path(first).parent),
            )
            main.__file__ = first
        sys.modules["__main__"] = main
        exec(compile(text, name, "exec"), main.__dict__)  # noqa: S102  # what the interpreter does


def receive_exactly(connection: socket.socket, count: int) -> bytes:
    """Receive that many bytes; fewer where the other side is gone."""
    received = b""
    while len(received) < count and (part := connection.recv(count - len(received))):
        received += part
    return received


def serve(path: str) -> tuple[ForkedProgram, list[int]] | None:
    """Fork until the last client is gone. Returns twice, as fork does: a program in each child, None in the server."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGCHLD, _nothing)
    clients: dict[int, socket.socket] = {}
    children: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(reader, selectors.EVENT_READ)
        had_one = False
        while clients or children or not had_one:
            for key, _ in selector.select():
                if key.fileobj is listener:
                    client, _ = listener.accept()
                    clients[client.fileno()] = client
                    selector.register(client, selectors.EVENT_READ)
                    had_one = True
                elif key.fileobj == reader:
                    os.read(reader, 4096)
                    _tell_of_the_dead(children)
                else:
                    client = clients[key.fd]
                    received = ForkedProgram.receive(client)
                    if received is None:
                        selector.unregister(client)
                        clients.pop(key.fd).close()
                        continue
                    child = os.fork()
                    if not child:
                        signal.set_wakeup_fd(-1)
                        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                        for inherited in (listener, *clients.values()):
                            inherited.close()
                        os.close(reader)
                        os.close(writer)
                        return received
                    for stream in received[1]:
                        os.close(stream)
                    children[child] = client
                    client.sendall(NUMBER.pack(child))
    return None


def _nothing(number: int, frame: FrameType | None) -> None:
    """A handler, so that the signal is written to the wake-up descriptor."""


def _tell_of_the_dead(children: dict[int, socket.socket]) -> None:
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        with contextlib.suppress(OSError):  # its client is gone
            children.pop(child).sendall(NUMBER.pack(status))


def _load() -> None:
    """Import what programs that train need. (OpenBLAS has a thread, which it starts again in a fork.)"""
    for name in LOADED:
        importlib.import_module(name)
    from lightstream.trainers.engines.verl.runtime import load_verl

    load_verl("cpu")
    root = logging.getLogger()  # verl has set it up, which in a program it does after us
    root.handlers.clear()
    root.setLevel(logging.WARNING)
    assert threading.active_count() == 1, "a thread would be missing in every program"


if __name__ == "__main__":
    _load()
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page
    if (received := serve(sys.argv[1])) is not None:
        received[0].become(received[1])
    else:
        shutil.rmtree(Path(sys.argv[1]).parent, ignore_errors=True)
