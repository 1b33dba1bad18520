"""The view: rows/s into DuckDB, how soon it answers after a start, and how long queries take at large counts.

``python -m benchmarks.view`` prints a table, and with ``--json`` one JSON object. Uses the cluster named by
``LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS``, or a broker of its own. Topics are new ones, with a random prefix.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from contextlib import closing

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import LlmCall, SpanRecord
from lightstream.schemas.topics import ROLLOUTS, SPANS, Topic
from lightstream.store_views.client import ViewClient
from lightstream.store_views.materialiser import default_path

from .cluster import cluster
from .command import run
from .finished_rollouts import STATES_PER_ROLLOUT, states
from .view_at_scale import measure_at_scale
from .view_process import CATCH_UP_TIMEOUT_S, catch_up, memory_bytes_max, processor_seconds, view_process

PROMPT_TOKENS, RESPONSE_TOKENS, VOCABULARY = 512, 128, 150_000
"""640 token ids a span, of a vocabulary of today's size, so that they compress as real ones do."""
SPANS_PER_ROLLOUT = 4
RECORDS_PER_FLUSH = 10_000


def measure(*, spans: int = 100_000, states: int = 200_000, rollouts: int = 1_000_000) -> dict[str, float]:
    """Run all measurements. Rows per second are counted from the first transaction, so without start-up.

    Args:
        spans: LLM spans in the log when the view starts.
        states: states of rollouts in the log when another view starts.
        rollouts: finished rollouts, with their attempts, spans and trajectories, in the view when it is queried.
    """
    with cluster() as kafka:
        figures = _span_figures(kafka.settings(folder="spans"), spans) if spans else {}
        figures |= _state_figures(kafka.settings(folder="states"), states) if states else {}
        return figures | (measure_at_scale(kafka.settings(folder="large"), rollouts) if rollouts else {})


def main() -> None:
    """Measure and print."""
    run(__doc__, measure, spans=100_000, states=200_000, rollouts=1_000_000)


def _span_figures(settings: Settings, spans: int) -> dict[str, float]:
    codec, rng = Codec(), random.Random(7)
    rollout_ids = (f"r{i // SPANS_PER_ROLLOUT}" for i in range(spans))
    _publish(settings, SPANS, ((rollout_id, codec.encode(llm_span(rollout_id, rng))) for rollout_id in rollout_ids))
    with view_process(settings) as process, closing(ViewClient(settings)) as client:
        rows_per_s = catch_up(process, client, SPANS.name, spans)
        assert client.query("SELECT count(*) FROM spans_raw", "now").scalar() == spans
        cpu_s = processor_seconds(process.pid)
        began_s = time.perf_counter()
        (account,) = client.query("FROM call_accounting", timeout_s=CATCH_UP_TIMEOUT_S).dicts()
        accounting_ms = (time.perf_counter() - began_s) * 1000
        assert account["balanced"], account
        memory_bytes = memory_bytes_max(process.pid)
    return {
        "llm_span_rows_per_s": rows_per_s,
        "llm_span_cpu_us_start_up_included": cpu_s / spans * 1e6,
        "view_memory_mb_max": memory_bytes / 1e6,
        "file_bytes_per_llm_span": default_path(settings).stat().st_size / spans,
        f"call_accounting_at_{spans}_calls_ms": accounting_ms,
    }


def _state_figures(settings: Settings, count: int) -> dict[str, float]:
    """A view rebuilt from the log."""
    codec, rollouts = Codec(), count // STATES_PER_ROLLOUT
    _publish(settings, ROLLOUTS, ((s.rollout.rollout_id, codec.encode(s)) for s in states(0, rollouts)))
    with view_process(settings) as process, closing(ViewClient(settings)) as client:
        rows_per_s = catch_up(process, client, ROLLOUTS.name, rollouts * STATES_PER_ROLLOUT)
        assert client.query("SELECT count(*) FROM rollouts", "now").scalar() == rollouts
        cpu_s = processor_seconds(process.pid)
    return {"rollout_state_rows_per_s": rows_per_s, "rollout_state_cpu_us_start_up_included": cpu_s / count * 1e6}


def _publish(settings: Settings, topic: Topic, records: Iterable[tuple[str, bytes]]) -> None:
    with closing(KafkaPublisher(settings)) as publisher:
        for i, (key, value) in enumerate(records):
            publisher.publish_encoded(topic, key, value)
            if i % RECORDS_PER_FLUSH == 0:
                publisher.flush(CATCH_UP_TIMEOUT_S)
        assert publisher.flush(CATCH_UP_TIMEOUT_S) == 0


def llm_span(rollout_id: str, rng: random.Random) -> SpanRecord:
    """A span of an LLM call, with its token ids."""
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


if __name__ == "__main__":
    main()
