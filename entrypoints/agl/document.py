"""Agent Lightning 0.3's public names and keys as Markdown pages: ``python -m lightstream.agl.document docs``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path

from lightstream.trainers.engines.verl.verl_keys import HARMLESS, OPTIONS, READ, REFUSED, harmless_of, refusal_of

from ._names import ABSENT, ABSENT_MODULES, ABSENT_NAMES, DIFFERENT, FLAT, MODULES, PUBLIC
from ._verl_config import EXAMPLES, OWN_KEYS

__all__ = ["names_as_markdown"]

HEAD = """<!-- Written by `make docs`. -->

# Agent Lightning's names

Every public name of agentlightning 0.3.0 and what it is here. Version 1.0 has another interface, which this is not.
Some things [behave differently](#what-behaves-differently). Further pages have
[its modules](agent-lightning/modules.md) and the keys of `VERL(config)`:
[supported ones](agent-lightning/verl-config.md), [others](agent-lightning/verl-config-refused.md), and
[keys of its examples](agent-lightning/verl-config-examples.md).

Change the import to `import lightstream.agl as agl`, and an agent for Agent Lightning 0.3 runs. Dotted paths exist too
(`lightstream.agl.emitter`, `.semconv`, `.store`, `.tracer`, `.types`, `.utils.otel`, …). A missing name raises and
names the nearest.

```python
agl.Trainer(initial_resources={"prompt": template}).dev(agent, tasks)  # in this process and in memory: no services


@agl.algo
async def best_prompt(*, store, train_dataset, adapter, initial_resources): ...


agl.Trainer(algorithm=best_prompt, n_runners=4, store=store).fit(agent, tasks)  # by default the store on Kafka

runner = agl.LitAgentRunner()
with runner.run_context(agent=agent, store=agl.InMemoryLightningStore()):
    rollout = await runner.step(task, resources={"prompt": template})  # raises what the agent raised
```
"""

FLAT_HEAD = """
## The package

`import lightstream.agl as agl` in place of `agentlightning`; a name that is absent says what to use instead.

| name | here |
|---|---|
"""

DOTTED_HEAD = """<!-- Written by `make docs`. -->

# Agent Lightning's modules

`lightstream.agl.<module>` in place of `agentlightning.<module>`. All can be imported. Those without a file of their own
(`adapter.triplet`, `emitter.reward`, `types.core`, …) hold names of the module above them; a type checker knows the
names there.

| module | here | absent |
|---|---|---|
"""

CONFIG_HEAD = """<!-- Written by `make docs`. -->

# Supported keys of `VERL(config)`

verl's own configuration, nested or with dotted keys; `lightstream.trainers.VERL(config=...)` takes the same. A key that
verl does not have is an error that names the nearest. The first pattern that fits a key counts, here or among
[keys that are refused or have no effect](verl-config-refused.md).

| key | here |
|---|---|
"""

REFUSED_HEAD = """<!-- Written by `make docs`. -->

# Other keys of `VERL(config)`

## Refused keys

`VERL(config)` takes verl's default of these keys alone. [Other keys](verl-config.md) have an effect.

| key | reason |
|---|---|
"""

HARMLESS_HEAD = """
## Keys without an effect

They are logged.

| key | reason |
|---|---|
"""


PROGRAMS = """
## Its examples

`make test-agent-lightning-examples CHECKOUT=...` runs those of a checkout of version 0.3 with nothing changed but the
import; each must end with 0. Models are a scripted server.

| program | needs | runs |
|---|---|---|
| `apo/apo_debug.py` `--mode runner`, `hook`, `trainer` | a model; `hook`: AgentOps | yes |
| `apo/room_selector.py` | a model that calls tools, AgentOps | yes |
| `apo/room_selector_apo.py` | the same, without AgentOps | yes |
| `apo/apo_custom_algorithm.py` `algo` and `runner` | `agl store`, a model, AgentOps | yes |
| `apo/apo_custom_algorithm_trainer.py` | a model | yes |
| `apo/legacy_apo_server.py`, `legacy_apo_client.py` | a model | yes |
| `minimal/write_traces.py` `otel`, `operation`, `agentops` | `agentops`: a model, AgentOps | yes |
| the same with `--use-client` | and `agl store --port 45993` | yes |
| `minimal/write_metrics.py` | | yes |
| `minimal/llm_proxy.py` `openai` and `test` | a model | yes |
| `minimal/llm_proxy.py vllm`, `minimal/vllm_server.py` | vLLM | not tried |
| `calc_x`, `spider`, `rag`, `chartqa`, `unsloth`, `tinker` | data sets, GPUs, or a paid service | not by this target |
| `azure`, `claude_code` | Azure; Docker | not tried |

## What remains different

Of names and options:

- `agl store --backend mongo`, `--n-workers 2`: a store that lasts is on Kafka (`--backend kafka`), and one process
  serves.
- `agl store` without `--host` listens on this machine alone, unless a token is asked for (`LIGHTSTREAM_STORE_TOKEN`,
  `LIGHTSTREAM_TOKENS_FILE`) or `LIGHTSTREAM_OPEN_TO_NETWORK` is true.
- `agl agentops` answers AgentOps' clients and keeps nothing: traces come by a tracer, or by OTLP.
- `AgentModeDaemon(mode="v0")` is refused: servers of stores take the first protocol. Its scores are float32 (there
  bfloat16, which rounds 0.7 to 0.699), its rows are in the order in which samples were enqueued, and each call counts
  once, by the proxy's record (`LlmProxyTraceToTriplet`). Batches of models that look at images are not made.
- `AgentLightningTrainer` fills the last mini-batch up with rows of which nothing is trained, where rows were dropped at
  random there; `remax` is refused.
- The dashboard of a store in memory (`agl store`, `LightningStoreServer`) is ours, at `/`; its pages on training are
  empty, which `lightstream up` has.
- `LLMProxy(callbacks=...)` of one's own, middlewares and several workers are refused: a call's record must be durable
  before its answer goes out.
"""

BEHAVIOUR_HEAD = """
## What behaves differently

| there | here |
|---|---|
"""

BEHAVIOUR = (
    (
        "`Trainer` runs Runners as processes (`cs`), rollouts in memory",
        (
            "`fit` uses threads (processes with `VERL`) and rollouts on Kafka; `dev`, or no Kafka: in memory. "
            '`strategy="cs"`, `store=InMemoryLightningStore()` as there. With `main_thread="runner"` (or '
            "`main_process`) the Runner ends with the algorithm"
        ),
    ),
    (
        "`VERL(config)` takes all of verl's keys",
        (
            "[each](agent-lightning/verl-config.md) is an option, has no effect (logged), or is refused with the "
            "reason. "
            "`VERL(model=…, steps=…)` takes ours"
        ),
    ),
    (
        "a `Trainer` with `VERL` takes `adapter`, `llm_proxy`, `strategy`, `max_rollouts`",
        (
            "`adapter`'s `agent_match` and `reward_match` become `Trainer(assembly=...)`, `tracer` is a class or "
            "a function; the others are refused with the replacement"
        ),
    ),
    (
        "a rollout without a limit may run for ever",
        (
            "so with a `RolloutConfig()` of `lightstream.agl`; otherwise `LIGHTSTREAM_ROLLOUT_TIMEOUT_S` (600) "
            "and `LIGHTSTREAM_ROLLOUT_UNRESPONSIVE_S` (60) hold (in memory `limits=Limits(…)`); ten years mean no"
            " limit"
        ),
    ),
    (
        "`LegacyAgentRunner` reports a failed task as empty, and skips one whose resources are gone",
        "both are reported as failed",
    ),
    (
        (
            '`LitAgentRunner(heartbeat_include_gpu=True)`, `heartbeat_launch_mode="thread"`, `Trainer(dev=True)`,'
            " `daemon=False`"
        ),
        "raise, with the replacement",
    ),
    (
        "AgentOps' tracer by default",
        "`OtelTracer`",
    ),
    (
        "`APO` forgets a stopped search",
        "[it continues](prompts.md), and asks no model twice",
    ),
    (
        "metrics at `/v1/prometheus`; a `tracker` of the store counts collections, HTTP and rollouts too",
        "`/metrics` of every server; a `tracker` counts the store's calls",
    ),
    (
        "an agent's synchronous method stops the Runner's loop",
        "it runs in a thread",
    ),
    (
        "a hook that raises is logged",
        "it fails the attempt (`on_rollout_end` is logged); hooks may omit `outcome` and `spans`",
    ),
    (
        "a finished rollout or attempt may get any status",
        (
            "`start_attempt` and `update_rollout` give the rollout one more attempt; trained data stays. Other "
            "calls raise or change nothing: a late report never ends a retry"
        ),
    ),
    (
        "a span of a silent attempt whose rollout failed sets the attempt running",
        "it stays `unresponsive`; with a retry left it runs again",
    ),
    (
        '`update_rollout` of an unknown rollout: "Item does not exist …"',
        '"Rollout … not found", as other calls',
    ),
    (
        "retries wait after other rollouts",
        "before them: first enqueued, first served",
    ),
    (
        "`get_next_span_sequence_id` of an unknown rollout gives 1",
        "it raises, as its description says",
    ),
    (
        "a caller gets the store's own object",
        "a copy",
    ),
    (
        "old spans are evicted; `InMemoryLightningStore(eviction_…)`",
        "none are; such arguments raise, no `…_bytes` in `statistics()`",
    ),
    (
        "`launch_mode`, `n_workers` of the store's server, `num_workers` of the proxy",
        "a thread serves; other values raise",
    ),
    (
        "the server answers 500 for a missing item",
        "404",
    ),
    (
        "adapters: a reward goes to the call that ended before it by the clock",
        "to its linked call, else by log order (`sequence_id`, else the given order)",
    ),
    (
        "adapters: a call without a response id that repair moved under another is dropped",
        "both stay: original nesting counts",
    ),
    (
        "adapters: names and plain attributes identify spans",
        "token ids are read in every dialect; a call's missing ids come from another span of it",
    ),
    (
        "adapters: a nested span without a response id is always dropped",
        "dropped if it adds nothing, or has the same tokens",
    ),
    (
        "adapters: an empty LLM span around other calls is a triplet",
        "it is not",
    ),
    (
        "adapters: one choice of a span",
        "a triplet for each choice, with `choice_index` in its metadata",
    ),
    (
        "adapters: repeated spans, cycles, missing times, deep trees, malformed rewards break or vanish",
        "[each costs its own row](training-data.md#bad-input)",
    ),
    (
        "adapters: `TraceToMessages` reads `gen_ai.prompt.*`",
        (
            "also other conventions, on attributes and in events: OpenInference, Weave, Langfuse, MLflow, Vercel,"
            " Pydantic AI, LiteLLM; each call's messages once"
        ),
    ),
)
"""Agent Lightning's behaviour -> ours."""

EXAMPLES_HEAD = """<!-- Written by `make docs`. -->

# Keys in Agent Lightning's examples

Every key that an example of agentlightning 0.3.0 gives in one of its configurations. `VERL(config)` takes them all but
those that are refused.

| key | given by | here |
|---|---|---|
"""


def names_as_markdown() -> dict[str, str]:
    """Return the pages by their paths in ``docs``.

    Raises:
        LookupError: a name is neither here nor said to be absent.
    """
    flat = "".join(f"| `{name}` | {_flat_state(name)} |\n" for name in sorted(PUBLIC, key=str.lower))
    dotted = "".join(_module_row(path, names.split()) for path, names in sorted(MODULES.items()))
    behaviour = BEHAVIOUR_HEAD + "".join(f"| {there} | {here} |\n" for there, here in BEHAVIOUR)
    return {
        "agent-lightning.md": HEAD + FLAT_HEAD + flat + PROGRAMS + behaviour,
        "agent-lightning/modules.md": DOTTED_HEAD + dotted,
        "agent-lightning/verl-config.md": CONFIG_HEAD + _rows(OWN_KEYS) + _rows(_supported()),
        "agent-lightning/verl-config-refused.md": REFUSED_HEAD + _rows(REFUSED) + HARMLESS_HEAD + _rows(HARMLESS),
        "agent-lightning/verl-config-examples.md": EXAMPLES_HEAD + _example_rows(),
    }


def _flat_state(name: str) -> str:
    if name in ABSENT:
        return f"absent: {ABSENT[name]}"
    return f"`{FLAT[name]}`" + (f"; {DIFFERENT[name]}" if name in DIFFERENT else "")


def _supported() -> dict[str, str]:
    return dict(sorted(({key: f"`{option}`" for key, option in OPTIONS.items()} | READ).items()))


def _rows(meanings: Mapping[str, str]) -> str:
    return "".join(f"| `{key}` | {meaning} |\n" for key, meaning in meanings.items())


def _example_rows() -> str:
    given = sorted((key, name) for name, keys in EXAMPLES.items() for key in keys)
    return "".join(f"| `{key}` | {name} | {key_here(key)} |\n" for key, name in given)


def key_here(key: str) -> str:
    """The meaning that a key of ``VERL(config)`` has here."""
    if key in OWN_KEYS:
        return OWN_KEYS[key]
    if key in OPTIONS:
        return f"`{OPTIONS[key]}`"
    if key in READ:
        return READ[key]
    if (reason := harmless_of(key)) is not None:
        return f"no effect: {reason}"
    return f"refused, but for verl's default: {refusal_of(key)}"


def _module_row(path: str, names: list[str]) -> str:
    if path in ABSENT_MODULES:
        return f"| `{path}` | | {', '.join(f'`{name}`' for name in names)}: {ABSENT_MODULES[path]} |\n"
    module = import_module(f"lightstream.agl.{path}")
    listed: list[str] = getattr(module, "__all__", [])  # of which some are imported when they are used
    here = [name for name in names if name in listed or hasattr(module, name)]
    reasons: dict[str, list[str]] = {}
    for name in names:
        if name not in here:
            reasons.setdefault(_instead(f"{path}.{name}"), []).append(f"`{name}`")
    absent = "; ".join(f"{', '.join(missing)}: {reason}" for reason, missing in reasons.items())
    return f"| `{path}` | {', '.join(f'`{name}`' for name in here)} | {absent} |\n"


def _instead(name: str) -> str:
    for pattern, instead in ABSENT_NAMES.items():
        if fnmatchcase(name, pattern):
            return instead
    raise LookupError(f"{name} is not in lightstream.agl, and ABSENT_NAMES names no replacement")


if __name__ == "__main__":
    for path, text in names_as_markdown().items():
        page = Path(sys.argv[1], path)
        page.parent.mkdir(exist_ok=True)
        page.write_text(text, "utf-8")
