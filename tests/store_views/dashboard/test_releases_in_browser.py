"""Releases on the page: what serves, how its arms do, and the buttons. Run by `make test-dashboard`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from playwright.sync_api import Page, expect

from lightstream.runtime.releases import ReleaseLog
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.releases import offer, set_share, set_stable
from tests.store_views.dashboard.conftest import open_page
from tests.store_views.dashboard.run_records import RELEASE, RUN, XSS
from tests.store_views.view_process import running_view

pytestmark = pytest.mark.dashboard

ADA = ("command line, ada", "")


@pytest.fixture
def log(settings: Settings) -> ReleaseLog:
    return ReleaseLog(settings)


@pytest.fixture
def url(settings: Settings, log: ReleaseLog) -> Iterator[str]:
    log.change("agent", ADA, partial(set_stable, stable="run@1"))
    log.change("agent", ADA, partial(offer, candidate="run@2", share=0.1))
    with running_view(settings):
        yield discover(settings, "view").address


def test_a_release_shows_its_arms_its_report_and_its_history(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/releases")
    page.get_by_role("link", name=RELEASE, exact=True).click()
    arms = page.get_by_role("region", name="Calls by arm").locator("tbody tr")
    expect(arms).to_have_count(2)
    expect(arms.nth(0)).to_contain_text("stable2")
    expect(arms.nth(1)).to_contain_text("candidate1")
    gate = page.get_by_role("region", name="The gate", exact=True)
    expect(gate).to_contain_text("passed")
    expect(gate).to_contain_text("fixed (64)")
    expect(gate).to_contain_text("reward, better")
    expect(gate).to_contain_text(XSS[1])
    expect(page.get_by_role("region", name="History").first).to_contain_text("offered")
    page.get_by_role("link", name=f"{RUN}@6").first.click()
    expect(page.get_by_role("heading", name="Resources")).to_be_visible()


def test_the_buttons_change_the_release_that_is_shown(url: str, page: Page, log: ReleaseLog) -> None:
    open_page(page, f"{url}/releases")
    form = page.get_by_role("form", name="Change the release")
    form.get_by_label("Reason").fill("better <b>by far</b>")
    form.get_by_label("Share in %").fill("50")
    form.get_by_label("Share in %").press("Enter")
    expect(form.get_by_role("status")).to_have_text("Changed.")
    history = page.get_by_role("region", name="History").last
    expect(history.locator("tbody tr").first).to_contain_text("better <b>by far</b>")
    form.get_by_role("button", name="Promote run@2").click()
    expect(form.get_by_role("button", name="Return to run@1")).to_be_visible()
    form.get_by_role("button", name="Pause").click()
    form.get_by_role("button", name="Resume").click()
    expect(form.get_by_role("button", name="Pause")).to_be_visible()
    form.get_by_role("button", name="Return to run@1").click()
    expect(history.locator("tbody tr")).to_have_count(7)
    made = log.history("agent")
    assert [(str(change.action), change.by) for change in made[2:]] == [
        (action, "page") for action in ("share", "promoted", "paused", "resumed", "rolled_back")
    ]
    assert made[-1].stable == "run@1"


def test_a_change_of_a_state_that_is_no_more_is_refused(url: str, page: Page, log: ReleaseLog) -> None:
    open_page(page, f"{url}/releases?release=agent")
    form = page.get_by_role("form", name="Change the release")
    expect(form.get_by_role("button", name="Promote run@2")).to_be_visible()
    body = '{"action": "promote", "revision": 1}'
    page.route("**/v1/releases/agent", lambda route: route.continue_(post_data=body))
    log.change("agent", ADA, partial(set_share, share=0.3))
    form.get_by_role("button", name="Promote run@2").click()
    expect(form.get_by_role("alert")).to_contain_text("has changed meanwhile")
    (*_, last) = log.history("agent")
    assert (str(last.action), last.stable) == ("share", "run@1")
