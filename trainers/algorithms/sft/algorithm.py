"""SFT: the engine of VERL on sequences that are there already, with cross-entropy as the loss."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lightstream.runtime.disk import DiskRoom
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError, TrainingError
from lightstream.schemas.records import ResourcesRecord

from ...engines.verl.images import image_reader
from ...engines.verl.initial import write_initial_model
from ...loop.policy import begin, latest, policy_resources
from ...loop.protocols import Engine, PolicyServers
from ...loop.steps import Steps
from ...loop.validation import measure_last, validates_before, validation
from ...rollouts.batch import BatchRows, build_arrays
from ...run.checkpoint import CheckpointFolder
from ...run.identity import check_model
from ...servers.following import check_proxy
from ..context import AlgorithmContext
from ..recorded import read_recording
from ..verl import VERL
from .sequences import Choice, conversations, from_view, identity_of, rows_of

NOBODY = -2
"""No token is of this version: the actor is compared with no sampler."""

SEQUENCES = "sequences"

_TAKEN = """
    model steps epochs learning_rate weight_decay lr_warmup_steps gradient_norm_max lr_schedule learning_rate_min_ratio
    loss_normalisation lora_rank lora_alpha lora_target_modules tokens_per_micro_batch device dtype threads
    gradient_checkpointing processes engine warm_up prompt_tokens_max response_tokens_max keep_checkpoints
    checkpoint_every resource_name served_model temperature sampling_parameters validate_every validation_samples
    validation_sampling_parameters validation_data_dir servers
"""
TAKEN = tuple(_TAKEN.split())
"""Options of VERL's that mean something here; the others are about rewards and rollouts."""

FIXED: Mapping[str, Any] = {"policy_loss": "gpg", "advantage": "reinforce"}
"""GPG's objective is the log-probability times the advantage, which is 1 for every token: cross-entropy."""


@dataclass(frozen=True, kw_only=True)
class SFT(VERL):
    """Supervised fine-tuning: on trajectories, by the token ids that were sampled, or on conversations as text.

    Each sequence is a rollout's merged calls; every token that the policy sampled is learned, prompts and what tools
    said are not. Rejection sampling is ``reward_min``, best of n ``best_of``. Runs in a Trainer, without tasks and
    agent where nothing is validated: ``Trainer(algorithm=SFT(...), n_runners=0).fit(None, [])``. Steps follow from
    the sequences and the seed alone: a restart makes those after the last checkpoint again.

    Attributes:
        where: which trajectories of the log, a condition on the view ``trajectories`` in SQL.
        recording: a file of ``lightstream export recording``, in place of the log.
        messages: a file of conversations (``lightstream export chat``), in place of both.
        reward_min, best_of: which of these: see :class:`Choice`.
        epochs: passes over the sequences, each in another order; ``steps`` in their place, with ``epochs=None``.
        sequences_per_step: how many make an update.
        publish_every: publish the weights every so many steps; 0: after the last alone.
        learning_rate, lora_rank, …: options of model and arithmetic are VERL's; others of VERL's are refused.
    """

    needs_tasks: ClassVar[bool] = False

    epochs: int | None = 1
    learning_rate: float = 1e-5
    where: str = "final"
    recording: str | Path | None = None
    messages: str | Path | None = None
    reward_min: float | None = None
    best_of: int | None = None
    sequences_per_step: int = 32
    publish_every: int = 0

    def __post_init__(self, config: Mapping[str, Any] | None) -> None:
        plain = VERL(model=".", steps=1)
        others = [
            f.name
            for f in fields(VERL)
            if f.name not in TAKEN and getattr(self, f.name) not in (getattr(plain, f.name), FIXED.get(f.name))
        ]
        if others or config is not None:
            raise SettingsError(
                f"SFT has no {', '.join(others) or 'config'}: it learns given texts, without rewards and rollouts.",
                next_step=f"Of VERL's options it takes {', '.join(TAKEN)}.",
            )
        if self.sequences_per_step < 1 or self.publish_every < 0 or (self.best_of is not None and self.best_of < 1):
            raise SettingsError(
                f"SFT's sequences_per_step is {self.sequences_per_step} (1 or more), publish_every "
                f"{self.publish_every} (0 or more), best_of {self.best_of} (1 or more)."
            )
        if self.recording is not None and self.messages is not None:
            raise SettingsError("SFT has a recording and messages; it learns from one of them.")
        for name, value in FIXED.items():
            object.__setattr__(self, name, value)
        VERL.__post_init__(self, None)

    def check(self, settings: Settings) -> None:
        check_model(self.model)
        if self.validate_every or self.servers is not None:
            super().check(settings)
        check_proxy(settings)

    def made_with(self) -> dict[str, str]:
        kept = ("model", "lora_rank", "options")
        made = {name: value for name, value in super().made_with().items() if name in kept}
        return made | {"algorithm": "SFT", "epochs": str(self.epochs), "batch": str(self.sequences_per_step)}

    def of_tasks(self, tasks: int) -> SFT:
        return self

    def run(self, context: AlgorithmContext) -> None:
        rows = self.sequences(context.settings)
        made_of = identity_of(rows)
        if (before := context.history.made_with.get(SEQUENCES, made_of)) != made_of:
            raise TrainingError(
                f"run {context.run_id!r} was begun with {before}, and there are {made_of} now.",
                next_step="Name a condition that later trajectories do not meet, or a recording; or start a new run.",
            )
        context = context.on(run=replace(context.run, made_with={**context.made_with, SEQUENCES: made_of}))
        steps = self.steps or (self.epochs or 1) * math.ceil(len(rows.rows) / self.sequences_per_step)
        options = replace(self, steps=steps, epochs=None)
        if context.resources is None:
            context.progress.say(f"Loading {self.model} …")
        begin(self, context.steps, context.servers, partial(write_initial_model, self, seed=context.seed))
        with self._servers(context) as servers:
            _Passes(options, context.steps, servers, rows).run()

    def sequences(self, settings: Settings) -> BatchRows:
        """The sequences that are learned.

        Raises:
            TrainingError: a file cannot be read, or nothing is left of it.
            QueryError, ServiceUnavailableError: the view does not answer.
        """
        if self.messages is not None:
            from transformers import AutoTokenizer

            tokenizer: Any = AutoTokenizer.from_pretrained(self.model)
            trajectories = conversations(Path(self.messages).expanduser(), tokenizer)
        elif self.recording is not None:
            trajectories = read_recording(Path(self.recording).expanduser())
        else:
            trajectories = from_view(settings, self.where)
        choice = Choice(
            reward_min=self.reward_min,
            best_of=self.best_of,
            prompt_tokens_max=self.prompt_tokens_max,
            response_tokens_max=self.response_tokens_max,
        )
        return rows_of(trajectories, choice, image_reader(self.model))


