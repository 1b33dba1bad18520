"""Tables that are kept beside the raw ones, in the transaction that adds the rows they follow from.

Pages read them in place of the history: one row per rollout and attempt, sums of each run, and why rollouts were not
trained on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lightstream.schemas.records import Record, RolloutState, RunDeleted, TrainingStep, Trajectory

from .declared import LOG_COLUMNS, tables_of


@dataclass(frozen=True, slots=True)
class KeptTable:
    """One table.

    Attributes:
        name: its name in SQL.
        records: the record types that its rows follow from.
        doc: what it holds.
        types: column -> DuckDB type, in the table's order.
        meanings: column -> meaning.
        keys: of a table of sums: how many columns, from the first, say what is summed. Its rows are changes, whose sum
            per key is the value.
    """

    name: str
    records: tuple[type[Record], ...]
    doc: str
    types: Mapping[str, str]
    meanings: Mapping[str, str]
    keys: int = 0

    @property
    def ddl(self) -> str:
        """``CREATE TABLE IF NOT EXISTS`` statement."""
        columns = ", ".join(f'"{name}" {sql_type}' for name, sql_type in self.types.items())
        return f"CREATE TABLE IF NOT EXISTS {self.name} ({columns})"


(_STATES,) = tables_of(RolloutState)
_TRAJECTORIES = tables_of(Trajectory)[0]

_OF_STATE = [
    column
    for column in (*LOG_COLUMNS, *_STATES.columns)
    if column.name != "logged_unix_nano" and not column.name.startswith("verdict_")
]
"""Columns of a rollout; the result is that of one event, and left out."""

ROLLOUTS_LATEST = KeptTable(
    "rollouts_latest",
    (RolloutState,),
    "The latest row of `rollout_states` per rollout, which the view `rollouts` shows: a query reads one row per "
    "rollout, whatever its history.",
    {column.name: column.sql_type for column in _OF_STATE} | {"attempt_count": "BIGINT"},
    {column.name: column.meaning for column in _OF_STATE}
    | {"attempt_count": "how many attempts the rollout has had so far."},  # counting them reads all that lists hold
)

_LATEST_OF_TRAJECTORY = (
    "log_partition",
    "log_offset",
    "rollout_id",
    "attempt_id",
    "attempt_sequence",
    "revision",
    "run_id",
    "mode",
    "group_id",
    "group_size",
    "resources_id",
    "status",
    "final",
    "reward",
    "opened_unix_nano",
    "closed_unix_nano",
    "call_count",
    "error_type",
    "error_message",
    "source_partition",
    "source_last_offset",
    "full_from_offset",
    "rollout_status",
)
_OF_TRAJECTORY = {column.name: column for column in _TRAJECTORIES.all_columns}
_TOKENS = {
    "prompt_tokens": "tokens of the prompts of its triplets.",
    "response_tokens": "tokens of the responses of its triplets.",
}

TRAJECTORIES_LATEST = KeptTable(
    "trajectories_latest",
    (Trajectory,),
    "The latest revision of each assembled attempt, as in the view `trajectories`, with what its calls became.",
    {name: _OF_TRAJECTORY[name].sql_type for name in _LATEST_OF_TRAJECTORY}
    | {"triplets": "BIGINT", "rewarded_triplets": "BIGINT", "dropped": "MAP(VARCHAR, BIGINT)"}
    | dict.fromkeys(_TOKENS, "BIGINT")
    | {"agent_name": "VARCHAR", "model": "VARCHAR"},
    {name: _OF_TRAJECTORY[name].meaning for name in _LATEST_OF_TRAJECTORY}
    | {
        "triplets": "how many calls are training data.",
        "rewarded_triplets": "how many of these have a finite reward.",
        "dropped": "how many calls were dropped, by reason.",
        "agent_name": "agent that made its LLM calls, or several (`planner, writer`); `agent` where nothing names one.",
        "model": "model that answered them, whichever version of it, or several; empty where it has no call.",
    }
    | _TOKENS,
)

_RUN = {"run_id": "VARCHAR", "mode": "VARCHAR"}
_RUN_MEANINGS = {"run_id": "the run.", "mode": "the rollouts' mode."}
_CHANGES = " Rows are changes; their sum per {} is the number."

RUN_ROLLOUTS = KeptTable(
    "run_rollouts",
    (RolloutState,),
    "Rollouts of each run by status." + _CHANGES.format("run, mode and status"),
    _RUN | {"status": "VARCHAR", "rollouts": "BIGINT", "attempts": "BIGINT"},
    _RUN_MEANINGS
    | {"status": "status of the rollouts.", "rollouts": "how many more there are.", "attempts": "their attempts."},
    keys=3,
)
RUN_CALLS = KeptTable(
    "run_calls",
    (Trajectory,),
    "LLM calls of assembled attempts by fate and reason." + _CHANGES.format("run, mode, fate and reason"),
    _RUN
    | {"fate": "VARCHAR", "reason": "VARCHAR"}
    | {"calls": "BIGINT", "prompt_tokens": "BIGINT", "response_tokens": "BIGINT"},
    _RUN_MEANINGS
    | {
        "fate": "`triplet` or `dropped`.",
        "reason": "why it was dropped; else empty.",
        "calls": "how many more there are.",
    }
    | _TOKENS,
    keys=4,
)
RUN_REWARDS = KeptTable(
    "run_rewards",
    (Trajectory,),
    "Final trajectories of each run and their rewards." + _CHANGES.format("run and mode"),
    _RUN | {"trajectories": "BIGINT", "rewarded": "BIGINT", "reward_sum": "DOUBLE"},
    _RUN_MEANINGS
    | {
        "trajectories": "how many more are final.",
        "rewarded": "how many more of these have a finite reward.",
        "reward_sum": "the sum of these rewards.",
    },
    keys=2,
)

RUN_TRAINED = KeptTable(
    "run_trained",
    (TrainingStep,),
    "Rollouts that each run learned from." + _CHANGES.format("run"),
    {"run_id": "VARCHAR", "rollouts": "BIGINT", "calls": "BIGINT"},
    {
        "run_id": "the run of the steps.",
        "rollouts": "how many more rollouts were learned from.",
        "calls": "how many more of their calls had a weight, those that were trained on twice counted twice.",
    },
    keys=1,
)

_GROUP_KEY = "the rollout's group, or its own id where it has none."

GROUPS_CHANGED = KeptTable(
    "groups_changed",
    (RolloutState, Trajectory, TrainingStep),
    "Groups of which something came that `reasons_settled` does not know yet.",
    {"group_key": "VARCHAR"},
    {"group_key": _GROUP_KEY},
)
REASONS_SETTLED = KeptTable(
    "reasons_settled",
    (RolloutState, Trajectory, TrainingStep),
    "Why finished rollouts were not trained on, as the view `reason_codes`, except for groups in `groups_changed` and "
    "for what the end of a run changes.",
    {"group_key": "VARCHAR", "rollout_id": "VARCHAR", "run_id": "VARCHAR", "mode": "VARCHAR", "reason_code": "VARCHAR"},
    {
        "group_key": _GROUP_KEY,
        "rollout_id": "the rollout.",
        "run_id": "its run.",
        "mode": "its mode.",
        "reason_code": "why it was not trained on.",
    },
)

UNREAD_RECORDS = KeptTable(
    "unread_records",
    (),
    "Records that only another version of Lightstream can read, which wrote them: kept as they are until it is "
    "installed, and read from here then.",
    {
        "topic": "VARCHAR",
        "log_partition": "INTEGER",
        "log_offset": "BIGINT",
        "logged_unix_nano": "BIGINT",
        "key": "BLOB",
        "value": "BLOB",
        "schema": "VARCHAR",
        "writer": "VARCHAR",
    },
    {
        "topic": "topic without its prefix.",
        "log_partition": "partition of the topic that the record lies in.",
        "log_offset": "offset of the record in that partition.",
        "logged_unix_nano": "time of the record in Kafka, as the broker or its writer stamped it.",
        "key": "its key.",
        "value": "its value, as it was written.",
        "schema": "fingerprint of the schema that it was written with.",
        "writer": "the version that wrote it.",
    },
)

DELETIONS_PENDING = KeptTable(
    "deletions_pending",
    (RunDeleted,),
    "Deletions of runs whose rows are still there, until all records up to the deletion were read.",
    {"log_offset": "BIGINT"},
    {"log_offset": "offset of the deletion, as in `deletions_raw`."},
)

ROLLOUTS_DELETED = KeptTable(
    "rollouts_deleted",
    (RunDeleted,),
    "Ids of the rollouts whose rows left with a deleted run: all that is kept of them.",
    {"rollout_id": "VARCHAR", "log_offset": "BIGINT"},
    {"rollout_id": "the rollout.", "log_offset": "offset of the deletion, as in `deletions_raw`."},
)

PRICES = KeptTable(
    "prices",
    (),
    "What a million tokens of a model cost: as the file of prices says (`lightstream prices`); of public models, as "
    "LiteLLM knew them when it was installed.",
    {
        "model": "VARCHAR",
        "prompt_price": "DOUBLE",
        "response_price": "DOUBLE",
        "cached_price": "DOUBLE",
        "given": "BOOLEAN",
    },
    {
        "model": "the model; without a version, also of its versions that have no price of their own.",
        "prompt_price": "price of a million prompt tokens.",
        "response_price": "price of a million response tokens.",
        "cached_price": "price of a million prompt tokens from the model server's cache; NULL: as of any others.",
        "given": "true where the file of prices has it; false for those that came with LiteLLM, in US dollars.",
    },
)

KEPT_TABLES = (
    ROLLOUTS_LATEST,
    TRAJECTORIES_LATEST,
    RUN_ROLLOUTS,
    RUN_CALLS,
    RUN_REWARDS,
    RUN_TRAINED,
    GROUPS_CHANGED,
    REASONS_SETTLED,
    UNREAD_RECORDS,
    DELETIONS_PENDING,
    ROLLOUTS_DELETED,
    PRICES,
)
