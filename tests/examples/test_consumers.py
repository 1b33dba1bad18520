"""The consumers in plain confluent-kafka and in Java: killed again and again, every rollout is in exactly one step."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import fastavro
import pytest
from confluent_kafka import Producer

from lightstream.runtime.kafka import producer_config, run_headers
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.examples import example_of
from lightstream.schemas.records import ResourcesRecord, RolloutMode, TrainingStep, Trajectory
from lightstream.schemas.topics import RESOURCES, TRAINING_STEPS, TRAJECTORIES
from lightstream.trainers.ledger.reading import read_topic
from lightstream.trainers.run.history import replay

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "schemas/avro"
CONSUMERS = ROOT / "examples/consumers"
GROUPS, SIZE, PER_STEP = 12, 4, 2
STEPS = GROUPS // PER_STEP
JAVA_PACKAGES = "org.apache.kafka:kafka-clients:4.3.1+org.apache.avro:avro:1.12.1"
SEED = int(os.environ.get("LIGHTSTREAM_TEST_SEED", str(time.time_ns() % 10_000)))
TIMEOUT_S = 300.0


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    import jgo

    environment = jgo.build(JAVA_PACKAGES, cache_dir=tmp_path_factory.mktemp("java"))
    class_path = os.pathsep.join(map(str, environment.all_jars))
    return ["java", "-cp", class_path, str(CONSUMERS / "Consume.java")]


def command_of(language: str, settings: Settings, request: pytest.FixtureRequest, steps: int = STEPS) -> list[str]:
    bootstrap, prefix = settings.kafka_bootstrap_servers or "", settings.topic_prefix
    if language == "java":
        java: list[str] = request.getfixturevalue("java")
        return [*java, bootstrap, prefix, "foreign", "run", str(steps), str(PER_STEP), str(SCHEMAS)]
    options = {"bootstrap": bootstrap, "prefix": prefix, "trainer": "foreign", "run": "run", "groups": PER_STEP}
    options |= {"steps": steps}
    return [
        sys.executable,
        str(CONSUMERS / "consume.py"),
        *(text for name, value in options.items() for text in (f"--{name}", str(value))),
    ]


def trajectory(rollout: str, **changes: object) -> Trajectory:
    """The example of the schemas, as this rollout of the run."""
    group = rollout.rpartition("-")[0]
    about = {"rollout_id": rollout, "attempt_id": f"{rollout}-a1", "run_id": "run", "group_id": group}
    return example_of(Trajectory).model_copy(update=about | {"group_size": SIZE, "mode": RolloutMode.TRAIN} | changes)


def publish(settings: Settings, trajectories: Sequence[Trajectory | bytes]) -> None:
    producer, codec = Producer(producer_config(settings, linger_ms=5)), codec_for(settings)
    topic = TRAJECTORIES.full_name(settings.topic_prefix)
    for record in trajectories:
        if isinstance(record, bytes):
            producer.produce(topic, record)
        else:
            producer.produce(topic, codec.encode(record), record.group_id, headers=list(run_headers(record.run_id)))
        producer.poll(0)
    assert producer.flush(300) == 0


def of_the_run(chance: random.Random) -> list[Trajectory | bytes]:
    """Every rollout once; and what must not count: twice, not final, not ours, no record, an end before the last."""
    good = [trajectory(f"g{g}-{i}", reward=float(g % 2)) for g in range(GROUPS) for i in range(SIZE)]
    other: list[Trajectory | bytes] = [
        *chance.sample(good, 10),
        trajectory("g0-0", final=False, attempt_id="g0-0-a0"),
        trajectory("h0-0", run_id="another"),
        trajectory("v0-0", mode=RolloutMode.VAL),
        b"no record",
        b"\xc3\x01\x00\x01\x02\x03\x04\x05\x06\x07of a newer schema",
    ]
    mixed: list[Trajectory | bytes] = [*good, *other]
    chance.shuffle(mixed)
    return mixed


def until_done(command: list[str], kills: int, chance: random.Random) -> int:
    """Run it until it comes through; how often it was killed."""
    killed = 0
    while True:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert process.stdout is not None
        if killed < kills:
            for _ in range(chance.randint(0, 2)):
                process.stdout.readline()
            time.sleep(chance.uniform(0.0, 0.1))  # a kill at any moment is the input
            process.send_signal(signal.SIGKILL)
        process.communicate(timeout=TIMEOUT_S)
        if process.returncode == -signal.SIGKILL:
            killed += 1
            continue
        assert process.returncode == 0
        return killed


def check(settings: Settings) -> None:
    codec = codec_for(settings)
    steps = [record for _, record in read_topic(settings, TRAINING_STEPS, codec, group_id="test")]
    resources = [record for _, record in read_topic(settings, RESOURCES, codec, group_id="test")]
    assert replay(steps, resources, trainer_id="foreign", run_id="run").last_step == STEPS, "our trainers read it too"
    made = [step for step in steps if isinstance(step, TrainingStep)]
    assert [step.step for step in made] == list(range(1, STEPS + 1))
    assert sorted(c.rollout_id for step in made for c in step.consumed) == sorted(
        f"g{g}-{i}" for g in range(GROUPS) for i in range(SIZE)
    )
    for step in made:
        groups = {c.group_id for c in step.consumed}
        assert len(groups) == PER_STEP
        assert step.metrics["reward/mean"] == sum(int(group[1:]) % 2 for group in groups) / PER_STEP
    published = [record for record in resources if isinstance(record, ResourcesRecord)]
    assert [record.resources_id for record in published] == [step.resources_id for step in made]
    assert [record.version for record in published] == list(range(STEPS))
    assert f"The mean is {made[-1].metrics['reward/mean']:.3f}" in published[-1].resources["prompt"]


@pytest.mark.parametrize(
    ("language", "kills"),
    [
        ("python", 6),
        pytest.param("python", 20, marks=pytest.mark.soak),
        pytest.param("java", 20, marks=pytest.mark.soak),
    ],
)
def test_killed_at_any_moment_each_rollout_is_in_one_step(
    language: str, kills: int, settings: Settings, request: pytest.FixtureRequest
) -> None:
    print(f"LIGHTSTREAM_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    publish(settings, of_the_run(chance))
    until_done(command_of(language, settings, request), kills, chance)
    check(settings)


@pytest.mark.soak
def test_java_decodes_a_thousand_trajectories_as_python_does(
    settings: Settings, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(SEED)
    example = example_of(Trajectory)

    def varied(number: int) -> Trajectory:
        triplet = example.triplets[0].model_copy(
            update={
                "reward": chance.choice([None, chance.uniform(-1, 1)]),
                "prompt_token_ids": chance.randbytes(4 * chance.randint(0, 50)),
                "response_logprobs": chance.choice([None, chance.randbytes(8)]),
                "field_sources": {"ключ": "значение"},
            }
        )
        return trajectory(
            f"g{number // 2}-{number % 2}",
            group_size=2,
            input_json=json.dumps(chance.choice(["naïve ☃ 𝄞", {"n": number}, None])),
            reward=chance.choice([None, 1 / 3, -0.0, 1e300]),
            triplets=[triplet] * chance.randint(0, 3),
            opened_unix_nano=chance.randrange(2**62),
        )

    sent, codec = [varied(number) for number in range(1000)], codec_for(settings)
    publish(settings, sent)
    out = tmp_path / "decoded.jsonl"
    command = command_of("java", settings, request, steps=250)
    subprocess.run([*command, str(out)], check=True, cwd=ROOT, timeout=TIMEOUT_S)
    schema = fastavro.parse_schema(json.loads((SCHEMAS / "trajectories/Trajectory.v1.avsc").read_text("utf-8")))
    expected: dict[str, object] = {}
    for record in (codec.decode(codec.encode(one)) for one in sent):
        assert isinstance(record, Trajectory)
        text = io.StringIO()
        fastavro.json_writer(text, schema, [record.model_dump()])
        expected[record.rollout_id] = json.loads(text.getvalue())
    decoded = [json.loads(line) for line in out.read_text("utf-8").split("\n") if line]
    assert {line["rollout_id"]: line for line in decoded} == expected
