"""Whatever a server's habits: whole and streamed, on every interface, an agent gets the answer, and it is recorded."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.producers.llm_proxy.upstream import UpstreamAnswer
from lightstream.schemas.packing import unpack_float32, unpack_int32
from lightstream.schemas.records import AttemptClosed, AttemptOpened, DropReason, SpanRecord
from lightstream.stream_processors.core.assembly import Assembler
from tests.producers.llm_proxy.habits.agents import PATHS, Seen, read
from tests.producers.llm_proxy.habits.in_process import InProcess
from tests.producers.llm_proxy.habits.server import Answer, Choice, answer_of, streamed, whole
from tests.stream_processors.assembly.build import closed, opened
from tests.support.examples import examples

CHOICES_MAX = 3
BOTH = (False, True)


@pytest.fixture(scope="module")
def proxy() -> Iterator[InProcess]:
    process = InProcess()
    yield process
    process.close()


def _body(path: str, choices: int, rng: random.Random, *, streams: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "m", "stream": streams}
    messages = [{"role": "user", "content": "hi"}]
    if path == "responses":
        return body | {"input": "hi"}
    if path == "messages":
        return body | {"messages": messages, "max_tokens": 9, "stop_sequences": ["END"]}
    wanted = {"logprobs": True, "return_token_ids": True}
    return body | {"messages": messages, "n": choices} | {n: v for n, v in wanted.items() if rng.random() < 0.3}


@settings(max_examples=examples(300), deadline=None)
@pytest.mark.parametrize("path", PATHS)
@given(seed=st.integers(0, 2**64 - 1))
def test_an_agent_gets_what_the_model_said_and_it_is_recorded(proxy: InProcess, path: str, seed: int) -> None:
    _check(proxy, path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("path", PATHS)
def test_ten_thousand_habits(proxy: InProcess, path: str) -> None:
    for seed in range(10_000):
        _check(proxy, path, seed)


def _check(proxy: InProcess, path: str, seed: int) -> None:
    """One answer, told whole and as a stream."""
    choices = random.Random(seed).randint(1, CHOICES_MAX) if path == "chat/completions" else 1
    recorded: list[Any] = []
    for streams in BOTH:
        answer = answer_of(random.Random(f"{seed} answer"), choices)
        tell = random.Random(f"{seed} {streams}")
        body = _body(path, choices, random.Random(seed), streams=streams)
        proxy.records.clear()
        tells = partial(streamed if streams else whole, tell, answer)
        proxy.answer = tells
        response = proxy.ask(path, body)
        assert response.status_code == 200, response.text
        seen = read(path, response.text, streams=streams)
        expected = [_expected(path, answer, choice) for choice in answer.choices]
        assert [_without_made_ids(one) for one in seen] == expected
        if path == "chat/completions":
            assert ('"logprob":' in response.text) <= ("logprobs" in body)
            assert ("token_ids" in response.text) <= ("return_token_ids" in body)
        recorded.append(_check_records(proxy.records, answer))
    assert recorded[0] == recorded[1]


def _mended(text: str) -> str:
    """Independent of the product: code units joined, and ``?`` for halves that stay alone."""
    units = [text.encode("utf-16-be", "surrogatepass")[i : i + 2] for i in range(0, 2 * _units(text), 2)]
    made, place = "", 0
    while place < len(units):
        for count in (2, 1):
            try:
                made += b"".join(units[place : place + count]).decode("utf-16-be")
            except UnicodeDecodeError:
                continue
            break
        else:
            made, count = made + "?", 1
        place += min(count, len(units) - place)
    return made


def _units(text: str) -> int:
    return len(text.encode("utf-16-be", "surrogatepass")) // 2


def _expected(path: str, answer: Answer, choice: Choice) -> Seen:
    usage = None if answer.usage is None else (answer.usage["prompt_tokens"], answer.usage["completion_tokens"])
    calls: list[list[Any]] = [[call.id, call.name, call.arguments] for call in choice.calls]
    end: tuple[Any, ...] = (choice.finish, choice.stop_text)
    if path == "responses":
        reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(choice.finish or "")
        end = ("completed", None) if reason is None else ("incomplete", {"reason": reason})
    if path == "messages":
        calls = [[call_id, name, _object(arguments)] for call_id, name, arguments in calls]
        end = _anthropic_end(choice)
    if path != "chat/completions":
        usage = usage or (0, 0)
    return Seen(_mended(choice.thinking), _mended(choice.text), calls, end, usage)


def _object(arguments: str) -> dict[str, Any]:
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"unreadable_arguments": arguments}


def _anthropic_end(choice: Choice) -> tuple[str, str | None]:
    if choice.finish == "length":
        return "max_tokens", None
    if choice.finish == "content_filter":
        return "refusal", None
    if choice.calls:
        return "tool_use", None
    return ("stop_sequence", "END") if choice.stop_text == "END" else ("end_turn", None)


def _without_made_ids(seen: Seen) -> Seen:
    """Ids that the proxy made, since the server had none, are left out; they differ, and none is empty."""
    assert all(call[0] for call in seen.calls)
    assert len({call[0] for call in seen.calls}) == len(seen.calls)
    seen.calls = [[call_id if _is_the_server_s(call_id) else "", *rest] for call_id, *rest in seen.calls]
    return seen


def _is_the_server_s(call_id: str) -> bool:
    return len(call_id) == len("call_0")


def _check_records(records: list[SpanRecord], answer: Answer) -> list[Any]:
    """Each choice is recorded once, with its tokens, and is in one fate; returns what else is to be the same."""
    told: list[Any] = []
    assert len(records) == len(answer.choices)
    for record, choice in zip(records, answer.choices, strict=True):
        call = record.llm_call
        assert call is not None
        assert call.error_message is None
        upstream_id = record.attributes.get("lightstream.proxy.upstream_response_id", call.response_id)
        assert (upstream_id, call.finish_reason) == (answer.id, choice.finish)
        ids, logprobs = call.response_token_ids, call.response_logprobs
        assert (None if ids is None else list(unpack_int32(ids))) == (choice.ids if answer.has_ids else None)
        prompt_ids = call.prompt_token_ids
        assert (None if prompt_ids is None else list(unpack_int32(prompt_ids))) == (
            answer.prompt_ids if answer.has_ids else None
        )
        assert (None if logprobs is None else list(unpack_float32(logprobs))) == (
            pytest.approx(choice.logprobs) if answer.has_logprobs else None
        )
        message = json.loads(call.response_json or "{}")
        for made in message.get("tool_calls", []):
            made["id"] = made["id"] if _is_the_server_s(made["id"]) else ""
        assert message.get("reasoning_content", "") == _mended(choice.thinking)
        assert [made["function"]["name"] for made in message.get("tool_calls", [])] == [c.name for c in choice.calls]
        told.append({name: value for name, value in message.items() if value})
    _check_fates(records, answer)
    return told


def _check_fates(records: list[SpanRecord], answer: Answer) -> None:
    log: list[SpanRecord | AttemptOpened | AttemptClosed] = [opened("r"), *records, closed("r")]
    (trajectory,) = Assembler().on_records((record, offset) for offset, record in enumerate(log))
    assert len(trajectory.triplets) + len(trajectory.drops) == len(records)
    assert {drop.reason for drop in trajectory.drops} <= {DropReason.NO_TOKEN_IDS}
    assert (len(trajectory.triplets) > 0) == answer.has_ids


def _given(pieces: list[bytes], _asked: dict[str, Any]) -> list[bytes]:
    return pieces


RECORDED_STREAM = 11
"""Seed of an answer with thinking, text and calls."""


@pytest.mark.parametrize("path", PATHS)
def test_a_stream_that_is_cut_at_any_byte_ends_in_an_error_or_was_complete(proxy: InProcess, path: str) -> None:
    answer = answer_of(random.Random(RECORDED_STREAM), 1)
    answer.choices[0].finish = "stop"
    body = _body(path, 1, random.Random(0), streams=True)
    asked = {"stream": True, "return_token_ids": True, "logprobs": True}
    data = b"".join(streamed(random.Random(RECORDED_STREAM), answer, asked))
    complete = data.index(b"\n\n", data.index(b'"finish_reason": "stop"')) if b"\r" not in data else None
    assert complete is not None, "choose a seed with plain line ends"
    for end in range(len(data)):
        proxy.records.clear()
        pieces = [data[:end]]
        proxy.answer = partial(_given, pieces)
        text = proxy.ask(path, body).text
        (record,) = proxy.records
        call = record.llm_call
        assert call is not None
        if end >= complete:
            assert call.error_message is None
            (seen,) = read(path, text, streams=True)
            assert seen.text == _mended(answer.choices[0].text)
        else:
            assert "stream" in (call.error_message or "")
            assert "log says why" in (call.error_message or "")
            assert (call.error_message or "")[:40] in text


BROKEN = {
    "html": (b"<html><body>502 Bad Gateway</body></html>", 502, "LIGHTSTREAM_LLM_UPSTREAM_URL"),
    "error": (b'{"error": {"message": "engine died", "code": 500}}', 500, "engine died"),
    "error without a status": (b'{"error": {"message": "engine died"}}', 502, "engine died"),
    "old error": (b'{"object": "error", "message": "too long", "code": 400}', 400, "too long"),
    "text": (b'{"error": "model not loaded"}', 502, "model not loaded"),
    "no choice": (b'{"choices": []}', 502, "no choice"),
    "error of a choice": (b'{"choices": [{"error": {"message": "cut"}, "finish_reason": "error"}]}', 502, "cut"),
}


@pytest.mark.parametrize("streams", BOTH)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", BROKEN)
def test_a_200_that_is_no_answer_is_an_error_that_says_what_to_do(
    proxy: InProcess, kind: str, path: str, streams: bool
) -> None:
    content, status, said = BROKEN[kind]
    proxy.records.clear()
    proxy.answer = lambda _asked: content
    response = proxy.ask(path, _body(path, 1, random.Random(0), streams=streams))
    assert response.status_code == status
    assert said in response.text
    (record,) = proxy.records
    assert record.llm_call is not None
    assert (record.llm_call.http_status, said in (record.llm_call.error_message or "")) == (status, True)


@pytest.mark.parametrize("path", PATHS)
def test_a_server_that_does_not_stream_is_heard_all_the_same(proxy: InProcess, path: str) -> None:
    answer = answer_of(random.Random(RECORDED_STREAM), 1)
    for _ in BOTH:
        proxy.records.clear()
        proxy.answer = lambda asked: UpstreamAnswer(200, body=whole(random.Random(0), answer, asked))
        response = proxy.ask(path, _body(path, 1, random.Random(0), streams=True))
        seen = read(path, response.text, streams=True)
        assert [_without_made_ids(one) for one in seen] == [_expected(path, answer, answer.choices[0])]
        _check_records(proxy.records, answer)
