"""The JSON that LLM servers answer with, wherever a tracer kept it.

vLLM (``prompt_token_ids`` next to ``choices[].token_ids``), SGLang (``choices[].prompt_token_ids``,
``response_token_ids``, ``meta_info``, ``sglext``), the OpenAI SDK behind LiteLLM (``provider_specific_fields``),
NeMo Gym (``prompt_token_ids``, ``generation_token_ids``, ``generation_log_probs`` on the message or output item), and
Anthropic's messages, which have an id and no tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightstream.schemas.policy_names import version_of_model

from ._read_call import ReadCall, is_list, is_map, set_logprobs, set_token_ids, text_or_none

CHOICES_MAX = 1024
"""More choices than any server gives to one request (OpenAI: 128); later ones are ignored."""


def looks_like_response(body: object) -> bool:
    """Whether ``body`` is an LLM server's answer: it has choices, output items, a message's content or an error."""
    return is_map(body) and (
        is_list(body.get("choices")) or is_list(body.get("output")) or _is_message(body) or is_map(body.get("error"))
    )


def read_response(body: object, source: str, dialect: str) -> list[ReadCall]:
    """A call for each choice of the answer ``body``; ``source`` names where in the span it was."""
    if not is_map(body):
        return []
    if is_list(body.get("choices")):
        choices = [c for c in body["choices"][:CHOICES_MAX] if is_map(c)]
        shared = _with_prompt(body, source, dialect)
        return [_choice(body, choice, position, source, shared) for position, choice in enumerate(choices)]
    if is_list(body.get("output")):
        items = [item for item in body["output"] if is_map(item) and "generation_token_ids" in item][:CHOICES_MAX]
        calls = [_start(body, position, dialect) for position in range(len(items) or 1)]
        for call, item in zip(calls, items, strict=False):
            _generation(call, item, f"{source}:output[{call.choice_index}]")
        return calls
    ids_of_choices = body.get("response_token_ids", body.get("token_ids"))
    if is_list(ids_of_choices):
        return _without_choices(body, ids_of_choices, source, dialect)
    if _is_message(body):
        call = _start(body, 0, dialect)
        call.finish_reason = text_or_none(body.get("stop_reason"))
        return [call]
    if is_map(body.get("error")):
        call = _start(body, 0, dialect)
        call.failure = text_or_none(body["error"].get("message")) or "the server answered with an error"
        return [call]
    return []


def _is_message(body: Mapping[str, Any]) -> bool:
    """Anthropic's: https://docs.anthropic.com/en/api/messages."""
    return body.get("type") == "message" and is_list(body.get("content"))


def _without_choices(
    body: Mapping[str, Any], ids_of_choices: Sequence[Any], source: str, dialect: str
) -> list[ReadCall]:
    """Response ids at the top: of one choice, or a list of one list per choice."""
    per_choice = (
        ids_of_choices[:CHOICES_MAX]
        if ids_of_choices and all(is_list(ids) for ids in ids_of_choices)
        else [ids_of_choices]
    )
    shared = _with_prompt(body, source, dialect)
    calls: list[ReadCall] = []
    for position, ids in enumerate(per_choice):
        call = _start(body, position, dialect)
        _share_prompt(call, shared)
        set_token_ids(call, "response_token_ids", ids, f"{source}:response_token_ids[{position}]")
        if len(per_choice) == 1:
            set_logprobs(call, body.get("logprobs"), f"{source}:logprobs")
        calls.append(call)
    return calls


def _start(body: Mapping[str, Any], position: int, dialect: str) -> ReadCall:
    model = text_or_none(body.get("model")) or ""
    return ReadCall(dialect, text_or_none(body.get("id")), position, model, version_of_model(model))


def _with_prompt(body: Mapping[str, Any], source: str, dialect: str) -> ReadCall:
    """A call with nothing but the prompt that the choices share: long, so it is read and packed once."""
    call = ReadCall(dialect)
    extension = body.get("sglext")
    prompts = [(body.get("prompt_token_ids"), f"{source}:prompt_token_ids")]
    if is_map(extension):
        prompts.append((extension.get("input_ids"), f"{source}:sglext.input_ids"))
    any(set_token_ids(call, "prompt_token_ids", value, where) for value, where in prompts)
    return call


