"""Traffic on a real log: trajectories of rollouts that nobody enqueued, with event times of a simulation."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from confluent_kafka import Producer

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.runtime.kafka import producer_config, run_headers
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import Trajectory
from lightstream.schemas.topics import TRAJECTORIES

from .trajectories import random_trajectory

RUN = "learner"


def traffic(
    name: str, closed_s: float, *, reward: float | None, revision: int = 0, revised_s: float = 0.0, task: int = 0
) -> Trajectory:
    """A trajectory whose calls a version 0 of the run sampled."""
    made = random_trajectory(name, group_id="", group_size=1, run_id=RUN, policy_version=0)
    calls = [call.model_copy(update={"reward": reward, "agent_name": "support"}) for call in made.triplets]
    return made.model_copy(
        update={
            "group_id": None,
            "run_id": "",
            "revision": revision,
            "reward": reward,
            "input_json": f'"task {task}"',
            "triplets": calls,
            "closed_unix_nano": round(closed_s * NANOS_PER_SECOND),
            "revised_unix_nano": round(max(closed_s, revised_s) * NANOS_PER_SECOND),
        }
    )


def simulated(rollouts: int, *, seconds: float = 10.0, seed: int = 0) -> list[Trajectory]:
    """Rollouts ``seconds`` apart; a thumb comes for two of three, some of them late, twice or changed."""
    chance = random.Random(seed)
    timed: list[tuple[float, int, Trajectory]] = []

    def put(at_s: float, trajectory: Trajectory) -> None:
        timed.append((at_s, len(timed), trajectory))

    for number in range(rollouts):
        name, closed_s, task = f"r{number}", number * seconds, chance.randrange(3)
        put(closed_s, traffic(name, closed_s, reward=None, task=task))
        if chance.random() < 2 / 3:
            at_s = closed_s + chance.uniform(0, 6 * seconds)
            thumb = float(chance.random() < 0.3 + task / 4)
            given = traffic(name, closed_s, reward=thumb, revision=1, revised_s=at_s, task=task)
            put(at_s, given)
            if chance.random() < 0.3:
                put(at_s + 0.1, given)
            if chance.random() < 0.3:
                changed_s = at_s + chance.uniform(0, 2 * seconds)
                put(changed_s, traffic(name, closed_s, reward=1 - thumb, revision=2, revised_s=changed_s, task=task))
    return [trajectory for *_, trajectory in sorted(timed, key=lambda one: one[:2])]


def publish(settings: Settings, trajectories: Sequence[Trajectory]) -> None:
    """Append them to the log, one after the other, each with a later time stamp than the one before.

    Records of one millisecond have an order of their own: by partition.
    """
    codec, producer = codec_for(settings), Producer(producer_config(settings, linger_ms=0))
    for trajectory in trajectories:
        _last_ms[0] = max(_last_ms[0] + 1, time.time_ns() // 1_000_000)
        producer.produce(
            TRAJECTORIES.full_name(settings.topic_prefix),
            value=codec.encode(trajectory),
            key=trajectory.rollout_id,
            headers=run_headers(trajectory.run_id),
            timestamp=_last_ms[0],
        )
    assert producer.flush(300) == 0


_last_ms = [0]
