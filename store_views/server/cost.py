"""Bounds the output and the work of one call of a function, from the constants of a statement, before it runs.

DuckDB heeds an interrupt between blocks of rows only, and some functions make more than their arguments: a text
repeated a billion times, a distance of two long texts. :func:`too_costly` adds up sizes along each expression:

* a size is in bytes of text or elements of a list; work is sizes multiplied where a function compares all with all;
* numbers that set a size (``repeat(s, n)``) are computed by DuckDB itself, whatever expression they are;
* a column counts as the largest number or text that the statement itself makes (``range``, what it selects), else as
  1: what lies in the data is not known here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, TypeAlias

import duckdb

Node: TypeAlias = Mapping[str, Any]

Names: TypeAlias = Mapping[str, tuple[float, float]]
"""Size and value of each parameter of the lambdas around an expression."""

ONCE_MAX = 16_000_000
"""Size and work of an expression without columns, which is computed once."""

EACH_ROW_MAX = 250_000
"""Of one with columns: DuckDB computes it for 2,048 rows, on each thread, before it looks at an interrupt."""

COMPUTED_MAX = 200
"""Numbers that are computed for one statement: each takes a third of a millisecond."""

REDUCED_STEPS_MAX = 200
"""Of a reduction these are followed; after them its growth is taken to go on as in the last."""

_REPEATING = frozenset({"repeat"})
_PADDING = frozenset({"lpad", "rpad", "bitstring"})
_RESIZING = frozenset({"list_resize", "array_resize"})
_COUNTING = frozenset({"range", "generate_series"})
_FORMATTING = frozenset({"format", "printf"})
_COMPARING = frozenset(
    {"levenshtein", "editdist3", "damerau_levenshtein", "jaro_similarity", "jaro_winkler_similarity"}
)
_REPLACING = frozenset({"replace", "regexp_replace", "array_to_string", "array_to_string_comma_default"})
"""The last argument may come as often as the first is long."""
_MATCHING = frozenset({"regexp_extract", "regexp_extract_all", "regexp_full_match", "regexp_matches"})
_EACH = frozenset(
    {f"{kind}_{name}" for kind in ("list", "array") for name in ("transform", "apply", "filter")} | {"apply", "filter"}
)
_REDUCING = frozenset({"list_reduce", "array_reduce", "reduce"})

_NUMBER_SIZE = 8
_LISTING = frozenset({"list_value", "list_pack"})
_NUMERIC = frozenset({"+", "-", "*", "/", "//", "%", "**", "length", "len", "strlen"})
_NO_TABLE: Node = {"type": "EMPTY"}
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class _Size:
    """What an expression makes and does at most.

    Attributes:
        each_row: whether it is computed for each row.
        count, each: elements of the list that it makes, and the size of one; unset: as many and as large as may be.
    """

    size: float
    work: float
    each_row: bool = False
    count: float | None = None
    each: float | None = None


COSTLY = frozenset(
    {
        *_REPEATING, *_PADDING, *_RESIZING, *_COUNTING, *_FORMATTING, *_COMPARING, *_REPLACING, *_MATCHING, *_EACH,
        *_REDUCING,
    }
)  # fmt: skip
"""Functions that may make or do more than their arguments' size."""


def too_costly(parser: duckdb.DuckDBPyConnection, tree: Any, parameters: object = None) -> str | None:
    """Say which call makes or does too much, by its constants; ``None`` where none does.

    Args:
        parser: an empty database, to compute numbers.
        tree: of the statement, as ``json_serialize_sql`` has it.
        parameters: values of the statement's placeholders.
    """
    bound = _Bound(parser, tree, parameters)
    for node in _outermost(tree):
        bound.of(node, {})
        if bound.refusal is not None:
            return bound.refusal
    return None


