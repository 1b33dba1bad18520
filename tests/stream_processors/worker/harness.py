"""A worker as a process of its own, and readers of what it writes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import (
    AttemptChanges,
    AttemptStatus,
    EventKind,
    LlmCall,
    Record,
    RolloutConfig,
    RolloutEvent,
    RolloutSpec,
    SpanRecord,
)
from lightstream.schemas.topics import Topic
from tests.support.log_tail import LogTail
from tests.support.waiting import eventually

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 300.0
RUN = """
from lightstream.runtime.settings import Settings
from lightstream.stream_processors.worker import run
run(Settings.load())
"""
CODEC = Codec()


class WorkerProcess:
    """``worker.run`` in a process that can be killed. Its output is shown when it does not start."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._log = Path(settings.data_dir) / "worker.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def output(self) -> str:
        return self._log.read_text("utf-8") if self._log.exists() else ""

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start without waiting."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", RUN],
                env=os.environ | self._settings.to_environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def start(self) -> None:
        """Start and wait until it works on its partitions."""
        self.launch()
        eventually(self._ready, timeout_s=START_TIMEOUT_S, what=f"the worker's start\n{self.output}")

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait for the end; the exit code."""
        assert self._process is not None
        return self._process.wait(STOP_TIMEOUT_S)

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the worker ended:\n{self.output}"
        service = find(self._settings, "worker")
        return service is not None and service.pid == self._process.pid


class TopicReader:
    """Everything in a topic, from its beginning, as decoded records."""

    def __init__(self, settings: Settings, topic: Topic) -> None:
        self._log = LogTail(settings, topic)

    @property
    def records(self) -> list[Record]:
        """What was read so far."""
        return [logged.record for logged in self._log.read if logged.record is not None]

    @property
    def keys(self) -> list[str]:
        """Of what was read so far, empty records included."""
        return [logged.key for logged in self._log.read]

    def poll(self) -> list[Record]:
        """As :attr:`records`, and what came since, which may not be all of it."""
        self._log.poll()
        return self.records

    def read_to_end(self) -> list[Record]:
        """Everything that is in the topic now. The broker must answer."""
        self._log.read_to_end()
        return self.records

    def wait_for(self, count: int, timeout_s: float = 300.0) -> list[Record]:
        """Wait until there are ``count`` records."""
        return eventually(
            lambda: records if len(records := self.poll()) >= count else [],
            timeout_s=timeout_s,
            what=f"{count} records",
        )


def enqueued(rollout_id: str, **config: object) -> RolloutEvent:
    """Its attempts may be silent for an hour, unless ``config`` says otherwise."""
    patient: dict[str, object] = {"unresponsive_seconds": 3600.0, "timeout_seconds": 3600.0}
    spec = RolloutSpec(rollout_id=rollout_id, config=RolloutConfig.model_validate(patient | config))
    return RolloutEvent(
        event_id=f"{rollout_id}:enqueued",
        kind=EventKind.ENQUEUED,
        rollout_id=rollout_id,
        occurred_unix_nano=time.time_ns(),
        rollout=spec,
    )


def started(rollout_id: str, sequence: int = 1) -> RolloutEvent:
    attempt_id = f"{rollout_id}-a{sequence}"
    return RolloutEvent(
        event_id=f"{attempt_id}:started",
        kind=EventKind.ATTEMPT_STARTED,
        rollout_id=rollout_id,
        occurred_unix_nano=time.time_ns(),
        attempt_id=attempt_id,
        attempt_sequence=sequence,
        worker_id="w",
    )


def ended(rollout_id: str, sequence: int = 1, error: str | None = None) -> RolloutEvent:
    attempt_id = f"{rollout_id}-a{sequence}"
    return RolloutEvent(
        event_id=f"{attempt_id}:ended",
        kind=EventKind.ATTEMPT_UPDATED,
        rollout_id=rollout_id,
        occurred_unix_nano=time.time_ns(),
        attempt_id=attempt_id,
        attempt_changes=AttemptChanges(status=AttemptStatus.FAILED if error else AttemptStatus.SUCCEEDED),
        error_type=error,
    )


def span(rollout_id: str, number: int = 0, sequence: int = 1) -> SpanRecord:
    """An LLM call with three response tokens."""
    return SpanRecord(
        rollout_id=rollout_id,
        attempt_id=f"{rollout_id}-a{sequence}",
        trace_id=f"{number:032x}",
        span_id=f"{number + 1:016x}",
        name="chat.completion",
        start_unix_nano=1,
        end_unix_nano=2,
        llm_call=LlmCall(
            response_id=f"{rollout_id}-{number}",
            response_model="policy@1",
            policy_version=1,
            prompt_token_ids=pack_int32([1, 2]),
            response_token_ids=pack_int32([3, 4, 5]),
            response_logprobs=pack_float32([-0.5, -0.5, -0.5]),
            http_status=200,
        ),
    )
