"""Random programs of store calls, as data: both packages run the same ones, each in its own interpreter.

What a call makes is not known yet, so ids are written as references: ``{"$rollout": 3}`` is the id of the fourth
rollout that the program made (and, where there are fewer, of none). :mod:`.calls` reads them.

Left out is what differs on purpose:

- a retry goes before new work here, so no program lets the queue try again;
- what is over stays over here, so nothing more is said of it (``unless_over``);
- spans that come twice: there, of a batch with one that is known, the new ones are left out too;
- numbers for spans of what does not exist, which are an error here (``unless_unknown``); and numbers that spans used up
  which could not be added, so these have the lowest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

Call = dict[str, Any]
"""``method``, ``args``, ``kwargs``, and when it is left out.

``unless_over``: the rollout and attempt that must be open. ``unless_unknown``: references that must be to something.
"""

ROLLOUT_STATUSES = ["queuing", "preparing", "running", "succeeded", "failed", "cancelled", "requeuing"]
INPUTS = ["text", {"a": 1}, 7, [1]]
WORKERS = ["w1", "w2", "w3"]
NO_ATTEMPT = "nope"
REFERENCES = 12
"""More than most programs make: some refer to nothing."""


def program(seed: int, length: int) -> list[Call]:
    """``length`` calls; the same for the same seed."""
    chance = random.Random(seed)
    makers = chance.choices(list(_MAKERS), list(_MAKERS.values()), k=length)
    return [make(chance, place) for place, make in enumerate(makers)]


def _call(method: str, *args: Any, unless_over: Any = None, unless_unknown: Sequence[Any] = (), **kwargs: Any) -> Call:
    left_out = {"unless_over": unless_over, "unless_unknown": list(unless_unknown)}
    return {"method": method, "args": list(args), "kwargs": kwargs, **left_out}


def _maybe(chance: random.Random, share: float, **kwargs: Any) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if chance.random() < share}


def _rollout(chance: random.Random) -> Any:
    return "nonexistent" if chance.random() < 0.05 else {"$rollout": chance.randrange(REFERENCES)}


def _attempt(chance: random.Random) -> tuple[Any, Any]:
    """An attempt with its rollout."""
    place = chance.randrange(REFERENCES)
    return {"$rollout_of": place}, NO_ATTEMPT if chance.random() < 0.05 else {"$attempt": place}


def _resources(chance: random.Random) -> Any:
    return {"$resources": chance.randrange(3)}


def _spec(chance: random.Random) -> dict[str, Any]:
    config = {"$config": {"max_attempts": chance.randint(1, 3), "timeout_seconds": chance.choice([None, 60.0])}}
    return {
        "mode": chance.choice([None, "train", "val", "test"]),
        "resources_id": chance.choice([None, _resources(chance)]),
        "config": chance.choice([None, config]),
        "metadata": chance.choice([None, {"k": 1}, {}]),
    }


def _span(chance: random.Random, rollout_id: Any, attempt_id: Any, number: int, span_id: int) -> Any:
    return {
        "$span": {
            "rollout_id": rollout_id,
            "attempt_id": attempt_id,
            "sequence_id": number if attempt_id != NO_ATTEMPT else 0,
            "trace_id": f"{chance.randint(1, 3):032x}",
            "span_id": f"{span_id:016x}",
            "parent_id": chance.choice([None, f"{chance.randint(1, 40):016x}"]),
            "name": chance.choice(["a", "ab", "llm.call", "reward"]),
            "attributes": {"x": chance.randrange(3), "s": "t"},
            "start_time": 1.0,
            "end_time": chance.choice([2.0, 3.5]),
        }
    }


def _page(chance: random.Random, *fields: str) -> dict[str, Any]:
    """Sorted by what is the same on both sides: times and made-up ids differ."""
    return {
        "sort_by": chance.choice([None, *fields]),
        "sort_order": chance.choice(["asc", "desc"]),
        "limit": chance.choice([-1, -1, 1, 3]),
        "offset": chance.choice([0, 0, 1, 5]),
    }


def _start_rollout(chance: random.Random, place: int) -> Call:
    return _call("start_rollout", chance.choice(INPUTS), **_spec(chance), worker_id=chance.choice([None, *WORKERS]))


def _enqueue(chance: random.Random, place: int) -> Call:
    return _call("enqueue_rollout", chance.choice(INPUTS), **_spec(chance))


def _enqueue_many(chance: random.Random, place: int) -> Call:
    requests = [{"$request": {"input": number, **_spec(chance)}} for number in range(chance.randrange(4))]
    return _call("enqueue_many_rollouts", requests)


def _dequeue(chance: random.Random, place: int) -> Call:
    return _call("dequeue_rollout", worker_id=chance.choice([None, *WORKERS]))


def _dequeue_many(chance: random.Random, place: int) -> Call:
    limit = chance.choice([-1, 0, 1, 2, 5])
    return _call("dequeue_many_rollouts", limit=limit, worker_id=chance.choice(WORKERS) if limit > 0 else None)


def _start_attempt(chance: random.Random, place: int) -> Call:
    rollout_id = _rollout(chance)
    return _call("start_attempt", rollout_id, worker_id=chance.choice([None, *WORKERS]), unless_over=[rollout_id, None])


def _update_attempt(chance: random.Random, place: int) -> Call:
    rollout_id, attempt_id = _attempt(chance)
    statuses = ["preparing", "running", "succeeded", "failed", "timeout", "unresponsive"]
    changes = _maybe(
        chance, 0.4, worker_id=chance.choice(WORKERS), metadata={"m": chance.randrange(3)}, last_heartbeat_time=5.0
    ) | _maybe(chance, 0.8, status=chance.choice(statuses))
    named = "latest" if chance.random() < 0.3 else attempt_id
    return _call("update_attempt", rollout_id, named, **changes, unless_over=[rollout_id, named])


def _update_rollout(chance: random.Random, place: int) -> Call:
    rollout_id = _rollout(chance)
    changes = _maybe(
        chance,
        0.3,
        status=chance.choice(["preparing", "running"]),
        mode=chance.choice([None, "val"]),
        metadata=chance.choice([None, {"z": 1}]),
        config={"$config": {"max_attempts": 2}},
        input={"new": 1},
        resources_id=_resources(chance),
    )
    return _call("update_rollout", rollout_id, **changes, unless_over=[rollout_id, None])


def _add_span(chance: random.Random, place: int) -> Call:
    rollout_id, attempt_id = _attempt(chance)
    span = _span(chance, rollout_id, attempt_id, chance.randrange(9), 10 * place)
    return _call("add_span", span, unless_over=[rollout_id, attempt_id])


def _add_many_spans(chance: random.Random, place: int) -> Call:
    rollout_id, attempt_id = _attempt(chance)
    spans = [_span(chance, rollout_id, attempt_id, n, 10 * place + n) for n in range(chance.randrange(4))]
    return _call("add_many_spans", spans, unless_over=[rollout_id, attempt_id])


def _add_otel_span(chance: random.Random, place: int) -> Call:
    rollout_id, attempt_id = _attempt(chance)
    name = chance.choice(["a", "ab", "llm.call", "reward"])
    made = {"trace_id": chance.randint(1, 3), "span_id": 10 * place + 9, "name": name, "attributes": {"x": 1, "f": 0.5}}
    number = 0 if attempt_id == NO_ATTEMPT else chance.choice([None, None, 0, 4, 20])
    return _call(
        "add_otel_span",
        rollout_id,
        attempt_id,
        {"$readable": made},
        sequence_id=number,
        unless_over=[rollout_id, attempt_id],
    )


def _next_number(chance: random.Random, place: int) -> Call:
    rollout_id, attempt_id = _attempt(chance)
    return _call("get_next_span_sequence_id", rollout_id, attempt_id, unless_unknown=[rollout_id])


def _next_numbers(chance: random.Random, place: int) -> Call:
    pairs = [list(_attempt(chance)) for _ in range(chance.randrange(4))]
    return _call("get_many_span_sequence_ids", pairs, unless_unknown=[rollout_id for rollout_id, _ in pairs])


def _query_rollouts(chance: random.Random, place: int) -> Call:
    ids = [_rollout(chance) for _ in range(chance.randrange(1, 4))]
    filters = _maybe(
        chance,
        0.4,
        status_in=chance.sample(ROLLOUT_STATUSES, chance.randrange(4)),
        rollout_id_in=ids,
        rollout_id_contains=chance.choice(["ro-", "nope", ""]),
    )
    logic = chance.choice(["and", "or"]) if filters else "and"  # "or" of nothing: there nothing, here everything
    return _call("query_rollouts", **filters, filter_logic=logic, **_page(chance, "start_time", "status", "mode"))


def _query_spans(chance: random.Random, place: int) -> Call:
    rollout_id, attempt_id = _attempt(chance)
    filters = _maybe(
        chance,
        0.3,
        name=chance.choice(["a", "reward"]),
        name_contains=chance.choice(["a", "l", ""]),
        trace_id=f"{1:032x}",
        span_id_contains="1",
        parent_id=f"{chance.randint(1, 40):016x}",
    )
    logic = chance.choice(["and", "or"]) if filters else "and"
    asked = chance.choice([None, "latest", attempt_id])
    return _call("query_spans", rollout_id, asked, **filters, filter_logic=logic, **_page(chance, "span_id"))


def _query_resources(chance: random.Random, place: int) -> Call:
    filters = _maybe(
        chance, 0.2, resources_id=_resources(chance), resources_id_contains=chance.choice(["rs-", "custom", "x"])
    )
    return _call("query_resources", **filters, **_page(chance, "create_time", "update_time"))


def _query_workers(chance: random.Random, place: int) -> Call:
    statuses = chance.sample(["idle", "busy", "unknown"], chance.randrange(3))
    filters = _maybe(chance, 0.3, status_in=statuses, worker_id_contains=chance.choice(["w", "1"]))
    return _call("query_workers", **filters, **_page(chance, "worker_id", "status"))


def _update_resources(chance: random.Random, place: int) -> Call:
    named = _resources(chance) if chance.random() < 0.7 else f"custom-{chance.randrange(2)}"
    return _call("update_resources", named, {"llm": {"$llm": {"endpoint": "http://there/v1", "model": "m2"}}})


def _add_resources(chance: random.Random, place: int) -> Call:
    prompt = {"prompt": {"$prompt": {"template": "hi {x}", "engine": "f-string"}}}
    model = {"llm": {"$llm": {"endpoint": "http://x/v1", "model": "m", "sampling_parameters": {"temperature": 1}}}}
    return _call("add_resources", chance.choice([prompt, model]))


def _wait(chance: random.Random, place: int) -> Call:
    ids = [_rollout(chance) for _ in range(chance.randrange(3))]
    return _call("wait_for_rollouts", rollout_ids=ids, timeout=chance.choice([0, 0.01, -1]))


def _look(chance: random.Random, place: int) -> Call:
    """A call with no more arguments than what it looks at."""
    return chance.choice(
        [
            _call("get_rollout_by_id", _rollout(chance)),
            _call("get_latest_attempt", _rollout(chance)),
            _call("query_attempts", _rollout(chance), **_page(chance, "sequence_id", "status", "worker_id")),
            _call("get_resources_by_id", _resources(chance)),
            _call("get_latest_resources"),
            _call("get_worker_by_id", chance.choice([*WORKERS, "nope"])),
            _call("update_worker", chance.choice(WORKERS), **_maybe(chance, 0.7, heartbeat_stats={"cpu": 0.5})),
            _call("statistics"),
        ]
    )


_MAKERS: dict[Callable[[random.Random, int], Call], int] = {
    _start_rollout: 3,
    _enqueue: 5,
    _enqueue_many: 1,
    _dequeue: 5,
    _dequeue_many: 1,
    _start_attempt: 2,
    _update_attempt: 5,
    _update_rollout: 2,
    _add_span: 4,
    _add_many_spans: 2,
    _add_otel_span: 2,
    _next_number: 1,
    _next_numbers: 1,
    _query_rollouts: 4,
    _query_spans: 4,
    _query_resources: 1,
    _query_workers: 2,
    _add_resources: 2,
    _update_resources: 1,
    _wait: 2,
    _look: 8,
}
"""How calls are made, and how often, compared with each other."""
