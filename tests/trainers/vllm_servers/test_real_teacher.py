"""A real vLLM as the reference behind a URL. ``make test-vllm``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lightstream.trainers import make_tiny_model
from lightstream.trainers.engines.verl.teacher import Teacher
from lightstream.trainers.rollouts.batch import Scoring, build_arrays, select_rows
from tests.producers.llm_proxy.test_vllm import serving
from tests.trainers.policy_server.support import reference_logprobs
from tests.trainers.support.digits import DigitTask

pytestmark = pytest.mark.vllm

TOLERANCE = 2e-3


def test_its_log_probabilities_are_those_of_its_model(tmp_path: Path) -> None:
    student, folder = (make_tiny_model(tmp_path / name, seed=seed) for seed, name in enumerate(("student", "teacher")))
    groups = DigitTask(student, seed=3).roll_out(student, step=1)
    arrays = build_arrays(select_rows(groups, scoring=Scoring(advantage="distillation")))
    with serving(folder, tmp_path / "log") as url:
        told = Teacher(f"{url}/v1").logprobs(arrays)
    expected = [
        reference_logprobs(folder, prompt.tolist(), response.tolist())
        for prompt, response in zip(
            np.split(arrays.prompt_ids, np.cumsum(arrays.prompt_lengths)[:-1]),
            np.split(arrays.response_ids, np.cumsum(arrays.response_lengths)[:-1]),
            strict=True,
        )
    ]
    assert told == pytest.approx(np.concatenate(expected), abs=TOLERANCE)
