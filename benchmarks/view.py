"""The view: LLM-span rows/s into DuckDB, and how long queries take at large counts.

``python -m benchmarks.view`` prints a table, and with ``--json`` one JSON object. Uses the cluster named by
``LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS``, or a broker of its own. Topics are new ones, with a random prefix.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from lightstream.broker import EmbeddedBroker
from lightstream.schemas.codec import Codec
from lightstream.schemas.kafka import KafkaPublisher, create_topics
from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import (
    AttemptState,
    AttemptStatus,
    EventKind,
    LlmCall,
    RolloutSpec,
    RolloutState,
    RolloutStatus,
    SpanRecord,
    Verdict,
    VerdictOutcome,
)
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import SPANS
from lightstream.store_views.client import ViewClient
from lightstream.store_views.materialiser import ViewDatabase, default_path
from lightstream.store_views.materialiser.arrow_rows import LoggedRecord, arrow_table
from lightstream.store_views.server import QueryLimits, run_query
from lightstream.store_views.tables import tables_of

__all__ = ["main", "measure"]

PROMPT_TOKENS, RESPONSE_TOKENS, VOCABULARY = 512, 128, 150_000
"""640 token ids a span, of a vocabulary of today's size, so that they compress as real ones do."""
SPANS_PER_ROLLOUT = 4
CATCH_UP_TIMEOUT_S = 600.0
POLL_INTERVAL_S = 0.02
ROLLOUTS_PER_BATCH = 20_000
QUERIES = {
    "newest_100_rollouts": "SELECT * FROM rollouts ORDER BY enqueued_unix_nano DESC LIMIT 100",
    "rollouts_by_status": "SELECT status, count(*) FROM rollouts GROUP BY status",
    "one_rollout": "SELECT * FROM rollouts WHERE rollout_id = 'r77'",
}


def measure(*, spans: int = 100_000, rollouts: int = 1_000_000) -> dict[str, float]:
    """Run both measurements. Rows per second are counted from the first transaction, so without start-up.

    Args:
        spans: LLM spans in the log when the view starts.
        rollouts: rollouts, with two states each, in the view when it is queried.
    """
    with ExitStack() as stack:
        data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = Settings.load().kafka_bootstrap_servers
        if servers is None:
            servers = stack.enter_context(EmbeddedBroker(Settings.load(data_dir=data_dir))).start()
        settings = Settings.load(
            kafka_bootstrap_servers=servers, topic_prefix=f"bench{uuid.uuid4().hex[:8]}.", data_dir=data_dir
        )
        create_topics(settings)
        figures = _rows_per_second(settings, spans)
        return figures | _query_ms(data_dir / "large.duckdb", rollouts)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    arguments = parser.parse_args()
    figures = measure(spans=arguments.spans, rollouts=arguments.rollouts)
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:<40} {value:>12,.1f}")


def _rows_per_second(settings: Settings, spans: int) -> dict[str, float]:
    codec, rng = Codec(), random.Random(7)
    with closing(KafkaPublisher(settings)) as publisher:
        for i in range(spans):
            rollout_id = f"r{i // SPANS_PER_ROLLOUT}"
            publisher.publish_encoded(SPANS, rollout_id, codec.encode(_span(rollout_id, rng)))
            if i % 10_000 == 0:
                publisher.flush(CATCH_UP_TIMEOUT_S)
        assert publisher.flush(CATCH_UP_TIMEOUT_S) == 0
    with _view(settings) as process, closing(ViewClient(settings)) as client:
        first_s, first = 0.0, 0
        while (reached := _spans_reflected(client)) < spans:
            if first == 0 and reached > 0:
                first_s, first = time.perf_counter(), reached
            assert process.poll() is None, "the view ended"
            time.sleep(POLL_INTERVAL_S)
        seconds = time.perf_counter() - first_s
        assert client.query("SELECT count(*) FROM spans_raw", "now").scalar() == spans
        cpu_s = _processor_seconds(process.pid)
        began_s = time.perf_counter()
        (account,) = client.query("FROM call_accounting", timeout_s=CATCH_UP_TIMEOUT_S).dicts()
        accounting_ms = (time.perf_counter() - began_s) * 1000
        assert account["balanced"], account
        memory_bytes = _memory_bytes_max(process.pid)
    return {
        "llm_span_rows_per_s": (spans - first) / seconds,
        "llm_span_cpu_us_start_up_included": cpu_s / spans * 1e6,
        "view_memory_mb_max": memory_bytes / 1e6,
        "file_bytes_per_llm_span": default_path(settings).stat().st_size / spans,
        f"call_accounting_at_{spans}_calls_ms": accounting_ms,
    }