class _Passes:
    """The passes of one run over its sequences."""

    def __init__(self, options: SFT, steps: Steps, servers: PolicyServers, rows: BatchRows) -> None:
        self._options = options
        self._steps = steps
        self._servers = servers
        self._rows = rows
        self._run = run = steps.run
        folder = run.settings.data_dir.absolute() / "recovery" / run.run_id
        self._folder = CheckpointFolder(folder, DiskRoom(run.settings, folder))

    def run(self) -> None:
        """Make those that are not made."""
        options, run = self._options, self._run
        self._swap()
        if run.last_step >= options.steps:
            measure_last(options, self._steps)
            run.progress.say(f"Nothing left to do: all {options.steps} steps of run {run.run_id!r} are made.")
            return
        engine, saved = self._restore()
        try:
            for step in range(saved + 1, options.steps + 1):
                if step - 1 - saved >= options.checkpoint_every:
                    saved = step - 1
                    self._folder.keep_only([self._folder.write(saved, engine.save)])
                if step <= run.last_step:
                    self._update(engine, step)
                    continue
                self._make(engine, step)
        finally:
            engine.close()
        measure_last(options, self._steps)

    def _make(self, engine: Engine, step: int) -> None:
        options, run, steps = self._options, self._run, self._steps
        started = run.now()
        metrics = validation(options, steps.rollouts) if validates_before(options, run, step) else {}
        metrics |= self._update(engine, step)
        resources: ResourcesRecord | None = None
        if step == options.steps or (options.publish_every and step % options.publish_every == 0):
            checkpoint = run.checkpoints.write(step, engine.save_weights)
            resources = policy_resources(options, steps, self._servers, latest(run).version + 1, checkpoint)
        steps.commit(step, [], started_unix_nano=started, metrics=metrics, resources=resources, steps=options.steps)
        run.history.updates.clear()  # they are made again from the sequences
        if resources is not None:
            self._swap()
            steps.keep_checkpoints(options.keep_checkpoints, besides=(0,))

    def _update(self, engine: Engine, step: int) -> dict[str, float]:
        arrays = build_arrays(self._batch(step))
        arrays = replace(arrays, response_logprobs=np.nan_to_num(arrays.response_logprobs))
        mark = time.perf_counter()
        metrics = engine.update(arrays, policy_version=NOBODY, seed=(self._run.seed, step))
        seconds = time.perf_counter() - mark
        kept = ("grad_norm", "lr", "tokens/computed", "tokens/padded")
        return {name: metrics[name] for name in kept if name in metrics} | {
            "sft/loss": metrics["actor/pg_loss"],
            "sft/logprob_mean": -metrics["actor/entropy"],
            "batch/rows": float(len(arrays)),
            "batch/tokens": float(arrays.tokens),
            "batch/response_tokens": float(arrays.response_mask.sum()),
            "seconds/update": seconds,
            "tokens_per_second/update": metrics["tokens/computed"] / seconds,
        }

    def _batch(self, step: int) -> BatchRows:
        """The sequences of a step: each pass has all of them, in an order of its own."""
        size, rows = self._options.sequences_per_step, self._rows
        epoch, place = divmod(step - 1, math.ceil(len(rows.rows) / size))
        order = np.random.default_rng([self._run.seed, epoch]).permutation(len(rows.rows))
        chosen = [rows.rows[i] for i in order[place * size : (place + 1) * size].tolist()]
        return BatchRows(rows=chosen, scores=rows.scores, groups=rows.groups, rollout_ids=rows.rollout_ids)

    def _restore(self) -> tuple[Engine, int]:
        """The engine of the last checkpoint, and its step."""
        first = self._run.folder_of(self._run.history.checkpoints[0])
        saved = {
            int(folder.name.split("-")[1]): folder
            for folder in (self._folder.root.iterdir() if self._folder.root.is_dir() else ())
            if not folder.name.startswith(".")
        }
        step, folder = max((s for s in saved.items() if s[0] <= self._run.last_step), default=(0, first))
        engine = self._options.new_engine(folder, first)
        engine.saved_in(first)
        return engine, step

    def _swap(self) -> None:
        if self._options.validate_every or self._options.servers is not None:
            self._servers.load(latest(self._run))
