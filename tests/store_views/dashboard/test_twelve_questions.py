"""The questions that people ask of a training, each answered within three clicks from the list of runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Locator, Page, expect

from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from tests.store_views.dashboard.conftest import open_page
from tests.store_views.dashboard.run_records import COLLAPSED, LOST, NOT_TRAINED, RUN, STUCK, TIMED_OUT
from tests.store_views.dashboard.sizes import at_each_width, expect_to_fit
from tests.store_views.test_feedback import Trajectories, ended
from tests.store_views.view_process import running_view
from tests.stream_processors.worker.harness import WorkerProcess

pytestmark = pytest.mark.dashboard

CLICKS_MAX = 3


@dataclass
class Visitor:
    """Somebody who begins at the list of runs, and counts clicks."""

    page: Page
    clicks: int = 0

    def click(self, wanted: Locator) -> None:
        wanted.click()
        self.clicks += 1
        assert self.clicks <= CLICKS_MAX

    def open_run(self, run: str) -> None:
        self.click(self.page.get_by_role("link", name=run, exact=True).first)
        expect(self.page.get_by_role("heading", name=run, exact=True)).to_be_visible()

    def menu(self, name: str) -> None:
        self.click(self.page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True))

    def step(self, number: int, of: int) -> None:
        """A click on the curve of the run where that step is."""
        curve = self.page.get_by_role("slider", name="Mean reward by step; Enter opens the step").locator(".u-over")
        box = curve.bounding_box()
        assert box is not None
        share = (number - 1) / (of - 1)
        curve.click(position={"x": min(box["width"] - 2, max(2, box["width"] * share)), "y": box["height"] / 2})
        self.clicks += 1
        assert self.clicks <= CLICKS_MAX


@pytest.fixture
def visitor(page: Page, view_url: str) -> Visitor:
    open_page(page, view_url)
    return Visitor(page)


def health(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name="Health").get_by_role("listitem", name=name)


def test_is_it_going_well(visitor: Visitor) -> None:
    visitor.open_run(RUN)
    page = visitor.page
    expect(page.get_by_role("region", name="Health")).to_contain_text("all within their normal ranges")
    expect(health(page, "Entropy")).to_contain_text("0.5")
    expect(health(page, "Entropy")).to_contain_text("above 0.42, a fifth of its begin")
    expect(health(page, "Time left")).to_contain_text("16 of 30 steps to go")


def test_why_did_step_12_drop(visitor: Visitor) -> None:
    visitor.open_run(RUN)
    visitor.step(12, of=14)
    changes = visitor.page.get_by_role("region", name="What changed since step 11").locator("tbody tr")
    expect(changes.first).to_contain_text("mean reward")
    expect(changes.nth(1)).to_contain_text(f"tool multiply: {TIMED_OUT}")
    expect(changes.nth(1)).to_contain_text("+12")


def test_which_is_the_best_and_the_worst_of_a_group(visitor: Visitor) -> None:
    visitor.open_run(RUN)
    visitor.step(12, of=14)
    visitor.click(visitor.page.get_by_role("link", name=f"{RUN}-s12-g0", exact=True))
    cards = visitor.page.get_by_label("Rollouts of the group").get_by_role("listitem")
    expect(cards.first).to_contain_text("+0.75 to the mean")
    expect(cards.last).to_contain_text("-0.25 to the mean")
    beside = visitor.page.get_by_role("region", name="Beside each other")
    expect(beside.locator("[data-differs]").last).to_contain_text(TIMED_OUT)


def test_which_tool_fails_most(visitor: Visitor) -> None:
    visitor.open_run(RUN)
    visitor.menu("Tools and errors")
    row = visitor.page.get_by_role("region", name="Tools", exact=True).locator("tbody tr").first
    expect(row).to_contain_text("multiply")
    expect(row).to_contain_text("6 %")


def test_which_tokens_were_up_weighted(visitor: Visitor) -> None:
    visitor.open_run(RUN)
    visitor.menu("Rollouts")
    visitor.click(visitor.page.get_by_role("link", name=f"{RUN}-s13-g0-1", exact=True))
    expect(visitor.page.get_by_text("6 response tokens of which the policy sampled 6")).to_be_visible()
    expect(
        visitor.page.get_by_text("divided by the group's standard deviation, as the run's GRPO does: +0.5")
    ).to_be_visible()


def test_what_did_the_prompt_look_like(visitor: Visitor) -> None:
    visitor.open_run(RUN)
    visitor.menu("Rollouts")
    visitor.click(visitor.page.get_by_role("link", name=f"{RUN}-s14-g0-0", exact=True))
    turns = visitor.page.get_by_role("region", name="Conversation").get_by_role("listitem")
    expect(turns.first).to_contain_text("Use the tool, then answer with the number alone.")
    expect(turns.nth(1)).to_contain_text("What is 42 × 7?")


def test_where_is_it_stuck(visitor: Visitor) -> None:
    visitor.open_run(STUCK)
    alarm = visitor.page.get_by_label("Alarms").get_by_role("listitem")
    expect(alarm).to_contain_text("1 rollout waits, and none is running")
    visitor.click(alarm.get_by_role("link", name="show them"))
    row = visitor.page.get_by_role("region", name="Rollouts").locator("tbody tr")
    expect(row).to_contain_text(f"{STUCK}-0")
    expect(row).to_contain_text("queuing")


def test_what_was_dropped_and_why(visitor: Visitor) -> None:
    visitor.open_run(LOST)
    visitor.menu("Dropped")
    row = visitor.page.get_by_role("region", name="Dropped calls and rewards").last.locator("tbody tr")
    expect(row).to_contain_text("no_token_ids")
    expect(row).to_contain_text("The model server returned no token ids")
    visitor.click(row.get_by_role("link"))
    expect(visitor.page.get_by_role("heading", level=1)).to_contain_text(LOST)


def test_what_did_it_cost(visitor: Visitor) -> None:
    visitor.open_run(RUN)
    stat = visitor.page.locator("main").get_by_text("Tokens", exact=True).locator("..")
    expect(stat).to_contain_text(re.compile(r"Tokens[\d,]{4,}"))
    expect(stat).to_contain_text("no price: lightstream prices sets one")


def test_how_do_two_runs_differ(visitor: Visitor) -> None:
    stale = NOT_TRAINED["stale"]
    for run in (RUN, stale):
        visitor.click(visitor.page.get_by_label(f"Compare {run}", exact=True))
    visitor.click(visitor.page.get_by_role("link", name="Compare 2 runs"))
    curves = visitor.page.get_by_role("region", name="reward/mean", exact=True)
    expect(curves).to_contain_text(RUN)
    expect(curves).to_contain_text(stale)
    settings = visitor.page.get_by_role("region", name=f"Settings that differ between {RUN} and {stale}")
    expect(settings).to_contain_text("advantage")


def test_how_do_policies_do_on_the_same_task(visitor: Visitor) -> None:
    run = NOT_TRAINED["stale"]
    visitor.open_run(run)
    visitor.menu("Rollouts")
    visitor.click(visitor.page.get_by_role("region", name="Rollouts").locator("tbody tr").get_by_title("in every run"))
    tries = visitor.page.get_by_role("region", name="The task by run and policy").locator("tbody tr")
    expect(tries.filter(has_text=run)).to_contain_text("1")
    expect(tries.filter(has_text=NOT_TRAINED["too_long"])).to_be_visible()


@pytest.fixture
def scored_url(settings: Settings) -> Iterator[str]:
    with WorkerProcess(settings), running_view(settings):
        ended(settings, "a")
        Trajectories(settings).wait_for(("a", 0))
        yield discover(settings, "view").address


def test_is_this_answer_good(scored_url: str, page: Page, settings: Settings) -> None:
    open_page(page, scored_url)
    visitor = Visitor(page)
    visitor.open_run("scored")
    visitor.menu("To score")
    visitor.click(page.get_by_role("button", name="Good (1)"))
    assert Trajectories(settings).wait_for(("a", 1))["a", 1].reward == 1.0
    expect(page.get_by_text("Every finished rollout has a score by a person")).to_be_visible()


@at_each_width
def test_a_training_that_is_not_well_is_an_alarm(sized: Page, view_url: str) -> None:
    open_page(sized, f"{view_url}/run?run={COLLAPSED}")
    alarms = sized.get_by_label("Alarms").get_by_role("listitem")
    expect(alarms).to_have_count(2)
    expect(alarms.first).to_contain_text("The entropy collapsed")
    expect(alarms.last).to_contain_text("Other weights answered than were trained")
    expect(health(sized, "Entropy")).to_contain_text("alarm")
    expect(health(sized, "Gap of log-probabilities")).to_contain_text("alarm")
    for name in ("Staleness", "Tokens per second, update"):
        expect(health(sized, name)).to_contain_text("watch")
    for name in ("KL", "Gradient norm"):
        expect(health(sized, name)).not_to_contain_text("watch")
    expect_to_fit(sized)
    health(sized, "KL").get_by_role("link").click()
    expect(sized).to_have_url(re.compile("metric=actor%2Fppo_kl"))
