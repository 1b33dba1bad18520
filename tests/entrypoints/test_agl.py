"""Agent Lightning's names, from here."""

from __future__ import annotations

import importlib
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import lightstream.agl as agl
from lightstream.agl._names import ABSENT, ABSENT_MODULES, ABSENT_NAMES, FLAT, MODULES, PUBLIC

IMPORTING = """
import sys
import lightstream.agl as agl
print(len([name for name in sys.modules if name.partition(".")[0] in ("pydantic", "opentelemetry", "torch")]))
agl.LitAgent, agl.LLM, agl.rollout, agl.emit_reward, agl.OtelTracer, agl.Trainer, agl.VERL
import lightstream.agl.semconv, lightstream.agl.types, lightstream.agl.utils.otel, lightstream.agl.adapter.triplet
print(len({"torch", "verl", "faust", "duckdb", "litellm"} & set(sys.modules)))
"""


def test_every_name_is_there_or_says_what_is() -> None:
    assert not FLAT.keys() & ABSENT.keys()
    assert set(PUBLIC) <= {*FLAT, *ABSENT}
    assert sorted(agl.__all__) == sorted(FLAT), "each once"
    assert set(agl.__all__) <= set(dir(agl))
    for name in agl.__all__:
        assert getattr(agl, name) is not None
    for name, instead in ABSENT.items():
        with pytest.raises(AttributeError, match="instead: ") as raised:
            getattr(agl, name)
        assert instead in str(raised.value)
    with pytest.raises(AttributeError, match="has no attribute 'lightning'"):
        agl.__getattr__("lightning")


def test_the_dotted_paths_have_the_same_objects() -> None:
    for path in MODULES.keys() - ABSENT_MODULES.keys():
        module = importlib.import_module(f"lightstream.agl.{path}")
        assert sys.modules[f"lightstream.agl.{path}"] is module
        for name in MODULES[path].split():
            if name == "reward":  # once imported, the module of that name is in its place, and callable
                continue
            if not hasattr(module, name):
                reasons = [
                    instead for pattern, instead in ABSENT_NAMES.items() if fnmatchcase(f"{path}.{name}", pattern)
                ]
                assert reasons or name in ABSENT, f"nothing says what replaces {path}.{name}"
            elif name in FLAT:
                assert getattr(module, name) is getattr(agl, name)
            else:
                assert getattr(agl, name, None) is None, f"{name} is public: FLAT names its module"


def test_importing_it_is_light() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING], stdout=subprocess.PIPE, text=True, timeout=120, check=True, cwd=Path.home()
    )
    assert done.stdout.split() == ["0", "0"]
