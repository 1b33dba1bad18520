"""The routes, as data: what is asked, of which form, what the store does for it, and the status of its answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

from pydantic import BaseModel

from lightstream.schemas.types import RolloutLegacy, Span

from . import _calls as calls
from . import _requests as requests
from ._wire import GIVE_BACK, segment_text
from .legacy import _calls as legacy

__all__ = ["LEGACY", "ROUTES", "Found", "Route", "RouteTable", "find_route"]


@dataclass(frozen=True, slots=True)
class Route:
    """One route.

    Attributes:
        path: a segment in braces stands for an id; a segment that is spelt out wins over it.
        form: of the body, or of the query string of GET.
        status: of the answer when all goes well.
        writes: a repeated request with the same idempotency key gets the first answer.
        waits: may take long, and is ended when its client hangs up.
        hands_out: rollouts, which go back into the queue when its client hangs up.
        body_optional: an empty body, and ``null``, count as ``{}``.
        is_public: asks for no token.
    """

    method: Literal["GET", "POST"]
    path: str
    form: type[BaseModel]
    handle: calls.Handler
    status: int = 200
    writes: bool = False
    waits: bool = False
    hands_out: bool = False
    body_optional: bool = False
    is_public: bool = False


def _spelt_out(route: Route) -> int:
    return sum(not segment.startswith("{") for segment in route.path.split("/"))


class RouteTable:
    """Routes, ready to be looked up."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._by_length: dict[int, list[tuple[Route, list[str]]]] = {}
        for route in sorted(routes, key=_spelt_out, reverse=True):
            pattern = route.path.split("/")
            self._by_length.setdefault(len(pattern), []).append((route, pattern))

    def of_length(self, length: int) -> Sequence[tuple[Route, list[str]]]:
        """The routes with so many segments, each with these; those that are spelt out most come first."""
        return self._by_length.get(length, ())


@dataclass(frozen=True, slots=True)
class Found:
    """A route and the ids that its path was asked with."""

    route: Route
    ids: dict[str, str]


AGENT_LIGHTNING = (
    Route("GET", "/health", requests.NoBody, calls.health, is_public=True),
    Route("GET", "/statistics", requests.NoBody, calls.statistics),
    Route(
        "POST",
        "/queues/rollouts/enqueue",
        requests.EnqueueRollouts,
        calls.enqueue_rollouts,
        HTTPStatus.CREATED,
        writes=True,
    ),
    Route(
        "POST",
        "/queues/rollouts/dequeue",
        requests.DequeueRollouts,
        calls.dequeue_rollouts,
        writes=True,
        hands_out=True,
        body_optional=True,
    ),
    Route("POST", "/rollouts", requests.StartRollout, calls.start_rollout, HTTPStatus.CREATED, writes=True),
    Route("GET", "/rollouts", requests.QueryRollouts, calls.query_rollouts),
    Route("POST", "/rollouts/search", requests.QueryRollouts, calls.query_rollouts),
    Route("GET", "/rollouts/{rollout_id}", requests.NoBody, calls.get_rollout),
    Route("POST", "/rollouts/{rollout_id}", requests.UpdateRollout, calls.update_rollout, writes=True),
    Route(
        "POST",
        "/rollouts/{rollout_id}/attempts",
        requests.StartAttempt,
        calls.start_attempt,
        HTTPStatus.CREATED,
        writes=True,
        body_optional=True,
    ),
    Route("GET", "/rollouts/{rollout_id}/attempts", requests.QueryAttempts, calls.query_attempts),
    Route("POST", "/rollouts/{rollout_id}/attempts/search", requests.QueryAttempts, calls.query_attempts),
    Route("GET", "/rollouts/{rollout_id}/attempts/latest", requests.NoBody, calls.latest_attempt),
    Route(
        "POST",
        "/rollouts/{rollout_id}/attempts/{attempt_id}",
        requests.UpdateAttempt,
        calls.update_attempt,
        writes=True,
    ),
    Route("POST", "/waits/rollouts", requests.WaitForRollouts, calls.wait_for_rollouts, waits=True),
    Route("POST", "/spans", Span, calls.add_span, HTTPStatus.CREATED, writes=True),
    Route("GET", "/spans", requests.QuerySpans, calls.query_spans),
    Route("POST", "/spans/search", requests.QuerySpans, calls.query_spans),
    Route("POST", "/spans/next", requests.NextSequenceId, calls.next_span_number, writes=True),
    Route("GET", "/resources", requests.QueryResources, calls.query_resources),
    Route("POST", "/resources", requests.Resources, calls.add_resources, HTTPStatus.CREATED, writes=True),
    Route("GET", "/resources/latest", requests.LookAtResources, calls.latest_resources, waits=True),
    Route("GET", "/resources/{resources_id}", requests.LookAtResources, calls.resources_by_id, waits=True),
    Route("POST", "/resources/{resources_id}", requests.Resources, calls.update_resources, writes=True),
    Route("GET", "/workers", requests.QueryWorkers, calls.query_workers),
    Route("POST", "/workers/search", requests.QueryWorkers, calls.query_workers),
    Route("GET", "/workers/{worker_id}", requests.NoBody, calls.get_worker),
    Route("POST", "/workers/{worker_id}", requests.UpdateWorker, calls.update_worker, writes=True, body_optional=True),
)
"""Those of Agent Lightning 0.3. Their forms take optional fields beyond its own."""

