"""Start the system, let users talk to a release while a learner improves it, and show what came of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from examples.drawers import DRAWER_OF, ThingTask, make_model, said_drawer, teach_the_form
from examples.system import ACCOUNTED, started
from examples.watch import show_checks, take_account
from lightstream.producers import LLM, AttemptedRollout, rollout
from lightstream.runtime.releases import ReleaseLog
from lightstream.runtime.services import discover
from lightstream.schemas.errors import StoreError
from lightstream.schemas.records import ReleaseAction, ReleaseRule
from lightstream.schemas.releases import offer, promote, set_stable
from lightstream.trainers import Continuous, KafkaLightningStore, Rule, Settings, ViewClient
from lightstream.trainers.evaluation import Bar, Gate, GatedSet

from .users import POISONER, Users, wishes

__all__ = ["run_production"]

RUN_ID, RELEASE, TWIN = "shop", "shop-agent", "frozen"
PHASES = 3
CONVERSATIONS = 128
"""Of each period between two looks at the release; the learner has a window for each."""
EPOCHS = 10
LATE_S = 1.0
"""An hour of the simulation: thumbs come so long after their answers."""
TRIAL_CALLS = 24
"""Calls of a candidate before it is promoted."""
GAIN_MIN = 1.2

BREACH = """
SELECT count(*) AS calls, avg(reward) AS mean_reward
FROM release_calls
WHERE release = $release AND release_arm = 'candidate' AND start_unix_nano >= $since AND reward IS NOT NULL
HAVING count(*) >= 24 AND avg(reward) < 0.5
"""
POISONED = """
SELECT rollout_id, 'poisoner' AS reason FROM window_rollouts
JOIN rollouts USING (rollout_id) WHERE metadata_json->>'$.user' = 'mallory'
"""

phase = 0
"""The phase that the users are in; the panel of the gate asks as they do."""


@rollout
async def panel(task: ThingTask, llm: LLM, rollout: AttemptedRollout) -> float:
    """A panel of users, who judge by today's wishes."""
    return float(await said_drawer(task, llm, rollout) == wishes(phase)[task["thing"]])


@dataclass(slots=True)
class Period:
    """Some conversations in a row, and the models that answered them."""

    phase: int
    reward: float
    stable: str
    candidate: str
    event: str = ""


class Learner:
    """The learner, in a thread of its own."""

    def __init__(self, continuous: Continuous) -> None:
        self._continuous = continuous
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(1, "learner")
        self._learning = self._pool.submit(lambda: asyncio.run(self._learn()))

    def stop(self) -> None:
        """End it; raises what ended it before."""
        self._stopping.set()
        self._pool.shutdown()
        self._learning.result()

    async def _learn(self) -> None:
        async for _ in self._continuous.steps(stop=self._stopping.is_set):
            pass


def run_production(settings: Settings, console: Console, *, steps: int, seed: int) -> bool:
    """Run it all; returns whether what it promises holds.

    Args:
        steps: periods of traffic.

    Raises:
        LightstreamError: a part of the system could not be started, or stopped answering.
    """
    with started(settings, console) as running:
        view = ViewClient(running)
        log = ReleaseLog(running)
        rule = ReleaseRule(name="thumbs", sql=BREACH)
        log.change(RELEASE, ("operator", "first version"), partial(set_stable, stable=f"{RUN_ID}@0", rules=[rule]))
        log.change(TWIN, ("operator", "never changed"), partial(set_stable, stable=f"{RUN_ID}@0"))
        learner = Learner(_continuous(running, seed))
        try:
            periods, twin, lost = asyncio.run(_serve(running, view, log, console, periods=steps, seed=seed))
        finally:
            learner.stop()
        return _show(view, log, console, settings.data_dir / "reward.png", periods, twin, lost)


def _continuous(settings: Settings, seed: int) -> Continuous:
    questions = [ThingTask(thing=thing) | {"number": number} for number in range(6) for thing in DRAWER_OF]
    gate = Gate(
        settings,
        {"panel": GatedSet(panel, questions)},
        Bar(margin=0.05, error_rate=0.05),
        sampling={"max_tokens": 1},
        by="learner",
    )
    return Continuous(
        make_model(settings.data_dir / "model", seed=seed),
        run_id=RUN_ID,
        count=CONVERSATIONS,
        epochs_per_window=EPOCHS,
        lateness=LATE_S,
        rules=[Rule("poisoner", POISONED)],
        release=RELEASE,
        gate=gate,
        candidate_share=0.5,
        settings=settings,
        seed=seed,
        warm_up=teach_the_form(seed),
        learning_rate=3e-3,
        weight_decay=0.0,
        clip_ratio_high=0.28,
        sampling_parameters={"max_tokens": 1},
        threads=1,
    )


