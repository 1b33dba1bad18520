"""What single pages of the dashboard show, in a real browser. Run by `make test-dashboard`."""

from __future__ import annotations

import time
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import Page, expect

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import SPANS
from lightstream.store_views.sql_literal import sql_literal
from tests.store_views.dashboard.conftest import open_page
from tests.store_views.dashboard.run_records import HOSTILE, RUN, XSS, hostile_processes
from tests.stream_processors.assembly.build import framework_span

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
        written.result(60)
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
        "/sql": ["q"],
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
        publisher.publish(SPANS, rollout, late).result(60)
        expect(spans.filter(has_text=f"late-{number}")).to_be_visible()
    publisher.close()
    expect(spans).to_have_count(7)


@pytest.mark.parametrize("part", ["Training-*.js", "Chart-*.css"])
def test_a_part_of_an_older_build_that_is_gone_is_told_with_what_to_do(page: Page, view_url: str, part: str) -> None:
    open_page(page, f"{view_url}/rollouts?run={RUN}")
    page.route(f"**/assets/{part}", lambda route: route.fulfill(status=404))
    page.get_by_role("link", name="Training", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("The view was updated while this page was open.")
    page.unroute(f"**/assets/{part}")
    page.get_by_role("button", name="Load it again").click()
    expect(page.get_by_role("heading", name="Training")).to_be_visible()
    expect(page.get_by_role("slider").first).to_be_visible()
