"""Ctrl-C where Python swallows it, in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, weakref
from lightstream.trainers.interrupts import Interrupts

class Thing: pass

with Interrupts() as interrupts:
    thing = Thing()
    reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))
    del thing
    print("swallowed", flush=True)
    if {again}:
        os.kill(os.getpid(), signal.SIGINT)
    try:
        interrupts.check()
    except KeyboardInterrupt:
        print("raised again", flush=True)
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


@pytest.mark.parametrize(
    ("again", "status", "printed"),
    [(False, 0, ["swallowed", "raised again", "True"]), (True, -signal.SIGINT, ["swallowed"])],
)
def test_a_swallowed_one_is_raised_again_and_a_second_one_ends_it(again: bool, status: int, printed: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(again=again)], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout.split("\n")[:-1]) == (status, printed), done.stderr
