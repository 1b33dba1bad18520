"""Importing the trainers costs nothing heavy."""

from __future__ import annotations

import subprocess
import sys


def test_the_trainers_import_torch_and_verl_only_when_used() -> None:
    code = (
        "import sys, lightstream.trainers\n"
        "from lightstream.trainers import VERL, Trainer, algo, teach_answers\n"
        "VERL(model='none', steps=1)\n"
        "print([m for m in ('torch', 'verl', 'transformers', 'ray', 'faust', 'duckdb', 'litellm') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
