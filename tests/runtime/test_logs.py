"""Log lines as text and as JSON."""

from __future__ import annotations

import asyncio
import io
import logging
from contextlib import redirect_stderr

import pytest

from lightstream.runtime.logs import log_to_stderr, logged_ids, logged_ids_of
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import AttemptOpened, EventKind, RolloutEvent, RolloutSpec
from tests.support.json_lines import logged_as_json

logger = logging.getLogger("lightstream.test_logs")


def test_text_is_the_default() -> None:
    with logged_as_json(), redirect_stderr(io.StringIO()) as written:
        log_to_stderr(Settings.load())
        with logged_ids(rollout_id="r1"):
            logger.info("done with %s", "it")
    assert written.getvalue().endswith(" INFO lightstream.test_logs: done with it\n")


def test_a_json_line_has_the_ids_of_what_it_is_about() -> None:
    async def attempt(rollout_id: str) -> None:
        with logged_ids(rollout_id=rollout_id):
            await asyncio.sleep(0)
            logger.warning('said "hi"\nand left')

    async def both() -> None:
        with logged_ids(run_id="run", attempt_id=""):
            await asyncio.gather(attempt("r1"), attempt("ö2"))

    with logged_as_json() as lines:
        asyncio.run(both())
        logger.info("outside")
    *inside, outside = lines()
    assert [(line["run_id"], line["rollout_id"]) for line in inside] == [("run", "r1"), ("run", "ö2")]
    assert inside[0]["message"] == 'said "hi"\nand left'
    assert (inside[0]["level"], inside[0]["logger"]) == ("WARNING", "lightstream.test_logs")
    assert set(outside) == {"time", "level", "logger", "message"}


def test_a_json_line_has_the_ids_of_the_record_that_it_is_about() -> None:
    spec = RolloutSpec(rollout_id="r1", run_id="run")
    opened = AttemptOpened(rollout=spec, attempt_id="r1-a1", attempt_sequence=1, opened_unix_nano=1)
    event = RolloutEvent(event_id="e", kind=EventKind.HEARTBEAT, rollout_id="r1", occurred_unix_nano=1)
    with logged_as_json() as lines:
        for about in (opened, event, None):
            with logged_ids_of(about):
                logger.info("done")
    told = [{name: line[name] for name in line if name.endswith("_id")} for line in lines()]
    assert told == [{"run_id": "run", "rollout_id": "r1", "attempt_id": "r1-a1"}, {"rollout_id": "r1"}, {}]


def test_an_exception_is_in_the_line() -> None:
    with logged_as_json() as lines:
        try:
            raise ValueError("boom")
        except ValueError:
            logger.exception("failed")
    (line,) = lines()
    assert line["message"] == "failed"
    assert line["exception"].endswith("ValueError: boom")


def test_another_format_is_refused() -> None:
    with pytest.raises(SettingsError, match="LIGHTSTREAM_LOG_FORMAT"):
        Settings.load(log_format="xml")
