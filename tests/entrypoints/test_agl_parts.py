"""The small parts: settings by environment, logging, a command line, VERL's configuration, the policy runner."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lightstream.agl as agl
from lightstream.agl.adapter import RewardMatchPolicy
from lightstream.agl.algorithm import batch_iter_over_dataset, with_llm_proxy, with_store
from lightstream.agl.contrib.runner.agentos import AgentOSRunner
from lightstream.producers.policy import ViolationHandler
from lightstream.schemas.errors import ServiceUnavailableError, SettingsError
from lightstream.schemas.types import Assembly

CONFIG: dict[str, Any] = {
    "algorithm": {"adv_estimator": "grpo", "use_kl_in_reward": False},
    "data": {"train_batch_size": 32, "max_prompt_length": 4096, "max_response_length": 2048},
    "actor_rollout_ref": {
        "rollout": {"n": 4, "name": "vllm", "gpu_memory_utilization": 0.6, "multi_turn": {"format": "hermes"}},
        "actor": {
            "ppo_mini_batch_size": 8,
            "ppo_micro_batch_size_per_gpu": 4,
            "optim": {"lr": 2e-6},
            "use_kl_loss": False,
            "kl_loss_coef": 0.0,
            "clip_ratio_low": 0.1,
            "clip_ratio_high": 0.3,
        },
        "model": {"path": "some/model", "enable_gradient_checkpointing": True},
    },
    "trainer": {"nnodes": 1, "critic_warmup": 0, "logger": ["console"], "test_freq": -1, "total_epochs": 3},
}


def test_verl_by_its_own_configuration(caplog: pytest.LogCaptureFixture) -> None:
    verl = agl.VERL(CONFIG).of_tasks(100)
    assert (verl.model, verl.steps, verl.tasks_per_step, verl.rollouts_per_task) == ("some/model", 9, 32, 4)
    assert (verl.mini_batches_per_step, verl.learning_rate, verl.validate_every) == (4, 2e-6, 0)
    assert (verl.prompt_tokens_max, verl.clip_ratio_low, verl.clip_ratio_high) == (4096, 0.1, 0.3)
    assert "without effect" in caplog.text
    assert "actor_rollout_ref.rollout.gpu_memory_utilization" in caplog.text
    assert agl.VERL(CONFIG | {"agentlightning": {"port": 9999}}) == agl.VERL(CONFIG)
    by_steps = agl.VERL(CONFIG | {"trainer": {"total_epochs": 3, "total_training_steps": 7}})
    assert by_steps.steps == 7
    assert agl.VERL(model="m", steps=1).steps == 1
    with pytest.raises(SettingsError, match="31 tasks are fewer"):
        agl.VERL(CONFIG).of_tasks(31)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm": {"adv_estimator": "opo"}}, r"algorithm\.adv_estimator='opo'"),
        ({"agentlightning": {"trace_aggregation": {"level": "trajectory"}}}, r"agentlightning\.trace_aggregation"),
        ({"data": {"train_batch_size": 30}}, "not a multiple of ppo_mini_batch_size 8"),
        ({"trainer": {}}, "total_epochs"),
    ],
)
def test_what_has_no_counterpart_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        agl.VERL(CONFIG | change)
    with pytest.raises(SettingsError, match="not both: steps"):
        agl.VERL(CONFIG, steps=3)


def test_settings_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    managed, port = agl.LightningEnvVar.AGL_MANAGED_STORE, agl.LightningEnvVar.AGL_SERVER_PORT
    assert agl.resolve_bool_env_var(managed, fallback=True) is True
    monkeypatch.setenv("AGL_MANAGED_STORE", "Off")
    assert agl.resolve_bool_env_var(managed, fallback=True) is False
    assert agl.resolve_bool_env_var(managed, override=True, fallback=False) is True
    monkeypatch.setenv("AGL_MANAGED_STORE", "perhaps")
    with pytest.raises(ValueError, match="'perhaps'"):
        agl.resolve_bool_env_var(managed)
    assert agl.resolve_int_env_var(port) is None
    monkeypatch.setenv("AGL_SERVER_PORT", "47x")
    with pytest.raises(ValueError, match="whole number"):
        agl.resolve_int_env_var(port)
    assert agl.resolve_str_env_var(port, fallback="1") == "47x"


def test_logging_of_our_loggers_alone(tmp_path: Path) -> None:
    script = """
        import logging, sys
        import lightstream.agl as agl
        agl.setup_logging("INFO", color=False, files=sys.argv[1], submodule_levels={"agentlightning.store": "DEBUG"})
        agl.setup_logging("INFO", color=False, files=sys.argv[1], submodule_levels={"agentlightning.store": "DEBUG"})
        logging.getLogger("lightstream.agl").info("told once")
        logging.getLogger("lightstream.store.memory").debug("told in detail")
        logging.getLogger("lightstream.agl").debug("not told")
        logging.getLogger("other").info("not told either")
        print(agl.setup_module_logging("WARNING", name="other", console=False).level)
    """
    file = tmp_path / "logs" / "ours.log"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(file)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "30\n"
    assert [line.partition("   ")[2] for line in done.stderr.splitlines()] == ["told once", "told in detail"]
    assert "told once" in file.read_text("utf-8")


def test_objects_of_a_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Agent:
        def __init__(self, name: str, rate: float = 0.5, tags: list[int] | None = None, *, deep: bool = False) -> None:
            self.given = (name, rate, tags, deep)

    class Tuner:
        def __init__(self, limit: int | None = 3) -> None:
            self.limit = limit

    monkeypatch.setattr(sys, "argv", ["x", "--agent.name", "a", "--agent.tags", "1", "2", "--tuner.limit", "none"])
    agent, tuner = agl.lightning_cli(Agent, Tuner)
    assert (agent.given, tuner.limit) == (("a", 0.5, [1, 2], False), None)
    monkeypatch.setattr(sys, "argv", ["x", "--agent.name", "a", "--agent.deep", "maybe"])
    with pytest.raises(SystemExit):
        agl.lightning_cli(Agent)
    assert "'maybe' is neither yes nor no" in capsys.readouterr().err


def test_helpers_of_algorithms() -> None:
    class Helped(agl.FastAlgorithm):
        @with_store
        async def counted(self, store: agl.LightningStore, factor: int) -> int:
            return factor * len(await store.query_rollouts())

        @with_llm_proxy(required=True)
        async def needs_proxy(self, proxy: Any) -> None: ...

        async def run(self, train_dataset: Any = None, val_dataset: Any = None) -> None:
            await self.get_store().enqueue_rollout(train_dataset[0])
            assert await self.counted(3) == 3
            with pytest.raises(SettingsError, match="LLM proxy"):
                await self.needs_proxy()

    agl.Trainer(algorithm=Helped()).dev(agl.rollout(lambda task: 1.0), ["x"])
    batches = batch_iter_over_dataset([1, 2, 3], 2)
    seen = [next(batches) for _ in range(6)]
    assert all(len(set(batch)) == 2 for batch in seen)
    assert set(next(batch_iter_over_dataset([1, 2, 3], 9))) == {1, 2, 3}


class Named(agl.FastAlgorithm):
    """Tells its name."""

    def __init__(self, name: str = "plain") -> None:
        self.name = name

    def run(self, train_dataset: Any = None, val_dataset: Any = None) -> None:
        assert self.get_trainer().algorithm is self


def test_parts_of_a_trainer_are_described_in_many_ways() -> None:
    path = f"{agl.InMemoryLightningStore.__module__}.InMemoryLightningStore"
    described: list[tuple[Any, str]] = [
        (Named(), "plain"),
        (Named, "plain"),
        (lambda: Named("made"), "made"),
        ({"type": f"{Named.__module__}.Named", "name": "of a dictionary"}, "of a dictionary"),
    ]
    for (algorithm, name), store in zip(
        described, (path, {"type": path, "thread_safe": True}, agl.InMemoryLightningStore, None), strict=True
    ):
        trainer = agl.Trainer(algorithm=algorithm, store=store, adapter={"agent_match": "x"}, tracer=agl.OtelTracer)
        trainer.dev(agl.rollout(lambda task: 1.0), [1])
        assert (trainer.algorithm.name, type(trainer.store)) == (name, agl.InMemoryLightningStore)
        assert isinstance(trainer.adapter, agl.TracerTraceToTriplet)
        assert trainer.adapter.agent_match == "x"
    with pytest.raises(TypeError, match="no method run"):
        agl.Trainer(algorithm=lambda: 1)
    with pytest.raises(ValueError, match="without 'type'"):
        agl.Trainer(store={"thread_safe": True})


@pytest.mark.parametrize(
    ("adapter", "rules"),
    [
        ({"agent_match": "^writer$"}, ("first_occurrence", "^writer$")),
        ({"reward_match": "first_sibling", "repair_hierarchy": False}, ("first_sibling", None)),
        (
            agl.TracerTraceToTriplet(agent_match="a|b", reward_match=RewardMatchPolicy.FIRST_SIBLING),
            ("first_sibling", "a|b"),
        ),
    ],
)
def test_an_adapter_is_rules_for_the_assembler_where_weights_are_trained(
    adapter: Any, rules: tuple[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Assembly | None] = []
    monkeypatch.setattr("lightstream.trainers.Trainer", lambda **arguments: given.append(arguments.get("assembly")))
    agl.Trainer(algorithm=agl.VERL(CONFIG), adapter=adapter)
    agl.Trainer(algorithm=agl.VERL(CONFIG))
    assert given == [Assembly.model_validate({"reward_match": rules[0], "trained_agents": rules[1]}), None]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"adapter": agl.TraceToMessages()}, "not from TraceToMessages"),
        ({"adapter": {"llm_call_match": "mine"}}, "llm_call_match"),
        ({"adapter": {"exclude_llm_call_in_reward": False}}, "exclude_llm_call_in_reward"),
        ({"adapter": {"agent_match": ".*"}}, "without an agent"),
        ({"adapter": {"agent_match": "x"}, "assembly": Assembly(credit="identical")}, "adapter and assembly"),
    ],
)
def test_an_adapter_that_the_assembler_is_not_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        agl.Trainer(algorithm=agl.VERL(CONFIG), **arguments)


class Kernel:
    """Blocks what is forbidden."""

    def on_policy_violation(self, handler: ViolationHandler, /) -> None:
        self.handler = handler

    async def execute_async(self, agent: Callable[[Any], Any], task: Any) -> Any:
        if task == "forbidden":
            self.handler("tasks", "it is forbidden", "high", True)
        return await agent(task)


class Kernels(Kernel):
    """Several Runners may be told."""

    def __init__(self) -> None:
        self.handlers: list[ViolationHandler] = []

    def on_policy_violation(self, handler: ViolationHandler, /) -> None:
        self.handlers.append(handler)

    def handler(self, *violation: Any) -> None:  # type: ignore[override]  # it tells all of them
        for handler in self.handlers:
            handler(*violation)


@pytest.mark.parametrize(("fails", "success"), [(True, False), (False, True)])
async def test_a_runner_under_a_policy_kernel(fails: bool, success: bool) -> None:
    @agl.rollout
    def agent(task: str) -> float:
        return 1.0

    store, runner = agl.InMemoryLightningStore(), AgentOSRunner(Kernel(), fail_on_violation=fails)
    with runner.run_context(agent=agent, store=store):
        allowed, forbidden = await runner.step("allowed"), await runner.step("forbidden")
    assert (allowed.success, allowed.task_output, allowed.violations) == (True, 1.0, [])
    assert (forbidden.success, forbidden.total_penalty) == (success, -50.0)
    assert runner.get_stats() == {"total_rollouts": 2, "total_violations": 1, "violation_rate": 0.5}
    statuses = [rollout.status for rollout in await store.query_rollouts()]
    assert statuses == ["succeeded", "succeeded" if success else "failed"]


def test_several_runners_under_one_kernel() -> None:
    """The kernel tells each of them of every violation; it is emitted once, in its own rollout."""
    kernel = Kernels()

    @agl.rollout
    async def agent(task: str) -> float:
        return 1.0

    trainer = agl.Trainer(runner=AgentOSRunner(kernel), n_runners=2)
    trainer.dev(agent, ["forbidden", "allowed", "forbidden", "allowed"])
    assert trainer.store is not None
    rollouts = asyncio.run(trainer.store.query_rollouts())
    spans = [list(asyncio.run(trainer.store.query_spans(rollout.rollout_id))) for rollout in rollouts]
    told = [sum(span.attributes.get("agent_os.violation") is True for span in found) for found in spans]
    assert (told, len(kernel.handlers)) == ([1, 0, 1, 0], 2)


def test_stores_take_agent_lightnings_delays() -> None:
    agl.InMemoryLightningStore(scan_debounce_seconds=0.0)
    delays: dict[str, Any] = {"retry_delays": (0.01, 0.02), "health_retry_delays": (0.01,)}
    client = agl.LightningStoreClient("http://127.0.0.1:9", request_timeout=1.0, connection_timeout=1.0, **delays)
    with pytest.raises(ServiceUnavailableError):
        asyncio.run(client.enqueue_rollout(1))
    asyncio.run(client.close())


def test_arguments_that_have_no_part_here_are_named() -> None:
    store = agl.InMemoryLightningStore(thread_safe=True)
    with pytest.raises(SettingsError, match=r"eviction_memory_threshold here\. Nothing is evicted"):
        agl.InMemoryLightningStore(eviction_memory_threshold=0.5)
    with pytest.raises(SettingsError, match="launch_mode, n_workers here"):
        agl.LightningStoreServer(store, "localhost", 0, None, "mp", 4)
    with pytest.raises(SettingsError, match="callbacks here"):
        agl.LLMProxy(port=0, model_list=[], callbacks=["mine"])
    with pytest.raises(TypeError, match="takes no colour"):
        agl.InMemoryLightningStore(colour="red")


def test_a_runner_asked_for_heartbeats_that_there_are_none_of() -> None:
    with pytest.raises(SettingsError, match="GPU figures True"):
        agl.LitAgentRunner(heartbeat_include_gpu=True)
    runner = agl.LitAgentRunner[Any](agl.OtelTracer(), heartbeat_interval=0.5, poll_interval=1.0)
    assert (runner.get_worker_id(), runner.tracer is not None) == ("Worker-Unknown", True)
    with pytest.raises(SettingsError, match="no agent"):
        runner.get_agent()
    with pytest.raises(SettingsError, match="no store"):
        runner.get_store()
    with pytest.raises(RuntimeError, match="iter"):
        runner.run()
