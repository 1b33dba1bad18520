"""What a training says while it runs: lines of a terminal with 80 columns, and one that is overwritten."""

from __future__ import annotations

import io
import math

import pytest

from lightstream.schemas.records import StepOutcome
from lightstream.trainers.run.progress import BARS, Progress, rollouts_line, sparkline, step_line
from lightstream.trainers.run.report import StepReport


def report(**fields: object) -> StepReport:
    values: dict[str, object] = {
        "step": 12_345, "steps": 20_000, "outcome": StepOutcome.UPDATED, "mean_reward": -1234.5678,
        "logprob_diff_max": 0.0, "rollouts": 10_240, "calls": 1, "rows": 1, "tokens": 123_456_789, "seconds": 98_765.4,
        "resources_id": None,
        "metrics": {
            "reward/std": 1234.567, "rollouts/failed": 5120.0, "seconds/collect": 9.0, "validation/reward_mean": 0.5,
            "validation/samples": 16.0, "validation/reward_best": 0.75,
        },
    }  # fmt: skip
    return StepReport(**(values | fields))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # of its fields


@pytest.mark.parametrize("outcome", StepOutcome)
def test_no_line_of_a_step_is_wider_than_a_terminal(outcome: StepOutcome) -> None:
    lines = step_line(report(outcome=outcome)).splitlines()
    assert max(map(len, lines)) <= 79
    assert "validation 0.500, best of 16 0.750" in " ".join(line.strip() for line in lines)


def test_a_usual_step_is_one_line() -> None:
    usual = report(step=3, steps=12, mean_reward=0.5, rollouts=64, tokens=12_345, seconds=42.5, metrics={
        "reward/std": 0.25, "rollouts/failed": 2.0, "seconds/collect": 40.0, "seconds/update": 2.0,
    })  # fmt: skip
    said = "step 3/12  reward 0.500±0.250  62 ok, 2 failed  12k tokens  42.5 s (rollouts)"
    assert step_line(usual) == said


@pytest.mark.parametrize("values", [[0.031, 0.115], [-10.0, 0.0], [0.0, 100.0], [3.0, math.nan, 4.0]])
def test_bars_reach_from_the_least_to_the_largest(values: list[float]) -> None:
    bars = sparkline(values)
    assert (bars[0], bars[-1]) == (BARS[0], BARS[-1])
    assert sparkline([0.5] * 7) == BARS[0] * 7
    assert sparkline([math.nan]) == ""


def test_what_is_waited_for_has_the_time_left() -> None:
    assert rollouts_line(0, 64, 0, 5.2) == "rollouts 0/64, 0:05"
    assert rollouts_line(16, 64, 2, 40.0) == "rollouts 16/64, 2 failed, 0:40, about 2:00 left"
    assert rollouts_line(1, 4, 0, 3600.0) == "rollouts 1/4, 1:00:00, about 3:00:00 left"


def test_a_terminal_has_one_line_that_is_overwritten() -> None:
    terminal = io.StringIO()
    progress = Progress(lambda line: print(line, file=terminal), terminal=terminal)
    for now_s in (0.0, 0.5, 1.0):
        progress.live(f"at {now_s}" + "x" * 100, now_s)
    progress.say("a line")
    progress.say("another")
    clear = "\r\x1b[K"
    first, second = (f"at {now_s}" + "x" * 73 for now_s in (0.0, 1.0))
    assert terminal.getvalue().replace(first[:79], "1").replace(second[:79], "2") == (
        f"{clear}1{clear}2{clear}a line\nanother\n"
    )


def test_elsewhere_it_is_a_line_each_half_minute() -> None:
    said: list[str] = []
    progress = Progress(said.append)
    for now_s in range(0, 100, 10):
        progress.live(f"at {now_s}", float(now_s))
    assert said == ["at 0", "at 30", "at 60", "at 90"]
    Progress(None).live("nothing", 0.0)
