"""A worker on a real Kafka: what it makes of good, bad and missing records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import (
    AttemptStatus,
    DeadLetter,
    DeadLetterReason,
    EventKind,
    RolloutState,
    RolloutStatus,
    Trajectory,
    Verdict,
)
from lightstream.schemas.topics import DEAD_LETTERS, ROLLOUT_EVENTS, ROLLOUTS, SPANS, TRAJECTORIES, Topic
from tests.support.waiting import eventually

from .harness import CODEC, TopicReader, ended, enqueued, span, started

WAIT_S = 300.0


class Log:
    """What a test writes to the shared worker's topics, and what comes back for its rollout."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.publisher = KafkaPublisher(settings, linger_ms=0.0)
        self.states_reader = TopicReader(settings, ROLLOUTS)
        self.trajectories_reader = TopicReader(settings, TRAJECTORIES)

    def states(self, rollout_id: str) -> list[RolloutState]:
        records = self.states_reader.poll()
        return [r for r in records if isinstance(r, RolloutState) and r.rollout.rollout_id == rollout_id]

    def verdict(self, rollout_id: str, event_id: str) -> Verdict:
        return eventually(
            lambda: next((s.verdict for s in self.states(rollout_id) if s.verdict.event_id == event_id), None),
            timeout_s=WAIT_S,
            what=f"the verdict on {event_id}",
        ) or pytest.fail("no verdict")

    def status(self, rollout_id: str, status: RolloutStatus) -> RolloutState:
        eventually(
            lambda: any(s.status is status for s in self.states(rollout_id)), timeout_s=WAIT_S, what=f"status {status}"
        )
        return self.states(rollout_id)[-1]

    def trajectory(self, rollout_id: str, *, final: bool = True) -> Trajectory:
        def found() -> list[Trajectory]:
            records = self.trajectories_reader.poll()
            return [r for r in records if isinstance(r, Trajectory) and r.rollout_id == rollout_id and r.final is final]

        return eventually(found, timeout_s=WAIT_S, what=f"a trajectory of {rollout_id}")[0]


@pytest.fixture
def log(shared_worker: Settings) -> Iterator[Log]:
    log = Log(shared_worker)
    yield log
    log.publisher.close()


def test_from_enqueued_to_trajectory(log: Log) -> None:
    log.publisher.publish(ROLLOUT_EVENTS, "happy", enqueued("happy")).result()
    assert log.verdict("happy", "happy:enqueued").outcome == "applied"
    log.publisher.publish(ROLLOUT_EVENTS, "happy", started("happy")).result()
    assert log.verdict("happy", "happy-a1:started").outcome == "applied"
    for number in range(3):
        log.publisher.publish(SPANS, "happy", span("happy", number)).result()
    log.publisher.publish(ROLLOUT_EVENTS, "happy", ended("happy")).result()

    trajectory = log.trajectory("happy")
    assert [triplet.response_id for triplet in trajectory.triplets] == ["happy-0", "happy-1", "happy-2"]
    assert (trajectory.final, trajectory.status, trajectory.drops) == (True, "succeeded", [])
    assert log.status("happy", RolloutStatus.SUCCEEDED).verdict.event_id == "happy-a1:ended"


def test_a_failed_attempt_is_handed_out_again(log: Log) -> None:
    log.publisher.publish(ROLLOUT_EVENTS, "again", enqueued("again", max_attempts=2, retry_condition=["failed"]))
    log.publisher.publish(ROLLOUT_EVENTS, "again", started("again"))
    log.verdict("again", "again-a1:started")
    log.publisher.publish(SPANS, "again", span("again", 7)).result()
    log.publisher.publish(ROLLOUT_EVENTS, "again", ended("again", error="SystemExit"))
    log.status("again", RolloutStatus.REQUEUING)
    first = log.trajectory("again", final=False)
    assert (first.triplets, [drop.reason for drop in first.drops]) == ([], ["attempt_not_final"])
    log.publisher.publish(ROLLOUT_EVENTS, "again", started("again", 2))
    log.verdict("again", "again-a2:started")
    log.publisher.publish(SPANS, "again", span("again", 8, sequence=2)).result()
    log.publisher.publish(ROLLOUT_EVENTS, "again", ended("again", 2))
    assert [t.response_id for t in log.trajectory("again").triplets] == ["again-8"]


def test_time_outs_come_without_traffic(log: Log) -> None:
    event = enqueued("idle", timeout_seconds=0.5, unresponsive_seconds=60)
    log.publisher.publish(ROLLOUT_EVENTS, "idle", event)
    log.publisher.publish(ROLLOUT_EVENTS, "idle", started("idle")).result()
    state = log.status("idle", RolloutStatus.FAILED)
    assert state.attempts[0].status is AttemptStatus.TIMEOUT
    assert log.trajectory("idle").status is AttemptStatus.TIMEOUT


