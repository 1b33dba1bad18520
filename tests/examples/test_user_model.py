"""What a user names wrongly is said at once, before anything is started or deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from typer.testing import CliRunner

from examples.tool_router.__main__ import app
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.trainers import make_tiny_model


def refused(data_dir: Path, *arguments: str) -> str:
    """What the demonstration says and ends with status 1."""
    done = CliRunner().invoke(app, ["demo", "--data-dir", str(data_dir), *arguments], env={"COLUMNS": "1000"})
    assert done.exit_code == 1, done.output
    assert not data_dir.exists(), "nothing was started"
    return done.output


@pytest.mark.parametrize("files", [None, [], ["config.json", "tokenizer_config.json"]], ids=["none", "empty", "part"])
def test_a_folder_without_a_model_is_refused(tmp_path: Path, files: list[str] | None) -> None:
    folder = tmp_path / "model"
    if files is not None:
        folder.mkdir()
        for name in files:
            (folder / name).write_text("{}")
    said = refused(tmp_path / "demo", "--model", str(folder))
    assert str(folder) in said
    assert {None: "is not a folder", 0: "no config.json", 2: "no *.safetensors"}[
        None if files is None else len(files)
    ] in said


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model")
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert "model.safetensors is damaged" in refused(tmp_path / "demo", "--model", str(model))


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1/v1", "127.0.0.1:1/v1", "http://[/v1"])
def test_an_endpoint_that_cannot_be_reached_is_refused(tmp_path: Path, endpoint: str) -> None:
    said = refused(tmp_path / "demo", "--endpoint", endpoint)
    assert f"nothing answers at {endpoint}/models" in said
    assert "http://127.0.0.1:8000/v1" in said, "what an address looks like"


def _models(*names: str) -> Response:
    return JSONResponse({"object": "list", "data": [{"id": name} for name in names]})


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda: PlainTextResponse("<html>", 200), "lists no models; it answered 200: '<html>'"),
        (lambda: PlainTextResponse("who are you?", 401), "LIGHTSTREAM_LLM_UPSTREAM_API_KEY"),
        (lambda: _models(), "lists no models"),
        (lambda: _models("a", "b"), "does not serve --model 'c'; it serves a, b."),
    ],
    ids=["another server", "no key", "no models", "other models"],
)
def test_an_endpoint_without_the_model_is_refused(tmp_path: Path, answer: Callable[[], Response], said: str) -> None:
    stranger = Starlette(routes=[Route("/v1/models", lambda _: answer())])
    server = HttpServer(stranger, Settings.load(data_dir=tmp_path / "stranger"), name="stranger", port=0, setting="")
    try:
        assert said in refused(tmp_path / "demo", "--endpoint", f"{server.start()}/v1", "--model", "c")
    finally:
        server.stop()


def test_a_folder_with_other_things_in_it_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    done = CliRunner().invoke(app, ["demo", "--data-dir", str(tmp_path)])
    assert done.exit_code == 1
    assert "holds other files" in done.output
    assert (tmp_path / "thesis.txt").read_text() == "precious"
