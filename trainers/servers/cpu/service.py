"""Between HTTP and the engine: prompts to tokens, versions to requests, news from the engine's thread to the loop."""

from __future__ import annotations

import asyncio
import math
import random

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError

from ...run.model.chat_template import TEMPLATE_ERRORS
from ..chat_api.generation import Generation, Job
from ..chat_api.requests import SO_FAR, ChatRequest, Prompt, RequestError, TextRequest
from ..chat_api.text import Decode, StopWatcher, decoder
from ..chat_api.tool_calls import how_calls_are_written
from ..chat_api.version import PolicyVersion, Tokens
from .engine import Engine
from .policy_version import NEWEST, Versions

TOKENS_DEFAULT = 1024
"""Most tokens of an answer to a request that names no limit; enough for a turn, and no endless babble."""

JOBS_WAITING_MAX = 10_000
"""Sequences that may wait; beyond, requests are refused with 429 instead of growing the queue."""

COMPOSED_CHARACTERS_MAX = 2
"""Characters that normalising may make one of (NFC: a letter and its accent): a text longer than this many times the
longest token times the context cannot fit, and is refused at once; tokenizing 20 MB would take 40 s."""

INLINE_CHARACTERS_MAX = 64 * 1024
"""Longer prompts are tokenized in a thread, so that they do not hold the loop up (1 MB takes 1.5 s)."""


