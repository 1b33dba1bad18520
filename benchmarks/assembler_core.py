"""The pure assembler: spans/s of one core with and without decoding, and time per span as attempts grow.

``python -m benchmarks.assembler_core`` prints a table, and with ``--json`` one JSON object. Each span is an LLM call of
320 prompt and 320 response token ids with log-probabilities, as the proxy records it. No broker. All times are CPU time
of this process, best of the rounds; building and encoding the records is not counted. Targets: 40,000 spans/s without
decoding; time per span flat within 1.3x from 10 to 100,000 calls in an attempt. ``longest_stall_ms`` is the longest
that one record took: the closing record of the longest attempt (the worker closes such ones beside its event loop). The
garbage collector is set as the worker sets it: records form no cycles, and with the defaults of Python its passes over
what an attempt holds, not assembly, make up for most of what a span costs more in a long attempt.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Iterable, Iterator

from lightstream.runtime.gc_tuning import tune_gc
from lightstream.schemas.codec import Codec
from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import (
    AttemptClosed,
    AttemptOpened,
    AttemptStatus,
    LlmCall,
    RolloutSpec,
    RolloutStatus,
    SpanRecord,
)
from lightstream.stream_processors.core.assembly import Assembler, AssemblyRules
from lightstream.stream_processors.core.segments import segments_of

from .command import run

TOKENS = 320
PAYLOADS = 4096
"""Distinct token data: 16 MB, more than the caches near a core."""
CHUNK = 1000
CALLS = (10, 1_000, 100_000)
MESSAGES = json.dumps([{"role": "user", "content": "x" * 1000}])
RULES = AssemblyRules(trajectory_bytes_max=1 << 40)
"""Without the size limit: a record takes about 7,000 such calls, and the time of 100,000 is asked for."""

AnyRecord = SpanRecord | AttemptOpened | AttemptClosed
Payload = tuple[bytes, bytes, bytes]


def measure(*, spans: int = 100_000, rounds: int = 3) -> dict[str, float]:
    """Rates per second and microseconds per span."""
    payloads = [_payload(number) for number in range(PAYLOADS)]
    tune_gc()
    figures: dict[str, float] = {}
    for calls in CALLS:
        best = min(_assemble(payloads, spans, calls) for _ in range(rounds))
        figures[f"us_per_span_{calls}_calls"] = best[0] / spans * 1e6
        if calls == CALLS[-1]:
            figures["longest_stall_ms"] = best[1] * 1e3
    per_span = [figures[f"us_per_span_{calls}_calls"] for calls in CALLS]
    figures["spans_per_s"] = 1e6 / per_span[0]
    figures["slowdown_10_to_100000_calls"] = per_span[-1] / per_span[0]
    decode_s, both_s = min(_decode_and_assemble(payloads, spans // 10) for _ in range(rounds))
    figures["us_per_decode"] = decode_s / (spans // 10) * 1e6
    figures["spans_per_s_with_decode"] = (spans // 10) / both_s
    figures["us_per_merged_turn"] = min(_merge(turns=200) for _ in range(rounds))
    return figures | {"load_average": os.getloadavg()[0]}


def _assemble(payloads: list[Payload], spans: int, calls: int) -> tuple[float, float]:
    """CPU seconds for all spans, and for the slowest record."""
    assembler = Assembler(0, RULES, reads_back=True)
    total = longest = 0.0
    offset = 0
    gc.collect()
    for chunk in _chunks(_log(payloads, spans, calls)):
        started = time.process_time()
        for record in chunk:
            if type(record) is AttemptClosed:
                before = time.process_time()
                assembler.on_record(record, offset)
                longest = max(longest, time.process_time() - before)
            else:
                assembler.on_record(record, offset)
            offset += 1
        total += time.process_time() - started
    return total, longest


def _decode_and_assemble(payloads: list[Payload], spans: int) -> tuple[float, float]:
    """CPU seconds to decode all records, and to decode and assemble them."""
    codec = Codec()
    encoded = [codec.encode(record) for record in _log(payloads, spans, CALLS[0])]
    gc.collect()
    started = time.process_time()
    for data in encoded:
        codec.decode(data)
    decoded_s = time.process_time() - started
    assembler = Assembler(0, RULES, reads_back=True)
    started = time.process_time()
    for offset, data in enumerate(encoded):
        record = codec.decode(data)
        assert isinstance(record, SpanRecord | AttemptOpened | AttemptClosed)
        assembler.on_record(record, offset)
    return decoded_s, time.process_time() - started


def _merge(turns: int) -> float:
    """CPU microseconds per turn to merge a conversation whose every prompt continues the last answer."""
    assembler = Assembler(0, RULES, reads_back=True)
    assembler.on_record(_opened(0), 0)
    ids = list(range(TOKENS))
    for turn in range(turns):
        answer = [turn] * 16
        payload = (pack_int32(ids), pack_int32(answer), pack_float32([-0.5] * len(answer)))
        assembler.on_record(_call(0, turn, payload), turn + 1)
        ids = [*ids, *answer, *range(16)]
    (trajectory,) = assembler.on_record(_closed(0), turns + 1)
    started = time.process_time()
    (segment,) = segments_of(trajectory)
    elapsed_s = time.process_time() - started
    assert sum(segment.loss_mask) == turns * 16
    return elapsed_s / turns * 1e6


def _log(payloads: list[Payload], spans: int, calls: int) -> Iterator[AnyRecord]:
    for attempt in range(spans // calls):
        yield _opened(attempt)
        for number in range(calls):
            yield _call(attempt, number, payloads[(attempt * calls + number) % PAYLOADS])
        yield _closed(attempt)


def _chunks(records: Iterable[AnyRecord]) -> Iterator[list[AnyRecord]]:
    chunk: list[AnyRecord] = []
    for record in records:
        chunk.append(record)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    yield chunk


def _payload(number: int) -> Payload:
    ids = [(number * 31 + position * 7) % 150_000 for position in range(2 * TOKENS)]
    logprobs = [-0.001 * ((number + position) % 5000) - 1e-6 for position in range(TOKENS)]
    return pack_int32(ids[:TOKENS]), pack_int32(ids[TOKENS:]), pack_float32(logprobs)


def _opened(attempt: int) -> AttemptOpened:
    rollout_id = f"rollout-{attempt:08d}"
    return AttemptOpened(
        rollout=RolloutSpec(rollout_id=rollout_id, group_id=f"group-{attempt // 8}", group_size=8),
        attempt_id=f"{rollout_id}-a1",
        attempt_sequence=1,
        opened_unix_nano=1,
    )


def _closed(attempt: int) -> AttemptClosed:
    rollout_id = f"rollout-{attempt:08d}"
    return AttemptClosed(
        rollout_id=rollout_id,
        attempt_id=f"{rollout_id}-a1",
        attempt_sequence=1,
        status=AttemptStatus.SUCCEEDED,
        rollout_status=RolloutStatus.SUCCEEDED,
        final=True,
        closed_unix_nano=2,
    )


def _call(attempt: int, number: int, payload: Payload) -> SpanRecord:
    rollout_id = f"rollout-{attempt:08d}"
    prompt, response, logprobs = payload
    return SpanRecord(
        rollout_id=rollout_id,
        attempt_id=f"{rollout_id}-a1",
        trace_id=f"{attempt:032x}",
        span_id=f"{number + 1:016x}",
        name="chat.completion",
        start_unix_nano=1 + number,
        end_unix_nano=2 + number,
        llm_call=LlmCall(
            response_id=f"chatcmpl-{attempt:08d}-{number:08d}",
            requested_model="policy",
            response_model="policy@7",
            policy_version=7,
            prompt_token_ids=prompt,
            response_token_ids=response,
            response_logprobs=logprobs,
            finish_reason="stop",
            http_status=200,
            request_json=MESSAGES,
        ),
    )


def main() -> None:
    """Measure and print."""
    run(__doc__, measure)


if __name__ == "__main__":
    main()
