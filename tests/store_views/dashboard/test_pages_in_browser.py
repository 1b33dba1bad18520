"""Single pages of the dashboard in a real browser: each shows what it is for. Run by `make test-dashboard`."""

from __future__ import annotations

import re
import time
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import RolloutStatus
from lightstream.schemas.topics import ROLLOUTS, SPANS
from lightstream.store_views.sql_literal import sql_literal
from tests.store_views.dashboard.conftest import open_page
from tests.store_views.dashboard.run_records import (
    DISCARDED,
    FAILING,
    HOSTILE,
    LOST,
    NOT_TRAINED,
    REWARDED,
    RUN,
    SEARCH,
    STUCK,
    XSS,
    hostile_processes,
)
from tests.store_views.test_accounting import state
from tests.stream_processors.assembly.build import framework_span
from tests.support.waiting import eventually

pytestmark = pytest.mark.dashboard


def expect_no_script(page: Page, where: str) -> None:
    assert page.evaluate("window.hacked") is None, where
    assert page.locator("iframe, main img, main script, main svg[onload]").count() == 0, where


def hostile_rollout(number: int) -> str:
    return f"/rollout?run={quote(HOSTILE)}&id={quote(f'hostile-{number} {XSS[number]}'[:200])}"


@pytest.mark.parametrize("number", range(len(XSS)))
def test_each_text_of_a_span_is_shown_and_never_run(page: Page, view_url: str, number: int) -> None:
    text, address = XSS[number], view_url + hostile_rollout(number)
    open_page(page, address)
    page.get_by_role("tab", name="Tokens").click()
    expect(page.get_by_role("group", name="Response tokens of the call")).to_have_text(text)
    expect(page.get_by_role("region", name="LLM calls").last).to_contain_text(f"HTTP 500: {text}")
    expect_no_script(page, address)
    for span in ("0000000000000004", "0000000000000005"):
        open_page(page, f"{address}&span={span}")
        tabs = page.get_by_role("tab")
        expect(tabs.filter(has_text="Links")).to_be_visible()
        for tab in tabs.all():
            tab.click()
            shown = page.get_by_role("tabpanel")
            expect(shown.get_by_text("Asking the view …")).to_have_count(0)
            if tab.inner_text() in ("Events", "Links", "Attributes", "About", "Messages"):
                told = text if tab.inner_text() in ("About", "Messages") else text.replace('"', '\\"')
                expect(shown).to_contain_text(told)
            expect_no_script(page, f"{span}: {tab.inner_text()}")


def test_each_text_of_workers_prompts_and_dead_letters_is_shown_and_never_run(
    page: Page, view_url: str, view_settings: Settings
) -> None:
    publisher = KafkaPublisher(view_settings)
    for written in [publisher.publish(*record) for record in hostile_processes(time.time_ns())]:
        written.result(300)
    publisher.close()
    open_page(page, f"{view_url}/processes")
    workers = page.get_by_role("region", name="Workers").last
    for text in XSS:
        expect(workers).to_contain_text(f"worker {text}")
        expect(workers).to_contain_text(f"host {text}")
    expect_no_script(page, "processes")
    open_page(page, f"{view_url}/losses?run={quote(HOSTILE)}")
    letters = page.get_by_role("region", name="Dead letters").last
    for record in letters.locator("summary").all():
        record.click()
    for text in XSS:
        for field in ("detail", "topic", "reporter"):
            expect(letters).to_contain_text(f"{field} {text}")
        value = text.replace("'", "\\x27").replace('"', "\\x22")  # bytes, as DuckDB writes them
        expect(letters).to_contain_text(f"value {value}")
    expect_no_script(page, "losses")
    for text in XSS:
        open_page(page, f"{view_url}/resources?{urlencode({'run': HOSTILE, 'id': text})}")
        expect(page.get_by_role("region", name="Prompts of the search, best first")).to_contain_text(text)
        expect(page.get_by_text(f"critique {text}")).to_be_visible()
        expect_no_script(page, f"prompt {text}")


