"""The page of a rollout, at the widths of a desk and of a phone. Run by `make test-dashboard`."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.store_views.dashboard.conftest import open_page
from tests.store_views.dashboard.run_records import (
    LARGE,
    LARGE_SPANS,
    LOST,
    REWARDED,
    RUN,
    TALK,
    TALK_CHARACTERS,
    TALK_TURNS,
    TIMED_OUT,
)
from tests.store_views.dashboard.sizes import at_each_width, expect_to_fit

pytestmark = pytest.mark.dashboard

FAILED_TOOL = f"/rollout?run={RUN}&id={RUN}-s12-g0-1"


@at_each_width
def test_a_rollout_says_at_one_glance_what_it_came_to(sized: Page, view_url: str) -> None:
    open_page(sized, view_url + FAILED_TOOL)
    way = sized.get_by_role("navigation", name="Where this is")
    expect(way.get_by_role("link").nth(0)).to_have_text(RUN)
    expect(way.get_by_role("link").nth(1)).to_have_text("step 12")
    expect(way.get_by_role("link").nth(2)).to_have_text(f"{RUN}-s12-g0")
    head = sized.locator("main dl").first
    expect(head).to_contain_text("Reward0")
    expect(head).to_contain_text("To the group's mean-0.25")
    expect(head).to_contain_text("Advantage (GRPO)-0.5")
    expect(head).to_contain_text("Policy11")
    expect(head).to_contain_text("Tokens57 → 9")
    expect(sized.get_by_role("region", name="Task", exact=True)).to_contain_text("What is 36 × 7?")
    expect(sized.get_by_role("region", name="Answer", exact=True)).to_contain_text("43")
    order = sized.locator("main section > div > h2").all_inner_texts()
    assert order[:5] == ["What went wrong", "Task and answer", "What became of it", "Conversation", "Spans"]
    expect_to_fit(sized)
    way.get_by_role("link", name="step 12").click()
    expect(sized.get_by_role("region", name="Groups of step 12")).to_be_visible()


@at_each_width
def test_what_was_said_is_one_conversation_with_tools_folded(sized: Page, view_url: str) -> None:
    open_page(sized, view_url + FAILED_TOOL)
    turns = sized.get_by_role("region", name="Conversation").get_by_role("listitem")
    expect(turns).to_have_count(4)  # of two calls: the second repeats all that the first had
    expect(turns.nth(1)).to_contain_text("What is 36 × 7?")
    tool = turns.nth(2).locator("details")
    expect(tool.locator("summary")).to_have_text(f"multiply a: 36, b: 7 → {TIMED_OUT}")
    expect(tool.get_by_text("Result", exact=True)).to_be_hidden()
    tool.locator("summary").click()
    expect(tool.locator("pre").first).to_have_text(re.compile('"a": 36,'))
    expect(tool.locator("pre").last).to_have_text(TIMED_OUT)
    expect(turns.nth(2)).to_contain_text("policy 11")
    expect(turns.nth(2)).to_contain_text("6 tokens, all sampled by the policy")
    expect(turns.nth(3)).to_contain_text("43")
    expect(turns.nth(3)).to_contain_text("reward 0")
    turns.nth(3).get_by_role("link", name="tokens").click()
    expect(sized.get_by_role("group", name="Response tokens of the call")).to_have_text("43∅")
    expect(sized).to_have_url(re.compile("span=0000000000000004&tab=tokens"))


def test_rewards_and_policies_stand_at_their_turn(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/rollout?run={REWARDED}&id={REWARDED}")
    turns = page.get_by_role("region", name="Conversation").get_by_role("listitem")
    expect(turns.nth(1)).to_contain_text("reward 0.5")
    expect(turns.nth(2)).to_contain_text("reward 2.5")
    expect(turns.nth(2)).to_contain_text("policy 4")


def test_calls_that_are_no_training_data_say_so_at_their_turn(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/rollout?run={LOST}&id={LOST}-0")
    turns = page.get_by_role("region", name="Conversation").get_by_role("listitem")
    expect(turns.nth(2)).to_contain_text("no training data")
    turns.nth(2).get_by_role("link", name="its span").click()
    expect(page.get_by_role("tab", name="Messages")).to_have_attribute("aria-selected", "true")


@at_each_width
def test_a_long_conversation_shows_its_begin_and_end_and_all_when_asked(sized: Page, view_url: str) -> None:
    open_page(sized, f"{view_url}/rollout?id={TALK}")
    panel = sized.get_by_role("region", name="Conversation")
    expect(panel).to_contain_text(f"{2 * TALK_TURNS} turns")
    first = panel.get_by_role("listitem").first.locator("pre")
    expect(first).to_have_text(re.compile(f"^beginx+\\s+\\[… {TALK_CHARACTERS - 19_900} characters …\\]\\s+x+end$"))
    expect(panel).to_contain_text(f"answer {TALK_TURNS - 1}")
    expect(panel.get_by_role("listitem")).to_have_count(30)
    assert sized.evaluate("document.querySelectorAll('*').length") <= 1_500
    panel.get_by_role("button", name="Show the 70 turns between").click()
    expect(panel.get_by_role("listitem")).to_have_count(2 * TALK_TURNS)
    expect_to_fit(sized)


@at_each_width
def test_a_failed_tool_is_said_first_and_reached_by_a_link_and_a_key(sized: Page, view_url: str) -> None:
    open_page(sized, view_url + FAILED_TOOL)
    wrong = sized.get_by_role("region", name="What went wrong", exact=True)
    expect(wrong.get_by_role("listitem")).to_have_text(f"tool multiply: {TIMED_OUT}")
    failed = sized.get_by_role("tree", name="Spans").get_by_role("treeitem").filter(has_text="multiply")
    expect(failed).to_have_attribute("aria-selected", "false")
    expect(failed).to_contain_text(TIMED_OUT)
    sized.keyboard.press("e")
    expect(failed).to_have_attribute("aria-selected", "true")
    sized.get_by_role("tab", name="Input and output").click()
    expect(sized.get_by_role("tabpanel")).to_contain_text('"a": 36')
    open_page(sized, view_url + FAILED_TOOL)
    wrong.get_by_role("link", name="tool multiply").click()
    expect(failed).to_have_attribute("aria-selected", "true")
    expect(sized).to_have_url(re.compile("span=0000000000000003"))


def test_spans_have_kinds_fold_and_are_searched(page: Page, view_url: str) -> None:
    open_page(page, view_url + FAILED_TOOL)
    tree = page.get_by_role("tree", name="Spans")
    spans = tree.get_by_role("treeitem")
    expect(spans).to_have_count(5)
    for at, said in enumerate(("agent", "LLM", "tool", "LLM", "reward")):
        expect(spans.nth(at)).to_contain_text(said)
    tree.focus()
    page.keyboard.press("Home")
    expect(spans.first).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("ArrowLeft")
    expect(spans).to_have_count(1)
    page.keyboard.press("ArrowRight")
    expect(spans).to_have_count(5)
    spans.first.get_by_text("▾").click()
    expect(spans).to_have_count(1)
    page.get_by_label("Spans with").fill("llm chat")
    expect(spans).to_have_count(2)
    expect(page).to_have_url(re.compile(r"find=llm\+chat"))
    page.reload()
    expect(spans).to_have_count(2)
    page.get_by_label("Spans with").fill("error")
    expect(spans).to_have_count(1)


def test_a_large_tree_opens_at_its_root(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/rollout?id={LARGE}")
    spans = page.get_by_role("tree", name="Spans").get_by_role("treeitem")
    expect(spans.first).to_have_attribute("aria-posinset", "1")
    expect(spans.first).to_contain_text("work 1")
    page.get_by_label("Spans with").fill(f"work {LARGE_SPANS - 3}")
    expect(spans).to_have_count(1)


def test_a_conversation_is_copied(page: Page, view_url: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_page(page, view_url + FAILED_TOOL)
    page.get_by_role("button", name="Copy the conversation").click()
    expect(page.get_by_role("button", name="Copy the conversation")).to_have_text("Copied")
    said = page.evaluate("navigator.clipboard.readText()")
    assert said.startswith("system:\nUse the tool")
    assert said.endswith("assistant:\n43")
