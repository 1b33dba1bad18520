"""One attempt from dequeued to reported."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import ReadableSpan

from lightstream.runtime.http.attempt_keys import attempt_key
from lightstream.runtime.logs import logged_ids
from lightstream.schemas.errors import LightstreamError, NotFoundError, PublishError, ServiceUnavailableError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import AttemptedRollout, NamedResources, ProxyLLM, Span, SpanCoreFields

from ..agent import LitAgent
from ..context import AttemptRef
from ..emitter import emit_reward
from ..tracer import OtelTracer
from .daemon_thread import call_in_thread
from .hooks import Hook, call_hook
from .outcome import Outcome
from .primary import primary_key_of

if TYPE_CHECKING:
    from .runner import Runner

logger = logging.getLogger(__name__)

CANCEL_GRACE_S = 5.0
"""A cancelled agent may clean up for this long before it is abandoned."""

LATEST_RESOURCES_WAIT_S = 1.0
"""A rollout that names no resources runs without any if none were ever published."""

NAMED_RESOURCES_WAIT_S = 10.0
"""Resources may be published after the rollout that names them."""

REPORT_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Between tries, each of which waits for Kafka by itself: a broker's restart passes."""


async def _call_agent(
    agent: LitAgent[Any], rollout: AttemptedRollout, resources: NamedResources, timeout_s: float | None
) -> Outcome:
    """Run one attempt.

    An asynchronous agent is cancelled at the deadline; a synchronous one cannot be stopped, so it is left behind in
    its (daemon) thread. ``SystemExit``, ``KeyboardInterrupt`` and ``CancelledError`` raised by the agent are failures
    of this attempt and of nothing else. If the caller is cancelled, so is the agent.
    """
    training = rollout.mode == "train"
    if agent.is_async():
        method = agent.training_rollout_async if training else agent.validation_rollout_async
        running: asyncio.Future[Outcome] = asyncio.create_task(_guarded(method(rollout.input, resources, rollout)))
    else:
        call = agent.training_rollout if training else agent.validation_rollout
        running = call_in_thread(
            lambda: call(rollout.input, resources, rollout), f"rollout-{rollout.attempt.attempt_id}"
        )
    try:
        await asyncio.wait({running}, timeout=timeout_s)
    except asyncio.CancelledError:
        await _stop(running)
        raise
    if running.done():
        return running.result()
    await _stop(running)
    return Outcome.of_timeout(timeout_s or 0.0)


async def _guarded(coroutine: Coroutine[Any, Any, Any]) -> Outcome:
    try:
        return Outcome(await coroutine)
    except BaseException as error:  # noqa: BLE001  # recorded as the attempt's failure; the Runner must outlive it
        return Outcome.of_error(error)


async def _stop(running: asyncio.Future[Outcome]) -> None:
    running.cancel()
    _, pending = await asyncio.wait({running}, timeout=CANCEL_GRACE_S)
    if pending:
        logger.warning("an agent kept running after it was cancelled; it is abandoned.")


