"""Work behind others: its thread has a lower priority, and so have those that it starts."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from lightstream.runtime.priority import run_behind


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread has no priority of its own")
def test_work_runs_behind_others_and_so_does_what_it_starts() -> None:
    def work() -> tuple[int, int]:
        return niceness(), run_behind(niceness, 0, "inner").result(300)

    before = niceness()
    assert run_behind(work, 3, "outer").result(300) == (min(before + 3, 19), min(before + 3, 19))
    assert niceness() == before


def test_an_error_is_for_who_waits() -> None:
    def fail() -> None:
        raise SystemExit("over")

    with pytest.raises(SystemExit, match="over"):
        run_behind(fail, 0, "failing").result(300)
