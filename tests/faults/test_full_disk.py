"""The disk of ``lightstream up`` is filled under load and freed again: all is back by itself, and nothing was lost."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import httpx

from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.store_views.client import ViewClient
from tests.support.program import lightstream, program
from tests.support.small_disk import MIB, fill, small_disk
from tests.support.waiting import eventually

LEAST_BYTES = 64 * MIB
SPANS_BEFORE, SPANS_AFTER = 100, 100


class Load:
    """Sends one span after the other to the gateway, each until it is accepted."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self.accepted: list[str] = []
        self.refused = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _send(self) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            span_id = f"{number:016x}"
            while not self._is_accepted(span_id):
                self.refused += 1
                if self._stopping.wait(0.2):
                    return
            self.accepted.append(span_id)

    def _is_accepted(self, span_id: str) -> bool:
        gateway = find(self._settings, "gateway")
        if gateway is None:
            return False
        span = {"traceId": f"{1:032x}", "spanId": span_id, "name": "x" * 2000, "startTimeUnixNano": "1"}
        body = {"resourceSpans": [{"scopeSpans": [{"spans": [span | {"endTimeUnixNano": "2"}]}]}]}
        try:
            return httpx.post(f"{gateway.address}/v1/traces", json=body, timeout=60).status_code == 200
        except httpx.HTTPError:
            return False


def test_a_disk_that_was_full_is_a_pause(tmp_path: Path) -> None:
    """First to the last byte, as another program does it, then to just below the least, where our writers pause."""
    with small_disk(tmp_path / "disk", 900 * MIB) as disk:
        settings = Settings.load(
            data_dir=disk,
            kafka_bootstrap_servers=None,
            disk_free_bytes_min=LEAST_BYTES,
            gateway_port=0,
            gateway_grpc_port=0,
        )
        with program(settings, "up", "--no-proxy") as up:
            up.wait_for("worker", "view", "gateway")
            with Load(settings) as load:
                for left_bytes in (0, LEAST_BYTES // 2):
                    _wait_for_more(load, SPANS_BEFORE)
                    ballast = fill(disk, left_bytes)
                    refused = load.refused
                    eventually(lambda refused=refused: load.refused > refused + 5, what="spans are refused")  # type: ignore[misc]  # bound in each round
                    assert up.process.poll() is None
                    ballast.unlink()
                    up.wait_for("broker", "worker", "view", "gateway")
                    _wait_for_more(load, SPANS_AFTER)
            client = ViewClient(settings, patience_s=300)
            sent = set(load.accepted)
            eventually(lambda: _seen(client) >= sent, what="all accepted spans are in the view")
            rows = client.query("SELECT count(*), count(DISTINCT span_id) FROM spans").rows
            assert rows[0][0] == rows[0][1], "one is there twice"
            client.close()
            status = lightstream(settings.data_dir, "status", "--format", "json", **settings.to_environment())
            reasons = {noted["name"]: noted["reason"] for noted in json.loads(status.stdout)["restarts"]}
            assert "was stopped: the disk of" in reasons["broker"], reasons
            assert up.process.poll() is None


def _wait_for_more(load: Load, spans: int) -> None:
    wanted = len(load.accepted) + spans
    eventually(lambda: len(load.accepted) >= wanted, what=f"{spans} more spans are accepted")


def _seen(client: ViewClient) -> set[str]:
    return {row[0] for row in client.query("SELECT DISTINCT span_id FROM spans").rows}
