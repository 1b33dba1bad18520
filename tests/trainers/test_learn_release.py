"""Versions of a learner go to a release through a gate; a pause stops learning; weights that a release serves stay."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lightstream.runtime.releases import ReleaseLog
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError, StoppedError
from lightstream.schemas.records import GateOutcome, GateReport, ReleaseChanged
from lightstream.schemas.releases import Author, Release, pause, promote, resume, roll_back, set_stable
from lightstream.trainers import make_tiny_model
from tests.support.checkpoints import checkpoint_in

from .support.traffic import RUN, publish, simulated
from .test_consumer import committed
from .test_learn import learned, learner

SHOP = "shop"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("learn") / "model")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    changed = settings.model_copy(update={"proxy_url": "http://127.0.0.1:9"})  # nobody calls it here
    change(changed, partial(set_stable, stable=f"{RUN}@0"))
    return changed


def change(settings: Settings, wish: Callable[[Release, Author], ReleaseChanged]) -> ReleaseChanged:
    return ReleaseLog(settings).change(SHOP, ("test", "a test"), wish)


class ScriptedGate:
    """Says the next outcome, and remembers what it was asked."""

    def __init__(self, *outcomes: GateOutcome) -> None:
        self._outcomes = list(outcomes)
        self.asked: list[tuple[str, str]] = []

    def __call__(self, release: str, stable: str, candidate: str, *, stop: Callable[[], bool]) -> GateReport:
        assert release == SHOP
        self.asked.append((stable, candidate))
        outcome = self._outcomes.pop(0)
        return GateReport(
            report_id=f"{release}-{candidate}",
            release=release,
            stable=stable,
            candidate=candidate,
            outcome=outcome,
            error_rate=0.01,
            created_unix_nano=1,
        )


def releasing(settings: Settings, model: Path, gate: ScriptedGate | None, **options: Any) -> Any:
    return learner(settings, model, release=SHOP, gate=gate, candidate_share=0.25, **options)


async def test_a_version_that_passes_is_offered_and_others_wait_or_fail(settings: Settings, model: Path) -> None:
    publish(settings, simulated(70))
    gate = ScriptedGate(GateOutcome.PASSED, GateOutcome.FAILED, GateOutcome.PASSED)
    await learned(releasing(settings, model, gate), 2)
    assert gate.asked == [(f"{RUN}@0", f"{RUN}@1")], "the second waits, as the first is on trial"
    offered = ReleaseLog(settings).states()[SHOP]
    assert (offered.candidate, offered.share, offered.report_id) == (f"{RUN}@1", 0.25, f"{SHOP}-{RUN}@1")
    change(settings, promote)
    await learned(releasing(settings, model, gate), 3)
    assert gate.asked[1:] == [(f"{RUN}@1", f"{RUN}@2"), (f"{RUN}@1", f"{RUN}@3")]
    states = [(past.action, past.candidate) for past in ReleaseLog(settings).history(SHOP)]
    assert states == [("set", None), ("offered", f"{RUN}@1"), ("promoted", None), ("offered", f"{RUN}@3")]
    change(settings, roll_back)
    await learned(releasing(settings, model, ScriptedGate()), 3)
    assert ReleaseLog(settings).states()[SHOP].candidate is None, "one that was rolled back is not offered again"


async def test_without_a_gate_the_history_says_so(settings: Settings, model: Path) -> None:
    publish(settings, simulated(40))
    await learned(releasing(settings, model, None), 1)
    offered = ReleaseLog(settings).states()[SHOP]
    assert (offered.candidate, offered.report_id, offered.reason) == (f"{RUN}@1", None, "no gate was asked")


async def test_a_pause_stops_learning_until_it_ends(settings: Settings, model: Path) -> None:
    publish(settings, simulated(40))
    change(settings, pause)
    looks = 0

    def stop() -> bool:
        nonlocal looks
        looks += 1
        if looks == 3:
            committed(settings, 0)
            change(settings, resume)
        return False

    async with aclosing(releasing(settings, model, None).steps(1, stop)) as steps:
        assert [planned.window.number async for planned in steps] == [0]
    assert looks >= 3
    committed(settings, 1)


async def test_a_gate_that_waits_is_stopped_and_asked_again(settings: Settings, model: Path) -> None:
    publish(settings, simulated(40))
    waits = False

    class Waits(ScriptedGate):
        def __call__(self, release: str, stable: str, candidate: str, *, stop: Callable[[], bool]) -> GateReport:
            nonlocal waits
            waits = True
            assert stop()
            raise StoppedError("the gate was stopped.")

    async with aclosing(releasing(settings, model, Waits()).steps(2, lambda: waits)) as steps:
        assert len([planned async for planned in steps]) == 1
    committed(settings, 1)
    gate = ScriptedGate(GateOutcome.PASSED)
    await learned(releasing(settings, model, gate), 1)
    assert gate.asked == [(f"{RUN}@0", f"{RUN}@1")]


async def test_weights_that_a_release_serves_are_never_deleted(settings: Settings, model: Path) -> None:
    publish(settings, simulated(90))
    gate = ScriptedGate(GateOutcome.PASSED, *[GateOutcome.FAILED] * 9)
    await learned(releasing(settings, model, gate, keep_checkpoints=2), 1)
    change(settings, promote)
    await learned(releasing(settings, model, gate, keep_checkpoints=2), 5)
    steps = committed(settings, 5)
    there = [checkpoint_in(settings.data_dir, step.checkpoint_url).is_dir() for step in steps]
    assert there == [True, False, False, True, True]
    change(settings, partial(set_stable, stable=f"{RUN}@5"))
    change(settings, partial(set_stable, stable=f"{RUN}@0"))  # so that version 1 is no longer the one before
    await learned(releasing(settings, model, gate, keep_checkpoints=2), 6)
    there = [checkpoint_in(settings.data_dir, step.checkpoint_url).is_dir() for step in committed(settings, 6)]
    assert there == [False, False, False, False, True, True]


def test_a_gate_needs_a_release_that_is_there(settings: Settings, model: Path) -> None:
    with pytest.raises(SettingsError, match="there is a gate, and no release"):
        learner(settings, model, gate=ScriptedGate())


async def test_a_release_that_nobody_set_is_refused(settings: Settings, model: Path) -> None:
    publish(settings, simulated(40))
    with pytest.raises(SettingsError, match="there is no release 'other'"):
        await learned(learner(settings, model, release="other"), 1)
