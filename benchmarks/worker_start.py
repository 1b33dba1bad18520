"""Time and memory of a worker that starts where many rollouts have finished.

``python -m benchmarks.worker_start`` prints a table, and with ``--json`` one JSON object. Uses the cluster named by
``LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS``, or a broker of its own. Topics are new ones, with a random prefix. ``cold`` is
the first start (the whole topic ``rollouts`` is read), ``warm`` the next on the same machine.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from lightstream.runtime.kafka import STATE, Headers, KafkaPublisher, state_header
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import BackpressureError
from lightstream.schemas.records import (
    AttemptState,
    AttemptStatus,
    EventKind,
    RolloutSpec,
    RolloutState,
    RolloutStatus,
    Verdict,
    VerdictOutcome,
)
from lightstream.schemas.topics import ROLLOUTS

from .cluster import cluster
from .command import run

TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.02
TASK = json.dumps({"question": "Which tool adds 17 and 25?", "answer": "A", "dataset": "chain_sum", "seed": 4711})


def measure(*, rollouts: int = 1_000_000) -> dict[str, float]:
    """Start a worker twice over ``rollouts`` finished ones."""
    with cluster() as kafka:
        settings = kafka.settings()
        _write(settings, rollouts)
        figures: dict[str, float] = {"finished_rollouts": rollouts}
        for name in ("cold", "warm"):
            figures[f"{name}_start_s"], figures[f"{name}_memory_mib"] = _started(settings)
        files = (kafka.data_dir / "worker").glob("*.sqlite")
        figures["file_bytes_per_rollout"] = sum(file.stat().st_size for file in files) / rollouts
        return figures


def main() -> None:
    """Measure and print."""
    run(__doc__, measure, rollouts=1_000_000)


def _write(settings: Settings, rollouts: int) -> None:
    publisher = KafkaPublisher(settings, codec=codec_for(settings), linger_ms=20.0)
    rng = random.Random(7)
    for number in range(rollouts):
        state = _finished(f"ro-{rng.getrandbits(80):020x}", number)  # in no order, as ids are
        headers: Headers = [(STATE, state_header(state.source_offset, state.status))]
        while True:
            try:
                publisher.publish(ROLLOUTS, state.rollout.rollout_id, state, headers=headers)
                break
            except BackpressureError:
                publisher.flush(TIMEOUT_S)
    if left := publisher.close(TIMEOUT_S):
        raise SystemExit(f"{left} states were not written")


def _finished(rollout_id: str, number: int) -> RolloutState:
    attempt_id = f"{rollout_id}-a1-{number:016x}"
    attempt = AttemptState(
        attempt_id=attempt_id,
        sequence=1,
        status=AttemptStatus.SUCCEEDED,
        worker_id="runner-1",
        started_unix_nano=number,
        ended_unix_nano=number + 1,
        closed=True,
    )
    return RolloutState(
        rollout=RolloutSpec(rollout_id=rollout_id, run_id="bench", input_json=TASK, enqueued_unix_nano=number),
        status=RolloutStatus.SUCCEEDED,
        attempts=[attempt],
        updated_unix_nano=number + 1,
        ended_unix_nano=number + 1,
        source_offset=number,
        verdict=Verdict(event_id=f"{attempt_id}:e", kind=EventKind.ATTEMPT_UPDATED, outcome=VerdictOutcome.APPLIED),
    )


def _started(settings: Settings) -> tuple[float, float]:
    """Seconds until a new worker has recovered, and the most memory it took, in MiB."""
    environment = os.environ | settings.to_environment()
    began_s = time.perf_counter()
    worker = subprocess.Popen(
        [sys.executable, "-m", "lightstream.cli", "worker"], env=environment, stderr=subprocess.DEVNULL
    )
    try:
        while find(settings, "worker") is None:
            if worker.poll() is not None or time.perf_counter() - began_s > TIMEOUT_S:
                raise SystemExit(f"the worker did not start; exit status {worker.poll()}")
            time.sleep(POLL_INTERVAL_S)
        took_s = time.perf_counter() - began_s
        peak = Path(f"/proc/{worker.pid}/status").read_text().split("VmHWM:")[1].split()[0]
        return took_s, int(peak) / 1024
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(STOP_TIMEOUT_S)


if __name__ == "__main__":
    main()
