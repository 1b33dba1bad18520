"""Calls with images from a real vLLM: the trainer sees what vLLM saw. ``make test-vllm`` runs it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import openai
import pytest

from lightstream.runtime.settings import Settings
from lightstream.trainers import VERL
from lightstream.trainers.engines.verl.engine import VerlEngine
from lightstream.trainers.rollouts.batch import Scoring, build_arrays, select_rows
from lightstream.trainers.rollouts.groups import Group
from tests.producers.llm_proxy.conftest import StartProxy
from tests.producers.llm_proxy.test_vllm import MODEL, serving
from tests.producers.support import read_spans
from tests.stream_processors.assembly.build import ROLLOUT, assemble, reward_span
from tests.trainers.support.seeing import make_seeing_model, picture

pytestmark = pytest.mark.vllm

RED, WIDE = picture("red"), picture("green", 24, 8)
DIFFERENCE_MAX = 1e-3


def user(text: str, *images: bytes) -> dict[str, Any]:
    urls = [f"data:image/png;base64,{base64.b64encode(image).decode('ascii')}" for image in images]
    parts: list[Any] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"role": "user", "content": [{"type": "text", "text": text}, *parts]}


def test_what_vllm_saw_is_what_the_trainer_sees(start_proxy: StartProxy, settings: Settings, tmp_path: Path) -> None:
    model = make_seeing_model(tmp_path / "model")
    with serving(model, tmp_path / "log") as url:
        base_url = f"{start_proxy(llm_upstream_url=f'{url}/v1')}/rollout/{ROLLOUT}/attempt/{ROLLOUT}-a1/v1"
        client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=300)
        for messages in ([user("say")], [user("look", RED)], [user("which?", RED, WIDE), user("and", RED)]):
            client.chat.completions.create(model=MODEL, messages=messages, max_tokens=8, temperature=1.0)  # type: ignore[arg-type]  # messages as JSON
        client.close()
    trajectory = assemble(*read_spans(settings), reward_span(9, 1.0))
    assert not trajectory.drops
    assert trajectory.images == [RED, WIDE]
    assert [triplet.images for triplet in trajectory.triplets] == [[], [0], [0, 1, 0]]
    engine = VerlEngine(VERL(model=model, steps=1, threads=1, device="cpu"), model)
    group = Group("g", (trajectory,))
    rows = select_rows([group], scoring=Scoring(advantage="reinforce"), images=engine.images)
    assert not rows.excluded
    assert engine.update(build_arrays(rows))["logprob_diff_max"] < DIFFERENCE_MAX