@contextmanager
def _view(settings: Settings) -> Generator[subprocess.Popen[bytes], None, None]:
    """The view as users run it."""
    command = [sys.executable, "-m", "lightstream.store_views"]
    process = subprocess.Popen(command, env=os.environ | settings.to_environment(), stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(CATCH_UP_TIMEOUT_S)


def _spans_reflected(client: ViewClient) -> int:
    return sum(client.positions()["positions"].get("spans", {}).values())


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_bytes_max(pid: int) -> int:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _query_ms(path: Path, rollouts: int) -> dict[str, float]:
    database = ViewDatabase(path, {})
    try:
        for first in range(0, rollouts, ROLLOUTS_PER_BATCH):
            states = list(_states(first, min(ROLLOUTS_PER_BATCH, rollouts - first)))
            database.append({t.name: arrow_table(t, states) for t in tables_of(RolloutState)}, {})
        figures: dict[str, float] = {}
        for name, sql in QUERIES.items():
            times: list[float] = []
            for _ in range(3):
                began_s = time.perf_counter()
                run_query(database.cursor(), sql, QueryLimits(timeout_s=CATCH_UP_TIMEOUT_S))
                times.append((time.perf_counter() - began_s) * 1000)
            figures[f"{name}_at_{rollouts}_ms"] = sorted(times)[1]
        return figures
    finally:
        database.close()


def _span(rollout_id: str, rng: random.Random) -> SpanRecord:
    call = LlmCall(
        response_id=f"chatcmpl-{rng.getrandbits(64):016x}",
        requested_model="policy",
        response_model="policy@1",
        policy_version=1,
        prompt_token_ids=pack_int32(rng.choices(range(VOCABULARY), k=PROMPT_TOKENS)),
        response_token_ids=pack_int32(rng.choices(range(VOCABULARY), k=RESPONSE_TOKENS)),
        response_logprobs=pack_float32([-rng.random() for _ in range(RESPONSE_TOKENS)]),
        finish_reason="stop",
        http_status=200,
    )
    return SpanRecord(
        rollout_id=rollout_id,
        attempt_id=f"{rollout_id}-a1",
        trace_id=f"{rng.getrandbits(128):032x}",
        span_id=f"{rng.getrandbits(64):016x}",
        name="chat.completion",
        start_unix_nano=1_700_000_000_000_000_000,
        end_unix_nano=1_700_000_000_200_000_000,
        attributes={"gen_ai.request.model": "policy", "gen_ai.usage.output_tokens": RESPONSE_TOKENS},
        llm_call=call,
    )


def _states(first: int, count: int) -> Iterator[LoggedRecord]:
    """A queued and a finished state of each rollout."""
    for i in range(first, first + count):
        spec = RolloutSpec(rollout_id=f"r{i}", input_json='{"question": "2 + 2"}', enqueued_unix_nano=i)
        attempt = AttemptState(
            attempt_id=f"r{i}-a1", sequence=1, status=AttemptStatus.SUCCEEDED, started_unix_nano=i, ended_unix_nano=i
        )
        for status, attempts in ((RolloutStatus.QUEUING, []), (RolloutStatus.SUCCEEDED, [attempt])):
            offset = 2 * i + len(attempts)
            verdict = Verdict(event_id=f"{i}", kind=EventKind.ENQUEUED, outcome=VerdictOutcome.APPLIED)
            state = RolloutState(
                rollout=spec,
                status=status,
                attempts=attempts,
                updated_unix_nano=i,
                source_offset=offset,
                verdict=verdict,
            )
            yield LoggedRecord(state, 0, offset, i)


if __name__ == "__main__":
    main()
