"""``agentlightning.algorithm.utils``: helpers of algorithms."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lightstream.schemas.errors import SettingsError
from lightstream.trainers.tasks import Dataset

__all__ = ["batch_iter_over_dataset", "with_llm_proxy", "with_store"]


def batch_iter_over_dataset(dataset: Dataset, batch_size: int) -> Iterator[Sequence[Any]]:
    """Batches of shuffled tasks without end. No task is in a batch twice; a batch is the whole set if that is smaller.

    The rest at the end of a pass begins the next batch.
    """
    size = min(batch_size, len(dataset))
    batch: list[int] = []
    while size:
        for index in random.sample(range(len(dataset)), len(dataset)):  # the order of tasks; no secret
            if index in batch:
                continue
            batch.append(index)
            if len(batch) == size:
                yield [dataset[chosen] for chosen in batch]
                batch = []


def with_store(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a coroutine method of an algorithm its store as the first argument."""

    @functools.wraps(function)
    async def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await function(self, self.get_store(), *args, **kwargs)

    return wrapped


def with_llm_proxy(required: bool = False, auto_start: bool = True) -> Callable[[Callable[..., Any]], Any]:
    """Give a coroutine method of an algorithm its LLM proxy, or ``None``, as the first argument.

    Args:
        required: without a proxy calling the method raises :class:`SettingsError`.
        auto_start: a proxy that is not running is started for the call.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            proxy = self.get_llm_proxy()
            if proxy is None and required:
                raise SettingsError("this algorithm needs an LLM proxy.", next_step="Trainer(llm_proxy=LLMProxy(…))")
            if proxy is None or not auto_start or proxy.is_running():
                return await function(self, proxy, *args, **kwargs)
            await proxy.start()
            try:
                return await function(self, proxy, *args, **kwargs)
            finally:
                await proxy.stop()

        return wrapped

    return decorate
