"""Generation in batches gives what generation one by one gives, and what a plain forward pass says of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from lightstream.trainers.servers.chat_api.generation import Job
from lightstream.trainers.servers.cpu.policy_version import PolicyVersion
from tests.trainers.policy_server.support import EngineRun, new_versions, reference_logprobs

TOLERANCE = 1e-4


def _prompts(count: int) -> list[list[int]]:
    chance = random.Random(5)
    return [[chance.randrange(3, 259) for _ in range(chance.randrange(1, 120))] for _ in range(count)]


def _assert_as_reference(folder: Path, job: Job, temperature: float = 1.0) -> None:
    (generation,) = job.generations
    expected = reference_logprobs(folder, generation.prompt_ids, generation.token_ids, temperature)
    assert torch.allclose(torch.tensor(generation.logprobs), expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_of_a_batch_equal_a_plain_forward_pass(
    checkpoints: list[Path], version: PolicyVersion, run: EngineRun, temperature: float
) -> None:
    jobs = [
        run.job(version, prompt, 1 + i % 9, seed=i, temperature=temperature) for i, prompt in enumerate(_prompts(24))
    ]
    for job in jobs:
        run.engine.submit(job)
    run.wait(*jobs)
    for job in jobs:
        assert len(job.generations[0].token_ids) == len(job.generations[0].logprobs)
        _assert_as_reference(checkpoints[0], job, temperature)


def test_equal_prompts_are_sampled_independently_and_rightly(checkpoints: list[Path], version: PolicyVersion) -> None:
    run = EngineRun(window_s=1.0, rows_max=12)  # all of them share the first pass
    run.engine.start()
    prompts = [prompt for prompt in _prompts(3) for _ in range(4)]
    jobs = [run.job(version, list(prompt), 1 + i % 5, seed=i) for i, prompt in enumerate(prompts)]
    for job in jobs:
        run.engine.submit(job)
    run.wait(*jobs)
    run.engine.stop()
    for job in jobs:
        _assert_as_reference(checkpoints[0], job)
    assert len({job.generations[0].token_ids[0] for job in jobs[:4]}) > 1


def test_a_batch_says_what_each_says_alone(version: PolicyVersion, run: EngineRun) -> None:
    prompts = _prompts(12)
    together = [run.job(version, prompt, 6, seed=i) for i, prompt in enumerate(prompts)]
    for job in together:
        run.engine.submit(job)
    run.wait(*together)
    for seed, (prompt, job) in enumerate(zip(prompts, together, strict=True)):
        alone = run.job(version, prompt, 6, seed=seed)
        run.engine.submit(alone)
        run.wait(alone)
        assert alone.generations[0].token_ids == job.generations[0].token_ids
        assert alone.generations[0].logprobs == pytest.approx(job.generations[0].logprobs, abs=TOLERANCE)


def test_newcomers_join_sequences_under_way_without_changing_them(
    checkpoints: list[Path], version: PolicyVersion, run: EngineRun
) -> None:
    long = run.job(version, _prompts(1)[0], 200, streams=True)
    long.version.end_ids = frozenset()
    run.engine.submit(long)
    short: list[Job] = []
    for count in (3, 20, 60):
        run.wait_for_tokens(long, count)
        job = run.job(version, list(range(10, 10 + count)), 5, seed=count)
        run.engine.submit(job)
        run.wait(job)
        assert not long.reported  # a short answer does not wait for a long one
        short.append(job)
    run.wait(long)
    for job in [long, *short]:
        _assert_as_reference(checkpoints[0], job)
    assert len(long.generations[0].token_ids) == 200
    assert long.generations[0].finish_reason == "length"


def test_versions_are_never_mixed(checkpoints: list[Path], run: EngineRun) -> None:
    versions = new_versions()
    loaded: list[PolicyVersion] = []
    for number, folder in enumerate(checkpoints[:3]):
        versions.announce(f"policy@{number}", number, str(folder))
        loaded.append(versions.load(f"policy@{number}"))
    jobs = [run.job(loaded[i % 3], prompt, 4, seed=i) for i, prompt in enumerate(_prompts(18))]
    for job in jobs:
        run.engine.submit(job)
    run.wait(*jobs)
    for index, job in enumerate(jobs):
        _assert_as_reference(checkpoints[index % 3], job)


def test_more_work_than_rows_is_done_in_turns(version: PolicyVersion) -> None:
    version.end_ids = frozenset()
    run = EngineRun(rows_max=4)
    jobs = [run.job(version, prompt, 3, seed=i, streams=True) for i, prompt in enumerate(_prompts(30))]
    for job in jobs:
        run.engine.submit(job)
    run.engine.start()
    run.wait(*jobs)
    run.engine.stop()
    assert all(job.generations[0].finish_reason for job in jobs)
    assert run.most_running == 4, "no more than its rows, and no fewer while as many wait"


def test_a_cancelled_job_makes_room(version: PolicyVersion) -> None:
    version.end_ids = frozenset()
    run = EngineRun(rows_max=1)
    run.engine.start()
    long, waiting = run.job(version, [5, 6], 20_000, streams=True), run.job(version, [5, 6], 3)
    run.engine.submit(long)
    run.wait_for_tokens(long, 2)
    run.engine.submit(waiting)
    assert run.engine.waiting == 1
    long.cancelled = True
    run.wait(long, waiting)
    run.engine.stop()
    assert len(long.generations[0].token_ids) < 20_000
    assert len(waiting.generations[0].token_ids) == 3


def test_weights_that_give_no_probabilities_fail_their_requests_and_no_other(
    checkpoints: list[Path], version: PolicyVersion, run: EngineRun
) -> None:
    versions = new_versions()
    versions.announce("policy@1", 1, str(checkpoints[1]))
    broken = versions.load("policy@1")
    for parameter in broken.model.parameters():
        parameter.fill_(float("nan"))
    jobs = [run.job(broken, [7, 8], 3), run.job(version, [7, 8], 3)]
    for job in jobs:
        run.engine.submit(job)
    run.wait(*jobs)
    assert "policy@1" in (jobs[0].generations[0].error or "")
    assert jobs[1].generations[0].error is None


def test_a_failing_pass_fails_its_requests_and_the_engine_goes_on(version: PolicyVersion, run: EngineRun) -> None:
    bad = run.job(version, [10**6], 3)  # beyond the vocabulary
    run.engine.submit(bad)
    run.wait(bad)
    assert "IndexError" in (bad.generations[0].error or "")
    good = run.job(version, [7], 3)
    run.engine.submit(good)
    run.wait(good)
    assert good.generations[0].error is None


def test_stopping_fails_what_is_left(version: PolicyVersion) -> None:
    version.end_ids = frozenset()
    run = EngineRun(rows_max=1)
    run.engine.start()
    jobs = [run.job(version, [5], 20_000, streams=True), run.job(version, [6], 1)]
    for job in jobs:
        run.engine.submit(job)
    run.wait_for_tokens(jobs[0], 1)
    run.engine.stop()
    run.wait(*jobs)
    assert all("stopping" in (job.generations[0].error or "") for job in jobs)
    assert not run.engine.is_alive
