"""Tools, errors, what changed at a step, groups, tasks, and the list of rollouts. Run by `make test-dashboard`."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.store_views.dashboard.conftest import open_page
from tests.store_views.dashboard.run_records import HOSTILE, MEMBERS, NOT_TRAINED, RUN, SEARCH, TIMED_OUT
from tests.store_views.dashboard.sizes import at_each_width, expect_to_fit

pytestmark = pytest.mark.dashboard

NONE = "\u2013"
TOOL_CALLS, TOOL_ERRORS = 224, 13
"""Of the run: one call in each rollout of its fourteen steps; twelve timed out, one divided by zero."""


@at_each_width
def test_tools_say_how_often_they_failed_and_what_it_cost(sized: Page, view_url: str) -> None:
    open_page(sized, f"{view_url}/tools?run={RUN}")
    row = sized.get_by_role("region", name="Tools").locator("tbody tr")
    expect(row).to_have_count(1)
    said = row.locator("td").all_inner_texts()
    assert said[0].splitlines()[0] == "multiply"
    assert said[1:6] == [str(TOOL_CALLS), str(TOOL_ERRORS), "6 %", "500 ms", "500 ms"]
    assert said[9] == "0", "no rollout in which it failed had a reward above 0"
    assert float(said[7]) > 0.4, "the mean of all that used it"
    expect_to_fit(sized)
    row.get_by_role("link", name="multiply", exact=True).click()
    expect(sized).to_have_url(re.compile("tool=multiply"))
    expect(sized.get_by_role("region", name="Rollouts").locator("tbody tr")).to_have_count(100)


@at_each_width
def test_errors_are_grouped_by_their_text(sized: Page, view_url: str) -> None:
    open_page(sized, f"{view_url}/tools?run={RUN}")
    rows = sized.get_by_role("region", name="Errors").locator("tbody tr")
    expect(rows).to_have_count(3)
    first = rows.first
    expect(first).to_contain_text(TIMED_OUT)
    assert first.locator("td").all_inner_texts()[1:3] == ["12", "12"]
    expect(first.get_by_role("img")).to_have_accessible_name("12 times over the time of the run")
    assert first.locator("rect").count() == 1, "all of them at one time"
    first.get_by_role("link", name=TIMED_OUT).click()
    expect(sized).to_have_url(re.compile("error=TimeoutError"))
    expect(sized.get_by_role("region", name="Rollouts").locator("tbody tr")).to_have_count(12)


def test_a_run_without_tools_says_how_to_have_them(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/tools?run={SEARCH}")
    expect(page.get_by_text("No run of a tool was recorded.")).to_be_visible()
    expect(page.get_by_text("Nothing failed.")).to_be_visible()


@at_each_width
def test_a_step_says_what_changed_since_the_one_before(sized: Page, view_url: str) -> None:
    open_page(sized, f"{view_url}/training?run={RUN}&step=12")
    changes = sized.get_by_role("region", name="What changed since step 11").locator("tbody tr")

    def told(what: str) -> list[str]:
        return changes.filter(has_text=what).locator("td").all_inner_texts()[1:]

    expect(changes.filter(has_text=TIMED_OUT)).to_be_visible()
    assert told("mean reward") == ["0.75", "0.25", "-0.5"]
    assert told(TIMED_OUT) == ["0", "12", "+12"]
    assert told("error rate of the tool") == ["0 %", "75 %", "+75 %"]
    assert told("actor/entropy")[2].startswith("+"), "its entropy rose again"
    order = changes.locator("td:first-child").all_inner_texts()
    assert order[0].startswith("reward"), order
    assert order[1].startswith("rollouts with the error"), order
    expect_to_fit(sized)
    changes.filter(has_text=TIMED_OUT).get_by_role("link").click()
    expect(sized.get_by_role("region", name="What went wrong", exact=True)).to_contain_text(TIMED_OUT)


def test_a_step_is_compared_with_any_other(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/training?run={RUN}&step=12")
    page.get_by_label("Compared with step", exact=True).click()
    page.get_by_role("option", name="3", exact=True).click()
    expect(page).to_have_url(re.compile("before=3"))
    page.reload()
    expect(page.get_by_role("region", name="What changed since step 3").locator("tbody tr").first).to_be_visible()
    open_page(page, f"{view_url}/training?run={RUN}&step=1")
    expect(page.get_by_role("region", name="Groups of step 1")).to_be_visible()
    expect(page.get_by_text("What changed since")).to_have_count(0)


@at_each_width
def test_a_group_is_sorted_and_its_best_and_worst_stand_beside_each_other(sized: Page, view_url: str) -> None:
    open_page(sized, f"{view_url}/group?run={RUN}&id={RUN}-s12-g0")
    cards = sized.get_by_label("Rollouts of the group").get_by_role("listitem")
    expect(cards).to_have_count(MEMBERS)
    rewards = [float(text) for text in cards.locator("strong").all_inner_texts()]
    assert rewards == [1, 0, 0, 0]
    beside = sized.get_by_role("region", name="Beside each other")
    expect(beside).to_contain_text("They differ from turn 3 on.")
    best, worst = (beside.get_by_role("region", name=f"{RUN}-s12-g0-{member}") for member in (0, 3))
    expect(best.locator("[data-differs]")).to_contain_text("multiply a: 36, b: 7 → 252")
    expect(worst.locator("[data-differs]")).to_contain_text(TIMED_OUT)
    expect_to_fit(sized)
    sized.get_by_label("One", exact=True).click()
    sized.get_by_role("option", name=re.compile(f"{RUN}-s12-g0-1 ")).click()
    expect(sized).to_have_url(re.compile(f"a={RUN}-s12-g0-1&b={RUN}-s12-g0-3"))
    expect(beside).to_contain_text("Nothing that was said differs.")
    sized.reload()
    expect(beside).to_contain_text("Nothing that was said differs.")
    beside.get_by_role("link", name="tokens").first.click()
    expect(sized.get_by_role("heading", name=f"{RUN}-s12-g0-1")).to_be_visible()


@at_each_width
def test_a_task_is_compared_across_runs_and_policies(sized: Page, view_url: str) -> None:
    stale = NOT_TRAINED["stale"]
    open_page(sized, f"{view_url}/rollout?run={stale}&id={stale}-0")
    sized.get_by_role("link", name=re.compile("The same task in .* other rollouts")).click()
    tries = sized.get_by_role("region", name="The task by run and policy").locator("tbody tr")
    expect(tries.filter(has_text=stale)).to_be_visible()
    expect(tries.filter(has_text=NOT_TRAINED["too_long"])).to_be_visible()
    expect(sized.get_by_role("region", name="Beside each other").get_by_role("listitem").first).to_be_visible()
    expect_to_fit(sized)


def test_rollouts_are_sorted_and_pages_skip_nothing(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/rollouts?run={RUN}")
    table = page.get_by_role("region", name="Rollouts")
    rows = table.locator("tbody tr")
    table.get_by_role("button", name="Reward").click()
    expect(page).to_have_url(re.compile("sort=reward"))
    expect(table.get_by_role("columnheader", name="Reward")).to_have_attribute("aria-sort", "descending")
    expect(rows.first.locator("td").nth(3)).to_have_text("1")
    table.get_by_role("button", name="Reward").click()
    expect(page).to_have_url(re.compile("sort=-reward"))
    expect(rows.first.locator("td").nth(3)).to_have_text("0")
    for _ in range(2):
        page.get_by_role("button", name="Show more").click()
        expect(page.get_by_role("button", name="Asking …")).to_have_count(0)
    expect(page.get_by_text("228 rollouts in all")).to_be_visible()
    ids = rows.locator("td:first-child").all_inner_texts()
    assert len(set(ids)) == len(ids) == 228
    told = rows.locator("td:nth-child(4)").all_inner_texts()
    rewards = [float(text) for text in told if text != NONE]
    assert rewards == sorted(rewards)
    assert told[len(rewards) :] == [NONE] * (228 - len(rewards)), "those without a reward come last"


@at_each_width
def test_rollouts_are_sorted_at_each_width(sized: Page, view_url: str) -> None:
    open_page(sized, f"{view_url}/rollouts?run={RUN}&step=12")
    table = sized.get_by_role("region", name="Rollouts")
    rows = table.locator("tbody tr")
    expect(rows).to_have_count(16)
    for order, reward in (("descending", "1"), ("ascending", "0")):
        table.get_by_role("button", name="Reward").click()
        expect(table.locator("th", has_text="Reward")).to_have_attribute("aria-sort", order)
        expect(rows.first.locator("td").nth(3)).to_have_text(reward)
    expect_to_fit(sized)


@at_each_width
def test_rewards_are_a_histogram_whose_bars_narrow_the_list(sized: Page, view_url: str) -> None:
    open_page(sized, f"{view_url}/rollouts?run={RUN}&step=12")
    bars = sized.get_by_role("group", name="Rewards").get_by_role("button")
    expect(bars).to_have_count(2)
    bars.last.click()
    rows = sized.get_by_role("region", name="Rollouts").locator("tbody tr")
    expect(rows).to_have_count(4)
    expect(sized).to_have_url(re.compile("low=1&high=1"))
    expect(bars.last).to_have_attribute("aria-pressed", "true")
    sized.reload()
    expect(rows).to_have_count(4)
    sized.get_by_role("button", name="Reward 1 to 1 ✕").click()
    expect(rows).to_have_count(16)
    expect_to_fit(sized)


def test_rollouts_are_found_by_error_and_shown_with_answers(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/rollouts?run={RUN}")
    rows = page.get_by_role("region", name="Rollouts").locator("tbody tr")
    page.get_by_label("Error", exact=True).fill("took longer")
    expect(rows).to_have_count(12)
    page.get_by_role("button", name="With answers").click()
    expect(rows.filter(has_text=f"{RUN}-s12-g0-1").locator("td").nth(2)).to_have_text("43")
    page.get_by_label("Error", exact=True).fill("no such error")
    expect(page.get_by_text("No rollout fits these filters.")).to_be_visible()


def test_rollouts_are_saved_as_files(page: Page, view_url: str, tmp_path: Path) -> None:
    open_page(page, f"{view_url}/rollouts?run={RUN}&mode=train")
    expect(page.get_by_role("region", name="Rollouts").locator("tbody tr")).to_have_count(100)
    saved: dict[str, list[dict[str, str]]] = {}
    for name, read in (("Save as CSV", csv.DictReader), ("as JSONL", lambda file: map(json.loads, file))):
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        with path.open(encoding="utf-8", newline="") as file:
            saved[path.suffix] = list(read(file))
    for rows in saved.values():
        ids = [row["rollout_id"] for row in rows]
        assert len(set(ids)) == len(ids) == 225, "all of the run, not only those that are shown"
        (one,) = [row for row in rows if row["rollout_id"] == f"{RUN}-s12-g0-1"]
        assert one["answer"] == "43"
        assert json.loads(one["input_json"])["question"] == "What is 36 × 7?"


def test_hostile_texts_are_shown_on_these_pages_and_never_run(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/rollouts?run={HOSTILE}&answers=1")
    expect(page.get_by_role("region", name="Rollouts")).to_contain_text("<img src=x")
    open_page(page, f"{view_url}/tools?run={HOSTILE}")
    expect(page.get_by_role("region", name="Errors").last).to_contain_text("<img src=x")
    open_page(page, f"{view_url}/group?run={HOSTILE}&id=group <img src=x onerror='window.hacked = 1'>")
    expect(page.get_by_role("region", name="Beside each other")).to_be_visible()
    assert page.evaluate("window.hacked") is None
    assert page.locator("iframe, main img, main script").count() == 0
