"""The dashboard: the built page at ``/``, and its requests beside SQL.

``GET /``, ``/run``, ``/rollouts`` …   the page, whatever address of its own was asked for
``GET /assets/…``                      its scripts and styles, whose names change with their content
``GET /v1/rollouts/{id}/explain``      why the rollout did or did not train, as ``lightstream explain`` says it
``GET /v1/reasons``                    what each code of a dropped call or of a note means

``store_views/dashboard`` has the sources. Where they were not built, ``/`` says how to.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from lightstream.schemas.records.reasons import DROP_MEANINGS, NOTE_MEANINGS
from lightstream.stream_processors.core.segments import Segment

from ..explain import Explanation, explain

BUILT = Path(__file__).parent / "page"
"""Folder that `make dashboard` builds; also in the wheel."""

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
FOR_EVER = {"cache-control": "public, max-age=31536000, immutable"}

NOT_BUILT = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Lightstream</title>
<h1>The dashboard is not built</h1>
<p>The view runs, and answers SQL at <code>POST /v1/sql</code>. To have the dashboard here, run in the project's folder
(it needs the npm registry once):</p>
<pre>make dashboard</pre>
<p>and load this page again.</p>
</html>
"""


def page_routes(built: Path = BUILT) -> list[BaseRoute]:
    """Routes of the page; to be put after all others, since every other address that a browser opens is a page's.

    Args:
        built: the folder with ``index.html`` and ``assets``; it may be missing, and come later.
    """

    async def page(request: Request) -> Response:
        if "text/html" not in request.headers.get("accept", "") or request.url.path.startswith("/v1/"):
            raise HTTPException(404)
        index = built / "index.html"
        if not index.is_file():
            return HTMLResponse(NOT_BUILT, headers=PAGE_HEADERS)
        return FileResponse(index, media_type="text/html", headers=PAGE_HEADERS | {"cache-control": "no-cache"})

    assets = _Assets(directory=built / "assets", check_dir=False)
    return [Mount("/assets", assets), Route("/{page:path}", page)]


class _Assets(StaticFiles):
    async def check_config(self) -> None:
        """Nothing: the folder may be missing, and come while the view runs."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers.update(PAGE_HEADERS | FOR_EVER)
        return response


def reasons_answer() -> Response:
    """Answer with the meaning of each code: ``{"drops": {code: meaning}, "notes": {code: meaning}}``."""
    return JSONResponse({"drops": dict(DROP_MEANINGS), "notes": dict(NOTE_MEANINGS)})


def explanation_json(connection: duckdb.DuckDBPyConnection, rollout_id: str, *, rebuilding: bool = False) -> bytes:
    """Return the explanation of a rollout as JSON, with ``rebuilding``: whether the view may lack some of it.

    Args:
        connection: in a transaction, so that all is of one snapshot.

    Raises:
        NotFoundError: the view has no such rollout.
        duckdb.Error: it could not answer.
    """
    found = _answer(explain(lambda sql: _rows(connection, sql), rollout_id))
    return json.dumps(found | {"rebuilding": rebuilding}, default=str, ensure_ascii=False).encode()


def _rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[dict[str, Any]]:
    answer = connection.execute(sql)
    names = [column[0] for column in answer.description or []]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def _answer(found: Explanation) -> dict[str, Any]:
    """The explanation, with whole numbers beyond 2^53 (times) as text: browsers round them."""
    segments = [_segment(segment) for segment in found.segments]
    answer: dict[str, Any] = _exact(asdict(found) | {"segments": segments})
    return answer


def _segment(segment: Segment) -> dict[str, Any]:
    return {
        "index": segment.index,
        "agent_name": segment.agent_name,
        "start_reason": segment.start_reason,
        "diverged_at": segment.diverged_at,
        "call_indexes": [turn.call_index for turn in segment.turns],
        "tokens": segment.length,
        "sampled": sum(segment.loss_mask),
    }


def _exact(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _exact(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_exact(item) for item in value]
    return str(value) if isinstance(value, int) and abs(value) > 2**53 else value
