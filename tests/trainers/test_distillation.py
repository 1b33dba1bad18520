"""On-policy distillation: a student comes to its teacher, whose log-probabilities a folder or a server gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError, TrainingError
from lightstream.trainers import VERL, make_tiny_model, teach_answers
from lightstream.trainers.engines.verl import teacher as teacher_module
from lightstream.trainers.engines.verl.engine import VerlEngine
from lightstream.trainers.engines.verl.initial import write_initial_model
from lightstream.trainers.engines.verl.teacher import Teacher
from lightstream.trainers.rollouts.batch import BatchArrays, Scoring, build_arrays, select_rows
from lightstream.trainers.rollouts.groups import Group

from .support.digits import DigitTask

PROMPTS = [f"say {digit}" for digit in range(10)]


def options(model: Path, **changes: Any) -> VERL:
    base: dict[str, Any] = {"model": model, "steps": 60, "learning_rate": 7e-3, "weight_decay": 0.0, "threads": 1}
    base |= {"advantage": "distillation", "kl_loss_coefficient": 1.0, "kl_loss_type": "k2", "reference": model}
    return VERL(**(base | changes))


def arrays_of(groups: list[Group]) -> BatchArrays:
    return build_arrays(select_rows(groups, scoring=Scoring(advantage="distillation")))


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("student"))


@pytest.fixture(scope="module")
def taught(student: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that answers with digits."""
    folder = tmp_path_factory.mktemp("teacher")
    warm_up = teach_answers(PROMPTS, [*"0123456789"], steps=20)
    write_initial_model(VERL(model=student, steps=1, warm_up=warm_up), folder, seed=0)
    return folder


def loaded(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def kl(task: DigitTask, student: Path, teacher: Path) -> float:
    """The mean over all digits of the KL of the first token of an answer, over the whole vocabulary."""
    found: list[float] = []
    models = [loaded(folder) for folder in (student, teacher)]
    with torch.no_grad():
        for digit in range(10):
            ids = torch.tensor([task.prompt(digit)])
            own, theirs = (torch.log_softmax(model(input_ids=ids).logits[0, -1].double(), -1) for model in models)
            found.append(float((own.exp() * (own - theirs)).sum()))
    return float(np.mean(found))


def test_the_kl_to_the_teacher_falls_by_nine_tenths(student: Path, taught: Path, tmp_path: Path) -> None:
    engine = VerlEngine(options(student, reference=taught), student)
    task, folder = DigitTask(student), student
    before = kl(task, student, taught)
    torch.manual_seed(0)
    for step in range(1, 41):
        engine.update(arrays_of(task.roll_out(folder, step=step, groups=12)), seed=(0, step))
        (folder := tmp_path / str(step)).mkdir()
        engine.save_weights(folder)
    assert kl(task, folder, taught) < 0.1 * before


class TeacherServer:
    """A model behind a URL, which answers as vLLM does; ``failures`` are answered first."""

    def __init__(self, folder: Path) -> None:
        self._model = loaded(folder)
        self.failures: list[Response] = []
        self.asked = 0
        self.app = Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/v1/completions", self._complete, methods=["POST"]),
            ]
        )

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "teacher"}]})

    async def _complete(self, request: Request) -> Response:
        self.asked += 1
        if self.failures:
            return self.failures.pop()
        body = json.loads(await request.body())
        assert (body["model"], body["prompt_logprobs"]) == ("teacher", 0)
        ids = body["prompt"]
        with torch.no_grad():
            logprobs = torch.log_softmax(self._model(input_ids=torch.tensor([ids])).logits[0, :-1], -1)
        told = [
            {str(token): {"logprob": float(row[token]), "rank": 1, "decoded_token": "?"}}
            for token, row in zip(ids[1:], logprobs, strict=True)
        ]
        return JSONResponse({"choices": [{"index": 0, "text": "?", "prompt_logprobs": [None, *told]}]})


@pytest.fixture
def server(taught: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[TeacherServer, str]]:
    monkeypatch.setattr(teacher_module, "PAUSE_S", 0.01)
    made = TeacherServer(taught)
    running = HttpServer(made.app, settings, name="teacher", port=0, setting="", announced=False)
    yield made, f"{running.start()}/v1"
    running.stop()


