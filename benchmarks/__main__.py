"""Run every benchmark, one after another, which takes long: ``python -m benchmarks [--json]`` (``make bench``).

Left out are ``peers``, for which Phoenix and MLflow have to be installed, and ``gpu``, for machines that have one.
One broker serves them all, so that its start is not measured again and again; each benchmark is a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from lightstream.broker import EmbeddedBroker
from lightstream.runtime.settings import Settings

from .store.processes import BROKER_PID

NAMES = (
    "import_cost",
    "assembler_core",
    "batch",
    "update",
    "long_run",
    "exporter",
    "worker",
    "trajectory_latency",
    "view",
    "million_rows",
    "view_pages",
    "freshness",
    "hostile_statements",
    "store",
    "dispatch",
    "worker_start",
    "proxy",
    "proxy_overhead",
    "gateway",
    "asynchronous",
    "swaps",
    "kafka_training",
    "trackers",
    "staleness",
    "learning_seeds",
)


def main(arguments: list[str]) -> int:
    """Exit status 0 when every benchmark ran (none judges its own figures)."""
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        named = Settings.load().kafka_bootstrap_servers
        broker = None if named else EmbeddedBroker(Settings.load(data_dir=Path(folder)))
        environment = os.environ | {"LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS": named or ""}
        if broker is not None:
            environment["LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS"] = broker.start()
            environment[BROKER_PID] = str(broker.pid)
        try:
            for name in NAMES:
                print(f"\n$ python -m benchmarks.{name} {' '.join(arguments)}", flush=True)
                done = subprocess.run(
                    [sys.executable, "-m", f"benchmarks.{name}", *arguments],
                    env=environment,
                    check=False,
                )
                if done.returncode:
                    failed.append(name)
        finally:
            if broker is not None:
                broker.stop()
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
