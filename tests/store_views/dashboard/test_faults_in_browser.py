"""What people stumbled over, at the widths of a desk and of a phone. Run by `make test-dashboard`."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Page, expect

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import AttemptState, AttemptStatus, RolloutStatus
from lightstream.schemas.topics import ROLLOUTS
from tests.store_views.dashboard.conftest import open_page
from tests.store_views.dashboard.run_records import COLLAPSED, FAILING, LOST, RUN, SEARCH, STUCK
from tests.store_views.dashboard.sizes import at_each_width, expect_to_fit
from tests.store_views.test_accounting import state

pytestmark = pytest.mark.dashboard

PAGES = (
    "/", f"/run?run={RUN}", f"/rollouts?run={RUN}", f"/rollout?run={RUN}&id={RUN}-s2-g0-1", f"/group?id={RUN}-s2-g0",
    f"/queue?run={RUN}", f"/training?run={RUN}&step=3", f"/resources?run={SEARCH}", f"/losses?run={LOST}",
    f"/tools?run={RUN}", f"/training?run={RUN}&step=12", f"/run?run={COLLAPSED}",
    f"/group?run={RUN}&id={RUN}-s12-g0", "/processes", "/releases", "/sql?query=curve", "/settings",
    f"/run?run={FAILING}", "/rollout?id=nobody", "/rollout?id=fails",
)  # fmt: skip
FRAME = '  File "/home/somebody/a/very/long/path/' + "deep/" * 30 + 'agent.py", line 12, in step\n    await call()\n'
TRACEBACK = f"Traceback (most recent call last):\n{FRAME * 4}openai.InternalServerError: Error code: 503 {'x' * 300}"


@pytest.fixture(scope="module")
def failed(view_settings: Settings) -> None:
    """A rollout ``fails``, of which three attempts failed alike and one otherwise."""
    errors = [TRACEBACK, TRACEBACK, TRACEBACK, "no\nroom"]
    now = time.time_ns()
    attempts = [
        AttemptState(
            attempt_id=f"fails-a{number}", sequence=number, status=AttemptStatus.FAILED, worker_id="w" * 60,
            started_unix_nano=now, ended_unix_nano=now + 1, error_message=text,
            error_type="InternalServerError" if number < 4 else "OSError",
        )
        for number, text in enumerate(errors, 1)
    ]  # fmt: skip
    record = state("fails", RolloutStatus.FAILED, run_id="fails-run", enqueued_unix_nano=now)
    publisher = KafkaPublisher(view_settings)
    publisher.publish(ROLLOUTS, "fails", record.model_copy(update={"attempts": attempts})).result(300)
    publisher.close()


@at_each_width
@pytest.mark.usefixtures("failed")
def test_a_failed_rollout_can_be_read(sized: Page, view_url: str) -> None:
    open_page(sized, f"{view_url}/rollout?id=fails")
    panel = sized.get_by_role("region", name="What went wrong", exact=True)
    expect(panel.get_by_role("region", name="InternalServerError")).to_contain_text("503 xxx")
    expect(panel.get_by_role("region", name="InternalServerError")).to_contain_text("(3 attempts)")
    expect(panel.get_by_role("region", name="OSError")).to_contain_text("OSError: room")
    panel.get_by_text("All of it").first.click()
    trace = panel.locator("pre").first
    expect(trace).to_be_visible()
    assert trace.inner_text().splitlines() == TRACEBACK.splitlines(), "each line stays one"
    expect(panel.get_by_role("button", name="Copy the error").first).to_be_visible()
    expect(sized.get_by_role("link", name="fails-run", exact=True).first).to_be_visible()
    expect_to_fit(sized)
    for table in sized.locator("main [tabindex='0'][role=region]:has(table)").all():
        if sized.viewport_size and sized.viewport_size["width"] > 1000:
            assert table.evaluate("it => it.scrollWidth <= it.clientWidth"), table.get_attribute("aria-label")


@at_each_width
@pytest.mark.usefixtures("failed")
def test_no_page_is_wider_than_its_window(sized: Page, view_url: str) -> None:
    for address in PAGES:
        open_page(sized, view_url + address)
        expect_to_fit(sized, address)


def test_a_rollout_that_is_not_there_leads_on(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/rollout?id=nobody")
    expect(page.get_by_role("heading", name="nobody")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("The view knows no rollout of this id.")
    page.get_by_role("link", name="All rollouts").click()
    expect(page.get_by_role("heading", name="Rollouts")).to_be_visible()


def test_a_run_tells_tasks_from_groups_and_has_no_back_ticks(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/run?run={RUN}")
    said = page.locator("main").inner_text()
    tasks, groups = (int(re.search(rf"(\d+) {what}", said)[1]) for what in ("tasks?", "groups?"))  # type: ignore[index]  # pyright: ignore[reportOptionalSubscript]  # both are said
    assert 0 < tasks <= groups
    open_page(page, f"{view_url}/run?run={STUCK}")
    expect(page.get_by_label("Alarms").locator("code").first).to_have_text("lightstream runner")
    assert "`" not in page.locator("main").inner_text()


def test_the_tab_and_the_colours_are_in_the_address(page: Page, view_url: str) -> None:
    address = f"{view_url}/rollout?run={RUN}&id={RUN}-s2-g0-1"
    open_page(page, address)
    page.get_by_role("tab", name="Tokens").click()
    expect(page).to_have_url(re.compile("tab=tokens"))
    page.get_by_label("Coloured by", exact=True).click()
    page.get_by_role("option", name="mask", exact=True).click()
    expect(page).to_have_url(re.compile("colour=mask"))
    open_page(page, page.url)
    expect(page.get_by_role("tab", name="Tokens")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_text("green: sampled by the policy, grey: not")).to_be_visible()


def test_an_id_is_copied(page: Page, view_url: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_page(page, f"{view_url}/rollout?run={RUN}&id={RUN}-s2-g0-1")
    page.get_by_role("button", name="Copy the id of the rollout").click()
    expect(page.get_by_role("button", name="Copy the id of the rollout")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == f"{RUN}-s2-g0-1"
