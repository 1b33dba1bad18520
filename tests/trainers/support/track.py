"""Logs two steps to a tracker, goes on with a third as after a restart, and prints what it has.

For environments of their own.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from lightstream.trainers.run.trackers.kinds import MLflow, Samples, TrackedStep, Trackio

METRICS = {"reward/mean": 1 / 3, "validation/pass@4": 1.0, "actor/ppo_kl": -1e-9}
TABLE = Samples("rollouts", ("task", "output", "score"), [["a|b", "c\nd", 0.5], ["ü", "", None]])


def main(kind: str, folder: str) -> None:
    tracker: Any = MLflow(f"sqlite:///{folder}/mlflow.db") if kind == "mlflow" else Trackio()
    for after, steps in ((0, (1, 2)), (2, (3,))):
        tracker.open("run-7", {"model": "m", "data_set": "3 tasks"}, after)
        for step in steps:
            metrics = {name: value * step for name, value in METRICS.items()}
            tracker.log(TrackedStep(step, metrics, 1_790_000_000_000_000_000 + step, [TABLE]))
        tracker.close()
    print(json.dumps(_of_mlflow(folder) if kind == "mlflow" else _of_trackio()))


def _of_mlflow(folder: str) -> Any:
    from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]  # of an extra

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment: Any = client.get_experiment_by_name("lightstream")
    runs = client.search_runs([experiment.experiment_id])
    return [
        {
            name: [[metric.step, metric.value] for metric in client.get_metric_history(run.info.run_id, name)]
            for name in run.data.metrics
        }
        for run in runs
    ]


def _of_trackio() -> Any:
    from trackio.sqlite_storage import SQLiteStorage  # pyright: ignore[reportMissingImports]  # of an extra

    found: list[dict[str, list[list[float]]]] = []
    for run in SQLiteStorage.get_runs("lightstream"):
        history: dict[str, list[list[float]]] = {}
        for entry in SQLiteStorage.get_logs("lightstream", run):
            for name in METRICS:
                history.setdefault(name, []).append([entry["step"], entry[name]])
        found.append(history)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
