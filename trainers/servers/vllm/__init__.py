"""vLLM as the model server of a training: started, watched and ended here, and given each version of the weights.

Agents and the LLM proxy see what the policy server shows them: ``policy@<version>`` by name, and in a header which
version answered. It is announced as ``policy`` for that.
"""

from typing import TYPE_CHECKING

from lightstream.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from .command import run
    from .options import VllmOptions
    from .server import VllmServer
    from .servers import VllmServers

__all__ = ["VllmOptions", "VllmServer", "VllmServers", "run"]

_MODULES = {"VllmOptions": "options", "VllmServer": "server", "VllmServers": "servers", "run": "command"}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
