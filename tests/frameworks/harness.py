"""Runs a framework's agent as users do, and compares what became of its calls with the model server's own record."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lightstream.producers import LitAgent, Runner
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import (
    AttemptClosed,
    AttemptOpened,
    AttemptStatus,
    NoteReason,
    RolloutSpec,
    RolloutStatus,
    SpanRecord,
    Trajectory,
)
from lightstream.schemas.types import EnqueueRolloutRequest, ProxyLLM
from lightstream.stream_processors.core.assembly import Assembler
from tests.frameworks.model_server import ModelServer, task_of
from tests.frameworks.processes import PYTHON, ServerProcess
from tests.producers.support import ListStore, read_spans

PROXY = """
from lightstream.producers.llm_proxy import run
from lightstream.runtime.settings import Settings
run(Settings.load())
"""

ROLLOUTS = ("r0", "r1")
"""Two at once: the model servers hold their first answers back until both have asked."""


@dataclass(slots=True)
class Seen:
    """What was recorded of the rollouts.

    Attributes:
        trajectories: rollout -> its trajectory, by the assembler, from the log.
        spans: the whole log.
    """

    trajectories: dict[str, Trajectory]
    spans: list[SpanRecord]

    def named(self, name: str) -> list[SpanRecord]:
        """The spans of that name."""
        return [span for span in self.spans if span.name == name]


class Arena:
    """A proxy before a model server, and Runners of agents that ask it.

    Args:
        settings: topics of the test's own.
        model: the model server.
    """

    def __init__(self, settings: Settings, model: ModelServer) -> None:
        self.model = model
        self._settings = settings
        self._stack = ExitStack()
        self.url = ""

    def __enter__(self) -> Self:
        upstream = HttpServer(self.model.app, self._settings, name="upstream")
        self._stack.callback(upstream.stop)
        settings = self._settings.model_copy(update={"llm_upstream_url": f"{upstream.start()}/v1"})
        if sys.executable != PYTHON:
            self.url = self._stack.enter_context(ServerProcess(settings, "proxy", PROXY)).url
            return self
        from lightstream.producers.llm_proxy import llm_proxy  # agents' environments lack what it needs

        proxy = llm_proxy(settings)
        self._stack.callback(proxy.stop)
        self.url = proxy.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def folder(self) -> Path:
        """For files of the test."""
        return Path(self._settings.data_dir)

    def run(self, agent: LitAgent[Any], *, instrument: bool | Sequence[str] = True) -> Seen:
        """Run the agent on a task in two rollouts at once, by a Runner that instruments what is installed.

        Raises:
            AssertionError: an attempt failed.
        """
        store = ListStore()

        async def main() -> None:
            llm = ProxyLLM(endpoint=f"{self.url}/v1", model="policy", api_key="none")
            await store.update_resources("latest", {"llm": llm})
            await store.enqueue_many_rollouts(
                [EnqueueRolloutRequest(input=task_of(name), rollout_id=name) for name in ROLLOUTS]
            )
            runner = Runner(store, agent, settings=self._settings, n_concurrent=len(ROLLOUTS), instrument=instrument)
            await runner.run(max_rollouts=len(ROLLOUTS))

        asyncio.run(main())
        failed = {name: ended for name, ended in store.ended.items() if not ended[0]}
        assert not failed, failed
        return self.seen()

    def seen(self) -> Seen:
        """What the log tells now."""
        spans = read_spans(self._settings)
        return Seen({name: _assembled(name, spans) for name in ROLLOUTS}, spans)

    def check(
        self,
        seen: Seen,
        *,
        calls: int | Mapping[str, int],
        agents: Sequence[str | None] | None = None,
        choices: int = 1,
        bystanders: int = 0,
        joined: bool = True,
    ) -> None:
        """Every call of the model server is there once, in its rollout, with the server's own tokens.

        And a span of the framework is joined to each, unless it makes none (``joined``).

        Args:
            seen: what became of the rollouts.
            calls: how many calls each rollout makes.
            agents: whose the calls of each rollout are, in order.
            choices: of each call.
            bystanders: spans of each rollout that call themselves LLM calls and are none.

        Raises:
            AssertionError: anything differs, was dropped, or could not be attributed.
        """
        for rollout_id, trajectory in seen.trajectories.items():
            triplets = trajectory.triplets
            answers = [given for given in self.model.given if given.rollout_id == rollout_id]
            wanted = calls if isinstance(calls, int) else calls[rollout_id]
            assert len(answers) == wanted, f"{rollout_id} made {len(answers)} calls, {wanted} were meant"
            given = [
                (pack_int32(answer.prompt_ids), pack_int32(ids), pack_float32(answer.logprobs[index]))
                for answer in answers
                for index, ids in answer.response_ids.items()
            ]
            told = [(t.prompt_token_ids, t.response_token_ids, t.response_logprobs) for t in triplets]
            assert Counter(told) == Counter(given)
            assert trajectory.drops == []
            assert trajectory.call_count == wanted * choices
            assert {triplet.dialect for triplet in triplets} == {"proxy"}
            alone = [triplet.response_id for triplet in triplets if not triplet.joined_span_ids]
            assert len(alone) == (0 if joined else wanted), (
                f"no framework's span was joined to {alone}: {_shown(seen, rollout_id)}"
            )
            strays = sum(note.count for note in trajectory.notes if note.reason is NoteReason.UNATTRIBUTED_CALL)
            assert strays == bystanders, _shown(seen, rollout_id)
            if agents is not None:
                assert [triplet.agent_name for triplet in triplets] == list(agents), _shown(seen, rollout_id)
        assert {given.rollout_id for given in self.model.given} == set(seen.trajectories)


def _assembled(rollout_id: str, spans: Sequence[SpanRecord]) -> Trajectory:
    """The trajectory of a rollout's only attempt, by the assembler itself, which is given everybody's spans."""
    attempt_id = f"{rollout_id}-a1"
    opened = AttemptOpened(
        rollout=RolloutSpec(rollout_id=rollout_id), attempt_id=attempt_id, attempt_sequence=1, opened_unix_nano=1
    )
    closed = AttemptClosed(
        rollout_id=rollout_id,
        attempt_id=attempt_id,
        attempt_sequence=1,
        status=AttemptStatus.SUCCEEDED,
        rollout_status=RolloutStatus.SUCCEEDED,
        final=True,
        closed_unix_nano=2,
    )
    records: list[SpanRecord | AttemptOpened | AttemptClosed] = [opened, *spans, closed]
    (trajectory,) = Assembler().on_records((record, offset) for offset, record in enumerate(records))
    return trajectory


def _shown(seen: Seen, rollout_id: str) -> str:
    """The rollout's spans as a tree, for those who look into why a test failed."""
    spans = sorted((s for s in seen.spans if s.rollout_id == rollout_id), key=lambda span: span.start_unix_nano)
    children: dict[str | None, list[SpanRecord]] = {}
    known = {span.span_id for span in spans}
    for span in spans:
        children.setdefault(span.parent_id if span.parent_id in known else None, []).append(span)
    lines: list[str] = []

    def show(span: SpanRecord, depth: int) -> None:
        kind = span.attributes.get("openinference.span.kind", "")
        response = span.llm_call.response_id if span.llm_call else span.attributes.get("gen_ai.response.id", "")
        lines.append(f"{'  ' * depth}{span.name} [{span.scope_name}] {kind} {response}")
        for child in children.get(span.span_id, []):
            show(child, depth + 1)

    for root in children.get(None, []):
        show(root, 0)
    return "\n" + "\n".join(lines)
