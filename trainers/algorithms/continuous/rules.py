"""Rules of choice in SQL: statements over the view that name rollouts of a window.

A statement has the window as the table ``window_rollouts``: ``rollout_id``, ``attempt_id``, ``reward``, ``input_json``,
``closed_unix_nano`` (event time), ``start_unix_nano`` and ``end_unix_nano`` (of the window). These columns are what
the learner would learn from. Everything else in the view may have changed since.

A window that is too large for a request is asked in parts, each of which is ``window_rollouts``. Rollouts of one input
are in one part, as far as it holds them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.errors import QueryError, SettingsError
from lightstream.schemas.records import Trajectory
from lightstream.store_views.client import ViewClient
from lightstream.store_views.sql_literal import sql_literal

from ...rollouts.batch import rollout_score
from ...rollouts.traffic import Window

LEFT_OUT = "left_out"
"""Reason of a rule that names none."""

NOT_TAKEN = "not_taken"
"""Reason of a rollout that no statement of what to take named."""

REASON_CHARACTERS_MAX = 100

LANE = "stores"
"""Rules wait for statements of training alone: people's neither delay nor cancel them."""

PART_ROWS_MAX = 5_000
PART_BYTES_MAX = 3 * 1024 * 1024
"""Of a part in its request, which may have 4 MiB with the statement. A larger input is NULL."""

_COLUMNS = {
    "rollout_id": "VARCHAR",
    "attempt_id": "VARCHAR",
    "reward": "DOUBLE",
    "input_json": "VARCHAR",
    "closed_unix_nano": "BIGINT",
    "start_unix_nano": "BIGINT",
    "end_unix_nano": "BIGINT",
}

_CONSENT = """
SELECT rollout_id, 'no_consent' AS reason
FROM window_rollouts
LEFT JOIN (SELECT rollout_id, json_extract_string(metadata_json, $path) AS given FROM rollouts) AS known
    USING (rollout_id)
WHERE given IS DISTINCT FROM $value
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """A statement whose rows name rollouts to leave out (or to take).

    Attributes:
        name: for messages.
        sql: one SELECT over the view and ``window_rollouts``, with the columns ``rollout_id`` and, if it likes,
            ``reason`` (a word, which the step keeps).
        takes: its rows are the rollouts to take; all others are left out.
    """

    name: str
    sql: str
    takes: bool = False
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def read(cls, file: Path, *, takes: bool = False) -> Rule:
        """A rule from a file of SQL.

        Raises:
            SettingsError: it cannot be read, or is empty.
        """
        try:
            text = file.read_text("utf-8").strip().rstrip(";")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"the rule {file} cannot be read: {error}.") from error
        if not text:
            raise SettingsError(f"the rule {file} is empty.", next_step="Write one SELECT with a column rollout_id.")
        return cls(str(file), text, takes)


def consent(key: str = "consent", value: str = "true") -> Rule:
    """Leave out rollouts whose metadata have not this value: ``no_consent``."""
    return Rule("consent", _CONSENT, params={"path": f'$."{key}"', "value": value})


def quality(at_least: float) -> Rule:
    """Leave out rollouts with a lower reward: ``below_quality``; one without a reward stays."""
    sql = "SELECT rollout_id, 'below_quality' AS reason FROM window_rollouts WHERE reward < $at_least"
    return Rule("quality", sql, params={"at_least": _finite("the least reward", at_least)})


def age(seconds_max: float) -> Rule:
    """Leave out rollouts that ended longer before the window's end: ``too_old``."""
    sql = (
        "SELECT rollout_id, 'too_old' AS reason FROM window_rollouts "
        "WHERE end_unix_nano - closed_unix_nano > $nanos_max"
    )
    return Rule("age", sql, params={"nanos_max": round(_finite("the greatest age", seconds_max) * NANOS_PER_SECOND)})


def share(fraction: float) -> Rule:
    """Take this share of all rollouts, by a hash of their ids: the others are ``not_in_share``.

    Raises:
        SettingsError: it is not within 0 and 1.
    """
    if not 0 <= fraction <= 1:
        raise SettingsError(f"the share is {fraction}; it is between 0 and 1.")
    sql = (
        "SELECT rollout_id, 'not_in_share' AS reason FROM window_rollouts "
        "WHERE ('0x' || left(md5(rollout_id), 8))::BIGINT >= $bound"
    )
    return Rule("share", sql, params={"bound": fraction * 2**32})