def test_a_span_revives_an_unresponsive_attempt(log: Log) -> None:
    again = {"max_attempts": 2, "retry_condition": ["unresponsive"]}
    event = enqueued("slow", unresponsive_seconds=0.5, timeout_seconds=600, **again)
    log.publisher.publish(ROLLOUT_EVENTS, "slow", event)
    log.publisher.publish(ROLLOUT_EVENTS, "slow", started("slow")).result()

    def seen(kind: EventKind) -> bool:
        return any(state.verdict.kind is kind for state in log.states("slow"))

    eventually(lambda: seen(EventKind.UNRESPONSIVE), timeout_s=WAIT_S)
    log.publisher.publish(SPANS, "slow", span("slow")).result()
    eventually(lambda: seen(EventKind.HEARTBEAT), timeout_s=WAIT_S)
    log.publisher.publish(ROLLOUT_EVENTS, "slow", ended("slow")).result()
    assert log.status("slow", RolloutStatus.SUCCEEDED).attempts[0].status is AttemptStatus.SUCCEEDED


def test_a_prompt_of_20_megabytes_becomes_a_triplet(log: Log) -> None:
    log.publisher.publish(ROLLOUT_EVENTS, "large", enqueued("large"))
    log.publisher.publish(ROLLOUT_EVENTS, "large", started("large"))
    log.verdict("large", "large-a1:started")
    ordinary = span("large")
    assert ordinary.llm_call is not None
    prompt = bytes(4 * 5_000_000)
    call = ordinary.llm_call.model_copy(update={"prompt_token_ids": prompt})
    log.publisher.publish(SPANS, "large", ordinary.model_copy(update={"llm_call": call})).result()
    log.publisher.publish(ROLLOUT_EVENTS, "large", ended("large"))
    assert log.trajectory("large").triplets[0].prompt_token_ids == prompt


GOOD_SPAN = CODEC.encode(span("beside"))
BAD_IN_BOTH = {
    "not Avro": (b"hello", DeadLetterReason.NOT_AVRO),
    "cut short": (GOOD_SPAN[:40], DeadLetterReason.NOT_AVRO),
    "no value": (b"", DeadLetterReason.NOT_AVRO),
    "unknown fingerprint": (b"\xc3\x01" + b"\x07" * 8 + b"abc", DeadLetterReason.UNKNOWN_SCHEMA),
    "a registry's id, without a registry": (b"\x00\x00\x00\x00\x2a" + b"abc", DeadLetterReason.UNKNOWN_SCHEMA),
}
BAD_SPANS = BAD_IN_BOTH | {"an event": (CODEC.encode(enqueued("beside")), DeadLetterReason.WRONG_TOPIC)}
BAD_EVENTS = BAD_IN_BOTH | {
    "a span": (GOOD_SPAN, DeadLetterReason.WRONG_TOPIC),
    "of another key": (CODEC.encode(enqueued("elsewhere")), DeadLetterReason.BROKEN_RULE),
    "without an event id": (
        CODEC.encode(enqueued("beside").model_copy(update={"event_id": ""})),
        DeadLetterReason.BROKEN_RULE,
    ),
}


@pytest.mark.parametrize(("topic", "bad"), [(SPANS, BAD_SPANS), (ROLLOUT_EVENTS, BAD_EVENTS)], ids=["spans", "events"])
def test_records_that_cannot_be_used_become_dead_letters_and_harm_nothing(
    log: Log, topic: Topic, bad: dict[str, tuple[bytes, DeadLetterReason]]
) -> None:
    rollout_id = f"beside-{topic.name}"
    values = [(value, reason) for value, reason in bad.values()]
    origins: dict[tuple[int, int], tuple[bytes, DeadLetterReason]] = {}

    def disturb() -> None:
        value, reason = values.pop()
        at = log.publisher.publish_encoded(topic, rollout_id, value).result()
        origins[at.partition, at.offset] = (value, reason)

    log.publisher.publish(ROLLOUT_EVENTS, rollout_id, enqueued(rollout_id)).result()
    disturb()
    log.publisher.publish(ROLLOUT_EVENTS, rollout_id, started(rollout_id)).result()
    log.verdict(rollout_id, f"{rollout_id}-a1:started")
    while values:
        log.publisher.publish(SPANS, rollout_id, span(rollout_id, len(values))).result()
        disturb()
    log.publisher.publish(ROLLOUT_EVENTS, rollout_id, ended(rollout_id)).result()

    trajectory = log.trajectory(rollout_id)
    assert len(trajectory.triplets) == len(bad) - 1
    assert trajectory.drops == []
    letters = TopicReader(log.settings, DEAD_LETTERS)

    def found() -> dict[tuple[int, int], DeadLetter]:
        return {
            (letter.origin_partition, letter.origin_offset): letter
            for letter in letters.poll()
            if isinstance(letter, DeadLetter) and letter.origin_topic == topic.name
        }

    eventually(lambda: len(found()) >= len(bad), timeout_s=WAIT_S)
    assert {at: (letter.value, letter.reason) for at, letter in found().items()} == origins
    assert all(letter.detail and letter.key == rollout_id.encode() for letter in found().values())
    assert set(letters.keys) >= {f"{topic.name}-{partition}-{offset}" for partition, offset in origins}
