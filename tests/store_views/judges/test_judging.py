"""Judging on a real broker, worker and view: groups, rollouts without text, and attempts that are over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import LlmCall
from lightstream.schemas.topics import SPANS
from lightstream.schemas.types import EnqueueRolloutRequest
from lightstream.store_views.client import ViewClient
from lightstream.store_views.judges import JudgeModel, Judging, JudgingReport, Rubric
from lightstream.store_views.stores import KafkaLightningStore
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, completion
from tests.store_views.view_process import running_view
from tests.stream_processors.assembly.build import proxy_span
from tests.stream_processors.worker.harness import WorkerProcess
from tests.support.waiting import eventually

SILENT, TOO_LONG = "silent", "too long"


async def ended(settings: Settings, groups: dict[str, list[str]]) -> None:
    """Run rollouts to their end, named ``<group>-<number>``; each says its text, but for :data:`SILENT` ones."""
    store = KafkaLightningStore(settings)
    await store.start()
    publisher = KafkaPublisher(settings)
    texts = {f"{group}-{i}": text for group, said in groups.items() for i, text in enumerate(said)}
    await store.enqueue_many_rollouts(
        [
            EnqueueRolloutRequest(
                input=group, mode="train", rollout_id=f"{group}-{i}", run_id="j", group_id=group, group_size=len(said)
            )
            for group, said in groups.items()
            for i in range(len(said))
        ]
    )
    for _ in texts:
        taken = await store.dequeue_rollout(run_id="j")
        while taken is None:
            taken = await store.dequeue_rollout(run_id="j")
        text = texts[taken.rollout_id]
        call = proxy_span(1, rollout_id=taken.rollout_id, trace_id=f"{list(texts).index(taken.rollout_id) + 1:032x}")
        assert call.llm_call is not None
        says = {
            "request_json": json.dumps({"messages": [{"role": "user", "content": "?"}]}),
            "response_json": json.dumps({"role": "assistant", "content": text}),
        }
        said = call.llm_call if text == SILENT else LlmCall.model_copy(call.llm_call, update=says)
        call = call.model_copy(update={"attempt_id": taken.attempt.attempt_id, "llm_call": said})
        await asyncio.wrap_future(publisher.publish(SPANS, taken.rollout_id, call))
        await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")
    publisher.close()
    await store.close()


@pytest.fixture
def judge() -> ScriptedUpstream:
    """Scores a work by the number that it says."""

    def answer(request: Any) -> Any:
        shown = request["messages"][1]["content"]
        if TOO_LONG in shown:
            return Response("context length exceeded", 400)
        works = [json.loads(line) for line in shown.split("\n")[1:-1]]
        if "scores" in request["messages"][0]["content"]:
            said = {name: work["conversation"][-1]["content"] for one in works for name, work in one.items()}
            return answered({"scores": {name: float(text) for name, text in said.items()}})
        return answered({"score": float(works[0]["conversation"][-1]["content"])})

    upstream = ScriptedUpstream()
    upstream.answer = answer
    return upstream


def answered(verdict: Any) -> dict[str, Any]:
    made = completion()
    made["choices"][0]["message"]["content"] = json.dumps(verdict)
    return made


@pytest.fixture
def url(judge: ScriptedUpstream, settings: Settings) -> Iterator[str]:
    server = HttpServer(judge.app, settings, name="judge", port=0, setting="")
    yield f"{server.start()}/v1"
    server.stop()


def test_each_rollout_that_can_be_judged_is_and_the_others_are_named(
    settings: Settings, judge: ScriptedUpstream, url: str, tmp_path: Path
) -> None:
    groups = {"a": ["0.5", "1", SILENT, "0.5"], "b": ["0.25", TOO_LONG], "c": ["0", "0.75"]}
    with WorkerProcess(settings), running_view(settings):
        asyncio.run(ended(settings, groups))
        view = ViewClient(settings)
        final = "SELECT count(*) FROM trajectories WHERE final"
        eventually(
            lambda: view.query(final, "now").scalar() == sum(map(len, groups.values())), what="all are assembled"
        )

        def judged(name: str, *, relative: bool) -> JudgingReport:
            model = JudgeModel("m", url, "", tmp_path / "answers.sqlite")
            report = Judging(view, model, Rubric(relative=relative), name=name, run_id="j").run(once=True)
            model.close()
            return report

        def scores(name: str) -> dict[str, float]:
            rows = view.query("SELECT rollout_id, value FROM scores WHERE name = ?", "now", params=[name]).rows
            return {str(row[0]): float(row[1]) for row in rows}

        report = judged("each", relative=False)
        assert scores("each") == {"a-0": 0.5, "a-1": 1.0, "a-3": 0.5, "b-0": 0.25, "c-0": 0.0, "c-1": 0.75}
        assert report.judged == 6
        assert report.unreadable.keys() == {"a-2", "b-1"}
        assert "no text" in report.unreadable["a-2"]
        assert "context length exceeded" in report.unreadable["b-1"]

        report = judged("best", relative=True)
        assert scores("best") == {"a-0": 0.5, "a-1": 1.0, "a-3": 0.5, "c-0": 0.0, "c-1": 0.75}
        assert report.unreadable.keys() == {"a-2", "b-0", "b-1"}
        asked = len(judge.asked)
        assert judged("best", relative=True).judged == 0
        assert len(judge.asked) == asked + 1, "the group that is too long is tried once more, and nothing else"

        (refused,) = view.feedback([{"rollout_id": "c-0", "attempt_id": "c-0-a0", "score": 1}])
        assert "is not the last attempt" in refused["error"]["message"]
        view.close()
