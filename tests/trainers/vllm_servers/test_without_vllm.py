"""What is said where there is no vLLM, or where it is asked for what Lightstream decides."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError, SettingsError, TrainingError
from lightstream.trainers.run.model.tiny_model import make_tiny_model
from lightstream.trainers.servers.vllm import VllmOptions, VllmServer, VllmServers


@pytest.mark.parametrize("arguments", [("--model", "x"), ("--max-model-len", "9", "--port", "1")])
def test_what_lightstream_sets_is_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError, match=arguments[-2]):
        VllmOptions(arguments=arguments)


def test_a_python_without_vllm_is_named_with_its_last_words(tmp_path: Path) -> None:
    server = VllmServer(Settings.load(data_dir=tmp_path / "data"), VllmOptions())
    with pytest.raises(ServiceUnavailableError, match=r"(?s)vllm ended while starting.*No module named") as caught:
        server.load("policy@0", 0, str(make_tiny_model(tmp_path / "model")))
    assert str(server.log_file) in str(caught.value)
    assert server.current is None
    server.stop()


def test_an_adapter_without_its_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    server = VllmServer(Settings.load(data_dir=tmp_path / "data"), VllmOptions())
    with pytest.raises(TrainingError, match="policy@3 is an adapter"):
        server.load("policy@3", 3, str(tmp_path))
    server.stop()


def test_before_the_first_version_calls_are_refused_and_it_is_announced_while_it_runs(tmp_path: Path) -> None:
    settings = Settings.load(data_dir=tmp_path, policy_port=0, policy_version_wait_s=0.1)
    with VllmServers(settings, VllmOptions()) as servers:
        service = find(settings, "policy")
        assert service is not None
        assert service.address == servers.url
        body = {"model": "policy@0", "messages": [{"role": "user", "content": "hi"}]}
        answer = httpx.post(f"{servers.url}/v1/chat/completions", json=body, timeout=60)
        assert (answer.status_code, answer.json()["error"]["message"]) == (
            404,
            "there is no model 'policy@0'; there are: none yet",
        )
        assert httpx.get(f"{servers.url}/v1/models", timeout=60).json()["data"] == []
        assert httpx.post(f"{servers.url}/v1/completions", content=b"{", timeout=60).status_code == 400
        assert servers.version() is None
    assert find(settings, "policy") is None
