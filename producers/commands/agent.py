"""An agent that is a program in any language: a process for each attempt.

The program finds its task as JSON: in standard input, in the file ``LIGHTSTREAM_TASK_FILE`` and, where it is short, in
``LIGHTSTREAM_TASK``. It calls the model at ``OPENAI_BASE_URL`` or ``ANTHROPIC_BASE_URL``, with a key that is good for
this attempt alone. Its reward is the first of these that there is:

- the verifier's verdict
- what it wrote to ``LIGHTSTREAM_RESULT_FILE``
- its exit status, with ``reward="exit"``
- what it sent to ``LIGHTSTREAM_REWARD_URL``
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import quote

from pydantic_core import to_json

from lightstream.runtime.http.attempt_keys import attempt_key, attempt_secret
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.types import LLM, AttemptedRollout, NamedResources, ProxyLLM, Rollout

from ..agent import LitAgent, RolloutResult
from ..child_processes import attempt_environment
from .files import read_head, write_over
from .process import TAIL_BYTES, CommandError, CommandLimits, CommandResult, run_command

RewardFrom: TypeAlias = Literal["program", "exit"]
Keep: TypeAlias = Literal["failed", "always", "never"]

TASK_VARIABLE_BYTES_MAX = 100_000
"""Linux takes 128 KiB for one variable (execve(2)); a longer task is in its file and in standard input alone."""
RESULT_BYTES_MAX = 1024 * 1024
FAILED_BY_SIGNAL = 128


class CommandAgent(LitAgent[Any]):
    """Runs a command for each attempt, and a verifier after it.

    The command is run by ``/bin/sh -c`` in a folder of its own, ``<data folder>/attempts/<rollout>/<attempt>/work``. At
    the attempt's time limit, or when the Runner ends, every process that it started is ended (SIGTERM, then SIGKILL).

    Args:
        command: for the shell. Exit status 0 is a success; with ``reward="exit"`` others are, too.
        verifier: a command that runs after a success, in the same folder. The program's standard output is in the file
            ``LIGHTSTREAM_OUTPUT_FILE``. The verdict is what it writes to ``LIGHTSTREAM_RESULT_FILE``, else 1 for exit
            status 0 and 0 for 1. Any other status is a failure of the attempt.
        reward: ``program``: it is the program's to say; ``exit``: 1 for exit status 0, else 0.
        keep: of which attempts the folder stays.
        limits: of command and verifier, each.
        settings: name the data folder; by default the environment's.
        trained_agents: as of :class:`LitAgent`.
    """

    def __init__(
        self,
        command: str,
        *,
        verifier: str | None = None,
        reward: RewardFrom = "program",
        keep: Keep = "failed",
        limits: CommandLimits | None = None,
        settings: Settings | None = None,
        trained_agents: str | None = None,
    ) -> None:
        super().__init__(trained_agents=trained_agents)
        if not command.strip():
            raise SettingsError(
                "the agent's command is empty.", next_step='Name a program by its full path, such as "$PWD/agent".'
            )
        for name, value, known in (("reward", reward, RewardFrom), ("keep", keep, Keep)):
            if value not in get_args(known):
                raise SettingsError(f"{name} is {value!r}; it is one of {', '.join(get_args(known))}.")
        self.command = command
        self.verifier = verifier
        self._reward = reward
        self._keep = keep
        self._limits = limits or CommandLimits()
        self._settings = settings or Settings.load()

    async def rollout_async(self, task: Any, resources: NamedResources, rollout: Rollout) -> RolloutResult:
        """Run the command on a task.

        Raises:
            CommandError: it failed, or wrote too much; or the verifier did.
        """
        if not isinstance(rollout, AttemptedRollout):
            raise TypeError("a command runs for an attempt, and this rollout has none")
        folder = self._folder(rollout)
        succeeded = False
        try:
            await asyncio.to_thread(_make, folder)
            reward = await self._run(folder, task, resources, rollout)
            succeeded = True
        finally:
            if self._keep == "never" or (succeeded and self._keep == "failed"):
                await asyncio.to_thread(_remove, folder)
        return reward

    async def _run(
        self, folder: Path, task: Any, resources: NamedResources, rollout: AttemptedRollout
    ) -> RolloutResult:
        content = to_json(task)
        (folder / "task.json").write_bytes(content)
        environment = await asyncio.to_thread(self._environment, folder, content, resources, rollout)
        result = await self._command(self.command, folder, environment | _result_file(folder, "result"), content)
        if self._reward == "program" and result.status != 0:
            raise _failed("the command", result)
        if self.verifier is not None:
            return await self._verdict(self.verifier, folder, environment, content)
        if (reward := _reward_in(folder / "result.json")) is not None:
            return reward
        return float(result.status == 0) if self._reward == "exit" else None

    async def _verdict(self, verifier: str, folder: Path, environment: dict[str, str], content: bytes) -> RolloutResult:
        environment |= {"LIGHTSTREAM_OUTPUT_FILE": str(folder / "stdout.txt")} | _result_file(folder, "verdict")
        result = await self._command(verifier, folder, environment, content, output="verifier.txt")
        if result.status not in (0, 1):
            raise _failed("the verifier", result)
        reward = _reward_in(folder / "verdict.json")
        return float(result.status == 0) if reward is None else reward

    async def _command(
        self, command: str, folder: Path, environment: Mapping[str, str], content: bytes, output: str = "stdout.txt"
    ) -> CommandResult:
        result = await run_command(
            command, folder=folder / "work", environment=environment, content=content, limits=self._limits
        )
        await asyncio.to_thread(_keep_output, folder, output, result)
        return result

    def _folder(self, rollout: AttemptedRollout) -> Path:
        names = [quote(text, safe="").replace(".", "%2E") for text in (rollout.rollout_id, rollout.attempt.attempt_id)]
        return self._settings.data_dir.absolute().joinpath("attempts", *names)

    def _environment(
        self, folder: Path, content: bytes, resources: NamedResources, rollout: AttemptedRollout
    ) -> dict[str, str]:
        """What the program is given: the Runner's own environment without our settings, and the attempt's variables."""
        # Tokens and passwords are among the settings, and are not the program's.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LIGHTSTREAM_")}
        environment |= attempt_environment() | {
            "LIGHTSTREAM_ROLLOUT_ID": rollout.rollout_id,
            "LIGHTSTREAM_ATTEMPT_ID": rollout.attempt.attempt_id,
            "LIGHTSTREAM_MODE": rollout.mode or "train",
            "LIGHTSTREAM_TASK_FILE": str(folder / "task.json"),
            "TMPDIR": str(folder / "work"),
        }
        if len(content) <= TASK_VARIABLE_BYTES_MAX:
            environment["LIGHTSTREAM_TASK"] = content.decode()
        llm = next((resource for resource in resources.values() if isinstance(resource, LLM)), None)
        if llm is None:
            return environment
        key = llm.api_key or "none"
        url = llm.endpoint
        if isinstance(llm, ProxyLLM):
            key = attempt_key(attempt_secret(self._settings), rollout.rollout_id, rollout.attempt.attempt_id)
            url = llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id)
            environment["LIGHTSTREAM_REWARD_URL"] = f"{_root(url)}/reward"
        return environment | {
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": key,
            "ANTHROPIC_BASE_URL": _root(url),  # its clients add /v1/messages
            "ANTHROPIC_API_KEY": key,
            "LIGHTSTREAM_MODEL": llm.model,
            "LIGHTSTREAM_SAMPLING": to_json(llm.sampling_parameters).decode(),
        }


def _make(folder: Path) -> None:
    _remove(folder)  # of a Runner that was killed: the attempt begins again
    (folder / "work").mkdir(mode=0o700, parents=True)


def _keep_output(folder: Path, name: str, result: CommandResult) -> None:
    try:
        write_over(folder / name, result.output)
        write_over(folder / name.replace(".txt", ".err.txt"), result.error_tail)
    except OSError as error:
        raise CommandError(f"the command's output cannot be kept: {error}.") from error


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _root(url: str) -> str:
    return url.rstrip("/").removesuffix("/v1")


def _result_file(folder: Path, name: str) -> dict[str, str]:
    return {"LIGHTSTREAM_RESULT_FILE": str(folder / f"{name}.json")}


def _failed(what: str, result: CommandResult) -> CommandError:
    number = result.status - FAILED_BY_SIGNAL
    ended = f"ended with status {result.status}"
    if number in {int(known) for known in signal.Signals}:
        ended += f" ({signal.Signals(number).name})"
    last = (result.error_tail or result.output[-TAIL_BYTES:]).decode("utf-8", "replace").strip()
    return CommandError(f"{what} {ended}. " + (f"It last wrote:\n{last}" if last else "It wrote nothing."))


def _reward_in(file: Path) -> dict[str, float] | None:
    """The rewards in a result file by name (a number alone is ``reward``); ``None`` without a file.

    Raises:
        CommandError: it has something else.
    """
    try:
        content = read_head(file, RESULT_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandError(f"the result file cannot be read: {error}.") from error
    try:
        value: Any = json.loads(content[:RESULT_BYTES_MAX])
    except (ValueError, RecursionError) as error:
        raise CommandError(f"the result file has no JSON: {error}.", next_step=RESULT_FORM) from error
    rewards: dict[str, Any] = value if isinstance(value, dict) else {"reward": value}
    if not rewards or not all(map(_is_reward, rewards.values())):
        raise CommandError(f"the result file has no reward: {value!r:.200}.", next_step=RESULT_FORM)
    return {name: float(number) for name, number in rewards.items()}


RESULT_FORM = 'Write a finite number, {"reward": 0.5}, or {"reward": 0.5, "another": 1}.'


def _is_reward(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
