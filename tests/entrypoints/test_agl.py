"""Agent Lightning's names, from here."""

from __future__ import annotations

import importlib
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, get_origin

import pytest

import lightstream.agl as agl
import lightstream.agl.adapter as agl_adapter
from lightstream.agl._names import ABSENT, ABSENT_MODULES, ABSENT_NAMES, FLAT, MODULES, PUBLIC
from lightstream.agl.algorithm import FunctionalAlgorithm
from lightstream.producers.agent.decorator import FunctionalLitAgent
from lightstream.schemas.distribution import installed_version
from lightstream.schemas.errors import SettingsError

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
        exported: list[str] = getattr(module, "__all__", [])
        later = set(exported) - vars(module).keys()  # imported, and verl with it, when it is used
        for name in MODULES[path].split():
            if (
                name == "reward" or name in later
            ):  # the module of that name is in its place, once imported, and callable
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


def test_types_of_tasks_and_older_names() -> None:
    assert get_origin(agl.Dataset[int]) is agl.Dataset
    assert get_origin(agl.APO[dict[str, str]]) is agl.APO
    assert get_origin(FunctionalAlgorithm[Any]) is FunctionalAlgorithm
    assert get_origin(FunctionalLitAgent[str]) is FunctionalLitAgent
    assert agl.TraceTripletAdapter is agl.TracerTraceToTriplet
    assert agl.BaseTraceTripletAdapter is agl_adapter.TraceToTripletBase
    assert agl.RolloutV2 is agl.Rollout
    assert agl.__version__ == installed_version()


def test_callbacks_of_a_proxy_are_those_that_it_has_anyway() -> None:
    agl.LLMProxy(port=0, callbacks=["opentelemetry", "return_token_ids", "logprobs"])
    with pytest.raises(SettingsError, match="LLMProxy takes no callbacks here"):
        agl.LLMProxy(port=0, callbacks=["opentelemetry", "mine"])
