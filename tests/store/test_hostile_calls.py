"""Calls that nobody should make: each is refused with the interface's error, and changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from lightstream.schemas.errors import NotFoundError, StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.records import WorkerHeartbeat, WorkerStatus
from lightstream.schemas.types import LLM, AttemptedRollout, EnqueueRolloutRequest, PromptTemplate, RolloutConfig

from .support import begun, span_of, unique

Call: TypeAlias = Callable[[LightningStore, AttemptedRollout], Awaitable[Any]]

SURROGATE = "\ud800"
HUGE = 2**63
TOO_LARGE = 10**400
"""For a float."""

LONG = "x" * 2000


def _assigned(**values: Any) -> EnqueueRolloutRequest:
    """A request that was right when it was made; assignments are not checked."""
    request = EnqueueRolloutRequest(input=1)
    for name, value in values.items():
        setattr(request, name, value)
    return request


def _attempts(count: int) -> RolloutConfig:
    config = RolloutConfig()
    config.max_attempts = count
    return config


def _no_engine() -> PromptTemplate:
    template = PromptTemplate(template="{x}")
    template.engine = "foo"  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]  # on purpose
    return template


def _report(**values: Any) -> WorkerHeartbeat:
    return WorkerHeartbeat(
        worker_id=unique("w"), kind="runner", status=WorkerStatus.IDLE, heartbeat_unix_nano=1, **values
    )


REFUSED: dict[str, Call] = {
    # ids
    "start_rollout: no text": lambda s, r: s.start_rollout(1, rollout_id=SURROGATE),
    "start_rollout: too long": lambda s, r: s.start_rollout(1, rollout_id=LONG),
    "start_rollout: empty": lambda s, r: s.start_rollout(1, rollout_id=""),
    "start_rollout: a number": lambda s, r: s.start_rollout(1, rollout_id=7),  # type: ignore[arg-type]  # on purpose
    "start_rollout: its worker": lambda s, r: s.start_rollout(1, worker_id=LONG),
    "start_attempt: its worker": lambda s, r: s.start_attempt(r.rollout_id, LONG),
    "start_attempt: no text": lambda s, r: s.start_attempt(r.rollout_id, SURROGATE),
    "dequeue_rollout: no text": lambda s, r: s.dequeue_rollout(SURROGATE),
    "dequeue_rollout: too long": lambda s, r: s.dequeue_rollout(LONG),
    "dequeue_rollout: a number": lambda s, r: s.dequeue_rollout(7),  # type: ignore[arg-type]  # on purpose
    "dequeue_many_rollouts: a share": lambda s, r: s.dequeue_many_rollouts(limit=1.0),  # type: ignore[arg-type]  # on purpose
    "dequeue_many_rollouts: a flag": lambda s, r: s.dequeue_many_rollouts(limit=True),
    "dequeue_many_rollouts: a text": lambda s, r: s.dequeue_many_rollouts(limit="1"),  # type: ignore[arg-type]  # on purpose
    "dequeue_rollout: a time that no float is": lambda s, r: s.dequeue_rollout(timeout_s=TOO_LARGE),
    "dequeue_many_rollouts: no number": lambda s, r: s.dequeue_many_rollouts(limit="two"),  # type: ignore[arg-type]  # on purpose
    "update_worker: no text": lambda s, r: s.update_worker(SURROGATE),
    "update_worker: empty": lambda s, r: s.update_worker(""),
    "update_worker: too long": lambda s, r: s.update_worker(LONG),
    "update_resources: no text": lambda s, r: s.update_resources(SURROGATE, {}),
    "update_resources: empty": lambda s, r: s.update_resources("", {}),
    "update_resources: too long": lambda s, r: s.update_resources(LONG, {}),
    "update_resources: a name": lambda s, r: s.update_resources(unique(), {SURROGATE: LLM(endpoint="e", model="m")}),
    "update_resources: a text": lambda s, r: s.add_resources({"a": LLM(endpoint="e", model=SURROGATE)}),
    "update_attempt: a worker": lambda s, r: s.update_attempt(r.rollout_id, "latest", worker_id=LONG),
    "enqueue: a group": lambda s, r: s.enqueue_rollout(1, group_id=SURROGATE, group_size=2),
    "enqueue: no such size": lambda s, r: s.enqueue_rollout(1, group_id="g", group_size=0),
    "enqueue: a run": lambda s, r: s.enqueue_rollout(1, run_id=SURROGATE),
    "enqueue: no such credit": lambda s, r: s.enqueue_rollout(1, assembly={"credit": "identicle"}),  # type: ignore[arg-type]  # on purpose
    "enqueue: no such match": lambda s, r: s.enqueue_rollout(1, assembly={"reward_match": "clock"}),  # type: ignore[arg-type]  # on purpose
    "enqueue: no such rule": lambda s, r: s.enqueue_rollout(1, assembly={"merge": "none"}),  # type: ignore[arg-type]  # on purpose
    "enqueue: no expression": lambda s, r: s.enqueue_rollout(1, assembly={"trained_agents": "("}),  # type: ignore[arg-type]  # on purpose
    "enqueue: a long rule": lambda s, r: s.enqueue_rollout(1, assembly={"trained_agents": "a" * 2000}),  # type: ignore[arg-type]  # on purpose
    "start: no text": lambda s, r: s.start_rollout(1, assembly={"trained_agents": SURROGATE}),  # type: ignore[arg-type]  # on purpose
    "enqueue: no request": lambda s, r: s.enqueue_many_rollouts([1]),  # type: ignore[list-item]  # on purpose
    # numbers and times
    "update_attempt: no time": lambda s, r: s.update_attempt(r.rollout_id, "latest", last_heartbeat_time=float("nan")),
    "update_attempt: beyond time": lambda s, r: s.update_attempt(r.rollout_id, "latest", last_heartbeat_time=1e300),
    "update_attempt: a time that no float is": lambda s, r: s.update_attempt(
        r.rollout_id, "latest", last_heartbeat_time=TOO_LARGE
    ),
    "update_attempt: no status": lambda s, r: s.update_attempt(r.rollout_id, "latest", status="cancelled"),  # type: ignore[arg-type]  # on purpose
    "update_rollout: no status": lambda s, r: s.update_rollout(r.rollout_id, status="timeout"),  # type: ignore[arg-type]  # on purpose
    "update_rollout: no text": lambda s, r: s.update_rollout(r.rollout_id, resources_id=SURROGATE),
    "add_span: beyond time": lambda s, r: s.add_span(span_of(r, start_time=1e300)),
    "add_span: a number": lambda s, r: s.add_span(span_of(r, sequence_id=HUGE)),
    "add_span: a negative number": lambda s, r: s.add_span(span_of(r, sequence_id=-1)),
    "add_span: no text": lambda s, r: s.add_span(span_of(r, name=SURROGATE)),
    "add_span: no value": lambda s, r: s.add_span(span_of(r, attributes={"x": [SURROGATE]})),
    "wait_for_rollouts: no time": lambda s, r: s.wait_for_rollouts(rollout_ids=["a"], timeout=float("nan")),
    "wait_for_rollouts: a time that no float is": lambda s, r: s.wait_for_rollouts(
        rollout_ids=["a"], timeout=TOO_LARGE
    ),
    "wait_for_rollouts: no ids": lambda s, r: s.wait_for_rollouts(rollout_ids="abc", timeout=0.0),
    # types
    "update_attempt: metadata": lambda s, r: s.update_attempt(r.rollout_id, "latest", metadata="x"),  # type: ignore[arg-type]  # on purpose
    "update_rollout: metadata": lambda s, r: s.update_rollout(r.rollout_id, metadata=[1]),  # type: ignore[arg-type]  # on purpose
    "update_attempt: an error": lambda s, r: s.update_attempt(r.rollout_id, "latest", error_message=5),  # type: ignore[arg-type]  # on purpose
    "update_attempt: no id": lambda s, r: s.update_attempt(r.rollout_id, None, "running"),  # type: ignore[arg-type]  # on purpose
    "enqueue: assigned metadata": lambda s, r: s.enqueue_many_rollouts([_assigned(metadata=[1])]),
    "enqueue: an assigned limit": lambda s, r: s.enqueue_many_rollouts([_assigned(config=_attempts(0))]),
    "update_rollout: an assigned limit": lambda s, r: s.update_rollout(r.rollout_id, config=_attempts(0)),
    "enqueue_many_rollouts: none": lambda s, r: s.enqueue_many_rollouts(None),  # type: ignore[arg-type]  # on purpose
    "add_span: none": lambda s, r: s.add_span(None),  # type: ignore[arg-type]  # on purpose
    "add_many_spans: none": lambda s, r: s.add_many_spans(None),  # type: ignore[arg-type]  # on purpose
    "get_many_span_sequence_ids: none": lambda s, r: s.get_many_span_sequence_ids(None),  # type: ignore[arg-type]  # on purpose
    "get_many_span_sequence_ids: no pair": lambda s, r: s.get_many_span_sequence_ids([3]),  # type: ignore[list-item]  # on purpose
    "get_many_span_sequence_ids: a text": lambda s, r: s.get_many_span_sequence_ids(["ab"]),  # type: ignore[list-item]  # on purpose
    "update_resources: an assigned engine": lambda s, r: s.update_resources(unique(), {"p": _no_engine()}),
    "add_resources: an assigned engine": lambda s, r: s.add_resources({"p": _no_engine()}),
    "update_resources: none": lambda s, r: s.update_resources(unique(), None),  # type: ignore[arg-type]  # on purpose
    "add_resources: a list": lambda s, r: s.add_resources([1]),  # type: ignore[arg-type]  # on purpose
    "heartbeat: no JSON": lambda s, r: s.heartbeat(_report(stats_json="nope"), []),
    "heartbeat: more than a record holds": lambda s, r: s.heartbeat(
        _report(stats_json=f'{{"text": "{"x" * (33 * 1024 * 1024)}"}}'), [(r.rollout_id, r.attempt.attempt_id)]
    ),
    "heartbeat: no object": lambda s, r: s.heartbeat(_report(stats_json="[1]"), []),
    "heartbeat: no report": lambda s, r: s.heartbeat("w", []),  # type: ignore[arg-type]  # on purpose
    "heartbeat: no attempts": lambda s, r: s.heartbeat(_report(), [r.rollout_id]),  # type: ignore[list-item]  # on purpose
    "dequeue_rollout: no time": lambda s, r: s.dequeue_rollout(timeout_s=None),  # type: ignore[arg-type]  # on purpose
    "get_latest_resources: no time": lambda s, r: s.get_latest_resources(timeout_s=None),  # type: ignore[arg-type]  # on purpose
    "get_resources_by_id: no time": lambda s, r: s.get_resources_by_id("x", timeout_s="1"),  # type: ignore[arg-type]  # on purpose
    "wait_for_rollouts: a count": lambda s, r: s.wait_for_rollouts(rollout_ids=["a"], count="1"),  # type: ignore[arg-type]  # on purpose
    "wait_for_rollouts: a share": lambda s, r: s.wait_for_rollouts(rollout_ids=["a"], share="1"),  # type: ignore[arg-type]  # on purpose
    "get_rollout_by_id: a list": lambda s, r: s.get_rollout_by_id(["a"]),  # type: ignore[arg-type]  # on purpose
    "get_latest_attempt: a list": lambda s, r: s.get_latest_attempt(["a"]),  # type: ignore[arg-type]  # on purpose
    "query_attempts: a list": lambda s, r: s.query_attempts(["a"]),  # type: ignore[arg-type]  # on purpose
    "query_spans: a list": lambda s, r: s.query_spans(["a"]),  # type: ignore[arg-type]  # on purpose
    "get_resources_by_id: a list": lambda s, r: s.get_resources_by_id(["a"]),  # type: ignore[arg-type]  # on purpose
    "get_worker_by_id: a list": lambda s, r: s.get_worker_by_id(["a"]),  # type: ignore[arg-type]  # on purpose
    "query_rollouts: sort_by": lambda s, r: s.query_rollouts(sort_by=["a"]),  # type: ignore[arg-type]  # on purpose
    # queries
    "query_rollouts: limit": lambda s, r: s.query_rollouts(limit=-2),
    "query_rollouts: times": lambda s, r: s.query_rollouts(started_after=1e300),
    "query_rollouts: a time that no float is": lambda s, r: s.query_rollouts(started_after=TOO_LARGE),
    "query_rollouts: a time as text": lambda s, r: s.query_rollouts(started_after="5"),  # type: ignore[arg-type]  # on purpose
    "query_rollouts: a flag as a time": lambda s, r: s.query_rollouts(started_after=True),
    "query_rollouts: an offset as text": lambda s, r: s.query_rollouts(offset="0"),  # type: ignore[arg-type]  # on purpose
    "query_rollouts: a flag as a limit": lambda s, r: s.query_rollouts(limit=False),
    "query_attempts: a flag as a limit": lambda s, r: s.query_attempts(r.rollout_id, limit=False),
    "query_attempts: limit": lambda s, r: s.query_attempts(r.rollout_id, limit=-2),
    "query_attempts: offset": lambda s, r: s.query_attempts(r.rollout_id, offset=-1),
    "query_attempts: sort_by": lambda s, r: s.query_attempts(r.rollout_id, sort_by="metadata"),
    "query_attempts: sort_order": lambda s, r: s.query_attempts(r.rollout_id, sort_order="up"),  # type: ignore[arg-type]  # on purpose
    "query_spans: filter_logic": lambda s, r: s.query_spans(r.rollout_id, filter_logic="xor"),  # type: ignore[arg-type]  # on purpose
    "query_spans: a filter": lambda s, r: s.query_spans(r.rollout_id, trace_id_contains=3),  # type: ignore[arg-type]  # on purpose
    "query_resources: a filter": lambda s, r: s.query_resources(resources_id=3),  # type: ignore[arg-type]  # on purpose
    "query_resources: limit": lambda s, r: s.query_resources(limit=-2),
    "query_workers: a filter": lambda s, r: s.query_workers(status_in="idle"),  # type: ignore[arg-type]  # on purpose
    "query_workers: a word": lambda s, r: s.query_workers(status_in=[3]),  # type: ignore[list-item]  # on purpose
    "query_workers: limit": lambda s, r: s.query_workers(limit=1.5),  # type: ignore[arg-type]  # on purpose
}


@pytest.mark.parametrize("name", REFUSED)
async def test_it_is_refused_and_nothing_changes(store: LightningStore, name: str) -> None:
    rollout = await begun(store)
    before = await everything(store, rollout.rollout_id)
    with pytest.raises(ValueError):  # noqa: PT011  # what it says is tested beside each method
        await REFUSED[name](store, rollout)
    assert await everything(store, rollout.rollout_id) == before


UNKNOWN: dict[str, Call] = {
    "update_rollout": lambda s, r: s.update_rollout("nonexistent", mode="val"),
    "cancel_rollout": lambda s, r: s.cancel_rollout("nonexistent"),
    "start_attempt": lambda s, r: s.start_attempt("nonexistent"),
    "update_attempt: the rollout": lambda s, r: s.update_attempt("nonexistent", "latest", "failed"),
    "update_attempt: the attempt": lambda s, r: s.update_attempt(r.rollout_id, "nonexistent", "failed"),
    "add_span: the rollout": lambda s, r: s.add_span(span_of(r, rollout_id="nonexistent")),
    "add_span: the attempt": lambda s, r: s.add_span(span_of(r, attempt_id="nonexistent")),
    "add_many_spans": lambda s, r: s.add_many_spans([span_of(r), span_of(r, attempt_id="nonexistent")]),
    "get_next_span_sequence_id": lambda s, r: s.get_next_span_sequence_id("nonexistent", "nonexistent"),
}


@pytest.mark.parametrize("name", UNKNOWN)
async def test_what_does_not_exist_is_not_found_and_nothing_changes(store: LightningStore, name: str) -> None:
    rollout = await begun(store)
    spans = (await store.statistics()).get("total_spans")
    with pytest.raises(NotFoundError, match="nonexistent"):
        await UNKNOWN[name](store, rollout)
    found = await store.get_rollout_by_id(rollout.rollout_id)
    assert found is not None
    assert found.status in ("preparing", "running"), "a span of its own is a sign of life"
    assert (await store.statistics()).get("total_spans") == spans


async def test_questions_about_what_does_not_exist(store: LightningStore) -> None:
    for name in ("nonexistent", "", "x" * 5000, "a\0b", SURROGATE):
        for ask in (
            store.get_rollout_by_id,
            store.get_latest_attempt,
            store.get_resources_by_id,
            store.get_worker_by_id,
        ):
            try:
                assert await ask(name) is None
            except ValueError:
                assert name == SURROGATE, "no Unicode text: it may be refused"
    assert list(await store.query_attempts("nonexistent")) == []
    assert list(await store.query_spans("nonexistent", "latest")) == []


@pytest.mark.parametrize("limit", [-1, 0, 1, HUGE - 1, HUGE, 10**30])
async def test_limits_of_every_size(store: LightningStore, limit: int) -> None:
    """-1 is all, as in Agent Lightning; 0 is none, with the total."""
    family = unique()
    ids = [(await begun(store, rollout_id=f"{family}-{n}")).rollout_id for n in range(2)]
    expected = 2 if limit < 0 else min(2, limit)
    page = await store.query_rollouts(rollout_id_in=ids, limit=limit)
    assert (len(page), page.total, page.limit) == (expected, 2, limit)
    assert len(await store.query_attempts(ids[0], limit=limit)) == min(1, expected)
    beyond = await store.query_rollouts(rollout_id_in=ids, offset=abs(limit) + 2)
    assert (len(beyond), beyond.total) == (0, 2)
    await store.update_worker(family)
    assert len(await store.query_workers(worker_id_contains=family, limit=limit)) == min(1, expected)
    await store.update_resources(family, {})
    assert len(await store.query_resources(resources_id=family, limit=limit)) == min(1, expected)


@pytest.mark.parametrize("limit", [-1, 0])
async def test_dequeue_many_rollouts_of_none(store: LightningStore, limit: int) -> None:
    made = await store.enqueue_rollout(1)
    assert list(await store.dequeue_many_rollouts(limit=limit)) == []
    found = await store.get_rollout_by_id(made.rollout_id)
    assert found is not None
    assert found.status == "queuing"


@pytest.mark.parametrize("name", ["a/b c", "é☃/%2F?x#y", "'; --", "..", "latest", "a\0b", "\n", "x" * 250])
async def test_workers_resources_and_groups_have_any_name(store: LightningStore, name: str) -> None:
    name = unique() + name
    worker = await store.update_worker(name, {"load": 1})
    assert await store.get_worker_by_id(name) == worker
    assert [found.worker_id for found in await store.query_workers(worker_id_contains=name)] == [name]
    resources = await store.update_resources(name, {name: LLM(endpoint=name, model=name)})
    assert await store.get_resources_by_id(name) == resources
    assert list(await store.query_resources(resources_id=name)) == [resources]
    made = await store.enqueue_many_rollouts(
        [EnqueueRolloutRequest(input=name, resources_id=name, group_id=name, group_size=1, run_id=name)]
    )
    found = await store.get_rollout_by_id(made[0].rollout_id)
    assert found is not None
    assert found == made[0]
    assert (found.group_id, found.resources_id, found.input) == (name, name, name)


async def test_ten_megabytes_in_a_span(store: LightningStore) -> None:
    rollout = await begun(store)
    span = span_of(rollout, attributes={"text": "é" * 5_000_000})
    assert await store.add_span(span) == span
    (kept,) = await store.query_spans(rollout.rollout_id)
    assert kept.attributes == span.attributes


async def test_a_span_that_no_record_holds_among_others(store: LightningStore) -> None:
    """No span is kept, and no attempt counts as alive: not even that of the span beside it."""
    rollout, other = await begun(store), await begun(store)
    before = [await both(store, made.rollout_id) for made in (rollout, other)]
    too_large = span_of(rollout, attributes={"text": "x" * (33 * 1024 * 1024)})
    with pytest.raises(StoreError, match="bytes"):
        await store.add_many_spans([span_of(other), too_large, span_of(rollout)])
    assert [await both(store, made.rollout_id) for made in (rollout, other)] == before
    assert [span.name for span in await store.add_many_spans([span_of(other)])] == ["work"], "it can be sent again"


async def both(store: LightningStore, rollout_id: str) -> list[Any]:
    """The rollout and its spans. Others of the store may go on meanwhile: their deadlines pass."""
    return [await store.get_rollout_by_id(rollout_id), list(await store.query_spans(rollout_id))]


async def everything(store: LightningStore, rollout_id: str) -> list[Any]:
    about = await store.statistics()
    counts = [about.get(f"total_{what}") for what in ("rollouts", "attempts", "spans", "resources", "workers")]
    spans = await store.query_spans(rollout_id)
    rollouts = list(await store.query_rollouts(limit=1))
    others = [list(await store.query_workers(limit=1)), list(await store.query_resources())]
    rollout = await store.get_rollout_by_id(rollout_id)
    return [counts, rollout, list(spans), await store.get_latest_resources(), rollouts, *others]
