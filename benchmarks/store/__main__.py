"""Command line: ``python -m benchmarks.store`` prints tables, and with ``--json`` one JSON object.

Uses the cluster named by ``LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS``, or a broker of its own. Topics are new ones, with a
random prefix; worker, view and store server are processes of their own.

- ``rollouts``: enqueue -> dequeue -> succeeded. ``batched``: one algorithm enqueues 256 at a time and keeps the queue
  filled, 32 clients run, each with one rollout or, as Runners of agents that wait for their model do, with 16 at once.
  ``one by one``: each client enqueues one, dequeues one, ends it, and so on. ``http``: the same through the store
  server, on a store in memory and on Kafka. Processor time is per rollout, in microseconds: the figure to compare on a
  busy machine.
- ``calls``: single calls on an idle store, and ``wait_for_rollouts`` on 256 ids, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from lightstream.broker import EmbeddedBroker
from lightstream.runtime.settings import Settings

from .latency import single_calls, waking
from .processes import BROKER_PID, Processes, running, serving, settings_for
from .throughput import batched, one_at_a_time

CLIENTS = 32
AT_ONCE = 16
PROCESSES = (1, 2, 4)
Rows = dict[str, dict[str, float]]
"""Name of a row -> name of a column -> figure."""


def measure(*, seconds: float = 3.0, calls: int = 100, rounds: int = 20, only: str = "") -> dict[str, Rows]:
    """The tables, by name.

    Args:
        seconds: of each throughput.
        calls: of each single call.
        rounds: waits on 256 rollouts.
        only: measure what has this in its name; all by default.
    """
    made: dict[str, Rows] = {"rollouts": {}, "calls": {}}

    def rate(name: str, figures: Callable[[], dict[str, float]]) -> None:
        if only in name:
            made["rollouts"][name] = figures()

    def latency(name: str, figures: Callable[[], Rows]) -> None:
        if only in name:
            made["calls"] |= figures()

    def over_http(settings: Settings, what: str) -> None:
        if only not in "http" and only not in what:
            return
        with serving(settings, on_kafka=what == "Kafka") as server:
            for count, n in ((1, 1), (CLIENTS, 2)):
                name = f"http, on {what}, one by one, {count} in {n}"
                rate(name, partial(one_at_a_time, server, processes=n, count=count, seconds=seconds, transport="http"))

    with ExitStack() as stack:
        data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers, broker_pid = Settings.load().kafka_bootstrap_servers, int(os.environ.get(BROKER_PID, 0)) or None
        if servers is None:
            broker = stack.enter_context(EmbeddedBroker(Settings.load(data_dir=data_dir)))
            servers, broker_pid = broker.start(), broker.pid
        with running(settings_for(servers, data_dir), ["worker"], broker_pid) as place:
            latency("single calls", partial(single_calls, place, calls))
            rate("one by one, 1 in 1", partial(one_at_a_time, place, processes=1, count=1, seconds=seconds))
            for n in PROCESSES:
                name, many = f"{CLIENTS} in {n}", partial(_many, place, n, seconds)
                rate(f"one by one, {name}", partial(many, one_at_a_time))
                rate(f"batched, {name}", partial(many, batched))
                rate(f"batched, {name}, {AT_ONCE} at once", partial(many, partial(batched, at_once=AT_ONCE)))
        with running(settings_for(servers, data_dir), ["worker", "view"], broker_pid) as place:
            rate(f"batched, {CLIENTS} in 2, view on", partial(_many, place, 2, seconds, batched))
            latency("wait_for_rollouts", partial(waking, place, rounds))
            over_http(place.settings, "Kafka")
        over_http(settings_for(servers, data_dir), "memory")
    return made


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each throughput")
    parser.add_argument("--calls", type=int, default=100, help="of each single call")
    parser.add_argument("--rounds", type=int, default=20, help="waits on 256 rollouts")
    parser.add_argument("--only", default="", help="measure what has this in its name")
    arguments = vars(parser.parse_args())
    as_json = arguments.pop("json")
    tables = measure(**arguments)
    if as_json:
        print(json.dumps(tables))
        return
    for title, rows in tables.items():
        if rows:
            print("\n".join([title, *_lines(rows), ""]))


def _many(place: Processes, processes: int, seconds: float, how: Callable[..., dict[str, float]]) -> dict[str, float]:
    return how(place, processes=processes, count=CLIENTS, seconds=seconds)


def _lines(rows: Rows) -> list[str]:
    """A table as text; its columns in the order in which they first appear."""
    columns = list(dict.fromkeys(name for figures in rows.values() for name in figures))
    width = max(map(len, rows), default=0)
    lines = [f"{'':<{width}}  " + "  ".join(f"{name:>10}" for name in columns)]
    for row, figures in rows.items():
        cells = (f"{figures[name]:,.1f}" if name in figures else "" for name in columns)
        places = (max(len(name), 10) for name in columns)
        lines.append(f"{row:<{width}}  " + "  ".join(f"{c:>{w}}" for c, w in zip(cells, places, strict=True)))
    return lines


if __name__ == "__main__":
    main()
