"""Names that weights are served under: ``digits@7`` of the run ``digits``, ``digits/planner@7`` of its policy."""

from __future__ import annotations

import re
from functools import lru_cache

VERSION_MAX = 2**63 - 1
"""Records have versions as Avro's ``long``."""
_DIGITS_MAX = len(str(VERSION_MAX))


def version_of_text(text: str) -> int | None:
    """The version that ``text`` is; ``None`` where it is not one, or not one that a record can hold."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        return None
    version = int(text)
    return version if version <= VERSION_MAX else None


@lru_cache(maxsize=1024)
def version_of_model(model: str | None) -> int | None:
    """``7`` of ``policy@7``: the version that a model's name ends with, ``None`` without one."""
    _, at, suffix = (model or "").rpartition("@")
    return version_of_text(suffix) if at else None


def base_of_model(model: str | None) -> str:
    """``policy`` of ``policy@7``; the whole name where it has no version."""
    base, at, _ = (model or "").rpartition("@")
    return base if at else model or ""


MODEL_VERSION = r"(@[0-9]+|[-@][0-9]{8}(-v[0-9]+(:[0-9]+)?)?|-[0-9]{4}-[0-9]{2}-[0-9]{2})$"
"""End of a model's name that says which version of it: ``@7`` of ours, a date of a public one (``-20250514``,
``@20250514``, ``-2024-07-18``; at Bedrock ``-20241022-v2:0``). Python and DuckDB read it alike."""


def model_family(model: str) -> str:
    """``digits`` of ``digits@7``, ``gpt-4o-mini`` of ``gpt-4o-mini-2024-07-18``; the name itself where it has no
    version. The view's SQL function of this name is the same."""
    return re.sub(MODEL_VERSION, "", model)


def policy_of_model(model: str) -> str:
    """``planner`` of ``digits/planner@7``; of ``planner@7``, as records of 0.2.0 have it, too."""
    return model.rpartition("@")[0].rpartition("/")[2]


def run_of_resources(resources_id: str) -> str:
    """``digits`` of ``digits-v7``: the run in the id of a trainer's resources, empty where they are no trainer's."""
    run_id, _, suffix = resources_id.rpartition("-v")
    return run_id if version_of_text(suffix) is not None else ""
