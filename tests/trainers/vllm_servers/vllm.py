"""How tests run vLLM: on the CPU, small."""

from __future__ import annotations

import os
from pathlib import Path

from lightstream.trainers import VllmOptions

PYTHON = Path(os.environ.get("LIGHTSTREAM_TEST_VLLM_PYTHON", Path(__file__).parents[3] / ".venv-vllm/bin/python"))

OPTIONS = VllmOptions(
    python=str(PYTHON),
    arguments=(
        *("--max-model-len", "1024", "--max-num-seqs", "16", "--dtype", "float32", "--enforce-eager"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    ),
    environment={
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
    },
)
