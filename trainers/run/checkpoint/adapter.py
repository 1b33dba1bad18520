"""The folder of an adapter (LoRA), as peft and vLLM read it: its configuration and its tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightstream.schemas.errors import TrainingError

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"

MAKE_ANOTHER = "Name a folder that peft's `save_pretrained` wrote, of a plain LoRA adapter."


@dataclass(frozen=True, slots=True)
class AdapterShape:
    """The contents of an adapter's configuration.

    Attributes:
        rank: inner size of each pair of matrices.
        alpha: what they add is multiplied by ``alpha / rank``.
        base: folder of the model, relative to the adapter's own, or absolute.
    """

    rank: int
    alpha: float
    base: str

    @property
    def scaling(self) -> float:
        """The factor of the matrices' product."""
        return self.alpha / self.rank


def write_adapter(folder: Path, tensors: Mapping[str, Any], shape: AdapterShape) -> None:
    """Write an adapter into a folder, which is made.

    Args:
        folder: where to.
        tensors: by peft's names, ``base_model.model.<layer>.lora_A.weight`` (rank, inputs) and ``….lora_B.weight``
            (outputs, rank).
        shape: rank, alpha and model.

    Raises:
        OSError: the disk is full.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    layers = sorted({name.removeprefix("base_model.model.").rpartition(".lora_")[0] for name in tensors})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": shape.base,
        "r": shape.rank,
        "lora_alpha": shape.alpha,
        "target_modules": layers,
        "bias": "none",
    }
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    try:
        save_file(dict(tensors), folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    except SafetensorError as error:
        raise OSError(f"{ADAPTER_WEIGHTS}: {error}") from error


def read_shape(folder: Path) -> AdapterShape:
    """The contents of an adapter's configuration.

    Raises:
        TrainingError: it is missing, or of another kind of adapter.
    """
    try:
        config = json.loads((folder / ADAPTER_CONFIG).read_text("utf-8"))
        kind, rank, alpha = config["peft_type"], config["r"], config["lora_alpha"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"{folder} has no adapter that can be read: {error}.", next_step=MAKE_ANOTHER) from error
    other = [name for name in ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern") if config.get(name)]
    if kind != "LORA" or config.get("bias", "none") != "none" or config.get("modules_to_save") or other:
        raise TrainingError(
            f"the adapter in {folder} is of another kind ({', '.join([str(kind), *other])}) than a plain LoRA.",
            next_step=MAKE_ANOTHER,
        )
    if not isinstance(rank, int) or rank < 1:
        raise TrainingError(f"the adapter in {folder} has the rank {rank!r}.", next_step=MAKE_ANOTHER)
    return AdapterShape(rank, float(alpha), str(config.get("base_model_name_or_path") or ""))


def read_adapter(folder: Path) -> dict[str, Any]:
    """An adapter's tensors, by peft's names.

    Raises:
        TrainingError: they are missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Any] = load_file(folder / ADAPTER_WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise TrainingError(
            f"the adapter in {folder} cannot be read: {error}.", next_step="Restore the folder, or name another."
        ) from error
    return tensors
