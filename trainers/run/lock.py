"""One trainer per run, and per policy of several: a second one is refused, in the name of the first.

The trainer says in ``workers`` that it is alive, again and again, and at the end how the run ended. No clocks are
compared: whether a trainer on this machine lives is asked of the system; one elsewhere counts as gone after
:data:`STALE_S` without a word, by this process's own clock. Of two that start at once, the first in the log stays.
Should both ever train, the ledger's transactions still end the first.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import socket
import threading
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.runtime.kafka import KafkaPublisher, PartitionReader, decoded
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import DecodeError, LightstreamError, TrainingError
from lightstream.schemas.records import WorkerHeartbeat, WorkerStatus
from lightstream.schemas.topics import WORKERS

logger = logging.getLogger(__name__)

BEAT_S = 2.0
STALE_S = 15.0
"""Seven signs of life may be lost or late."""

LOOK_S = 0.5
WRITE_TIMEOUT_S = 30.0
ERROR_CHARS_MAX = 4000


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""It becomes part of folders, consumer groups and rollout ids, of which Kafka, file systems and URLs ask different
things, and which have 256 characters."""


def checked_name(what: str, name: str) -> str:
    """``name``, if a trainer or a run may be called so.

    Raises:
        TrainingError: it may not.
    """
    if NAME.fullmatch(name) is None:
        raise TrainingError(
            f"{what} is {name!r:.200}, which no trainer or run may be called.",
            next_step="Use 1 to 100 letters (a to z), digits, dots, dashes, underscores; begin with letter or digit.",
        )
    return name


