"""Folders of tasks in Harbor's form: an instruction, files to work on, tests that write the reward, time limits.

    TASK/instruction.md       the agent's task
    TASK/task.toml            [agent] timeout_sec, [verifier] timeout_sec (optional)
    TASK/environment/         files of the agent's working folder (optional; a Dockerfile is not built)
    TASK/tests/test.sh        run after the agent; writes logs/verifier/reward.txt or reward.json

Tasks run as processes, each attempt in a folder of its own. Instruction and tests name folders of a container:
in their copies ``/app``, ``/tests`` and ``/logs`` become the attempt's folders.
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
from typing import Any, cast

from lightstream.producers import CommandAgent, CommandLimits
from lightstream.producers.agent import RolloutResult
from lightstream.producers.commands.agent import Keep
from lightstream.producers.commands.files import clear, write_over
from lightstream.producers.commands.process import CommandResult, run_command
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.types import LLM, AttemptedRollout, NamedResources

from ..chat import Tool, converse, opening
from ..environment import Environment, EnvironmentFailedError, checked_reward
from ..sets import Task, TaskSet

REWARD_BYTES_MAX = 1024 * 1024
OUTPUT_SHOWN_BYTES = 20_000
REWARDS = ("reward.json", "reward.txt")
OF_A_CONTAINER = re.compile(
    r"""
    (?: (?<! [\w./)}*"'-] )                  # not within a path: "$ROOT"/app, ${ROOT}/app, $(pwd)/app, */app
      | (?<= [\s=(\[,{:+] ["'] )             # but after a quote that opens: cat "/app/x"
      | (?<= [\s=(\[,{:+] [fFrRbBuU] ["'] )  # as in Python: f"/app/{name}"
      | (?<= ^ ["'] ) | (?<= :- )            # "/app/run" as a command, ${X:-/app}
    )
    /(app|tests|logs)
    (?= [/\s"';:)}&|,\]`<>] | \.(?:\s|$) | $ )
    """,
    re.MULTILINE | re.VERBOSE,
)
PLAIN_PATH = re.compile(r"[\w./@%+=:,-]+")
OF_A_SHELL = frozenset(
    {
        *("HOME", "LANG", "PATH", "TMPDIR"),
        *("LIGHTSTREAM_ATTEMPT_ID", "LIGHTSTREAM_MODE", "LIGHTSTREAM_ROLLOUT_ID"),
        *("LIGHTSTREAM_TASK", "LIGHTSTREAM_TASK_FILE"),
    }
)
"""Variables of the model's shell and of the tests, which run its files: no secret, no model and no reward's address."""
NOT_COPIED = ("Dockerfile", "docker-compose.yaml", "docker-compose.yml", ".dockerignore")


def folder_environment(
    path: str | Path,
    *,
    command: str | None = None,
    turns_max: int = 20,
    system: str = "",
    keep: Keep = "failed",
    limits: CommandLimits | None = None,
    settings: Settings | None = None,
) -> Environment:
    """Task folders, one or many in a folder. Runners need the same folder, at the same place.

    Args:
        path: a task folder, or a folder of them. Folders named ``train`` and ``validation`` in it are splits; tasks
            elsewhere are of ``train``.
        command: the agent, run by the shell in the working folder. It has the variables of a ``CommandAgent`` but
            ``LIGHTSTREAM_REWARD_URL``, as the tests reward. The instruction is in ``../instruction.md``, and standard
            input has the task. By default the model itself, with a tool ``bash``; its last text is in ``answer.txt``.
        turns_max: answers of the model at most, without a command.
        system: what the model is told first, without a command.
        keep: of which attempts the folder stays: ``failed``, ``always`` or ``never``.
        limits: of each process, and of a task folder.
        settings: name the data folder; by default the environment's.

    Raises:
        SettingsError: there is no task; or one has no instruction or tests, no numbers as time limits, or a link, or
            more bytes than ``limits`` allow.
    """
    root = Path(path).expanduser().absolute()
    folders = sorted({file.parent for file in root.rglob("instruction.md")})
    if not folders:
        raise SettingsError(f"{root} has no task folder.", next_step="A task folder has instruction.md and tests/.")
    limits = limits or CommandLimits()
    tasks = [_task(root, folder, limits.folder_bytes_max) for folder in folders]
    agent = FolderAgent(root, command, turns_max, system, keep, limits, settings)
    return Environment(TaskSet(f"folder:{root.name}", tasks), agent)


class FolderAgent(CommandAgent):
    """Runs an agent on a task folder, and its tests after it, each as processes that end with their time."""

    def __init__(
        self,
        root: Path,
        program: str | None,
        turns_max: int,
        system: str,
        keep: Keep,
        limits: CommandLimits,
        settings: Settings | None,
    ) -> None:
        if program is not None and not isinstance(cast("Any", program), str):
            raise SettingsError(
                f"the option command is {program!r}, and no text.", next_step="Quote it: command='\"true\"'."
            )
        super().__init__(program or "true", keep=keep, limits=limits, settings=settings)
        data_folder = str(self._settings.data_dir.absolute())
        if not PLAIN_PATH.fullmatch(data_folder):
            raise SettingsError(
                f"the data folder {data_folder!r} has a blank or a sign that a shell reads, and tests name it.",
                next_step="Set LIGHTSTREAM_DATA_DIR to a folder without.",
            )
        self._root = root
        self._program = program
        self._turns_max = turns_max
        self._system = system

    async def _run(
        self, folder: Path, task: Any, resources: NamedResources, rollout: AttemptedRollout
    ) -> RolloutResult:
        source = await asyncio.to_thread(_checked, self._root, task, self._limits.folder_bytes_max)
        self._check_time(task, rollout)
        task = task | {"instruction": _of_attempt(str(task["instruction"]), folder)}
        await asyncio.to_thread(_lay_out, source, folder, task["instruction"])
        await asyncio.to_thread(_check_digest, source, task)
        content = json.dumps(task).encode()
        (folder / "task.json").write_bytes(content)
        environment = await asyncio.to_thread(self._environment, folder, content, resources, rollout)
        environment.pop("LIGHTSTREAM_REWARD_URL", None)  # the tests reward, and nobody else
        await _within(task["agent_s"], "the agent", self._work(folder, task, resources, rollout, environment, content))
        await asyncio.to_thread(_lay_out_tests, source, folder, task)
        environment = _of_a_shell(environment) | {name: str(folder / place) for name, place in _PLACES.items()}
        result = await _within(
            task["tests_s"],
            "the tests",
            self._command("bash ../tests/test.sh", folder, environment, b"", output="tests.txt"),
        )
        return _reward(folder / "logs" / "verifier", result)

    def _check_time(self, task: Mapping[str, Any], rollout: AttemptedRollout) -> None:
        limit_s = rollout.config.timeout_seconds or self._settings.rollout_timeout_s
        parts = {"the agent": task["agent_s"], "the tests": task["tests_s"]}
        given = {part: seconds for part, seconds in parts.items() if seconds is not None}
        if sum(given.values()) > limit_s:
            raise EnvironmentFailedError(
                f"the task allows {' and '.join(f'{seconds:g} s for {part}' for part, seconds in given.items())}, and "
                f"an attempt ends after {limit_s:g} s.",
                next_step="Raise LIGHTSTREAM_ROLLOUT_TIMEOUT_S, or lower timeout_sec in task.toml.",
            )

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
        variables = _of_a_shell(environment)

        async def bash(arguments: Mapping[str, Any]) -> str:
            result = await run_command(
                str(arguments.get("command", "")),
                folder=folder / "work",
                environment=variables,
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
        await asyncio.to_thread(_write_answer, folder, text)


_PLACES = {"APP_DIR": "work", "TESTS_DIR": "tests", "LOGS_DIR": "logs"}


async def _within(limit_s: float | None, what: str, work: Any) -> Any:
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            return await work
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise EnvironmentFailedError(
            f"{what} took longer than {limit_s:g} s, the task's limit, and was ended."
        ) from error


def _of_a_shell(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name in OF_A_SHELL}


def _write_answer(folder: Path, text: str) -> None:
    try:
        if (folder / "work").is_symlink():
            raise OSError("the working folder is a link")
        write_over(folder / "work" / "answer.txt", text.encode("utf-8", "replace"))
    except OSError as error:
        raise EnvironmentFailedError(f"the model's answer cannot be written to its working folder: {error}.") from error


def _task(root: Path, folder: Path, bytes_max: int) -> Task:
    _check_paths(folder, bytes_max)
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
    split = first if place != first and first in ("train", "validation", "val", "test") else "train"
    return Task(place, task, split=split)


def _limit(folder: Path, table: str) -> float | None:
    """The seconds of a part; ``None``: only the attempt's own limit ends it."""
    try:
        config: dict[str, Any] = tomllib.loads((folder / "task.toml").read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise SettingsError(f"{folder / 'task.toml'} cannot be read: {error}.") from error
    part: Any = config.get(table, {})
    if isinstance(part, dict) and "timeout_sec" not in part:
        return None
    value: Any = part["timeout_sec"] if isinstance(part, dict) else part
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise SettingsError(
            f"timeout_sec of [{table}] in {folder / 'task.toml'} is {value!r}.", next_step="Give seconds above 0."
        )
    return float(value)


def _check_paths(folder: Path, bytes_max: int) -> None:
    """Refuse a folder with a link in it, with anything that is no file, or with too many bytes.

    Raises:
        SettingsError: names the path.
    """
    size = 0
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise SettingsError(
                f"{path} is a link, to {path.readlink()}.", next_step="Copy the files into the task folder."
            )
        if not path.is_file() and not path.is_dir():
            raise SettingsError(f"{path} is neither a file nor a folder.", next_step="Remove it.")
        size += path.stat().st_size if path.is_file() else 0
    if size > bytes_max:
        raise SettingsError(
            f"the task folder {folder} has {size:,} bytes, and {bytes_max:,} are allowed.",
            next_step="Raise folder_bytes_max of limits, or take files out.",
        )


def _checked(root: Path, task: Any, bytes_max: int) -> Path:
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
        _check_paths(folder, bytes_max)
    except SettingsError as error:
        raise EnvironmentFailedError(error.message, next_step=error.next_step) from error
    _check_digest(folder, task)
    return folder


def _check_digest(folder: Path, task: Mapping[str, Any]) -> None:
    if _digest(folder) != task.get("digest"):
        raise EnvironmentFailedError(
            f"the task folder {folder} was changed since the run was begun.",
            next_step="Set it back, or start a run of another name.",
        )


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\0".encode())
    return digest.hexdigest()


def _of_attempt(text: str, folder: Path) -> str:
    """A text with the attempt's folders in place of a container's."""
    places = {"app": folder / "work", "tests": folder / "tests", "logs": folder / "logs"}
    return OF_A_CONTAINER.sub(lambda found: str(places[found[1]]), text)


def _lay_out(source: Path, folder: Path, instruction: str) -> None:
    if (source / "environment").is_dir():
        shutil.copytree(
            source / "environment", folder / "work", dirs_exist_ok=True, ignore=shutil.ignore_patterns(*NOT_COPIED)
        )
    (folder / "instruction.md").write_text(instruction, "utf-8", "replace")


def _lay_out_tests(source: Path, folder: Path, task: Mapping[str, Any]) -> None:
    """Put the tests there once the agent has ended, so that it has not seen or changed them.

    Raises:
        EnvironmentFailedError: the agent left something at their place that cannot be removed; or the task folder was
            changed meanwhile.
    """
    try:
        folder.chmod(0o700)
        if (folder / "work").is_symlink():
            raise OSError("the working folder is a link")
        for name in ("tests", "logs"):
            clear(folder / name)
    except OSError as error:
        raise EnvironmentFailedError(f"the tests cannot be laid out where the agent has been: {error}.") from error
    shutil.copytree(source / "tests", folder / "tests")
    (folder / "logs" / "verifier").mkdir(parents=True)
    _check_digest(source, task)
    for file in (folder / "tests").rglob("*"):
        if file.suffix in (".sh", ".py"):
            text = file.read_bytes().decode("utf-8", "surrogateescape")
            file.write_bytes(_of_attempt(text, folder).encode("utf-8", "surrogateescape"))


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
