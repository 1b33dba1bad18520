"""``agl vllm``: vLLM's own command line. Its servers return token ids, for which the LLM proxy asks."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from lightstream.schemas.distribution import install_hint
from lightstream.schemas.errors import SettingsError

__all__ = ["main"]


def main(argv: Iterable[str] | None = None) -> int:
    """Run it, with these arguments.

    Raises:
        SettingsError: vLLM is not installed.
    """
    try:
        from vllm.entrypoints.cli.main import main as run  # type: ignore[import-not-found]  # in no environment of ours
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "vllm":
            raise
        raise SettingsError("vLLM is not installed here.", next_step=install_hint("vllm")) from error
    before = sys.argv
    sys.argv = ["vllm", *(before[1:] if argv is None else argv)]
    try:
        run()
    finally:
        sys.argv = before
    return 0
