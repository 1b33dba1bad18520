"""The command ``agl``, with Agent Lightning 0.3's subcommands and their options."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from importlib import import_module

from lightstream.schemas.errors import LightstreamError

__all__ = ["main"]

SUBCOMMANDS = {
    "vllm": ("vllm", "run vLLM's command line"),
    "store": ("store", "serve a store over HTTP"),
    "prometheus": ("prometheus", "serve the metrics of several processes"),
    "agentops": ("agentops_server", "answer AgentOps' clients on this machine"),
}
"""Name -> the module that has its ``main``, and what it does."""


def main(argv: Iterable[str] | None = None) -> int:
    """Run a subcommand; ``lightstream`` has the others of this project.

    Args:
        argv: the arguments; by default those of the process.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(
        prog="agl",
        description="Agent Lightning's commands; `lightstream --help` shows those of Lightstream.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="subcommands:\n" + "\n".join(f"  {name:<12}{what}" for name, (_, what) in SUBCOMMANDS.items()),
    )
    parser.add_argument("subcommand", choices=SUBCOMMANDS, help="what to run; its own --help shows its options")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    given = parser.parse_args(None if argv is None else list(argv))
    module, _ = SUBCOMMANDS[given.subcommand]
    try:
        return int(import_module(f"{__name__}.{module}").main(given.arguments))
    except LightstreamError as error:
        sys.stderr.write(f"agl {given.subcommand}: {error}\n")
        return 1
