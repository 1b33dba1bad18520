"""An algorithm as a consumer, with confluent-kafka and fastavro alone. docs/contract.md says what it has to keep to.

``python examples/consumers/consume.py --bootstrap 127.0.0.1:9092 --trainer mine --run my-run --steps 10``: each step
takes some complete groups and publishes a prompt with their mean reward. Stop it at any moment, and start it again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from fastavro.schema import fingerprint, to_parsing_canonical_form

SCHEMAS = Path(__file__).parents[2] / "schemas/avro"
MAGIC = b"\xc3\x01"
TIMEOUT_S = 60.0


class Schemas:
    """Avro's single-object encoding: two bytes, the fingerprint of the writer's schema, the record."""

    def __init__(self, folder: Path) -> None:
        files = sorted(folder.glob("*/*.avsc"), key=lambda file: int(file.name.split(".v")[1].split(".")[0]))
        schemas: list[Any] = [fastavro.parse_schema(json.loads(file.read_text("utf-8"))) for file in files]
        self._by_head: dict[bytes, Any] = {
            MAGIC + bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")): schema
            for schema in schemas
        }

    def decode(self, value: bytes | None, kind: str) -> dict[str, Any] | None:
        """The record, if it is one of this kind."""
        schema: Any = self._by_head.get(value[:10]) if value else None
        if value is None or schema is None or schema["name"] != f"lightstream.{kind}":
            return None
        record: Any = fastavro.schemaless_reader(BytesIO(value[10:]), schema, None)
        return dict(record)

    def refuse_newer(self, message: Message) -> None:
        """End, and name the version of Lightstream that wrote this record, if its schema is not in the folder."""
        value, writer = message.value() or b"", dict(message.headers() or []).get("writer")
        if value[:2] == MAGIC and value[:10] not in self._by_head and isinstance(writer, bytes):
            sys.exit(f"A record was written by Lightstream {writer.decode()}: start this again with its --schemas.")

    def encode(self, kind: str, record: dict[str, Any]) -> bytes:
        """The record by the newest schema of its kind; fields that are left out have their defaults."""
        head, schema = [(h, s) for h, s in self._by_head.items() if s["name"] == f"lightstream.{kind}"][-1]
        out = BytesIO(head)
        out.seek(0, 2)
        fastavro.schemaless_writer(out, schema, record)
        return out.getvalue()


def age_of(trajectory: dict[str, Any]) -> tuple[int, int]:
    """Of a rollout's final trajectories the one that is the greatest by this counts."""
    return trajectory["attempt_sequence"], trajectory["revision"]


class Groups:
    """Groups of the run's trajectories, until they are complete.

    Args:
        consumed: rollouts of the steps so far: a group of theirs is not taken again, whatever revisions come.
    """

    def __init__(self, run: str, consumed: set[str]) -> None:
        self._run = run
        self._consumed = consumed
        self._members: dict[str, dict[str, dict[str, Any]]] = {}
        self._first: dict[str, dict[int, int]] = {}
        self.next_offsets: dict[int, int] = {}

    def add(self, message: Message, trajectory: dict[str, Any] | None) -> None:
        partition, offset = message.partition() or 0, message.offset() or 0
        self.next_offsets[partition] = offset + 1
        if trajectory is None or trajectory["run_id"] != self._run or not trajectory["final"]:
            return
        if trajectory["mode"] != "train" or trajectory["rollout_id"] in self._consumed:
            return
        group = trajectory["group_id"] or trajectory["rollout_id"]
        known = self._members.setdefault(group, {}).get(trajectory["rollout_id"])
        if known is None or age_of(known) < age_of(trajectory):
            self._members[group][trajectory["rollout_id"]] = trajectory
            self._first.setdefault(group, {}).setdefault(partition, offset)

    def take(self, count: int) -> list[tuple[str, list[dict[str, Any]]]]:
        """So many complete groups, or none."""
        complete = [
            group
            for group, members in self._members.items()
            if len(members) >= next(iter(members.values()))["group_size"]
        ][:count]
        if len(complete) < count:
            return []
        taken = [(group, list(self._members.pop(group).values())) for group in complete]
        for group, members in taken:
            del self._first[group]
            self._consumed |= {t["rollout_id"] for t in members}
        return taken

    def low_water(self) -> dict[int, int]:
        """Partition -> the offset below which every group is consumed."""
        low = dict(self.next_offsets)
        for first in self._first.values():
            for partition, offset in first.items():
                low[partition] = min(low[partition], offset)
        return low