def test_a_server_teaches_as_the_folder_of_its_model_does(
    student: Path, taught: Path, server: tuple[TeacherServer, str]
) -> None:
    made, url = server
    arrays = arrays_of(DigitTask(student, seed=3).roll_out(student, step=1))
    made.failures = [Response("busy", 429), Response("starting", 503)]
    by_url, by_folder = (
        VerlEngine(options(student, reference=reference), student) for reference in (f"{url}/#teacher", taught)
    )
    trained = arrays.response_mask == 1
    told, expected = (engine.models.reference_logprobs(arrays)[trained] for engine in (by_url, by_folder))
    assert told == pytest.approx(expected, abs=1e-4)
    assert made.asked == len(arrays) + 2
    metrics = [engine.update(arrays, seed=(0,)) for engine in (by_url, by_folder)]
    assert metrics[0]["actor/kl_loss"] == pytest.approx(metrics[1]["actor/kl_loss"], rel=1e-3)
    assert metrics[0]["actor/kl_loss"] > 0.01


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Response("no such model", 404), "answers 404: no such model"),
        (PlainTextResponse("hello"), "answers with no JSON: hello"),
        (JSONResponse(["hello"]), "answers with no object"),
        (JSONResponse({"choices": [{"text": "?"}]}), "gives no log-probabilities of the tokens it was sent"),
        (JSONResponse({"choices": [{"prompt_logprobs": [None]}]}), "gives no log-probabilities of the tokens"),
        (JSONResponse({"choices": [{"prompt_logprobs": [None, {"1": {}}]}]}), "gives no log-probabilities of the"),
    ],
)
def test_an_answer_that_teaches_nothing_is_named(
    student: Path, server: tuple[TeacherServer, str], answer: Response, said: str
) -> None:
    made, url = server
    arrays = arrays_of(DigitTask(student, seed=3).roll_out(student, step=1, groups=1))
    made.failures = [answer]
    with pytest.raises(TrainingError) as refused:
        Teacher(url).logprobs(arrays)
    assert said in str(refused.value)
    assert url in str(refused.value)


def test_a_row_that_is_too_long_and_one_with_an_image_are_refused(
    student: Path, server: tuple[TeacherServer, str]
) -> None:
    made, url = server
    arrays = arrays_of(DigitTask(student, seed=3).roll_out(student, step=1, groups=1))
    made.failures = [Response("too long", 400) for _ in range(len(arrays))]
    with pytest.raises(TrainingError, match="--max-model-len"):
        Teacher(url).logprobs(arrays)
    with pytest.raises(TrainingError, match="is not shown images"):
        Teacher(url).logprobs(replace(arrays, images=[(b"png",), *arrays.images[1:]]))


def test_a_key_is_in_no_error(
    student: Path, server: tuple[TeacherServer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-\n-secret")
    arrays = arrays_of(DigitTask(student, seed=3).roll_out(student, step=1, groups=1))
    with pytest.raises(TrainingError) as refused:
        Teacher(server[1]).logprobs(arrays)
    assert "is malformed" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_server_that_stays_away_ends_the_step_with_its_reason(student: Path) -> None:
    arrays = arrays_of(DigitTask(student, seed=3).roll_out(student, step=1, groups=1))
    with pytest.raises(TrainingError, match="does not answer"):
        Teacher("http://127.0.0.1:9/v1", patience_s=0.0).logprobs(arrays)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kl_loss_coefficient": 0.0}, "nothing would move the weights"),
        ({"reference": None}, "it has no reference"),
        ({"reference": "http://h:abc/v1"}, "is no address of a server"),
        ({"reference": "http://ada:secret@h/v1"}, "has a user or password in it"),
        (
            {"reference": "http://127.0.0.1:9/v1", "temperature": 0.5},
            "temperature is 0.5, and its reference a server's",
        ),
        ({"reference": "http://127.0.0.1:9/v1", "processes": 2}, "processes is 2, and its reference a server's"),
        ({"refill_silent_groups": 2}, "its advantage is 'distillation', which learns from every rollout"),
    ],
)
def test_options_that_cannot_distil_are_refused(student: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        options(student, **changes)
    assert said in str(refused.value)
