"""The trackers that steps can be sent to, each by its own library, which is imported when it is opened."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

logger = logging.getLogger(__name__)

MILLI, NANO = 1e3, 1e9

MLFLOW_NAME_MAX, MLFLOW_TAG_MAX, MLFLOW_BATCH_MAX = 250, 5000, 1000
"""Characters of a metric's name and of a tag's value, and metrics in a request, that MLflow takes."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Some of the generated texts: a table.

    Attributes:
        kind: ``rollouts`` or ``validation``.
        columns: their names.
        rows: a value for each column.
    """

    kind: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class TrackedStep:
    """A committed step.

    Attributes:
        step: 1, 2, …; of what was measured after the last step, its number again.
        metrics: as the ledger has them; of a measurement, those of the validation alone.
        ended_unix_nano: when it was committed.
        samples: tables of what it generated, where the run writes that down.
    """

    step: int
    metrics: Mapping[str, float]
    ended_unix_nano: int
    samples: Sequence[Samples] = ()


class Tracker(Protocol):
    """A place for curves. All its methods are called by one thread of its own, and may raise or take their time."""

    @property
    def name(self) -> str:
        """Names it and its past steps among the trackers of a run."""
        ...

    @property
    def package(self) -> str:
        """The library that it needs; the extra of this distribution that brings it is called as the tracker is."""
        ...

    def open(self, run_id: str, made_with: Mapping[str, str], after_step: int) -> None:
        """Begin a run, or go on with one whose steps up to ``after_step`` have been logged."""
        ...

    def log(self, step: TrackedStep) -> None:
        """Take in the next step."""
        ...

    def close(self) -> None:
        """Write out the rest. It may be opened again."""
        ...


@dataclass(slots=True)
class TensorBoard:
    """Event files in ``<folder>/<run_id>``: ``tensorboard --logdir FOLDER``."""

    folder: str | Path = "tensorboard"
    name: str = field(default="tensorboard", init=False)
    package: str = field(default="tensorboard", init=False, repr=False)
    _writer: Any = field(default=None, init=False, repr=False)

    def open(self, run_id: str, made_with: Mapping[str, str], after_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(
            str(Path(self.folder).expanduser() / run_id), purge_step=after_step + 1 if after_step else None
        )
        if not after_step:
            self._writer.add_text("made with", _table(("setting", "value"), [*made_with.items()]), 0)

    def log(self, step: TrackedStep) -> None:
        for name, value in step.metrics.items():
            self._writer.add_scalar(
                name, value, step.step, walltime=step.ended_unix_nano / NANO, new_style=True, double_precision=True
            )
        for samples in step.samples:
            self._writer.add_text(f"samples/{samples.kind}", _table(samples.columns, samples.rows), step.step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


@dataclass(slots=True)
class Wandb:
    """Weights & Biases. The run's id there is its id here, so that a run that goes on continues its curves."""

    project: str = "lightstream"
    mode: Literal["online", "offline"] | None = None
    folder: str | Path | None = None
    name: str = field(default="wandb", init=False)
    package: str = field(default="wandb", init=False, repr=False)
    _run: Any = field(default=None, init=False, repr=False)

    def open(self, run_id: str, made_with: Mapping[str, str], after_step: int) -> None:
        import wandb

        self._run = wandb.init(
            project=self.project,
            id=run_id,
            name=run_id,
            config=dict(made_with),
            mode=self.mode,
            dir=None if self.folder is None else str(self.folder),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True),
        )
        self._run.define_metric("*", step_metric="step")

    def log(self, step: TrackedStep) -> None:
        import wandb

        tables = {
            f"samples/{samples.kind}": wandb.Table(list(samples.columns), [list(row) for row in samples.rows])
            for samples in step.samples
        }
        self._run.log({**step.metrics, **tables, "step": step.step})

    def close(self) -> None:
        self._run.finish()