class AttemptRunner:
    """Runs attempts of one agent. Stateless between attempts."""

    def __init__(
        self,
        runner: Runner,
        store: LightningStore,
        agent: LitAgent[Any],
        tracer: OtelTracer,
        hooks: Sequence[Hook],
        *,
        default_timeout_s: float,
        secret: bytes | None = None,
    ) -> None:
        self._secret = secret
        self._runner = runner
        self._store = store
        self._agent = agent
        self._tracer = tracer
        self._hooks = hooks
        self._default_timeout_s = default_timeout_s

    async def run(self, rollout: AttemptedRollout) -> Outcome:
        """Run one attempt and report its end. Whatever the agent does, this returns; only a cancel gets through."""
        with logged_ids(
            run_id=rollout.run_id or "", rollout_id=rollout.rollout_id, attempt_id=rollout.attempt.attempt_id
        ):
            return await self._run(rollout)

    async def _run(self, rollout: AttemptedRollout) -> Outcome:
        try:
            outcome = await self._traced(rollout)
        except asyncio.CancelledError as error:
            await asyncio.shield(self._finish(rollout, Outcome.of_error(error)))
            raise
        except Exception as error:  # noqa: BLE001  # recorded as the attempt's failure (hooks, resources)
            outcome = Outcome.of_error(error)
        return await self._finish(rollout, outcome)

    async def _traced(self, rollout: AttemptedRollout) -> Outcome:
        agent, runner, tracer = self._agent, self._runner, self._tracer
        for hook in self._hooks:
            await call_hook(hook.on_rollout_start, agent=agent, runner=runner, rollout=rollout)
        resources = await self._resources(rollout)
        attempt_id = rollout.attempt.attempt_id
        with tracer.trace_context(rollout_id=rollout.rollout_id, attempt_id=attempt_id, flush=False):
            for hook in self._hooks:
                await call_hook(hook.on_trace_start, agent=agent, runner=runner, tracer=tracer, rollout=rollout)
            timeout_s = rollout.config.timeout_seconds or self._default_timeout_s
            outcome = await _call_agent(agent, rollout, resources, timeout_s)
            if outcome.succeeded and isinstance(outcome.result, list):
                await self._keep_spans(rollout, outcome.result)
            elif outcome.succeeded:
                _emit_result(outcome.result)
            for hook in self._hooks:
                await call_hook(
                    hook.on_trace_end, agent=agent, runner=runner, tracer=tracer, rollout=rollout, outcome=outcome
                )
        return outcome

    async def _keep_spans(self, rollout: AttemptedRollout, spans: list[Any]) -> None:
        """Keep the spans that an agent returned, which were made elsewhere: ours, their fields, or the SDK's.

        Raises:
            TypeError: they are something else.
        """
        place = (rollout.rollout_id, rollout.attempt.attempt_id)
        if all(isinstance(span, ReadableSpan) for span in spans):
            for span in spans:
                await self._store.add_otel_span(*place, span)
        elif all(isinstance(span, Span) for span in spans):
            await self._store.add_many_spans(spans)
        elif all(isinstance(span, SpanCoreFields) for span in spans):
            numbers = await self._store.get_many_span_sequence_ids([place] * len(spans))
            converted = [
                Span.from_core_fields(span, rollout_id=place[0], attempt_id=place[1], sequence_id=number)
                for span, number in zip(spans, numbers, strict=True)
            ]
            await self._store.add_many_spans(converted)
        else:
            kinds = ", ".join(sorted({type(span).__name__ for span in spans}))
            raise TypeError(
                f"an agent returns its reward, None, or a list of spans; this one returned a list of {kinds}"
            )

    async def _finish(self, rollout: AttemptedRollout, outcome: Outcome) -> Outcome:
        """Make the spans durable, then report the end: a success whose spans are lost does not count."""
        attempt = AttemptRef(rollout.rollout_id, rollout.attempt.attempt_id)
        try:
            await asyncio.to_thread(self._tracer.flush, attempt)
        except PublishError as error:
            logger.error("%s", error)
            outcome = Outcome.of_error(error) if outcome.succeeded else outcome
        await self._report(rollout, outcome)
        for hook in self._hooks:
            try:
                await call_hook(
                    hook.on_rollout_end,
                    agent=self._agent,
                    runner=self._runner,
                    rollout=rollout,
                    outcome=outcome,
                    spans=[s for s in self._tracer.get_last_trace() if s.attempt_id == attempt.attempt_id],
                )
            except Exception:
                logger.exception("on_rollout_end of %s failed.", type(hook).__name__)
        return outcome

    async def _resources(self, rollout: AttemptedRollout) -> NamedResources:
        """The resources the rollout names, or the latest.

        Raises:
            NotFoundError: those it names do not appear.
        """
        if rollout.resources_id is None:
            latest = await self._store.get_latest_resources(timeout_s=LATEST_RESOURCES_WAIT_S)
            return {} if latest is None else self._for_attempt(latest.resources, rollout)
        named = await self._store.get_resources_by_id(rollout.resources_id, timeout_s=NAMED_RESOURCES_WAIT_S)
        if named is None:
            raise NotFoundError(f"Resources {rollout.resources_id} not found within {NAMED_RESOURCES_WAIT_S:g} s")
        return self._for_attempt(named.resources, rollout)

    def _for_attempt(self, resources: NamedResources, rollout: AttemptedRollout) -> NamedResources:
        """Proxied models as the rollout's mode has them, with a key where they have none and the proxy asks for one."""
        key = None
        if self._secret is not None:
            key = attempt_key(self._secret, rollout.rollout_id, rollout.attempt.attempt_id)
        found: dict[str, Any] = {}
        for name, resource in resources.items():
            if isinstance(resource, ProxyLLM):
                model = resource.for_mode(rollout.mode)
                found[name] = model if model.api_key is not None else model.model_copy(update={"api_key": key})
            else:
                found[name] = resource
        return found

    async def _report(self, rollout: AttemptedRollout, outcome: Outcome) -> None:
        """Tell the store. If that cannot be done, the life cycle ends the attempt by its own timers."""
        for pause_s in (*REPORT_PAUSES_S, None):
            try:
                await self._store.update_attempt(
                    rollout.rollout_id,
                    rollout.attempt.attempt_id,
                    outcome.status,
                    error_type=outcome.error_type,
                    error_message=outcome.error_message,
                )
                return
            except (PublishError, ServiceUnavailableError) as error:
                logger.warning("the end of attempt %s was not accepted yet: %s", rollout.attempt.attempt_id, error)
                if pause_s is not None:
                    await asyncio.sleep(pause_s)
            except LightstreamError:
                logger.exception("the end of attempt %s was refused.", rollout.attempt.attempt_id)
                return
        logger.error("the end of attempt %s could not be reported; its timers will end it.", rollout.attempt.attempt_id)


def _emit_result(result: Any) -> None:
    """Emit an agent's result as a reward.

    Raises:
        TypeError: it is not a reward.
    """
    if result is None:
        return
    if isinstance(result, Mapping):
        emit_reward(result, primary_key=primary_key_of(result))
        return
    try:
        emit_reward(result)
    except TypeError as error:
        raise TypeError(f"an agent returns its reward or None; this one returned {result!r:.200}") from error
