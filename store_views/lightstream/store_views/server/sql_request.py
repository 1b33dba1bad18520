"""The body of ``POST /v1/sql``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

from lightstream.schemas.errors import NotFoundError, QueryError
from lightstream.schemas.topics import topic_named

from ..materialiser import Place
from ..queries import named_query
from .formats import AnswerFormat
from .json_values import Integers
from .query import Parameters, QueryLimits

__all__ = ["REQUEST_BYTES_MAX", "SqlRequest", "parse_request"]

REQUEST_BYTES_MAX = 4 * 1024 * 1024
"""Room for a few thousand ids in an IN list, and no more."""
WAIT_S_DEFAULT = 30.0
WAIT_S_MAX = 3600.0
TIMEOUT_S_MIN = 0.01
_KEYS = frozenset({"sql", "params", "at_least", "wait_s", "timeout_s", "rows_max", "query_id", "format", "integers"})


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """A checked request.

    Attributes:
        parameters: values of the statement's placeholders; ``None`` without any.
        wanted: place -> next offset that the view must have reached first; ``"now"`` means the log's present end.
        wait_s: how long it may take to get there.
        query_id: names the statement to who may cancel it; empty for an id of the server's choice.
        answer_format: form of the answer; ``None`` for what the request's ``Accept`` says.
        integers: how integers beyond 2^53 are written in JSON.
    """

    sql: str
    parameters: Parameters | None
    wanted: dict[Place, int] | Literal["now"]
    wait_s: float
    limits: QueryLimits
    query_id: str = ""
    answer_format: AnswerFormat | None = None
    integers: Integers = "number"


def parse_request(body: bytes, limits: QueryLimits) -> SqlRequest:
    """Check a body. ``at_least`` names *offsets of records*: ``{topic: {partition: offset}}``, or is ``"now"``.

    ``sql`` may be the name of a named query, ``:stuck``; ``params`` are then those of its parameters that differ.

    Raises:
        QueryError: says which key is wrong and what it may be.
    """
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise QueryError(f"the body is not JSON: {error}.", next_step='Send {"sql": "select …"}.') from error
    if not isinstance(found, dict):
        raise QueryError("the body is not an object.", next_step='Send {"sql": "select …"}.')
    values = cast("dict[str, Any]", found)
    unknown = set(values) - _KEYS
    if unknown:
        raise QueryError(f"unknown keys {sorted(unknown)}; there are {sorted(_KEYS)}.")
    sql = values.get("sql")
    if not isinstance(sql, str) or not sql.strip():
        raise QueryError("'sql' must be a statement.")
    rows_max = values.get("rows_max", limits.rows_max)
    if type(rows_max) is not int or not 1 <= rows_max <= limits.rows_max:
        raise QueryError(f"'rows_max' must be a whole number from 1 to {limits.rows_max:,}, not {rows_max!r}.")
    timeout_s = _seconds(
        values, "timeout_s", limits.timeout_s, (TIMEOUT_S_MIN, limits.timeout_s_max), "LIGHTSTREAM_VIEW_TIMEOUT_S_MAX"
    )
    limits = replace(limits, rows_max=rows_max, timeout_s=timeout_s)
    parameters = values.get("params")
    if parameters is not None and not isinstance(parameters, (list, dict)):
        raise QueryError(
            f"'params' must be a list (of ? and $1) or an object (of $name), not {parameters!r:.100}.",
            next_step='Send {"sql": "FROM rollouts WHERE run_id = $run", "params": {"run": "my-run"}}.',
        )
    if sql.lstrip().startswith(":"):
        sql, parameters = _named(sql.strip(), parameters)
    wait_s = _seconds(values, "wait_s", WAIT_S_DEFAULT, (0.0, WAIT_S_MAX))
    answer_format = _one_of(values, "format", [*AnswerFormat])
    return SqlRequest(
        sql,
        cast("Parameters | None", parameters),
        _wanted(values.get("at_least")),
        wait_s,
        limits,
        _query_id(values),
        None if answer_format is None else AnswerFormat(answer_format),
        cast("Integers", _one_of(values, "integers", get_args(Integers)) or "number"),
    )


def _named(name: str, given: Any) -> tuple[str, Parameters]:
    """The statement of a named query, and all its values."""
    try:
        query = named_query(name)
    except NotFoundError as error:
        raise QueryError(error.message, next_step="`GET /v1/named-queries` lists those that there are.") from error
    if isinstance(given, list):
        raise QueryError(f"'params' of {name} must be an object: its parameters have names.")
    return query.statement(given or {})


def _query_id(values: dict[str, Any]) -> str:
    query_id = values.get("query_id", "")
    if not isinstance(query_id, str):
        raise QueryError(f"'query_id' must be text, not {query_id!r:.100}.")
    return query_id


def _one_of(values: dict[str, Any], key: str, known: Sequence[str]) -> str | None:
    value = values.get(key)
    if value is not None and value not in known:
        raise QueryError(f"{key!r} must be one of {', '.join(known)}, not {value!r:.100}.")
    return value


def _seconds(
    values: dict[str, Any], key: str, default: float, allowed: tuple[float, float], setting: str = ""
) -> float:
    """A number of seconds within ``allowed``, whose upper end ``setting`` moves."""
    value = values.get(key, default)
    if value is None:
        return default
    least, most = allowed
    if type(value) not in (int, float) or not least <= value <= most:
        raise QueryError(
            f"{key!r} must be a number of seconds from {least:g} to {most:g}, not {value!r}.",
            next_step=f"The view's {setting} is the most that it allows." if setting else "",
        )
    return float(value)


def _wanted(at_least: Any) -> dict[Place, int] | Literal["now"]:
    if at_least is None:
        return {}
    if at_least == "now":
        return "now"
    wanted: dict[Place, int] = {}
    try:
        for topic, offsets in at_least.items():
            topic_named(topic)
            for partition, offset in offsets.items():
                wanted[topic, int(partition)] = int(offset) + 1
    except KeyError as error:
        raise QueryError(f"'at_least': {error.args[0]}.") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise QueryError(
            f"'at_least' must be {{topic: {{partition: offset}}}} or \"now\", not {at_least!r}."
        ) from error
    return wanted
