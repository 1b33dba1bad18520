"""Folders of tasks in Harbor's form: an instruction, files to work on, tests that write the reward, time limits.

    TASK/instruction.md       the agent's task
    TASK/task.toml            [agent] timeout_sec, [verifier] timeout_sec (optional)
    TASK/environment/         files of the agent's working folder (optional; a Dockerfile is not built)
    TASK/tests/test.sh        run after the agent; writes logs/verifier/reward.txt or reward.json

Tasks run as processes, each attempt in a folder of its own. Tests name folders of a container: in their copies
``/app``, ``/tests`` and ``/logs`` become the attempt's folders.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightstream.producers import CommandAgent, CommandLimits
from lightstream.producers.agent import RolloutResult
from lightstream.producers.commands.process import CommandResult, run_command
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.types import LLM, AttemptedRollout, NamedResources

from ..chat import Tool, converse, opening
from ..environment import Environment, EnvironmentFailedError, checked_reward
from ..sets import Task, TaskSet

LIMIT_S = 600.0
"""Of agent and tests each, where ``task.toml`` has none."""
REWARD_BYTES_MAX = 1024 * 1024
OUTPUT_SHOWN_BYTES = 20_000
REWARDS = ("reward.json", "reward.txt")
OF_A_CONTAINER = re.compile(rb"(?<![\w./-])/(app|tests|logs)(?=[/\s\"';:)]|$)", re.MULTILINE)
NOT_COPIED = ("Dockerfile", "docker-compose.yaml", "docker-compose.yml", ".dockerignore")


def folder_environment(
    path: str | Path,
    *,
    command: str | None = None,
    turns_max: int = 20,
    system: str = "",
    limits: CommandLimits | None = None,
    settings: Settings | None = None,
) -> Environment:
    """Task folders, one or many in a folder. Runners need the same folder, at the same place.

    Args:
        path: a task folder, or a folder of them. Folders named ``train`` and ``validation`` in it are splits.
        command: the agent, run by the shell in the working folder, with the variables that a command's agent has (see
            ``CommandAgent``); the instruction is in ``../instruction.md`` and standard input has the task. By default
            the model itself, with a tool ``bash``; its last text is in ``answer.txt``.
        turns_max: answers of the model at most, without a command.
        system: what the model is told first, without a command.
        limits: of each process.
        settings: name the data folder; by default the environment's.

    Raises:
        SettingsError: there is no task; or one has no instruction or tests, no numbers as time limits, or a path that
            leads out of its folder.
    """
    root = Path(path).expanduser().absolute()
    folders = sorted({file.parent for file in root.rglob("instruction.md")})
    if not folders:
        raise SettingsError(f"{root} has no task folder.", next_step="A task folder has instruction.md and tests/.")
    tasks = [_task(root, folder) for folder in folders]
    name = f"folder:{root.name}"
    return Environment(TaskSet(name, tasks), FolderAgent(root, command, turns_max, system, limits, settings))


class FolderAgent(CommandAgent):
    """Runs an agent on a task folder, and its tests after it, each as processes that end with their time."""

    def __init__(
        self,
        root: Path,
        program: str | None,
        turns_max: int,
        system: str,
        limits: CommandLimits | None,
        settings: Settings | None,
    ) -> None:
        super().__init__(program or "true", limits=limits, settings=settings)
        self._root = root
        self._program = program
        self._turns_max = turns_max
        self._system = system

    async def _run(
        self, folder: Path, task: Any, resources: NamedResources, rollout: AttemptedRollout
    ) -> RolloutResult:
        source = await asyncio.to_thread(_checked, self._root, task)
        await asyncio.to_thread(_lay_out, source, folder)
        content = json.dumps(task).encode()
        (folder / "task.json").write_bytes(content)
        environment = await asyncio.to_thread(self._environment, folder, content, resources, rollout)
        await _within(task["agent_s"], "the agent", self._work(folder, task, resources, rollout, environment, content))
        await asyncio.to_thread(_lay_out_tests, source, folder)
        environment |= {name: str(folder / place) for name, place in _PLACES.items()}
        result = await _within(
            task["tests_s"],
            "the tests",
            self._command("bash ../tests/test.sh", folder, environment, b"", output="tests.txt"),
        )
        return _reward(folder / "logs" / "verifier", result)

    async def _work(
        self,
        folder: Path,
        task: Mapping[str, Any],
        resources: NamedResources,
        rollout: AttemptedRollout,
        environment: dict[str, str],
        content: bytes,
    ) -> None:
        if self._program is not None:
            result = await self._command(self._program, folder, environment, content)
            if result.status != 0:
                last = (result.error_tail or result.output)[-2000:].decode("utf-8", "replace").strip()
                raise EnvironmentFailedError(f"the agent's command ended with status {result.status}: {last}.")
            return
        if not any(isinstance(resource, LLM) for resource in resources.values()):
            raise EnvironmentFailedError("the rollout has no model among its resources.")
        llm = LLM(
            endpoint=environment["OPENAI_BASE_URL"],
            model=environment["LIGHTSTREAM_MODEL"],
            api_key=environment["OPENAI_API_KEY"],
            sampling_parameters=json.loads(environment["LIGHTSTREAM_SAMPLING"]),
        )
        keyless = {name: value for name, value in environment.items() if not name.endswith("_API_KEY")}

        async def bash(arguments: Mapping[str, Any]) -> str:
            result = await run_command(
                str(arguments.get("command", "")),
                folder=folder / "work",
                environment=keyless,
                content=b"",
                limits=self._limits,
            )
            shown = result.output[-OUTPUT_SHOWN_BYTES:] + result.error_tail
            return f"{shown.decode('utf-8', 'replace')}\n(exit status {result.status})"

        tool = Tool(
            "bash",
            "Run a shell command in the working folder; its output and exit status.",
            {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
            bash,
        )
        text = await converse(llm, opening(task["instruction"], self._system), [tool], turns_max=self._turns_max)
        (folder / "work" / "answer.txt").write_text(text, "utf-8", "replace")


_PLACES = {"APP_DIR": "work", "TESTS_DIR": "tests", "LOGS_DIR": "logs"}


async def _within(limit_s: float, what: str, work: Any) -> Any:
    try:
        async with asyncio.timeout(limit_s):
            return await work
    except TimeoutError as error:
        raise EnvironmentFailedError(
            f"{what} took longer than {limit_s:g} s, the task's limit, and was ended."
        ) from error


def _task(root: Path, folder: Path) -> Task:
    _check_paths(folder)
    if not (folder / "tests" / "test.sh").is_file():
        raise SettingsError(f"{folder} has no tests/test.sh.", next_step="It writes logs/verifier/reward.txt.")
    place = folder.relative_to(root).as_posix()
    first = place.split("/")[0]
    try:
        instruction = (folder / "instruction.md").read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{folder / 'instruction.md'} cannot be read: {error}.") from error
    task = {
        "folder": place,
        "instruction": instruction,
        "agent_s": _limit(folder, "agent"),
        "tests_s": _limit(folder, "verifier"),
        "digest": _digest(folder),
    }
    split = first if place != first and first in ("train", "validation", "val", "test") else ""
    return Task(place, task, split=split)


def _limit(folder: Path, table: str) -> float:
    try:
        config: dict[str, Any] = tomllib.loads((folder / "task.toml").read_text("utf-8"))
    except FileNotFoundError:
        return LIMIT_S
    except (OSError, ValueError) as error:
        raise SettingsError(f"{folder / 'task.toml'} cannot be read: {error}.") from error
    part = config.get(table, {})
    value = part.get("timeout_sec", LIMIT_S) if isinstance(part, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise SettingsError(
            f"timeout_sec of [{table}] in {folder / 'task.toml'} is {value!r}.", next_step="Give seconds above 0."
        )
    return float(value)


def _check_paths(folder: Path) -> None:
    """Refuse a folder in which anything leads out of it, or is no file.

    Raises:
        SettingsError: names the path.
    """
    real = folder.resolve()
    for path in sorted(folder.rglob("*")):
        if not path.resolve().is_relative_to(real):
            raise SettingsError(
                f"{path} leads out of its task folder, to {path.resolve()}.", next_step="Copy the file into the folder."
            )
        if not path.is_file() and not path.is_dir():
            raise SettingsError(f"{path} is neither a file nor a folder.", next_step="Remove it.")


def _checked(root: Path, task: Any) -> Path:
    """The folder of a task, which came over the log.

    Raises:
        EnvironmentFailedError: it is not in the Runner's folder, or is another than the run was begun with.
    """
    place = task.get("folder") if isinstance(task, dict) else None
    if not isinstance(place, str):
        raise EnvironmentFailedError(f"the task {task!r:.200} names no folder.")
    folder = root / place
    if not folder.resolve().is_relative_to(root.resolve()):
        raise EnvironmentFailedError(f"the task's folder {place!r} leads out of {root}.")
    if not (folder / "instruction.md").is_file():
        raise EnvironmentFailedError(f"this Runner has no task folder {folder}.", next_step="Copy it there.")
    try:
        _check_paths(folder)
    except SettingsError as error:
        raise EnvironmentFailedError(error.message, next_step=error.next_step) from error
    if _digest(folder) != task.get("digest"):
        raise EnvironmentFailedError(
            f"the task folder {folder} was changed since the run was begun.",
            next_step="Set it back, or start a run of another name.",
        )
    return folder


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _lay_out(source: Path, folder: Path) -> None:
    if (source / "environment").is_dir():
        shutil.copytree(
            source / "environment", folder / "work", dirs_exist_ok=True, ignore=shutil.ignore_patterns(*NOT_COPIED)
        )
    shutil.copy(source / "instruction.md", folder / "instruction.md")


def _lay_out_tests(source: Path, folder: Path) -> None:
    """Put the tests there once the agent has ended, so that it has not seen or changed them."""
    for name in ("tests", "logs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    shutil.copytree(source / "tests", folder / "tests")
    (folder / "logs" / "verifier").mkdir(parents=True)
    places = {b"app": folder / "work", b"tests": folder / "tests", b"logs": folder / "logs"}
    for file in (folder / "tests").rglob("*"):
        if file.suffix in (".sh", ".py"):
            content = OF_A_CONTAINER.sub(lambda found: str(places[found[1]]).encode(), file.read_bytes())
            file.write_bytes(content)


def _reward(logs: Path, result: CommandResult) -> RolloutResult:
    """What the tests wrote.

    Raises:
        EnvironmentFailedError: it is no reward.
    """
    for name in REWARDS:
        file = logs / name
        if not file.is_file() or file.is_symlink():
            continue
        with file.open("rb") as stream:
            text = stream.read(REWARD_BYTES_MAX).decode("utf-8", "replace").strip()
        try:
            value: Any = json.loads(text)
        except ValueError as error:
            raise EnvironmentFailedError(f"the tests wrote {text!r:.200} to {name}, and no number.") from error
        return checked_reward(value, f"{name} of the tests")
    last = (result.error_tail or result.output)[-2000:].decode("utf-8", "replace").strip()
    raise EnvironmentFailedError(
        f"the tests wrote no reward (exit status {result.status}); they last wrote: {last or 'nothing'}.",
        next_step="test.sh writes a number to logs/verifier/reward.txt.",
    )