EXTENSIONS = (
    Route("GET", "/capabilities", requests.NoBody, calls.capabilities),
    Route("POST", GIVE_BACK, requests.GiveBack, calls.give_back),
    Route("GET", "/otlp-traces-endpoint", requests.NoBody, calls.otlp_traces_endpoint),
    Route(
        "POST",
        "/rollouts/{rollout_id}/cancel",
        requests.CancelRollout,
        calls.cancel_rollout,
        writes=True,
        body_optional=True,
    ),
    Route("POST", "/spans/batch", requests.AddManySpans, calls.add_many_spans, HTTPStatus.CREATED, writes=True),
    Route("POST", "/spans/next/batch", requests.ManySequenceIds, calls.many_span_numbers, writes=True),
    Route("POST", "/workers/{worker_id}/heartbeat", requests.Heartbeat, calls.heartbeat, writes=True),
)
"""What Agent Lightning's store lacks, or its client does one by one."""

ROUTES = RouteTable(AGENT_LIGHTNING + EXTENSIONS)

LEGACY = RouteTable(
    (
        Route("GET", "/task", legacy.NextTask, legacy.next_task, writes=True, hands_out=True),
        Route("GET", "/resources/latest", requests.NoBody, legacy.latest_resources),
        Route("GET", "/resources/{resources_id}", requests.NoBody, legacy.resources_by_id),
        Route("POST", "/rollout", RolloutLegacy, legacy.report_rollout, writes=True),
    )
)
"""Agent Lightning's first protocol. Without the prefix."""


def find_route(method: str, path: str, table: RouteTable) -> Found | list[str]:
    """The route of a path (percent-encoded, without the prefix), or the methods that the path would take.

    Raises:
        UnicodeDecodeError: an id in the path is not UTF-8.
    """
    asked = path.split("/")
    fitting = [(route, pattern) for route, pattern in table.of_length(len(asked)) if _fits(pattern, asked)]
    for route, pattern in fitting:
        if route.method == method:
            named = zip(pattern, asked, strict=True)
            return Found(route, {name[1:-1]: segment_text(value) for name, value in named if name.startswith("{")})
    return sorted({route.method for route, _ in fitting})


def _fits(pattern: list[str], asked: list[str]) -> bool:
    return all(name.startswith("{") or name == value for name, value in zip(pattern, asked, strict=True))
