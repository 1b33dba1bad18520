"""Two workers on a real Kafka: open attempts go from one to the other, and every trajectory comes out as from one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import ExitStack, closing

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import AttemptClosed, AttemptOpened, SpanRecord, Trajectory
from lightstream.schemas.topics import SPANS, TRAJECTORIES
from lightstream.stream_processors.core.assembly import Assembler, AssemblyRules
from lightstream.stream_processors.worker.log_reader import LogReader
from tests.stream_processors.assembly.build import closed, opened, proxy_span, reward_span
from tests.support.waiting import eventually

from .harness import CODEC, TopicReader, WorkerProcess

WAIT_S = 300.0
EVER_S = 1e10
"""The attempts of this test began in 1970."""

AnyRecord = SpanRecord | AttemptOpened | AttemptClosed
BEFORE = [f"before-{n}" for n in range(6)]
"""Closed before anything moves; their late spans come afterwards."""
DURING = [f"during-{n}" for n in range(6)]
"""Opened by the first worker, closed once the second has joined."""
AFTER = [f"after-{n}" for n in range(6)]
"""Opened by the first worker, closed when it is dead."""


class Story:
    """Writes to ``spans``, and reads what came out."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._publisher = KafkaPublisher(settings, linger_ms=0.0)
        self._trajectories = TopicReader(settings, TRAJECTORIES)

    def tell(self, records: Iterable[AnyRecord]) -> None:
        """Write records, durably."""
        for record in records:
            name = record.rollout.rollout_id if isinstance(record, AttemptOpened) else record.rollout_id or ""
            self._publisher.publish(SPANS, name, record)
        assert self._publisher.flush(WAIT_S) == 0

    def wait_for(self, rollout_ids: list[str], revision: int = 0) -> None:
        """Until each of them has a trajectory of that revision or a later one."""

        def missing() -> set[str]:
            return set(rollout_ids) - {t.rollout_id for t in self.trajectories() if t.revision >= revision}

        eventually(lambda: not missing(), timeout_s=WAIT_S, what=f"revision {revision} of {rollout_ids}")

    def trajectories(self) -> list[Trajectory]:
        """All that came out so far, repeated ones too."""
        return [record for record in self._trajectories.poll() if isinstance(record, Trajectory)]

    def as_one_assembler_would(self) -> dict[str, Trajectory]:
        """The newest revision of each rollout, by a single pass over the log in memory."""
        newest: dict[str, Trajectory] = {}
        for partition in range(self._settings.topic_partitions):
            log = LogReader(self._settings, "tests", SPANS, partition).records()
            decoded = [(CODEC.decode(message.value()), message.offset() or 0) for message in log]
            records = [(r, o) for r, o in decoded if isinstance(r, SpanRecord | AttemptOpened | AttemptClosed)]
            assembler = Assembler(partition, AssemblyRules.of(self._settings))
            newest |= {trajectory.rollout_id: trajectory for trajectory in assembler.on_records(records)}
        return newest

    def close(self) -> None:
        self._publisher.close()


def works_on_spans(worker: WorkerProcess) -> bool:
    """Whether the last assignment of a worker has a partition of ``spans``."""
    assignments = re.findall(r"assigned: (.*)", worker.output)
    return bool(assignments) and f".{SPANS.name}[" in assignments[-1]


def test_open_attempts_and_late_spans_move_between_workers(settings: Settings) -> None:
    settings = settings.model_copy(update={"late_span_s_max": EVER_S})
    elsewhere = settings.model_copy(update={"data_dir": settings.data_dir / "elsewhere"})
    elsewhere.data_dir.mkdir()
    with ExitStack() as stack:
        story = stack.enter_context(closing(Story(settings)))
        first = stack.enter_context(WorkerProcess(settings))
        for name in (*BEFORE, *DURING, *AFTER):
            story.tell([opened(name), proxy_span(1, rollout_id=name), reward_span(9, 0.25, rollout_id=name)])
        story.tell(closed(name) for name in BEFORE)
        story.wait_for(BEFORE)
        second = stack.enter_context(WorkerProcess(elsewhere))
        eventually(lambda: works_on_spans(second), timeout_s=WAIT_S, what=f"the second has work\n{second.output}")
        eventually(lambda: works_on_spans(first), timeout_s=WAIT_S, what=f"the first has some left\n{first.output}")
        story.tell(proxy_span(2, rollout_id=name) for name in (*BEFORE, *DURING, *AFTER))  # late for some
        story.tell(closed(name) for name in DURING)
        story.wait_for(DURING)
        story.wait_for(BEFORE, 1)

        first.kill()
        story.tell(proxy_span(3, rollout_id=name) for name in (*BEFORE, *DURING, *AFTER))
        story.tell(proxy_span(1, rollout_id=name) for name in AFTER)  # told again: changes nothing
        story.tell(closed(name) for name in AFTER)
        story.wait_for(AFTER)
        story.wait_for(DURING, 1)
        story.wait_for(BEFORE, 2)

        first.start()
        eventually(lambda: works_on_spans(first), timeout_s=WAIT_S, what=f"the first is back\n{first.output}")
        story.tell(reward_span(10, 1.0, rollout_id=name) for name in (*BEFORE, *DURING, *AFTER))
        for revision, names in ((3, BEFORE), (2, DURING), (1, AFTER)):
            story.wait_for(names, revision)
        wanted = story.as_one_assembler_would()
        made = story.trajectories()
        assert "Traceback" not in first.output + second.output

    by_identity: dict[tuple[str, str, int], Trajectory] = {}
    for trajectory in made:
        identity = trajectory.rollout_id, trajectory.attempt_id, trajectory.revision
        assert by_identity.setdefault(identity, trajectory) == trajectory, "a repeated one says the same"
    newest = {identity[0]: t for identity, t in sorted(by_identity.items(), key=lambda item: item[0][2])}
    assert newest == wanted
    assert {len(t.triplets) for t in newest.values()} == {3}
    assert {t.reward for t in newest.values()} == {1.0}
    assert {(name, t.revision) for name, t in newest.items()} == {
        *((name, 3) for name in BEFORE),
        *((name, 2) for name in DURING),
        *((name, 1) for name in AFTER),
    }
