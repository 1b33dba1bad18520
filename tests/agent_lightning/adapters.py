"""What the adapters make of traces: ``python -m tests.agent_lightning.adapters <package>``.

Traces are read from standard input and answers printed, all of it JSON.

Needs nothing but the package, Agent Lightning or ours: each runs in an environment of its own.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
import warnings
from typing import Any

from .spans import span


def adapted(package: Any, trace: dict[str, Any]) -> dict[str, Any]:
    """Of one trace: its tree before and after the repair, triplets, conversations."""
    module = importlib.import_module(f"{package.__name__}.adapter.triplet")
    spans = [span(package, **fields) for fields in trace["spans"]]
    if not trace["options"]:
        return {"proxy": [_dumped(triplet) for triplet in package.LlmProxyTraceToTriplet().adapt(spans)]}
    options = trace["options"] | {"reward_match": module.RewardMatchPolicy(trace["options"]["reward_match"])}
    tree = module.TraceTree.from_spans(spans)
    before = tree.names_tuple()
    tree.repair_hierarchy()
    conversations = package.TraceToMessages().adapt(spans)
    return {
        "tree": [before, tree.names_tuple()],
        "triplets": [_dumped(triplet) for triplet in package.TracerTraceToTriplet(**options).adapt(spans)],
        # Ours reads the other dialects' messages too.
        "messages": conversations if all(_is_agentops(fields) for fields in trace["spans"]) else None,
    }


def _is_agentops(fields: dict[str, Any]) -> bool:
    return not any(name.startswith("agentlightning.operation.") for name in fields["attributes"])


def _dumped(triplet: Any) -> Any:
    return triplet.model_dump(mode="json")


def main(package_name: str) -> None:
    package = importlib.import_module(package_name)
    for trace in json.load(sys.stdin):
        print(json.dumps(adapted(package, trace)), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    main(sys.argv[1])
