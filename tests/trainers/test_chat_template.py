"""What a chat template can say is known before a training begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from lightstream.schemas.errors import TrainingError
from lightstream.trainers import VERL, make_tiny_model
from lightstream.trainers.engines.verl.initial import write_initial_model
from lightstream.trainers.run.model.chat_template import check_chat_template

PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + PLAIN
LAST_ALONE = "{{ messages[-1].content }}{% if tools %}{{ tools[0].function.name }}{% endif %}"


@pytest.fixture
def tokenizer(tmp_path: Path) -> Any:
    untyped: Any = AutoTokenizer
    return untyped.from_pretrained(make_tiny_model(tmp_path / "model"))


@pytest.mark.parametrize(
    ("template", "lacking"),
    [
        (None, []),
        (PLAIN, ["tools"]),
        (NO_SYSTEM, ["a system message", "tools"]),
        (LAST_ALONE, ["a system message"]),
    ],
)
def test_what_it_leaves_out_or_refuses_is_named(
    tokenizer: Any, template: str | None, lacking: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer.chat_template = template or tokenizer.chat_template
    assert check_chat_template(tokenizer, "mine") == lacking
    assert len(caplog.records) == len(lacking)
    assert ("no system role" in caplog.text) == (template == NO_SYSTEM)


@pytest.mark.parametrize("template", ["{{ raise_exception('not today') }}", "{{ messages[0].content + 1 }}", "{% if"])
def test_a_training_whose_template_takes_no_question_does_not_begin(
    tokenizer: Any, tmp_path: Path, template: str
) -> None:
    tokenizer.chat_template = template
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "out").mkdir()
    with pytest.raises(TrainingError, match=r"chat template of .* refuses a conversation of one question"):
        write_initial_model(VERL(model=tmp_path / "model", steps=1, threads=1), tmp_path / "out", seed=0)
