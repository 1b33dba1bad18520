"""A process that starts Runner processes, prints their ids, and waits to be killed."""

from __future__ import annotations

import json
import signal

from lightstream.producers import rollout
from lightstream.runtime.settings import Settings
from lightstream.trainers.run.runners import RunnerProcesses


@rollout
def answer(task: str) -> float:
    """An agent that gives every task its length."""
    return float(len(task))


def main() -> None:
    from tests.trainers.support.runner_parent import answer as agent  # by its importable name, not __main__

    with RunnerProcesses(Settings.load(), agent, n=2, n_concurrent=2, name="test", run_id="") as runners:
        print(json.dumps(runners.pids), flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
