"""From a file to traces."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.types import Span
from lightstream.schemas.valid_text import valid_text

from .atif import atif_trace, is_atif
from .langfuse import is_langfuse, langfuse_trace, observation_span
from .otlp import is_otlp, is_otlp_span, otlp_spans
from .phoenix import add_annotations, is_annotation, is_phoenix, phoenix_span
from .trace import ImportedTrace

__all__ = ["FORMATS", "read_traces"]

FILE_BYTES_MAX = 2 * 1024 * 1024 * 1024
"""A file is held as a whole: the spans of a trace may be anywhere in it. Split larger ones by trace."""

_IS: dict[str, Callable[[object], bool]] = {
    "otlp": is_otlp,
    "atif": is_atif,
    "phoenix": is_phoenix,
    "langfuse": is_langfuse,
}
FORMATS = ("auto", *_IS)


def read_traces(path: Path, kind: str = "auto", score: str | None = None) -> list[ImportedTrace]:
    """The traces of a file of JSON or JSON lines, with ``?`` for each lone surrogate: no store takes one.

    Args:
        kind: one of :data:`FORMATS`; ``auto`` decides by the first document.
        score: name of the score (Langfuse) or annotation (Phoenix) that is the reward.

    Raises:
        SettingsError: the file is missing, too large, not JSON, or in no known format; or a document of it has a part
            that is missing or of the wrong type.
    """
    documents = _documents(path)
    if kind == "auto":
        kind = next((name for name, is_one in _IS.items() if documents and is_one(documents[0])), "unknown")
    if kind not in _IS:
        raise SettingsError(f"{path} is in no known format.", next_step=f"Name one of {list(_IS)} with --format.")
    wrong = next((index for index, document in enumerate(documents) if not _IS[kind](document)), None)
    if wrong is not None:
        raise SettingsError(f"document {wrong + 1} of {path} is not {kind}: {str(documents[wrong])[:200]}")
    numbered = list(enumerate(documents, start=1))
    if kind == "atif":
        return [_read(path, number, atif_trace, document) for number, document in numbered]
    if kind == "langfuse" and all("observations" in document for document in documents):
        return [_read(path, number, partial(langfuse_trace, score=score), document) for number, document in numbered]
    annotated = kind == "phoenix"
    annotations = [document for document in documents if annotated and is_annotation(document)]
    by_trace: dict[str, ImportedTrace] = {}
    for span in _spans(path, kind, [(n, d) for n, d in numbered if not (annotated and is_annotation(d))]):
        by_trace.setdefault(span.trace_id, ImportedTrace(span.trace_id)).spans.append(span)
    traces = list(by_trace.values())
    add_annotations(traces, annotations, score)
    return traces


T = TypeVar("T")


def _read(path: Path, number: int, reader: Callable[[Any], T], document: Any) -> T:
    """Reads a document; errors name the document."""
    try:
        return reader(document)
    except SettingsError as error:
        raise SettingsError(f"document {number} of {path}: {error.message}", next_step=error.next_step) from error
    except RecursionError as error:
        raise SettingsError(f"document {number} of {path} is nested too deeply.") from error


def _spans(path: Path, kind: str, documents: Sequence[tuple[int, Any]]) -> list[Span]:
    """In the order in which they ended; spans that collectors wrote, in the order in which they came."""
    spans = [span for number, document in documents for span in _read(path, number, _READERS[kind], document)]
    if kind == "otlp" and not all(is_otlp_span(document) for _, document in documents):
        return spans
    return sorted(spans, key=lambda span: span.end_time or span.start_time or 0.0)


_READERS: dict[str, Callable[[Any], list[Span]]] = {
    "otlp": otlp_spans,
    "phoenix": lambda row: [phoenix_span(row)],
    "langfuse": lambda row: [observation_span(row)],
}


def _documents(path: Path) -> list[Any]:
    """The objects of a file: one, a list of them (also below ``data``), or one per line."""
    try:
        size = path.stat().st_size
        if size > FILE_BYTES_MAX:
            raise SettingsError(
                f"{path} has {size:,} bytes, more than {FILE_BYTES_MAX:,}.", next_step="Split it by trace."
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.") from error
    try:
        value: Any = _parsed(text)
    except (ValueError, RecursionError):
        return _lines(path, text)
    if isinstance(value, dict) and isinstance(value.get("data"), list):
        value = value["data"]
    return value if isinstance(value, list) else [value]


def _lines(path: Path, text: str) -> list[Any]:
    documents: list[Any] = []
    # Not splitlines(): it takes for an end of line what a string in JSON may hold, as U+2028.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                documents.append(_parsed(line))
            except (ValueError, RecursionError) as error:
                raise SettingsError(f"line {number} of {path} is not valid JSON: {error}.") from error
    return documents


def _parsed(text: str) -> Any:
    value = json.loads(text)
    return valid_text(value) if _SURROGATE.search(text) else value


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""The beginning of a surrogate in JSON; most are one half of a pair, which is whole."""
