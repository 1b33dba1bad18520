"""The dashboard in a real browser, on a real view. Run by `make test-dashboard`."""

from __future__ import annotations

import csv
import hashlib
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, Response, expect

from lightstream.broker import EmbeddedBroker
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import ROLLOUTS
from tests.store_views.dashboard.conftest import TOKEN, open_page
from tests.store_views.dashboard.run_records import (
    HOSTILE,
    LARGE,
    LARGE_SPANS,
    LONG,
    LONG_CHARACTERS,
    LOST,
    RUN,
    SEARCH,
    WAITING,
    XSS,
)
from tests.store_views.test_accounting import state

pytestmark = pytest.mark.dashboard

FIRST_LOAD_BYTES_MAX = 220_000
"""Of all that the first page needs, compressed."""
DOM_NODES_MAX = 1_500
"""Of the page of a rollout, whatever its number of spans."""
SKELETON_BYTES_MAX = 150
"""Of the tree, for each span."""
TABS_MAX = 150
"""From anything to anything on a page."""

TRAINED = f"{RUN}-s6-g0-1"
TASK = hashlib.md5(b"1", usedforsecurity=False).hexdigest()
"""Of several runs."""
PAGES = {
    "runs": "/",
    "run": f"/run?run={RUN}",
    "rollouts": f"/rollouts?run={RUN}",
    "rollout": f"/rollout?run={RUN}&id={TRAINED}",
    "group": f"/group?run={RUN}&id={RUN}-s6-g0",
    "queue": f"/queue?run={RUN}",
    "training": f"/training?run={RUN}&ema=0.6&step=6",
    "tools": f"/tools?run={RUN}",
    "task": f"/task?run={RUN}&id={TASK}",
    "resources": f"/resources?run={RUN}&id={RUN}-v6",
    "prompts": f"/resources?run={SEARCH}",
    "dropped": f"/losses?run={RUN}",
    "releases": "/releases",
    "processes": "/processes",
    "sql": "/sql",
    "settings": "/settings",
}

PICTURES = {f"{name}-light" for name in PAGES if name not in ("queue", "rollout", "task", "training")} | {
    "rollout-dark",
    "training-dark",
}
"""Those that docs/dashboard.md shows."""


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_every_page_can_be_used_by_everybody(
    page: Page, view_url: str, screenshots: Path, request: pytest.FixtureRequest
) -> None:
    theme = request.node.callspec.params["page"]
    for name, address in PAGES.items():
        open_page(page, view_url + address)
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        found = Axe().run(page)
        serious = [each for each in found.response["violations"] if each["impact"] in ("serious", "critical")]
        assert serious == [], f"{name}: {[(each['id'], each['nodes'][0]['html']) for each in serious]}"
        if f"{name}-{theme}" in PICTURES:
            page.screenshot(path=screenshots / f"{name}-{theme}.png")


def test_a_newcomer_finds_why_a_rollout_did_not_train(page: Page, view_url: str) -> None:
    open_page(page, view_url)
    page.get_by_role("link", name=RUN, exact=True).click()
    expect(page.get_by_text("From tasks to training")).to_be_visible()
    page.get_by_role("link", name="no_signal", exact=True).click()
    expect(page).to_have_url(re.compile(r"reason=no_signal"))
    page.get_by_role("link", name=re.compile(rf"^{RUN}-s")).first.click()
    expect(page.get_by_role("heading", name="Why it did not train")).to_be_visible()
    expect(page.get_by_text("It was as good as the mean of its group")).to_be_visible()


