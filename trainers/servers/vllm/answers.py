"""Chat answers that survive an exchange of vLLM's weights, and a crash of vLLM.

An answer has one or more choices (``n``). A choice is made of *parts*: requests to vLLM that continue one another, each
with the prompt and all tokens so far. Without an exchange or a crash there is one part.

When the weights are replaced, an answer under way either goes on in its part (vLLM keeps its requests: pause,
:meth:`Answers.take_over`, :meth:`Answers.release`), or its part ends and the next one begins with the new weights
(:meth:`Answers.cut`).

Invariants:

- A token that is part of the answer is never sampled again, and never taken back.
- Each token is recorded with the version that sampled it. The version of a part changes in ``take_over`` alone, after
  all tokens that vLLM sampled before are read.
- Between ``take_over`` and ``release`` tokens are held back, while the trainer checks that vLLM has the new weights. If
  not, vLLM is started again, and the held tokens are sampled again.
- A part begins only while the server's gate is open. The gate is closed during an exchange.
- Each answer ends: complete, or with an error after :data:`TRIES` parts in a row that brought no token.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from lightstream.producers.llm_proxy.events import EventSplitter, event_data
from lightstream.producers.llm_proxy.openai_upstream import HttpUpstream
from lightstream.producers.llm_proxy.upstream import UpstreamAnswer, UpstreamError
from lightstream.schemas.errors import LightstreamError, ServiceUnavailableError

from ..chat_api.generation import Generation, Job
from ..chat_api.requests import ChatRequest, RequestError, TextRequest
from ..chat_api.text import Decode, StopWatcher, decoder
from ..chat_api.version import PolicyVersion, Tokens
from ..cpu.checkpoint import end_of_turn_ids, load_tokenizer
from ..cpu.service import tokens_of
from .server import VllmServer

logger = logging.getLogger(__name__)

TRIES = 3
"""vLLM may end while it answers: so often in a row without one more token."""

TOO_SLOW = 504
"""It has not ended: another try would only add to what it has to do."""

TEXT_TOKENS_DEFAULT = 16
"""OpenAI's limit for completions that name none."""

ROUND_TRIPS = 2
"""See :meth:`Answers.take_over`."""

TOKEN_PREFIX = "token_id:"  # vLLM's name of a token that is not to be decoded
DONE = b"[DONE]"


@dataclass(slots=True, eq=False)
class _Part:
    """One request to vLLM.

    Attributes:
        generation: the choice that it is for.
        version: number of the version that samples its next token.
        task: reads what vLLM samples.
    """

    generation: Generation
    version: int
    task: asyncio.Task[None] = field(init=False)


@dataclass(frozen=True, slots=True)
class _Model:
    """The parts of a model that do not change with its weights."""

    tokens: Tokens
    end_ids: frozenset[int]
    positions_max: int


