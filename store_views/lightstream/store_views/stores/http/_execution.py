"""A route's work: what the store does or raises, as the answer that goes over the wire."""

from __future__ import annotations

from typing import Any

from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.types import PaginatedResult

from ._calls import Call, HandedOut, Unfinished
from ._errors import Answer, error_answer
from ._giving_back import Place, give_back, places_of
from ._routes import Route
from ._waits import StoppingError
from ._wire import UNFINISHED, encode_answer

__all__ = ["RETRY_AFTER", "done"]

RETRY_AFTER = {"retry-after": "1"}


async def done(route: Route, call: Call) -> Answer:
    """The store's result or error."""
    try:
        result = await route.handle(call)
    except StoppingError as error:
        stopped = error_answer(error)
        return Answer(stopped.status, stopped.content, RETRY_AFTER)
    except (LightstreamError, ValueError, NotImplementedError) as error:
        return error_answer(error)
    headers: dict[str, str] = {}
    handed_out: tuple[Place, ...] = ()
    if isinstance(result, HandedOut):
        handed_out, result = places_of(result.rollouts), result.value
    elif isinstance(result, Unfinished):
        headers, result = {UNFINISHED: "1"}, result.value
    elif isinstance(result, PaginatedResult):
        page: PaginatedResult[Any] = result
        result = {"items": list(page.items), "limit": page.limit, "offset": page.offset, "total": page.total}
    try:
        content = encode_answer(result)
    except Exception:  # whatever it is, nobody will be told of what was dispatched
        await give_back(call.store, handed_out)
        raise
    return Answer(route.status, content, headers, handed_out)
