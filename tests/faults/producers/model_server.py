"""A model server whose every answer has an id of its own, and agents that call it through the proxy without end."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import openai

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, chunk, completion, event
from tests.support.waiting import eventually

CALL_TIMEOUT_S = 120.0
JOIN_TIMEOUT_S = 180.0


@contextmanager
def counting_model_server(settings: Settings) -> Generator[str]:
    """Yields its base URL; answers have the ids ``c1``, ``c2``, …"""
    numbers = itertools.count(1)

    def answer(asked: Any) -> Any:
        response_id = f"c{next(numbers)}"
        if not asked.get("stream"):
            return completion(id=response_id)
        pieces = (chunk(1, first=True), chunk(2), chunk(3, finish_reason="stop"))
        return [*(piece | {"id": response_id} for piece in pieces), event(b"[DONE]")]

    upstream = ScriptedUpstream()
    upstream.answer = answer
    server = HttpServer(upstream.app, settings, name="counting", port=0, setting="")
    yield f"{server.start()}/v1"
    server.stop()


class Agents:
    """Threads that call by OpenAI's client, every second one with streams, until they are told to stop.

    Attributes:
        answered: of each agent the ids of the answers that it got whole.
        refused: of each agent what it got instead: statuses, or names of errors.
    """

    def __init__(self, proxy_url: str, count: int, *, max_retries: int = 0) -> None:
        self.answered: list[list[str]] = [[] for _ in range(count)]
        self.refused: list[list[int | str]] = [[] for _ in range(count)]
        self._url, self._max_retries = proxy_url, max_retries
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(number,)) for number in range(count)]

    def __enter__(self) -> Agents:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(JOIN_TIMEOUT_S)

    def wait_for(self, more: Callable[[], Sequence[Sequence[object]]], what: str) -> None:
        """Wait until each agent's list (``answered`` or ``refused``) has become longer."""
        before = [len(mine) for mine in more()]
        eventually(lambda: all(len(mine) > was for mine, was in zip(more(), before, strict=True)), what=what)

    def _work(self, number: int) -> None:
        url = f"{self._url}/rollout/r{number}/attempt/a/v1"
        with openai.OpenAI(
            base_url=url, api_key="none", max_retries=self._max_retries, timeout=CALL_TIMEOUT_S
        ) as client:
            while not self._stop.is_set():
                try:
                    self.answered[number].append(_call(client, streams=number % 2 == 1))
                except openai.APIStatusError as error:
                    self.refused[number].append(error.status_code)
                except (openai.APIError, httpx.HTTPError) as error:  # an error event, or the connection is gone
                    self.refused[number].append(str(error))


def _call(client: openai.OpenAI, *, streams: bool) -> str:
    """The id of an answer that came to its end."""
    messages: list[Any] = [{"role": "user", "content": "hi"}]
    if not streams:
        return client.chat.completions.create(model="m", messages=messages).id
    pieces = list(client.chat.completions.create(model="m", messages=messages, stream=True))
    assert pieces[-1].choices[0].finish_reason is not None, "a stream that ends without an error is complete"
    return pieces[-1].id
