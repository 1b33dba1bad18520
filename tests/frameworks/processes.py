"""Servers of ours as processes: agents' environments have neither torch nor LiteLLM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from tests.support.waiting import eventually

PYTHON = os.environ.get("LIGHTSTREAM_TEST_PYTHON", sys.executable)
"""One that has everything."""

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 120.0


class ServerProcess:
    """A server that ``code`` runs and announces as ``name``.

    Args:
        settings: of the server; its log lies in their data folder.
    """

    def __init__(self, settings: Settings, name: str, code: str, *arguments: str) -> None:
        self._settings = settings
        self._name = name
        self._command = [PYTHON, "-c", code, *arguments]
        self._log = Path(settings.data_dir) / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            environment = os.environ | self._settings.to_environment()
            self._process = subprocess.Popen(self._command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        self.url = eventually(self._address, timeout_s=START_TIMEOUT_S, what=f"the start of the {self._name} server")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(STOP_TIMEOUT_S)

    def _address(self) -> str:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text("utf-8")
        service = find(self._settings, self._name)
        return "" if service is None else service.address
