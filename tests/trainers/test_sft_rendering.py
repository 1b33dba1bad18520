"""Conversations by templates of several kinds: nothing of a message is lost, or the line is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lightstream.schemas.errors import TrainingError
from lightstream.schemas.packing import unpack_int32
from lightstream.trainers import make_tiny_model
from lightstream.trainers.algorithms.sft.sequences import conversations

HEAD = """{%- for m in messages -%}<|im_start|>{{ m.role }}
{% if m.tool_calls %}{% for c in m.tool_calls %}"""
TAIL = """{% endfor %}{% else %}{{ m.content }}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
ASKED: list[dict[str, Any]] = [
    {"role": "user", "content": "Weather in Oslo?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
]


def learned(folder: Path, template: str, messages: list[dict[str, Any]], **others: Any) -> list[str]:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(make_tiny_model(folder / "tiny"))
    tokenizer.chat_template = template
    file = folder / "chat.jsonl"
    file.write_text('{"messages": []}\n' + json.dumps({"messages": messages} | others) + "\n")
    told = conversations(file, tokenizer)[1]
    return [tokenizer.decode(unpack_int32(call.response_token_ids).tolist()) for call in told.triplets]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("{{ c.function.name }} {{ c.function.arguments | tojson }}", 'weather {"city": "Oslo"}'),
        ("{{ c.function.name }} {{ c.function.arguments }}", 'weather {"city": "Oslo"}'),
        ("{{ c.function.name + ' ' + c.function.arguments }}", 'weather {"city": "Oslo"}'),
        (
            "{{ c.function.name }}{% for k, v in c.function.arguments.items() %}<{{ k }}>{{ v }}</{{ k }}>{% endfor %}",
            "weather<city>Oslo</city>",
        ),
    ],
)
def test_arguments_are_written_as_the_model_writes_them(tmp_path: Path, body: str, text: str) -> None:
    assert learned(tmp_path, HEAD + body + TAIL, ASKED) == [f"{text}<|im_end|>\n"]


@pytest.mark.parametrize(
    ("template", "messages", "others", "says"),
    [
        (HEAD + "{{ c.function.name }}" + TAIL, ASKED, {}, "leaves out 'city' of the arguments"),
        (HEAD + "{{ raise_exception('one call at a time') }}" + TAIL, ASKED, {}, "refuses it.*one call at a time"),
        (HEAD + TAIL, [*ASKED[:1], {"role": "assistant", "content": "7"}], {"tools": [CALL]}, "leaves out the tools"),
        (
            HEAD + TAIL,
            [*ASKED[:1], {"role": "assistant", "content": "7", "reasoning_content": "it is cold"}],
            {},
            "leaves out reasoning_content",
        ),
        (
            (HEAD + TAIL).replace("messages -%}", "messages if m.role != 'system' -%}"),
            [{"role": "system", "content": "be brief"}, *ASKED[:1], {"role": "assistant", "content": "7"}],
            {},
            r"leaves out message 0 \(system\)",
        ),
    ],
)
def test_what_a_template_loses_or_refuses_is_named_with_its_line(
    tmp_path: Path, template: str, messages: list[dict[str, Any]], others: dict[str, Any], says: str
) -> None:
    with pytest.raises(TrainingError, match=f"line 2 of .*{says}"):
        learned(tmp_path, template, messages, **others)


def test_parts_of_text_are_text_and_messages_without_weight_are_not_learned(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "hi"}]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "no", "weight": 0},
        {"role": "user", "content": "again"},
        {"role": "assistant", "content": parts},
    ]
    assert learned(tmp_path, HEAD + TAIL, messages) == ["hi<|im_end|>\n"]
