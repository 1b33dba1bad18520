"""An agent from a plain function."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, cast, overload

from lightstream.schemas.types import LLM, AttemptedRollout, NamedResources, PromptTemplate, ProxyLLM, Rollout

from .lit_agent import LitAgent, RolloutResult

_PARAMETERS = ("task", "llm", "prompt_template", "resources", "rollout")

ResourceT = TypeVar("ResourceT", LLM, PromptTemplate)


if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    TaskT = TypeVarWithDefault("TaskT", default=Any)
else:
    TaskT = TypeVar("TaskT")


class FunctionalLitAgent(LitAgent[TaskT]):
    """An agent that :func:`rollout` made, of tasks of a type. Calling it calls the function.

    Raises:
        TypeError: the function has no parameter ``task``, or has one that nothing provides.
    """

    def __init__(self, function: Callable[..., Any], *, strip_proxy: bool = True) -> None:
        parameters = inspect.signature(function).parameters
        required = [p.name for p in parameters.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
        unknown = [name for name in required if name not in _PARAMETERS]
        if "task" not in parameters or unknown:
            raise TypeError(
                f"{getattr(function, '__name__', function)!s}{inspect.signature(function)} is not a rollout function: "
                f"one takes `task` and any of {', '.join(_PARAMETERS[1:])}"
                + (f"; nothing provides {', '.join(unknown)}" if unknown else "")
            )
        self._function = function
        self._parameters = frozenset(parameters)
        self._strip_proxy = strip_proxy
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  # a callable object whose call is asynchronous
        )
        functools.update_wrapper(cast("Any", self), function)

    def is_async(self) -> bool:
        return self._is_async

    def rollout(self, task: Any, resources: NamedResources, rollout: Rollout) -> RolloutResult:
        return cast("RolloutResult", self._function(task=task, **self._arguments(resources, rollout)))

    async def rollout_async(self, task: Any, resources: NamedResources, rollout: Rollout) -> RolloutResult:
        return cast("RolloutResult", await self._function(task=task, **self._arguments(resources, rollout)))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Pickle by name where the decorator left this agent in the function's place, as pickle does functions.

        Not what the program itself defines: it has another name in every other process.
        """
        if self.__module__ == "__main__":
            return super().__reduce_ex__(protocol)
        name: str = getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(self.__module__)
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else super().__reduce_ex__(protocol)

    def _arguments(self, resources: NamedResources, rollout: Rollout) -> dict[str, Any]:
        """The arguments that the function asks for by name.

        Raises:
            ValueError: it asks for a resource that is not there.
        """
        arguments: dict[str, Any] = {}
        if "resources" in self._parameters:
            arguments["resources"] = resources
        if "rollout" in self._parameters:
            arguments["rollout"] = rollout
        if "llm" in self._parameters:
            arguments["llm"] = self._stripped(_first(LLM, resources), rollout)
        if "prompt_template" in self._parameters:
            arguments["prompt_template"] = _first(PromptTemplate, resources)
        return arguments

    def _stripped(self, llm: LLM, rollout: Rollout) -> LLM:
        """A proxied model as a plain one whose endpoint names the attempt, for clients that know only endpoints."""
        if not self._strip_proxy or not isinstance(llm, ProxyLLM) or not isinstance(rollout, AttemptedRollout):
            return llm
        return LLM(
            endpoint=llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id),
            model=llm.model,
            api_key=llm.api_key,
            sampling_parameters=dict(llm.sampling_parameters),
        )


def _first(kind: type[ResourceT], resources: NamedResources) -> ResourceT:
    for resource in resources.values():
        if isinstance(resource, kind):
            return resource
    found = {name: type(resource).__name__ for name, resource in resources.items()}
    raise ValueError(f"the agent needs a resource of type {kind.__name__}; its resources are {found}")


@overload
def rollout(function: Callable[..., Any], /) -> FunctionalLitAgent: ...


@overload
def rollout(*, strip_proxy: bool = True) -> Callable[[Callable[..., Any]], FunctionalLitAgent]: ...


def rollout(
    function: Callable[..., Any] | None = None, /, *, strip_proxy: bool = True
) -> FunctionalLitAgent | Callable[[Callable[..., Any]], FunctionalLitAgent]:
    """Make an agent of a function, synchronous or not.

    The function takes ``task`` and, by name, what it needs of ``llm`` (the first model among the resources),
    ``prompt_template`` (the first template), ``resources`` (all of them) and ``rollout``. It returns the reward, or
    ``None``.

    Args:
        strip_proxy: give ``llm`` an endpoint that names rollout and attempt, so that a plain OpenAI client works.

    Example:
        ::

            @rollout
            def agent(task: str, llm: LLM) -> float:
                client = OpenAI(base_url=llm.endpoint, api_key=llm.api_key or "none")
                ...
    """
    if function is not None:
        return FunctionalLitAgent(function, strip_proxy=strip_proxy)
    return lambda wrapped: FunctionalLitAgent(wrapped, strip_proxy=strip_proxy)


@overload
def llm_rollout(func: Callable[..., Any], /) -> FunctionalLitAgent: ...


@overload
def llm_rollout(*, strip_proxy: bool = True) -> Callable[[Callable[..., Any]], FunctionalLitAgent]: ...


def llm_rollout(
    func: Callable[..., Any] | None = None, /, *, strip_proxy: bool = True
) -> FunctionalLitAgent | Callable[[Callable[..., Any]], FunctionalLitAgent]:
    """As :func:`rollout`, for a function of ``task`` and ``llm``.

    Raises:
        TypeError: it has no parameter ``llm``.
    """

    def make(function: Callable[..., Any]) -> FunctionalLitAgent:
        return _asking_for("llm", function, strip_proxy=strip_proxy)

    return make if func is None else make(func)


@overload
def prompt_rollout(func: Callable[..., Any], /) -> FunctionalLitAgent: ...


@overload
def prompt_rollout() -> Callable[[Callable[..., Any]], FunctionalLitAgent]: ...


def prompt_rollout(
    func: Callable[..., Any] | None = None, /
) -> FunctionalLitAgent | Callable[[Callable[..., Any]], FunctionalLitAgent]:
    """As :func:`rollout`, for a function of ``task`` and ``prompt_template``.

    Raises:
        TypeError: it has no parameter ``prompt_template``.
    """

    def make(function: Callable[..., Any]) -> FunctionalLitAgent:
        return _asking_for("prompt_template", function)

    return make if func is None else make(func)


def _asking_for(parameter: str, function: Callable[..., Any], *, strip_proxy: bool = True) -> FunctionalLitAgent:
    if parameter not in inspect.signature(function).parameters:
        raise TypeError(f"{getattr(function, '__name__', function)!s}{inspect.signature(function)} has no {parameter}")
    return FunctionalLitAgent(function, strip_proxy=strip_proxy)