async def _serve(
    settings: Settings,
    view: ViewClient,
    log: ReleaseLog,
    console: Console,
    *,
    periods: int,
    seed: int,
) -> tuple[list[Period], list[float], int]:
    global phase  # the panel, which Runners call, asks as the users do
    store = KafkaLightningStore(settings)
    await store.start()
    proxy = discover(settings, "proxy").address
    common: dict[str, Any] = {"store": store, "view": view, "proxy": proxy, "sampling": {"max_tokens": 1}, "seed": seed}
    users = Users(settings, release=RELEASE, poisoned=0.05, late=32, **common)
    frozen = Users(settings, release=TWIN, run_id=TWIN, **common)
    found, twin = list[Period](), list[float]()
    bad_at = periods - 4
    try:
        await frozen.wait_until_served()
        for number in range(periods):
            phase = number * PHASES // periods
            if number == 0 or phase != found[-1].phase:
                twin.append(await frozen.talk(CONVERSATIONS, phase))
            reward = await users.talk(CONVERSATIONS, phase)
            await _learned(view, number - 1)
            state = log.states()[RELEASE]
            period = Period(phase, reward, state.stable, state.candidate or "")
            found.append(period)
            if number == bad_at and state.stable != f"{RUN_ID}@0":
                if state.candidate is not None:
                    log.change(RELEASE, ("operator", "makes room"), promote)
                bypass = partial(offer, candidate=f"{RUN_ID}@0", share=0.5)
                log.change(RELEASE, ("operator", "past the gate, by mistake"), bypass)
                period.event = "a bad candidate, past the gate"
            elif (
                state.candidate is not None
                and state.report_id is not None
                and _served(view, state.candidate) >= TRIAL_CALLS
            ):
                try:
                    log.change(RELEASE, ("operator", "served well"), promote)
                    period.event = f"{state.candidate} promoted"
                except StoreError:  # the rule was quicker
                    period.event = f"{state.candidate} rolled back"
            console.print(
                f"period {number + 1}: wishes {phase + 1}, {reward:.2f} right by {period.stable}"
                f"{f' and {period.candidate}' if period.candidate else ''}"
                f" (frozen: {twin[-1]:.2f}){f'; {period.event}' if period.event else ''}",
                highlight=False,
            )
        await users.give_all_thumbs()
        return found, twin, users.lost + frozen.lost
    finally:
        await store.close()


async def _learned(view: ViewClient, windows: int) -> None:
    """Wait for the learner: traffic of a simulation is quicker than people's."""
    sql = "SELECT count(*) FROM training_steps WHERE run_id = $run"
    while (await asyncio.to_thread(view.query, sql, "now", params={"run": RUN_ID})).scalar() < windows:  # noqa: ASYNC110  # another process learns
        await asyncio.sleep(0.2)


def _served(view: ViewClient, candidate: str) -> int:
    sql = "SELECT count(*) FROM release_calls WHERE release = $release AND release_model = $model"
    return int(view.query(sql, "now", params={"release": RELEASE, "model": candidate}).scalar())


def _show(
    view: ViewClient,
    log: ReleaseLog,
    console: Console,
    picture: Path,
    periods: Sequence[Period],
    twin: Sequence[float],
    lost: int,
) -> bool:
    account = take_account(view)
    table = Table(title=f"History of {RELEASE}", title_justify="left")
    for name in ("action", "stable", "candidate", "by", "reason"):
        table.add_column(name, overflow="fold")
    history = log.history(RELEASE)
    for change in history:
        table.add_row(str(change.action), change.stable, change.candidate or "", change.by, change.reason)
    console.print(table)
    _draw(picture, periods, twin)
    console.print(f"The rewards as a picture: {picture}")
    console.print(account.table())
    ours = sum(period.reward for period in periods)
    theirs = sum(twin[period.phase] for period in periods)
    rolled_back = [change for change in history if change.action is ReleaseAction.ROLLED_BACK]
    poisoned = view.query(
        "SELECT count(*) FROM trained JOIN rollouts USING (rollout_id) WHERE metadata_json->>'$.user' = $user",
        "now",
        params={"user": POISONER},
    ).scalar()
    twice = view.query(
        "SELECT count(*) - count(DISTINCT rollout_id) FROM trained WHERE run_id = 'shop'", "now"
    ).scalar()
    promoted = sum(change.action is ReleaseAction.PROMOTED for change in history)
    checks = {
        f"right answers at least {GAIN_MIN} times those of a frozen twin: {ours / theirs:.2f}": ours
        >= GAIN_MIN * theirs,
        f"versions that passed the gate and were promoted: {promoted}": promoted >= PHASES - 1,
        "the bad candidate was rolled back by the rule": any(change.by.startswith("rule") for change in rolled_back),
        f"calls lost: {lost}": lost == 0,
        f"rollouts of the poisoner that were learned from: {poisoned}": poisoned == 0,
        f"rollouts that were learned from twice: {twice}": twice == 0,
        ACCOUNTED: account.is_balanced,
    }
    return show_checks(console, checks)


def _draw(picture: Path, periods: Sequence[Period], twin: Sequence[float]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    numbers = range(1, len(periods) + 1)
    axes.plot(numbers, [period.reward for period in periods], marker="o", label=RELEASE)
    axes.plot(numbers, [twin[period.phase] for period in periods], "--", color="grey", label="frozen twin")
    for number, period in zip(numbers, periods, strict=True):
        if number > 1 and period.phase != periods[number - 2].phase:
            axes.axvline(number - 0.5, color="lightgrey")
            axes.text(number - 0.4, 1.0, "wishes drift", fontsize=8, color="grey")
        if period.event:
            axes.annotate(period.event, (number, period.reward), fontsize=7, rotation=30)
    axes.set(xlabel="period of traffic", ylabel="share of right answers", ylim=(0, 1.1))
    axes.legend(loc="lower right")
    figure.savefig(picture, dpi=120)
