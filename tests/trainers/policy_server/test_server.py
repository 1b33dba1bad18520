"""The policy server as OpenAI's SDK sees it."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.trainers.servers.cpu import create_app, policy_server
from lightstream.trainers.servers.cpu.checkpoint import load_tokenizer
from tests.support.waiting import eventually
from tests.trainers.policy_server.support import best_logprobs, new_versions, reference_logprobs

EXTRAS = {"return_token_ids": True}
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def server(checkpoints: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    settings = Settings.load(data_dir=tmp_path_factory.mktemp("policy"), policy_version_wait_s=0.1)
    server = policy_server(settings, checkpoint=checkpoints[0], follows_resources=False)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def client(server: HttpServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def _ask(client: openai.OpenAI, text: str = "hi", **parameters: Any) -> ChatCompletion:
    arguments: dict[str, Any] = {"model": "policy", "max_tokens": 8, "messages": [{"role": "user", "content": text}]}
    answer = client.chat.completions.create(**(arguments | parameters))
    assert isinstance(answer, ChatCompletion)
    return answer


def _extra(thing: Any, name: str) -> Any:
    return (thing.model_extra or {}).get(name)


def test_token_ids_logprobs_and_text_belong_together(client: openai.OpenAI, checkpoints: list[Path]) -> None:
    answer = _ask(client, "say 7", logprobs=True, extra_body=EXTRAS)
    (choice,) = answer.choices
    tokenizer = load_tokenizer(checkpoints[0])
    messages = [{"role": "user", "content": "say 7"}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert _extra(answer, "prompt_token_ids") == prompt
    token_ids = _extra(choice, "token_ids")
    assert choice.message.content == tokenizer.decode(token_ids, skip_special_tokens=True)
    assert choice.logprobs is not None
    logprobs = [entry.logprob for entry in choice.logprobs.content or []]
    assert logprobs == pytest.approx(reference_logprobs(checkpoints[0], prompt, token_ids).tolist(), abs=TOLERANCE)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(prompt), len(token_ids))
    assert answer.model == "policy@0"
    assert choice.finish_reason in ("stop", "length")


def test_nothing_is_added_that_was_not_asked_for(client: openai.OpenAI) -> None:
    answer = _ask(client)
    assert answer.choices[0].logprobs is None
    assert _extra(answer, "prompt_token_ids") is None
    assert _extra(answer.choices[0], "token_ids") is None


def test_a_stream_says_what_the_whole_answer_says(client: openai.OpenAI) -> None:
    whole = _ask(client, seed=3, max_tokens=40, logprobs=True, extra_body=EXTRAS)
    stream = client.chat.completions.create(
        model="policy",
        messages=[{"role": "user", "content": "hi"}],
        seed=3,
        max_tokens=40,
        logprobs=True,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=EXTRAS,
    )
    chunks = list(stream)
    pieces = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(piece.delta.content or "" for piece in pieces) == whole.choices[0].message.content
    token_ids = [token for piece in pieces for token in _extra(piece, "token_ids")]
    assert token_ids == _extra(whole.choices[0], "token_ids")
    entries = [entry for piece in pieces if piece.logprobs for entry in piece.logprobs.content or []]
    assert whole.choices[0].logprobs is not None
    expected = [entry.logprob for entry in whole.choices[0].logprobs.content or []]
    assert [entry.logprob for entry in entries] == pytest.approx(expected, abs=TOLERANCE)
    assert _extra(chunks[0], "prompt_token_ids") == _extra(whole, "prompt_token_ids")
    assert [piece.finish_reason for piece in pieces][-1] == whole.choices[0].finish_reason
    assert chunks[-1].usage == whole.usage
    assert len({chunk.id for chunk in chunks}) == 1


def test_n_choices_are_drawn_independently_and_a_seed_repeats_them(client: openai.OpenAI) -> None:
    first, again, other = (_ask(client, n=4, seed=seed, max_tokens=12) for seed in (1, 1, 2))
    texts = [choice.message.content for choice in first.choices]
    assert [choice.index for choice in first.choices] == [0, 1, 2, 3]
    assert len(set(texts)) == 4
    assert texts == [choice.message.content for choice in again.choices]
    assert texts != [choice.message.content for choice in other.choices]


def test_temperature_zero_is_greedy(client: openai.OpenAI, checkpoints: list[Path]) -> None:
    """Each token is the likeliest one, by a plain forward pass."""
    answer = _ask(client, temperature=0, max_tokens=40, extra_body=EXTRAS)
    prompt, token_ids = _extra(answer, "prompt_token_ids"), _extra(answer.choices[0], "token_ids")
    of_said = reference_logprobs(checkpoints[0], prompt, token_ids).tolist()
    assert of_said == pytest.approx(best_logprobs(checkpoints[0], prompt, token_ids).tolist(), abs=TOLERANCE)


@pytest.mark.parametrize("streams", [False, True])
def test_a_stop_text_ends_the_answer_and_is_cut_from_it(client: openai.OpenAI, streams: bool) -> None:
    whole = _ask(client, seed=11, max_tokens=60).choices[0].message.content or ""
    readable = [index for index, letter in enumerate(whole) if letter.isascii() and whole.index(letter) == index]
    stop = whole[readable[2]]
    if streams:
        stream = client.chat.completions.create(
            model="policy",
            messages=[{"role": "user", "content": "hi"}],
            seed=11,
            max_tokens=60,
            stop=[stop, "never said"],
            stream=True,
        )
        chunks = [chunk.choices[0] for chunk in stream]
        said, reason = "".join(chunk.delta.content or "" for chunk in chunks), chunks[-1].finish_reason
    else:
        choice = _ask(client, seed=11, max_tokens=60, stop=[stop, "never said"]).choices[0]
        said, reason = choice.message.content or "", choice.finish_reason
    assert said == whole[: readable[2]]
    assert reason == "stop"


def test_top_logprobs_are_the_best_of_the_distribution(client: openai.OpenAI) -> None:
    answer = _ask(client, temperature=0, logprobs=True, top_logprobs=3, max_tokens=2)
    assert answer.choices[0].logprobs is not None
    for entry in answer.choices[0].logprobs.content or []:
        best = [top.logprob for top in entry.top_logprobs]
        assert best == sorted(best, reverse=True)
        assert entry.logprob == pytest.approx(best[0], abs=1e-6)
        assert sum(map(math.exp, best)) < 1


def test_the_version_is_named_in_a_header(server: HttpServer) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "model": "policy@0"}
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
    assert response.headers["x-lightstream-policy-version"] == "0"
    assert response.json()["model"] == "policy@0"


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["policy", "policy@0"]


def test_an_unknown_version_is_not_found_after_a_wait(client: openai.OpenAI) -> None:
    for name in ("policy@99", "gpt-4o"):
        with pytest.raises(openai.NotFoundError, match=f"'{name}'.*policy@0"):
            _ask(client, model=name)


def test_a_prompt_that_is_too_long_is_refused_with_both_numbers(client: openai.OpenAI) -> None:
    for size, shown in ((40_000, r"400\d\d tokens"), (20_000_000, "20,000,000 characters")):
        with pytest.raises(openai.BadRequestError, match=rf"has {shown}; policy@0 takes 32768") as caught:
            _ask(client, "x" * size)
        assert caught.value.code == "context_length_exceeded"


def test_a_request_over_the_limit_is_refused(server: HttpServer) -> None:
    response = httpx.post(f"{server.url}/v1/chat/completions", content=b"x" * (33 * 1024 * 1024), timeout=60)
    assert response.status_code == 413


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": []}', b'{"messages": [{"role": "user"}], "n": 0}'])
def test_bad_requests_get_openai_s_error_shape(server: HttpServer, body: bytes) -> None:
    response = httpx.post(f"{server.url}/v1/chat/completions", content=body, timeout=60)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_it_answers_its_token_alone_and_no_page_of_another_origin(checkpoints: list[Path], tmp_path: Path) -> None:
    settings = Settings.load(data_dir=tmp_path, policy_token="s3cret")
    server = policy_server(settings, checkpoint=checkpoints[0], follows_resources=False)
    url = server.start()
    try:
        good = {"authorization": "Bearer s3cret"}
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert httpx.get(f"{url}/v1/models", headers=good).status_code == 200
        for token in ("other", "none"):
            with pytest.raises(openai.AuthenticationError, match="LIGHTSTREAM_POLICY_TOKEN"):
                _ask(openai.OpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0))
        assert _ask(openai.OpenAI(base_url=f"{url}/v1", api_key="s3cret")).choices
        page = good | {"origin": "http://evil.example"}
        assert httpx.post(f"{url}/v1/chat/completions", json={}, headers=page).status_code == 403
        assert httpx.get(f"{url}/v1/models", headers=good | {"host": "policy.example"}).status_code == 200
        text = good | {"content-type": "text/plain"}
        assert httpx.post(f"{url}/v1/chat/completions", content=b"{}", headers=text).status_code == 415
    finally:
        server.stop()


def test_without_a_token_it_answers_under_its_own_names_alone(server: HttpServer) -> None:
    for path in ("/v1/models", "/v1/chat/completions", "/v1/completions", "/nowhere"):
        for method in ("GET", "POST"):
            answer = httpx.request(method, f"{server.url}{path}", headers={"host": "rebound.example:80"})
            assert answer.status_code == 403, (method, path)
            assert "LIGHTSTREAM_ALLOWED_HOSTS" in answer.json()["error"]["message"]
    for host in ("127.0.0.1", "[::1]:1", "localhost:1", "policy:8083"):
        assert httpx.get(f"{server.url}/v1/models", headers={"host": host}).status_code == 200, host
    assert httpx.get(f"{server.url}/healthz", headers={"host": "probe.example"}).status_code == 200


@pytest.mark.parametrize("streams", [False, True])
def test_a_client_that_disconnects_frees_its_place(checkpoints: list[Path], tmp_path: Path, streams: bool) -> None:
    versions = new_versions()
    versions.announce("policy@0", 0, str(checkpoints[0]))
    versions.load("policy@0").end_ids = frozenset()  # so that nothing ends by itself
    settings = Settings.load(data_dir=tmp_path)
    server = HttpServer(create_app(settings, versions), settings, name="policy", port=0, setting="")
    server.start()
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 30_000, "n": 4, "stream": streams}
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as connection:
        data = json.dumps(body).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode() + data)
        eventually(lambda: _running(server.url) == 4)
    eventually(lambda: _running(server.url) == 0)
    server.stop()


def _running(url: str) -> int:
    return int(httpx.get(f"{url}/healthz", timeout=60).json()["running"])


def test_it_is_announced_while_it_runs(checkpoints: list[Path], tmp_path: Path) -> None:
    settings = Settings.load(data_dir=tmp_path)
    server = policy_server(settings, checkpoint=checkpoints[0], follows_resources=False)
    assert find(settings, "policy") is None
    server.start()
    service = find(settings, "policy")
    assert service is not None
    assert httpx.get(f"{service.address}/healthz", timeout=60).json()["status"] == "ok"
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(ServiceUnavailableError, match="LIGHTSTREAM_POLICY_PORT"):
        policy_server(settings.model_copy(update={"policy_port": port}), follows_resources=False)
    server.stop()
    assert find(settings, "policy") is None


@pytest.mark.parametrize("streams", [False, True])
def test_completions_take_prompts_as_they_are(client: openai.OpenAI, checkpoints: list[Path], streams: bool) -> None:
    """Texts and token ids, several at once; each choice has its own prompt's ids."""
    tokenizer = load_tokenizer(checkpoints[0])
    ids = tokenizer.encode("2 + 3 =", add_special_tokens=False)
    arguments: dict[str, Any] = {"model": "policy", "max_tokens": 6, "logprobs": 2, "n": 2, "seed": 5}
    prompts: tuple[Any, ...] = ("2 + 3 =", ids, ["2 + 3 =", "Ü"], [ids, ids[:3]])
    for prompt in prompts:
        asked: Any = arguments | {"prompt": prompt, "extra_body": EXTRAS, "stream": streams}
        answer: Any = client.completions.create(**asked)
        pieces: list[Any] = list(answer) if streams else [answer]
        said: dict[int, dict[str, Any]] = {}
        for piece in pieces:
            assert piece.object == "text_completion"
            for choice in piece.choices:
                known = said.setdefault(choice.index, {"prompt": None, "ids": [], "logprobs": [], "text": ""})
                known["prompt"] = _extra(choice, "prompt_token_ids") or known["prompt"]
                known["ids"] += _extra(choice, "token_ids")
                known["logprobs"] += choice.logprobs.token_logprobs
                known["text"] += choice.text
                assert len(choice.logprobs.top_logprobs) == len(choice.logprobs.tokens)
                assert all(1 <= len(best) <= 2 for best in choice.logprobs.top_logprobs)  # by text: two may be alike
        several = prompt if isinstance(prompt, list) and not isinstance(prompt[0], int) else [prompt]
        wanted = [tokenizer.encode(p, add_special_tokens=False) if isinstance(p, str) else p for p in several]
        assert [said[index]["prompt"] for index in sorted(said)] == [p for p in wanted for _ in range(2)]
        for one in said.values():
            expected = reference_logprobs(checkpoints[0], one["prompt"], one["ids"])
            assert one["logprobs"] == pytest.approx(expected.tolist(), abs=TOLERANCE)
            assert one["text"] == tokenizer.decode(one["ids"], skip_special_tokens=True)


@pytest.mark.parametrize(
    ("parameters", "culprit"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", 7]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [10**6]}, "prompt"),
        ({"prompt": ["a"] * 65, "n": 2}, "prompt"),
        ({"prompt": "a", "echo": True}, "echo"),
        ({"prompt": "a", "best_of": 4}, "best_of"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "a", "temperature": -1}, "temperature"),
    ],
)
def test_completions_that_cannot_be_served_name_the_culprit(
    server: HttpServer, parameters: dict[str, Any], culprit: str
) -> None:
    answer = httpx.post(f"{server.url}/v1/completions", json={"model": "policy"} | parameters, timeout=60)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == culprit
