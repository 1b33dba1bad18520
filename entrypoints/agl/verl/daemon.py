"""Rollouts of agents as batches for a loop on verl."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from lightstream.runtime.loop_thread import LoopThread
from lightstream.schemas.errors import SettingsError, TrainingError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.packing import pack_int32, unpack_int32
from lightstream.schemas.records import TripletRecord
from lightstream.schemas.types import EnqueueRolloutRequest, Triplet
from lightstream.stream_processors.adapters import LlmProxyTraceToTriplet, TraceToTripletBase
from lightstream.stream_processors.core.segments import merge_segments

from ..llm_proxy import LLMProxy
from ..types import RolloutConfig

if TYPE_CHECKING:
    import torch

__all__ = [
    "AgentModeDaemon",
    "get_left_padded_ids_and_attention_mask",
    "get_right_padded_ids_and_attention_mask",
]

logger = logging.getLogger(__name__)

T = TypeVar("T")

WAIT_S = 30.0
"""While rollouts are waited for, a line says how many are over this often."""

TRAIN_TEMPERATURE, VALIDATION_TEMPERATURE = 0.7, 0.0


def get_left_padded_ids_and_attention_mask(
    ids: Sequence[int], max_length: int, pad_token_id: int
) -> tuple[list[int], list[int]]:
    """``max_length`` tokens: padded on the left, or the last ones; and 1 for each token that is none of the padding."""
    kept = list(ids[-max_length:]) if max_length else []
    padding = max_length - len(kept)
    return [pad_token_id] * padding + kept, [0] * padding + [1] * len(kept)


def get_right_padded_ids_and_attention_mask(
    ids: Sequence[int], max_length: int, pad_token_id: int
) -> tuple[list[int], list[int]]:
    """``max_length`` tokens: padded on the right, or the first ones; and 1 for each that is none of the padding."""
    kept = list(ids[:max_length])
    padding = max_length - len(kept)
    return kept + [pad_token_id] * padding, [1] * len(kept) + [0] * padding


@dataclass(frozen=True, slots=True)
class _Row:
    """A call, or calls that continue each other: what the model was given, and what follows.

    Attributes:
        mask: of the response: 1 where the model sampled the token.
    """

    prompt: list[int]
    response: list[int]
    mask: list[int]


@dataclass(slots=True)
class _Over:
    """A rollout that is over: its calls that have token ids, and its reward, where it has any."""

    sample: Mapping[str, Any]
    triplets: list[Triplet]
    reward: float | None


@dataclass(slots=True)
class _Enqueued:
    """What was asked for.

    Attributes:
        samples: rollout -> its sample, in the order in which they were enqueued.
        over: rollout -> what became of it.
    """

    is_train: bool = True
    samples: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    over: dict[str, _Over] = field(default_factory=dict[str, _Over])


class AgentModeDaemon:
    """Has samples rolled out by Runners elsewhere, and gives the results as verl's batches.

    For a loop of one's own, whose model servers have addresses: they are put behind an LLM proxy, and each sample is
    enqueued in the store, in training as often as ``train_rollout_n``, with the proxy as its model. Each rollout counts
    once, by its newest attempt. One thread calls at a time.

    Args:
        port: of the proxy that is made where none is given; ``None``: any free one.
        train_rollout_n: rollouts of each sample.
        train_information: ``model`` is the name of the model, ``temperature`` that of the calls.
        tokenizer: of no use: nothing is tokenised again.
        mini_batch_size: of the loop; of no use here.
        pad_token_id: what batches are padded with.
        reward_fillna_value: the reward of a rollout that has none.
        llm_timeout_seconds: a rollout that takes longer has failed, or is silent for so long.
        mode: ``v1``. The first protocol (``v0``) is served by stores' servers.
        llm_proxy: in place of one of this object's own. One that runs keeps its models.
        store: where rollouts are.
        adapter: makes triplets of a rollout's spans; by default those of the proxy's calls, each once.
        processor: of models that look at images, which are refused.
        image_base_dir: of no use.
        trace_aggregator: ``level``: ``transition``, a row for each call, or ``trajectory``: calls that continue each
            other are one row, in which what came between them is masked.

    Raises:
        SettingsError: a value is not used here, or there is no store.
    """

    def __init__(
        self,
        port: int | None,
        train_rollout_n: int,
        train_information: Mapping[str, Any],
        tokenizer: Any,
        mini_batch_size: int,
        pad_token_id: int,
        reward_fillna_value: float = 0.0,
        llm_timeout_seconds: float = 1200.0,
        mode: Literal["v0", "v1"] = "v1",
        llm_proxy: LLMProxy | None = None,
        store: LightningStore | None = None,
        adapter: TraceToTripletBase | None = None,
        processor: Any = None,
        image_base_dir: str | None = None,
        trace_aggregator: Mapping[str, Any] | None = None,
    ) -> None:
        if mode != "v1":
            raise SettingsError(
                f"mode is {mode!r}, and there is 'v1' alone.",
                next_step="Agents of the first protocol are served by LightningStoreServer, beside others.",
            )
        if store is None:
            raise SettingsError(
                "AgentModeDaemon needs a store.", next_step="Give store=InMemoryLightningStore() or another."
            )
        if "image" in str(type(getattr(processor, "image_processor", None))).lower():
            raise SettingsError(
                "batches of models that look at images are not made here.",
                next_step="lightstream.agl.VERL trains such models.",
            )
        self.level = dict(trace_aggregator or {}).get("level", "transition")
        if self.level not in ("transition", "trajectory"):
            raise SettingsError(f"trace_aggregator's level is {self.level!r}; it is 'transition' or 'trajectory'.")
        self.store = store
        self.llm_proxy = llm_proxy or LLMProxy(port=port or 0, model_list=[], store=store)
        self.adapter = adapter or LlmProxyTraceToTriplet()
        self.train_rollout_n = train_rollout_n
        self.train_information = train_information
        self.pad_token_id = pad_token_id
        self.reward_fillna_value = reward_fillna_value
        self.llm_timeout_seconds = llm_timeout_seconds
        self._enqueued = _Enqueued()
        self._loop = LoopThread("lightstream-verl-daemon", "the daemon")

    @property
    def is_train(self) -> bool:
        """Whether the last request is for training."""
        return self._enqueued.is_train

    def start(self) -> None:
        """Nothing: the proxy starts with the first addresses."""

    def set_up_data_and_server(
        self, data: Mapping[str, Sequence[Any]], server_addresses: Sequence[str], is_train: bool = True
    ) -> None:
        """Enqueue every sample; earlier requests are forgotten.

        Args:
            data: column -> a value for each sample (NumPy's arrays too).
            server_addresses: ``host:port`` of each model server.
            is_train: enqueue each ``train_rollout_n`` times as ``train``, else once as ``val``.

        Raises:
            SettingsError: no column, or columns of different lengths; or ``train_information`` names no model.
            ServiceUnavailableError: the proxy's port is taken, or the store does not answer.
        """
        lengths = {name: len(values) for name, values in data.items()}
        if len(set(lengths.values())) != 1:
            raise SettingsError(f"data needs columns of one length; these have {lengths or 'none'}.")
        count = next(iter(lengths.values()))
        samples = [{name: values[row] for name, values in data.items()} for row in range(count)]
        self._run(lambda: self._set_up(samples, server_addresses, is_train=is_train))

    async def _set_up(self, samples: list[dict[str, Any]], addresses: Sequence[str], *, is_train: bool) -> None:
        self.clear_data_and_server()
        await self._serve(addresses)
        temperature = TRAIN_TEMPERATURE if is_train else VALIDATION_TEMPERATURE
        llm = self.llm_proxy.as_resource(
            model=self.train_information.get("model"),
            sampling_parameters={"temperature": self.train_information.get("temperature", temperature)},
        )
        resources = await self.store.add_resources({"main_llm": llm})
        requests: list[EnqueueRolloutRequest] = []
        named: list[dict[str, Any]] = []
        limit_s = self.llm_timeout_seconds
        for sample in samples:
            named_sample = sample | {"data_id": str(uuid.uuid4())}
            for _ in range(self.train_rollout_n if is_train else 1):
                named.append(named_sample)
                requests.append(
                    EnqueueRolloutRequest(
                        input=_native(named_sample),
                        mode="train" if is_train else "val",
                        resources_id=resources.resources_id,
                        config=RolloutConfig(unresponsive_seconds=limit_s, timeout_seconds=limit_s),
                        metadata={"data_id": named_sample["data_id"], "is_train": is_train},
                    )
                )
        enqueued = await self.store.enqueue_many_rollouts(requests)
        ids = [rollout.rollout_id for rollout in enqueued]
        self._enqueued = _Enqueued(is_train, dict(zip(ids, named, strict=True)))

    async def _serve(self, addresses: Sequence[str]) -> None:
        """The proxy has these servers behind it. One of somebody else's, which runs, keeps those that it has."""
        if not self.llm_proxy.is_running() or self._serves:
            model = self.train_information.get("model")
            if not model:
                raise SettingsError(
                    "train_information names no model.", next_step="Give train_information={'model': …}."
                )
            models = [
                {
                    "model_name": model,
                    "litellm_params": {"model": f"hosted_vllm/{model}", "api_base": f"http://{address}/v1"},
                }
                for address in addresses
            ]
            self.llm_proxy.update_model_list(models)
            await self.llm_proxy.start()
            self._serves = True

    _serves = False
    """Whether this started the proxy."""

    def run_until_all_finished(self, verbose: bool = True) -> None:
        """Wait until every rollout is over.

        Args:
            verbose: log how many are, from time to time.
        """
        self._run(lambda: self._wait(verbose=verbose))

    async def _wait(self, *, verbose: bool) -> None:
        enqueued = self._enqueued
        while waiting := [rollout_id for rollout_id in enqueued.samples if rollout_id not in enqueued.over]:
            ended = await self.store.wait_for_rollouts(rollout_ids=waiting, timeout=WAIT_S)
            for rollout in ended:
                spans = list(await self.store.query_spans(rollout.rollout_id, "latest"))
                triplets = self.adapter.adapt(spans) if spans else []
                rewards = [triplet.reward for triplet in triplets if triplet.reward is not None]
                over = _Over(enqueued.samples[rollout.rollout_id], triplets, rewards[-1] if rewards else None)
                enqueued.over[rollout.rollout_id] = over
            if verbose:
                logger.info("%s of %s rollouts are over", len(enqueued.over), len(enqueued.samples))

    def get_train_data_batch(
        self, max_prompt_length: int, max_response_length: int, device: torch.device | str, global_steps: int = 0
    ) -> tuple[Any, dict[str, float]]:
        """The rows of all rollouts, in the order in which they were enqueued, and metrics.

        N rows of P + R tokens, P ``max_prompt_length`` and R ``max_response_length``: ``prompts`` int64 (N, P), padded
        on the left; ``responses`` int64 (N, R), padded on the right; ``input_ids``, ``attention_mask`` and
        ``position_ids`` int64 (N, P + R); ``response_mask`` int64 (N, R), 1 where the model sampled the token;
        ``token_level_scores`` float32 (N, R), the rollout's reward on the last token of each of its rows;
        ``is_drop_mask`` bool (N,), rows whose prompt is longer than P, cut, to be left out after advantages were
        computed. Not tensors: ``data_id_list`` (equal for rollouts of a sample), ``rollout_id_list``,
        ``turn_index_list`` (the row's number in its rollout). Rollouts without calls that have token ids have no row.

        Args:
            device: of the tensors.
            global_steps: of no use.

        Returns:
            A ``verl.DataProto``, and metrics by Agent Lightning's names.

        Raises:
            TrainingError: it was asked for no training, not all rollouts are over, or none has a row.
        """
        import torch
        from verl import DataProto

        over = self._finished(is_train=True)
        ids: list[tuple[str, str, int]] = []
        rows: list[_Row] = []
        rewards: list[float] = []
        for rollout_id, ended in over.items():
            for number, row in enumerate(_rows(ended.triplets, self.level)):
                ids.append((str(ended.sample["data_id"]), rollout_id, number))
                rows.append(row)
                rewards.append(self._reward(ended))
        if not rows:
            raise TrainingError(
                f"none of {len(over)} rollouts has calls with token ids.",
                next_step="Look at one with `lightstream explain`; its agent has to use the endpoint of its resource.",
            )

        def padded(each: Callable[[_Row], tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
            values, masks = zip(*map(each, rows), strict=True)
            return torch.tensor(values, device=device), torch.tensor(masks, device=device)

        pad = self.pad_token_id
        prompts, prompt_mask = padded(
            lambda row: get_left_padded_ids_and_attention_mask(row.prompt[:max_prompt_length], max_prompt_length, pad)
        )
        responses, is_response = padded(
            lambda row: get_right_padded_ids_and_attention_mask(row.response, max_response_length, pad)
        )
        response_mask, _ = padded(lambda row: get_right_padded_ids_and_attention_mask(row.mask, max_response_length, 0))
        attention_mask = torch.cat([prompt_mask, is_response], dim=-1)
        lengths = is_response.sum(dim=-1)
        scores = torch.zeros(responses.shape, dtype=torch.float32, device=device)
        answered = lengths > 0
        scores[answered, lengths[answered] - 1] = torch.tensor(rewards, device=device)[answered]
        batch = DataProto.from_dict(
            tensors={
                "prompts": prompts,
                "responses": responses,
                "input_ids": torch.cat([prompts, responses], dim=-1),
                "attention_mask": attention_mask,
                "position_ids": (attention_mask.cumsum(dim=-1) - 1).clamp(min=0),
                "response_mask": response_mask,
                "is_drop_mask": torch.tensor([len(row.prompt) > max_prompt_length for row in rows], device=device),
                "token_level_scores": scores,
            },
            non_tensors={
                "data_id_list": [data_id for data_id, _, _ in ids],
                "rollout_id_list": [rollout_id for _, rollout_id, _ in ids],
                "turn_index_list": [number for _, _, number in ids],
            },
        )
        metrics: dict[str, float] = {
            "training/reward": _mean([self._reward(ended) for ended in over.values()]),
            "training/n_rollouts": len(over),
            "training/n_rollouts_w_trace": sum(bool(ended.triplets) for ended in over.values()),
            "training/n_rollouts_w_reward": sum(ended.reward is not None for ended in over.values()),
            "training/n_truncated_triplets": sum(len(row.response) > max_response_length for row in rows),
            "training/n_triplets": len(rows),
        }
        return batch, metrics

    def get_test_metrics(self) -> dict[str, float]:
        """Means over the rollouts of a validation, also for each ``data_source`` that samples name.

        Raises:
            TrainingError: it was asked for training, or not all rollouts are over.
        """
        over = list(self._finished(is_train=False).values())
        metrics = self._validation("val", over)
        for source in dict.fromkeys(ended.sample["data_source"] for ended in over if "data_source" in ended.sample):
            of_source = [ended for ended in over if ended.sample.get("data_source") == source]
            metrics |= self._validation(f"val/{source}", of_source)
        return metrics

    def _validation(self, prefix: str, over: list[_Over]) -> dict[str, float]:
        response_lengths = [
            [len(_ids(triplet.response)) for triplet in ended.triplets] for ended in over if ended.triplets
        ]
        return {
            f"{prefix}/n_rollouts": len(over),
            f"{prefix}/n_rollouts_w_trace": len(response_lengths),
            f"{prefix}/n_rollouts_w_reward": sum(ended.reward is not None for ended in over),
            f"{prefix}/reward": _mean([self._reward(ended) for ended in over]),
            f"{prefix}/mean_response_length": _mean([_mean(lengths) for lengths in response_lengths]),
            f"{prefix}/sum_response_length": _mean([sum(lengths) for lengths in response_lengths]),
            f"{prefix}/turn_count": _mean([len(lengths) for lengths in response_lengths]),
        }

    def clear_data_and_server(self) -> None:
        """Forget earlier requests. Rollouts stay in the store, and the proxy goes on."""
        self._enqueued = _Enqueued()

    def close(self) -> None:
        """Stop the proxy, if this started it."""
        if self._serves:
            self._run(self.llm_proxy.stop)
            self._serves = False

    def _finished(self, *, is_train: bool) -> dict[str, _Over]:
        """Rollout -> what became of it, in the order in which they were enqueued."""
        enqueued = self._enqueued
        if enqueued.is_train is not is_train:
            kinds = ("a validation", "training") if is_train else ("training", "a validation")
            raise TrainingError(f"the rollouts were enqueued as {kinds[0]}, not as {kinds[1]}.")
        if len(enqueued.over) < len(enqueued.samples):
            raise TrainingError(
                f"{len(enqueued.samples) - len(enqueued.over)} of {len(enqueued.samples)} rollouts are not over.",
                next_step="Call run_until_all_finished() first.",
            )
        return {rollout_id: enqueued.over[rollout_id] for rollout_id in enqueued.samples}

    def _reward(self, ended: _Over) -> float:
        return float(self.reward_fillna_value if ended.reward is None else ended.reward)

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._loop.run(work)


def _rows(triplets: Sequence[Triplet], level: str) -> list[_Row]:
    """The rows of a rollout: its calls, or merged as the trainer of ``lightstream.trainers`` merges them."""
    if level == "transition":
        return [_Row(_ids(each.prompt), _ids(each.response), [1] * len(_ids(each.response))) for each in triplets]
    rows: list[_Row] = []
    for segment in merge_segments([_record(number, triplet) for number, triplet in enumerate(triplets)]):
        ids, start = list(unpack_int32(segment.token_ids)), segment.prompt_length
        rows.append(_Row(ids[:start], ids[start:], list(segment.loss_mask[start:])))
    return rows


def _record(number: int, triplet: Triplet) -> TripletRecord:
    response = _ids(triplet.response)
    return TripletRecord(
        call_index=number,
        span_id=f"{number:016x}",
        trace_id=f"{0:032x}",
        prompt_token_ids=pack_int32(_ids(triplet.prompt)),
        response_token_ids=pack_int32(response),
        response_mask=bytes([1]) * len(response),
    )


def _ids(payload: Mapping[str, Any]) -> list[int]:
    return list(payload.get("token_ids") or ())


def _mean(values: Sequence[float]) -> float:
    """0 of none."""
    return sum(values) / len(values) if values else 0.0


def _native(value: Any) -> Any:
    """NumPy's values as Python's, which every store keeps."""
    if hasattr(value, "tolist"):
        return _native(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): _native(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_native(item) for item in value]
    return value