class PolicyService:
    """Answers chat requests. All methods run in one event loop.

    Args:
        settings: limits and how to batch.
        versions: what can be served; its ``on_change`` is taken over.
    """

    def __init__(self, settings: Settings, versions: Versions) -> None:
        self._settings = settings
        self.versions = versions
        self.engine = Engine(
            rows_max=settings.policy_batch_max,
            window_s=settings.policy_batch_window_ms / 1000,
            threads=settings.policy_threads,
            on_news=self._engine_news,
            succeed=versions.succeed,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        versions.on_change = self._versions_changed

    async def start(self) -> None:
        """Begin to accept requests."""
        self._loop = asyncio.get_running_loop()
        self.engine.start()

    async def stop(self) -> None:
        """End; requests in progress fail."""
        await asyncio.to_thread(self.engine.stop)

    async def submit(self, request: ChatRequest) -> Job:
        """Queue a request's choices; wait on ``job.news`` for their results.

        Raises:
            RequestError: unknown version (404 after a wait), prompt too long (400), too many are waiting (429).
        """
        prompts = len(request.prompts) if isinstance(request, TextRequest) else 1
        if self.engine.waiting + request.choices * prompts > JOBS_WAITING_MAX:
            raise RequestError(f"{self.engine.waiting} sequences are already waiting", status=429, code="overloaded")
        version = await self._version(request.model)
        try:
            hands_back = self._settings.policy_swap == "continue" and request.returns_token_ids
            job = Job(version, request.streams, asyncio.Event(), hands_back)
            for prompt_ids in await self._prompts(request, version):
                job.generations.extend(self._generations(request, job, prompt_ids))
            self._go_on(request, job)
        except BaseException:
            self.versions.release(version)
            raise
        self.engine.submit(job)
        return job

    def decoder(self, request: ChatRequest, version: PolicyVersion) -> Decode:
        """Return how answers become text."""
        tokenizer = tokens_of(version).tokenizer
        return decoder(tokenizer, version.end_ids, reads_tool_calls=request.reads_tool_calls)

    def _generations(self, request: ChatRequest, job: Job, prompt_ids: list[int]) -> list[Generation]:
        room = job.version.positions_max - len(prompt_ids)
        if room < 1:
            raise _too_long(f"{len(prompt_ids)} tokens", job.version)
        first = len(job.generations)
        decode = self.decoder(request, job.version)
        return [
            Generation(
                job=job,
                prompt_ids=prompt_ids,
                tokens_max=min(request.tokens_max or TOKENS_DEFAULT, room),
                temperature=request.temperature,
                top_p=request.top_p,
                top_logprobs=request.top_logprobs if request.logprobs else 0,
                chance=random.Random(None if request.seed is None else f"{request.seed}:{first + index}"),  # noqa: S311  # sampling
                stop_watcher=StopWatcher(request.stops, decode) if request.stops else None,
            )
            for index in range(request.choices)
        ]

    def _go_on(self, request: ChatRequest, job: Job) -> None:
        """Give the choices what they have already, where a request goes on with an interrupted answer."""
        if request.so_far and len(request.so_far) != len(job.generations):
            message = f"{SO_FAR} has {len(request.so_far)} answers, not {len(job.generations)}"
            raise RequestError(message, parameter=SO_FAR)
        # The model's vocabulary, not the tokenizer's: a model may have more rows, and sample from all of them.
        tokens = job.version.model.config.get_text_config().vocab_size
        for generation, answer in zip(job.generations, request.so_far, strict=False):
            ids = list(answer.token_ids)
            if max(ids, default=0) >= tokens:
                message = f"token {max(ids)} is outside the model's vocabulary of {tokens}"
                raise RequestError(message, parameter=SO_FAR)
            generation.token_ids, generation.given, generation.ready = ids, len(ids), len(ids)
            generation.logprobs = [math.nan] * len(ids)
            generation.top = [[] for _ in ids] if generation.top_logprobs else []
            for _ in ids:
                generation.chance.random()
            if generation.stop_watcher is not None:
                generation.text_end = generation.stop_watcher.find(ids)
            ended = bool(ids) and (ids[-1] in job.version.end_ids or generation.text_end is not None)
            if ended or answer.is_over or len(ids) >= generation.tokens_max:
                generation.finish_reason = "stop" if ended else "length"

    async def _prompts(self, request: ChatRequest, version: PolicyVersion) -> list[list[int]]:
        """Token ids of each prompt."""
        if not isinstance(request, TextRequest):
            return [await self._prompt_ids(request, version)]
        self._check_size(sum(len(prompt) for prompt in request.prompts if isinstance(prompt, str)), version)
        return await asyncio.to_thread(lambda: [_ids_of(prompt, version) for prompt in request.prompts])

    def _check_size(self, characters: int, version: PolicyVersion) -> None:
        if characters > COMPOSED_CHARACTERS_MAX * version.positions_max * tokens_of(version).characters_max:
            raise _too_long(f"{characters:,} characters", version)

    async def _prompt_ids(self, request: ChatRequest, version: PolicyVersion) -> list[int]:
        size = sum(len(m["content"]) for m in request.messages if isinstance(m["content"], str))
        self._check_size(size, version)
        if size <= INLINE_CHARACTERS_MAX:
            return tokenize(request, version)
        return await asyncio.to_thread(tokenize, request, version)

    async def check(self, name: str) -> None:
        """Have a version of the log in memory that is called so; does not wait for one that is not in the log.

        Raises:
            RequestError: there is none (404), or its checkpoint cannot be loaded (503).
        """
        self.versions.release(await self._version(name, wait_s=0.0))

    async def _version(self, name: str, *, wait_s: float | None = None) -> PolicyVersion:
        """Hold the version of that name; waits for one that may still come."""
        wait_s = self._settings.policy_version_wait_s if wait_s is None else wait_s
        deadline = asyncio.get_running_loop().time() + wait_s
        while True:
            version = self.versions.acquire(name)
            if version is not None:
                return version
            self._changed.clear()
            refusal = self.versions.refusal(name)
            if refusal is not None:
                raise RequestError(refusal, parameter="model", status=404, code="model_refused")
            if self.versions.is_announced(name):
                return await self._load(name)
            left_s = deadline - asyncio.get_running_loop().time()
            newest = name in (NEWEST, "")
            if left_s <= 0 or (newest and self.versions.has_none) or not (newest or "@" in name):
                raise self._unknown(name, wait_s)
            try:
                await asyncio.wait_for(self._changed.wait(), left_s)
            except TimeoutError:
                continue

    async def _load(self, name: str) -> PolicyVersion:
        loading = asyncio.ensure_future(asyncio.to_thread(self.versions.load, name))
        try:
            return await asyncio.shield(loading)
        except TrainingError as error:
            raise RequestError(f"{name} cannot be served: {error}", status=503, code="version_unusable") from error
        except asyncio.CancelledError:
            loading.add_done_callback(self._let_go)
            raise

    def _let_go(self, loading: asyncio.Future[PolicyVersion]) -> None:
        """A version that was loaded for a client that disconnected."""
        if not loading.cancelled() and loading.exception() is None:
            self.versions.release(loading.result())

    def _unknown(self, name: str, wait_s: float) -> RequestError:
        if name in (NEWEST, "") and self.versions.has_none:
            return RequestError(
                "there is no model yet: start the policy server with --checkpoint PATH, or a trainer, which publishes "
                "its own",
                status=503,
                code="no_version",
            )
        known = ", ".join(self.versions.names()) or "none yet"
        waited = f" (waited {wait_s:g} s)" if wait_s and (name in (NEWEST, "") or "@" in name) else ""
        if name in (NEWEST, ""):
            return RequestError(f"no version is loaded{waited}", status=503, code="no_version")
        message = f"there is no model {name!r}; there are: {known}{waited}"
        return RequestError(message, parameter="model", status=404, code="model_not_found")

    def _engine_news(self, jobs: list[Job]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, jobs)

    def _deliver(self, jobs: list[Job]) -> None:
        for job in jobs:
            if job.reported and not job.released:
                job.released = True
                self.versions.release(job.version)
            job.news.set()

    def _versions_changed(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed.set)


def _too_long(size: str, version: PolicyVersion) -> RequestError:
    return RequestError(
        f"the prompt has {size}; {version.name} takes {version.positions_max} tokens in all, at least one of them for "
        "the answer",
        parameter="messages",
        code="context_length_exceeded",
    )


def tokens_of(version: PolicyVersion) -> Tokens:
    """The tokenizer of a loaded version."""
    assert version.tokens is not None, "the version is loaded"  # noqa: S101  # whoever holds one has loaded it
    return version.tokens


def tokenize(request: ChatRequest, version: PolicyVersion) -> list[int]:
    """The prompt as the chat template makes it, ending where the assistant's turn begins.

    Raises:
        RequestError: the template refuses the messages, or nothing comes of them, or it does not know tools.
    """
    tokenizer = tokens_of(version).tokenizer
    if request.reads_tool_calls:
        problem = how_calls_are_written(tokenizer.get_chat_template(tools=request.tools))
        if problem is not None:
            raise RequestError(
                f"the model's chat template {problem}: take a model that was trained to call tools in that form "
                "(Qwen2.5, Qwen3, Hermes). Or put vLLM with this model's tool parser behind the proxy",
                parameter="tools",
            )
    try:
        text: str = tokenizer.apply_chat_template(
            request.messages, tools=request.tools, tokenize=False, add_generation_prompt=True
        )
        ids: list[int] = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
    except TEMPLATE_ERRORS as error:
        raise RequestError(f"the chat template refuses the messages: {error}", parameter="messages") from error
    if not ids:
        raise RequestError("the prompt is empty", parameter="messages")
    return ids


def _ids_of(prompt: Prompt, version: PolicyVersion) -> list[int]:
    """A prompt's tokens, as it is: no template, nothing added.

    Raises:
        RequestError: a token id is not one of the model's.
    """
    tokenizer = tokens_of(version).tokenizer
    if isinstance(prompt, str):
        encoded: list[int] = tokenizer.backend_tokenizer.encode(prompt, add_special_tokens=False).ids
        return encoded
    if max(prompt) >= len(tokenizer):
        raise RequestError(f"token {max(prompt)} is outside the vocabulary of {len(tokenizer)}", parameter="prompt")
    return prompt
