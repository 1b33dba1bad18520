"""Asks the rules of releases every few seconds; a rule that returns a row rolls the candidate back. Tells alarms."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import count

import duckdb
from anyio.to_thread import run_sync
from prometheus_client.core import GaugeMetricFamily, Metric

from lightstream.runtime.releases import ReleaseLog
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError, StoreError
from lightstream.schemas.records import ReleaseChanged
from lightstream.schemas.releases import Author, Release, roll_back

from ..materialiser import ViewSource
from .admission import SqlRequest
from .answering import Answering
from .statement import QueryLimits

logger = logging.getLogger(__name__)

INTERVAL_S = 3.0
ROUNDS_PER_ALARMS = 20
"""Alarms read every call of every release, so they are asked more rarely."""
RULE_TIMEOUT_S = 10.0
ROW_CHARS_MAX = 500
LANE = "others"
"""Rules are statements of people, and wait in their lane."""
ALARMS_LANE = "dashboard"

_STATES = """
SELECT release, revision, stable, candidate, offered.logged_unix_nano, rules
FROM releases
LEFT JOIN (
    SELECT release, offered_unix_nano, min(logged_unix_nano) AS logged_unix_nano
    FROM release_changes WHERE action = 'offered' GROUP BY ALL
) AS offered USING (release, offered_unix_nano)
WHERE candidate IS NOT NULL AND NOT paused AND len(rules) > 0 ORDER BY release
"""


@dataclass(frozen=True, slots=True)
class Watched:
    """A release with a candidate and rules, as the view has it."""

    release: str
    revision: int
    stable: str
    candidate: str
    since: int
    rules: tuple[tuple[str, str], ...]


class ReleaseRules:
    """Asks the rules. Belongs to one event loop.

    A rule that fails, or takes longer than :data:`RULE_TIMEOUT_S`, rolls nothing back. It is logged, and a metric and
    :meth:`failures` tell of it until it passes.

    Args:
        materialiser: the view that rules are asked of.
        answering: runs them.
        limits: of a person's statement.
    """

    def __init__(self, settings: Settings, materialiser: ViewSource, answering: Answering, limits: QueryLimits) -> None:
        self._log = ReleaseLog(settings)
        self._materialiser = materialiser
        self._answering = answering
        self._limits = replace(limits, timeout_s=min(limits.timeout_s, RULE_TIMEOUT_S), rows_max=1)
        self._failures: dict[tuple[str, str], str] = {}
        self._rolled_back: dict[str, int] = {}
        self._unasked = False
        self._alarms: list[tuple[str, str]] = []
        self._alarms_failed = False

    @property
    def failures(self) -> dict[tuple[str, str], str]:
        """Release and rule -> why the rule gave no answer the last time."""
        return dict(self._failures)

    def readings(self) -> Iterable[Metric]:
        """For Prometheus: the rules that fail, and the alarms of ``release_alarms``."""
        failing = GaugeMetricFamily(
            "lightstream_release_rule_failing",
            "1 for a rule of a release that fails, so that nobody watches its candidate by it; without names: for all.",
            labels=["release", "rule"],
        )
        for place in self.failures:
            failing.add_metric(list(place), 1)
        if self._unasked:
            failing.add_metric(["", ""], 1)
        alarms = GaugeMetricFamily(
            "lightstream_release_alarm",
            "1 for each row of the view `release_alarms`: somebody should look at the release.",
            labels=["release", "alarm"],
        )
        for place in self._alarms:
            alarms.add_metric(list(place), 1)
        return [failing, alarms]

    async def run(self) -> None:
        """Ask all rules again and again, and the alarms now and then, until cancelled."""
        for round_number in count():
            try:
                await self.ask_once()
                self._unasked = False
                if round_number % ROUNDS_PER_ALARMS == 0:
                    await self.look_for_alarms()
            except LightstreamError as error:
                if not self._unasked:
                    logger.warning("the rules of releases were not asked: %s", error)
                self._unasked = True
            except Exception:
                self._unasked = True
                logger.exception("the rules of releases were not asked, by an error of ours")
            await asyncio.sleep(INTERVAL_S)

    async def ask_once(self) -> None:
        """Ask every rule of every candidate once.

        While the view reads what it missed, none is asked: it lacks rows.

        Raises:
            LightstreamError: the releases cannot be read.
        """
        if self._materialiser.rebuilding is not None or self._materialiser.failure is not None:
            return
        watched = await self._answering.found("rules of releases", _watched, self._limits.timeout_s, lane_name=LANE)
        current = {(one.release, name) for one in watched for name, _ in one.rules}
        for place in self._failures.keys() - current:
            del self._failures[place]
        for one in watched:
            if self._rolled_back.get(one.release) != one.revision:
                await self._ask(one)

    async def look_for_alarms(self) -> None:
        """Read ``release_alarms``. After a failure the last alarms stay, and the log has the reason once."""
        if self._materialiser.rebuilding is not None or self._materialiser.failure is not None:
            return
        try:
            self._alarms = await self._answering.found(
                "alarms of releases", _alarms, self._limits.timeout_s, lane_name=ALARMS_LANE
            )
            self._alarms_failed = False
        except LightstreamError as error:
            if not self._alarms_failed:
                logger.warning("the alarms of releases were not read: %s", error)
            self._alarms_failed = True

    async def _ask(self, watched: Watched) -> None:
        for name, sql in watched.rules:
            place = (watched.release, name)
            try:
                row = await self._first_row(watched, sql)
            except LightstreamError as error:
                if place not in self._failures:
                    logger.error(
                        "rule %r of release %s fails, and does not watch %s: %s",
                        name,
                        watched.release,
                        watched.candidate,
                        error,
                    )
                self._failures[place] = str(error)
                continue
            self._failures.pop(place, None)
            if row is not None:
                await self._roll_back(watched, name, row)
                return

    async def _first_row(self, watched: Watched, sql: str) -> str | None:
        values = {
            "release": watched.release,
            "candidate": watched.candidate,
            "stable": watched.stable,
            "since": watched.since,
        }
        parameters = {name: value for name, value in values.items() if name in _placeholders(sql)}
        outcome = await self._answering.run(SqlRequest(sql, parameters or None, {}, 0.0, self._limits), LANE)
        rows = outcome.table.slice(0, 1).to_pylist()
        if not rows:
            return None
        return ", ".join(f"{name} = {value}" for name, value in rows[0].items())[:ROW_CHARS_MAX]

    async def _roll_back(self, watched: Watched, rule: str, row: str) -> None:
        def wish(release: Release, author: Author) -> ReleaseChanged:
            if release.state is None or release.state.revision != watched.revision:
                raise StoreError(f"release {watched.release!r} has changed meanwhile.")
            return roll_back(release, author)

        try:
            await run_sync(self._log.change, watched.release, (f"rule {rule}", row), wish)
        except StoreError as error:
            logger.info("rule %r rolled nothing back: %s", rule, error)  # the view has yet to show a change
            return
        self._rolled_back[watched.release] = watched.revision
        logger.warning("rule %r rolled %s of release %s back: %s", rule, watched.candidate, watched.release, row)


def _alarms(cursor: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    return cursor.execute("SELECT DISTINCT release, alarm FROM release_alarms ORDER BY ALL").fetchall()


def _watched(cursor: duckdb.DuckDBPyConnection) -> list[Watched]:
    return [
        Watched(release, revision, stable, candidate, since or 0, tuple((rule["name"], rule["sql"]) for rule in rules))
        for release, revision, stable, candidate, since, rules in cursor.execute(_STATES).fetchall()
    ]


def _placeholders(sql: str) -> set[str]:
    """Names of the statement's placeholders; none where it cannot be read, which the one who runs it says."""
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error:
        return set()
    return {name for statement in statements for name in statement.named_parameters}
