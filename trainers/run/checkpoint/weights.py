"""Whether two folders have the same weights, however they are stored."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any


def same_weights(one: Path, other: Path) -> bool:
    """Whether all tensors of two models, or adapters, are equal, in the type of the narrower of the two.

    One tensor of each is in memory at a time. Order, number of files and their metadata do not count: the first version
    of a run is in float32, as it was given, and an update that changes nothing is in the type that servers compute in.

    Args:
        one, other: folders with ``*.safetensors``.

    Raises:
        OSError: a file cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    untyped: Any = safe_open
    with ExitStack() as stack:
        try:
            tensors: list[dict[str, Any]] = [
                {
                    name: content
                    for path in sorted(folder.glob("*.safetensors"))
                    for content in (stack.enter_context(untyped(path, framework="pt")),)
                    for name in content.keys()  # noqa: SIM118  # it is no mapping
                }
                for folder in (one, other)
            ]
        except SafetensorError as error:
            raise OSError(f"{one} or {other}: {error}") from error
        ours, theirs = tensors
        return ours.keys() == theirs.keys() and all(
            _equal(ours[name].get_tensor(name), theirs[name].get_tensor(name)) for name in ours
        )


def _equal(one: Any, other: Any) -> bool:
    import torch

    narrower = min(one.dtype, other.dtype, key=lambda dtype: dtype.itemsize)
    return one.shape == other.shape and bool(torch.equal(one.to(narrower), other.to(narrower)))