class _Bound:
    def __init__(self, parser: duckdb.DuckDBPyConnection, tree: Any, parameters: object) -> None:
        self.refusal: str | None = None
        self._parser = parser
        self._parameters: dict[str, object] = (
            {str(at): value for at, value in enumerate(parameters, 1)}
            if isinstance(parameters, list)
            else dict(parameters)
            if isinstance(parameters, dict)
            else {}
        )
        self._computed_count = 0
        self._column, self._column_size = 1.0, float(_NUMBER_SIZE)
        largest = self._column_size
        for expression in _expressions(tree):
            largest = max(largest, self.of(expression, {}).size)
            if self.refusal is None and _is_closed(expression):
                self._column = max(self._column, self._number(expression, {}))
        self._column_size = largest

    def of(self, node: Any, names: Names) -> _Size:
        """The bound of an expression."""
        if isinstance(node, list):
            return _added([self.of(each, names) for each in node])
        if not isinstance(node, dict):
            return _Size(0, 0)
        kind = node.get("type")
        if kind == "VALUE_CONSTANT":
            literal = node["literal"]
            return _Size(_length(literal["text"]) if literal["kind"] == "STRING" else _NUMBER_SIZE, 0)
        if kind == "VALUE_PARAMETER":
            return _Size(_length(self._parameters.get(str(node.get("identifier")))), 0)
        if kind == "COLUMN_REF":
            name = node["column_names"][-1].lower()
            return _Size(names[name][0], 0) if name in names else _Size(self._column_size, 0, each_row=True)
        if kind == "FUNCTION":
            return self._checked(node, self._call(node, names))
        return _added([self.of(each, names) for each in node.values() if isinstance(each, (dict, list))])

    def _call(self, node: Node, names: Names) -> _Size:
        name = str(node["function_name"]).lower()
        given = [each["expression"] for each in node["arguments"]]
        if (name in _EACH or name in _REDUCING) and len(given) > 1:
            return self._loop(name, given, names)
        sizes = [self.of(each, names) for each in given]
        whole = _added(sizes)
        size, work = whole.size, whole.work + whole.size
        count: float | None = None
        each: float | None = None
        if self.refusal is not None or not sizes:
            return whole
        if name in _NUMERIC:
            size = _NUMBER_SIZE
        elif name in _COUNTING:
            size = count = self._count(name, given, names)
            each = _NUMBER_SIZE
        elif name in _LISTING:
            count, each = len(sizes), max(one.size for one in sizes)
        elif name in _REPEATING and len(given) > 1:
            size = sizes[0].size * self._number(given[1], names)
        elif (name in _PADDING or name in _RESIZING) and len(given) > 1:
            filling = sizes[2].size if name in _RESIZING and len(given) > 2 else 1
            size = max(sizes[0].size, filling * self._number(given[1], names))
        elif name in _FORMATTING:
            size += self._width(given, names)
        elif name in _COMPARING and len(given) > 1:
            size, work = _NUMBER_SIZE, work + sizes[0].size * sizes[1].size
        elif name in _REPLACING and len(given) > 1:
            size = sizes[0].size * max(1.0, sizes[-1 if name != "regexp_replace" else min(2, len(sizes) - 1)].size)
        elif name in _MATCHING and len(given) > 1:
            work += sizes[0].size * sizes[1].size
        return _Size(size, max(work, whole.work + size), whole.each_row, count, each)

    def _loop(self, name: str, given: list[Node], names: Names) -> _Size:
        """A lambda, called for each element of a list."""
        over, (parameters, body) = self.of(given[0], names), _lambda(given[1])
        if self.refusal is not None:
            return over
        count = over.size if over.count is None else over.count
        element = (over.size if over.each is None else over.each, self._largest(given[0], names))
        if name not in _REDUCING:
            once = self.of(body, {**names, **dict.fromkeys(parameters, element)})
            work = over.work + count * max(1.0, once.work)
            kept = over.each if name.endswith("filter") else once.size
            size = over.size if name.endswith("filter") else count * once.size
            return _Size(size, work, over.each_row or once.each_row, count, kept)
        start = self.of(given[2], names) if len(given) > 2 else _Size(element[0], 0)
        reached, work, grown, each_row = start.size, over.work + start.work, 0.0, over.each_row or start.each_row
        steps = int(min(count, REDUCED_STEPS_MAX))
        for _ in range(steps):
            once = self.of(body, {**names, **dict.fromkeys(parameters, element), **_first(parameters, reached)})
            grown, reached, each_row = once.size - reached, once.size, each_row or once.each_row
            work += max(1.0, once.work)
            if self.refusal is not None or work > ONCE_MAX:
                break
        remaining = count - steps
        return _Size(reached + max(0.0, remaining * grown), work + remaining * (work / max(1, steps)), each_row)

    def _largest(self, node: Node, names: Names) -> float:
        """The largest number in a list."""
        call = {**self._template("SELECT list_max([1])")["statements"][0]["node"]["select_list"][0]}
        call["arguments"] = [{"name": "", "expression": node}]
        return self._number(call, names)

    def _checked(self, node: Node, found: _Size) -> _Size:
        most = EACH_ROW_MAX if found.each_row else ONCE_MAX
        largest = max(found.size, found.work)
        if self.refusal is None and largest > most:
            times = " for each row" if found.each_row else ""
            self.refusal = (
                f"{node['function_name']}(…) may take {largest:,.0f} steps{times}, by its constants; "
                f"{most:,} are allowed."
            )
        return found

    def _count(self, name: str, given: list[Node], names: Names) -> float:
        """The number of elements of a series, as DuckDB's own table function counts them."""
        tree = self._template("SELECT count(*) FROM (SELECT 1 FROM range(0) LIMIT 1)")
        counted = tree["statements"][0]["node"]["from_table"]["subquery"]["node"]
        counted["modifiers"][0]["limit"] = _constant(ONCE_MAX + 1)
        series = counted["from_table"]["function"]
        series["function_name"], series["qualified_name"] = name, {"path": [name]}
        series["arguments"] = [{"name": "", "expression": self._closed(each, names, self._column)} for each in given]
        return self._computed(tree) or 0.0

    def _width(self, given: list[Node], names: Names) -> float:
        """The widths in a format, or given to it."""
        text = given[0].get("literal", {}).get("text") if given else None
        if not isinstance(text, str):
            return 0.0
        widths = [float(each) for each in _DIGITS.findall(text)[:100]]
        if "*" in text or re.search(r"\{[^{}]*\{", text):
            widths += [self._number(each, names) for each in given[1:]]
        return sum(widths)

    def _number(self, node: Node, names: Names) -> float:
        """The value of an expression; 1 where it is no number, or cannot be computed."""
        literal = node.get("literal") or {}
        if literal.get("kind") == "INTEGER":
            return float(literal["text"])
        tree = self._template("SELECT 1")
        for column in (self._column, str(int(self._column))):  # it may be a number, or a text
            tree["statements"][0]["node"]["select_list"] = [self._closed(node, names, column)]
            if (found := self._computed(tree)) is not None:
                return found
        return 1.0

    def _template(self, sql: str) -> Any:
        with self._parser.cursor() as parser:
            (text,) = parser.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone() or ("{}",)
        return json.loads(text)

    def _computed(self, tree: Any) -> float | None:
        """The number that a statement without tables gives; ``None`` where it gives none, as it will say itself."""
        self._computed_count += 1
        if self._computed_count > COMPUTED_MAX:
            self.refusal = f"the statement computes more than {COMPUTED_MAX} sizes."
            return None
        try:
            with self._parser.cursor() as parser:
                (sql,) = parser.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchone() or ("",)
                (value,) = parser.execute(sql).fetchone() or (1,)
            return max(0.0, float(value))
        except (duckdb.Error, TypeError, ValueError, OverflowError):
            return None

    def _closed(self, node: Any, names: Names, column: float | str, kept: Set[str] = frozenset()) -> Any:
        """The expression with a value in place of each column and parameter.

        Args:
            column: what stands for a column.
            kept: parameters of lambdas within it.
        """
        if isinstance(node, list):
            return [self._closed(each, names, column, kept) for each in node]
        if not isinstance(node, dict):
            return node
        kind = node.get("type")
        if kind == "SUBQUERY" and not _is_closed(node):
            return _constant(column)
        if kind == "VALUE_PARAMETER":
            return _constant(self._parameters.get(str(node["identifier"])))
        if kind == "COLUMN_REF":
            name = str(node["column_names"][-1]).lower()
            return node if name in kept else _constant(names[name][1] if name in names else column)
        if kind == "LAMBDA":
            kept = kept | set(_lambda(node)[0])
        return {key: self._closed(value, names, column, kept) for key, value in node.items()}


