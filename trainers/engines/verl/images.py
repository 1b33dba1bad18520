"""Models that look at images: their pixels, where they stand among the tokens, and positions in three dimensions.

Images stay files until the model sees them: of a batch, the pixels of one micro-batch at a time are in memory.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import TripletRecord

from ...rollouts.batch import BatchArrays, Exclusion

IMAGE_MODELS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
"""Model types that are trained with images: one image processor, and positions that one function gives."""

IMAGE_MODELS_IN_WORDS = "Qwen2-VL, Qwen2.5-VL or Qwen3-VL"

PROCESSOR_FILE = "preprocessor_config.json"

POSITION_ROWS = 4
"""Of the text, then time, height and width, as verl's engine and transformers take them."""

GRIDS_KEPT = 65_536
"""Sizes of images that are known by their hashes: a few MiB."""

Grid: TypeAlias = tuple[int, int, int]
"""Patches of an image in time, height and width."""


class ImageReader:
    """A model's view of images.

    Args:
        model: a folder as ``save_pretrained`` writes it, or a name of the Hugging Face Hub.
        config: its configuration.

    Raises:
        TrainingError: it does not say how images become pixels.
    """

    def __init__(self, model: str | Path, config: Any) -> None:
        self._processor = _image_processor(model)
        self._image_token = int(config.image_token_id)
        self._video_token = int(config.video_token_id)
        self._patches_per_token = int(config.vision_config.spatial_merge_size) ** 2
        self._grids: dict[bytes, Grid] = {}

    def fault(self, triplet: TripletRecord, images: Sequence[bytes]) -> Exclusion | None:
        """See :class:`ImageCheck`. A response must not hold a place for an image: nothing stands there."""
        try:
            counts = [self._tokens(self.grid(image)) for image in images]
        except ValueError:
            return Exclusion.BAD_IMAGE
        prompt, response = (np.frombuffer(ids, "<i4") for ids in (triplet.prompt_token_ids, triplet.response_token_ids))
        sampled_a_place = np.isin(response, (self._image_token, self._video_token)).any()
        if sampled_a_place or (prompt == self._video_token).any() or self._places(prompt) != counts:
            return Exclusion.IMAGES_MISMATCH
        return None

    def grid(self, image: bytes) -> Grid:
        """The patches of an image.

        Raises:
            ValueError: it cannot be read.
        """
        key = hashlib.sha256(image).digest()
        known = self._grids.get(key)
        if known is None:
            time, height, width = self.pixels([image])["image_grid_thw"][0].tolist()
            known = time, height, width
            if len(self._grids) >= GRIDS_KEPT:
                self._grids.clear()
            self._grids[key] = known
        return known

    def pixels(self, images: Sequence[bytes]) -> dict[str, Any]:
        """``pixel_values`` float32 (patches, numbers of a patch) and ``image_grid_thw`` int64 (n, 3), of n images.

        Raises:
            ValueError: one cannot be read, or is too long and narrow for the model.
        """
        made = self._processor(images=[_opened(image) for image in images], return_tensors="pt")
        return {name: made[name] for name in ("pixel_values", "image_grid_thw")}

    def image_places(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """1 where a token stands for a part of an image, else 0."""
        places: npt.NDArray[np.int64] = (ids == self._image_token).astype(np.int64)
        return places

    def _tokens(self, grid: Grid) -> int:
        return grid[0] * grid[1] * grid[2] // self._patches_per_token

    def _places(self, ids: npt.NDArray[np.int32]) -> list[int]:
        """Lengths of the runs of image tokens."""
        is_image = np.concatenate([[0], ids == self._image_token, [0]]).astype(np.int8)
        edges = np.flatnonzero(np.diff(is_image))
        lengths: list[int] = (edges[1::2] - edges[::2]).tolist()
        return lengths


class RowImages:
    """The images of a row, as verl takes a row's further inputs; pixels are made whenever it asks for them."""

    def __init__(self, reader: ImageReader, images: Sequence[bytes], device: str) -> None:
        self._reader = reader
        self._images = images
        self._device = device

    def __contains__(self, name: object) -> bool:
        return name in ("pixel_values", "image_grid_thw")

    def items(self) -> list[tuple[str, Any]]:
        """Names and tensors, on the model's device."""
        return [(name, tensor.to(self._device)) for name, tensor in self._reader.pixels(self._images).items()]


def image_reader(model: str | Path) -> ImageReader | None:
    """How a model reads images; ``None`` where it takes none.

    Raises:
        TrainingError: it cannot be read, or takes images and is of no kind that is trained with them.
    """
    from transformers import AutoConfig

    load: Any = AutoConfig.from_pretrained
    try:
        config = load(model)
    except (OSError, ValueError) as error:
        raise unloadable(model, error) from error
    if config.model_type in IMAGE_MODELS:
        return ImageReader(model, config)
    if hasattr(config, "vision_config"):
        raise TrainingError(
            f"the model {str(model)!r} looks at images, and a {config.model_type} is not trained.",
            next_step=f"Name a language model (…ForCausalLM), or one of {IMAGE_MODELS_IN_WORDS}.",
        )
    return None


def unloadable(model: str | Path, error: Exception) -> TrainingError:
    """The error of a model that transformers cannot load."""
    fault = str(error).partition("\n")[0].rstrip(".")  # what follows lists every model that there is
    return TrainingError(
        f"the model {str(model)!r} cannot be loaded: {fault}.",
        next_step="Name a folder as `save_pretrained` writes it, or a model of the Hugging Face Hub: a language "
        f"model (…ForCausalLM), or {IMAGE_MODELS_IN_WORDS}.",
    )


def positions_of(arrays: BatchArrays, reader: ImageReader, module: Any) -> npt.NDArray[np.int64]:
    """Positions of each token, int64 (4, tokens): of the text, which count from 0 in each row; time, height, width.

    Args:
        arrays: N rows, whose images fit their tokens.
        module: the model, whose ``get_rope_index`` says what follows from an image.
    """
    import torch

    positions = np.tile(arrays.position_ids, (POSITION_ROWS, 1))
    model = next(part for part in module.modules() if hasattr(part, "get_rope_index"))
    ends = np.cumsum(arrays.lengths)
    for images, start, end in zip(arrays.images, ends - arrays.lengths, ends, strict=True):
        if images:
            ids = arrays.input_ids[start:end]
            of_row, _ = model.get_rope_index(
                input_ids=torch.from_numpy(ids)[None],
                mm_token_type_ids=torch.from_numpy(reader.image_places(ids))[None],
                image_grid_thw=torch.tensor([reader.grid(image) for image in images]),
            )
            positions[1:, start:end] = of_row[:, 0].numpy()
    return positions


def see_an_image_always(module: Any) -> None:
    """Let a model compute an image that nobody sees wherever a pass has none.

    Each pass then calls the same modules, as processes that hold a part of the model each must, and each step gives
    every parameter a gradient. verl does the same, with answers of an older transformers in mind.
    """
    import torch

    model = module.model
    vision = module.config.vision_config
    side = 2 * vision.spatial_merge_size
    numbers = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2

    def before(_: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if named.get("pixel_values") is not None:
            return positional, named
        embeddings = model.get_input_embeddings()(named["input_ids"])
        pixels = torch.zeros(side * side, numbers, dtype=embeddings.dtype, device=embeddings.device)
        seen = model.visual(pixels, grid_thw=torch.tensor([[1, side, side]], device=embeddings.device))
        unseen = sum(part.sum() for part in (seen.pooler_output, *(getattr(seen, "deepstack_features", None) or ())))
        return positional, named | {"input_ids": None, "inputs_embeds": embeddings + 0.0 * unseen}

    model.register_forward_pre_hook(before, with_kwargs=True)


def _opened(image: bytes) -> Any:
    """The image in RGB.

    Raises:
        ValueError: it cannot be read.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(image)) as opened:
            return opened.convert("RGB")
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:  # SyntaxError: a PNG that is broken
        raise ValueError(f"an image of {len(image)} bytes cannot be read: {error}") from error


def _image_processor(model: str | Path) -> Any:
    from transformers.utils.import_utils import is_torchvision_available

    processors: Any
    if is_torchvision_available():  # as servers have it: the pixels are theirs to the last digit
        from transformers.models.qwen2_vl import image_processing_qwen2_vl as processors

        processor = processors.Qwen2VLImageProcessor
    else:
        from transformers.models.qwen2_vl import image_processing_pil_qwen2_vl as processors

        processor = processors.Qwen2VLImageProcessorPil
    try:
        return processor.from_pretrained(model)
    except OSError as error:
        raise TrainingError(
            f"the model {str(model)!r} looks at images, and has no {PROCESSOR_FILE} that says how: {error}.",
            next_step="Save its processor into the folder, too.",
        ) from error
