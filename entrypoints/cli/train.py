"""``lightstream train``: an agent, a file of tasks and an algorithm, without a program around them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError

from .agents import load_agent, load_named, name_of_file
from .environments import name_of_environment, no_options_without_environment, only_environment
from .load import needs
from .option_text import option


@dataclass(frozen=True, slots=True)
class Learners:
    """The agent to train, and its tasks.

    Attributes:
        name: the run's default name.
        agent: as ``Trainer.fit`` takes it.
        train, validation: tasks.
    """

    name: str
    agent: Any
    train: Any
    validation: Any


def learners_of(
    agent: str | None, tasks: Path | None, validation: Path | None, env: str | None, env_options: Sequence[str]
) -> Learners:
    """An agent with files of tasks, or an environment.

    Raises:
        SettingsError: there are both or neither, or one of them is none.
    """
    if env is not None:
        environment = only_environment(env, env_options, agent=agent, tasks=tasks, validation=validation)
        return Learners(name_of_environment(env), environment, environment.train, environment.validation)
    no_options_without_environment(env_options)
    if agent is None or tasks is None:
        raise SettingsError(
            "no agent is named." if agent is None else "no file of tasks is named.",
            next_step="Name FILE.py:agent and --tasks FILE, or an environment with --env.",
        )
    checked = None if validation is None else read_tasks(validation)
    return Learners(name_of_file(agent), load_agent(agent), read_tasks(tasks), checked)


def run_train(
    settings: Settings,
    learners: Learners,
    *,
    algorithm: str,
    options: Sequence[str],
    config: Path | None,
    run_id: str | None,
    runners: int,
    concurrency: int,
    seed: int,
    track: Sequence[str],
    take_over: bool,
) -> None:
    """Train until the algorithm is done; the same command goes on after the last committed step.

    Raises:
        SettingsError: the agent, a file, the algorithm or an option of it is none; nothing was started.
        TrainingError, ServiceUnavailableError: as ``Trainer.fit``.
    """
    with needs("train", "view"):
        for package in ("duckdb", "httpx") if ":" in algorithm else ("duckdb", "httpx", "torch", "verl"):
            if find_spec(package) is None:  # told now, as the run would ask for it only later
                raise ModuleNotFoundError(name=package)
        from lightstream.trainers import Trainer
    name = run_id or learners.name
    trainer = Trainer(
        algorithm=algorithm_of(algorithm, options, config),
        n_runners=runners,
        runner_concurrency=concurrency,
        settings=settings,
        trainer_id=name,
        seed=seed,
        trackers=[_tracker(tracker) for tracker in track],
        take_over=take_over,
    )
    trainer.fit(learners.agent, learners.train, learners.validation)


def algorithm_of(name: str, options: Sequence[str], config: Path | None) -> Any:
    """The algorithm of this name: one of VERL's advantages with options of VERL, or the user's own.

    Args:
        name: ``grpo``, ``rloo``, …, or ``FILE.py:name``.
        options: ``name=value`` each, the value as JSON, or as text where it is none.
        config: verl's own configuration, YAML or JSON.

    Raises:
        SettingsError: there is no such algorithm or option, or the configuration cannot be read.
    """
    from lightstream.trainers import VERL
    from lightstream.trainers.rollouts.batch.scores import ADVANTAGES
    from lightstream.trainers.run.option import declared

    if ":" in name:
        if options or config is not None:
            raise SettingsError(f"options are of VERL, and {name!r} is an algorithm of its own.")
        return load_named(name)
    given: dict[str, Any] = {} if name == "verl" else {"advantage": name}
    given |= dict(option(text) for text in options)
    known = declared(VERL)
    for name_given in given:
        if name_given not in known:
            nearest = difflib.get_close_matches(name_given, known, n=1, cutoff=0.0)[0]
            raise SettingsError(
                f"VERL has no option {name_given!r} (the nearest is {nearest}).",
                next_step="docs/options.md lists them all.",
            )
    if name not in ADVANTAGES and not (name == "verl" and config is not None):
        raise SettingsError(
            f"there is no algorithm {name!r}.",
            next_step=f"There are {', '.join(ADVANTAGES)}; `verl` with --config; or name one of yours: FILE.py:name.",
        )
    try:
        return VERL(**given, config=_configuration(config))
    except TypeError as error:  # a text where a number should be
        raise SettingsError(f"VERL does not take these options: {error}.", next_step="See docs/options.md.") from error


def options_given(arguments: Sequence[str]) -> list[str]:
    """Options of VERL as flags (``--learning-rate 1e-5``, ``--learning-rate=1e-5``), each as ``learning_rate=1e-5``.

    Raises:
        SettingsError: an argument is no flag, or has no value.
    """
    options: list[str] = []
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if not name.startswith("--") or not (equals or rest):
            raise SettingsError(
                f"{name!r} is no option with a value.",
                next_step="`lightstream train --help` lists the command's; VERL's are in docs/options.md.",
            )
        options.append(f"{name[2:].replace('-', '_')}={value if equals else rest.pop(0)}")
    return options


def read_tasks(file: Path) -> list[Any]:
    """The tasks of a file: JSON lines, or one JSON list.

    Raises:
        SettingsError: it cannot be read, has no task, or a line is no JSON; the line's number is in the message.
    """
    text = _text(file)
    if file.suffix == ".json":
        try:
            tasks = json.loads(text)
        except ValueError as error:
            raise SettingsError(f"{file} is no JSON: {error}.") from error
        if not isinstance(tasks, list):
            raise SettingsError(f"{file} has no list of tasks.", next_step="JSON lines, one task each, are taken too.")
    else:
        tasks = []
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            try:
                tasks.append(json.loads(line))
            except ValueError as error:
                raise SettingsError(
                    f"line {number} of {file} is no JSON: {error}.", next_step="Each line is one task, as JSON."
                ) from error
    if not tasks:
        raise SettingsError(f"{file} has no tasks.")
    return tasks


def _tracker(name: str) -> Any:
    from lightstream.trainers import MLflow, TensorBoard, Trackio, Wandb

    kinds = {"mlflow": MLflow, "tensorboard": TensorBoard, "trackio": Trackio, "wandb": Wandb}
    if name not in kinds:
        raise SettingsError(f"there is no tracker {name!r}.", next_step=f"There are {', '.join(kinds)}.")
    return kinds[name]()


def _configuration(file: Path | None) -> Mapping[str, Any] | None:
    if file is None:
        return None
    from omegaconf import OmegaConf  # comes with verl
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError  # type: ignore[import-untyped]  # it has no types

    try:
        config: Any = OmegaConf.to_container(OmegaConf.create(_text(file)), resolve=True)
    except (YAMLError, OmegaConfBaseException) as error:
        raise SettingsError(f"{file} is no configuration: {error}.") from error
    if not isinstance(config, dict):
        raise SettingsError(f"{file} is no configuration: it has no keys.")
    return config


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} cannot be read: {error}.") from error
