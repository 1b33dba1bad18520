"""Options of vLLM. Imports nothing heavy."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from lightstream.schemas.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class VllmOptions:
    """Options of vLLM.

    Attributes:
        python: of the environment that vLLM is installed in; by default this one.
        arguments: further ones of its command line (``("--max-model-len", "4096")``). With ``--enable-lora``, versions
            may be adapters.
        environment: variables added to ours.
        start_timeout_s: how long it may take to make its first token.
        swap_timeout_s: how long calls under way, and then reading other weights, may take.
        adapters_kept: of versions that are adapters, so many of the newest are served.
    """

    python: str = sys.executable
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    start_timeout_s: float = 600.0
    swap_timeout_s: float = 600.0
    adapters_kept: int = 4

    def __post_init__(self) -> None:
        ours = {"--model", "--host", "--port", "--served-model-name"}.intersection(self.arguments)
        if ours:
            raise SettingsError(
                f"vLLM's arguments have {', '.join(sorted(ours))}, which Lightstream sets itself.",
                next_step="Leave them out.",
            )
        if self.adapters_kept < 1:
            raise SettingsError(f"adapters_kept is {self.adapters_kept}; at least 1 is needed.")
