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


def test_every_name_is_there_and_the_names_alone_import_nothing() -> None:
    code = (
        "import sys, lightstream.trainers as trainers\n"
        "print([m for m in ('pydantic', 'confluent_kafka', 'torch', 'duckdb') if m in sys.modules])\n"
        "assert all(getattr(trainers, name) is not None for name in trainers.__all__)\n"
        "print([m for m in ('torch', 'verl', 'transformers', 'faust', 'litellm') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split("\n") == ["[]", "[]", ""]