def one_per_input() -> Rule:
    """Of the rollouts of one input take the first of the window: the others are ``repeated_input``."""
    return Rule(
        "one per input",
        "SELECT rollout_id, 'repeated_input' AS reason FROM window_rollouts "
        "QUALIFY row_number() OVER (PARTITION BY input_json ORDER BY closed_unix_nano, rollout_id) > 1",
    )


def left_out_by(view: ViewClient, rules: Sequence[Rule], window: Window) -> dict[str, str]:
    """Rollout id -> the reason why a rule leaves it out. A rule sees the rollouts that those before it left.

    The view is asked once it has read all that is in the log now, and so the window.

    Raises:
        QueryError: a rule is no statement, has no column ``rollout_id``, or was refused.
        ServiceUnavailableError: the view does not answer, or has not caught up.
    """
    reasons: dict[str, str] = {}
    if not rules or not window.members:
        return reasons
    for rule in rules:
        members = [t for t in window.members if t.rollout_id not in reasons]
        if not members:
            break
        found: dict[str, str] = {}
        for part in _parts([_row(window, t) for t in members]):
            found |= _ask(view, rule, part)
        if rule.takes:
            found = {t.rollout_id: NOT_TAKEN for t in members if t.rollout_id not in found}
        reasons |= found
    return reasons


def _row(window: Window, trajectory: Trajectory) -> dict[str, Any]:
    return {
        "rollout_id": trajectory.rollout_id,
        "attempt_id": trajectory.attempt_id,
        "reward": rollout_score(trajectory),
        "input_json": trajectory.input_json,
        "closed_unix_nano": trajectory.closed_unix_nano,
        "start_unix_nano": window.start_unix_nano,
        "end_unix_nano": window.end_unix_nano,
    }


def _parts(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Rows in parts that fit a request; those of one input in one part, if a part holds them."""
    of_input: dict[str, list[tuple[dict[str, Any], int]]] = {}
    for row in rows:
        size_bytes = _bytes_of(row)
        sent = row if size_bytes <= PART_BYTES_MAX else row | {"input_json": None}
        of_input.setdefault(row["input_json"], []).append((sent, min(size_bytes, _bytes_of(sent))))
    part: list[dict[str, Any]] = []
    part_bytes = 0
    for group in of_input.values():
        whole = len(group), sum(size_bytes for _, size_bytes in group)
        for place, (row, size_bytes) in enumerate(group):
            count, count_bytes = (1, size_bytes) if place else whole
            if part and (len(part) + count > PART_ROWS_MAX or part_bytes + count_bytes > PART_BYTES_MAX):
                yield part
                part, part_bytes = [], 0
            part.append(row)
            part_bytes += size_bytes
    yield part


def _bytes_of(row: Mapping[str, Any]) -> int:
    """Bytes of a row in a request: as a text of JSON within JSON."""
    return len(json.dumps(json.dumps(row)))


def _ask(view: ViewClient, rule: Rule, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    shape = sql_literal(json.dumps([_COLUMNS]))
    window = f"SELECT unnest(from_json($window_json, {shape}), recursive := true)"
    ruled = f"SELECT * FROM (\n{rule.sql}\n)"  # noqa: S608  # the operator's own, and the view only reads
    wanted = "SELECT DISTINCT ON (rollout_id) * FROM ruled WHERE rollout_id IN (SELECT rollout_id FROM window_rollouts)"
    sql = f"WITH window_rollouts AS ({window}), ruled AS ({ruled}) {wanted}"
    try:
        answer = view.query(sql, "now", params={"window_json": json.dumps(rows), **rule.params})
    except QueryError as error:
        raise QueryError(
            f"the rule {rule.name} failed: {error.message}",
            next_step="It is one SELECT with a column rollout_id, and may read window_rollouts and all views.",
        ) from error
    if answer.truncated:
        raise QueryError(
            f"the rows of rule {rule.name} are too large.", next_step="SELECT rollout_id and reason alone."
        )
    return {row["rollout_id"]: str(row.get("reason") or LEFT_OUT)[:REASON_CHARACTERS_MAX] for row in answer.dicts()}


def _finite(what: str, value: float) -> float:
    if not math.isfinite(value):
        raise SettingsError(f"{what} is {value}; a finite number is needed.")
    return float(value)