@dataclass(slots=True)
class MLflow:
    """MLflow. The run there has the tag ``lightstream.run_id``.

    ``@`` in a metric's name becomes ``_at_``. Other characters that MLflow refuses become ``_``, and then the name ends
    with a hash of the real one, so that two names stay two. A metric that MLflow refuses all the same is named in the
    log, and the others are kept.
    """

    tracking_uri: str | None = None
    experiment: str = "lightstream"
    name: str = field(default="mlflow", init=False)
    package: str = field(default="mlflow", init=False, repr=False)
    _client: Any = field(default=None, init=False, repr=False)
    _run: str = field(default="", init=False, repr=False)

    def open(self, run_id: str, made_with: Mapping[str, str], after_step: int) -> None:
        from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]  # of an extra

        self._client = client = MlflowClient(self.tracking_uri)
        found = client.get_experiment_by_name(self.experiment)
        experiment = client.create_experiment(self.experiment) if found is None else found.experiment_id
        runs = client.search_runs([experiment], f"tags.`lightstream.run_id` = '{run_id}'", max_results=1)
        if runs:
            self._run = runs[0].info.run_id
            client.update_run(self._run, status="RUNNING")
            return
        self._run = client.create_run(experiment, run_name=run_id, tags={"lightstream.run_id": run_id}).info.run_id
        for name, value in made_with.items():
            client.set_tag(self._run, _name_for_mlflow(f"lightstream.{name}"), value[:MLFLOW_TAG_MAX])

    def log(self, step: TrackedStep) -> None:
        from mlflow.entities import Metric  # pyright: ignore[reportMissingImports]  # of an extra

        at = int(step.ended_unix_nano * MILLI / NANO)
        metrics = [Metric(_name_for_mlflow(name), value, at, step.step) for name, value in step.metrics.items()]
        for first in range(0, len(metrics), MLFLOW_BATCH_MAX):
            self._log_batch(metrics[first : first + MLFLOW_BATCH_MAX])
        for samples in step.samples:
            rows = dict(zip(samples.columns, map(list, zip(*samples.rows, strict=True)), strict=True))
            self._client.log_table(self._run, rows, f"samples/{samples.kind}/{step.step}.json")

    def close(self) -> None:
        self._client.set_terminated(self._run)

    def _log_batch(self, metrics: Sequence[Any]) -> None:
        """Log metrics together; where one of them is refused, each alone."""
        from mlflow.exceptions import MlflowException  # pyright: ignore[reportMissingImports]  # of an extra

        try:
            self._client.log_batch(self._run, metrics=metrics, synchronous=True)
        except MlflowException as error:
            if error.error_code != "INVALID_PARAMETER_VALUE":
                raise
            if len(metrics) == 1:
                logger.warning("MLflow refuses the metric %s: %s", metrics[0].key, error)
                return
            for metric in metrics:
                self._log_batch([metric])


@dataclass(slots=True)
class Trackio:
    """Trackio: a SQLite file on this machine, unless a ``space_id`` names a space."""

    project: str = "lightstream"
    space_id: str | None = None
    name: str = field(default="trackio", init=False)
    package: str = field(default="trackio", init=False, repr=False)
    _run: Any = field(default=None, init=False, repr=False)

    def open(self, run_id: str, made_with: Mapping[str, str], after_step: int) -> None:
        import trackio  # pyright: ignore[reportMissingImports]  # of an extra

        self._run = trackio.init(
            self.project, name=run_id, space_id=self.space_id, config=dict(made_with), resume="allow", embed=False
        )

    def log(self, step: TrackedStep) -> None:
        self._run.log(dict(step.metrics), step=step.step)

    def close(self) -> None:
        self._run.finish()


def _name_for_mlflow(name: str) -> str:
    """A name that MLflow takes, which reads it as a path too; the same at each step, and another for each name."""
    plain = name.replace("@", "_at_")
    parts = re.sub(r"[^\w./ -]", "_", plain, flags=re.ASCII).split("/")
    fit = "/".join(part if part.strip(".") else part.replace(".", "_") or "_" for part in parts)
    if fit == plain and len(fit) <= MLFLOW_NAME_MAX:
        return fit
    ending = f"-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:8]}"
    return fit[: MLFLOW_NAME_MAX - len(ending)] + ending


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table in Markdown."""

    def line(values: Sequence[Any]) -> str:
        return "| " + " | ".join(str(value).replace("|", "\\|").replace("\n", "⏎") for value in values) + " |"

    return "\n".join([line(columns), line(["---"] * len(columns)), *map(line, rows)])
