"""Cost of ``import lightstream.producers``: seconds, and memory of a process that does nothing else.

``python -m benchmarks.import_cost`` prints a table, and with ``--json`` one JSON object. ``_all`` resolves every public
name, as a program that uses them all would. Targets: 0.5 s and 60 MB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from .command import run

PROGRAM = """
import time, sys
started = time.perf_counter()
import lightstream.producers as producers
if sys.argv[1] == "all":
    for name in producers.__all__:
        getattr(producers, name)
seconds = time.perf_counter() - started
import json, resource
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def measure(*, rounds: int = 5) -> dict[str, float]:
    """Best of ``rounds``, each in a new interpreter; bytecode is cached. Seconds and MiB."""
    figures: dict[str, float] = {}
    for what in ("import", "all"):
        runs: list[list[float]] = []
        for _ in range(rounds):
            done = subprocess.run([sys.executable, "-c", PROGRAM, what], stdout=subprocess.PIPE, check=True)
            runs.append(json.loads(done.stdout))
        figures[f"{what}_s"] = min(seconds for seconds, _ in runs)
        figures[f"{what}_rss_mib"] = min(rss for _, rss in runs)
    return figures | {"load_average": os.getloadavg()[0]}


def main() -> None:
    """Measure and print."""
    run(__doc__, measure)


if __name__ == "__main__":
    main()
