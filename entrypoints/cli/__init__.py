"""The command line: ``lightstream`` or ``python -m lightstream.cli``. Imports little before Ctrl-C is handled."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from typing import NoReturn

from lightstream.runtime.files import PRIVATE_UMASK, raise_file_limit
from lightstream.runtime.gc_tuning import collect_seldom

__all__ = ["main"]

STANDARD_ERROR = 2
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it (128 + SIGINT)."""


def main() -> None:
    """Run a command. What a person can act on is one message and exit status 1, Ctrl-C a line and 130; never a
    traceback."""
    atexit.register(_end_quietly)  # first, so it is called last
    collect_seldom()
    raise_file_limit()
    os.umask(PRIVATE_UMASK)
    try:
        _run()
    except KeyboardInterrupt:
        _interrupted()
    except SystemExit as end:  # Typer makes this of Ctrl-C
        if end.code != INTERRUPTED:
            raise
        _interrupted()


def _run() -> None:
    try:
        from .app import run

        run()  # ends by itself where its output is a pipe that nobody reads any more
    finally:
        _flush_output()


def _interrupted() -> NoReturn:
    """End at once: all that had to be ended is, and a thread that waits for an answer of Kafka's may do so for long."""
    print("Interrupted.", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)


def _end_quietly() -> None:
    """DuckDB's binding reports what is left of it when the interpreter ends, a page on standard error. While
    other threads run (librdkafka's) something always is, and it harms nobody. And what is left of modules is not
    collected: that took a tenth of a second of processor, and more with torch."""
    gc.freeze()
    if "duckdb" in sys.modules:
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), STANDARD_ERROR)


def _flush_output() -> None:
    """Write out what is still held. Where nobody reads it any more (`lightstream sql … | head`), Python must not find
    that out at its own end, when it would say so."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
