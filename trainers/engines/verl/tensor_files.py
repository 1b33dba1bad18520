"""Files of safetensors that are written and read one tensor at a time.

The library (https://github.com/huggingface/safetensors#format) writes a file from tensors that are all in memory; these
are not. It reads the files, also in part.

- A tensor is whole, or one block of it: several files then have the others. A file that has blocks says in its metadata
  where each belongs.
- A reader asks for any block, whoever wrote which. So files of some processes are read by any number of processes.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightstream.schemas.errors import TrainingError

RESTORE = "Restore the folder as it was written, or start a new run with another run_id and trainer_id."

_BLOCKS = "blocks"
"""Name, in a file's metadata, of the place of each tensor of which the file has a block."""

_NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32"}
"""torch's name of a type -> the format's."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a tensor.

    Attributes:
        whole: shape of the tensor.
        shape: of the block.
        start: its first element, an index for each dimension.
    """

    whole: tuple[int, ...]
    shape: tuple[int, ...]
    start: tuple[int, ...]

    @classmethod
    def all_of(cls, shape: Iterable[int]) -> Block:
        """The tensor itself."""
        whole = tuple(shape)
        return cls(whole, whole, (0,) * len(whole))

    @classmethod
    def of(cls, tensor: Any) -> Block:
        """The part of a tensor that this process has: of a DTensor its shard, else all."""
        if not hasattr(tensor, "device_mesh"):
            return cls.all_of(tensor.shape)
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        found: Any = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        shape, start = found
        return cls(tuple(tensor.shape), tuple(shape), tuple(start))

    def overlap(self, other: Block) -> tuple[slice, ...] | None:
        """The part of the tensor that both have; ``None`` where there is none."""
        starts = [max(a, b) for a, b in zip(self.start, other.start, strict=True)]
        ends = [min(a, b) for a, b in zip(self.ends, other.ends, strict=True)]
        if any(start >= end for start, end in zip(starts, ends, strict=True)):
            return None
        return tuple(slice(start, end) for start, end in zip(starts, ends, strict=True))

    def within(self, part: tuple[slice, ...]) -> tuple[slice, ...]:
        """A part of the tensor, as indices into this block."""
        return tuple(slice(p.start - first, p.stop - first) for p, first in zip(part, self.start, strict=True))

    @property
    def ends(self) -> tuple[int, ...]:
        """The index after the last one, for each dimension."""
        return tuple(first + size for first, size in zip(self.start, self.shape, strict=True))


class TensorWriter:
    """A file that is written one tensor at a time, in any order. Leave its ``with`` once all are written.

    Args:
        file: it must not exist, or is replaced.
        blocks: of each tensor in the file, by name.
        dtype: of all of them, by torch's name.

    Raises:
        OSError: the disk is full; the error names the file.
    """

    def __init__(self, file: Path, blocks: Mapping[str, Block], *, dtype: str = "float32") -> None:
        import torch

        self._file, self._dtype = file, getattr(torch, dtype)
        self._blocks = {name: blocks[name] for name in sorted(blocks)}
        in_part = {n: {"whole": b.whole, "start": b.start} for n, b in self._blocks.items() if b.shape != b.whole}
        metadata = {"format": "pt"} | ({_BLOCKS: json.dumps(in_part)} if in_part else {})
        header: dict[str, Any] = {"__metadata__": metadata}
        self._starts: dict[str, int] = {}
        end = 0
        for name, block in self._blocks.items():
            start, end = end, end + math.prod(block.shape) * self._dtype.itemsize
            header[name] = {"dtype": _NAMES[dtype], "shape": block.shape, "data_offsets": (start, end)}
            self._starts[name] = start
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self._head = len(text).to_bytes(8, "little") + text
        self._missing = set(self._blocks)

    def __enter__(self) -> TensorWriter:
        with self._named():
            self._open = self._file.open("wb", buffering=0)
            self._write(self._head, 0)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._named(), self._open:
            if kind is None:
                os.fsync(self._open.fileno())  # of each process its own: another machine has it in its memory
        if kind is None and self._missing:
            raise TrainingError(f"{self._file.name} lacks {len(self._missing)} tensors, {min(self._missing)!r} first.")

    def write(self, name: str, tensor: Any) -> None:
        """Write a tensor, or a block of one, from wherever it is. It is cast there.

        Raises:
            OSError: the disk is full.
            TrainingError: the file is to have no such tensor.
        """
        import torch

        block = self._blocks.get(name)
        if block is None or tuple(tensor.shape) != block.shape:
            raise TrainingError(f"{self._file.name} is to have no tensor {name!r} of shape {tuple(tensor.shape)}.")
        values = tensor.detach().to(self._dtype).contiguous().cpu()
        with self._named():
            self._write(memoryview(values.reshape(-1).view(torch.uint8).numpy()), len(self._head) + self._starts[name])
        self._missing.discard(name)

    def _write(self, content: bytes | memoryview, at: int) -> None:
        rest, handle = memoryview(content), self._open.fileno()
        while len(rest):
            written = os.pwrite(handle, rest, at)
            rest, at = rest[written:], at + written

    def _named(self) -> _Naming:
        return _Naming(self._file)


