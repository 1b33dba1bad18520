"""Processes that hang, as a stopped one does, are started again within half a minute, and ``status`` names them."""

from __future__ import annotations

import json
import os
import signal
import time
from functools import partial

import pytest

from lightstream.runtime.settings import Settings
from lightstream.up import Stack
from tests.support.program import lightstream
from tests.support.waiting import eventually

SERVICES = ("worker", "view", "proxy", "gateway")


@pytest.mark.soak
def test_what_hangs_is_started_again_and_named(settings: Settings) -> None:
    with Stack(settings, services=SERVICES) as stack:
        hung = {name: stack.supervisor.pid(name) for name in SERVICES}
        for pid in hung.values():
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
        began_s = time.monotonic()
        for name, pid in hung.items():
            eventually(partial(_is_another, stack, name, pid), what=name)
            print(f"{name} is back after {time.monotonic() - began_s:.1f} s")
        status = lightstream(settings.data_dir, "status", "--format", "json", **settings.to_environment())
        restarts = {noted["name"]: noted for noted in json.loads(status.stdout)["restarts"]}
        assert set(restarts) == set(SERVICES)
        assert all(noted["reason"].startswith("did not answer for ") for noted in restarts.values())


def _is_another(stack: Stack, name: str, pid: int | None) -> bool:
    return stack.supervisor.pid(name) not in (pid, None)