def past_steps(bootstrap: str, topic: str, schemas: Schemas, trainer: str) -> list[dict[str, Any]]:
    """The trainer's committed steps, in order. Nobody else writes any by now."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{trainer}-steps",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    steps: list[dict[str, Any]] = []
    while True:
        message = reader.poll(TIMEOUT_S)
        if message is None:
            raise SystemExit(f"{topic} cannot be read: no word from Kafka for {TIMEOUT_S:g} s")
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            reader.close()
            return steps
        if error is not None:
            raise KafkaException(error)
        if message.key() == trainer.encode():
            schemas.refuse_newer(message)
        record = schemas.decode(message.value(), "TrainingStep")
        if record is not None and record["trainer_id"] == trainer:
            steps.append(record)


def consume(arguments: argparse.Namespace) -> None:
    """Make the steps that are not made."""
    schemas, group = Schemas(arguments.schemas), f"{arguments.prefix}{arguments.trainer}"
    topics = {name: f"{arguments.prefix}{name}" for name in ("trajectories", "training-steps", "resources")}
    # 1. End what a former self left open; nobody else can commit as this trainer from here on.
    producer = Producer({"bootstrap.servers": arguments.bootstrap, "transactional.id": group})
    producer.init_transactions(TIMEOUT_S)
    # 2. Only then read how far that self got.
    steps = past_steps(arguments.bootstrap, topics["training-steps"], schemas, arguments.trainer)
    groups = Groups(arguments.run, {c["rollout_id"] for step in steps for c in step["consumed"]})
    number = steps[-1]["step"] if steps else 0
    low_water = {p["partition"]: p["offset"] for p in steps[-1]["low_water"]} if steps else {}
    # 3. Read on from there. Partitions are assigned by hand: one consumer reads them all.
    consumer = Consumer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    partitions = consumer.list_topics(topics["trajectories"], TIMEOUT_S).topics[topics["trajectories"]].partitions
    groups.next_offsets = {p: low_water.get(p, 0) for p in partitions}
    consumer.assign([TopicPartition(topics["trajectories"], p, low_water.get(p, OFFSET_BEGINNING)) for p in partitions])
    while number < arguments.steps:
        started = time.time_ns()
        while not (taken := groups.take(arguments.groups)):
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                raise KafkaException(message.error())
            mine = dict(message.headers() or []).get("run") in (None, arguments.run.encode())
            if mine:
                schemas.refuse_newer(message)
            groups.add(message, schemas.decode(message.value(), "Trajectory") if mine else None)
        number += 1
        rewards = [t["reward"] for _, members in taken for t in members if t["reward"] is not None]
        mean = sum(rewards) / max(1, len(rewards))
        low_water = groups.low_water()
        resources = resources_record(arguments.run, number - 1, mean)
        step = {
            "trainer_id": arguments.trainer,
            "run_id": arguments.run,
            "step": number,
            "steps_planned": arguments.steps,
            "resources_id": resources["resources_id"],
            "consumed": [
                {name: t[name] for name in ("rollout_id", "attempt_id", "revision")}
                | {"group_id": group_id, "triplet_count": len(t["triplets"])}
                for group_id, members in taken
                for t in members
            ],
            "metrics": {"reward/mean": mean},
            "low_water": [
                {"topic": "trajectories", "partition": p, "offset": offset} for p, offset in sorted(low_water.items())
            ],
            "started_unix_nano": started,
            "ended_unix_nano": time.time_ns(),
        }
        # 4. The step, what it made and the offsets, together or not at all.
        producer.begin_transaction()
        producer.produce(topics["training-steps"], schemas.encode("TrainingStep", step), arguments.trainer)
        producer.produce(topics["resources"], schemas.encode("ResourcesRecord", resources), resources["resources_id"])
        producer.send_offsets_to_transaction(
            [TopicPartition(topics["trajectories"], p, offset) for p, offset in low_water.items()],
            consumer.consumer_group_metadata(),
        )
        producer.commit_transaction(TIMEOUT_S)
        print(f"step {number}: mean reward {mean:.3f}", flush=True)
    consumer.close()


def resources_record(run: str, version: int, mean: float) -> dict[str, Any]:
    """The next version of the prompt."""
    prompt = {"resource_type": "prompt_template", "template": f"The mean is {mean:.3f}. {{task}}", "engine": "f-string"}
    return {
        "resources_id": f"{run}-v{version}",
        "version": version,
        "run_id": run,
        "resources": {"prompt": json.dumps(prompt)},
        "created_unix_nano": time.time_ns(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", default="", help="LIGHTSTREAM_TOPIC_PREFIX")
    parser.add_argument("--trainer", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--groups", type=int, default=1, help="of a step")
    parser.add_argument("--schemas", type=Path, default=SCHEMAS)
    arguments = parser.parse_args()
    consume(arguments)


if __name__ == "__main__":
    main()
