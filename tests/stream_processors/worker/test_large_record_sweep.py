"""Files of large trajectories go when the topic holds no record any more that could name them."""

from __future__ import annotations

import os
from pathlib import Path

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from lightstream.runtime.clock import SystemClock
from lightstream.runtime.kafka import producer_config
from lightstream.runtime.large_records import large_records_folder, put_aside
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.examples import example_of
from lightstream.schemas.records import Trajectory
from lightstream.schemas.topics import TRAJECTORIES
from lightstream.stream_processors.worker.large_trajectories import sweep_large_records

WAIT_S = 300.0
GRACE_S = 600.0


def test_a_file_lives_as_long_as_a_record_that_may_name_it(settings: Settings, kafka_admin: AdminClient) -> None:
    settings = settings.model_copy(
        update={"large_records_dir": settings.data_dir / "large", "large_record_grace_s": GRACE_S}
    )
    folder = large_records_folder(settings)
    assert folder is not None
    clock, codec = SystemClock(), Codec()

    def sweep() -> int:
        return sweep_large_records(settings, "tests", clock).files

    def put(revision: int, age_s: float) -> Trajectory:
        """Put one aside, so long ago."""
        head = put_aside(example_of(Trajectory).model_copy(update={"revision": revision}), codec, folder)
        at_s = clock.now_unix_nano() / 1e9 - age_s
        os.utime(Path(head.payload_url.removeprefix("file://")), (at_s, at_s))
        return head

    assert sweep() == 0, "there is no folder"
    old, young = put(1, 2 * GRACE_S), put(2, 0.0)
    name = TRAJECTORIES.full_name(settings.topic_prefix)
    long_ago_ms = int((clock.now_unix_nano() / 1e9 - 2 * GRACE_S) * 1000)
    producer = Producer(producer_config(settings))
    producer.produce(name, codec.encode(old), "g", 0, timestamp=long_ago_ms)
    producer.produce(name, codec.encode(young), "g", 1)
    assert producer.flush(WAIT_S) == 0
    assert sweep() == 0, "a record as old as the file is left"

    (gone,) = kafka_admin.delete_records([TopicPartition(name, 0, 1)]).values()
    gone.result(WAIT_S)
    assert sweep() == 1
    assert [path.stem for path in folder.rglob("*.avro")] == [young.payload_sha256]
    assert sweep() == 0