def _added(sizes: list[_Size]) -> _Size:
    return _Size(
        sum(each.size for each in sizes), sum(each.work for each in sizes), any(each.each_row for each in sizes)
    )


def _length(value: object) -> float:
    return max(1, len(value)) if isinstance(value, (str, bytes, list, dict)) else _NUMBER_SIZE


def _constant(value: object) -> Node:
    if isinstance(value, str):
        return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "literal": {"kind": "STRING", "text": value}}
    number = int(value) if isinstance(value, (int, float)) and abs(value) < 2**62 else 1
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "literal": {"kind": "INTEGER", "text": str(number)}}


def _lambda(node: Node) -> tuple[list[str], Any]:
    """The names of a lambda's parameters, and its body."""
    if node.get("type") != "LAMBDA":
        return [], node
    parameters = node["lhs"]
    single = parameters.get("type") == "COLUMN_REF"
    columns = [parameters] if single else [each["expression"] for each in parameters["arguments"]]
    return [str(each["column_names"][-1]).lower() for each in columns], node["expr"]


def _first(parameters: list[str], size: float) -> Names:
    """The first parameter of a reduction: what it has come to."""
    return dict.fromkeys(parameters[:1], (size, 1.0))


def _nodes(value: Any) -> Iterator[Node]:
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield found
            waiting.extend(found.values())
        elif isinstance(found, list):
            waiting.extend(found)