class Answers:
    """Answers under way. Other methods run in one event loop; :meth:`cut`, :meth:`take_over` and :meth:`release` in
    another thread, which exchanges the weights while the gate is closed.

    Args:
        server: the vLLM.
        upstream: sends requests; started.
        timeout_s: how long the event loop may take to do what an exchange needs.
    """

    def __init__(self, server: VllmServer, upstream: HttpUpstream, timeout_s: float) -> None:
        self._server = server
        self._upstream = upstream
        self._timeout_s = timeout_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._parts: set[_Part] = set()
        self._jobs: set[asyncio.Task[None]] = set()
        self._is_proven = asyncio.Event()
        self._is_proven.set()
        self._model: _Model | None = None

    @property
    def running(self) -> int:
        """Answers that are not over."""
        return len(self._jobs)

    @property
    def tokens(self) -> list[int]:
        """How many each choice has that vLLM works on."""
        return [len(part.generation.token_ids) for part in list(self._parts)]

    def start(self) -> None:
        """Begin to accept requests."""
        self._loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        """Give up open answers."""
        self._loop = None
        for task in self._jobs:
            task.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    async def submit(self, request: ChatRequest, body: dict[str, Any]) -> Job:
        """Begin an answer; wait on ``job.news`` for its result.

        Args:
            request: what is asked.
            body: the same as it came, for vLLM's chat template.

        Raises:
            RequestError: vLLM refuses the prompt or does not run, or the prompt is too long.
        """
        try:
            served, name = self._server.served(request.model)
            prompts = await self._prompts(request, body, name)
            model = self._model or await self._read_model()
        except UpstreamError as error:
            raise RequestError(str(error), status=error.status) from error
        except LightstreamError as error:
            raise RequestError(str(error), status=503) from error
        version = PolicyVersion(served.name, served.number, str(served.folder), served.resources_id)
        version.tokens, version.end_ids, version.positions_max = model.tokens, model.end_ids, model.positions_max
        job = Job(version, request.streams, asyncio.Event())
        for prompt in prompts:
            job.generations.extend(self._generations(request, job, prompt))
        task = asyncio.create_task(self._answer(request, job))
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        return job

    def decoder(self, request: ChatRequest, job: Job) -> Decode:
        """Return how answers become text."""
        tokenizer = tokens_of(job.version).tokenizer
        return decoder(tokenizer, job.version.end_ids, reads_tool_calls=request.reads_tool_calls)

    def cut(self) -> None:
        """End every part. What they have is kept, and gone on with once the gate is open.

        Raises:
            ServiceUnavailableError: the event loop does not come to it.
        """
        self._in_loop(self._cut)

    def take_over(self, version: int) -> None:
        """Count tokens from now on as tokens of another version. They are held back until :meth:`release`.

        vLLM must be paused, and have answered another request since, so that its event loop has written to the
        connections whatever was sampled before the pause: it takes outputs from the engine in their order, and the end
        of the pause is one. What is written is read here before the answers to requests that are sent now.

        Raises:
            ServiceUnavailableError: vLLM has ended, or the event loop does not come to it.
        """

        async def count() -> None:
            for _ in range(ROUND_TRIPS):
                await self._upstream.send("GET", f"{self._server.url}/health", None, api_key=None, streams=False)
            self._is_proven.clear()
            for part in self._parts:
                part.version = version

        self._in_loop(count)

    def release(self) -> None:
        """Let go of the text that is held back.

        Raises:
            ServiceUnavailableError: the event loop does not come to it.
        """

        async def let_go() -> None:
            self._is_proven.set()

        self._in_loop(let_go)

    def _in_loop(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        loop = self._loop
        if loop is None:
            return
        doing = asyncio.run_coroutine_threadsafe(work(), loop)
        try:
            doing.result(self._timeout_s)
        except UpstreamError as error:
            raise ServiceUnavailableError(str(error), next_step="vLLM's log says why.") from error
        except TimeoutError as error:
            doing.cancel()
            raise ServiceUnavailableError(
                f"the answers under way could not be reached within {self._timeout_s:g} s.",
                next_step="Raise swap_timeout_s, or let fewer agents run at once.",
            ) from error

    async def _cut(self) -> None:
        tasks = [part.task for part in self._parts]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._is_proven.set()

    async def _answer(self, request: ChatRequest, job: Job) -> None:
        try:
            async with asyncio.TaskGroup() as choices:
                for place, choice in enumerate(job.generations):
                    choices.create_task(self._choice(request, choice, place))
        except Exception as error:  # whatever it is, somebody waits for this answer
            logger.exception("an answer failed")
            job.generations[0].error = f"{type(error).__name__}: {error}"
        finally:
            for choice in job.generations:
                if not choice.is_over:
                    choice.error = "the server ends"
            job.reported = True
            job.news.set()

    async def _choice(self, request: ChatRequest, choice: Generation, place: int) -> None:
        """Ask for one part after the other until the choice is over."""
        failures = 0
        while not choice.is_over:
            tokens = len(choice.token_ids)
            failure = await self._next_part(request, choice, place)
            if failure is None:
                continue
            failures = failures + 1 if len(choice.token_ids) == tokens else 1
            if failures == TRIES or failure.status == TOO_SLOW or 400 <= failure.status < 500:
                choice.error = str(failure)
                return
            await self._make_ready(choice)

    async def _next_part(self, request: ChatRequest, choice: Generation, place: int) -> UpstreamError | None:
        """One request to vLLM; returns why it failed, or ``None`` where it did not, or was cut."""
        await self._server.gate.enter()
        try:
            served, model = self._server.served(request.model)
            part = _Part(choice, served.number)
            part.task = asyncio.create_task(self._sample(part, _asked(request, choice, place, model)))
            self._parts.add(part)
        finally:
            self._server.gate.leave()  # an exchange deals with parts, and does not wait for them
        try:
            await asyncio.wait([part.task])
        finally:
            part.task.cancel()
            self._parts.discard(part)
        if part.task.cancelled():
            return None
        failure = part.task.exception()
        if failure is not None and not isinstance(failure, UpstreamError):
            raise failure
        return failure

    async def _sample(self, part: _Part, body: dict[str, Any]) -> None:
        answer = await self._upstream.send(
            "POST", f"{self._server.url}/v1/completions", to_json(body), api_key=None, streams=True
        )
        if answer.pieces is None:
            raise UpstreamError(f"vLLM answers {answer.status}: {_shown(answer)}", status=answer.status)
        splitter = EventSplitter()
        with contextlib.closing(answer):
            async for piece in answer.pieces:
                for event in splitter.feed(piece):
                    await self._is_proven.wait()
                    self._take(part, event_data(event))
                    if part.generation.is_over:
                        return
        raise UpstreamError("vLLM's answer broke off", status=502)

    def _take(self, part: _Part, data: bytes | None) -> None:
        """Append the tokens of one event.

        Raises:
            UpstreamError: it is an error, or no tokens; or vLLM ends the answer because it ends itself.
        """
        if data is None or data == DONE:
            return
        body: Any = from_json(data)
        if not isinstance(body, dict) or body.get("error"):
            raise UpstreamError(f"vLLM ended the answer: {data[:2000].decode('utf-8', 'replace')}", status=502)
        choice = part.generation
        for entry in body["choices"]:
            for token, logprob, best in _tokens(entry):
                _append(choice, part.version, token, logprob, best)
                if choice.finish_reason is not None:
                    break
            choice.ready = len(choice.token_ids)
            reason = entry.get("finish_reason")
            if reason == "abort" and choice.finish_reason is None:
                raise UpstreamError("vLLM aborted the answer", status=502)
            if reason and choice.finish_reason is None:
                choice.finish_reason = "length" if reason == "length" else "stop"
        if choice.job.streams:
            choice.job.news.set()

    async def _make_ready(self, choice: Generation) -> None:
        try:
            await asyncio.to_thread(self._server.make_ready)
        except LightstreamError as error:
            choice.error = str(error)

    def _generations(self, request: ChatRequest, job: Job, prompt_ids: list[int]) -> list[Generation]:
        room = job.version.positions_max - len(prompt_ids)
        if room < 1:
            raise RequestError(
                f"the prompt has {len(prompt_ids)} tokens; vLLM takes {job.version.positions_max} in all, at least one "
                "of them for the answer",
                parameter="messages",
                code="context_length_exceeded",
            )
        tokens_max = request.tokens_max or (TEXT_TOKENS_DEFAULT if isinstance(request, TextRequest) else room)
        return [
            Generation(
                job=job,
                prompt_ids=prompt_ids,
                tokens_max=min(tokens_max, room),
                temperature=request.temperature,
                top_p=request.top_p,
                top_logprobs=request.top_logprobs if request.logprobs else 0,
                chance=random.Random(0),  # noqa: S311  # vLLM draws
                stop_watcher=StopWatcher(request.stops, self.decoder(request, job)) if request.stops else None,
            )
            for _ in range(request.choices)
        ]

    async def _prompts(self, request: ChatRequest, body: dict[str, Any], model: str) -> list[list[int]]:
        """Token ids of each prompt, as vLLM's own chat template and tokenizer make them."""
        if isinstance(request, TextRequest):
            return [p if isinstance(p, list) else await self._ids({"prompt": p}, model) for p in request.prompts]
        fields = {name: body[name] for name in ("messages", "tools") if body.get(name)}
        return [await self._ids(fields, model)]

    async def _ids(self, fields: dict[str, Any], model: str) -> list[int]:
        ids: list[int] = (await self._ask("POST", "/tokenize", fields | {"model": model}))["tokens"]
        return ids

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        """An answer that needs no tokens. One more try if vLLM has ended."""
        content = None if body is None else to_json(body)

        def send() -> Awaitable[UpstreamAnswer]:
            return self._upstream.send(method, f"{self._server.url}{path}", content, api_key=None, streams=False)

        try:
            answer = await send()
        except UpstreamError:
            await asyncio.to_thread(self._server.make_ready)
            answer = await send()
        if answer.status != 200:
            raise UpstreamError(f"vLLM answers {answer.status}: {_shown(answer)}", status=answer.status)
        return from_json(answer.body or b"{}")

    async def _read_model(self) -> _Model:
        models = await self._ask("GET", "/v1/models", None)
        folder = self._server.model_folder
        tokens, end_ids = await asyncio.to_thread(_tokens_of, folder)
        self._model = self._model or _Model(tokens, end_ids, int(models["data"][0]["max_model_len"]))
        return self._model


def _asked(request: ChatRequest, choice: Generation, place: int, model: str) -> dict[str, Any]:
    """A request to vLLM for the tokens of a choice that are missing, from the policy's own distribution."""
    given = len(choice.token_ids)
    body: dict[str, Any] = {
        "model": model,
        "prompt": choice.ids,
        "max_tokens": choice.tokens_max - given,
        "temperature": choice.temperature,
        "top_p": choice.top_p,
        "logprobs": choice.top_logprobs,
        "stream": True,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }
    body |= {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}  # not the defaults of the model's files
    if request.seed is not None:  # the same for all parts would draw the same numbers again
        body["seed"] = random.Random(f"{request.seed}:{place}:{given}").getrandbits(62)  # noqa: S311  # sampling
    return body


def _tokens(entry: Any) -> list[tuple[int, float, list[tuple[int, float]]]]:
    """Token ids of a choice's event, with log-probabilities: of each, and of the best ones, by falling probability.

    Raises:
        UpstreamError: there are none, or not as many.
    """
    try:
        ids: list[int] = entry["token_ids"] or []
        if not ids:
            return []
        logprobs: list[float] = entry["logprobs"]["token_logprobs"]
        best = [_best(each) for each in entry["logprobs"]["top_logprobs"]]
        return list(zip(ids, logprobs, best, strict=True))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UpstreamError(f"vLLM gave no token ids with log-probabilities: {str(entry)[:500]}", status=502) from error


def _best(each: dict[str, float]) -> list[tuple[int, float]]:
    pairs = [(int(name.removeprefix(TOKEN_PREFIX)), value) for name, value in each.items()]
    return sorted(pairs, key=lambda pair: -pair[1])


def _append(choice: Generation, version: int, token: int, logprob: float, best: list[tuple[int, float]]) -> None:
    if not choice.runs or choice.runs[-1][1] != version:
        choice.runs.append((len(choice.token_ids), version))
    choice.token_ids.append(token)
    choice.logprobs.append(logprob)
    if choice.top_logprobs:
        choice.top.append(best[: choice.top_logprobs])
    if choice.stop_watcher is not None:
        choice.text_end = choice.stop_watcher.find(choice.token_ids)
        if choice.text_end is not None:
            choice.finish_reason = "stop"


def _tokens_of(folder: Path) -> tuple[Tokens, frozenset[int]]:
    """A model's tokenizer, and the tokens that end a turn.

    Raises:
        TrainingError: they cannot be read.
    """
    tokens = Tokens(load_tokenizer(folder))
    return tokens, end_of_turn_ids(folder, tokens.tokenizer)


def _shown(answer: UpstreamAnswer) -> str:
    return (answer.body or b"")[:2000].decode("utf-8", "replace")
