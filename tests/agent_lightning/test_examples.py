"""Agent Lightning's own examples, from a checkout of its repository, with only the import changed.

``make test-agent-lightning-examples CHECKOUT=…`` runs them; nothing is fetched. Each program that needs no GPU and no
service but an OpenAI-style one is run as its own page says, and must end by itself with 0: most of them check what was
recorded. Their models are :func:`answer`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from tests.frameworks.model_server import CallTools, Say, ScriptedModel, turns
from tests.support.waiting import eventually

pytestmark = pytest.mark.agent_lightning_examples

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-agent-lightning-examples/bin/python"
"""The interpreter of the environment in which the examples' packages are installed."""

CHECKOUT = os.environ.get("LIGHTSTREAM_TEST_AGENT_LIGHTNING_CHECKOUT", "")
IMPORTS = r"s/^( *)(from|import) agentlightning\b/\1\2 lightstream.agl/"
"""What is changed in them."""

PROGRAM_TIMEOUT_S = 300.0

STORE_PORT = 4747
CLIENTS_STORE_PORT = 45993
LEGACY_PORT = 9997
PROXY_PORT = 43886


@dataclass(frozen=True, slots=True)
class Beside:
    """A program that runs beside the one that is waited for.

    Attributes:
        command: ``agl`` or a script of the folder, and its arguments.
        port: it is ready when something listens there; ``None`` where nothing does.
        ends: it ends by itself, with 0; else it is interrupted.
    """

    command: str
    port: int | None = None
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """One of the examples.

    Attributes:
        folder: in ``examples``.
        command: the script and its arguments.
        says: what it must have printed.
        beside: what runs beside it, in the order of starts.
    """

    folder: str
    command: str
    says: str
    beside: tuple[Beside, ...] = ()


PROGRAMS = [
    Program("apo", "apo_debug.py --mode runner", "LLM returned: Qwen or ChatGPT"),
    Program("apo", "apo_debug.py --mode hook", "Trace spans collected during the rollout:\n- "),
    Program("apo", "apo_debug.py --mode trainer", "LLM returned: Qwen or ChatGPT"),
    Program("apo", "room_selector.py", "=== Postmortem Reward ==="),
    Program("apo", "room_selector_apo.py", ""),
    Program(
        "apo",
        "apo_custom_algorithm.py algo",
        "Best prompt found:",
        (Beside("agl store", STORE_PORT), Beside("apo_custom_algorithm.py runner")),
    ),
    Program("apo", "apo_custom_algorithm_trainer.py", "Best prompt found:"),
    Program(
        "apo",
        "legacy_apo_client.py",
        "Result: ChatCompletion(",
        (Beside("legacy_apo_server.py", LEGACY_PORT, ends=True),),
    ),
    Program("minimal", "write_traces.py otel", "grpc-span-3"),
    Program("minimal", "write_traces.py agentops", "openai.chat.completion"),
    Program("minimal", "write_traces.py operation", "linked operation span attributes validated"),
    *(
        Program(
            "minimal",
            f"write_traces.py {mode} --use-client",
            "resource=OtelResource(",
            (Beside(f"agl store --port {CLIENTS_STORE_PORT} --log-level DEBUG", CLIENTS_STORE_PORT),),
        )
        for mode in ("otel", "agentops", "operation")
    ),
    Program("minimal", "write_metrics.py --duration 5", "minimal_requests_total"),
    *(
        Program(
            "minimal",
            f"llm_proxy.py test {model}",
            "raw_gen_ai_request",
            (Beside(f"llm_proxy.py openai {model}", PROXY_PORT),),
        )
        for model in ("gpt-4.1-mini", "qwen")  # of the latter's answers it also wants the token ids
    ),
]


def answer(request: dict[str, Any]) -> Say | CallTools:
    """Answer as the model that the examples have in mind: rooms are looked up, judges give a number, or an object."""
    asked = json.dumps(request["messages"])
    if "response_format" in request:
        return Say(json.dumps({"reason": "as expected", "score": 0.75}))
    if "Return only a number between 0 and 1" in asked:
        return Say("0.5")
    if request.get("tools") and not turns(request):
        found = re.search(r"on (\S+) at (\S+) for (\d+) minutes", asked)
        date, time, minutes = found.groups() if found else ("2025-10-13", "10:00", "30")
        return CallTools.of("get_rooms_and_availability", date=date, time=time, duration_min=int(minutes))
    if "{" in asked and "prompt" in asked.lower() and "critique" in asked.lower():
        return Say(
            "Find a room on {date} at {time} for {duration_min} minutes, {attendees} people, with {needs}; "
            "accessible: {accessible_required}. Say its name."
        )
    return Say("Qwen or ChatGPT, at your service.")


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout's examples, whose imports name ours."""
    assert CHECKOUT, "name a checkout: make test-agent-lightning-examples CHECKOUT=…"
    assert PYTHON.exists(), f"there is no {PYTHON}: run `make test-agent-lightning-examples CHECKOUT=…`"
    copied = tmp_path_factory.mktemp("agent-lightning") / "examples"
    shutil.copytree(Path(CHECKOUT) / "examples", copied)
    scripts = [str(path) for path in copied.rglob("*.py")]
    subprocess.run(["sed", "-E", "-i", IMPORTS, *scripts], check=True)
    return copied


@pytest.fixture(scope="module")
def model_url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The scripted model server."""
    settings = Settings.load(data_dir=tmp_path_factory.mktemp("model"))
    server = HttpServer(ScriptedModel(answer, of_rollouts=False).app, settings, name="upstream")
    try:
        yield f"{server.start()}/v1"
    finally:
        server.stop()


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def _is_free(port: int) -> bool:
    """Also other programs' connections take ports of this range, for a while."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _arguments(command: str) -> list[str]:
    program, *arguments = command.split()
    if program == "agl":
        return [str(PYTHON.with_name("agl")), *arguments]
    return [str(PYTHON), program, *arguments]


@contextmanager
def _beside(program: Beside, folder: Path, environment: dict[str, str], log: Path) -> Generator[None]:
    """``program`` runs inside, and is ready."""
    port = program.port
    if port is not None:
        eventually(lambda: _is_free(port), what=f"port {port} is free")
    with log.open("w") as written:
        process = subprocess.Popen(
            _arguments(program.command), cwd=folder, env=environment, stdout=written, stderr=subprocess.STDOUT
        )
        try:
            if port is not None:
                eventually(lambda: _listens(port) or process.poll() is not None)
                assert process.poll() is None, f"{program.command} ended:\n{log.read_text()}"
            yield
            if program.ends:
                assert process.wait(PROGRAM_TIMEOUT_S) == 0, log.read_text()
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            try:
                process.wait(300)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.command)
def test_it_runs_as_it_is(program: Program, examples: Path, model_url: str, tmp_path: Path) -> None:
    folder = examples / program.folder
    environment = os.environ | {
        "OPENAI_API_BASE": model_url,
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": model_url,
        "LIGHTSTREAM_DATA_DIR": str(tmp_path / "data"),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "PATH": f"{PYTHON.parent}:{os.environ['PATH']}",
        "COLUMNS": "400",
    }
    with ExitStack() as running:
        for number, other in enumerate(program.beside):
            running.enter_context(_beside(other, folder, environment, tmp_path / f"beside-{number}.log"))
        done = subprocess.run(
            _arguments(program.command),
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PROGRAM_TIMEOUT_S,
        )
        sys.stdout.write(done.stdout)
        assert done.returncode == 0, f"{program.command} ended with {done.returncode}"
        assert program.says in done.stdout