class RunLock:
    """Held while a process trains. A context manager.

    Args:
        policies: names of policies that no other run may train meanwhile.
        take_over: do not ask whether another is alive.
        trains: whether the run is trained; else only others are kept out, and its state stays as it was.

    Raises:
        TrainingError: on entering, another trainer of this run, of this id or of one of the policies is alive. Nothing
            has changed.
        ServiceUnavailableError, PublishError: on entering, Kafka does not answer.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        trainer_id: str,
        run_id: str,
        policies: frozenset[str] = frozenset(),
        take_over: bool = False,
        trains: bool = True,
    ) -> None:
        self._codec = codec_for(settings)
        self._publisher = KafkaPublisher(settings, codec=self._codec, linger_ms=0.0)
        self._reader = PartitionReader(settings, WORKERS, 0, group_id=f"{settings.topic_prefix}{trainer_id}-lock")
        self._trainer_id = trainer_id
        self._run_id = run_id
        self._policies = policies
        self._take_over = take_over
        self._trains = trains
        self._token = uuid.uuid4().hex
        self._started = time.time()
        self._released = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="lightstream-run-lock", daemon=True)

    def __enter__(self) -> Self:
        try:
            seen = -1
            if not self._take_over:
                seen = self._until_free()
            self._say(WorkerStatus.BUSY)
            if not self._take_over:
                self._check_first(seen)
        except BaseException:
            self._publisher.close()
            raise
        self._heart.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        self._heart.join()
        try:
            self._say(WorkerStatus.STOPPED, *_ending(error))
        except LightstreamError as unsaid:  # whoever comes next sees that this process is gone, or waits
            logger.warning("that the run is free was not written down: %s", unsaid)
        self._publisher.close()

    def _until_free(self) -> int:
        """Wait until nobody else holds the run; returns the last offset that was looked at."""
        began_s = time.monotonic()
        first: dict[str, int] | None = None
        while True:
            held = self._others()
            elsewhere: dict[str, int] = {}
            for token, (offset, beat) in held.items():
                if beat.host != socket.gethostname():
                    elsewhere[token] = offset
                elif _is_alive(beat):
                    raise self._refusal(beat, f"{max(0, time.time_ns() - beat.heartbeat_unix_nano) / 1e9:.0f} s ago")
            if first is None:
                first = elsewhere
                if elsewhere:
                    logger.warning(
                        "run %r was being trained on another machine; going on if it stays silent for %g s",
                        self._run_id,
                        STALE_S,
                    )
            for token, offset in elsewhere.items():
                if offset > first.get(token, -1):
                    raise self._refusal(held[token][1], "just now")
            if not elsewhere or time.monotonic() - began_s >= STALE_S:
                return max((offset for offset, _ in held.values()), default=-1)
            time.sleep(LOOK_S)

    def _check_first(self, seen: int) -> None:
        """Of those who claimed it at once, the first in the log has it.

        A process of this machine that was killed while its claim was on its way to the broker has no say.
        """
        own: int | None = None
        others: dict[str, tuple[int, WorkerHeartbeat]] = {}
        for offset, beat in self._claims(seen + 1):
            token = str(_stats(beat).get("token"))
            if token == self._token:
                own = offset
            elif beat.status is WorkerStatus.STOPPED:
                others.pop(token, None)
            elif own is None:
                others.setdefault(token, (offset, beat))
        for _, beat in others.values():
            if beat.host != socket.gethostname() or _is_alive(beat):
                raise self._refusal(beat, "just now")

    def _others(self) -> dict[str, tuple[int, WorkerHeartbeat]]:
        """Token -> the last word of each other trainer of this run or id that has not said that it stopped."""
        last: dict[str, tuple[int, WorkerHeartbeat]] = {}
        for offset, beat in self._claims(0):
            last[beat.worker_id] = (offset, beat)
        return {
            str(_stats(beat).get("token")): (offset, beat)
            for offset, beat in last.values()
            if beat.status is not WorkerStatus.STOPPED
        }

    def _claims(self, start: int) -> list[tuple[int, WorkerHeartbeat]]:
        found: list[tuple[int, WorkerHeartbeat]] = []
        for message in self._reader.records(start):
            with suppress(DecodeError):  # the view reports it
                beat = decoded(self._codec, message) if message.value() is not None else None
                if not isinstance(beat, WorkerHeartbeat) or beat.kind != "trainer":
                    continue
                is_same = beat.worker_id == self._worker_id or _stats(beat).get("run_id") == self._run_id
                if is_same or self._policies.intersection(_policies(beat)):
                    found.append((message.offset() or 0, beat))
        return found

    @property
    def _worker_id(self) -> str:
        return f"trainer:{self._trainer_id}"

    def _say(self, status: WorkerStatus, state: str = "running", error: str = "") -> None:
        """Write down what holds now, durably.

        Args:
            state: of the run, as the view ``run_states`` shows it.
            error: why it failed.
        """
        stats = {
            "run_id": self._run_id,
            "policies": sorted(self._policies),
            "token": self._token,
            "started": self._started,
            "process_started": _process_started(os.getpid()),
            "trains": self._trains,
            "state": state,
            "error": error,
        }
        beat = WorkerHeartbeat(
            worker_id=self._worker_id,
            kind="trainer",
            host=socket.gethostname(),
            pid=os.getpid(),
            status=status,
            heartbeat_unix_nano=int(time.time() * NANOS_PER_SECOND),
            stats_json=json.dumps(stats),
        )
        self._publisher.publish(WORKERS, beat.worker_id, beat).result(WRITE_TIMEOUT_S)

    def _beat(self) -> None:
        while not self._released.wait(BEAT_S):
            try:
                self._say(WorkerStatus.BUSY)
            except (LightstreamError, TimeoutError) as error:  # the next one may come through
                logger.warning("a sign of life of trainer %r was not written: %s", self._trainer_id, error)

    def _refusal(self, beat: WorkerHeartbeat, heard: str) -> TrainingError:
        started = _stats(beat).get("started")
        since = (
            "" if not isinstance(started, (int, float)) else f" since {datetime.fromtimestamp(started, UTC):%H:%M} UTC"
        )
        shared, run_id = sorted(self._policies.intersection(_policies(beat))), _stats(beat).get("run_id")
        is_other = run_id != self._run_id and beat.worker_id != self._worker_id
        what = f"policy {shared[0]!r}, of run {run_id!r}," if shared and is_other else f"run {self._run_id!r}"
        names = "name the policy otherwise" if shared and is_other else "give this one another trainer_id and run_id"
        return TrainingError(
            f"{what} is being trained by process {beat.pid} on host {beat.host}{since} (last sign of life {heard}).",
            next_step=f"Stop that one, or {names}. If it is gone for good, Trainer(take_over=True) does not ask.",
        )


def _ending(error: BaseException | None) -> tuple[str, str]:
    """State of a run that ends with an error, or without one; and the error's text."""
    if error is None:
        return "finished", ""
    if not isinstance(error, Exception) or isinstance(error, asyncio.CancelledError):
        return "stopped", ""  # Ctrl-C, or the program left its loop
    text = str(error) if isinstance(error, LightstreamError) else f"{type(error).__name__}: {error}"
    return "failed", text.encode("utf-8", "replace").decode()[:ERROR_CHARS_MAX]


def _stats(beat: WorkerHeartbeat) -> dict[str, object]:
    try:
        stats = json.loads(beat.stats_json or "{}")
    except ValueError:
        return {}
    return stats if isinstance(stats, dict) else {}


def _policies(beat: WorkerHeartbeat) -> list[str]:
    names = _stats(beat).get("policies")
    return [str(name) for name in names] if isinstance(names, list) else []


def _is_alive(beat: WorkerHeartbeat) -> bool:
    """Whether the process of this machine that wrote ``beat`` still runs."""
    try:
        os.kill(beat.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's process
    now = _process_started(beat.pid)
    return now == _stats(beat).get("process_started") if Path("/proc/self/stat").exists() else True


def _process_started(pid: int) -> int | None:
    """Return the start of a process, in ticks since the machine started; ``None`` if it has ended or nobody says."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else int(rest[18])