def _share_prompt(call: ReadCall, shared: ReadCall) -> None:
    if shared.prompt_token_ids is not None:
        call.prompt_token_ids = shared.prompt_token_ids
        call.note_source("prompt_token_ids", shared.source_of("prompt_token_ids"))
    elif call.problem is None:
        call.problem, call.detail = shared.problem, shared.detail


def _choice(
    body: Mapping[str, Any], choice: Mapping[str, Any], position: int, source: str, shared: ReadCall
) -> ReadCall:
    call = _start(body, position, shared.dialect)
    index = choice.get("index")
    if type(index) is int and 0 <= index < CHOICES_MAX:
        call.choice_index = index
    call.finish_reason = text_or_none(choice.get("finish_reason"))
    at = f"{source}:choices[{position}]"
    message = choice.get("message")
    meta, extension = choice.get("meta_info"), body.get("sglext")
    if is_map(message):
        _generation(call, message, f"{at}.message")
    responses = [(choice.get(name), f"{at}.{name}") for name in ("token_ids", "response_token_ids")]
    for holder, where in ((choice, at), (message, f"{at}.message")):
        extra = holder.get("provider_specific_fields") if is_map(holder) else None
        if is_map(extra):
            responses.append((extra.get("token_ids"), f"{where}.provider_specific_fields.token_ids"))
    alone = len(body["choices"]) == 1
    responses.append((_of_choice(body.get("response_token_ids"), call, alone=alone), f"{source}:response_token_ids"))
    if is_map(extension):
        ids = _of_choice(extension.get("output_ids"), call, alone=alone)
        responses.append((ids, f"{source}:sglext.output_ids"))
    if call.prompt_token_ids is None:
        own = choice.get("prompt_token_ids")
        if not set_token_ids(call, "prompt_token_ids", own, f"{at}.prompt_token_ids"):
            _share_prompt(call, shared)
    if call.response_token_ids is None:
        any(set_token_ids(call, "response_token_ids", value, where) for value, where in responses)
    if call.response_logprobs is None:
        set_logprobs(call, choice.get("logprobs"), f"{at}.logprobs")
    if is_map(meta):
        _meta_info(call, meta, f"{at}.meta_info")
    return call


def _of_choice(ids_of_choices: object, call: ReadCall, *, alone: bool) -> object:
    """Ids next to the choices: a list of one list per choice, else those of the only choice; ``None`` for none."""
    if is_list(ids_of_choices) and ids_of_choices and is_list(ids_of_choices[0]):
        return ids_of_choices[call.choice_index] if call.choice_index < len(ids_of_choices) else None
    return ids_of_choices if alone else None


def _generation(call: ReadCall, item: Mapping[str, Any], source: str) -> None:
    """NeMo Gym's three fields, on a message or an output item."""
    if "generation_token_ids" not in item:
        return
    set_token_ids(call, "prompt_token_ids", item.get("prompt_token_ids"), f"{source}.prompt_token_ids")
    set_token_ids(call, "response_token_ids", item["generation_token_ids"], f"{source}.generation_token_ids")
    set_logprobs(call, item.get("generation_log_probs"), f"{source}.generation_log_probs")


def _meta_info(call: ReadCall, meta: Mapping[str, Any], source: str) -> None:
    """SGLang's ``output_token_logprobs``: a list of [log-probability, token id, text]."""
    pairs = meta.get("output_token_logprobs")
    if not is_list(pairs) or not all(is_list(pair) and len(pair) >= 2 for pair in pairs):
        return
    if call.response_token_ids is None:
        ids = [pair[1] for pair in pairs]
        set_token_ids(call, "response_token_ids", ids, f"{source}.output_token_logprobs")
    if call.response_logprobs is None:
        set_logprobs(call, [pair[0] for pair in pairs], f"{source}.output_token_logprobs")
