"""``LLMProxy``: many back ends behind names, exchanged while calls are under way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeAlias

import httpx
import pytest
from starlette.responses import Response

from lightstream.producers import LLMProxy
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import LlmCall
from lightstream.schemas.types import LLM, ProxyLLM
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, chunk, completion
from tests.producers.support import read_spans
from tests.support.waiting import eventually

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TOKEN = Settings.load(proxy_token="s3cret").proxy_token

Served: TypeAlias = tuple[ScriptedUpstream, str]


@pytest.fixture
def serve(settings: Settings) -> Iterator[Callable[[str], Served]]:
    """Starts a model server that answers with a response id of its own."""
    with ExitStack() as stack:

        def start(name: str) -> Served:
            upstream = ScriptedUpstream()
            upstream.answer = lambda _: completion(id=name, model="m")
            server = HttpServer(upstream.app, settings, name=name, port=0, setting="")
            stack.callback(server.stop)
            return upstream, f"{server.start()}/v1"

        yield start


def _entry(url: str, name: str = "m", **info: Any) -> dict[str, Any]:
    params = {"model": "hosted_vllm/served", "api_base": url, "api_key": "k", "temperature": 0.7}
    return {"model_name": name, "litellm_params": params, "model_info": info}


def _calls(settings: Settings) -> list[LlmCall]:
    return [record.llm_call for record in read_spans(settings) if record.llm_call is not None]


def _url(proxy: LLMProxy, rollout_id: str = "r") -> str:
    return proxy.as_resource(rollout_id, "a").get_base_url() + "/chat/completions"


async def _ask(url: str, **changes: Any) -> httpx.Response:
    async with httpx.AsyncClient(timeout=60) as client:
        return await client.post(url, json=BODY | changes)


async def test_calls_of_one_name_are_shared_and_tell_their_version(
    settings: Settings, serve: Callable[[str], Served]
) -> None:
    (one, one_url), (two, two_url) = serve("one"), serve("two")
    listed = [
        _entry(one_url, resources_id="v7", policy_version=7),
        _entry(two_url, resources_id="v8", policy_version=8),
    ]
    proxy = LLMProxy(model_list=listed, settings=settings)
    await proxy.start()
    answers = [await _ask(_url(proxy)) for _ in range(6)]
    assert Counter(answer.json()["id"] for answer in answers) == {"one": 3, "two": 3}
    assert [asked["model"] for asked in one.asked + two.asked] == ["served"] * 6
    assert one.asked[0]["temperature"] == 0.7  # the list's, as the agent named none
    assert {call.sampling_json for call in _calls(settings)} == {'{"temperature": 0.7}'}, "as drawn"
    assert one.headers[0]["authorization"] == "Bearer k"
    assert find(settings, "proxy") is None  # the name is that of `lightstream proxy`
    assert (await asyncio.to_thread(httpx.get, f"{proxy.endpoint}/v1/models", timeout=60)).json()["data"][0][
        "id"
    ] == "m"
    await proxy.stop()
    assert not proxy.is_running()
    told = {(call.response_id, call.resources_id, call.policy_version) for call in _calls(settings)}
    assert told == {("one", "v7", 7), ("two", "v8", 8)}


async def test_the_busy_back_end_is_spared(settings: Settings, serve: Callable[[str], Served]) -> None:
    (slow, slow_url), (_, fast_url) = serve("slow"), serve("fast")
    slow.answer = lambda _: None
    proxy = LLMProxy(model_list=[_entry(slow_url), _entry(fast_url)], settings=settings)
    await proxy.start()
    hanging = asyncio.ensure_future(_ask(_url(proxy)))
    await asyncio.to_thread(eventually, lambda: slow.asked)
    assert {(await _ask(_url(proxy))).json()["id"] for _ in range(5)} == {"fast"}
    slow.go_on.set()
    assert (await hanging).status_code == 200
    await proxy.stop()


@pytest.mark.parametrize("streams", [False, True])
async def test_back_ends_are_exchanged_under_load_and_no_call_is_dropped(
    settings: Settings, serve: Callable[[str], Served], streams: bool
) -> None:
    old, old_url = serve("old")
    _, new_url = serve("new")
    old.answer = lambda _: [chunk(1, first=True), None, chunk(2, finish_reason="stop")] if streams else None
    proxy = LLMProxy(model_list=[_entry(old_url, resources_id="v1")], settings=settings)
    await proxy.start()
    before = [asyncio.ensure_future(_ask(_url(proxy, f"old{n}"), stream=streams)) for n in range(20)]
    await asyncio.to_thread(eventually, lambda: len(old.asked) == 20)
    proxy.update_model_list([_entry(new_url, resources_id="v2")])
    after = await asyncio.gather(*(_ask(_url(proxy, f"new{n}")) for n in range(20)))
    old.go_on.set()
    answers = [*await asyncio.gather(*before), *after]
    await proxy.stop()
    assert {answer.status_code for answer in answers} == {200}
    recorded = {record.rollout_id: record.llm_call for record in read_spans(settings)}
    assert len(recorded) == 40
    for rollout_id, call in recorded.items():
        assert call is not None
        assert call.error_message is None
        assert call.resources_id == ("v1" if str(rollout_id).startswith("old") else "v2")


async def test_a_failing_call_is_tried_elsewhere_and_recorded_once(
    settings: Settings, serve: Callable[[str], Served]
) -> None:
    (bad, bad_url), (_, good_url) = serve("bad"), serve("good")
    bad.answer = lambda _: Response('{"error": {"message": "no"}}', 503)
    nobody = "http://127.0.0.1:9/v1"
    proxy = LLMProxy(model_list=[_entry(nobody), _entry(bad_url), _entry(good_url)], num_retries=2, settings=settings)
    await proxy.start()
    assert {(await _ask(_url(proxy))).json()["id"] for _ in range(4)} == {"good"}
    proxy.update_model_list([_entry(bad_url)])
    tries_before = len(bad.asked)
    refused = await _ask(_url(proxy))
    assert (refused.status_code, refused.json()["error"]["message"]) == (503, "no")
    assert len(bad.asked) - tries_before == 3
    bad.answer = lambda _: Response('{"error": {"message": "what?"}}', 400)
    assert (await _ask(_url(proxy))).status_code == 400  # no other try would help
    assert len(bad.asked) - tries_before == 4
    await proxy.stop()
    assert [call.http_status for call in _calls(settings)] == [200] * 4 + [503, 400]


async def test_a_name_that_is_not_listed_is_refused_and_recorded(
    settings: Settings, serve: Callable[[str], Served]
) -> None:
    _, url = serve("one")
    proxy = LLMProxy(model_list=[_entry(url)], settings=settings)
    await proxy.start()
    answer = await _ask(_url(proxy), model="n")
    assert answer.status_code == 404
    assert "there are: m" in answer.json()["error"]["message"]
    await proxy.stop()
    assert [call.http_status for call in _calls(settings)] == [404]


async def test_a_resource_is_bound_to_an_attempt_or_by_the_runner(settings: Settings) -> None:
    named = [_entry("http://x/v1"), _entry("http://y/v1")]
    proxy = LLMProxy(model_list=named, settings=settings.model_copy(update={"proxy_token": TOKEN}))
    with pytest.raises(RuntimeError, match="start"):
        proxy.as_resource()
    await proxy.start()
    free = proxy.as_resource(sampling_parameters={"temperature": 0.5})
    assert isinstance(free, ProxyLLM)
    assert (free.model, free.api_key, free.sampling_parameters) == ("m", "s3cret", {"temperature": 0.5})
    bound = proxy.as_resource("r", "a", model="other")
    assert type(bound) is LLM
    assert bound.endpoint == free.get_base_url("r", "a")
    assert bound.endpoint == f"{proxy.endpoint}/rollout/r/attempt/a/v1"
    assert bound.model == "other"
    with pytest.raises(ValueError, match="give both rollout_id and attempt_id"):
        proxy.as_resource("r")
    proxy.update_model_list([*named, _entry("http://z/v1", name="n")])
    with pytest.raises(ValueError, match="m, n"):
        proxy.as_resource()
    await proxy.restart()
    assert proxy.is_running()
    await proxy.stop()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"model_name": "m"}, "litellm_params"),
        ({"model_name": "m", "litellm_params": {}}, "names no model"),
        ({"model_name": "m", "litellm_params": {"model": "openai/x", "api_key": "os.environ/NOT_SET_HERE"}}, "NOT_SET"),
        ({"model_name": "m", "litellm_params": {"model": "openai/x", "rpm": 3}}, "rpm"),
    ],
)
def test_a_list_that_is_none_is_refused_and_changes_nothing(
    settings: Settings, entry: dict[str, Any], said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        LLMProxy(model_list=[entry], settings=settings)
    proxy = LLMProxy(model_list=[_entry("http://x/v1")], settings=settings)
    with pytest.raises(SettingsError, match=said):
        proxy.update_model_list([entry])
    assert proxy.model_list == [_entry("http://x/v1")]


def test_litellm_s_configuration_is_read_or_refused(settings: Settings) -> None:
    proxy = LLMProxy(litellm_config={"model_list": [_entry("http://x/v1")]}, settings=settings)
    assert proxy.model_list == [_entry("http://x/v1")]
    LLMProxy(litellm_config={"litellm_settings": {"num_retries": 3}}, settings=settings)
    with pytest.raises(SettingsError, match="router_settings"):
        LLMProxy(litellm_config={"router_settings": {}}, settings=settings)


async def test_other_providers_are_asked_by_litellm(settings: Settings, serve: Callable[[str], Served]) -> None:
    upstream, url = serve("claude")
    upstream.answer = lambda _: {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 1},
    }
    params = {"model": "anthropic/claude-x", "api_base": url.removesuffix("/v1"), "api_key": "k"}
    proxy = LLMProxy(model_list=[{"model_name": "m", "litellm_params": params}], settings=settings)
    await proxy.start()
    answer = await _ask(_url(proxy), max_tokens=5)
    assert answer.json()["choices"][0]["message"]["content"] == "hello"
    assert upstream.asked[0]["model"] == "claude-x"
    await proxy.stop()
    assert [call.error_message for call in _calls(settings)] == [None]