def test_answers_on_the_page_for_sql_are_shown_and_never_run(page: Page, view_url: str) -> None:
    named = ", ".join(f'{sql_literal(text)} AS "{text.replace(chr(34), chr(34) * 2)}"' for text in XSS)
    listed = ", ".join(sql_literal(text) for text in XSS)
    spans = "SELECT name, attributes, events, links, status_message FROM spans WHERE contains(name, 'onerror')"
    for statement in (f"SELECT {named}", f"SELECT [{listed}] AS texts", spans):
        open_page(page, f"{view_url}/sql?{urlencode({'q': statement})}")
        page.get_by_role("button", name="Run", exact=True).click()
        answer = page.get_by_role("region", name="Answer").last
        expect(answer).to_contain_text("onerror")
        expect_no_script(page, statement)
    wrong = f"SELECT {sql_literal(XSS[1])}::INTEGER"
    open_page(page, f"{view_url}/sql?{urlencode({'q': wrong})}")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text(XSS[1])
    expect_no_script(page, wrong)


@pytest.mark.parametrize("text", XSS)
def test_what_an_address_says_is_never_run(page: Page, view_url: str, text: str) -> None:
    pages = {
        "/run": ["run"],
        "/rollouts": ["run", "status", "mode", "group", "reason", "text"],
        "/group": ["run", "id"],
        "/training": ["run", "metric", "compare"],
        "/resources": ["run", "id"],
        "/losses": ["run"],
        "/rollout": ["run", "id", "span"],
        "/sql": ["q", "query", "run"],
    }
    for path, names in pages.items():
        page.goto(f"{view_url}{path}?{urlencode(dict.fromkeys(names, text))}")
        expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
        expect(page.locator("main").get_by_text("Asking the view …")).to_have_count(0)
        expect_no_script(page, path)


def test_spans_that_come_while_a_rollout_is_open_are_shown(page: Page, view_url: str, view_settings: Settings) -> None:
    rollout = f"{RUN}-s2-g0-0"
    open_page(page, f"{view_url}/rollout?run={RUN}&id={rollout}")
    spans = page.get_by_role("tree", name="Spans").get_by_role("treeitem")
    expect(spans).to_have_count(5)
    publisher = KafkaPublisher(view_settings)
    for number in (71, 72):
        late = framework_span(number, rollout_id=rollout, name=f"late-{number}")
        publisher.publish(SPANS, rollout, late).result(300)
        expect(spans.filter(has_text=f"late-{number}")).to_be_visible()
    publisher.close()
    expect(spans).to_have_count(7)


@pytest.mark.parametrize("part", ["Training-*.js", "Chart-*.css"])
def test_a_part_of_an_older_build_that_is_gone_is_told_with_what_to_do(page: Page, view_url: str, part: str) -> None:
    def of_another_build(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace("/assets/index-", "/assets/index-of-another-"))

    page.route(f"**/assets/{part}", lambda route: route.fulfill(status=404))
    open_page(page, f"{view_url}/rollouts?run={RUN}")
    page.route(f"{view_url}/", of_another_build)
    page.get_by_role("link", name="Training", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("The view was updated while this page was open.")
    page.unroute(f"{view_url}/")
    page.unroute(f"**/assets/{part}")
    page.get_by_role("button", name="Load it again").click()
    expect(page.get_by_role("heading", name="Training")).to_be_visible()
    expect(page.get_by_role("slider").first).to_be_visible()


@pytest.mark.parametrize("is_ahead", [True, False])
def test_a_page_that_was_not_open_before_comes_while_the_view_is_away_or_once_it_is_back(
    page: Page, view_url: str, is_ahead: bool
) -> None:
    if is_ahead:  # pages are loaded ahead, a moment after the first
        open_page(page, f"{view_url}/rollouts?run={RUN}")
        parts = (
            "performance.getEntriesByType('resource').filter(one => /(Training|Chart)-.*[.](js|css)/.test(one.name))"
        )
        eventually(lambda: page.evaluate(f"{parts}.length") >= 3, what="the pages that are loaded ahead")
    else:
        open_page(page, f"{view_url}/rollouts?run={RUN}")
        page.route("**/assets/*", lambda route: route.abort("internetdisconnected"))
    page.context.set_offline(True)
    page.get_by_role("link", name="Training", exact=True).click()
    if is_ahead:
        expect(page.get_by_role("heading", name="Training")).to_be_visible()
    expect(page.get_by_role("alert").first).to_contain_text("The view does not answer.")
    page.unroute("**/assets/*")
    page.context.set_offline(False)
    expect(page.get_by_role("heading", name="Training")).to_be_visible()
    expect(page.get_by_role("slider").first).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_text("The view was updated")).to_have_count(0)


