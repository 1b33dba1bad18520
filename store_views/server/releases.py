"""``GET /v1/releases`` and ``POST /v1/releases/{name}``: releases, and changes of them, for the page and programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lightstream.runtime.http.server import read_body
from lightstream.runtime.releases import ReleaseLog
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import StoreError
from lightstream.schemas.records import ReleaseChanged
from lightstream.schemas.releases import Author, Release, offer, pause, promote, resume, roll_back, set_share

from .admission import REQUEST_BYTES_MAX

Wish = Callable[[Release, Author], ReleaseChanged]

CHANGES: Mapping[str, Wish] = {
    "promote": promote,
    "rollback": roll_back,
    "to_previous": partial(roll_back, to_previous=True),
    "pause": pause,
    "resume": resume,
}
FIELDS = ("action", "reason", "by", "candidate", "share", "revision")
TEXT_CHARS_MAX = 1000


class ReleaseEndpoints:
    """Answers about releases. Reads and writes the log itself, so an answer is of now."""

    def __init__(self, settings: Settings) -> None:
        self._log = ReleaseLog(settings)

    async def all(self) -> Response:
        """Every release as it is now, by name.

        Raises:
            ServiceUnavailableError: Kafka does not answer.
        """
        states = await run_sync(self._log.states)
        return JSONResponse({"releases": [state.model_dump(mode="json") for _, state in sorted(states.items())]})

    async def change(self, request: Request, name: str) -> Response:
        """Change a release: ``{"action", "reason"?, "by"?, "candidate"?, "share"?, "revision"?}``.

        With ``revision`` the change is for that state alone.

        Raises:
            StoreError: the body or the change is wrong, or another change came first. Nothing has changed.
            PublishError, ServiceUnavailableError: Kafka does not answer.
            BodyTooLargeError, ClientGoneError: as :func:`read_body`.
        """
        values = _values_in(await read_body(request, REQUEST_BYTES_MAX))
        by = _text(values, "by")
        author = (f"page, {by}" if by else "page", _text(values, "reason"))
        changed = await run_sync(self._log.change, name, author, _wish(values))
        return JSONResponse(changed.model_dump(mode="json"))


def _values_in(body: bytes) -> dict[str, Any]:
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"the body is not JSON: {error}.", next_step='Send {"action": "promote"}.') from error
    if not isinstance(found, dict):
        raise StoreError("the body is not an object.", next_step='Send {"action": "promote"}.')
    values = cast("dict[str, Any]", found)
    if unknown := sorted(values.keys() - set(FIELDS)):
        raise StoreError(f"{unknown[0]!r:.100} is no field of a change; {', '.join(FIELDS)} are.")
    return values


def _wish(values: Mapping[str, Any]) -> Wish:
    action, revision = values.get("action"), values.get("revision")
    wish = CHANGES.get(action) if isinstance(action, str) else None
    if action == "offer":
        wish = partial(offer, candidate=_text(values, "candidate"), share=_share(values))
    elif action == "share":
        wish = partial(set_share, share=_share(values))
    if wish is None:
        raise StoreError(f"action must be one of {', '.join((*CHANGES, 'offer', 'share'))}, not {action!r:.100}.")
    if revision is not None and type(revision) is not int:
        raise StoreError(f"revision must be a whole number, not {revision!r:.100}.")
    change = wish

    def of_revision(release: Release, author: Author) -> ReleaseChanged:
        if revision is not None and release.state is not None and release.state.revision != revision:
            raise StoreError(
                f"release {release.name!r} has changed meanwhile: {release.state.action} by {release.state.by!r}.",
                next_step="Look at it, then repeat your change if you still want it.",
            )
        return change(release, author)

    return of_revision


def _share(values: Mapping[str, Any]) -> float:
    share = values.get("share")
    if type(share) not in (int, float):
        raise StoreError(f"share must be a number from 0 to 1, not {share!r:.100}.")
    try:
        return float(cast("float", share))
    except OverflowError as error:
        raise StoreError("share must be a number from 0 to 1, and this one is larger.") from error


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name, "")
    if not isinstance(value, str) or len(value) > TEXT_CHARS_MAX:
        raise StoreError(f"{name} must be text of {TEXT_CHARS_MAX:,} characters at most.")
    return value
