"""``lightstream runner``: more Runners of a run, on this machine or another one."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console

from lightstream.producers.runner import Hook, Outcome
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError

from .agents import load_agent, name_of_file
from .load import needs

if TYPE_CHECKING:
    from lightstream.producers import LitAgent
    from lightstream.producers.commands import CommandAgent

SAY_EVERY_S = 10.0
REWARDS_KEPT = 100
FOLDER_MB_MAX = 1024

console = Console(highlight=False, soft_wrap=True)


def agent_of(
    settings: Settings,
    agent: str | None,
    command: str | None,
    verifier: str | None,
    reward: str,
    keep: str = "failed",
    folder_mb_max: int = FOLDER_MB_MAX,
) -> CommandAgent | str:
    """The agent of ``--command``, or the name of one in Python.

    Raises:
        SettingsError: an option is wrong, or there are both, or neither.
    """
    from lightstream.producers.commands import CommandAgent, CommandLimits

    if (agent is None) == (command is None):
        raise SettingsError(
            "no agent is named." if agent is None else f"there is an agent, {agent}, and a command.",
            next_step="Name FILE.py:agent, or a program with --command.",
        )
    if command is None:
        return str(agent)
    return CommandAgent(
        command,
        verifier=verifier,
        reward=cast("Any", reward),  # it checks them
        keep=cast("Any", keep),
        limits=CommandLimits(folder_bytes_max=folder_mb_max * 1_000_000),
        settings=settings,
    )


def run_runner(
    settings: Settings, agent: LitAgent[Any] | str, run_id: str | None, concurrency: int, rollouts: int | None
) -> None:
    """Run rollouts until Ctrl-C or SIGTERM, or up to a number; a line every ten seconds says how many were run.

    Args:
        agent: it, or its name.

    Raises:
        SettingsError: the agent is none, or a command names no run; nothing was taken.
        ServiceUnavailableError: Kafka does not answer, or no port for metrics is free.
    """
    with needs("view"):
        from lightstream.producers.runner.metrics import served_metrics

    if isinstance(agent, str):
        run_id = run_id or name_of_file(agent)
        agent = load_agent(agent)
    if run_id is None:
        raise SettingsError("a command names no run.", next_step="Add --run-id RUN, or --run-id '*' for any.")
    with served_metrics(settings) as hooks:
        asyncio.run(_run(settings, agent, run_id, concurrency, rollouts, hooks))


async def _run(
    settings: Settings, agent: Any, run_id: str, concurrency: int, rollouts: int | None, hooks: Sequence[Hook]
) -> None:
    with needs("view"):
        from lightstream.store_views.stores import KafkaLightningStore
    from lightstream.producers import Runner

    counts = _Counts()
    store = KafkaLightningStore(settings)
    await store.start()
    try:
        runner = Runner(
            store, agent, run_id=run_id, settings=settings, n_concurrent=concurrency, hooks=[counts, *hooks]
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, runner.stop)
        console.print(f"{runner.worker_id} takes rollouts of run {run_id!r}, {concurrency} at once. Ctrl-C ends it.")
        progress = asyncio.create_task(counts.say(runner))
        try:
            await runner.run(rollouts)
        finally:
            progress.cancel()
            with suppress(asyncio.CancelledError):
                await progress
    finally:
        await store.close()
    console.print(counts.line(0))


class _Counts(Hook):
    """Counts the attempts that ended."""

    def __init__(self) -> None:
        self._ended = Counter[str]()
        self._rewards = deque[float](maxlen=REWARDS_KEPT)
        self._errors = Counter[str]()
        self._started_s = time.monotonic()

    async def on_rollout_end(self, *, outcome: Outcome, **_: Any) -> None:
        self._ended[outcome.status] += 1
        if isinstance(outcome.result, (int, float)):
            self._rewards.append(float(outcome.result))
        if outcome.error_type is not None:
            if outcome.error_type not in self._errors:
                first = (outcome.error_message or "").partition("\n")[0]
                console.print(f"The agent failed: {outcome.error_type}: {first}", markup=False)
            self._errors[outcome.error_type] += 1

    def line(self, running: int) -> str:
        """How far it is."""
        ended = sum(self._ended.values())
        others = "".join(f", {count} {status}" for status, count in self._ended.items() if status != "succeeded")
        rate = 60 * ended / max(1e-9, time.monotonic() - self._started_s)
        reward = f"; mean reward of the last {len(self._rewards)}: {fmean(self._rewards):.3f}" if self._rewards else ""
        return f"{ended} attempts ended{others}, {running} running, {rate:.0f} a minute{reward}"

    async def say(self, runner: Any) -> None:
        """A line every ten seconds in which something ended."""
        before = 0
        while True:
            await asyncio.sleep(SAY_EVERY_S)
            if (ended := sum(self._ended.values())) != before:
                before = ended
                console.print(self.line(len(runner.running)))
