"""What agents ask beside completions: embeddings, one model, compressed bodies, paths that are not there."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import httpx
import openai
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lightstream.producers import LLMProxy
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import AttemptClosed, AttemptOpened, DropReason, SpanRecord
from lightstream.stream_processors.core.assembly import Assembler
from tests.producers.llm_proxy.recorded import only_record
from tests.producers.llm_proxy.upstreams import ScriptedUpstream
from tests.producers.support import read_spans
from tests.stream_processors.assembly.build import closed, opened

PATH = "/rollout/r/attempt/r-a1/v1"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
VECTORS = {
    "object": "list",
    "model": "e",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -1.0]}],
    "usage": {"prompt_tokens": 3, "total_tokens": 3},
}


@pytest.fixture(autouse=True)
def more_routes(upstream: ScriptedUpstream) -> None:
    async def embeddings(request: Request) -> Response:
        upstream.asked.append(await request.json())
        return Response(json.dumps(upstream.answer(None)), media_type="application/json")

    async def model(request: Request) -> Response:
        return Response(json.dumps({"id": request.path_params["name"]}), media_type="application/json")

    upstream.app.routes.append(Route("/v1/embeddings", embeddings, methods=["POST"]))
    upstream.app.routes.append(Route("/v1/models/{name:path}", model, methods=["GET"]))


def test_embeddings_are_passed_on_and_recorded_as_calls_that_do_not_train(
    proxy_url: str, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: VECTORS
    client = openai.OpenAI(base_url=proxy_url + PATH, api_key="none", max_retries=0)
    answer = client.embeddings.create(model="e", input="hi", encoding_format="float")
    assert answer.data[0].embedding == [0.5, -1.0]
    assert upstream.asked == [{"model": "e", "input": "hi", "encoding_format": "float"}]
    (record,) = read_spans(settings)
    assert record.attributes["gen_ai.operation.name"] == "embeddings"
    assert record.attributes["gen_ai.usage.input_tokens"] == 3
    assert record.llm_call is not None
    assert (record.llm_call.http_status, record.llm_call.response_model) == (200, "e")
    log: list[tuple[SpanRecord | AttemptOpened | AttemptClosed, int]] = [
        (opened("r"), 0),
        (record, 1),
        (closed("r"), 2),
    ]
    (trajectory,) = Assembler().on_records(log)
    assert [(drop.reason, "embedding" in drop.detail) for drop in trajectory.drops] == [
        (DropReason.EMPTY_RESPONSE, True)
    ]


def test_an_embedding_that_failed_is_a_call_that_failed(
    proxy_url: str, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: {"error": {"message": "no such model", "code": 404}}
    answer = httpx.post(f"{proxy_url}{PATH}/embeddings", json={"model": "e", "input": "hi"}, timeout=60)
    assert (answer.status_code, "no such model" in answer.text) == (404, True)
    (record,) = read_spans(settings)
    assert record.llm_call is not None
    assert record.llm_call.http_status == 404


@pytest.mark.parametrize("name", ["m", "org/m@3"])
def test_one_model_is_asked_for(proxy_url: str, name: str) -> None:
    client = openai.OpenAI(base_url=proxy_url + PATH, api_key="none", max_retries=0)
    assert client.models.retrieve(name).id == name


async def test_one_model_of_a_list(settings: Settings) -> None:
    proxy = LLMProxy(0, [{"model_name": "a/b", "litellm_params": {"model": "openai/x"}}], settings=settings)
    await proxy.start()
    async with httpx.AsyncClient(base_url=proxy.endpoint, timeout=60) as client:
        known, unknown = await client.get("/v1/models/a/b"), await client.get("/v1/models/c")
    await proxy.stop()
    assert known.json()["id"] == "a/b"
    assert (unknown.status_code, "there are: a/b" in unknown.text) == (404, True)


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes), ("", bytes)]
)
def test_a_compressed_request_is_read(
    proxy_url: str, upstream: ScriptedUpstream, settings: Settings, encoding: str, pack: Any
) -> None:
    headers = {"content-encoding": encoding} if encoding else {}
    url = f"{proxy_url}/rollout/r/attempt/a/v1/chat/completions"
    answer = httpx.post(url, content=pack(json.dumps(BODY).encode()), headers=headers, timeout=60)
    assert answer.status_code == 200
    assert upstream.asked[0]["messages"] == BODY["messages"]
    _, call = only_record(settings)
    assert json.loads(call.request_json or "")["messages"] == BODY["messages"]


@pytest.mark.parametrize(
    ("content", "headers", "status", "said"),
    [
        (b"x", {"content-encoding": "br"}, 415, "gzip, deflate"),
        (b"x", {"content-encoding": "gzip"}, 400, "is not gzip"),
        (b'{"messages": [{"content": "a \\ud83d"}]}', {}, 400, "messages[0].content"),
        (b'{"messages": [{"content": "a \\ud83d\\ude00"', {}, 400, "not JSON"),
        (b"[]", {}, 400, "not a JSON object"),
    ],
)
@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages", "embeddings"])
def test_a_body_that_cannot_be_read_is_named(
    proxy_url: str,
    upstream: ScriptedUpstream,
    settings: Settings,
    path: str,
    content: bytes,
    headers: dict[str, str],
    status: int,
    said: str,
) -> None:
    answer = httpx.post(f"{proxy_url}{PATH}/{path}", content=content, headers=headers, timeout=60)
    assert (answer.status_code, said in answer.json()["error"]["message"]) == (status, True)
    assert upstream.asked == []
    (record,) = read_spans(settings)
    assert record.llm_call is not None
    assert record.llm_call.http_status == status


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/rerank"), ("GET", "/v1/chat/completions")])
def test_a_path_that_is_not_there_names_those_that_are(proxy_url: str, method: str, path: str) -> None:
    answer = httpx.request(method, proxy_url + path, timeout=60)
    assert answer.status_code in (404, 405)
    for known in ("/v1/chat/completions", "/v1/embeddings", "/v1/messages"):
        assert known in answer.json()["error"]["message"]
