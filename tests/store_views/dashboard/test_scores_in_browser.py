"""People score rollouts on the page, at the widths of a desk and of a phone. Run by `make test-dashboard`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.store_views.client import ViewClient
from tests.store_views.dashboard.conftest import open_page
from tests.store_views.test_feedback import Trajectories, ended
from tests.store_views.view_process import running_view
from tests.stream_processors.worker.harness import WorkerProcess

pytestmark = pytest.mark.dashboard

WIDTHS = (1440, 390)


@pytest.fixture
def url(settings: Settings) -> Iterator[str]:
    with WorkerProcess(settings), running_view(settings):
        ended(settings, "a", "b", "c")
        Trajectories(settings).wait_for(("a", 0), ("b", 0), ("c", 0))
        yield discover(settings, "view").address


def expect_no_overflow(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_a_score_on_the_page_says_where_it_went(url: str, page: Page, settings: Settings) -> None:
    open_page(page, f"{url}/rollout?run=scored&id=a")
    form = page.get_by_role("form", name="Score of the rollout")
    form.get_by_label("Note").fill("good, <b>but</b> long")
    form.get_by_role("button", name="Good (1)").click()
    expect(form.get_by_role("status")).to_contain_text("A revision of the trajectory has the score")
    scores = page.get_by_role("region", name="Scores by people")
    expect(scores).to_contain_text("good, <b>but</b> long")
    expect(scores.get_by_role("row").last).to_contain_text("the whole trajectory")
    expect(scores).not_to_contain_text("no revision has it yet")
    expect(page.get_by_role("region", name="Rewards").last).to_contain_text("feedback")
    page.get_by_role("tab", name="Score").click()
    of_call = page.get_by_role("form", name="Score of the call")
    of_call.get_by_label("or a number").fill("-0.5")
    of_call.get_by_label("or a number").press("Enter")
    expect(of_call.get_by_role("status")).to_contain_text("A revision")
    expect(scores.get_by_role("row")).to_have_count(3)
    found = Trajectories(settings).wait_for(("a", 2))["a", 2]
    assert (found.reward, [triplet.reward for triplet in found.triplets]) == (1.0, [-0.5])


def test_a_score_that_is_sent_again_after_an_error_counts_once(url: str, page: Page, settings: Settings) -> None:
    open_page(page, f"{url}/rollout?run=scored&id=b")
    form = page.get_by_role("form", name="Score of the rollout")

    def answer_is_lost(route: Route) -> None:
        route.fetch()
        route.abort("internetdisconnected")

    page.route("**/v1/feedback", answer_is_lost)
    form.get_by_role("button", name="Bad (0)").click()
    expect(form.get_by_role("alert")).to_contain_text("The view does not answer.")
    page.unroute("**/v1/feedback")
    form.get_by_role("button", name="Bad (0)").click()
    expect(form.get_by_role("status")).to_contain_text("This score was there already.")
    expect(page.get_by_role("region", name="Scores by people").locator("tbody tr")).to_have_count(1)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_queue_of_what_nobody_scored_is_worked_off_by_keys(
    url: str, page: Page, settings: Settings, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    open_page(page, f"{url}/queue?run=scored")
    links = page.get_by_role("region", name="Rollouts to score").get_by_role("link")
    expect(links).to_have_count(3)
    first, second, third = links.all_inner_texts()
    chosen = page.locator("[aria-current='true']")
    expect(chosen).to_have_text(first)
    page.keyboard.press("j")
    expect(chosen).to_have_text(second)
    page.keyboard.press("j")
    expect(chosen).to_have_text(third)
    page.keyboard.press("j")  # there is no further one
    page.keyboard.press("k")
    expect(chosen).to_have_text(second)
    expect_no_overflow(page)
    page.get_by_label("Note").press_sequentially("jjk")  # typing moves nothing
    expect(chosen).to_have_text(second)
    page.get_by_role("button", name="Good (1)").click()
    expect(chosen).to_have_text(third)
    expect(links).to_have_count(2)
    # Somebody else scores what is shown: it stays until one goes on.
    view = ViewClient(settings)
    view.feedback([{"rollout_id": third, "score": 0.25}])
    view.close()
    expect(links).to_have_count(1)
    expect(page.get_by_role("link", name=f"all of {third}")).to_be_visible()
    page.keyboard.press("j")
    expect(chosen).to_have_text(first)
    page.get_by_role("button", name="Bad (0)").click()
    expect(page.get_by_text("Every finished rollout has a score by a person")).to_be_visible()
    found = Trajectories(settings).wait_for((first, 1), (second, 1), (third, 1))
    assert [found[name, 1].reward for name in (first, second, third)] == [0.0, 1.0, 0.25]
