"""``lightstream vllm``: a process that follows what a trainer publishes. ``make test-vllm``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.trainers.run.model.tiny_model import make_tiny_model
from tests.support.waiting import eventually
from tests.trainers.policy_server.test_weight_swap import Announcer
from tests.trainers.vllm_servers.vllm import OPTIONS

pytestmark = [pytest.mark.vllm, pytest.mark.kafka]

START_TIMEOUT_S = 500.0


def test_versions_are_heard_of_and_nothing_is_left_behind(settings: Settings, tmp_path: Path) -> None:
    models = [make_tiny_model(tmp_path / f"step-{seed}", seed=seed) for seed in range(2)]
    command = [sys.executable, "-m", "lightstream.cli", "vllm", "--python", OPTIONS.python]
    command += ["--checkpoint", str(models[0]), *OPTIONS.arguments]
    environment = os.environ | settings.to_environment() | dict(OPTIONS.environment)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:

        def names() -> list[str]:
            assert process.poll() is None, (tmp_path / "log").read_text("utf-8")[-3000:]
            service = find(settings, "policy")
            if service is None:
                return []
            return [model["id"] for model in httpx.get(f"{service.address}/v1/models", timeout=60).json()["data"]]

        eventually(
            lambda: names() == ["policy", "policy@0"], timeout_s=START_TIMEOUT_S, what="the checkpoint is served"
        )
        announcer = Announcer(settings)
        announcer.announce(1, tmp_path / "nowhere")
        announcer.announce(2, models[1])
        eventually(lambda: "policy@2" in names(), timeout_s=START_TIMEOUT_S, what="the version is served")
        service = find(settings, "policy")
        assert service is not None
        body = {"model": "policy@2", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        answer = httpx.post(f"{service.address}/v1/chat/completions", json=body, timeout=300)
        assert answer.status_code == 200
        assert answer.headers["x-lightstream-policy-version"] == "2"
        assert answer.headers["x-lightstream-resources-id"] == "run-v2"
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
    assert find(settings, "policy") is None
    assert not _left_behind(str(tmp_path)), "vLLM has ended"


def _left_behind(text: str) -> list[str]:
    listed = subprocess.run(["ps", "-eo", "cmd"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if text in line and "vllm.entrypoints" in line]