class _Naming:
    """Has errors of the disk name a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        if isinstance(error, OSError):
            raise OSError(error.errno, f"{self._file.name}: {error.strerror}") from error


class TensorReader:
    """Tensors, by name, that some files have together.

    Args:
        files: at least one.

    Attributes:
        shapes: of each tensor, whole.

    Raises:
        TrainingError: a file is missing or damaged.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._parts: dict[str, list[tuple[Path, Block]]] = {}
        for file in files:
            with _opened(file) as content:
                places = json.loads((content.metadata() or {}).get(_BLOCKS, "{}"))
                for name in content.keys():  # noqa: SIM118  # it is no mapping
                    block = Block.all_of(content.get_slice(name).get_shape())
                    if place := places.get(name):
                        block = Block(tuple(place["whole"]), block.shape, tuple(place["start"]))
                    self._parts.setdefault(name, []).append((file, block))
        self.shapes: Mapping[str, tuple[int, ...]] = {name: parts[0][1].whole for name, parts in self._parts.items()}

    def fill(self, name: str, tensor: Any) -> None:
        """Give a tensor, or the shard that this process has of one, its values. No more than that is read.

        Raises:
            KeyError: there is no tensor of that name.
            TrainingError: it has another shape here, or a part of it is in no file.
        """
        import torch

        wanted, parts = Block.of(tensor), self._parts[name]
        if any(block.whole != wanted.whole for _, block in parts):
            raise TrainingError(
                f"{parts[0][0]} has {name!r} in the shape {self.shapes[name]}, and the model in {wanted.whole}.",
                next_step=RESTORE,
            )
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        lacking = local.numel()
        with torch.no_grad():
            for file, block in parts:
                common = block.overlap(wanted)
                if common is None or not lacking:
                    continue
                with _opened(file) as content:  # for a moment, as what was read of it counts as this process's memory
                    values = content.get_slice(name)[block.within(common)] if common else content.get_tensor(name)
                    local[wanted.within(common)].copy_(values)
                lacking -= values.numel()
        if lacking:
            raise TrainingError(
                f"a part of {name!r} is in no file of {parts[0][0].parent}: {lacking} of its numbers.",
                next_step=RESTORE,
            )


def _opened(file: Path) -> Any:
    """A file of tensors, open for reading.

    Raises:
        TrainingError: it is missing or damaged.
    """
    from safetensors import SafetensorError, safe_open

    open_file: Any = safe_open
    try:
        return open_file(file, framework="pt")
    except (OSError, SafetensorError) as error:
        missing = not file.is_file()
        raise TrainingError(
            f"{file} {'is missing' if missing else f'cannot be read: {error}'}.", next_step=RESTORE
        ) from error