def _is_closed(value: Any, kept: Set[str] = frozenset()) -> bool:
    """True if an expression can be computed by itself: without columns, parameters, or tables."""
    if isinstance(value, list):
        return all(_is_closed(each, kept) for each in value)
    if not isinstance(value, dict):
        return True
    if value.get("type") == "COLUMN_REF":
        return str(value["column_names"][-1]).lower() in kept
    if value.get("type") in ("STAR", "VALUE_PARAMETER") or (value.get("from_table") or _NO_TABLE)["type"] != "EMPTY":
        return False
    if value.get("type") == "LAMBDA":
        kept = kept | set(_lambda(value)[0])
    return all(_is_closed(each, kept) for each in value.values())


def _expressions(tree: Any) -> Iterator[Node]:
    """Expressions whose values columns may have: ends of series, and what is selected."""
    for node in _nodes(tree):
        if node.get("type") == "TABLE_FUNCTION":
            yield from (each["expression"] for each in node["function"]["arguments"])
        rows = node.get("values")
        listed = [one for row in rows for one in row] if isinstance(rows, list) else node.get("select_list") or []
        yield from (one for one in listed if _may_be_large(one))


def _may_be_large(node: Node) -> bool:
    """True but for numbers below 1,000 and texts, of which a statement may have thousands."""
    literal = node.get("literal")
    return literal is None or (literal.get("kind") == "INTEGER" and len(literal["text"]) > 3)


def _outermost(tree: Any) -> Iterator[Node]:
    """Calls of functions that are not arguments of others."""
    waiting = [tree]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            if found.get("type") == "FUNCTION":
                yield found
            elif found.get("type") == "TABLE_FUNCTION":
                waiting.extend(found["function"]["arguments"])  # it makes its rows one block after the other
            else:
                waiting.extend(found.values())
        elif isinstance(found, list):
            waiting.extend(found)
