"""``lightstream replay``: the same history under another reward, credit or merge rule."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from rich.console import Console
from rich.table import Table

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.runtime.kafka import Instead, KafkaPublisher, Outgoing, create_topics, run_headers
from lightstream.runtime.large_records import large_records_folder, put_aside
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import BackpressureError, RecordTooLargeError, SettingsError
from lightstream.schemas.records import Trajectory
from lightstream.schemas.topics import TRAJECTORIES
from lightstream.stream_processors.replay import (
    AttemptKey,
    Comparison,
    Difference,
    Replay,
    ReplayRules,
    Selection,
    read_history,
)

from .formats import Format
from .load import needs
from .view_query import ask_view

IN_FLIGHT_MAX = 1000
"""Trajectories handed to Kafka before the oldest must be durable."""
PUBLISH_TIMEOUT_S = 60.0
_UNITS = {"m": 60, "h": 3600, "d": 86_400}
"""Seconds."""
AGO_CHARS_MAX = 20
"""Python converts no more than some thousand digits; these reach far before any log."""

ATTEMPTS_PER_PAGE = 100_000

console = Console(highlight=False)
notes = Console(highlight=False, stderr=True)


def run_replay(
    settings: Settings,
    rules: ReplayRules,
    selection: Selection,
    out: Path | None,
    level: str,
    to_prefix: str | None,
    output: Format,
) -> None:
    """Assemble again, write if requested, and print the differences.

    Raises:
        SettingsError: an option has a value it cannot have, or the reward rule fails too often.
        ServiceUnavailableError: Kafka does not answer.
    """
    if to_prefix is not None and to_prefix == settings.topic_prefix:
        raise SettingsError(
            f"--to-prefix {to_prefix!r} is the prefix of the history itself.", next_step="Name another prefix."
        )
    replay = Replay(settings, rules, selection)
    comparison = Comparison(read_history(settings, selection), rules.segments)
    trajectories: Iterable[Trajectory] = _compared(replay.trajectories(), comparison)
    if to_prefix is not None:
        trajectories = _published(trajectories, settings.model_copy(update={"topic_prefix": to_prefix}))
    if out is not None:
        with needs("view"):
            from lightstream.store_views.exports import write_parquet
        if level == "segment" and rules.merge == "none":
            raise SettingsError("--level segment with --merge none is one row per call: use --level call.")
        if not write_parquet(trajectories, out, cast("Literal['call', 'segment']", level), rules.tokens_max):
            notes.print(f"No row to write: {out} {'is as it was' if out.exists() else 'is not made'}.", soft_wrap=True)
    else:
        for _ in trajectories:
            pass
    comparison.finish()
    if output is Format.JSON:
        sys.stdout.write(json.dumps(_as_json(comparison, replay)) + "\n")
    else:
        _print(comparison, replay)


def select(
    settings: Settings, start: str, end: str | None, run_id: str | None, where: str | None, without: str | None = None
) -> Selection:
    """Make the selection that the options name.

    Raises:
        SettingsError: a time is none.
        QueryError: ``where`` or ``without`` is no condition on the view ``trajectories``.
        ServiceUnavailableError: there is a condition, and no view.
    """
    kept = None if where is None else attempts_where(settings, where)
    if without is not None:
        kept = (attempts_where(settings, "true") if kept is None else kept) - attempts_where(settings, without)
    return Selection(parse_time(start, "--from"), None if end is None else parse_time(end, "--to"), run_id, kept)


def _asking(settings: Settings) -> Callable[[str], Any]:
    return partial(ask_view, settings)


def attempts_where(settings: Settings, where: str, run_id: str | None = None) -> frozenset[AttemptKey]:
    """The attempts, of a run or of all, for which a condition on the view ``trajectories`` holds.

    Raises:
        QueryError: it is no such condition.
        ServiceUnavailableError: there is no view.
    """
    with needs("view"):
        from lightstream.store_views.exports.paging import rows_of
        from lightstream.store_views.sql_literal import sql_literal
    trajectories = "SELECT log_partition, log_offset, rollout_id, attempt_id FROM trajectories"
    where = where if run_id is None else f"({where}\n) AND run_id = {sql_literal(run_id)}"
    place = ("log_partition", "log_offset")
    rows = rows_of(_asking(settings), trajectories, place, where=f"{where}\n", page_rows=ATTEMPTS_PER_PAGE)
    return frozenset((row["rollout_id"], row["attempt_id"]) for row in rows)


def parse_time(text: str, option: str) -> int:
    """``earliest``, an ISO time (UTC unless it says otherwise), or a time ago (``90m``, ``2h``, ``3d``), as unix nanos.

    Raises:
        SettingsError: it is none of these.
    """
    if text == "earliest":
        return 0
    if text[-1:] in _UNITS and text[:-1].isdecimal() and len(text) <= AGO_CHARS_MAX:
        ago_s = int(text[:-1]) * _UNITS[text[-1]]
        return max(int(datetime.now(UTC).timestamp()) - ago_s, 0) * NANOS_PER_SECOND
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise SettingsError(
            f"{option} {text!r} is neither earliest, an ISO time, nor a time ago such as 2h."
        ) from error
    return max(int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * NANOS_PER_SECOND), 0)


def _compared(trajectories: Iterable[Trajectory], comparison: Comparison) -> Iterator[Trajectory]:
    for trajectory in trajectories:
        comparison.add(trajectory)
        yield trajectory


def _published(trajectories: Iterable[Trajectory], settings: Settings) -> Iterator[Trajectory]:
    """Each trajectory, once it is on its way to the topic under the other prefix; at the end all are durable."""
    create_topics(settings)
    codec = codec_for(settings)
    publisher = KafkaPublisher(settings, codec=codec)
    folder = large_records_folder(settings)
    waiting: list[Any] = []

    def instead_of(trajectory: Trajectory) -> Instead | None:
        """The address of the trajectory in a file, for a topic that takes less than we do."""
        into = folder
        if into is None or trajectory.payload_url:
            return None

        def aside(_error: RecordTooLargeError) -> Outgoing:
            value = codec.encode(put_aside(trajectory, codec, into))
            return Outgoing(
                TRAJECTORIES, trajectory.group_id or trajectory.rollout_id, value, run_headers(trajectory.run_id)
            )

        return aside

    def publish(trajectory: Trajectory) -> None:
        key = trajectory.group_id or trajectory.rollout_id
        try:
            headers = run_headers(trajectory.run_id)
            waiting.append(
                publisher.publish(TRAJECTORIES, key, trajectory, headers=headers, instead=instead_of(trajectory))
            )
        except BackpressureError:
            if not waiting:
                raise
            _wait(waiting)
            publish(trajectory)
        except RecordTooLargeError:
            if folder is None or trajectory.payload_url:
                raise
            publish(put_aside(trajectory, codec, folder))

    try:
        for trajectory in trajectories:
            publish(trajectory)
            if len(waiting) >= IN_FLIGHT_MAX:
                _wait(waiting)
            yield trajectory
        _wait(waiting)
    finally:
        publisher.close()


def _wait(waiting: list[Any]) -> None:
    for future in waiting:
        future.result(PUBLISH_TIMEOUT_S)
    waiting.clear()


def _as_json(comparison: Comparison, replay: Replay) -> dict[str, Any]:
    def values(difference: Difference) -> dict[str, Any]:
        counts = {field.name: getattr(difference, field.name) for field in fields(difference)}
        return counts | {"mean_rewards": difference.mean_rewards}

    return {
        "all": values(comparison.all),
        "trained": values(comparison.trained),
        "open_attempts": replay.open_count,
        "undecodable_records": replay.undecodable,
        "left_out": replay.left_out,
        "rule_errors": replay.rule_errors.count,
        "first_rule_error": replay.rule_errors.first,
    }


def _print(comparison: Comparison, replay: Replay) -> None:
    table = Table("", "all", "trained on")
    for name, difference_text in _LINES.items():
        table.add_row(name, *(difference_text(side) for side in (comparison.all, comparison.trained)))
    console.print(table)
    for title, index in (("Segments begin", "segments"), ("Drops", "drops")):
        before, now = getattr(comparison.all, index)
        if before or now:
            counts = Table(title, "recorded", "replayed")
            for reason in sorted({*before, *now}):
                counts.add_row(reason, f"{before[reason]:,}", f"{now[reason]:,}")
            console.print(counts)
    if replay.open_count or replay.undecodable:
        console.print(f"{replay.open_count:,} attempts are still open; {replay.undecodable:,} records are not spans.")
    if replay.rule_errors.count:
        failed = f"The reward rule failed in {replay.rule_errors.count:,} attempts, whose rewards are missing"
        console.print(f"{failed}; the first was {replay.rule_errors.first}", markup=False, soft_wrap=True)
    if replay.left_out:
        console.print(f"{replay.left_out:,} records could not be assembled and are left out: the log says which.")


def _pair(difference: Difference) -> str:
    before, now = (("none" if mean is None else f"{mean:.6g}") for mean in difference.mean_rewards)
    return f"{before} → {now}"


_LINES: dict[str, Any] = {
    "attempts compared": lambda d: f"{d.attempts:,}",
    "attempts that differ": lambda d: f"{d.changed:,}",
    "only recorded": lambda d: f"{d.only_before:,}",
    "only replayed": lambda d: f"{d.only_now:,}",
    "rewards that differ": lambda d: f"{d.rewards_changed:,}",
    "rewards only replayed": lambda d: f"{d.rewards_added:,}",
    "rewards only recorded": lambda d: f"{d.rewards_lost:,}",
    "mean reward of those with both": _pair,
    "calls that become training data": lambda d: f"{d.calls_added:,}",
    "calls that no longer do": lambda d: f"{d.calls_lost:,}",
    "calls with another reward": lambda d: f"{d.call_rewards_changed:,}",
    "segments": lambda d: f"{d.segments[0].total():,} → {d.segments[1].total():,}",
}
