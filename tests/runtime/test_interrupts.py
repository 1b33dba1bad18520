"""Ctrl-C where Python swallows it or would wait past it, in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, weakref
from lightstream.runtime.interrupts import Interrupts

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
    assert _run(PROGRAM.format(again=again)) == (status, printed)


SWALLOWED_IN_A_WAIT = """
import os, signal, sys, weakref
from lightstream.runtime.interrupts import Interrupts

class Thing: pass

number = signal.Signals[sys.argv[1]]
try:
    with Interrupts(signal.SIGTERM, signal.SIGHUP) as outer:
        with Interrupts() as inner:
            thing = Thing()
            reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), number))
            del thing
            print("swallowed", flush=True)
            (inner if {inner} else outer).wait()
except KeyboardInterrupt:
    print("raised again", signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler))
"""


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_came_before_the_wait_ends_it(number: signal.Signals, inner: bool) -> None:
    program = SWALLOWED_IN_A_WAIT.format(inner=inner)
    assert _run(program, number.name) == (0, ["swallowed", "raised again True"])


def _run(program: str, *arguments: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stdout.split("\n")[:-1]
