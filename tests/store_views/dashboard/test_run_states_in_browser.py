"""The page says what each run is doing, as SQL and the command do. Run by `make test-dashboard`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from tests.store_views.dashboard.conftest import open_page
from tests.store_views.view_process import running_view
from tests.support.trainings import EXPECTED, trainings

pytestmark = pytest.mark.dashboard


@pytest.fixture
def url(settings: Settings) -> Iterator[str]:
    with running_view(settings), trainings(settings):
        yield discover(settings, "view").address


def test_the_page_says_what_each_run_is_doing(url: str, page: Page) -> None:
    open_page(page, url)
    rows = page.get_by_role("region", name="Runs").locator("tbody tr")
    for run, state in EXPECTED.items():
        row = rows.filter(has=page.get_by_role("link", name=run, exact=True))
        expect(row.get_by_role("cell").nth(1)).to_contain_text(state)
    failed = rows.filter(has=page.get_by_role("link", name="failed", exact=True))
    expect(failed).to_contain_text("all 64 rollouts of step 4 failed.")
    for run, state in EXPECTED.items():
        open_page(page, f"{url}/run?run={run}")
        head = page.locator("main h1 + *")
        expect(head).to_have_text(state)
        said = {
            "failed": "The training failed",
            "lost": "No sign of life of the trainer since",
        }.get(state)
        if said:
            expect(page.get_by_role("alert").filter(has_text=said)).to_be_visible()
        else:
            expect(page.get_by_role("alert")).to_have_count(0)
    open_page(page, f"{url}/run?run=raised")
    expect(page.get_by_role("alert")).to_contain_text("ValueError: three\nlines ?")
    open_page(page, f"{url}/run?run=typo")
    expect(page.locator("main")).to_contain_text('The view knows no rollout of the run "typo".')
    expect(page.locator("main h1 + *")).to_have_count(0)