def test_a_lost_call_is_an_alarm_with_what_to_do(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/run?run={LOST}")
    alarms = page.get_by_label("Alarms")
    expect(alarms).to_contain_text("100 % of the LLM calls were dropped: no_token_ids")
    expect(alarms).to_contain_text("Call it through the LLM proxy, with a server that can return them.")
    page.get_by_role("link", name="no_calls", exact=True).click()
    page.get_by_role("link", name=re.compile(rf"^{LOST}-")).first.click()
    expect(page.get_by_text("no_token_ids").first).to_be_visible()
    expect(page.get_by_text("The model server returned no token ids").first).to_be_visible()


def test_filters_are_in_the_address_and_pages_skip_nothing(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/rollouts?run={RUN}")
    rows = page.get_by_role("region", name="Rollouts").locator("tbody tr")
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="Show older ones").click()
    expect(rows).to_have_count(200)
    page.get_by_role("button", name="Show older ones").click()
    expect(page.get_by_text("228 rollouts in all")).to_be_visible()
    ids = rows.locator("td:first-child").all_inner_texts()
    assert len(set(ids)) == len(ids) == 228
    page.get_by_label("Status").click()
    page.get_by_role("option", name="failed").click()
    expect(page).to_have_url(re.compile(r"status=failed"))
    expect(rows).to_have_count(1)
    page.reload()
    expect(rows).to_have_count(1)
    page.get_by_label("Id or task").fill("nothing like this")
    expect(page.get_by_text("No rollout fits these filters.")).to_be_visible()


def test_a_rollout_shows_messages_tokens_and_exact_places(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/rollout?run={RUN}&id={TRAINED}")
    tree = page.get_by_role("tree", name="Spans")
    expect(tree.get_by_role("treeitem")).to_have_count(5)
    said = page.get_by_text("Use the tool, then answer with the number alone.")
    expect(said).to_be_visible()
    page.get_by_role("tab", name="Messages").click()
    expect(said).to_have_count(2)  # in the conversation, and in the call
    page.get_by_role("tab", name="Tokens").click()
    tokens = page.get_by_role("group", name="Response tokens of the call")
    expect(tokens).to_contain_text("31")
    expect(tokens.get_by_title("token 1: id 32, log-probability -0.75, sampled, policy 5")).to_be_visible()
    tree.focus()
    for key in ("Home", "ArrowDown", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    page.get_by_role("tab", name="Tokens").click()
    expect(tokens).to_have_text("25∅")  # as text, where the proxy saw what each token says; the last says nothing
    page.get_by_role("tab", name="About").click()
    expect(page.get_by_text(re.compile(r"\.\d{9}$")).first).to_be_visible()
    expect(page.get_by_text(re.compile(r"^spans/0 @ \d+$")).first).to_be_visible()


def test_a_trace_of_ten_thousand_spans_keeps_the_document_small(page: Page, view_url: str) -> None:
    answers: list[Response] = []
    page.on("response", lambda answer: answers.append(answer))  # Playwright marks what it is given
    open_page(page, f"{view_url}/rollout?id={LARGE}")
    tree = page.get_by_role("tree", name="Spans")
    expect(page.get_by_text(f"{LARGE_SPANS:,} spans")).to_be_visible()
    sizes = [len(answer.body()) for answer in answers if answer.url.endswith("/v1/sql")]
    assert 20 * LARGE_SPANS < max(sizes) <= SKELETON_BYTES_MAX * LARGE_SPANS, "all in one answer"
    calls = page.get_by_role("region", name="LLM calls").last  # the table in its panel
    expect(calls).to_contain_text("30 of 4,999 rows")
    assert page.evaluate("document.querySelectorAll('*').length") <= DOM_NODES_MAX
    tree.focus()
    page.keyboard.press("End")
    last = tree.get_by_role("treeitem", selected=True)
    expect(last).to_have_attribute("aria-posinset", str(LARGE_SPANS))  # each span once, although two are in a cycle
    assert page.evaluate("document.querySelectorAll('*').length") <= DOM_NODES_MAX
    calls.get_by_role("button", name="Show 500 more").click()
    expect(calls).to_contain_text("530 of 4,999 rows")


def test_long_messages_and_a_clock_an_hour_behind(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/rollout?id={LONG}")
    said = page.get_by_role("region", name="Conversation")
    expect(said).to_contain_text(f"[… {LONG_CHARACTERS - 19_900} characters …]")
    expect(said.get_by_role("listitem").last).to_contain_text("yes")
    shown = page.locator("main").inner_text()
    assert len(shown) < LONG_CHARACTERS // 2
    assert "1.2 s" in shown, "a span's time is told by its writer's clock alone"
    assert not re.search(r"[-\u2212]\d[\d.]* (µs|ms|s|min|h)\b", shown), "no time is negative"


def test_a_rollout_without_spans_says_what_it_waits_for(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/rollout?id={WAITING}")
    expect(page.get_by_text("It waits for a Runner.")).to_be_visible()
    expect(page.get_by_text("No span of it has come.")).to_be_visible()
    open_page(page, f"{view_url}/run?run=nothing")
    expect(page.get_by_text('The view knows no rollout of the run "nothing".')).to_be_visible()


def test_no_text_of_the_log_runs_as_a_script(page: Page, view_url: str) -> None:
    hostile = [f"hostile-{number} {text}"[:200] for number, text in enumerate(XSS)]
    run = quote(HOSTILE)
    addresses = ["/", f"/run?run={run}", f"/rollouts?run={run}", f"/group?run={run}&id={quote(f'group {XSS[1]}')}"]
    addresses += [f"/training?run={run}&metric={quote(XSS[1])}&step=1", f"/resources?run={run}", f"/losses?run={run}"]
    addresses += [f"/rollout?run={run}&id={quote(rollout)}" for rollout in hostile]
    for address in addresses:
        open_page(page, view_url + address)
        for tab in page.get_by_role("tab").all():
            tab.click()
        assert page.evaluate("window.hacked") is None, address
        assert page.locator("iframe, main img, main script").count() == 0, address
    expect(page.get_by_role("heading", name=hostile[-1])).to_be_visible()


def test_a_curve_leads_to_the_groups_of_a_step(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/training?run={RUN}&step=6")
    groups = page.get_by_role("region", name="Groups of step 6")
    expect(groups.locator("tbody tr")).to_have_count(4)
    page.get_by_label("Smoothing (EMA)").click()
    page.get_by_role("option", name="0.9", exact=True).click()
    expect(page).to_have_url(re.compile(r"ema=0\.9"))
    page.locator(".u-over").first.click(position={"x": 5, "y": 60})
    expect(page).to_have_url(re.compile(r"step=1(&|$)"))
    expect(page.get_by_role("region", name="Groups of step 1")).to_be_visible()
    page.get_by_role("link", name=f"{RUN}-s1-g0").click()
    expect(page.get_by_label("Rollouts of the group").locator("li")).to_have_count(4)


def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until it has the focus."""
    expect(wanted).to_be_visible()
    for _ in range(TABS_MAX):
        if wanted.evaluate("element => element.matches(':focus')"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{wanted} is not reached by {TABS_MAX} times Tab")


def follow(page: Page, name: str) -> None:
    """Open a link with the keyboard, and wait for its page."""
    before = page.url
    tab_to(page, page.get_by_role("link", name=name, exact=True).first)
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: url != before)
    expect(page.locator("h1")).to_be_visible()


def test_everything_is_done_by_keyboard(page: Page, view_url: str) -> None:
    open_page(page, view_url)
    press = page.keyboard.press
    follow(page, RUN)
    follow(page, "Training")
    curve = page.get_by_role("slider", name="reward/mean; Enter opens the step")
    tab_to(page, curve)
    for key, step in (("Home", 1), ("ArrowRight", 2), ("ArrowRight", 3), ("End", 14), ("ArrowLeft", 13)):
        press(key)
        expect(curve).to_have_attribute("aria-valuetext", re.compile(rf"^step {step}: reward/mean -?\d"))
        expect(curve.locator(".u-legend .u-value").first).to_have_text(str(step))
    press("Enter")
    expect(page.get_by_role("region", name="Groups of step 13")).to_be_visible()
    follow(page, f"{RUN}-s13-g0")
    follow(page, f"{RUN}-s13-g0-1")

    tree = page.get_by_role("tree", name="Spans")
    tab_to(page, tree)
    for key in ("Home", "ArrowDown", "ArrowDown"):
        press(key)
    second = tree.get_by_role("treeitem", selected=True)
    expect(second).to_have_attribute("aria-posinset", "3")
    page.wait_for_url(re.compile(r"span="))
    tab_to(page, page.get_by_role("tab", selected=True))
    press("End")
    expect(page.get_by_role("tabpanel", name="About")).to_contain_text("Trace")

    follow(page, "Rollouts")
    tab_to(page, page.get_by_label("Status"))
    press("Enter")
    press("f")
    expect(page.get_by_role("option", name="failed")).to_be_focused()
    press("Enter")
    page.wait_for_url(re.compile(r"status=failed"))
    expect(page.get_by_role("region", name="Rollouts").locator("tbody tr")).to_have_count(1)

    follow(page, "SQL")
    tab_to(page, page.get_by_role("textbox", name="Statement in SQL"))
    press("Control+a")
    press("Delete")
    page.keyboard.type("SELECT 6 * 7 AS answer")
    press("Control+Enter")
    expect(page.get_by_role("region", name="Answer").last).to_contain_text("42")
    press("Escape")
    follow(page, "Settings")
    tab_to(page, page.get_by_label("Light or dark"))
    press("Enter")
    press("d")
    expect(page.get_by_role("option", name="dark")).to_be_focused()
    press("Enter")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_sql_is_answered_and_what_is_wrong_is_said(page: Page, view_url: str) -> None:
    wrong = "SELECT count(*) AS rollouts FROM rollouts WHERE run_id = 1"
    open_page(page, f"{view_url}/sql?{urlencode({'q': wrong})}")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("Conversion Error")
    page.get_by_role("button", name="Named query").click()
    page.get_by_role("option", name="curve").click()
    expect(page.get_by_text("Reward, time and outcome of each training step.")).to_be_visible()
    for run, said in [(RUN, RUN), ("none of that name", "No row.")]:
        page.get_by_role("textbox", name="run", exact=True).fill(run)
        page.get_by_role("textbox", name="Statement in SQL").press("Control+Enter")
        expect(page.get_by_role("region", name="Answer").last).to_contain_text(said)


def test_a_run_is_asked_about_by_name(page: Page, view_url: str) -> None:
    open_page(page, f"{view_url}/run?run={RUN}")
    questions = page.get_by_role("region", name="Ask about this run")
    questions.get_by_role("link", name="Reward, time and outcome of each training step.").click()
    expect(page).to_have_url(re.compile(r"query=curve"))
    answer = page.get_by_role("region", name=re.compile("^Answer, "))
    expect(answer).to_contain_text(RUN)
    expect(page.get_by_role("textbox", name="run", exact=True)).to_have_value(RUN)
    page.get_by_role("button", name="Named query").click()
    page.get_by_role("option", name="lost-calls").click()
    expect(page).to_have_url(re.compile(rf"run={RUN}&query=lost-calls"))
    expect(answer).to_contain_text("reason")
    open_page(page, f"{view_url}/sql?query=nothing")
    expect(page.get_by_role("alert")).to_contain_text('The view has no query "nothing".')


EXACT = {
    "1764170000000000001": "1764170000000000001",
    "-12345678901234567890123456789012345678::DECIMAL(38, 0)": "-12345678901234567890123456789012345678",
    "7::TINYINT": "7",
    "12.50::DECIMAL(9, 2)": "12.50",
    "-0.05::DECIMAL(20, 2)": "-0.05",
    "0.1::DOUBLE": "0.1",
    "'nan'::DOUBLE": "NaN",
    "true": "true",
    "'é\U0001f600'": "é\U0001f600",
    "NULL": "null",
    "'\\xAB\\x00'::BLOB": "ab00",
    "make_timestamp_ns(1764170000000000001)": "2025-11-26T15:13:20.000000001",
    "make_timestamp(-1)": "1969-12-31T23:59:59.999999",
    "TIMESTAMP '2026-01-02 03:04:05'": "2026-01-02T03:04:05",
    "DATE '0044-03-15'": "0044-03-15",
    "TIME '23:59:59.5'": "23:59:59.500000",
    "INTERVAL '1 month 2 days'": "1 months 2 days 0 ns",
    "[1, NULL, 3]": "[1,null,3]",
    "{'n': 9007199254740993, 'texts': ['a']}": '{"n":"9007199254740993","texts":["a"]}',
    "MAP {'a': 1.5}": '{"a":"1.5"}',
    "'x'::ENUM ('x', 'y')": "x",
    "'0b4c1a57-87a8-4f6c-b7b4-6f8f8f0f3a11'::UUID": "0b4c1a57-87a8-4f6c-b7b4-6f8f8f0f3a11",
}


def answered(page: Page, view_url: str, statement: str) -> Locator:
    open_page(page, f"{view_url}/sql?{urlencode({'q': statement})}")
    page.get_by_role("button", name="Run", exact=True).click()
    return page.get_by_role("region", name=re.compile("^Answer, "))


def test_values_of_every_type_are_shown_exactly(page: Page, view_url: str) -> None:
    columns = ", ".join(f"{value} AS c{index}" for index, value in enumerate(EXACT))
    answer = answered(page, view_url, f"SELECT {columns}")
    expect(answer).to_be_visible()
    assert dict(zip(EXACT, answer.locator("td").all_inner_texts(), strict=True)) == EXACT


def test_an_answer_is_saved_with_every_row_and_exact_values(page: Page, view_url: str, tmp_path: Path) -> None:
    statement = "SELECT range + 1764170000000000000 AS number, 'a,\"b' AS text FROM range(3000)"
    answered(page, view_url, statement)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV").click()
    download.value.save_as(tmp_path / "answer.csv")
    with (tmp_path / "answer.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["number"]) for row in rows] == [1764170000000000000 + number for number in range(3000)]
    assert {row["text"] for row in rows} == {'a,"b'}


def test_a_long_answer_is_scrolled_through(page: Page, view_url: str) -> None:
    answer = answered(page, view_url, "SELECT range AS number, range % 7 AS rest FROM range(99999)")
    expect(answer).to_have_accessible_name("Answer, 99,999 rows")
    expect(answer.locator("tbody")).to_contain_text("12")
    answer.press("End")
    expect(answer.get_by_role("cell", name="99998", exact=True)).to_be_visible()
    assert answer.locator("tr").count() < 100, "only rows in sight are in the document"


def test_what_comes_while_a_page_is_open_is_shown(page: Page, view_url: str, view_settings: Settings) -> None:
    open_page(page, view_url)
    expect(page.get_by_role("link", name="late-run")).to_have_count(0)
    publisher = KafkaPublisher(view_settings)
    publisher.publish(ROLLOUTS, "late", state("late", run_id="late-run", enqueued_unix_nano=1)).result(300)
    publisher.close()
    expect(page.get_by_role("link", name="late-run")).to_be_visible()


def test_the_token_is_asked_for_and_a_wrong_one_is_told(page: Page, guarded_url: str) -> None:
    page.goto(guarded_url)
    expect(page.get_by_text("The view asks for its token.").first).to_be_visible()
    page.get_by_label("Token of the view").fill("an older one")
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_text("The view no longer takes this tab's token.")).to_be_visible()
    page.get_by_label("Token of the view").fill(TOKEN)
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_role("link", name=RUN, exact=True)).to_be_visible()
    expect(page.get_by_label("Token of the view")).to_have_count(0)


def test_what_was_shown_stays_when_the_token_is_no_longer_taken(page: Page, guarded_url: str) -> None:
    page.goto(guarded_url)
    page.get_by_label("Token of the view").fill(TOKEN)
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_role("link", name=RUN, exact=True)).to_be_visible()
    page.evaluate("sessionStorage.setItem('lightstream.token', 'an older one')")  # as if the view had another by now
    expect(page.get_by_text("The view no longer takes this tab's token.")).to_be_visible()
    expect(page.get_by_role("link", name=RUN, exact=True)).to_be_visible()
    page.get_by_label("Token of the view").fill(TOKEN)
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_label("Token of the view")).to_have_count(0)
    expect(page.get_by_role("link", name=RUN, exact=True)).to_be_visible()


def test_what_was_shown_stays_while_the_view_is_away(page: Page, view_url: str) -> None:
    open_page(page, view_url)
    page.context.set_offline(True)
    expect(page.get_by_text("The view does not answer.").first).to_be_visible()
    expect(page.get_by_role("link", name=RUN, exact=True)).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_text("The view does not answer.")).to_have_count(0)


def test_while_kafka_is_away_the_page_says_since_when(
    private_broker: EmbeddedBroker, private_url: str, page: Page
) -> None:
    """The page is asked for last, so that it is closed before its view."""
    open_page(page, f"{private_url}/processes")
    expect(page.get_by_text("Up to date with the log")).to_be_visible()
    private_broker.kill()
    last_heard = re.compile(r"Kafka does not answer: last heard of at \d\d:\d\d:\d\d, (\d+ min )?\d+ s ago")
    expect(page.get_by_role("status").filter(has_text=last_heard)).to_contain_text("What is shown is from before.")
    expect(page.get_by_role("region", name="The view and the log").first).to_contain_text(last_heard)
    expect(page.get_by_text("Up to date with the log")).to_have_count(0)
    private_broker.start()
    expect(page.get_by_text("Up to date with the log")).to_be_visible()


def test_the_first_load_is_small(page: Page, view_url: str) -> None:
    """As it is sent: what the server does not compress counts in full."""
    wire = page.context.new_cdp_session(page)
    wire.send("Network.enable")
    asked: dict[str, str] = {}
    sizes: dict[str, float] = {}
    encodings: dict[str, str] = {}  # of what is large enough for it

    def answered(said: dict[str, Any]) -> None:
        asked[said["requestId"]] = said["response"]["url"]
        headers = {name.lower(): value for name, value in said["response"]["headers"].items()}
        encodings[said["response"]["url"]] = headers.get("content-encoding", "")

    wire.on("Network.responseReceived", answered)
    wire.on("Network.loadingFinished", lambda said: sizes.update({said["requestId"]: said["encodedDataLength"]}))
    open_page(page, view_url)
    by_url = {url: sizes.get(request, 0.0) for request, url in asked.items()}
    assert any(url.endswith(".js") for url in by_url)
    assert sum(size for url, size in by_url.items() if "/v1/" not in url) <= FIRST_LOAD_BYTES_MAX, by_url
    assert {encodings[url] for url, size in by_url.items() if size > 1500} == {"gzip"}
    assert any(url.endswith("/v1/sql") and encodings[url] for url in by_url)
