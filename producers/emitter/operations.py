"""Operations: a function or a block of code as a span, with its input and output."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar, cast, overload

from lightstream.schemas.types import SpanCoreFields, SpanRecordingContext

from .. import semconv
from ..attributes import flatten_attributes, sanitize_attributes
from .tracer_in_use import speaking_tracer

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class OperationContext:
    """See :func:`operation`: a context manager (use once at a time), and a decorator (use as often as you like).

    The tracer is the one that is active when the block is entered or the function called.

    Args:
        name: of the span.
        attributes: nested ones are flattened, other kinds of values are written as JSON.
        propagate: ``False`` sends nothing.
    """

    def __init__(self, name: str, attributes: Mapping[str, Any], propagate: bool = True) -> None:
        self.name = name
        self.initial_attributes = flatten_attributes(attributes)
        self.propagate = propagate
        self._manager: AbstractContextManager[SpanRecordingContext] | None = None
        self._recording: SpanRecordingContext | None = None
        self._span: SpanCoreFields | None = None

    def __enter__(self) -> OperationContext:
        self._manager = self._open({})
        self._recording = self._manager.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        manager, recording = self._manager, self._recording
        self._manager = self._recording = None
        if manager is not None:
            try:
                manager.__exit__(kind, error, traceback)
            finally:
                if recording is not None:
                    self._span = recording.get_recorded_span()

    def span(self) -> SpanCoreFields:
        """The span, once the block was left.

        Raises:
            RuntimeError: it was not.
        """
        if self._span is None:
            raise RuntimeError(f"the operation {self.name!r} has not ended")
        return self._span

    def set_input(self, *args: Any, **kwargs: Any) -> None:
        """Record the input: as ``agentlightning.operation.input.args.<place>`` and ``….input.<name>``.

        Raises:
            RuntimeError: outside of ``with``.
        """
        prefix = semconv.AGL_OPERATION_INPUT
        given = {f"{prefix}.args.{place}": value for place, value in enumerate(args)}
        self._record(given | {f"{prefix}.{name}": value for name, value in kwargs.items()})

    def set_output(self, output: Any) -> None:
        """Record the output, as ``agentlightning.operation.output``.

        Raises:
            RuntimeError: outside of ``with``.
        """
        self._record({semconv.AGL_OPERATION_OUTPUT: output})

    def __call__(self, fn: FunctionT) -> FunctionT:
        """``fn`` (synchronous or not) with a span around each call: its arguments, its result, its exception."""
        first = {semconv.AGL_OPERATION_NAME: fn.__name__}
        signature = inspect.signature(fn)

        if inspect.iscoroutinefunction(fn):

            @functools.wraps(fn)
            async def around_coroutine(*args: Any, **kwargs: Any) -> Any:
                with self._open(first) as recording:
                    recording.record_attributes(_attributes(_arguments(signature, args, kwargs)))
                    result = await fn(*args, **kwargs)
                    recording.record_attributes(_attributes({semconv.AGL_OPERATION_OUTPUT: result}))
                    return result

            return cast("FunctionT", around_coroutine)

        @functools.wraps(fn)
        def around(*args: Any, **kwargs: Any) -> Any:
            with self._open(first) as recording:
                recording.record_attributes(_attributes(_arguments(signature, args, kwargs)))
                result = fn(*args, **kwargs)
                recording.record_attributes(_attributes({semconv.AGL_OPERATION_OUTPUT: result}))
                return result

        return cast("FunctionT", around)

    def _open(self, first: Mapping[str, Any]) -> AbstractContextManager[SpanRecordingContext]:
        tracer = speaking_tracer(self.propagate)
        return tracer.operation_context(self.name, sanitize_attributes({**first, **self.initial_attributes}))

    def _record(self, values: Mapping[str, Any]) -> None:
        if self._recording is None:
            raise RuntimeError(f"the operation {self.name!r} is not open: use `with operation(...) as op:`")
        self._recording.record_attributes(_attributes(values))


def _arguments(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name, defaults included; by place where they do not fit the function, which then says so."""
    prefix = semconv.AGL_OPERATION_INPUT
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        given = {f"{prefix}.args.{place}": value for place, value in enumerate(args)}
        return given | ({f"{prefix}.kwargs": kwargs} if kwargs else {})
    bound.apply_defaults()
    return {f"{prefix}.{name}": value for name, value in bound.arguments.items()}


def _attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    return sanitize_attributes(flatten_attributes(values))


@overload
def operation(
    fn: FunctionT, *, propagate: bool = True, name: str | None = None, **additional_attributes: Any
) -> FunctionT: ...


@overload
def operation(*, propagate: bool = True, name: str | None = None, **additional_attributes: Any) -> OperationContext: ...


def operation(
    fn: FunctionT | None = None, *, propagate: bool = True, name: str | None = None, **additional_attributes: Any
) -> FunctionT | OperationContext:
    """A function or block as a span ``agentlightning.operation``.

    Args:
        fn: the function, where this is used as a bare decorator.
        propagate: ``False`` sends nothing.
        name: recorded as ``agentlightning.operation.name``; by default the function's.
        additional_attributes: recorded as they are.

    Raises:
        ValueError: ``fn`` is not a function, or the name is given twice.
        NoActiveTracerError: no tracer is active (when the block is entered or the function called).

    Example:
        ::

            @operation
            def search(query): ...

            @operation(category="compute")
            async def plan(task): ...

            with operation(user="u-1") as op:
                op.set_input(data)
                op.set_output(work(data))
    """
    if name is not None:
        if semconv.AGL_OPERATION_NAME in additional_attributes:
            raise ValueError(f"name is {name!r}, and {semconv.AGL_OPERATION_NAME} is given too; give one of them")
        additional_attributes[semconv.AGL_OPERATION_NAME] = name
    context = OperationContext(semconv.AGL_OPERATION, additional_attributes, propagate)
    if fn is None:
        return context
    if not callable(fn):
        raise ValueError(f"a function is needed, not {fn!r:.200}: the span of an operation cannot be named otherwise")
    return context(fn)