def background_colours(tokens: Locator) -> list[str]:
    shown: list[str] = tokens.locator("span").evaluate_all(
        "all => all.map(one => getComputedStyle(one).backgroundColor)"
    )
    return shown


def choose(page: Page, label: str, option: str) -> None:
    page.get_by_label(label, exact=True).click()
    page.get_by_role("option", name=option, exact=True).click()


def test_tokens_are_coloured_by_mask_and_policy_version(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/rollout?run={REWARDED}&id={REWARDED}")
    page.get_by_role("tab", name="Tokens").click()
    tokens = page.get_by_role("group", name="Response tokens of the call")
    expect(tokens).to_have_text("11121314")
    choose(page, "Coloured by", "mask")
    expect(page.get_by_text("green: sampled by the policy, grey: not")).to_be_visible()
    sampled = background_colours(tokens)
    assert len(set(sampled)) == 1
    choose(page, "Coloured by", "policy version")
    expect(page.get_by_text("one colour for each policy version")).to_be_visible()
    first, second, third, fourth = background_colours(tokens)
    assert first == second != third == fourth
    expect(tokens.get_by_title(re.compile("token 1: .* policy 3$"))).to_be_visible()
    expect(tokens.get_by_title(re.compile("token 2: .* policy 4$"))).to_be_visible()


def colours_by_reward(page: Page, url: str) -> tuple[list[str], str]:
    """Background of each token of the first call, and what is said of the rollout's reward."""
    open_page(page, url)
    page.get_by_role("tab", name="Tokens").click()
    choose(page, "Coloured by", "reward minus the group's mean")
    expect(page.get_by_text("sampled tokens, each as its rollout:")).to_be_visible()
    said = page.get_by_text("reward of the rollout minus the group's mean: ")
    shown = background_colours(page.get_by_role("group", name="Response tokens of the call"))
    return shown, said.inner_text()


def test_tokens_are_coloured_by_how_far_the_reward_is_from_the_mean_of_the_group(page: Page, view_url: str) -> None:
    group = f"{view_url}/rollout?run={RUN}&id={RUN}-s6-g0"
    worse, said_of_worse = colours_by_reward(page, f"{group}-1")  # rewards 0, 0, 1, 0
    better, said_of_better = colours_by_reward(page, f"{group}-2")
    assert len(set(worse)) == len(set(better)) == 1, "a rollout has one reward"
    assert worse[0] != better[0]
    mean = "reward of the rollout minus the group's mean: "
    grpo = "; divided by the group's standard deviation, as the run's GRPO does: "
    assert (said_of_worse, said_of_better) == (f"{mean}-0.25{grpo}-0.5", f"{mean}+0.75{grpo}+1.5")
    flat, said_of_flat = colours_by_reward(page, f"{view_url}/rollout?run={RUN}&id={RUN}-s14-g0-1")
    assert said_of_flat == f"{mean}0{grpo}0"
    alone, said_of_alone = colours_by_reward(page, f"{view_url}/rollout?run={REWARDED}&id={REWARDED}")
    assert said_of_alone == f"{mean}0", "nothing tells how its trainer would compare it"
    assert set(flat) == set(alone), "neither is farther from the mean than the other"


def test_each_call_reward_and_dropped_call_says_where_it_lies(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/rollout?run={REWARDED}&id={REWARDED}")
    for panel, count in (("LLM calls", 2), ("Rewards", 3)):
        rows = page.get_by_role("region", name=panel).last.locator("tbody tr")
        expect(rows).to_have_count(count)
        for row in rows.all():
            expect(row).to_contain_text(re.compile(r"spans/0 @ \d+"))
    open_page(page, f"{view_url}/rollout?run={LOST}&id={LOST}-0")
    dropped = page.get_by_role("region", name="Dropped, and oddities").last.locator("tbody tr")
    expect(dropped).to_have_count(2)
    for row in dropped.all():
        expect(row).to_contain_text(re.compile(r"spans/0 @ \d+"))


def test_each_reward_says_what_it_went_to(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/rollout?run={REWARDED}&id={REWARDED}")
    rewards = page.get_by_role("region", name="Rewards").last.get_by_role("row")
    expect(rewards.filter(has_text="linked")).to_contain_text("call 0 (by link)")
    expect(rewards.filter(has_text="nowhere")).to_contain_text("nothing: it names no call of this attempt")
    expect(rewards.filter(has_text="whole")).to_contain_text("the whole trajectory")


@pytest.mark.parametrize("reason", NOT_TRAINED)
def test_what_kept_a_run_from_training_is_an_alarm(page: Page, view_url: str, reason: str) -> None:
    open_page(page, f"{view_url}/run?run={NOT_TRAINED[reason]}")
    alarm = page.get_by_label("Alarms").get_by_role("listitem")
    expect(alarm).to_have_count(1)
    expect(alarm).to_contain_text("100 % of the finished rollouts did not train: ")
    alarm.get_by_role("link", name="show them").click()
    expect(page).to_have_url(re.compile(rf"reason={reason}(&|$)"))
    expect(page.get_by_role("link", name=f"{NOT_TRAINED[reason]}-0")).to_be_visible()


def test_failures_are_an_alarm(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/run?run={FAILING}")
    alarms = page.get_by_label("Alarms")
    expect(alarms).to_contain_text("50 % of the finished rollouts failed")
    alarms.get_by_role("link", name="show them").click()
    expect(page).to_have_url(re.compile("status=failed"))
    expect(page.get_by_role("link", name=f"{FAILING}-0")).to_be_visible()
    expect(page.get_by_role("link", name=f"{FAILING}-1")).to_have_count(0)


def test_a_discarded_step_and_rollouts_that_nobody_takes_are_alarms(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/run?run={DISCARDED}")
    expect(page.get_by_label("Alarms")).to_contain_text("The last step was discarded (1 step so far)")
    open_page(page, f"{view_url}/run?run={STUCK}")
    expect(page.get_by_label("Alarms")).to_contain_text("none is running")
    expect(page.get_by_label("Alarms")).to_contain_text("start one with lightstream runner")


def test_a_run_without_trouble_has_no_alarm(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/run?run={SEARCH}")
    expect(page.get_by_role("region", name="Why rollouts did not train").last).to_contain_text("no_calls")
    expect(page.get_by_label("Alarms")).to_have_count(0)


def test_a_run_is_compared_with_others(page: Page, view_url: str) -> None:
    stale = NOT_TRAINED["stale"]
    open_page(page, f"{view_url}/training?run={RUN}")
    curves = page.get_by_role("region", name="reward/mean", exact=True)
    expect(curves).to_be_visible()
    expect(curves).not_to_contain_text(stale)
    choose(page, "Beside", stale)
    expect(page).to_have_url(re.compile(rf"compare={stale}"))
    expect(curves).to_contain_text(stale)
    expect(curves).to_contain_text(RUN)
    others = [stale, NOT_TRAINED["too_long"], DISCARDED]
    for other in others[1:]:
        choose(page, "Beside", other)
        expect(curves).to_contain_text(other)
    page.reload()
    for other in others:
        expect(curves).to_contain_text(other)
    page.get_by_role("button", name=f"Without {stale}").click()
    expect(curves).not_to_contain_text(stale)
    for other in [RUN, *others[1:]]:
        expect(curves).to_contain_text(other)


def test_versions_show_what_changed_and_how_they_fared(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/resources?run={RUN}&id={RUN}-v6")
    expect(page.get_by_role("region", name="Mean reward by version")).to_be_visible()
    versions = page.get_by_role("region", name="Versions").last
    expect(versions.locator("tbody tr")).to_have_count(15)
    changes = page.get_by_label(f"Changes in {RUN}-v6")
    expect(changes).to_contain_text("policy@6")
    expect(changes.locator(".cm-deletedChunk")).to_contain_text("policy@5")
    versions.get_by_role("link", name=f"{RUN}-v3", exact=True).click()
    expect(page.get_by_label(f"Changes in {RUN}-v3")).to_contain_text("policy@3")
    expect(page).to_have_url(re.compile(f"id={RUN}-v3"))
    versions.get_by_role("link", name=f"{RUN}-v0", exact=True).click()
    expect(page.get_by_text("the first", exact=True)).to_be_visible()


def test_dropped_calls_and_dead_letters_say_why_and_where(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/losses?run={LOST}")
    dropped = (
        page.get_by_role("region", name="Dropped calls and rewards")
        .last.get_by_role("row")
        .filter(has_text="no_token_ids")
    )
    expect(dropped).to_contain_text("The model server returned no token ids")
    expect(dropped.get_by_role("cell", name="12", exact=True)).to_be_visible()
    expect(dropped).to_contain_text(re.compile(r"spans/0 @ \d+"))
    letter = page.get_by_role("region", name="Dead letters").last.get_by_role("row").filter(has_text="assembler")
    expect(letter).to_contain_text("the value does not begin with Avro's marker")
    expect(letter.get_by_role("cell", name="spans/0 @ 17")).to_be_visible()
    dropped.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(LOST)


def test_figures_are_called_incomplete_while_the_view_rebuilds(page: Page, view_url: str) -> None:
    rebuilding = {"records_done": 1_200, "records_total": 4_800, "seconds_left": 90.0}
    is_rebuilding = True

    def answer(route: Route) -> None:
        """The view's own answer; its rebuilding, which takes a moment here, made as long as that of a long log."""
        response = route.fetch()
        route.fulfill(response=response, json=response.json() | ({"rebuilding": rebuilding} if is_rebuilding else {}))

    page.route("**/v1/positions", answer)
    page.goto(view_url)
    notice = page.get_by_text("The view is reading the log: figures are not complete yet.")
    expect(notice).to_be_visible()
    expect(page.get_by_text("1,200 of 4,800 records, about 1 min 30 s left.")).to_be_visible()
    is_rebuilding = False
    expect(notice).to_have_count(0)
    page.unroute_all(behavior="wait")


def test_new_rollouts_come_into_the_list_and_finish_there(page: Page, view_url: str, view_settings: Settings) -> None:
    run = "growing"
    open_page(page, f"{view_url}/rollouts?run={run}")
    expect(page.get_by_text("No rollout fits these filters.")).to_be_visible()
    publisher, now = KafkaPublisher(view_settings), time.time_ns()
    for number, status in enumerate((RolloutStatus.QUEUING, RolloutStatus.SUCCEEDED)):
        made = state("growing-0", status, number, run_id=run, enqueued_unix_nano=now)
        publisher.publish(ROLLOUTS, "growing-0", made).result(300)
        row = page.get_by_role("row").filter(has_text="growing-0")
        expect(row).to_contain_text(status.value)
    publisher.close()


def test_the_theme_that_is_chosen_stays(page: Page, view_url: str) -> None:
    root = page.locator("html")
    open_page(page, f"{view_url}/settings")
    expect(root).to_have_attribute("data-theme", "light")
    choose(page, "Light or dark", "dark")
    expect(root).to_have_attribute("data-theme", "dark")
    open_page(page, view_url)
    expect(root).to_have_attribute("data-theme", "dark")
    open_page(page, f"{view_url}/settings")
    choose(page, "Light or dark", "as the system has it")
    expect(root).to_have_attribute("data-theme", "light")
    page.emulate_media(color_scheme="dark")
    expect(root).to_have_attribute("data-theme", "dark")
