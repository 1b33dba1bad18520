"""From a trace's address to its first interaction: a span is clicked, and what is known of it shows."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager

import httpx
from playwright.sync_api import Browser, sync_playwright

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import (
    AttemptState,
    AttemptStatus,
    EventKind,
    RolloutSpec,
    RolloutState,
    RolloutStatus,
    Verdict,
    VerdictOutcome,
)
from lightstream.schemas.topics import ROLLOUTS

from .servers import LIGHTSTREAM, MLFLOW, MLFLOW_EXPERIMENT, Server
from .spans import trace_request

STORING_S_MAX = 600.0
SHOWING_MS_MAX = 180_000.0
POLL_INTERVAL_S = 0.2
CHROMIUM_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
CALL = re.compile(r"^chat \d+$")
TWICE = """
name => [...document.querySelectorAll("*")].filter(e => !e.children.length && e.textContent === name).length > 1
"""
"""A span's name in the tree, and above what is known of it."""


@contextmanager
def browser() -> Generator[Browser]:
    """Chromium that is installed.

    Raises:
        FileNotFoundError: it is not.
    """
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        raise FileNotFoundError("pages are opened in Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=[*CHROMIUM_ARGUMENTS])
        try:
            yield chromium
        finally:
            chromium.close()


def store_trace(server: Server, spans: int, seed: int, rollout_id: str) -> str:
    """Send a trace, wait until it is stored, and return the address of its page."""
    attributes = {"lightstream.rollout_id": rollout_id, "lightstream.attempt_id": _attempt_id(rollout_id)}
    trace_id, body = trace_request(spans, seed, attributes=attributes if server.name == LIGHTSTREAM else {})
    wanted, give_up_s = server.count() + spans, time.monotonic() + STORING_S_MAX
    headers = {"content-type": "application/x-protobuf", **server.headers}
    httpx.post(server.traces_url, content=body, headers=headers, timeout=STORING_S_MAX).raise_for_status()
    while server.count() < wanted:
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"{server.name} has not stored a trace of {spans:,} spans")
        time.sleep(POLL_INTERVAL_S)
    if server.name == LIGHTSTREAM:
        return f"{server.page_url}/rollout?id={rollout_id}"
    if server.name == MLFLOW:
        return f"{server.page_url}/#/experiments/{MLFLOW_EXPERIMENT}/traces?selectedEvaluationId=tr-{trace_id}"
    return f"{server.page_url}/redirects/traces/{trace_id}"


def store_rollout(settings: Settings, rollout_id: str) -> None:
    """Have a rollout in the log whose one attempt has succeeded."""
    at = time.time_ns()
    attempt = AttemptState(
        attempt_id=_attempt_id(rollout_id),
        sequence=1,
        status=AttemptStatus.SUCCEEDED,
        worker_id="runner",
        started_unix_nano=at,
        ended_unix_nano=at,
    )
    state = RolloutState(
        rollout=RolloutSpec(rollout_id=rollout_id, input_json="1", enqueued_unix_nano=at),
        status=RolloutStatus.SUCCEEDED,
        attempts=[attempt],
        updated_unix_nano=at,
        ended_unix_nano=at,
        source_offset=0,
        verdict=Verdict(event_id="e", kind=EventKind.ENQUEUED, outcome=VerdictOutcome.APPLIED),
    )
    with closing(KafkaPublisher(settings)) as publisher:
        publisher.publish(ROLLOUTS, rollout_id, state).result()


def first_interaction_s(chromium: Browser, url: str, *, then: Callable[[int], None] = lambda _: None) -> float:
    """Seconds from the address to what is known of the first call of a model in the tree, which is clicked.

    Args:
        then: told how many nodes the document has.
    """
    page = chromium.new_page(viewport={"width": 1400, "height": 900})
    try:
        page.set_default_timeout(SHOWING_MS_MAX)
        began_s = time.perf_counter()
        page.goto(url, wait_until="commit")
        call = page.get_by_text(CALL).first
        call.wait_for()
        name = call.inner_text()
        call.click()
        page.wait_for_function(TWICE, arg=name)
        seconds = time.perf_counter() - began_s
        then(int(page.evaluate("document.querySelectorAll('*').length")))
        return seconds
    finally:
        page.close()


def _attempt_id(rollout_id: str) -> str:
    return f"{rollout_id}-a1"
