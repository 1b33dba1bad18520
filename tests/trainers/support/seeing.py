"""A tiny random Qwen2-VL (or a later one of the family) made on the spot, and images for it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightstream.trainers import make_tiny_model

HIDDEN = 64
SYMBOLS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
TEMPLATE = """\
{%- for m in messages -%}
{{- '<|im_start|>' + m['role'] + '\\n' -}}
{%- if m['content'] is string -%}{{- m['content'] -}}
{%- else -%}{%- for part in m['content'] -%}
{%- if part['type'] in ('image', 'image_url') -%}{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- else -%}{{- part['text'] -}}{%- endif -%}
{%- endfor -%}{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""


def picture(color: str, width: int = 16, height: int = 16, form: str = "PNG") -> bytes:
    """An image of one colour, as a file."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (width, height), color).save(file, form)
    return file.getvalue()


def make_seeing_model(folder: Path, kind: str = "qwen2_vl", *, seed: int = 0) -> Path:
    """Write model, tokenizer and image processor: patches of 4 x 4, of which 2 x 2 are one token; 64 pixels at least.

    The weights are larger than those of a new model, so that an image makes a difference.
    """
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText, AutoTokenizer
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    tokenizer: Any = AutoTokenizer.from_pretrained(make_tiny_model(folder, hidden_size=HIDDEN))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", *SYMBOLS]})
    tokenizer.chat_template = TEMPLATE
    ids = dict(zip(SYMBOLS, tokenizer.convert_tokens_to_ids(list(SYMBOLS)), strict=True))
    text: dict[str, Any] = {
        "vocab_size": len(tokenizer) + -len(tokenizer) % 8,
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]},
        "bos_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    vision: dict[str, Any] = {"depth": 2, "num_heads": 2, "patch_size": 4, "temporal_patch_size": 2}
    if kind == "qwen2_vl":
        vision |= {"embed_dim": 32, "hidden_size": HIDDEN, "mlp_ratio": 2}
    else:
        vision |= {"hidden_size": 32, "intermediate_size": 64, "out_hidden_size": HIDDEN}
    if kind == "qwen2_5_vl":
        vision |= {"window_size": 16, "fullatt_block_indexes": [1]}
    if kind == "qwen3_vl":
        vision |= {"num_position_embeddings": 64, "deepstack_visual_indexes": [0]}
        text["head_dim"] = HIDDEN // 2
    new_config: Any = AutoConfig.for_model
    config = new_config(
        kind,
        text_config=text,
        vision_config=vision,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False,
    )
    new_model: Any = AutoModelForImageTextToText.from_config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = new_model(config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() > 1 and "embed" not in name:
                    parameter.mul_(4)
    for leftover in folder.glob("*.safetensors"):
        leftover.unlink()
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    processor: Any = Qwen2VLImageProcessorPil
    processor(patch_size=4, merge_size=2, size={"shortest_edge": 64, "longest_edge": 4096}).save_pretrained(folder)
    return folder


class SeeingModel:
    """The model of a folder as transformers has it, without a word of ours: what others are compared with."""

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import AutoModelForImageTextToText, AutoTokenizer
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

        load: Any = AutoModelForImageTextToText.from_pretrained
        load_tokenizer: Any = AutoTokenizer.from_pretrained
        load_processor: Any = Qwen2VLImageProcessorPil.from_pretrained
        self.model = load(folder, dtype=torch.float32)
        self.tokenizer = load_tokenizer(folder)
        self._processor = load_processor(folder)
        self.image_token = int(self.model.config.image_token_id)

    def prompt(self, messages: Sequence[Any], images: Sequence[bytes]) -> list[int]:
        """Token ids of a conversation, with as many places for each image as it has tokens."""
        ids: list[int] = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        counts = iter([int(self._inputs([image])["image_grid_thw"][0].prod()) // 4 for image in images])
        return [token for one in ids for token in [one] * (next(counts) if one == self.image_token else 1)]

    def logprobs(self, ids: Sequence[int], images: Sequence[bytes]) -> Any:
        """Log-probabilities float32 (T - 1, vocabulary): of what follows each token but the last."""
        import torch

        tokens = torch.tensor([list(ids)])
        types = (tokens == self.image_token).int()
        logits = self.model(
            input_ids=tokens, attention_mask=torch.ones_like(tokens), mm_token_type_ids=types, **self._inputs(images)
        ).logits
        return logits[0, :-1].float().log_softmax(-1)

    def _inputs(self, images: Sequence[bytes]) -> dict[str, Any]:
        from PIL import Image

        if not images:
            return {}
        made = self._processor(images=[Image.open(io.BytesIO(image)) for image in images], return_tensors="pt")
        return {name: made[name] for name in ("pixel_values", "image_grid_thw")}
