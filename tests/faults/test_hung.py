"""Processes that hang, as a stopped one does, are started again within half a minute, and ``status`` names them."""

from __future__ import annotations

import json
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lightstream.runtime.settings import Settings
from lightstream.up import SERVICES, Stack
from tests.support.program import lightstream
from tests.support.waiting import eventually

BACK_S_MAX = 30.0
"""From the moment that it hangs: three questions without an answer, at least 15 s, and its own start."""


@pytest.mark.soak
def test_what_hangs_is_back_within_half_a_minute_and_named(tmp_path: Path) -> None:
    """One after another, as each has the machine for its start; the broker last, which the others need."""
    with Stack(Settings.load(data_dir=tmp_path), services=SERVICES) as stack:
        for name in sorted(stack.names, key="broker".__eq__):
            back_s = _hang(stack, name)
            print(f"{name} is back after {back_s:.1f} s")
            noted = _restarts(stack.settings)[name]
            assert noted["reason"].startswith("did not answer for "), noted
            assert back_s <= BACK_S_MAX, name


def _hang(stack: Stack, name: str) -> float:
    """Stop a process; returns the seconds until another is ready in its place."""
    pid = stack.supervisor.pid(name)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    began_s = time.monotonic()
    eventually(partial(_is_another, stack, name, pid), what=name)
    return time.monotonic() - began_s


def _restarts(settings: Settings) -> dict[str, Any]:
    status = lightstream(settings.data_dir, "status", "--format", "json", **settings.to_environment())
    return {noted["name"]: noted for noted in json.loads(status.stdout)["restarts"]}


def _is_another(stack: Stack, name: str, pid: int) -> bool:
    return stack.supervisor.pid(name) not in (pid, None)
