"""Keeps in step with the rows that are added: latest rollouts and trajectories, sums of each run, and why rollouts were
not trained on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lightstream.schemas.policy_names import model_family
from lightstream.schemas.records import RolloutState, RolloutStatus, StepOutcome, TrainingStep, Trajectory

from ..tables import tables_of
from ..tables.kept import (
    GROUPS_CHANGED,
    KEPT_TABLES,
    REASONS_SETTLED,
    ROLLOUTS_LATEST,
    RUN_CALLS,
    RUN_REWARDS,
    RUN_ROLLOUTS,
    RUN_TRAINED,
    TRAJECTORIES_LATEST,
    KeptTable,
)
from .latest import LatestRows, Row, rows_of
from .planned import PlannedSql

(_STATES,) = tables_of(RolloutState)
_TRAJECTORIES, _TRIPLETS, _DROPS, _ = tables_of(Trajectory)
_, _CONSUMED = tables_of(TrainingStep)

_PLACE = ("log_partition", "log_offset")
_OF_RUN = ("run_id", "mode", "final", "reward")
_OF_ROLLOUT = ("rollout_id", "attempt_sequence", "revision")
_OUTCOME = ("triplets", "prompt_tokens", "response_tokens", "rewarded_triplets", "dropped")
_NAMES = ("agent_name", "model")
_OF_GROUP = ("group_id", "rollout_id")
_WHOSE = ("group_id", *_OF_ROLLOUT, "final")

_ROLLOUTS = LatestRows(
    ROLLOUTS_LATEST.name,
    identity=("rollout_id",),
    near="enqueued_unix_nano",
    # The life cycle's own rule: the state that reflects the later event is the later one, so a state that is logged
    # again, or by a worker that was replaced, takes nothing back.
    age=("source_offset", "log_offset", "log_partition"),
    counted=("run_id", "mode", "status", "attempt_count", *_OF_GROUP),
)
_ATTEMPTS = LatestRows(
    TRAJECTORIES_LATEST.name,
    identity=("rollout_id", "attempt_id"),
    near="opened_unix_nano",
    age=("revision",),
    counted=(*_OF_RUN, *_OUTCOME),
)

_GIVE_WAY = f"""
UPDATE {TRAJECTORIES_LATEST.name} AS older SET final = false
FROM (
    SELECT rollout_id, max(attempt_sequence) AS attempt_sequence
    FROM {TRAJECTORIES_LATEST.name}
    WHERE final AND rollout_id IN (FROM these_rollouts)
    GROUP BY rollout_id
) AS last
WHERE older.rollout_id = last.rollout_id AND older.final AND older.attempt_sequence < last.attempt_sequence
RETURNING older.run_id, older.mode, older.reward
"""  # noqa: S608  # our name
"""Of a rollout that was put back into the queue after its end, the final trajectory of the last attempt counts."""

_LATER = f"""
SELECT rollout_id FROM {TRAJECTORIES_LATEST.name}
WHERE final AND attempt_sequence > 1 AND rollout_id IN (FROM these_rollouts)
"""  # noqa: S608  # our name
"""Few rows have such a number, and of groups of rows that have none DuckDB reads nothing."""

_LEARNED_SO_FAR = f"""
SELECT run_id, rollout_id, count(*)::BIGINT FROM {_CONSUMED.name}
WHERE triplet_count > 0 AND outcome = 'updated' AND rollout_id IN (FROM these_rollouts)
GROUP BY run_id, rollout_id
"""  # noqa: S608  # our name

_NOTE_GROUPS = f"INSERT INTO {GROUPS_CHANGED.name} FROM these_groups"

_SETTLE = (
    f"DELETE FROM {REASONS_SETTLED.name} WHERE group_key IN (SELECT group_key FROM {GROUPS_CHANGED.name})",  # noqa: S608  # our names
    f"INSERT INTO {REASONS_SETTLED.name} BY NAME FROM reasons_unsettled",
    f"DELETE FROM {GROUPS_CHANGED.name}",  # noqa: S608  # our name
)

JOINED_AFTER = 500
"""Transactions after which the changes of a key become one row again."""

SETTLED_AFTER = 10_000
"""Changes of groups after which the reasons of their rollouts are settled again. A query looks into so many anew."""

_ENDED = (RolloutStatus.SUCCEEDED.value, RolloutStatus.FAILED.value, RolloutStatus.CANCELLED.value)

_ARROW_TYPES = {"VARCHAR": pa.string(), "BIGINT": pa.int64(), "DOUBLE": pa.float64()}

Outcome = tuple[int, int, int, int, dict[str, int]]
"""Of one row of ``trajectories_raw``: the columns :data:`_OUTCOME`."""

Changes = dict[Row, list[float]]
"""Key -> what is to be added to its numbers."""


class Summaries:
    """For the one thread that writes, inside its transactions: after a rollback nothing is to be mended."""

    def __init__(self) -> None:
        self._until_joined = 0
        self._until_settled = 0

    def add(self, planned: PlannedSql, tables: Mapping[str, pa.Table]) -> None:
        """Take up rows that were added to the raw tables.

        Raises:
            duckdb.Error: the disk is full, say; the caller rolls back.
        """
        changed = False
        groups: set[str] = set()
        if _STATES.name in tables:
            changed |= _add_states(planned, tables[_STATES.name], groups)
        if _TRAJECTORIES.name in tables:
            changed |= _add_trajectories(planned, tables, groups)
        if _CONSUMED.name in tables:
            changed |= _add_consumed(planned, tables[_CONSUMED.name], groups)
        if changed:
            self._until_joined -= 1
            if self._until_joined < 0:
                for table in KEPT_TABLES:
                    if table.keys:
                        _join(planned, table)
                self._until_joined = JOINED_AFTER
        if groups:
            planned.execute(_NOTE_GROUPS, these_groups=_texts(groups))
            self._until_settled -= len(groups)
            if self._until_settled < 0:
                for statement in _SETTLE:
                    planned.execute(statement)
                self._until_settled = SETTLED_AFTER


def _add_states(planned: PlannedSql, rows: pa.Table, groups: set[str]) -> bool:
    known = pc.not_equal(rows.column("status"), pa.scalar(RolloutStatus.UNKNOWN.value))
    # Answers about rollouts that do not exist are not states. They are rare, and filtering copies all lists.
    states = rows if pc.all(known).as_py() else rows.filter(known)
    states = states.append_column("attempt_count", pc.list_value_length(states.column("attempts")).cast(pa.int64()))
    states = states.select(list(ROLLOUTS_LATEST.types))
    removed, indices = _ROLLOUTS.replace(planned, states)
    added = rows_of(states.select(_ROLLOUTS.counted).take(indices), _ROLLOUTS.counted) if indices else ()
    rollouts: Changes = {}
    for sign, counted in ((-1, removed), (1, added)):
        for run_id, mode, status, attempts, group_id, rollout_id in counted:
            _change(rollouts, (run_id, mode, status), sign, (1, attempts))
            if status in _ENDED:
                groups.add(rollout_id if group_id is None else group_id)
    return _insert(planned, RUN_ROLLOUTS, rollouts)


def _add_trajectories(planned: PlannedSql, tables: Mapping[str, pa.Table], groups: set[str]) -> bool:
    outcomes = _outcomes(tables)
    rows = _with_names(_with_outcomes(tables[_TRAJECTORIES.name], outcomes), tables)
    removed, added = _ATTEMPTS.replace(planned, rows.select(list(TRAJECTORIES_LATEST.types)))
    described = list(rows_of(tables[_TRAJECTORIES.name], _OF_RUN))
    calls: Changes = {}
    rewards: Changes = {}
    for sign, counted in ((-1, removed), (1, ((*described[i], *outcomes[i]) for i in added))):
        for run_id, mode, final, reward, triplets, prompt_tokens, response_tokens, _, dropped in counted:
            _change(calls, (run_id, mode, "triplet", ""), sign, (triplets, prompt_tokens, response_tokens))
            for reason, count in dropped.items():
                _change(calls, (run_id, mode, "dropped", reason), sign, (count, 0, 0))
            if final:
                _change(rewards, (run_id, mode), sign, _rewarded(reward))
    if added:
        rows = tables[_TRAJECTORIES.name].select(_WHOSE).take(added)
        for group_id, rollout_id in rows_of(rows, _OF_GROUP):
            groups.add(rollout_id if group_id is None else group_id)
        for run_id, mode, reward in _given_way(planned, rows):
            _change(rewards, (run_id, mode), -1, _rewarded(reward))
    return _insert(planned, RUN_CALLS, calls) | _insert(planned, RUN_REWARDS, rewards)


def _add_consumed(planned: PlannedSql, rows: pa.Table, groups: set[str]) -> bool:
    calls: dict[tuple[str, str], list[int]] = {}
    columns = ("group_id", "run_id", "rollout_id", "outcome", "triplet_count")
    for group_id, run_id, rollout_id, outcome, count in rows_of(rows, columns):
        groups.add(group_id)  # a rollout without a group has its own id there
        if count > 0 and outcome == StepOutcome.UPDATED.value:
            calls.setdefault((run_id, rollout_id), []).append(count)
    if not calls:
        return False
    known = planned.execute(_LEARNED_SO_FAR, these_rollouts=_texts(rollout_id for _, rollout_id in calls))
    times = {(run_id, rollout_id): count for run_id, rollout_id, count in known}
    trained: Changes = {}
    for (run_id, rollout_id), counts in calls.items():
        is_first = times[run_id, rollout_id] == len(counts)  # these rows are in the table by now
        _change(trained, (run_id,), 1, (is_first, sum(counts)))
    return _insert(planned, RUN_TRAINED, trained)


def _rewarded(reward: float | None) -> tuple[float, ...]:
    """Numbers that a final trajectory adds to its run. Of a sum with infinity nothing can be taken away."""
    finite = reward if reward is not None and math.isfinite(reward) else None
    return 1, finite is not None, finite or 0.0


def _given_way(planned: PlannedSql, rows: pa.Table) -> list[Row]:
    """Final trajectories that no longer count for their rollouts, now that these rows came: run, mode, reward."""
    of_rollout = zip(rows_of(rows, _OF_ROLLOUT), rows.column("final").to_pylist(), strict=True)
    finals = [place for place, final in of_rollout if final]
    # There may be two where this is a later attempt, or a revision; else only where a later one came first.
    ids = {rollout_id for rollout_id, sequence, revision in finals if sequence > 1 or revision}
    firsts = [rollout_id for rollout_id, *_ in finals if rollout_id not in ids]
    if firsts:
        ids.update(rollout_id for (rollout_id,) in planned.execute(_LATER, these_rollouts=_texts(firsts)))
    return planned.execute(_GIVE_WAY, these_rollouts=_texts(sorted(ids))) if ids else []


def _outcomes(tables: Mapping[str, pa.Table]) -> list[Outcome]:
    """Outcome of the calls of each row of ``trajectories_raw``: the columns :data:`_OUTCOME`."""
    index = {place: i for i, place in enumerate(rows_of(tables[_TRAJECTORIES.name], _PLACE))}
    counts = [(0, 0, 0, 0)] * len(index)
    dropped: list[dict[str, int]] = [{} for _ in index]
    if (calls := tables.get(_TRIPLETS.name)) is not None:
        ids = ("prompt_token_ids", "response_token_ids")
        lengths = [pc.list_value_length(calls.column(name)).to_pylist() for name in ids]
        is_rewarded = pc.is_finite(calls.column("reward")).to_pylist()
        for place, prompt, response, rewarded in zip(rows_of(calls, _PLACE), *lengths, is_rewarded, strict=True):
            i = index[place]
            triplets, prompts, responses, with_reward = counts[i]
            counts[i] = triplets + 1, prompts + (prompt or 0), responses + (response or 0), with_reward + bool(rewarded)
    if (drops := tables.get(_DROPS.name)) is not None:
        for *place, reason, is_call in rows_of(drops, (*_PLACE, "reason", "is_llm_call")):
            if is_call:
                of_it = dropped[index[tuple(place)]]
                of_it[reason] = of_it.get(reason, 0) + 1
    return [(*numbers, reasons) for numbers, reasons in zip(counts, dropped, strict=True)]


def _with_outcomes(rows: pa.Table, outcomes: list[Outcome]) -> pa.Table:
    """Rows of ``trajectories_raw`` as ``trajectories_latest`` has them."""
    *numbers, dropped = zip(*outcomes, strict=True)
    for name, values in zip(_OUTCOME, numbers, strict=False):
        rows = rows.append_column(name, pa.array(values, pa.int64()))
    reasons = pa.array([list(of_it.items()) for of_it in dropped], pa.map_(pa.string(), pa.int64()))
    return rows.append_column(_OUTCOME[-1], reasons)


def _with_names(rows: pa.Table, tables: Mapping[str, pa.Table]) -> pa.Table:
    """``rows`` with the agents and models of their calls, in the order of the alphabet; a version is no model of its
    own."""
    names: dict[tuple[Row, str], set[str]] = {}
    for table in (_TRIPLETS.name, _DROPS.name):
        calls = tables.get(table)
        if calls is not None and table == _DROPS.name:
            calls = calls.filter(calls.column("is_llm_call"))
        for *place, agent, model in rows_of(calls, (*_PLACE, *_NAMES)) if calls is not None else ():
            names.setdefault((tuple(place), "agent_name"), set()).add(agent or NO_AGENT)
            if model:
                names.setdefault((tuple(place), "model"), set()).add(model_family(model))
    places = list(rows_of(rows, _PLACE))
    for name, default in (("agent_name", NO_AGENT), ("model", "")):
        values = [", ".join(sorted(names.get((place, name), ()))) or default for place in places]
        rows = rows.append_column(name, pa.array(values, pa.string()))
    return rows


NO_AGENT = "agent"
"""The name, in views, of an agent that nothing names."""


def _change(changes: Changes, key: Row, sign: int, numbers: tuple[float, ...]) -> None:
    sums = changes.setdefault(key, [0] * len(numbers))
    for i, number in enumerate(numbers):
        sums[i] += sign * number


def _insert(planned: PlannedSql, table: KeptTable, changes: Changes) -> bool:
    """Add what changes; false where nothing does."""
    rows = [(*key, *sums) for key, sums in changes.items() if any(sums)]
    if not rows:
        return False
    columns = zip(table.types.items(), zip(*rows, strict=True), strict=True)
    changed = pa.table({name: pa.array(values, _ARROW_TYPES[sql_type]) for (name, sql_type), values in columns})
    planned.execute(f"INSERT INTO {table.name} FROM incoming_{table.name}", **{f"incoming_{table.name}": changed})
    return True


def _texts(values: Iterable[str]) -> pa.Table:
    """One column."""
    return pa.table({"text": pa.array(list(values), pa.string())})


def _join(planned: PlannedSql, table: KeptTable) -> None:
    """Replace the changes of each key by their sum."""
    keys, sums = list(table.types)[: table.keys], list(table.types)[table.keys :]
    summed = ", ".join([*keys, *(f"sum({name})::{table.types[name]}" for name in sums)])
    rows = planned.execute(f"SELECT {summed} FROM {table.name} GROUP BY {', '.join(keys)}")  # noqa: S608  # our names
    planned.execute(f"DELETE FROM {table.name}")  # noqa: S608  # our name
    _insert(planned, table, {row[: table.keys]: list(row[table.keys :]) for row in rows})
