"""A history of finished rollouts, as the view has it, many at a time: records of one batch, moved and renamed.

Each rollout has the four states of a life without accidents, and an attempt of one LLM call with its trajectory.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import (
    AttemptClosed,
    AttemptOpened,
    AttemptState,
    AttemptStatus,
    EventKind,
    LlmCall,
    Record,
    RolloutMode,
    RolloutSpec,
    RolloutState,
    RolloutStatus,
    SpanRecord,
    Trajectory,
    Verdict,
    VerdictOutcome,
)
from lightstream.store_views.materialiser.arrow_rows import LoggedRecord, arrow_table
from lightstream.store_views.tables import tables_of
from lightstream.stream_processors.core.assembly import Assembler

ROLLOUTS_PER_BATCH = 5_000
STATES_PER_ROLLOUT = 4
AT_ONCE = 1_000
"""Rollouts under way at a time: their states alternate in the log."""
GROUP_SIZE = 8
OFFSETS_PER_BATCH = ROLLOUTS_PER_BATCH * STATES_PER_ROLLOUT
NANOS_PER_ROLLOUT = 4_000_000
FIRST_UNIX_NANO = 1_700_000_000_000_000_000

RENAMED = ("trace_id", "span_id", "response_id", "llm_response_id", "verdict_event_id", "group_id")
MOVED = ("log_offset", "source_offset", "source_first_offset", "source_last_offset")


def batches(rollouts: int) -> Iterator[dict[str, pa.Table]]:
    """Rows per table of ``rollouts`` finished rollouts (a whole number of batches), oldest first."""
    template = {table.name: arrow_table(table, logged) for logged in _template() for table in tables_of(_type(logged))}
    rng = random.Random(7)
    for batch in range(rollouts // ROLLOUTS_PER_BATCH):
        ids = pa.array([f"ro-{rng.getrandbits(80):020x}" for _ in range(ROLLOUTS_PER_BATCH)])
        yield {name: _moved(rows, batch, ids) for name, rows in template.items()}


def states(first: int, count: int) -> Iterator[RolloutState]:
    """The states of the rollouts that are numbered from ``first``, in the order of the log."""
    moments = sorted(
        (i + delay, i, number)
        for i in range(first, first + count)
        for number, delay in enumerate((0, AT_ONCE // 2, AT_ONCE // 2 + 1, AT_ONCE))
    )
    for offset, (moment, i, number) in enumerate(moments):
        yield _state(i, number, FIRST_UNIX_NANO + moment * NANOS_PER_ROLLOUT, offset)


def _type(logged: list[LoggedRecord]) -> type[Record]:
    return type(logged[0].record)


def _template() -> Iterator[list[LoggedRecord]]:
    """Records of one batch by type. Rollouts are named by their number."""
    in_log = [_logged(state, offset) for offset, state in enumerate(states(0, ROLLOUTS_PER_BATCH))]
    yield in_log
    assembler, by_type = Assembler(partition=0), dict[type[Record], list[LoggedRecord]]()
    offset = 0
    for i in range(ROLLOUTS_PER_BATCH):
        for record in _attempt(i):
            by_type.setdefault(type(record), []).append(_logged(record, offset))
            made = assembler.on_record(record, offset)
            by_type.setdefault(Trajectory, []).extend(_logged(trajectory, i) for trajectory in made)
            offset += 1
    yield from by_type.values()


def _logged(record: Record, offset: int) -> LoggedRecord:
    return LoggedRecord(record, 0, offset, FIRST_UNIX_NANO + offset)


def _moved(rows: pa.Table, batch: int, ids: pa.Array[pa.StringScalar]) -> pa.Table:
    for index, name in enumerate(rows.column_names):
        column: Any = rows.column(name)
        if name == "rollout_id":
            column = ids.take(pc.cast(column.combine_chunks(), pa.int64()))
        elif name in RENAMED:
            column = pc.binary_join_element_wise(column, pa.scalar(f"{batch:04x}"), "")
        elif name in MOVED:
            column = pc.add(column, batch * OFFSETS_PER_BATCH)
        elif name.endswith("_unix_nano"):
            column = pc.add(column, batch * ROLLOUTS_PER_BATCH * NANOS_PER_ROLLOUT)
        else:
            continue
        rows = rows.set_column(index, name, column)
    return rows


def _spec(i: int) -> RolloutSpec:
    question = f"What is {i} plus {i * 7919}? Show how you found it, and answer with one number."
    return RolloutSpec(
        rollout_id=str(i),
        run_id="run-1",
        mode=RolloutMode.TRAIN,
        input_json=f'{{"question": "{question}", "answer": {i * 7920}}}',
        resources_id=f"policy@{i // 512}",
        group_id=f"g{i // GROUP_SIZE}-",
        group_size=GROUP_SIZE,
        enqueued_unix_nano=FIRST_UNIX_NANO + i * NANOS_PER_ROLLOUT,
    )


def _state(i: int, number: int, now: int, offset: int) -> RolloutState:
    last = number == STATES_PER_ROLLOUT - 1
    attempt = AttemptState(
        attempt_id=f"at-{i}",
        sequence=1,
        status=(AttemptStatus.PREPARING, AttemptStatus.PREPARING, AttemptStatus.RUNNING, AttemptStatus.SUCCEEDED)[
            number
        ],
        worker_id=f"worker-{i % 64}",
        started_unix_nano=now,
        ended_unix_nano=now if last else None,
        closed=last,
    )
    return RolloutState(
        rollout=_spec(i),
        status=(RolloutStatus.QUEUING, RolloutStatus.PREPARING, RolloutStatus.RUNNING, RolloutStatus.SUCCEEDED)[number],
        attempts=[attempt] if number else [],
        updated_unix_nano=now,
        ended_unix_nano=now if last else None,
        source_offset=offset,
        verdict=Verdict(event_id=f"{i}-{number}-", kind=EventKind.ENQUEUED, outcome=VerdictOutcome.APPLIED),
    )


def _attempt(i: int) -> tuple[AttemptOpened, SpanRecord, SpanRecord, AttemptClosed]:
    now = FIRST_UNIX_NANO + i * NANOS_PER_ROLLOUT
    agent = SpanRecord(
        rollout_id=str(i),
        attempt_id=f"at-{i}",
        trace_id=f"trace{i}-",
        span_id=f"agent{i}-",
        name="agent",
        start_unix_nano=now,
        end_unix_nano=now + 1,
        attributes={"session": i},
    )
    call = LlmCall(
        response_id=f"chatcmpl-{i}-",
        requested_model="policy",
        response_model="policy@1",
        policy_version=1,
        prompt_token_ids=pack_int32(range(i, i + 16)),
        response_token_ids=pack_int32(range(i, i + 8)),
        response_logprobs=pack_float32([-0.5] * 8),
        finish_reason="stop",
        http_status=200,
    )
    return (
        AttemptOpened(rollout=_spec(i), attempt_id=f"at-{i}", attempt_sequence=1, opened_unix_nano=now),
        agent,
        agent.model_copy(update={"span_id": f"call{i}-", "parent_id": None, "name": "chat", "llm_call": call}),
        AttemptClosed(
            rollout_id=str(i),
            attempt_id=f"at-{i}",
            attempt_sequence=1,
            status=AttemptStatus.SUCCEEDED,
            rollout_status=RolloutStatus.SUCCEEDED,
            final=True,
            closed_unix_nano=now,
        ),
    )
