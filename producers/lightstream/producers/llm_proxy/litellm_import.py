"""LiteLLM, without its calls home; it takes seconds to import, so only what needs it does."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["imported_litellm"]


def imported_litellm() -> Any:
    """The module: no price list from the network, no telemetry, no advice on standard output."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    module: Any = litellm
    module.telemetry = False
    module.suppress_debug_info = True
    return module
