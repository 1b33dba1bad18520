"""The view beside Arize Phoenix and MLflow: spans a second, and how soon a trace's page can be used.

``python -m benchmarks.peers --phoenix PATH --mlflow PATH`` prints a table; the paths are those of the two commands,
each installed in an environment of its own. All of it runs on this machine, one server after another, so that none
takes from another, and each round has all of them:

- OTLP requests of 500 spans by four connections, from the first request to the last span that can be read. Ours go
  through the gateway and Kafka;
- pages of a trace of 100 and one of 10,000 spans in Chromium, from the address to the attributes of a span that was
  clicked. Phoenix shows the newest 1,000 spans.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import defaultdict
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from ..cluster import cluster
from .pages import browser, first_interaction_s, store_rollout, store_trace
from .servers import LIGHTSTREAM, Server, lightstream, mlflow, phoenix
from .spans import spans_per_s

Figures = dict[str, dict[str, list[float]]]
"""Figure -> server -> one of each round."""

WARM_UP_SPANS = 500
TRACES = (100, 10_000)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phoenix", type=Path, required=True, help="Phoenix's command `phoenix`")
    parser.add_argument("--mlflow", type=Path, required=True, help="MLflow's command `mlflow`")
    parser.add_argument("--spans", type=int, default=10_000, help="of each server and round, 10,000 by default")
    parser.add_argument("--rounds", type=int, default=3, help="3 by default")
    arguments = parser.parse_args()
    figures: Figures = defaultdict(lambda: defaultdict(list))
    for number in range(arguments.rounds):
        with cluster() as kafka:
            settings = kafka.settings(gateway_port=0, gateway_grpc_port=0)
            for spans in TRACES:
                store_rollout(settings, _rollout_id(spans))
            _measure(lightstream(settings), arguments.spans, number, figures)
        for start in (partial(phoenix, arguments.phoenix), partial(mlflow, arguments.mlflow)):
            with tempfile.TemporaryDirectory() as folder:
                _measure(start(Path(folder)), arguments.spans, number, figures)
        _print(figures)


def _measure(start: AbstractContextManager[Server], spans: int, number: int, figures: Figures) -> None:
    with start as server:
        spans_per_s(server, WARM_UP_SPANS, 2 * number)
        figures["spans/s"][server.name].append(spans_per_s(server, spans, 2 * number + 1))
        urls = {count: store_trace(server, count, 1000 * number + count, _rollout_id(count)) for count in TRACES}
        with browser() as chromium:
            first_interaction_s(chromium, urls[TRACES[0]])  # warm up
            for count, url in urls.items():
                nodes = figures[f"nodes of a page with {count:,} spans"][server.name]
                seconds = first_interaction_s(chromium, url, then=nodes.append)
                figures[f"first interaction with {count:,} spans, s"][server.name].append(seconds)


def _rollout_id(spans: int) -> str:
    return f"rollout-of-{spans}"


def _print(figures: Figures) -> None:
    for figure, by_server in figures.items():
        ours = statistics.median(by_server[LIGHTSTREAM])
        for server, values in by_server.items():
            middle = statistics.median(values)
            print(f"{figure:<42} {server:<12} {middle:>12,.2f} {middle / ours:>8.2f} x  {_rounded(values)}", flush=True)
    print(flush=True)


def _rounded(values: list[float]) -> str:
    return ", ".join(f"{value:,.2f}" for value in values)


if __name__ == "__main__":
    main()
