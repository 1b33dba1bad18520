"""A vLLM server as a child process: ready once it has made a token, started again with the weights of the moment."""

from __future__ import annotations

from pathlib import Path

from lightstream.runtime.ports import free_port
from lightstream.runtime.processes import ProcessUnit, end_group
from lightstream.runtime.settings import Settings

from .client import SERVED_NAME, VllmClient
from .options import VllmOptions

TOKEN_TIMEOUT_S = 60.0
"""The first token may have to wait for kernels that are compiled."""


ENGINE_GRACE_S = 2.0


class VllmProcess(ProcessUnit):
    """One vLLM. Its log is ``<data_dir>/logs/vllm.log``.

    Attributes:
        folder: the model that the next start reads.
        client: asks it.
    """

    def __init__(self, settings: Settings, options: VllmOptions) -> None:
        self._port = free_port()
        self._options = options
        self._ready_pid: int | None = None
        self.folder = Path()
        self.url = f"http://127.0.0.1:{self._port}"
        self.client = VllmClient(self.url, options.swap_timeout_s)
        super().__init__("vllm", (), settings, ready_timeout_s=options.start_timeout_s)

    @property
    def pid(self) -> int | None:
        process = self._process
        if process is None or process.poll() is not None:
            return None
        if self._ready_pid != process.pid and VllmClient(self.url, TOKEN_TIMEOUT_S).generates():
            self._ready_pid = process.pid
        return process.pid if self._ready_pid == process.pid else None

    def doubt(self) -> None:
        """Count it as ready only once it has made another token."""
        self._ready_pid = None

    def wait(self) -> int | None:
        status, process = super().wait(), self._process
        if process is not None:  # vLLM's engine is a process of its own, and outlives a parent that was killed
            end_group(process.pid, grace_s=ENGINE_GRACE_S)
        return status

    def start(self) -> None:
        options = self._options
        variables = {
            "VLLM_SERVER_DEV_MODE": "1",  # routes that change weights
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
            "VLLM_NO_USAGE_STATS": "1",
            **options.environment,
        }
        self._program = (
            *("env", *(f"{name}={value}" for name, value in variables.items())),
            *(options.python, "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(self.folder), "--served-model-name", SERVED_NAME),
            *("--host", "127.0.0.1", "--port", str(self._port)),
            *("--logprobs-mode", "processed_logprobs"),  # of the distribution that is sampled from
            *options.arguments,
        )
        super().start()
