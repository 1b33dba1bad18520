"""From files to traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.types import Span

from .atif import atif_trace
from .documents import documents_of
from .kinds import FORMATS, IS_OF_KIND, kind_of
from .langfuse import is_score, langfuse_trace, observation_span, score_of_row, scores_of_trace
from .otlp import is_otlp_span, otlp_spans
from .phoenix import annotation_score, is_annotation, phoenix_span
from .spool import Spool
from .trace import ImportedTrace

__all__ = ["FORMATS", "read_files", "read_traces"]

ReadProgress = Callable[[Path, int], None]
"""Is told of which file how many bytes were read so far."""


def read_files(
    spool: Spool, paths: Sequence[Path], kind: str = "auto", progress: ReadProgress = lambda _, __: None
) -> list[str]:
    """Read the traces of files into a spool; returns the form of each file.

    Lone surrogates become ``?``: no store takes one. A trace may be in several files, and its scores in another one.
    Of each file one document is held at a time.

    Args:
        kind: one of :data:`FORMATS`; ``auto`` decides by the first document of each file.

    Raises:
        SettingsError: a file is missing, cannot be read, or is in no known format; or a document of it has a part that
            is missing or of the wrong type.
    """
    numbers = count()
    kinds: list[str] = []
    for path in paths:
        reader = _FileReader(spool, path, numbers, kind)
        for document in documents_of(path, lambda done, path=path: progress(path, done)):  # type: ignore[misc]  # bound
            reader.take(document)
        if reader.count == 0:
            raise SettingsError(f"{path} is in no known format: it is empty.", next_step="Name a file with traces.")
        kinds.append(reader.kind)
    return kinds


def read_traces(path: Path, kind: str = "auto", score: str | None = None) -> list[ImportedTrace]:
    """The traces of one file, all at once: as :func:`read_files`, with their scores as rewards.

    Args:
        score: name of the score (Langfuse) or annotation (Phoenix) that is the reward.

    Raises:
        SettingsError: as :func:`read_files`; or a trace has scores of several names, and none is chosen.
    """
    with Spool() as spool:
        read_files(spool, [path], kind)
        return list(spool.traces(score))


class _FileReader:
    """Takes the documents of one file in their order."""

    def __init__(self, spool: Spool, path: Path, numbers: Iterator[int], kind: str) -> None:
        self._spool = spool
        self._path = path
        self._numbers = numbers
        self._file = next(numbers)
        self.kind = kind
        self.count = 0

    def take(self, document: Any) -> None:
        self.count += 1
        if self.kind == "auto":
            self.kind = kind_of(self._path, document)
        if not IS_OF_KIND[self.kind](document):
            raise SettingsError(f"{self._where()} is not {self.kind}: {str(document)[:200]}")
        try:
            getattr(self, f"_take_{self.kind}")(document)
        except SettingsError as error:
            raise SettingsError(f"{self._where()}: {error.message}", next_step=error.next_step) from error
        except RecursionError as error:
            raise SettingsError(f"{self._where()} is nested too deeply.") from error

    def _where(self) -> str:
        return f"document {self.count} of {self._path}"

    def _add_spans(self, spans: Sequence[Span], *, is_ordered: bool) -> None:
        by_trace: dict[str, list[Span]] = {}
        for span in spans:
            by_trace.setdefault(span.trace_id, []).append(span)
        for trace_id, of_trace in by_trace.items():
            self._spool.add(trace_id, self._file, of_trace, is_ordered=is_ordered)

    def _add_whole(self, trace: ImportedTrace) -> None:
        self._spool.add(trace.trace_id, next(self._numbers), trace.spans, is_ordered=True, task=trace.task)

    def _take_otlp(self, document: Any) -> None:
        self._add_spans(otlp_spans(document), is_ordered=not is_otlp_span(document))

    def _take_atif(self, document: Any) -> None:
        trace = atif_trace(document)
        self._add_whole(trace)

    def _take_phoenix(self, row: Any) -> None:
        if is_annotation(row):
            scored = annotation_score(row)
            if scored is not None:
                self._spool.add_annotation(*scored)
        else:
            self._add_spans([phoenix_span(row)], is_ordered=False)

    def _take_langfuse(self, document: Any) -> None:
        if is_score(document):
            trace_id, scores = score_of_row(document)
            self._spool.add_scores(trace_id, scores)
        elif "observations" in document:
            trace = langfuse_trace(document)
            self._add_whole(trace)
            self._spool.add_scores(trace.trace_id, scores_of_trace(document))
        else:
            self._add_spans([observation_span(document)], is_ordered=False)
