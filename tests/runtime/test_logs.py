"""Log lines as text and as JSON."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from lightstream.runtime.logs import log_to_stderr, logged_ids
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError

logger = logging.getLogger("lightstream.test_logs")


@pytest.fixture(autouse=True)
def root_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.split("\n") if line]


def test_text_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(Settings.load())
    with logged_ids(rollout_id="r1"):
        logger.info("done with %s", "it")
    assert capsys.readouterr().err.endswith(" INFO lightstream.test_logs: done with it\n")


def test_a_json_line_has_the_ids_of_what_it_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(Settings.load(log_format="json"))

    async def attempt(rollout_id: str) -> None:
        with logged_ids(rollout_id=rollout_id):
            await asyncio.sleep(0)
            logger.warning('said "hi"\nand left')

    async def both() -> None:
        with logged_ids(run_id="run", attempt_id=""):
            await asyncio.gather(attempt("r1"), attempt("ö2"))

    asyncio.run(both())
    logger.info("outside")
    *inside, outside = lines(capsys)
    assert [(line["run_id"], line["rollout_id"]) for line in inside] == [("run", "r1"), ("run", "ö2")]
    assert inside[0]["message"] == 'said "hi"\nand left'
    assert (inside[0]["level"], inside[0]["logger"]) == ("WARNING", "lightstream.test_logs")
    assert set(outside) == {"time", "level", "logger", "message"}


def test_an_exception_is_in_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(Settings.load(log_format="json"))
    try:
        raise ValueError("boom")
    except ValueError:
        logger.exception("failed")
    (line,) = lines(capsys)
    assert line["message"] == "failed"
    assert line["exception"].endswith("ValueError: boom")


def test_another_format_is_refused() -> None:
    with pytest.raises(SettingsError, match="LIGHTSTREAM_LOG_FORMAT"):
        Settings.load(log_format="xml")
